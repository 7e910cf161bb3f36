"""The items of an index and all that is kept of them: a value, replaced by whatever changes it.

A search goes on with the corpus on which it began.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered, clusters
from crosscut.ann.segments import Segmented
from crosscut.datasets.records import Item
from crosscut.datasets.tables import CorpusItems
from crosscut.errors import InputError
from crosscut.index.build import WAYS, Brought, Reading, distinct, read, separate
from crosscut.index.folder import packed, write_corpus
from crosscut.index.items import Filter
from crosscut.index.knowing import ScorerVectors, bound, corpus_parts, reader
from crosscut.index.log import Logged
from crosscut.index.metadata import Metadata
from crosscut.index.passages import OF, Passages, document_at, document_of
from crosscut.index.segment import Segment
from crosscut.latest import Latest
from crosscut.linalg.arrays import finite
from crosscut.methods.base import Method, Parts
from crosscut.models.bi_encoder import DualEncoder
from crosscut.retrieval.bm25 import BM25
from crosscut.score_store.cache import StoreCache
from crosscut.score_store.keys import Contents
from crosscut.score_store.store import ScoreStore
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.search.hits import Hits
from crosscut.search.prior import Prior
from crosscut.search.ranking import Evidence
from crosscut.searcher import Allow, Searcher
from crosscut.spaces.base import Space, Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.extension import extended_scores, extension_error
from crosscut.spaces.factorization.factors import Factors
from crosscut.spaces.home import Home
from crosscut.spaces.rows import Rows
from crosscut.storage import Files, Folder
from crosscut.types import Array, Floats, Handles, Mask, Positions, Progress

if TYPE_CHECKING:
    from crosscut.stores.base import Store

T = TypeVar("T")
FILTERS = 8  # whose answers are kept
LISTED = 1 << 13  # items from which a segment of a large index has lists
SEGMENT = 1 << 18  # items that a segment is not joined beyond
GONE = 0.125  # of a large index in its folder: the share of removed items past which its files are written anew
SEARCHERS = 16  # of different methods or settings, kept


class View(Protocol):
    """A corpus as one search sees it; handles are valid within it."""

    @property
    def searcher(self) -> Searcher: ...

    @property
    def allow(self) -> Allow | None:
        """Conditions for a vector store."""

    @property
    def within(self) -> Handles | None:
        """The handles that a filter lets through, sorted; None: no restriction in memory."""

    def handles(self, ids: Sequence[Any] | None) -> Sequence[int] | Positions | None:
        """The handles of items that a caller names."""

    def ids(self, handles: Handles) -> list[Any]: ...

    def items(self, handles: Handles) -> list[Item]: ...

    def sample(self, count: int, rng: np.random.Generator) -> Handles:
        """Handles to draw `count` random items from."""

    def document(self, handle: int) -> Any:
        """The document of a passage; of an item that is none, its id."""

    def evidence(self, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
        """Return features of all scored items from vectors and words."""

    def named(self, hits: Hits, k: int) -> Hits:
        """The best k with their ids and items."""


class LearningSpace(NamedTuple):
    """The space that past searches are learned in."""

    space: Space
    anchors: CUR | None
    n: int
    handle_of: Callable[[str], int | None]
    ids: Sequence[str] = ()
    """Of the handles, where these are not the corpus's own."""


class Corpus(Protocol):
    """The items of an index: in memory and files, or in a vector store."""

    @property
    def store(self) -> Store | None:
        """The vector store that holds the items; None: they are in memory or files."""

    @property
    def place(self) -> str | None: ...

    @property
    def score_store(self) -> ScoreStore | None: ...

    @property
    def anchors(self) -> Array | None: ...

    @property
    def passages(self) -> Passages | None: ...

    @property
    def prior(self) -> Prior | None: ...

    @property
    def seed(self) -> int: ...

    def __len__(self) -> int: ...

    def __contains__(self, id: object) -> bool: ...

    @property
    def has_vectors(self) -> bool: ...

    @property
    def free_scorer(self) -> bool:
        """Whether the scorer gives every score without a call."""

    @property
    def parts(self) -> Parts:
        """The inputs of methods."""

    def item(self, id: str) -> Item: ...

    def named(self, ids: Sequence[Any]) -> list[Item]:
        """The items of some ids; of a document all its passages. An unknown id is an error."""

    def view(self, method: Method, filter: Filter | None = None) -> View: ...

    def added(
        self,
        items: list[Item],
        vectors: Brought | None,
        encoder: DualEncoder | None,
        scorer: Scorer | None,
        progress: Progress | None,
    ) -> Self:
        """With more items, which are encoded and not scored."""

    def removed(self, ids: Sequence[Any], scorer: Scorer | None) -> Self: ...

    def check_known(self, ids: Sequence[Any]) -> None:
        """Refuse ids of which the index holds nothing."""

    def log_ids(self, ids: Sequence[Any]) -> list[str]:
        """The ids under which a log may hold some items; of a document those of its passages, too."""

    def forgotten(self, ids: Sequence[Any], texts: Sequence[str], scorer: Scorer | None) -> tuple[Self, int, int]:
        """Without any trace of some items, removed ones and old versions included, also in the score store; with how
        many items and scores were found."""

    def fresh(self) -> Self:
        """With a cache that keeps scores of items that were forgotten and added again."""

    def preload(self) -> None:
        """Let the scorer prepare every item."""

    def flush(self) -> None:
        """Write scores that wait for their store."""

    def close(self) -> None: ...

    def learning_space(self, searches: Sequence[Logged]) -> LearningSpace: ...

    def with_prior(self, prior: Prior | None, space: LearningSpace | None = None) -> Self: ...


@dataclass(frozen=True)
class LocalView:
    """A local corpus as one search sees it."""

    corpus: LocalCorpus
    searcher: Searcher
    within: Handles | None
    allow: None = None

    def handles(self, ids: Sequence[Any] | None) -> list[int] | None:
        named = [ids] if isinstance(ids, str) else ids
        return None if named is None else [place for id in named for place in self.corpus.all_of(id)]

    def ids(self, handles: Handles) -> list[str]:
        return [item.id for item in self.items(handles)]

    def items(self, handles: Handles) -> list[Item]:
        return self.corpus.items.get(handles)

    def sample(self, count: int, rng: np.random.Generator) -> Handles:
        return np.flatnonzero(self.corpus.alive)

    def document(self, handle: int) -> str:
        return str(document_at(self.corpus.items, handle))

    def evidence(self, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
        corpus, handles = self.corpus, hits.scored
        found: dict[str, Floats] = {}
        if corpus.vectors is not None and vector is not None:
            rows = np.asarray(corpus.vectors[handles], np.float64)
            found["dense"] = np.asarray(np.einsum("md,d->m", rows, np.asarray(vector, np.float64)))
        if corpus.bm25 is not None:
            found["words"] = np.asarray(corpus.bm25.scores(str(hits.query)), np.float64)[handles]
        return found

    def named(self, hits: Hits, k: int) -> Hits:
        """The best k with their items; of an index with passages, documents with their best passage."""
        cut, items = self.corpus.passages, self.corpus.items
        if cut is not None:
            hits = hits.grouped(partial(document_at, items), k, cut.score)
        found = zip(hits, items.get(np.array([hit.position for hit in hits], np.int64)), strict=True)
        named = [replace(hit, id=item.id if cut is None else hit.id, text=item.text, item=item) for hit, item in found]
        return replace(hits, items=tuple(named))


@dataclass(frozen=True, eq=False)
class LocalCorpus:
    """Segments of items, which of them are still there, and what is kept about all of them, position by position."""

    place: ClassVar[None] = None
    store: ClassVar[None] = None
    segments: tuple[Segment, ...]
    alive: npt.NDArray[np.bool_]  # (n) False: removed
    items: CorpusItems
    scorer: BoundScorer | None = None  # bound to items.shared; None: nothing can be scored yet
    centroids: npt.NDArray[np.float32] | None = None  # (lists × d) of a large index's vectors
    statistics: Mapping[str, Array] = field(default_factory=dict)  # of the corpus when it was built, for its scorer
    known: ScorerVectors | None = None  # for a scorer that uses vectors of the items
    anchors: npt.NDArray[Any] | None = None  # (k_q × n) scores of anchor queries
    anchor_vectors: Array | None = None  # (k_q × d) the encoder's vectors of the anchor queries
    measured: npt.NDArray[np.bool_] | None = None  # (n) False: that column of anchors is an estimate
    factors: Factors | None = None  # (n × d) of a sparse score matrix
    prior: Prior | None = None  # of query vectors, learned from past searches
    passages: Passages | None = None  # how documents were cut into the items, if they were
    cache: ScoreCache | None = None
    seed: int = 0
    _made: dict[str, tuple[tuple[Any, ...], Any]] = field(default_factory=dict, repr=False)
    """By name: what corpora that follow one another have derived last, and from which parts."""
    _within: Latest[Handles] = field(default_factory=lambda: Latest(FILTERS), init=False, repr=False)
    _searchers: Latest[Searcher] = field(default_factory=lambda: Latest(SEARCHERS), init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    @classmethod
    def of(cls, segments: Sequence[Segment], **rest: Any) -> LocalCorpus:
        """Of segments whose items are all there; without a scorer."""
        items = CorpusItems(segment.items for segment in segments)
        return cls(tuple(segments), np.ones(len(items), np.bool_), items, **rest)

    def with_alive(self, alive: Mask) -> LocalCorpus:
        """With only these items there."""
        return replace(self, alive=alive)

    def bound(self, scorer: Scorer | None) -> LocalCorpus:
        """With a scorer over its items."""
        return replace(self, scorer=bound(scorer, self.items, self.known, self.vectors, self.bm25))

    def _kept(self, name: str, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """Return a cached value made of the same parts, here or by the corpus before; else make it."""
        known = self._made.get(name)
        if known is None or [*map(id, known[0])] != [*map(id, parts)]:
            known = self._made[name] = parts, make()
        made: T = known[1]
        return made

    # -- items ---------------------------------------------------------------------------------------------------

    @cached_property
    def size(self) -> int:
        """Return the number of items."""
        return int(np.count_nonzero(self.alive))

    def __len__(self) -> int:
        return self.size

    @property
    def starts(self) -> list[int]:
        """(segments + 1) the position at which each begins."""
        return [0, *accumulate(map(len, self.segments))]

    @property
    def _parts(self) -> Iterator[tuple[Segment, slice]]:
        """The segments, and the positions of each."""
        for segment, (start, end) in zip(self.segments, pairwise(self.starts), strict=True):
            yield segment, slice(start, end)

    def find(self, ids: Iterable[str], *, removed: bool = False) -> dict[str, list[int]]:
        """Id → positions of the items that are there; with `removed`, also of those that were removed."""
        wanted, found = [id for id in ids if isinstance(id, str)], dict[str, list[int]]()
        for segment, here in self._parts:
            for id, place in segment.items.find(wanted):
                if removed or self.alive[here.start + place]:
                    found.setdefault(id, []).append(here.start + place)
        return found

    def passages_of(self, document: object) -> list[int]:
        """The positions of the passages of a document; of none in an index without passages."""
        if self.passages is None or not isinstance(document, str):
            return []
        found = self.columns.find(OF, document)
        return [int(position) for position in found if self.alive[position]]

    def position(self, id: str) -> int:
        """The position of an item."""
        found = self.find([id])
        if not found:
            way = "" if isinstance(id, str) else f"; ids are texts: {str(id)!r}"
            raise InputError(f"item id {id!r} is not among the {self.size} items of the index{way}")
        return found[id][0]

    def all_of(self, id: str) -> list[int]:
        """The position of an item; of a document, those of its passages. An exact id goes before a document's name."""
        found = self.find([id])
        return [found[id][0]] if found else self.passages_of(id) or [self.position(id)]

    def __contains__(self, id: object) -> bool:
        return isinstance(id, str) and bool(self.find([id]) or self.passages_of(id))

    def item(self, id: str) -> Item:
        """An item; of an index with passages, also a document."""
        places = self.all_of(id)
        items = self.items.get(np.array(places, np.int64))
        return items[0] if items[0].id == id else document_of(items)

    def named(self, ids: Sequence[str]) -> list[Item]:
        """The items of some ids; of a document all its passages. An unknown id is an error."""
        return self.items.get(np.array([place for id in ids for place in self.all_of(id)], np.int64))

    def listed(self) -> list[Item]:
        """The items that are there, in the order of arrival."""
        return [item for item, alive in zip(self.items, self.alive.tolist(), strict=True) if alive]

    @cached_property
    def columns(self) -> Metadata:
        """The items' metadata, for filters."""
        return Metadata([segment.columns for segment in self.segments])

    def within(self, filter: Filter | None) -> Handles | None:
        """The items that may be found, sorted; None for all. The last few answers are kept."""
        if filter is None and self.size == len(self.items):
            return None

        def make() -> Handles:
            return np.flatnonzero(self.alive if filter is None else self.alive & self.columns.passing(filter))

        return make() if callable(filter) else self._within.get(repr(filter), make)

    # -- searching -----------------------------------------------------------------------------------------------

    @property
    def has_vectors(self) -> bool:
        return self.vectors is not None

    @property
    def free_scorer(self) -> bool:
        return self.scorer is not None and self.scorer.free

    @cached_property
    def vectors(self) -> Array | Rows | None:
        """(n × d) in the order of the positions; of a small index one array."""
        blocks = [segment.vectors for segment in self.segments if segment.vectors is not None]
        if not blocks:
            return None
        return Rows(blocks) if self.centroids is not None else self._kept("vectors", tuple(blocks), Rows(blocks).whole)

    @cached_property
    def encoder_space(self) -> Space | None:
        """The encoder's vectors; by lists where there are many of them."""
        if self.vectors is None:
            return None
        if self.centroids is None:
            rows = self.vectors
            return self._kept("space", (rows,), lambda: Vectors(np.asarray(rows)))
        spaces = tuple(segment.space for segment in self.segments)
        return spaces[0] if len(spaces) == 1 else self._kept("space", spaces, lambda: Segmented(spaces))

    @property
    def _lists_of_items(self) -> Home | None:
        return None if self.encoder_space is None else self.encoder_space.home

    @cached_property
    def anchor_space(self) -> CUR | None:
        if self.anchors is None:
            return None
        if self.measured is None or self.measured.all():
            return CUR(self.anchors, query_vectors=self.anchor_vectors).lying(self._lists_of_items)
        error = extension_error(self.anchors, self.vectors, self.measured)
        errors = np.where(self.measured, 0.0, error)
        return CUR(self.anchors, errors=errors, query_vectors=self.anchor_vectors).lying(self._lists_of_items)

    @cached_property
    def factor_space(self) -> Factors | None:
        return None if self.factors is None else self.factors.lying(self._lists_of_items)

    @cached_property
    def bm25(self) -> BM25 | None:
        words = [segment.words for segment in self.segments if segment.words is not None]
        return BM25.over(words, self.alive) if words else None

    @cached_property
    def parts(self) -> Parts:
        """The inputs of methods."""
        return Parts(
            encoder=self.encoder_space,
            anchors=self.anchor_space,
            factors=self.factor_space,
            words=self.bm25,
            prior=self.prior,
            n=len(self.items),
            seed=self.seed,
            ways=WAYS,
        )

    def view(self, method: Method, filter: Filter | None = None) -> LocalView:
        return LocalView(self, self.searcher(method), self.within(filter))

    def searcher(self, method: Method) -> Searcher:
        """The searcher of a method, made once; the last few are kept."""
        if self.scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        make = partial(Searcher, self.scorer, method=method, cache=self.cache, parts=self.parts)
        with self._lock:  # what a method prepares, it prepares once
            return self._searchers.get(method, make)

    def preload(self) -> None:
        """Let the scorer prepare every item."""
        if self.scorer is not None:
            self.scorer.preload(np.flatnonzero(self.alive))

    def learning_space(self, searches: Sequence[Logged] = ()) -> LearningSpace:
        """The space that past searches are learned in."""
        if self.encoder_space is None:
            raise InputError("this index has no vectors, in whose space it could learn: build it with an encoder")
        found = self.find({id for search in searches for id in search.ids})
        positions = {id: places[0] for id, places in found.items()}
        return LearningSpace(self.encoder_space, self.anchor_space, len(self.items), positions.get)

    def with_prior(self, prior: Prior | None, space: LearningSpace | None = None) -> LocalCorpus:
        return replace(self, prior=prior)

    # -- changes -------------------------------------------------------------------------------------------------

    def clustered(self) -> LocalCorpus:
        """With lists, if there are so many vectors that rounds should not read them all."""
        if self.vectors is None or len(self.items) < clustered.SMALL or self.centroids is not None:
            return self
        centroids, home = clusters.partition(self.vectors, seed=self.seed)  # type: ignore[arg-type]
        segments = tuple(segment.arranged(centroids, home[here]) for segment, here in self._parts)
        return replace(self, segments=segments, centroids=centroids, anchors=by_item(self.anchors))

    def added(
        self,
        items: list[Item],
        vectors: Brought | None,
        encoder: DualEncoder | None,
        scorer: Scorer | None,
        progress: Progress | None,
    ) -> LocalCorpus:
        """With more items, which are encoded and not scored."""
        distinct(items)
        known = [*self.find(item.id for item in items)]
        known += [item.id for item in items if self.passages_of(item.id)]
        if known:
            raise InputError(
                f"{len(known)} of {len(items)} ids are in the index already, the first is {known[0]!r}; "
                "remove them first, or give new ids"
            )
        if self.passages is not None:
            documents, items = items, list(self.passages.cut(items))
            separate(documents, items)
            known = [*self.find(passage.id for passage in items)]
            known += [passage.id for passage in items if self.passages_of(passage.id)]
            if known:
                raise InputError(f"a passage would have the id {known[0]!r}, which is in the index: rename one")
        if not items:
            return self
        reading = self._reading(items, vectors, encoder, scorer, progress)
        return self.extended(items, *reading).clustered()

    def _reading(
        self,
        items: list[Item],
        vectors: Brought | None,
        encoder: DualEncoder | None,
        scorer: Scorer | None,
        progress: Progress | None,
    ) -> Reading:
        """Vectors of new items, brought or encoded, and what the scorer knows of them, where the index keeps such."""
        knows = reader(scorer, self.known)
        if self.vectors is None:
            if vectors is not None:
                raise InputError("this index has no vectors: build it with vectors=…, or add without them")
            return read(items, knows, None, np.float16, progress)
        if encoder is None and vectors is None:
            raise InputError("this index has vectors and no encoder: load it with encoder=…, or add with vectors=…")
        reading = read(items, knows, encoder, self.vectors.dtype, progress, vectors)
        d = self.vectors.shape[1]
        if reading.vectors is not None and reading.vectors.shape[1] != d:
            raise InputError(f"the index has {d} dimensions, these vectors {reading.vectors.shape[1]}")
        return reading

    def extended(self, items: list[Item], vectors: Array | None, known: Array | None = None) -> LocalCorpus:
        """With more items, in a segment of their own: no scorer is called, and no item that is there is read."""
        if self.vectors is not None and vectors is not None:
            finite(vectors, "new vectors")
            vectors = vectors.astype(self.vectors.dtype)
        new = Segment.of(items, vectors, any(segment.words is not None for segment in self.segments))
        parts: dict[str, Any] = {}
        if self.anchors is not None and self.measured is not None:
            more = extended_scores(self.anchors, self.vectors, vectors, self.measured, len(items))
            anchors = np.concatenate([self.anchors, more.astype(self.anchors.dtype)], axis=1)
            parts["anchors"] = anchors if self.centroids is None else by_item(anchors)
            parts["measured"] = np.append(self.measured, np.zeros(len(items), np.bool_))
        if self.factors is not None and vectors is not None:
            parts["factors"] = self.factors.extended(vectors)
        if self.known is not None:
            parts["known"] = None if known is None else self.known.extended(known)
        longer = replace(
            self,
            segments=(*self.segments, new),
            alive=np.append(self.alive, np.ones(len(items), np.bool_)),
            **parts,
            items=self.items.grown(new.items),  # last: what fails before leaves the items as they were
        )
        longer = replace(longer, cache=self.cache_over(longer.items))._joined(files=False)
        if longer.scorer is None:
            return longer
        return replace(longer, scorer=longer.scorer.extended(*corpus_parts(longer.known, longer.vectors, longer.bm25)))

    def removed(self, ids: Sequence[str], scorer: Scorer | None) -> LocalCorpus:
        """Without some items, at once: positions stay as they are, so that searches and caches go on."""
        alive = self.alive.copy()
        alive[[place for id in dict.fromkeys(ids) for place in self.all_of(id)]] = False
        left = replace(self, alive=alive)
        gone = len(left.items) - len(left)
        return left.compacted(scorer) if gone > 0.5 * len(left.items) and left.movable else left

    def check_known(self, ids: Sequence[str]) -> None:
        """Refuse ids of which the index holds nothing."""
        self.named([id for id in ids if not len(self._traces([id]))])

    def log_ids(self, ids: Sequence[str]) -> list[str]:
        """The ids under which a log may hold some items; of a document those of its passages, too."""
        return [*ids, *(item.id for item in self.items.get(self._traces(ids)))]

    def _traces(self, ids: Sequence[str]) -> Positions:
        """Return positions of the items with some ids, including removed ones and passages."""
        found = [place for places in self.find(ids, removed=True).values() for place in places]
        if self.passages is not None:
            found += [int(place) for id in ids if isinstance(id, str) for place in self.columns.find(OF, id)]
        return np.unique(np.array(found, np.int64))

    def forgotten(
        self, ids: Sequence[str], texts: Sequence[str], scorer: Scorer | None
    ) -> tuple[LocalCorpus, int, int]:
        """Without any trace of some items, removed ones and old versions included, also in the score store; with how
        many items and scores were found."""
        self.check_movable()
        places, scores = self._traces(ids), 0
        items = self.items.get(places)
        alive = self.alive.copy()
        alive[places] = False
        left = replace(self, alive=alive)
        of = np.searchsorted(self.starts[1:], places, side="right")
        left = left._closed({int(segment) for segment in of}, scorer)
        if self.score_store is not None:
            self.flush()
            scores = self.score_store.forget([*items, *texts])
        return left, len(items), scores

    def compacted(self, scorer: Scorer | None) -> LocalCorpus:
        """Of the items that are there, in as few segments as their size allows."""
        self.check_movable()
        return self._closed(self._with_removed(0.0), scorer)._joined(files=True)

    def _with_removed(self, share: float) -> set[int]:
        """The segments of whose items more than a share was removed."""
        return {
            j
            for j, (_, here) in enumerate(self._parts)
            if np.count_nonzero(~self.alive[here]) > share * max(here.stop - here.start, 1)
        }

    def _closed(self, purged: Collection[int], scorer: Scorer | None) -> LocalCorpus:
        """Nothing is left of what was removed from some segments; positions change, the order stays."""
        stays = np.concatenate([self.alive[here] | (j not in purged) for j, (_, here) in enumerate(self._parts)])
        if stays.all():
            return self
        segments = []
        for segment, here in self._parts:
            kept = stays[here]
            one = segment if kept.all() else Segment.join([segment], [kept])
            segments += [one] if len(one) else []
        if not segments:  # the next items join what has the same dimensions
            segments = [Segment.join(self.segments[:1], [np.zeros(len(self.segments[0]), np.bool_)])]
        there = np.flatnonzero(stays)
        items = CorpusItems(segment.items for segment in segments)
        anchors = None if self.anchors is None else self.anchors[:, there]
        left = replace(
            self,
            segments=tuple(segments),
            alive=self.alive[stays],
            items=items,
            scorer=None,
            anchors=anchors if self.centroids is None else by_item(anchors),
            measured=None if self.measured is None else self.measured[there],
            factors=None if self.factors is None else self.factors.taken(there),
            known=None if self.known is None else self.known.taken(there),
            prior=None if self.prior is None else self.prior.taken(there),
            cache=self.cache_over(items),
            _made={},  # nothing of what is left out
        )
        return left.bound(scorer)

    def _joined(self, *, files: bool) -> LocalCorpus:
        """With neighbours joined, those in files only if they may: n items are in about log n segments."""
        groups: list[list[int]] = []
        for j in range(len(self.segments)):
            groups.append([j])
            while len(groups) > 1 and (files or self.segments[groups[-2][0]].saved is None):
                before, last = (sum(len(self.segments[i]) for i in group) for group in groups[-2:])
                if before >= 2 * last or before + last > SEGMENT:
                    break
                groups[-2:] = [groups[-2] + groups[-1]]
        if all(len(group) == 1 for group in groups):
            return self
        segments = []
        for group in groups:
            parts = [self.segments[j] for j in group]
            joined = parts[0]
            if len(parts) > 1:
                joined = Segment.join(parts, [np.ones(len(part), np.bool_) for part in parts])
            if self.centroids is not None and len(joined) >= LISTED:
                joined = joined.arranged(self.centroids)
            segments.append(joined)
        return replace(self, segments=tuple(segments))

    def measured_at(self, positions: Positions, scores: Array) -> LocalCorpus:
        """With the scores of the anchor queries at some items, which were estimated before."""
        assert self.anchors is not None
        assert self.measured is not None
        anchors, measured = np.array(self.anchors), self.measured.copy()
        anchors[:, positions] = scores
        measured[positions] = True
        return replace(self, anchors=anchors, measured=measured)

    # -- scores --------------------------------------------------------------------------------------------------

    @property
    def movable(self) -> bool:
        """Whether items may change their positions: not while a cache of the caller's has scores by position."""
        return self.cache is None or self.score_store is not None

    def check_movable(self) -> None:
        if not self.movable:
            raise InputError("scores in this index's cache are kept by position: save the index and load it again")

    @property
    def score_store(self) -> ScoreStore | None:
        """The score store, if the cache belongs to one."""
        return self.cache.store if isinstance(self.cache, StoreCache) else None

    def cache_over(self, items: Contents) -> ScoreCache | None:
        """The cache for other items; one of the caller's stays as it is."""
        return self.cache.over(items) if isinstance(self.cache, StoreCache) else self.cache

    def flush(self) -> None:
        """Write scores that wait for their store."""
        if isinstance(self.cache, StoreCache):
            self.cache.flush()

    def fresh(self) -> LocalCorpus:
        """With a cache that stores scores of items that were forgotten here and are added again."""
        if not isinstance(self.cache, StoreCache):
            return self
        return replace(self, cache=self.cache.over(self.items, forgotten=True))

    def close(self) -> None:
        self.flush()

    # -- files ---------------------------------------------------------------------------------------------------

    def save(self, folder: Folder, facts: Mapping[str, Any], scorer: Scorer | None) -> LocalCorpus:
        """Write what is new to a folder, whose lock the caller holds; return the corpus as it goes on.

        Nothing is written of items that were removed; of a large index, once they are an eighth of a segment.
        """
        share = GONE if self.centroids is not None else 0.0
        ready = self._closed(self._with_removed(share), scorer if self.movable else None)._joined(files=True)

        def fill(files: Files) -> None:
            for segment in ready.segments:
                if segment.saved is not None and segment.saved.home.parent == folder.path:
                    files.keep(segment.saved)
                else:
                    segment.write(files.part())
            write_corpus(ready, files)

        folder.write({**facts, "items": len(ready), "removed": packed(~ready.alive)}, fill)
        parts = folder.load(lambda saved: saved.parts)
        segments = [
            Segment.read(part, ready.centroids) if ready.centroids is not None else replace(segment, saved=part)
            for segment, part in zip(ready.segments, parts, strict=True)
        ]
        if not self.movable:  # positions must stay
            return self
        return replace(ready, segments=tuple(segments))

    def streamed(self, items: list[Item], vectors: Array | None, words: bool) -> LocalCorpus:
        """With more items, of a build in a folder: nothing is bound to them yet."""
        distinct(items)
        twice = next(iter(self.find(item.id for item in items)), None)
        if twice is not None:
            raise InputError(f"the id {twice!r} occurs twice among the items; ids must be unique")
        if vectors is not None:
            finite(vectors, "vectors", vectors.dtype)
        return LocalCorpus.of(
            [*self.segments, Segment.of(items, vectors, words)], seed=self.seed, passages=self.passages
        )

    def save_clustered(self, folder: Folder, facts: Mapping[str, Any]) -> None:
        """Write the last step of a build in a folder: segments with lists, one after another, if there are so many."""
        if self.vectors is None or len(self.items) < clustered.SMALL:
            self.save(folder, facts, None)
            return
        rows = Rows([segment.vectors for segment in self.segments if segment.vectors is not None])
        centroids, home = clusters.partition(rows, seed=self.seed)  # type: ignore[arg-type]

        def fill(files: Files) -> None:
            for segment, here in self._parts:
                segment.arranged(centroids, home[here]).write(files.part())
            files.array("centroids", centroids)

        folder.write({**facts, "items": len(self), "removed": packed(~self.alive)}, fill)


def by_item(anchors: Array | None) -> Array | None:
    """Anchor scores (k_q × n) that lie item by item: a round of a large index reads some items of each list."""
    return None if anchors is None else np.ascontiguousarray(anchors.T).T
