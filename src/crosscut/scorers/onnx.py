"""Cross-encoders without torch: a model folder run by onnxruntime.

    f(query, item) = known(query, item) + weight(query) · costly(query, item)

A cross-encoder may be a *correction*: trained on top of what is known of a pair without a call
(`crosscut.encoders.known`: dual encoder, words, late interaction), and a score is the sum. A folder without such
constants holds a cross-encoder that stands alone; then known = 0 and the weight is 1.

Scores are raw logits. A pair's score does not depend on what it is scored with: items are padded, never
scaled, together, and padding is masked out of the attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crosscut.datasets.records import Item, Items, SharedItems, items_of
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.folder import DEFAULT, ModelFolder, open_folder
from crosscut.encoders.known import FILES, Known
from crosscut.encoders.session import TOKENS_PER_CALL
from crosscut.encoders.states import ItemStates, ReadItem, States
from crosscut.encoders.titles import Titles
from crosscut.encoders.tokens import Tokens, marked_text, matched
from crosscut.encoders.words import Lexicon, Words
from crosscut.errors import ScorerError
from crosscut.linalg.blas import one_thread
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult, count_of
from crosscut.threads import ForkLock
from crosscut.types import Floats, Handles, Positions

CACHE_BYTES = 2 << 30
PAIRS_AT_ONCE = 8192


class Pair(NamedTuple):
    """A query and an item, read apart: states (length × D) and roles (length) of either."""

    query: States
    query_roles: Positions
    item: States
    item_roles: Positions


class OnnxCrossEncoder(Scorer):
    """A cross-encoder on items; `bind` says where they are. A text may have its title inside, `title [ENT] text`.

    >>> scorer = OnnxCrossEncoder.load()                                   # the model in the box
    >>> scorer.score("he sat on the [START] bank [END] of the river", ["bank [ENT] sloping land", …])
    """

    local = True  # a call costs neither money nor a request: a server may warm it up

    def __init__(self, folder: ModelFolder, *, lexicon: Lexicon | None = None, alone: bool = False) -> None:
        self.folder, self.lexicon = folder, lexicon
        self.corrects = folder.knows and not alone
        known = ("dual.onnx", *FILES) if self.corrects else ()
        self._fingerprint = folder.fingerprint("lower.onnx", "cross.onnx", *known)
        self._lower, self._cross = folder.lower, folder.session("cross.onnx")

    @classmethod
    def load(
        cls,
        path: str | Path = DEFAULT,
        *,
        threads: int | None = None,
        lexicon: Lexicon | None = None,
        alone: bool = False,
    ) -> OnnxCrossEncoder:
        """The model in the box, or the one in a folder written by `crosscut train cross-encoder`.

        `lexicon` weighs words in place of the folder's own, where the model corrects what words say. `alone` is the
        cross-encoder by itself, without what is known: a black box such as users bring, for experiments.
        """
        return cls(open_folder(path, threads=threads), lexicon=lexicon, alone=alone)

    @property
    def fingerprint(self) -> str:
        if self.lexicon is None or not self.corrects:
            return self._fingerprint
        return f"{self._fingerprint}-{self.lexicon.fingerprint}"

    @property
    def weights_fingerprint(self) -> str:
        """Of the model alone, whatever weighs words."""
        return self._fingerprint

    def under(self, lexicon: Lexicon | None) -> OnnxCrossEncoder:
        """The same with words weighed by this lexicon; None: the folder's own."""
        made = copy(self)
        made.lexicon = lexicon
        return made

    @property
    def weighing(self) -> Lexicon:
        """What weighs words."""
        return self.lexicon or self.folder.known.lexicon

    @cached_property
    def encoder(self) -> OnnxDualEncoder:
        """The dual encoder of the known part."""
        return OnnxDualEncoder(self.folder)

    def bind(self, items: Items | Sequence[Item | str], *, cache_bytes: int = CACHE_BYTES) -> BoundOnnxCrossEncoder:
        """This model over items: each is tokenised and encoded when first scored, and kept."""
        return BoundOnnxCrossEncoder(self, items_of(items), cache_bytes)

    def __repr__(self) -> str:
        return f"OnnxCrossEncoder({str(self.folder.path)!r}, fingerprint={self.fingerprint!r})"


class BoundOnnxCrossEncoder(BoundScorer):
    """A cross-encoder that knows its items."""

    def __init__(self, model: OnnxCrossEncoder, items: Items, cache_bytes: int = CACHE_BYTES) -> None:
        self.model = model
        self.n_items = count_of(items)
        self._source = items
        filed = isinstance(items, SharedItems) and items.filed  # nobody reads all of those, nor keeps what was read
        self.knows = model.corrects and not filed
        self._known: Known | None = None  # of the items, as far as they have been read
        self._lock = ForkLock()
        self.items = ItemStates(model._lower, model.folder.tokenizer, items, cache_bytes)

    def preload(self, handles: Handles) -> None:
        """Read items now, as many as can be kept."""
        for start in range(0, len(handles), 1024):
            if not self.items.states.full:
                self.items.read(handles[start : start + 1024])

    def preknow(self) -> None:
        """Read every item now, from the states that are kept."""
        if self.knows:
            self.keep(self._read(np.arange(self._count() or 0)))

    def keep(self, known: Known | None) -> None:
        """What is known of the items was read before, or is none of every item: of candidates only, when scored."""
        with self._lock:
            self._known, self.knows = known, known is not None

    def known(self, query: Any, handles: Handles | None = None) -> Floats:
        """What is known without a call: of every item there is now, (n,), or of some.

        For every item it is exact up to `crosscut.encoders.known.DEEP` items; past that, late interaction is estimated
        for those that the rest speaks against. Of some it is always exact. The first time that every item is asked for
        those are read of which nothing is kept; until then some are read here and now, alike up to rounding.
        """
        if not self.model.corrects:
            return np.zeros(self._count() or 0 if handles is None else len(handles))
        if handles is None:
            return self._read_all().all(str(query))
        return self._known_at(str(query), handles)[0]

    def _known_at(self, query: str, handles: Handles) -> tuple[Floats, float]:
        """What is known of some items, and what the cross-encoder counts beside it."""
        with self._lock:
            kept = self._known
        known, weight = np.empty(len(handles)), 0.0
        inside = (handles >= 0) & (handles < (0 if kept is None else len(kept)))
        if kept is not None:
            known[inside], weight = kept.at(query, handles[inside]), kept.ask(query).correction
        if not inside.all():
            new = self._read(handles[~inside])
            known[~inside], weight = new.at(query, np.arange(len(new))), new.ask(query).correction
        return known, weight

    def known_of_all(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        if not self.model.corrects:
            return super().known_of_all(queries, n)
        return [known[:n] for known in self._read_all().all_many([str(query) for query in queries])]

    def _count(self) -> int | None:
        """How many items there are now, if that is known; those in files are not all read."""
        if isinstance(self._source, SharedItems):
            return None if self._source.filed else self._source.total
        return count_of(self._source)

    def _read_all(self) -> Known:
        """The known part of every item; items of which nothing is kept are read now."""
        with self._lock:  # encoding a corpus twice would be dear
            kept, count = self._known, self._count() or 0
            if kept is None:
                kept = Known.of(self.model.encoder, self._texts(np.arange(count)), lexicon=self.model.lexicon)
            elif count > len(kept):
                kept = kept.extended(self._texts(np.arange(len(kept), count)))
            self._known = kept
            return kept

    def _read(self, handles: Handles) -> Known:
        """The known part of a few items, whose states are mostly kept already."""
        read = self.items.read(handles)
        items = [read[handle] for handle in handles.tolist()]
        read_again = self.model.encoder.read_states([item.tokens for item in items], [item.states for item in items])
        texts = self._texts(handles)
        words = Words.of(texts, self.model.weighing)
        return Known(self.model.encoder, words, *read_again, Titles.of(texts))

    def _texts(self, handles: Handles) -> list[str]:
        return [marked_text(item) for item in self._source.get(handles)]

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        """An answer to every request: known + weight(query) · costly."""
        answers = self.costly_many(requests)
        if not self.model.corrects:
            return answers
        with one_thread():
            return [self._corrected(*request, answer) for request, answer in zip(requests, answers, strict=True)]

    def _corrected(self, query: Any, handles: Handles, answer: ScoreResult) -> ScoreResult:
        there = np.isfinite(answer.scores)  # nothing is added to what failed
        scores = np.full(len(there), np.nan)
        known, weight = self._known_at(str(query), np.asarray(handles, np.int64)[there])
        scores[there] = known + weight * answer.scores[there]
        return ScoreResult(scores, answer.attempted, answer.error)

    def costly_many(self, requests: Sequence[Request]) -> list[ScoreResult]:
        """What the cross-encoder says of every request; pairs of about one length go to the model together, whosever
        they are."""
        queries = self.model.folder.read_queries([str(query) for query, _ in requests])

        def read(owners: Positions, handles: Positions) -> Callable[[], Floats]:
            items = self.items.read(handles)
            return partial(self._score_pairs, queries, owners, [items[handle] for handle in handles.tolist()])

        return as_pairs(requests, read)

    def _score_pairs(
        self, queries: Sequence[tuple[States, Tokens]], owners: Positions, items: Sequence[ReadItem]
    ) -> Floats:
        """Scores of pairs (queries[owner], item), the pairs of a query side by side."""
        pairs: list[Pair] = []
        for owner, group in groupby(zip(owners.tolist(), items, strict=True), key=itemgetter(0)):
            states, tokens = queries[owner]
            some = [item for _, item in group]
            pairs += [
                Pair(states, tokens.roles, item.states, roles)
                for item, roles in zip(some, _roles([item.tokens for item in some], tokens), strict=True)
            ]
        sizes = np.asarray([len(pair.query) + len(pair.item) for pair in pairs])
        limit = min(TOKENS_PER_CALL, -(-int(sizes.sum()) // self.model.folder.threads))  # every thread gets its share
        scores = np.empty(len(pairs), np.float64)

        def meet(rows: Positions) -> None:
            scores[rows] = self._meet([pairs[row] for row in rows.tolist()])

        self.model._cross.map(meet, list(alike(sizes, tokens=limit))[::-1])  # the longest first
        return scores

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
        return self.model._cross.run({"states": states, "roles": roles, "items": starts, "lengths": lengths})


def as_pairs(
    requests: Sequence[Request], read: Callable[[Positions, Positions], Callable[[], Floats]]
) -> list[ScoreResult]:
    """All requests as one list of pairs, some at a time: `read(owners, handles)` reads them, the call it gives pays."""
    if not requests:
        return []
    sizes = [len(handles) for _, handles in requests]
    handles = np.concatenate([np.asarray(handles, np.int64) for _, handles in requests])
    owners = np.repeat(np.arange(len(sizes)), sizes)
    scores, paid = np.full(len(handles), np.nan), np.zeros(len(handles), np.bool_)
    failed: ScorerError | None = None
    for start in range(0, len(handles), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        try:
            call = read(owners[part], handles[part])
            paid[part] = True
            scores[part] = call()
        except Exception as error:  # onnxruntime's exceptions share no base class; items may come from anywhere
            failed = ScorerError(f"the cross-encoder failed on {len(handles[part])} pairs: {error}")
            failed.__cause__ = error
            break
    ends = np.cumsum(sizes)[:-1]
    return [
        ScoreResult(some, called, None if np.isfinite(some).all() else failed)
        for some, called in zip(np.split(scores, ends), np.split(paid, ends), strict=True)
    ]


def _roles(items: Sequence[Tokens], query: Tokens) -> list[Positions]:
    """Roles of every item's tokens once the query is known."""
    roles = matched(np.concatenate([t.roles for t in items]), np.concatenate([t.keys for t in items]), query)
    return np.split(roles, np.cumsum([len(t.ids) for t in items])[:-1])


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
