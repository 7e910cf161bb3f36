"""The items of an index and all that is kept of them: a value, replaced by whatever changes it.

A search goes on with the corpus on which it began.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered, clusters
from crosscut.ann.ivf import IVF
from crosscut.ann.segments import Segments
from crosscut.datasets.columnar import FiledItems
from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError
from crosscut.index.build import WAYS, Brought, Reading, distinct, read, separate
from crosscut.index.items import Filter
from crosscut.index.knowing import ScorerVectors, bound, corpus_parts, reader
from crosscut.index.later import LaterLists, joined
from crosscut.index.log import Logged
from crosscut.index.metadata import Metadata
from crosscut.index.passages import OF, Passages, document_at, document_of
from crosscut.index.places import Places
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
from crosscut.spaces.rows import FiledVectors
from crosscut.storage import Folder, Saved, Touched, Unread
from crosscut.types import Array, Floats, Handles, Positions, Progress

if TYPE_CHECKING:
    from crosscut.stores.base import Store

T = TypeVar("T")
FILTERS = 8  # whose answers are kept
GONE = 0.125  # of a large index in its folder: the share of removed items past which its files are written anew
SEARCHERS = 16  # of different methods or settings, kept


class View(Protocol):
    """A corpus as one search sees it; handles are valid within it."""

    searcher: Searcher
    allow: Allow | None
    """Conditions for a vector store."""
    within: Handles | None
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
        """What vectors and words say of everything that was scored."""

    def named(self, hits: Hits, k: int) -> Hits:
        """The best k with their ids and items."""


class LearningSpace(NamedTuple):
    """Where past searches are learned from."""

    space: Space
    anchors: CUR | None
    n: int
    handle_of: Callable[[str], int | None]
    ids: Sequence[str] = ()
    """Of the handles, where these are not the corpus's own."""


class Corpus(Protocol):
    """The items of an index: in memory and files, or in a vector store."""

    store: Store | None
    """The vector store that holds the items; None: they are in memory or files."""
    place: str | None
    score_store: ScoreStore | None
    anchors: Array | None
    passages: Passages | None
    prior: Prior | None
    seed: int

    def __len__(self) -> int: ...

    def __contains__(self, id: object) -> bool: ...

    @property
    def has_vectors(self) -> bool: ...

    @property
    def free_scorer(self) -> bool:
        """Whether the scorer gives every score without a call."""

    @property
    def parts(self) -> Parts:
        """What methods are made from."""

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
    """Items and everything that is kept about them, position by position."""

    place: ClassVar[None] = None
    store: ClassVar[None] = None
    items: ItemList | FiledItems
    alive: npt.NDArray[np.bool_]  # (n) False: removed
    scorer: BoundScorer | None  # bound to items.shared; None: nothing can be scored yet
    vectors: Array | FiledVectors | None = None  # (n × d)
    centroids: npt.NDArray[np.float32] | None = None  # (lists × d) of a large index's vectors
    starts: npt.NDArray[np.int64] | None = None  # (lists + 1) its items lie list by list; those behind came later
    arrival: Touched | None = None  # (m) the order in which they came, where that is another
    later: LaterLists | None = None  # lists of those that came later
    bm25: BM25 | None = None
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
    saved: Saved | None = field(default=None, repr=False)  # the files that its first items lie in
    purge: bool = False  # what was removed must not be in any file after the next `save`
    unread: Unread = field(default_factory=Unread, repr=False)  # maps whose checksums wait for their first use
    _made: dict[str, tuple[tuple[Any, ...], Any]] = field(default_factory=dict, repr=False)
    """By name: what states that follow one another have derived last, and from which parts."""
    _within: Latest[Handles] = field(default_factory=lambda: Latest(FILTERS), init=False, repr=False)
    _searchers: Latest[Searcher] = field(default_factory=lambda: Latest(SEARCHERS), init=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False)

    def _kept(self, name: str, parts: tuple[Any, ...], make: Callable[[], T]) -> T:
        """What was made of these very parts, here or by the state before."""
        known = self._made.get(name)
        if known is None or any(one is not other for one, other in zip(known[0], parts, strict=True)):
            known = self._made[name] = parts, make()
        made: T = known[1]
        return made

    @cached_property
    def places(self) -> Places:
        """Id → position, of items that are there."""
        return Places(self.items, self.alive)

    def position(self, id: str) -> int:
        """The position of an item."""
        place = self.places.get(id)
        if place is None:
            way = "" if isinstance(id, str) else f"; ids are texts: {str(id)!r}"
            raise InputError(f"item id {id!r} is not among the {self.size} items of the index{way}")
        return place

    @cached_property
    def size(self) -> int:
        """How many items are there."""
        return int(np.count_nonzero(self.alive))

    def __len__(self) -> int:
        return self.size

    def __contains__(self, id: object) -> bool:
        return id in self.places or id in self.documents

    @property
    def has_vectors(self) -> bool:
        return self.vectors is not None

    @property
    def free_scorer(self) -> bool:
        return self.scorer is not None and self.scorer.free

    def item(self, id: str) -> Item:
        """An item; of an index with passages, also a document."""
        if id not in self.places and id in self.documents:
            return document_of([self.items[place] for place in self.documents[id]])
        return self.items[self.position(id)]

    def named(self, ids: Sequence[str]) -> list[Item]:
        """The items of some ids; of a document all its passages. An unknown id is an error."""
        return [self.items[place] for id in ids for place in self.all_of(id)]

    def listed(self) -> list[Item]:
        """The items that are there, in the order of arrival."""
        return [self.items[place] for place in self.order.tolist() if self.alive[place]]

    def view(self, method: Method, filter: Filter | None = None) -> LocalView:
        return LocalView(self, self.searcher(method), self.within(filter))

    def learning_space(self, searches: Sequence[Logged] = ()) -> LearningSpace:
        """Where past searches are learned from."""
        if self.encoder_space is None:
            raise InputError("this index has no vectors, in whose space it could learn: build it with an encoder")
        return LearningSpace(self.encoder_space, self.anchor_space, len(self.items), self.places.get)

    def with_prior(self, prior: Prior | None, space: LearningSpace | None = None) -> LocalCorpus:
        return replace(self, prior=prior)

    @cached_property
    def documents(self) -> dict[str, list[int]]:
        """Document → positions of its passages, of those that are there; none in an index without passages."""
        made: dict[str, list[int]] = {}
        start = 0 if self.passages is not None and self.columns.has(OF) else len(self.items)
        for position in range(start, len(self.items)):
            metadata = self.items[position].metadata if self.alive[position] else {}
            if OF in metadata:
                made.setdefault(str(metadata[OF]), []).append(position)
        return made

    def all_of(self, id: str) -> list[int]:
        """The position of an item; of a document, those of its passages. An exact id goes before a document's name."""
        return [self.position(id)] if id in self.places or id not in self.documents else self.documents[id]

    @property
    def order(self) -> Positions:
        """Positions in the order in which the items came."""
        if self.arrival is None:
            return np.arange(len(self.items))
        first = np.argsort(self.arrival.whole(), kind="stable")
        return np.append(first, np.arange(len(first), len(self.items)))

    @cached_property
    def columns(self) -> Metadata:
        """The items' metadata, for filters."""
        return self._kept("columns", (self.items, self.saved), lambda: Metadata(self.items, self.saved))

    def within(self, filter: Filter | None) -> Handles | None:
        """The items that may be found, sorted; None for all. The last few answers are kept."""
        if filter is None and self.size == len(self.items):
            return None

        def make() -> Handles:
            return np.flatnonzero(self.alive if filter is None else self.alive & self.columns.passing(filter))

        return make() if callable(filter) else self._within.get(repr(filter), make)

    @cached_property
    def encoder_space(self) -> Vectors | IVF | Segments | None:
        """The encoder's vectors; by lists where there are many of them."""
        return self._kept("space", (self.vectors, self.centroids, self.starts, self.later), self._space)

    def _space(self) -> Vectors | IVF | Segments | None:
        rows, centroids, starts = self.vectors, self.centroids, self.starts
        if rows is None:
            return None
        if centroids is None or starts is None:
            return Vectors(np.asarray(rows))
        filed = rows if isinstance(rows, FiledVectors) else FiledVectors(Touched(rows))
        # of the items that lie list by list: it outlives what is added behind them
        first = self._kept(
            "lists", (centroids, starts), lambda: IVF(centroids, filed.first.array, starts, np.arange(len(filed.first)))
        )
        behind = None if self.later is None else self.later.index
        return Segments(first, filed.more, behind) if len(filed.more) else first

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

    def clustered(self, scorer: Scorer | None) -> LocalCorpus:
        """With items list by list, if there are so many vectors that rounds should not read them all, and they may
        move."""
        if self.vectors is None or len(self.items) < clustered.SMALL or self.starts is not None or not self.movable:
            return self
        vectors = np.asarray(self.vectors)
        finite(vectors, "vectors")
        centroids, home = clusters.partition(vectors, seed=self.seed)
        return self.in_lists(centroids, home, scorer)

    def settled(self) -> LocalCorpus:
        """With the items that were added since in the lists they belong to."""
        home = self._home()
        if home is None or not isinstance(self.vectors, FiledVectors) or not len(self.vectors.more):
            return self
        assert self.centroids is not None
        home[len(self.vectors.first) :] = clusters.assign(self.vectors.more, self.centroids)
        return self.in_lists(self.centroids, home, None)

    def in_lists(
        self, centroids: npt.NDArray[np.float32], home: npt.NDArray[np.int64], scorer: Scorer | None
    ) -> LocalCorpus:
        """With items list by list; `home` (n) is the list of each."""
        came = np.empty(len(home), np.int64)
        came[self.order] = np.arange(len(home))
        order = np.argsort(home, kind="stable")
        starts = np.searchsorted(home[order], np.arange(len(centroids) + 1)).astype(np.int64)
        state = replace(self, starts=None, arrival=None)._taken(order, scorer)
        vectors = None if state.vectors is None else FiledVectors(Touched(np.asarray(state.vectors)))
        arrival = Touched(came[order])
        return replace(state, vectors=vectors, centroids=centroids, starts=starts, arrival=arrival, later=None)

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
        known = [item.id for item in items if item.id in self]
        if known:
            raise InputError(
                f"{len(known)} of {len(items)} ids are in the index already, the first is {known[0]!r}; "
                "remove them first, or give new ids"
            )
        if self.passages is not None:
            documents, items = items, list(self.passages.cut(items))
            separate(documents, items)
            known = [passage.id for passage in items if passage.id in self]
            if known:
                raise InputError(f"a passage would have the id {known[0]!r}, which is in the index: rename one")
        if not items:
            return self
        reading = self._reading(items, vectors, encoder, scorer, progress)
        return self.extended(items, *reading).clustered(scorer)

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

    def extended(
        self,
        items: list[Item],
        vectors: npt.NDArray[Any] | None,
        known: Array | None = None,
    ) -> LocalCorpus:
        """With more items at the end: no scorer is called, and all of them can be found at once."""
        self.unread.check()
        parts: dict[str, Any] = {}
        if self.vectors is not None and vectors is not None:
            if isinstance(self.vectors, FiledVectors):
                finite(vectors, "new vectors")
                parts["vectors"] = self.vectors.grown(vectors)
                parts["later"] = joined(self.later, parts["vectors"], self.seed)
            else:
                parts["vectors"] = np.concatenate([self.vectors, vectors.astype(self.vectors.dtype)])
        if self.anchors is not None and self.measured is not None:
            more = extended_scores(self.anchors, self.vectors, vectors, self.measured, len(items))
            parts["anchors"] = np.concatenate([self.anchors, more.astype(self.anchors.dtype)], axis=1)
            parts["measured"] = np.append(self.measured, np.zeros(len(items), np.bool_))
        if self.factors is not None and vectors is not None:
            parts["factors"] = self.factors.extended(vectors)
        if self.known is not None:
            parts["known"] = None if known is None else self.known.extended(known)
        bm25 = None if self.bm25 is None else self.bm25.extended(items)
        made = replace(
            self,
            alive=np.append(self.alive, np.ones(len(items), np.bool_)),
            bm25=bm25,
            **parts,
            items=self.items.grown(items),  # last: what fails before leaves the list as it was
        )
        made = replace(made, cache=self.cache_over(made.items))
        if made.scorer is None:
            return made
        return replace(made, scorer=made.scorer.extended(*corpus_parts(made.known, made.vectors, made.bm25)))

    @cached_property
    def parts(self) -> Parts:
        """What methods are made from."""
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

    def removed(self, ids: Sequence[str], scorer: Scorer | None) -> LocalCorpus:
        """Without some items, at once: positions stay as they are, so that searches and caches go on."""
        positions = [place for id in dict.fromkeys(ids) for place in self.all_of(id)]
        alive = self.alive.copy()
        alive[positions] = False
        left = replace(self, alive=alive, bm25=None if self.bm25 is None else self.bm25.among(alive))
        share = GONE if left.in_files else 0.5
        crowded = len(left.items) - len(left) > share * len(left.items)
        return left.compacted(scorer) if crowded and left.movable else left

    def check_known(self, ids: Sequence[str]) -> None:
        """Refuse ids of which the index holds nothing."""
        held = {item.id for item in self._traces(ids)}
        self.named([id for id in ids if id not in held and id not in self])

    def log_ids(self, ids: Sequence[str]) -> list[str]:
        """The ids under which a log may hold some items; of a document those of its passages, too."""
        return [*ids, *(item.id for item in self._traces(ids))]

    def _traces(self, ids: Sequence[str]) -> list[Item]:
        """The items of some ids and those that were removed before, as long as the index holds them."""
        wanted = set(ids)
        there = self.named([id for id in ids if id in self])
        removed = (self.items[place] for place in np.flatnonzero(~self.alive).tolist())
        return there + [item for item in removed if item.id in wanted or item.metadata.get(OF) in wanted]

    def forgotten(
        self, ids: Sequence[str], texts: Sequence[str], scorer: Scorer | None
    ) -> tuple[LocalCorpus, int, int]:
        """Without any trace of some items, removed ones and old versions included, also in the score store; with how
        many items and scores were found."""
        self.check_movable()
        items, scores = self._traces(ids), 0
        left = self.removed([id for id in ids if id in self], scorer).compacted(scorer)
        if self.score_store is not None:
            self.flush()
            scores = self.score_store.forget([*items, *texts])
        return left, len(items), scores

    def measured_at(self, positions: Positions, scores: Array) -> LocalCorpus:
        """With the scores of the anchor queries at some items, which were estimated before."""
        assert self.anchors is not None
        assert self.measured is not None
        anchors, measured = np.array(self.anchors), self.measured.copy()
        anchors[:, positions] = scores
        measured[positions] = True
        return replace(self, anchors=anchors, measured=measured)

    def preload(self) -> None:
        """Let the scorer prepare every item."""
        if self.scorer is not None:
            self.scorer.preload(np.flatnonzero(self.alive))

    def close(self) -> None:
        self.flush()

    @property
    def movable(self) -> bool:
        """Whether items may change their positions: not while a cache of the caller's knows scores by them."""
        return self.cache is None or self.score_store is not None

    def check_movable(self) -> None:
        if not self.movable:
            raise InputError("scores in this index's cache are kept by position: save the index and load it again")

    @property
    def score_store(self) -> ScoreStore | None:
        """Where scores are kept, if the cache is a score store's and not one of the caller's."""
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

    @property
    def in_files(self) -> bool:
        """Whether it is a large index whose files stay as they are when it is saved."""
        return self.saved is not None and self.starts is not None

    def compacted(self, scorer: Scorer | None) -> LocalCorpus:
        """Of the items that are there, with positions of their own: nothing is left of those that were removed.

        Of a large index that lies in files nothing is in memory: what was removed is left out when it is saved.
        """
        self.check_movable()
        if self.alive.all():
            return self
        if self.in_files:
            return replace(self, purge=True)
        return self._taken(np.flatnonzero(self.alive), scorer)

    def _taken(self, there: Positions, scorer: Scorer | None = None) -> LocalCorpus:
        """Of some items, in this order, in memory."""
        self.unread.check()
        items = ItemList(self.items[position] for position in there.tolist())
        cache = self.cache_over(items)
        taken = None if self.vectors is None else self.vectors[there]
        bm25 = None if self.bm25 is None else self.bm25.taken(there)
        about = self.about(there)
        return replace(
            self,
            items=items,
            alive=self.alive[there],
            scorer=bound(scorer, items, about["known"], taken, bm25),
            **self._lying(there, taken),
            **about,
            bm25=bm25,
            cache=cache,
            saved=None,
            _made={},  # nothing of what is left out
        )

    def about(self, there: Positions) -> dict[str, Any]:
        """What is kept of some items, in this order, beside themselves, their vectors and their words."""
        return {
            "anchors": None if self.anchors is None else self.anchors[:, there],
            "measured": None if self.measured is None else self.measured[there],
            "factors": None if self.factors is None else self.factors.taken(there),
            "known": None if self.known is None else self.known.taken(there),
            "prior": None if self.prior is None else self.prior.taken(there),
        }

    def _lying(self, there: Positions, taken: Array | None) -> dict[str, Any]:
        """Vectors of some items, and how they lie in lists; the items keep their order."""
        home = self._home()
        if home is None or self.starts is None or taken is None:
            return {"vectors": taken, "later": None}
        starts = np.searchsorted(home[there], np.arange(len(self.starts))).astype(np.int64)
        first = there[: starts[-1]]
        came = None if self.arrival is None else Touched(ranks(self.arrival.take(first)))
        vectors = FiledVectors(Touched(taken[: len(first)]), taken[len(first) :])
        later = None if self.later is None else self.later.taken(there - self.starts[-1], vectors.more)
        return {"vectors": vectors, "starts": starts, "arrival": came, "later": later}

    def _home(self) -> Positions | None:
        """(n) the list of each item; those behind the lists have one number more."""
        if self.starts is None:
            return None
        home = np.full(len(self.items), len(self.starts) - 1, np.int64)
        home[: self.starts[-1]] = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        return home

    def filed(self, folder: Folder, scorer: Scorer | None) -> LocalCorpus:
        """After it was saved: a large index goes on from its files in the new generation."""
        if self.saved is None:
            return self
        if self.starts is None:
            return replace(self, saved=None)  # its maps stay; the files that they are of are gone
        if self.purge:
            from crosscut.index.folder import read_corpus

            filed = folder.load(lambda saved: read_corpus(saved, scorer, self.cache, self.passages))
            return replace(filed, cache=filed.cache_over(filed.items))
        return replace(self, saved=folder.load(lambda saved: saved))

    @property
    def first(self) -> int:
        """How many items its files hold after `save`; those that came later stand beside them."""
        if not self.in_files or not isinstance(self.items, FiledItems):
            return self.size
        n = len(self.items.first)
        return int(np.count_nonzero(self.alive[:n])) if self.purge else n

    def searcher(self, method: Method) -> Searcher:
        """The searcher of a method, made once; the last few are kept."""
        if self.scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        self.unread.check()
        make = partial(Searcher, self.scorer, method=method, cache=self.cache, parts=self.parts)
        with self._lock:  # what a method prepares, it prepares once
            return self._searchers.get(method, make)


def ranks(values: Positions) -> Positions:
    """The place of each value among all of them, in order."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable")
