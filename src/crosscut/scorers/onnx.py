"""Cross-encoders without torch: a model folder run by onnxruntime.

    f(query, item) = known(query, item) + weight · costly(query, item)

The cross-encoder in the box is a *correction*: it was trained on top of what is known of a pair without a call
(`crosscut.encoders.known`: dual encoder, words, late interaction), and a score is the sum. A folder without such
constants holds a cross-encoder that stands alone; then known = 0 and weight = 1.

Scores are raw logits. A pair's score does not depend on what it is scored with: items are padded, never
scaled, together, and padding is masked out of the attention.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.folder import DEFAULT, ModelFolder, open_folder
from crosscut.encoders.known import FILES, Known
from crosscut.encoders.session import TOKENS_PER_CALL
from crosscut.encoders.states import ItemStates, States
from crosscut.encoders.tokens import Tokens, matched
from crosscut.encoders.words import Lexicon
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.base import Floats, Positions, Request

CACHE_BYTES = 2 << 30
PAIRS_AT_ONCE = 8192
READ_ONCE = 2048
"""Items up to which the known part reads the states that the cross-encoder keeps; of more, few will ever be scored."""


class Pair(NamedTuple):
    """A query and an item, read apart: states (length × D) and roles (length) of either."""

    query: States
    query_roles: Positions
    item: States
    item_roles: Positions


class OnnxCrossEncoder:
    """A cross-encoder on texts; `bind` fixes a corpus.

    >>> scorer = OnnxCrossEncoder.load()                                   # the model in the box
    >>> scorer.score("he sat on the [START] bank [END] of the river", ["bank [ENT] sloping land", …])
    """

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.corrects = folder.knows
        self.weight = folder.known.weight if self.corrects else 1.0
        known = ("dual.onnx", *FILES) if self.corrects else ()
        self.fingerprint = folder.fingerprint("lower.onnx", "cross.onnx", *known)
        self._lower, self._cross = folder.lower, folder.session("cross.onnx")

    @classmethod
    def load(cls, path: str | Path = DEFAULT, *, threads: int | None = None) -> OnnxCrossEncoder:
        """The model in the box, or the one in a folder written by `crosscut train cross-encoder`."""
        return cls(open_folder(path, threads=threads))

    def score(self, query: str, items: Sequence[str]) -> Floats:
        """Scores of a query with item texts, (len(items),)."""
        return self.bind(items).score(query, np.arange(len(items)))

    @cached_property
    def encoder(self) -> OnnxDualEncoder:
        """The dual encoder of the known part."""
        return OnnxDualEncoder(self.folder)

    def bind(
        self, items: Sequence[str], *, cache_bytes: int = CACHE_BYTES, lexicon: Lexicon | None = None
    ) -> BoundOnnxCrossEncoder:
        """This model over a corpus: items are tokenised now, encoded when first scored, and kept.

        `lexicon` weighs words in place of the box's own; an index that has one keeps it when items are added.
        """
        return BoundOnnxCrossEncoder(self, items, cache_bytes, lexicon)

    def __repr__(self) -> str:
        return f"OnnxCrossEncoder({str(self.folder.path)!r}, fingerprint={self.fingerprint!r})"


class BoundOnnxCrossEncoder:
    """A cross-encoder that knows its corpus; items are positions 0 … n − 1."""

    def __init__(
        self,
        model: OnnxCrossEncoder,
        items: Sequence[str],
        cache_bytes: int = CACHE_BYTES,
        lexicon: Lexicon | None = None,
    ) -> None:
        self.model = model
        self.weight = model.weight
        self.fingerprint = model.fingerprint if lexicon is None else f"{model.fingerprint}-{lexicon.fingerprint}"
        self._texts, self._lexicon = items, lexicon
        self._known: Known | None = None
        self._lock = threading.Lock()
        tokens: list[Tokens] = []
        for start in range(0, len(items), 4096):  # keeps the tokenizer's own copies small
            tokens += model.folder.tokenizer.items(items[start : start + 4096])
        self.items = ItemStates(model._lower, tokens, model.folder.width, cache_bytes)

    def __len__(self) -> int:
        return len(self.items.tokens)

    @property
    def n_items(self) -> int:
        """The size of the corpus, for whoever searches it."""
        return len(self)

    def preload(self) -> None:
        """Encode every item that can be kept now, instead of when it is first scored."""
        for start in range(0, self.items.kept, 1024):
            self.items.fill(np.arange(start, min(start + 1024, self.items.kept)))

    def known(self, query: Any, positions: Positions | None = None) -> Floats:
        """What is known without a call: of every item, (n,), or of those at `positions`.

        For every item it is exact up to `crosscut.encoders.known.DEEP` items; past that, late interaction is estimated
        for those that the rest speaks against. At `positions` it is always exact.
        """
        if not self.model.corrects:
            return np.zeros(len(self) if positions is None else len(positions))
        part = self._known_part()
        return part.all(str(query)) if positions is None else part.at(str(query), self._checked(positions))

    def _known_part(self) -> Known:
        with self._lock:  # encoding a corpus twice would be dear
            if self._known is None:
                read = None
                if len(self) <= min(READ_ONCE, self.items.kept):  # few: read them once for both models
                    self.items.fill(np.arange(len(self)))
                    states = [self.items.of(position, {}) for position in range(len(self))]
                    read = self.model.encoder.read_states(self.items.tokens, states)
                self._known = Known(self.model.encoder, self._texts, lexicon=self._lexicon, read=read)
            return self._known

    def score(self, query: Any, positions: Positions) -> Floats:
        """Scores of one query with the items at `positions`, in that order: known + weight · costly."""
        return self.score_many([(query, positions)])[0]

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        """The scores of every request: known + weight · costly."""
        costly = self.costly_many(requests)
        if not self.model.corrects:
            return costly
        return [
            self.known(query, positions) + self.weight * scores
            for (query, positions), scores in zip(requests, costly, strict=True)
        ]

    def costly_many(self, requests: Sequence[Request]) -> list[Floats]:
        """What the cross-encoder says of every request; pairs of about one length go to the model together, whosever
        they are."""
        if not requests:
            return []
        queries = self.model.folder.read_queries([str(query) for query, _ in requests])
        wanted = [self._checked(positions) for _, positions in requests]
        owners, positions = np.repeat(np.arange(len(wanted)), [len(some) for some in wanted]), np.concatenate(wanted)
        scores = np.empty(len(positions), np.float64)
        for start in range(0, len(positions), PAIRS_AT_ONCE):
            part = slice(start, start + PAIRS_AT_ONCE)
            scores[part] = self._score_pairs(queries, owners[part], positions[part])
        return np.split(scores, np.cumsum([len(some) for some in wanted])[:-1])

    def _score_pairs(self, queries: Sequence[tuple[States, Tokens]], owners: Positions, positions: Positions) -> Floats:
        """Scores of pairs (queries[owner], item), the pairs of a query side by side."""
        passing = self.items.fill(positions)
        pairs: list[Pair] = []
        for owner in np.unique(owners).tolist():
            states, tokens = queries[owner]
            some = positions[owners == owner]
            pairs += [
                Pair(states, tokens.roles, self.items.of(position, passing), roles)
                for position, roles in zip(some.tolist(), self._roles(some, tokens), strict=True)
            ]
        sizes = np.asarray([len(pair.query) + len(pair.item) for pair in pairs])
        limit = min(TOKENS_PER_CALL, -(-int(sizes.sum()) // self.model.folder.threads))  # every thread gets its share
        scores = np.empty(len(pairs), np.float64)

        def meet(rows: Positions) -> None:
            scores[rows] = self._meet([pairs[row] for row in rows.tolist()])

        self.model._cross.map(meet, list(alike(sizes, tokens=limit))[::-1])  # the longest first
        return scores

    def _roles(self, positions: Positions, query: Tokens) -> list[Positions]:
        """Roles of every item's tokens once the query is known."""
        items = [self.items.tokens[position] for position in positions.tolist()]
        roles = matched(np.concatenate([t.roles for t in items]), np.concatenate([t.keys for t in items]), query)
        return np.split(roles, np.cumsum(self.items.lengths[positions])[:-1])

    def _meet(self, pairs: Sequence[Pair]) -> Floats:
        """One call of the model."""
        starts = np.asarray([len(pair.query) for pair in pairs])
        lengths = starts + [len(pair.item) for pair in pairs]
        shape = (len(pairs), int(lengths.max()))
        states = np.zeros((*shape, self.model.folder.width), self.items.dtype)
        roles = np.zeros(shape, np.int64)
        for row, (pair, start, end) in enumerate(zip(pairs, starts.tolist(), lengths.tolist(), strict=True)):
            states[row, :start], states[row, start:end] = pair.query, pair.item
            roles[row, :start], roles[row, start:end] = pair.query_roles, pair.item_roles
        try:
            return self.model._cross.run({"states": states, "roles": roles, "items": starts, "lengths": lengths})
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise ScorerError(f"the cross-encoder failed on {len(pairs)} pairs: {error}") from error

    def _checked(self, positions: Positions) -> Positions:
        positions = np.asarray(positions, np.int64)
        if positions.size and not (positions.min() >= 0 and positions.max() < len(self)):
            raise InputError(
                f"positions {positions.min()} … {positions.max()} do not fit a corpus of {len(self)} items"
            )
        return positions


def alike(sizes: Positions, *, tokens: int = TOKENS_PER_CALL, call: int = 12) -> Iterator[Positions]:
    """Rows in groups of nearly equal size, from small to large, at most `tokens` tokens each.

    A longer row joins a group while the padding it brings costs less than a call of its own, which takes about as long
    as `call` tokens.
    """
    order = np.argsort(sizes, kind="stable")
    sizes = sizes[order]
    start = 0
    for place in range(1, len(order)):
        count = place - start
        if (sizes[place] - sizes[place - 1]) * count > call or sizes[place] * (count + 1) > tokens:
            yield order[start:place]
            start = place
    if len(order):
        yield order[start:]
