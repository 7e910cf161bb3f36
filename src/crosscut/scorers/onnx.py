"""Cross-encoders without torch: a model folder run by onnxruntime.

Scores are raw logits. A pair's score does not depend on what it is scored with: items are padded, never
scaled, together, and padding is masked out of the attention.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.encoders.folder import DEFAULT, ModelFolder
from crosscut.encoders.session import TOKENS_PER_CALL
from crosscut.encoders.states import ItemStates, States, encode_alone
from crosscut.encoders.tokens import Tokens, matched
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.base import Floats, Positions, Request

CACHE_BYTES = 2 << 30
REMEMBERED_QUERIES = 256


class OnnxCrossEncoder:
    """A cross-encoder on texts; `bind` fixes a corpus.

    >>> scorer = OnnxCrossEncoder.load()                                   # the model in the box
    >>> scorer.score("he sat on the [START] bank [END] of the river", ["bank [ENT] sloping land", …])
    """

    def __init__(self, folder: ModelFolder) -> None:
        self.folder = folder
        self.fingerprint = folder.fingerprint("lower.onnx", "cross.onnx")
        self._lower = folder.session("lower.onnx")
        self._cross = folder.session("cross.onnx")

    @classmethod
    def load(cls, path: str | Path = DEFAULT, *, threads: int | None = None) -> OnnxCrossEncoder:
        """The model in the box, or the one in a folder written by `crosscut train cross-encoder`."""
        return cls(ModelFolder(path, threads=threads))

    def score(self, query: str, items: Sequence[str]) -> Floats:
        """Scores of a query with item texts, (len(items),)."""
        return self.bind(items).score(query, np.arange(len(items)))

    def bind(self, items: Sequence[str], *, cache_bytes: int = CACHE_BYTES) -> BoundOnnxCrossEncoder:
        """This model over a corpus: items are tokenised now, encoded when first scored, and kept."""
        return BoundOnnxCrossEncoder(self, items, cache_bytes)

    def __repr__(self) -> str:
        return f"OnnxCrossEncoder({str(self.folder.path)!r}, fingerprint={self.fingerprint!r})"


class BoundOnnxCrossEncoder:
    """A cross-encoder that knows its corpus; items are positions 0 … n − 1."""

    def __init__(self, model: OnnxCrossEncoder, items: Sequence[str], cache_bytes: int = CACHE_BYTES) -> None:
        self.model = model
        self.fingerprint = model.fingerprint
        tokens: list[Tokens] = []
        for start in range(0, len(items), 4096):  # keeps the tokenizer's own copies small
            tokens += model.folder.tokenizer.items(items[start : start + 4096])
        self.items = ItemStates(model._lower, tokens, model.folder.width, cache_bytes)
        self._queries: OrderedDict[str, tuple[States, Tokens]] = OrderedDict()

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

    def score(self, query: Any, positions: Positions) -> Floats:
        """Scores of one query with the items at `positions`, in that order."""
        return self.score_many([(query, positions)])[0]

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        """The scores of every request; their pairs go to the model in groups of about one length, side by side."""
        queries = [self._query(str(query)) for query, _ in requests]
        wanted = [self._checked(positions) for _, positions in requests]
        scores = [np.empty(len(positions), np.float64) for positions in wanted]
        if not sum(map(len, wanted)):
            return scores
        passing = self.items.fill(np.concatenate(wanted))
        lengths = [self.items.lengths[positions] for positions in wanted]
        sizes = [len(tokens.ids) for _, tokens in queries]
        total = sum(size * len(some) + int(some.sum()) for size, some in zip(sizes, lengths, strict=True))
        limit = min(TOKENS_PER_CALL, -(-total // self.model.folder.threads))  # every thread gets its share
        groups = [(r, rows) for r, size in enumerate(sizes) for rows in alike(lengths[r], size, tokens=limit)]

        def meet(group: tuple[int, Positions]) -> None:
            request, rows = group
            scores[request][rows] = self._meet(*queries[request], wanted[request][rows], passing)

        self.model._cross.map(meet, groups)
        return scores

    def _meet(self, states: States, tokens: Tokens, positions: Positions, passing: dict[int, States]) -> Floats:
        """One call of the model: a query with some items."""
        item_states, item_roles, item_keys, item_lengths = self.items.grid(positions, passing)
        try:
            return self.model._cross.run(
                {
                    "query_states": states[None],
                    "query_roles": tokens.roles[None],
                    "item_states": item_states,
                    "item_roles": matched(item_roles, item_keys, tokens),
                    "item_lengths": item_lengths,
                }
            )
        except Exception as error:  # onnxruntime's exceptions share no base class of their own
            raise ScorerError(f"the cross-encoder failed on {len(positions)} pairs: {error}") from error

    def _checked(self, positions: Positions) -> Positions:
        positions = np.asarray(positions, np.int64)
        if positions.size and not (positions.min() >= 0 and positions.max() < len(self)):
            raise InputError(
                f"positions {positions.min()} … {positions.max()} do not fit a corpus of {len(self)} items"
            )
        return positions

    def _query(self, query: str) -> tuple[States, Tokens]:
        """States of a query; the rounds of a search come back to the same one."""
        if query not in self._queries:
            tokens = self.model.folder.tokenizer.query(query)
            (states,) = encode_alone(self.model._lower, [tokens])
            self._queries[query] = (states, tokens)
            if len(self._queries) > REMEMBERED_QUERIES:
                self._queries.popitem(last=False)
        return self._queries[query]


def alike(lengths: Positions, query: int, *, tokens: int = TOKENS_PER_CALL, call: int = 12) -> Iterator[Positions]:
    """Rows in groups of nearly equal length, at most `tokens` tokens each.

    A longer row joins a group while the padding it brings costs less than a call of its own, which takes about as long
    as `call` tokens.
    """
    order = np.argsort(lengths, kind="stable")
    sizes = query + lengths[order]
    start = 0
    for place in range(1, len(order)):
        count = place - start
        if (sizes[place] - sizes[place - 1]) * count > call or sizes[place] * (count + 1) > tokens:
            yield order[start:place]
            start = place
    if len(order):
        yield order[start:]
