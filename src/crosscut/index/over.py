"""`Index.over(store, …)`: an index whose items and vectors stay in a vector database.

Nothing is copied and nothing of size n is held. Every search opens a session of the store (`stores/base.py`) and
forgets it. The default method works as without train queries: round one by the encoder's query vector, then better and
better vectors u in the encoder's own space, each asked of the store without what was scored and within the filter.
What needs every item in memory (`exact`, anchor scores, words, traces, saving) is refused in a sentence. It learns from
a log of its searches as any index does (`over_learning.py`); the log is what is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn, Unpack

import numpy as np
import numpy.typing as npt

from crosscut.ann.topk import Indexed
from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.records import Item
from crosscut.encoders.named import DualEncoder, load_encoder
from crosscut.errors import InputError
from crosscut.index.building import Brought, brought, distinct
from crosscut.index.core import name_of
from crosscut.index.filling import Filling, write
from crosscut.index.index import Index
from crosscut.index.items import Filter, Source, as_items, stream
from crosscut.index.learning import fading, past_of
from crosscut.index.options import checked_queries
from crosscut.index.over_learning import NEWEST, StoreLearned, StoreResiduals, rows_of
from crosscut.index.searching import SearchView
from crosscut.index.spending import scored_by
from crosscut.index.tune import MOST, Fold, Tuning, to_try
from crosscut.index.tune import tune as choose
from crosscut.measures import recall
from crosscut.methods import Crosscut, Method, Rerank
from crosscut.methods.base import Parts, parse
from crosscut.methods.learning import Learned, learn
from crosscut.score_store.engines import EngineChoice, make_engine
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.caching import CachingScorer
from crosscut.scorers.loading import load_scorer
from crosscut.search.hits import Hits, Scored
from crosscut.search.ranking import Evidence
from crosscut.search.stopping import Confident, Stop
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.stores.base import Session, Store
from crosscut.stores.filters import conditions
from crosscut.types import Floats, Progress, whole

DEEP = 5
"""Budgets that a deep search spends: the truth of `tune` over a store."""
TRIALS = 20
"""Searches of one budget that `tune` makes beside them, at most."""
WAYS = {
    "encoder": "a store has them",
    "anchors": "over a store there are none, build an index of the items for them",
    "factors": "over a store there are none, build an index of the items for them",
    "item_scores": "over a store there are none, use crosscut.Searcher(…, space=ItemScores(…))",
    "words": "over a store there are none, pass what its own full-text search finds as candidates",
    "n": "a search over a store does not count its items",
}
"""How somebody with a store provides the parts of a method."""


class _Elsewhere:
    """In the place of a state: whatever needs the items in memory says that they are not there."""

    def __init__(self, store: Store) -> None:
        object.__setattr__(self, "_told", f"the items stay in {store.place}")

    def __getattr__(self, name: str) -> NoReturn:
        raise InputError(f"{self._told}, and this needs them in memory ({name}): build an index of them for that")


class StoreIndex(Index):
    """An index over a vector store. See `Index.over`."""

    store: Store

    def __init__(
        self,
        store: Store,
        *,
        scorer: Any = "default",
        encoder: Any = "default",
        method: str | Method = "crosscut",
        seed: int = 0,
    ) -> None:
        if not isinstance(store, Store):
            raise InputError(f"{store!r} is no store: pass crosscut.stores.Qdrant(…), PgVector(…) or LanceDB(…)")
        model: Scorer = load_scorer(scorer)
        dual: DualEncoder | None = None if encoder is None else load_encoder(encoder)
        if dual is not None and dual.dimension != store.d:
            raise InputError(
                f"the encoder makes vectors of {dual.dimension} dimensions, and those of {store.place} have {store.d}: "
                "pass the encoder they were made with, or encoder=None and query_vector= with every search"
            )
        super().__init__(
            _Elsewhere(store),  # type: ignore[arg-type]
            scorer=model,
            scorer_name=name_of(scorer),
            encoder=dual,
            encoder_name=None if encoder is None else name_of(encoder),
            method=method,
        )
        self.store, self.seed = store, whole("seed", seed)
        self._taught: StoreLearned | None = None
        self.method.made(self._made_from())  # a method that cannot work here says so now

    def _parts(self, session: Session) -> Parts:
        plain, taught = Parts(encoder=Indexed(session), seed=self.seed, ways=WAYS), self._taught
        return (
            plain if taught is None else replace(plain, prior=taught.prior, residuals=StoreResiduals(session, taught))
        )

    # -- searching -----------------------------------------------------------------------------------------------

    def _opened(self, method: Method, filter: Filter | None) -> SearchView:
        """A session of the store, which applies a filter in every round; ids are the store's."""
        conditions(filter)  # a wrong one is an error before anything is paid for
        session, scorer = self.store.session(), self.scorer
        assert scorer is not None
        searcher = Searcher(scorer.bind(session), method=method, parts=self._parts(session))
        return SearchView(
            searcher,
            filter,
            None,
            lambda ids: None if ids is None else session.handles([ids] if isinstance(ids, str) else ids, filter),
            partial(_scored_in, session, searcher.scorer),
            partial(_evidence, session),
            partial(self._priced, session),
        )

    def _priced(self, session: Session, hits: Hits, k: int) -> Hits:
        answer = _told(session, hits, k)
        return answer if self.price is None else self.price.on(answer, session.get(answer.scored))

    @property
    def _free(self) -> bool:
        assert self.scorer is not None
        return as_bound(self.scorer.bind(self.store.session())).free

    def default_stop(self, method: str | Method | None = None) -> Stop | None:
        """As of any index: a scorer that knows a part of scores knows it of candidates here."""
        assert self.scorer is not None
        if not as_bound(self.scorer.bind(self.store.session())).has_base_scores:
            return None
        searcher = self._opened(self.method if method is None else parse(method), None).searcher
        return Confident() if searcher.method.takes_base else None

    def _vectors(self, queries: Sequence[str]) -> npt.NDArray[np.float32] | None:
        return None if self.encoder is None or not queries else self.encoder.encode_queries(queries)

    def _made_from(self) -> Parts:
        return self._parts(self.store.session())

    # -- learning ------------------------------------------------------------------------------------------------

    def _learn(self, correction: float) -> Learned:
        """As `Index.learn`, on vectors of the logged items that the store is asked for."""
        searches = self._logged(self.store.d)[-NEWEST:]
        ids, rows = rows_of(self.store, searches)
        past = past_of(searches, {id: place for place, id in enumerate(ids)}.get, correction)
        got = learn(past, Vectors(rows), n=len(rows), weights=fading(len(past)), seed=self.seed)
        old = self._taught
        if old is not None and self._too_few(got):
            why = f"{got.why}; what {old.prior.searches} others taught before stays"
            return replace(got, prior=old.prior, why=why)
        self._taught = None if got.prior is None else StoreLearned.of(got.prior, ids)
        return got

    def _drop_learned(self) -> bool:
        there, self._taught = self._taught is not None, None
        return there

    # -- tuning --------------------------------------------------------------------------------------------------

    def tuning_calls(self, queries: Sequence[str] | None = None, budget: int = 100) -> int:
        """The calls that `tune` would make at most at this budget."""
        return len(list(dict.fromkeys(queries or ()))[:MOST]) * budget * (2 * DEEP + TRIALS)

    def _tune(
        self,
        queries: Sequence[str] | None,
        k: int,
        budget: int,
        methods: Sequence[str | Method] | None,
        max_calls: int | None,
        engine: Any,
        progress: Progress | None,
    ) -> Tuning:
        """As `Index.tune`, on another truth: the union of two deep searches, not the scores of every item.

        Each train query is searched by `rerank` and by `crosscut` with five times the budget; the best k of all that
        they scored is taken for its answer, and the report's notes say so. Items no deep search reaches do not count.
        """
        asked = list(dict.fromkeys(checked_queries(queries or ())))[:MOST]
        if not asked:
            raise InputError("an index over a store has no anchor queries to tune on: pass train queries")
        if engine != "local":
            raise InputError(f"over a store, tuning scores where it runs: engine='local', not {engine!r}")
        calls = self.tuning_calls(asked, budget)
        if max_calls is not None and calls > max_calls:
            raise InputError(f"tuning would make up to {calls} calls and may make {max_calls}; give fewer queries")
        session, vectors = self.store.session(), self._vectors(asked)
        tried = to_try(self._made_from(), methods, k, budget)
        scorer = self._remembering(session)
        known = self._deep(session, scorer, asked, vectors, DEEP * budget, progress)
        size = 1 + max((max(scores, default=-1) for scores in known), default=-1)
        truth = np.full((len(asked), size), -np.inf, np.float32)
        for row, scores in zip(truth, known, strict=True):
            row[list(scores)] = list(scores.values())
        state: Any = SimpleNamespace(parts=self._parts(session), alive=np.ones(size, np.bool_))
        fold = _DeepFold(state, asked, vectors, truth, scorer)
        report = choose(lambda count: [fold], k, budget, 0, tried, progress)
        note = (
            f"the truth of each query is the best {k} that two searches of {DEEP * budget} calls (rerank, crosscut) "
            f"found in {self.store.place}, not of all its items"
        )
        return self._tuned(replace(report, calls=scorer.calls, notes=(*report.notes, note)))

    def truth(self, queries: Sequence[str], budget: int = 500) -> tuple[list[dict[Any, float]], int]:
        """What two deep searches (`rerank`, `crosscut`) score of every query, id → score, and the calls they took."""
        session = self.store.session()
        scorer = self._remembering(session)
        known = self._deep(session, scorer, checked_queries(queries), self._vectors(queries), budget, None)
        return [{session.name(handle): score for handle, score in scores.items()} for scores in known], scorer.calls

    def _remembering(self, session: Session) -> CachingScorer:
        assert self.scorer is not None
        return CachingScorer(as_bound(self.scorer.bind(session)))

    def _deep(
        self,
        session: Session,
        scorer: CachingScorer,
        queries: Sequence[str],
        vectors: npt.NDArray[np.float32] | None,
        budget: int,
        progress: Progress | None,
    ) -> list[dict[int, float]]:
        """What deep searches score of every query: handle → score."""
        for done, method in enumerate((Rerank(), Crosscut(rounds=20)), 1):
            searcher = Searcher(scorer, method=method, parts=self._parts(session))
            searcher.search_many(queries, 1, budget, query_vectors=vectors)
            if progress is not None:
                progress("deep searches", done, 2)
        return [scorer.scores.get(query, {}).copy() for query in queries]

    # -- items ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.store.count()

    def __contains__(self, id: object) -> bool:
        try:
            return bool(len(self.store.session().handles([id])))
        except InputError:
            return False

    def __getitem__(self, id: Any) -> Item:
        session = self.store.session()
        return session.get(session.handles([id]))[0]

    @property
    def items(self) -> list[Item]:
        raise InputError(f"the items stay in {self.store.place}: ask it for them")

    def add(
        self,
        source: Source,
        *,
        vectors: Brought | None = None,
        engine: EngineChoice | None = None,
        resume: bool = False,
        progress: Progress | None = None,
        **columns: Unpack[ColumnNames],
    ) -> int:
        """More items, written to the store with their vectors, searchable as soon as the store shows them.

        By default an id that is there already is an error, and then nothing is written. With an `engine`
        (`"local"`, `"ray"`, `RayEngine(workers=8, address="auto")`) or `resume`, items are read, encoded and written
        block after block, however many there are; workers of Ray write straight into a server's store. `resume`
        skips what is there: after a stop, add the same again. Returns how many items were written.
        """
        if engine is not None or resume:
            in_turn = stream(source, progress=progress, **columns)
            return self._fill(
                Filling(self.store, in_turn, resume=resume, progress=progress), vectors, engine or "local"
            )
        items = as_items(source, progress=progress, **columns)
        distinct(items)
        if not items:
            return 0
        if self.encoder is None and vectors is None:
            raise InputError("items need vectors: open the index with the encoder of the store's, or pass vectors=…")
        with self._writing, self.store.reaching():
            rows = self.store.fetch([self.store.named(item.id) for item in items])
            if rows.keys:
                first = self.store.name(rows.keys[0], rows.payloads[0])
                raise InputError(
                    f"{len(rows.keys)} of {len(items)} ids are in {self.store.place} already, one is {first!r}; "
                    "remove them first, or give new ids"
                )
            made = self.encoder.encode_items(items) if vectors is None and self.encoder is not None else None
            rows_of = brought(vectors, items, np.float32, progress) if made is None and vectors is not None else made
            write(self.store, items, np.asarray(rows_of))
        if progress is not None:
            progress("adding items", len(items), len(items))
        return len(items)

    def _fill(self, filling: Filling, vectors: Brought | None, engine: EngineChoice) -> int:
        if vectors is not None or self.encoder is None:
            raise InputError("block after block, items are encoded on the way: pass an encoder, and no vectors=")
        with self._writing:
            return filling.run(self._names["encoder"] or self.encoder, make_engine(engine))  # workers load a name

    def remove(self, ids: Iterable[Any]) -> int:
        """Take items out of the store; an unknown id is an error and nothing is removed. Returns how many."""
        session = self.store.session()
        with self._writing:
            gone = session.handles([ids] if isinstance(ids, str) else list(ids))
            if len(gone):
                with self.store.reaching():
                    self.store.erase(session.keys(gone))
        return len(gone)

    def forget(self, ids: Iterable[Any]) -> int:
        """`remove`, and nothing of the items is left in the log of searches, or in what was learned from it."""
        names = [ids] if isinstance(ids, str) else list(ids)
        with self._writing:
            self.store.session().handles(names)  # an unknown id is an error, and nothing is forgotten
            named = [str(self.store.named(name)) for name in names]
            self._unlearn(ids=named)  # before they are gone: a forgetting that was stopped can be repeated
            return self.remove(names)

    def preload(self) -> None:
        """Nothing: a scorer prepares the items of a store when they are scored."""

    def save(self, path: Any = None) -> NoReturn:
        raise InputError(
            f"the items stay in {self.store.place}, and there is nothing else to save but the method: "
            f"Index.over(store, scorer=…, encoder=…, method={str(self.method)!r})"
        )

    def close(self) -> None:
        """Give the store's connection back."""
        self.store.close()

    def __repr__(self) -> str:
        return f"Index.over({self.store!r}, scorer={self.scorer!r}, method={str(self.method)!r})"


@dataclass(frozen=True)
class _DeepFold(Fold):
    """Train queries over a store: one session for all trials."""

    scorer: CachingScorer

    def search(self, method: Method, k: int, budget: int, stop: Stop | None = None) -> list[Hits]:
        searcher = Searcher(self.scorer, method=method, parts=self.state.parts)
        return searcher.search_many(self.queries, k, budget, query_vectors=self.vectors, stop=stop)

    def recalls(self, found: Sequence[Hits], k: int) -> list[float]:
        shares = []
        for row, hits in zip(self.truth, found, strict=True):
            size = min(k, int(np.isfinite(row).sum()))
            shares.append(recall(row, hits.scored[hits.scored < len(row)], size) if size else 0.0)
        return shares


def _evidence(session: Session, hits: Hits, vector: npt.ArrayLike | None) -> Evidence:
    """What vectors say of everything that was scored; words stay in the store."""
    handles = hits.scored
    if vector is None or not len(handles):
        return {}
    return {"dense": np.asarray(np.einsum("md,d->m", session.rows(handles), np.asarray(vector, np.float64)))}


def _told(session: Session, hits: Hits, k: int) -> Hits:
    """Hits with the store's ids and whole items; ties go by id."""
    scored = Scored.of(hits.trace)
    values = (scored.scores if hits.ranking is None else hits.ranking).tolist()
    names = [session.name(handle) for handle in scored.positions.tolist()]
    order = sorted(range(len(names)), key=lambda j: (-values[j], type(names[j]).__name__, names[j]))[:k]
    best = np.array(order, dtype=np.int64)
    found = zip(order, scored.hits(best), session.get(scored.positions[best]), strict=True)
    return replace(hits, items=tuple(replace(hit, id=names[j], text=item.text, item=item) for j, hit, item in found))


def _scored_in(session: Session, scorer: BoundScorer, query: str, hits: Hits) -> tuple[list[str], Floats, Floats]:
    """What a search has scored: ids, scores without what was known unasked, and the chance that each had."""
    positions, scores, chances = scored_by(scorer, query, hits)
    return [str(session.name(handle)) for handle in positions.tolist()], scores, chances
