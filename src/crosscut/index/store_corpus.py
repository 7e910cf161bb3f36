"""Items that stay in a vector store: nothing is copied, nothing of size n is held.

Every search opens a session of the store (`ann/stores/base.py`) and forgets it. What is learned from past searches goes
into the vectors that the store is asked for; the residuals of single items are kept by id, and order what the store
answers (`ann/linear.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import JOIN, Baseline
from crosscut.ann.topk import Indexed
from crosscut.datasets.records import Item
from crosscut.errors import InputError, StoreUnavailable
from crosscut.index.build import Brought, brought, distinct
from crosscut.index.corpus import LearningSpace
from crosscut.index.items import Filter
from crosscut.index.log import Logged
from crosscut.linalg.arrays import finite, without
from crosscut.methods.base import Method, Parts
from crosscut.models.bi_encoder import DualEncoder, load_encoder
from crosscut.models.spec import placed
from crosscut.score_store.engines import Engine, LocalEngine, RayEngine, actors, spread
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import Scorer
from crosscut.search.hits import Hits, Scored
from crosscut.search.prior import Prior
from crosscut.search.ranking import Evidence
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.stores.base import Session, Store
from crosscut.stores.filters import conditions
from crosscut.types import NO_HANDLES, NO_SCORES, Array, Floats, Handles, Progress

WAYS = {
    "encoder": "a store has them",
    "anchors": "over a store there are none, build an index of the items for them",
    "factors": "over a store there are none, build an index of the items for them",
    "words": "over a store there are none, pass what its own full-text search finds as candidates",
    "n": "a search over a store does not count its items",
}
"""Advice on missing parts of a method, for an index over a store."""
NEWEST = 4_000  # searches that are learned from
FETCHED = 1_000  # items that a store is asked for in a trip
UNSENT = (
    "{} load the encoder themselves, and this one cannot be sent to them ({}): open the index with its name or folder"
)
BLOCK = 512  # items that are encoded and written together


class StoreResiduals(Baseline):
    """Residuals of items that past searches have scored, in one session of their store."""

    wider = 4

    def __init__(self, session: Session, residuals: Mapping[str, float]) -> None:
        self._session, self._residuals = session, residuals
        self._highest: dict[str, Handles] = {}  # by filter

    def at(self, handles: Handles) -> Floats:
        name = self._session.name
        return np.array([self._residuals.get(str(name(handle)), 0.0) for handle in handles.tolist()], dtype=np.float64)

    def tops(self, count: int, exclude: Handles, allowed: Any) -> Handles:
        if isinstance(allowed, np.ndarray):  # the search stays among items that it has seen
            return NO_HANDLES
        where = conditions(allowed)
        if repr(where) not in self._highest:
            highest = sorted(self._residuals, key=lambda id: -self._residuals[id])[:JOIN]
            self._highest[repr(where)] = self._session.there(tuple(highest), where)
        return without(self._highest[repr(where)], exclude)


@dataclass(frozen=True)
class StoreView:
    """A store as one search sees it."""

    session: Session
    searcher: Searcher
    allow: Filter | None
    within: None = None

    def handles(self, ids: Sequence[Any] | None) -> Handles | None:
        return None if ids is None else self.session.handles([ids] if isinstance(ids, str) else ids, self.allow)

    def ids(self, handles: Handles) -> list[Any]:
        return [self.session.name(handle) for handle in handles.tolist()]

    def items(self, handles: Handles) -> list[Item]:
        return self.session.get(handles)

    def document(self, handle: int) -> Any:
        return self.session.name(handle)

    def sample(self, count: int, rng: np.random.Generator) -> Handles:
        return self.session.sample(count, rng)

    def evidence(self, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
        """Return features of all scored items from vectors; words stay in the store."""
        handles = hits.scored
        if vector is None or not len(handles):
            return {}
        return {"dense": np.asarray(np.einsum("md,d->m", self.session.rows(handles), np.asarray(vector, np.float64)))}

    def named(self, hits: Hits, k: int) -> Hits:
        """The best k with the store's ids and items; ties go by id."""
        scored = Scored.of(hits.trace)
        values = (scored.scores if hits.ranking is None else hits.ranking).tolist()
        names = self.ids(scored.positions)
        order = sorted(range(len(names)), key=lambda j: (-values[j], type(names[j]).__name__, names[j]))[:k]
        best = np.array(order, dtype=np.int64)
        found = zip(order, scored.hits(best), self.items(scored.positions[best]), strict=True)
        return replace(
            hits, items=tuple(replace(hit, id=names[j], text=item.text, item=item) for j, hit, item in found)
        )


class StoreCorpus:
    """The items of a vector store. Only what was learned about them is replaced (`with_prior`)."""

    anchors = passages = score_store = None

    def __init__(
        self,
        store: Store,
        scorer: Scorer,
        *,
        seed: int = 0,
        prior: Prior | None = None,
        residuals: Mapping[str, float] | None = None,
    ) -> None:
        self.store, self.scorer, self.seed, self.prior = store, scorer, seed, prior
        self.residuals = residuals or {}
        self.place: str = store.place
        self.has_vectors = True

    @property
    def free_scorer(self) -> bool:
        return as_bound(self.scorer.bind(self.store.session())).free

    def __len__(self) -> int:
        return self.store.count()

    def __contains__(self, id: object) -> bool:
        try:
            return bool(len(self.store.session().handles([id])))
        except InputError:
            return False

    def item(self, id: Any) -> Item:
        return self.named([id])[0]

    def named(self, ids: Sequence[Any]) -> list[Item]:
        session = self.store.session()
        handles = session.handles(list(ids))
        names = [str(session.name(handle)) for handle in handles.tolist()]
        return [item._replace(id=name) for item, name in zip(session.get(handles), names, strict=True)]

    @property
    def parts(self) -> Parts:
        return self._parts(self.store.session())

    def _parts(self, session: Session) -> Parts:
        parts = Parts(encoder=Indexed(session), seed=self.seed, ways=WAYS)
        if self.prior is None:
            return parts
        return replace(parts, prior=self.prior, residuals=StoreResiduals(session, self.residuals))

    def view(self, method: Method, filter: Filter | None = None) -> StoreView:
        """A session of the store, which applies a filter in every round."""
        conditions(filter)  # a wrong one is an error before anything is paid for
        session = self.store.session()
        searcher = Searcher(self.scorer.bind(session), method=method, parts=self._parts(session))
        return StoreView(session, searcher, filter)

    # -- learning ------------------------------------------------------------------------------------------------

    def learning_space(self, searches: Sequence[Logged] = ()) -> LearningSpace:
        """The vectors of the logged items that are still in the store."""
        wanted: list[Any] = []
        for id in dict.fromkeys(id for search in searches[-NEWEST:] for id in search.ids):
            try:
                wanted.append(self.store.named(id))
            except InputError:  # an id of another kind of store
                continue
        ids: list[str] = []
        blocks: list[Array] = [np.empty((0, self.store.d), np.float32)]
        for start in range(0, len(wanted), FETCHED):
            with self.store.reaching():
                rows = self.store.fetch(wanted[start : start + FETCHED])
            ids += [str(self.store.name(key, payload)) for key, payload in zip(rows.keys, rows.payloads, strict=True)]
            blocks.append(np.asarray(rows.vectors, np.float32).reshape(-1, self.store.d))
        place = {id: j for j, id in enumerate(ids)}
        return LearningSpace(Vectors(np.concatenate(blocks)), None, len(ids), place.get, ids)

    def with_prior(self, prior: Prior | None, space: LearningSpace | None = None) -> StoreCorpus:
        """With what was learned; residuals are kept by id."""
        if prior is None:
            return StoreCorpus(self.store, self.scorer, seed=self.seed)
        residuals = self.residuals
        if space is not None:
            seen = zip(prior.seen.tolist(), prior.residuals.tolist(), strict=True)
            residuals = {space.ids[place]: value for place, value in seen}
        plain = replace(prior, seen=NO_HANDLES, residuals=NO_SCORES)
        return StoreCorpus(self.store, self.scorer, seed=self.seed, prior=plain, residuals=residuals)

    # -- items ---------------------------------------------------------------------------------------------------

    def added(
        self,
        items: list[Item],
        vectors: Brought | None,
        encoder: DualEncoder | None,
        scorer: Scorer | None,
        progress: Progress | None,
    ) -> StoreCorpus:
        """With these items in the store; an id that is there already is an error, and then nothing is written."""
        distinct(items)
        if not items:
            return self
        if encoder is None and vectors is None:
            raise InputError("items need vectors: open the index with the encoder of the store's, or pass vectors=…")
        with self.store.reaching():
            rows = self.store.fetch([self.store.named(item.id) for item in items])
        if rows.keys:
            first = self.store.name(rows.keys[0], rows.payloads[0])
            raise InputError(
                f"{len(rows.keys)} of {len(items)} ids are in {self.place} already, one is {first!r}; "
                "remove them first, or give new ids"
            )
        if vectors is not None:
            array = np.asarray(brought(vectors, items, np.float32, progress))
        else:
            assert encoder is not None
            array = encoder.encode_items(items)
        write(self.store, items, array)
        if progress is not None:
            progress("adding items", len(items), len(items))
        return self

    def removed(self, ids: Sequence[Any], scorer: Scorer | None) -> StoreCorpus:
        session = self.store.session()
        gone = session.handles(list(dict.fromkeys(ids)))
        if len(gone):
            with self.store.reaching():
                self.store.erase(session.keys(gone))
        return self

    def _there(self, ids: Sequence[Any]) -> list[Any]:
        """Those of some ids that the store holds."""
        if not ids:
            return []
        with self.store.reaching():
            rows = self.store.fetch([self.store.named(id) for id in ids])
        there = {self.store.name(key, payload) for key, payload in zip(rows.keys, rows.payloads, strict=True)}
        return [id for id in ids if self.store.named(id) in there]

    def check_known(self, ids: Sequence[Any]) -> None:
        self.store.session().handles(list(ids))

    def log_ids(self, ids: Sequence[Any]) -> list[str]:
        return [str(self.store.named(id)) for id in ids]

    def forgotten(
        self, ids: Sequence[Any], texts: Sequence[str], scorer: Scorer | None
    ) -> tuple[StoreCorpus, int, int]:
        there = self._there(ids)
        return self.removed(there, scorer), len(there), 0

    def fresh(self) -> StoreCorpus:
        return self

    def preload(self) -> None:
        """Nothing: a scorer prepares the items of a store when they are scored."""

    def flush(self) -> None:
        """Nothing: scores are not kept."""

    def close(self) -> None:
        """Give the store's connection back."""
        self.store.close()


# -- filling ---------------------------------------------------------------------------------------------------------


class Filler:
    """Encode items, and write them where the store can be opened: on a worker of Ray, or here."""

    def __init__(self, encoder: str | DualEncoder, recipe: Callable[[], Store] | None) -> None:
        self.encoder = load_encoder(encoder)
        self.store = None if recipe is None else recipe()

    def fill(self, items: list[Item]) -> tuple[list[Item], npt.NDArray[np.float32] | None]:
        """Return the items and their vectors (m × d), for somebody who can write them; None: they are written."""
        rows = np.asarray(self.encoder.encode_items(items), np.float32)
        if self.store is None:
            return items, rows
        # a task that Ray repeats may have written before its worker died
        new = {item.id for item in missing(self.store, items)}
        places = [j for j, item in enumerate(items) if item.id in new]
        if places:
            write(self.store, [items[j] for j in places], rows[places])
        return items, None


def write(store: Store, items: Sequence[Item], vectors: npt.NDArray[Any]) -> None:
    """Write items with their vectors."""
    if vectors.shape != (len(items), store.d):
        raise InputError(
            f"{len(items)} items have vectors of shape {vectors.shape}, those of {store.place} have {store.d} "
            "dimensions"
        )
    finite(vectors, "vectors")
    with store.reaching():
        store.write(items, vectors.astype(np.float64))


def missing(store: Store, items: Sequence[Item]) -> list[Item]:
    """The items whose ids the store does not hold."""
    with store.reaching():
        rows = store.fetch([store.named(item.id) for item in items])
    there = {store.name(key, payload) for key, payload in zip(rows.keys, rows.payloads, strict=True)}
    return [item for item in items if store.named(item.id) not in there]


def fill(
    store: Store,
    items: Iterator[Item],
    encoder: str | DualEncoder,
    engine: Engine,
    *,
    resume: bool = False,
    progress: Progress | None = None,
) -> int:
    """Encode and write items block by block, however many there are; return how many were written.

    Parameters
    ----------
    encoder
        A model, or the name by which workers of Ray load it.
    engine
        Workers of Ray write straight into a server's store. A store that only this process can reach is written here.
    resume
        Skip what the store holds already: after a stop, add the same again. Without it, an id that is there is an
        error.
    """
    written = 0
    going: set[Any] = set()  # names of what was handed out and is not written yet

    def blocks() -> Iterator[list[Item]]:
        while block := list(islice(items, BLOCK)):
            distinct(block)
            names = [store.named(item.id) for item in block]
            twice = next((name for name in names if name in going), None)
            if twice is not None:
                raise InputError(f"the id {str(twice)!r} occurs twice among the items; ids must be unique")
            new = missing(store, block)
            if len(new) < len(block) and not resume:
                held = next(item.id for item in block if item not in new)
                raise InputError(
                    f"{len(block) - len(new)} of {len(block)} ids are in {store.place} already, one is {held!r}; "
                    f"{written} items before them were written: remove them, or add with resume=True (--resume), "
                    "which skips what is there"
                )
            if new:
                going.update(store.named(item.id) for item in new)
                yield new

    def done(block: list[Item], rows: npt.NDArray[np.float32] | None) -> None:
        nonlocal written
        if rows is not None:
            write(store, block, rows)
        going.difference_update(store.named(item.id) for item in block)
        written += len(block)
        if progress is not None:
            progress("adding items", written, 0)

    if isinstance(engine, RayEngine):
        if engine.gpus and isinstance(encoder, str):
            encoder = placed(encoder, ["cuda"])  # the device that Ray shows to a worker
        with actors(engine, Filler, encoder, store.recipe, unsent=UNSENT) as pool:
            for block, rows in spread(pool, "fill", blocks(), StoreUnavailable):
                done(block, rows)
    elif isinstance(engine, LocalEngine) and engine.workers == 1:
        here = Filler(encoder, None)
        for block in blocks():
            done(*here.fill(block))
    else:
        raise InputError(f"items are encoded in this process (engine='local') or by Ray (RayEngine(…)); got {engine}")
    return written
