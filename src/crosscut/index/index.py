"""`Index`: texts, an expensive scorer, and a budget; one object that builds, searches, grows, saves and loads."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar, Unpack, overload

import numpy as np
import numpy.typing as npt

from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.records import Item
from crosscut.errors import CrosscutError, InputError, ScorerError, StoreError, StoreUnavailable
from crosscut.index.build import (
    Brought,
    Seller,
    build_in_folder,
    factorized,
    local_corpus,
    promised,
    train_queries,
    training,
)
from crosscut.index.calibration import (
    Qrels,
    calibrate_by_judgements,
    calibration_for,
    required,
)
from crosscut.index.corpus import Corpus, LocalCorpus, View, by_item
from crosscut.index.folder import KIND, owed, read_corpus, read_statistics, same_model, verify
from crosscut.index.items import Filter, Source, as_items, stream
from crosscut.index.knowing import corpus_scorer, with_statistics
from crosscut.index.learning import learn_from, logged
from crosscut.index.log import LIMIT, SearchLog
from crosscut.index.options import ManyQueries, OneQuery, Options, SpaceName, checked_queries
from crosscut.index.passages import OfDocuments, Passages
from crosscut.index.settings import ModelName, Settings
from crosscut.index.spending import spend
from crosscut.index.tuning import (
    DEEP,
    MOST,
    RIVALS,
    RULES,
    TRIALS,
    WEIGHTS,
    Fold,
    Measure,
    Tuning,
    budgets_up_to,
    check_named,
    deep_fold,
    held_out_folds,
    judged_queries,
    to_try,
    tune_by_recall,
    tune_by_relevance,
    usual_methods,
)
from crosscut.methods import Crosscut, Method, methods, parse
from crosscut.methods.learning import Learned
from crosscut.methods.rerank import Base
from crosscut.models.bi_encoder import DualEncoder, load_encoder
from crosscut.names import check_keywords
from crosscut.score_store.engines import EngineChoice, make_engine
from crosscut.score_store.store import ScoreStore
from crosscut.scorers.base import Scorer
from crosscut.scorers.caching import CachingScorer, ScoreCache
from crosscut.scorers.calibration import DEPTH, Calibration
from crosscut.scorers.loading import load_scorer
from crosscut.scorers.meter import Halt
from crosscut.search.hits import Hits, Price
from crosscut.search.ranking import ByScorer, Order, ordered, parse_order
from crosscut.search.recall import RecallModel, TargetRecall
from crosscut.search.stopping import Confident, Stop, parse_stop
from crosscut.searcher import checked_deadline
from crosscut.storage import Folder, Lock, Saved
from crosscut.types import Floats, Progress, whole

if TYPE_CHECKING:
    from crosscut.stores.base import Store

LOGGER = logging.getLogger("crosscut.index")
ANCHORS = 200
PER_QUERY = 100
T = TypeVar("T")


class Setting(Generic[T]):
    """An attribute of an index that is a field of its settings."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, index: None, owner: type) -> Self: ...
    @overload
    def __get__(self, index: Index, owner: type) -> T: ...
    def __get__(self, index: Index | None, owner: type) -> Self | T:
        if index is None:
            return self
        value: T = getattr(index.settings, self._name)
        return value

    def __set__(self, index: Index, value: T) -> None:
        index.settings = replace(index.settings, **{self._name: value})  # type: ignore[arg-type]


class Forgotten(NamedTuple):
    """Counts of what `Index.forget` has erased."""

    items: int  # of the index, those that were removed before and old versions included
    scores: int  # of the score store
    searches: int  # of the log, which lost an item at least


class Index:
    """Items, their vectors and words, and the scorer that decides.

    >>> index = Index.build("corpus.jsonl")                                # the bundled models
    >>> hits = index.search("how do vaccines work", k=10, budget=100)
    >>> for hit in hits:
    ...     hit.id, hit.score, hit.text, hit.round
    >>> index.save("my.index")
    >>> index = Index.load("my.index")

    Attributes
    ----------
    method, stop, order, budget
        How a search works that names none: set by `tune`, or by you.
    price
        Of a call: `crosscut.Price(…)`, for `hits.cost`.
    """

    method = Setting[Method]()
    stop = Setting["Stop | None"]()
    order = Setting[Order]()
    budget = Setting["int | None"]()
    tuned = Setting["dict[str, Any] | None"]()
    calibration = Setting["Calibration | None"]()
    anchor_queries = Setting["Sequence[str]"]()
    build_calls = Setting[int]()

    def __init__(
        self, corpus: Corpus, settings: Settings, *, scorer: Scorer | None, encoder: DualEncoder | None
    ) -> None:
        self.corpus = corpus
        self.settings = settings
        self.scorer = scorer
        self.encoder = encoder
        self.price: Price | None = None
        self.taught: Learned | None = None  # by searches of train queries while it was built
        self.log: SearchLog | None = None
        self.learn_every: int | None = None  # searches after which it learns by itself
        self._unlearned = 0  # searches since it last did
        self._learner: threading.Thread | None = None
        self._folder: Folder | None = None  # where it was loaded from, or saved to
        self._lock: Lock | None = None  # of that folder
        self._writing = threading.RLock()

    # -- building ----------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        source: Source,
        *,
        scorer: Any = "default",
        encoder: Any = "auto",
        vectors: Brought | None = None,
        passages: Passages | int | bool | None = None,
        queries: Iterable[str] | None = None,
        anchors: int = ANCHORS,
        calls: int | None = None,
        space: SpaceName = "auto",
        per_query: int = PER_QUERY,
        bm25: bool = True,
        method: str | Method = "crosscut",
        cache: ScoreCache | None = None,
        store: str | Path | None = None,
        dtype: npt.DTypeLike = np.float16,
        seed: int = 0,
        engine: EngineChoice = "local",
        device: str | None = None,
        price: Price | None = None,
        progress: Progress | None = None,
        path: str | Path | None = None,
        **columns: Unpack[ColumnNames],
    ) -> Index:
        """An index over items. One function, because it is the list of what an index is made of, in order.

        Parameters
        ----------
        source
            A file (JSONL, JSON, CSV, TSV, Parquet, Arrow, text), a BEIR folder, a folder of .txt, .md and .html files,
            a frame of pandas or polars, a Hugging Face dataset, a mapping of ids to texts, or texts, records, tuples
            (id, text), items, or documents of LangChain, LlamaIndex or Haystack.
        scorer
            `"default"`, a model folder, a hub id, an address, a `CrossEncoder`, or `f(query, texts) -> scores`.
        encoder
            A dual encoder for round one and for the space: `"default"`, a folder, a hub id, a model, embeddings of
            LangChain or LlamaIndex, a function from texts to vectors, or None.
        vectors
            Of the items, if you have them: an array or memory map (n × d), a .npy file, or a function from texts to
            vectors. `encoder` is then only for queries, and must be the one that made them; by default there is none,
            and every search brings its `query_vector`. No item is encoded then, and the bundled scorer
            computes base scores of candidates only.
        passages
            Of long documents: True, words a passage, or `crosscut.Passages(…)`. Passages are scored and counted,
            documents are what a search answers with; the best passage is shown. By default the files of a folder are
            cut (120 words) and nothing else is; False keeps files whole, of which a scorer then reads the beginning.
        queries
            Train queries: most of the recall comes from there. Without them nothing is scored while building.
        calls
            That may be spent on train queries, where they help most: on searches of some of them, which teach what to
            expect of the next query, and on scores of others with every item. None: up to `anchors` queries are
            scored with every item.
        space
            What train queries are used for. `cur` scores up to `anchors` of them with every item. `als`,
            `transductive` and `inductive` score each with `per_query` items (half of them near its vector, half
            drawn) and factorise that. `encoder` uses none. `auto` is `cur` with queries, `encoder` without. With
            200,000 items or more, rounds visit clusters of them instead of reading all (`crosscut.IVF`).
        bm25
            Whether searches also look at words; a scorer that weighs words itself, as the bundled one, always has
            them. How common words are is frozen now: items that are added later change no score.
        method
            The default method of `search`.
        cache, store
            Scores that are known already, and a place for new ones: an object, or the folder of a score store. With a
            store, a build that was stopped goes on where it was.
        dtype
            Of the vectors kept: float16 or float32.
        engine
            Where train queries are scored: `"local"`, `"ray"`, `LocalEngine(…)`, `RayEngine(workers=4, gpus=1)`.
        device
            Where `transductive` and `inductive` factors are trained: "cuda", "cuda:1", "mps"; None is the CPU. Behind
            it the arithmetic of inductive ones may stand, and scores of a step: "cuda#dtype=bf16&batch_size=64".
        price
            Of the scorer: `crosscut.Price(per_thousand_calls=2.0)`. Every `Hits` then has a `cost`.
        progress
            Called as `progress(what, done, total)`.
        path
            Build it in this folder, item after item, for corpora of millions; a build that was stopped goes on when the
            same is asked for again. The bundled scorer then computes base scores of candidates only.
        columns
            Which columns of the source are what: `text="body", title="headline", id="pk"`, and `metadata`, `numbers`;
            see `crosscut.datasets.read_items`.
        """
        model = load_scorer(scorer)
        if isinstance(encoder, str) and encoder == "auto":
            encoder = "default" if vectors is None else None
        dual = None if encoder is None else load_encoder(encoder)
        space, asked = train_queries(space, list(dict.fromkeys(checked_queries(queries or ()))), anchors, calls)
        training(device, space)
        settings = Settings(
            ModelName(_name(scorer), model.fingerprint),
            None if dual is None else ModelName(_name(encoder), dual.fingerprint),
            method=parse(method),
            passages=Passages.of(passages, source),
            seed=whole("seed", seed),
        )
        per_query = whole("per_query", per_query, 1)
        counted = bm25 or (path is None and corpus_scorer(model) is not None)
        promised(settings.method, space, dual is not None, vectors is not None, counted)
        if path is not None:
            build_in_folder(Path(path), source, columns, settings, dual, vectors, bm25, dtype, progress)
            index = cls.load(path, scorer=model, encoder=dual, cache=cache, store=store)
            index.settings = settings
        else:
            given = as_items(source, progress=progress, **columns)
            corpus, model = local_corpus(given, settings, model, dual, vectors, bm25, dtype, progress)
            if store is not None:
                cache = ScoreStore(store, scorer_fingerprint=model.fingerprint).cache(corpus.items)
            settings = replace(settings, scorer=ModelName(_name(scorer), model.fingerprint))
            index = cls(replace(corpus, cache=cache), settings, scorer=model, encoder=dual)
        index.price = price
        index._score_train_queries(asked, space, per_query, calls, anchors, index._seller(engine, progress, device))
        if path is not None and asked:
            index.save()
        index.corpus.view(index.method)  # a method that cannot work here says so now
        return index

    def _score_train_queries(
        self, asked: list[str], space: SpaceName, per_query: int, calls: int | None, anchors: int, seller: Seller
    ) -> None:
        """Score train queries with as many items as the space takes, or with as many calls as may be spent."""
        corpus = self.local_corpus("train queries").clustered()
        n = len(corpus.items)
        if calls is not None:
            spent = spend(corpus, self.encoder, asked, calls, anchors, seller)
            corpus, asked, paid, self.taught = spent.corpus, spent.queries, spent.calls, spent.taught
        elif not asked or not n:
            paid = 0
        elif space == "cur":
            scores, paid = seller.scores(corpus, asked, np.arange(n))
            kept = scores if corpus.centroids is None else by_item(scores)
            corpus = replace(corpus, anchors=kept, measured=np.ones(n, np.bool_))
        else:
            factors = factorized(corpus, self.encoder, asked, per_query, space, seller)
            paid = factors.fitting.calls
            corpus = replace(corpus, factors=factors)
        if corpus.anchors is not None and (vectors := self.query_vectors(asked)) is not None:
            corpus = replace(corpus, anchor_vectors=np.asarray(vectors, np.float32))
        self.corpus = corpus
        self.settings = replace(self.settings, anchor_queries=tuple(asked), build_calls=paid)
        self.flush()

    @classmethod
    def over(
        cls,
        store: Store,
        *,
        scorer: Any = "default",
        encoder: Any = "default",
        method: str | Method = "crosscut",
        seed: int = 0,
    ) -> Index:
        """Return an index over a vector database: items and vectors stay there (`crosscut.stores`).

        `encoder` is the one that made the store's vectors, or None, and every search brings a `query_vector`. What
        needs every item in memory (anchor scores, words, saving) is refused.
        """
        from crosscut.index.store_corpus import StoreCorpus
        from crosscut.stores.base import Store

        if not isinstance(store, Store):
            raise InputError(f"{store!r} is no store: pass crosscut.stores.Qdrant(…), PgVector(…) or LanceDB(…)")
        model: Scorer = load_scorer(scorer)
        dual: DualEncoder | None = None if encoder is None else load_encoder(encoder)
        if dual is not None and dual.dimension != store.d:
            raise InputError(
                f"the encoder makes vectors of {dual.dimension} dimensions, and those of {store.place} have {store.d}: "
                "pass the encoder they were made with, or encoder=None and query_vector= with every search"
            )
        settings = Settings(
            ModelName(_name(scorer), model.fingerprint),
            None if dual is None else ModelName(_name(encoder), dual.fingerprint),
            method=parse(method),
            seed=whole("seed", seed),
        )
        index = cls(StoreCorpus(store, model, seed=settings.seed), settings, scorer=model, encoder=dual)
        index.method.made(index.corpus.parts)  # a method that cannot work here says so now
        return index

    # -- items -------------------------------------------------------------------------------------------------------

    @property
    def passages(self) -> Passages | None:
        """Options by which documents were split into the items, if they were."""
        return self.settings.passages

    @property
    def recall_model(self) -> RecallModel | None:
        """The model of recall behind `target_recall`, if the index was tuned for it."""
        return self.settings.recall_model

    @property
    def store(self) -> Store | None:
        """The vector database that holds the items, if one does."""
        return self.corpus.store

    def __len__(self) -> int:
        return len(self.corpus)

    def __contains__(self, id: object) -> bool:
        return id in self.corpus

    def __getitem__(self, id: Any) -> Item:
        return self.corpus.item(id)

    @property
    def items(self) -> list[Item]:
        """The items, in the order in which they were added."""
        return self.local_corpus("items").listed()

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
        """Add items, searchable at once; they are embedded, not scored. Returns how many.

        Parameters
        ----------
        vectors, columns
            As in `build`.
        engine, resume
            Over a vector store: read, encode and write block after block, however many items there are; workers of Ray
            (`"ray"`, `RayEngine(workers=8)`) write straight into a server's store. `resume` skips what is there: after
            a stop, add the same again.
        """
        with self._writing:
            corpus = self.corpus
            if engine is not None or resume:
                return self._fill(source, vectors, engine or "local", resume, progress, columns)
            self._claim()
            number = 0 if corpus.place is not None else len(self.local_corpus("add").items)
            items = as_items(source, taken=number, progress=progress, **columns)
            self.corpus = corpus.added(items, vectors, self.encoder, self.scorer, progress)
            return len(items)

    def _fill(
        self,
        source: Source,
        vectors: Brought | None,
        engine: EngineChoice,
        resume: bool,
        progress: Progress | None,
        columns: ColumnNames,
    ) -> int:
        from crosscut.index.store_corpus import fill

        if self.store is None:
            raise InputError("engine= and resume= are for an index over a vector store: leave them out")
        if vectors is not None or self.encoder is None:
            raise InputError("block after block, items are encoded on the way: pass an encoder, and no vectors=")
        name = None if self.settings.encoder is None else self.settings.encoder.name  # workers load a name
        items = stream(source, progress=progress, **columns)
        return fill(self.store, items, name or self.encoder, make_engine(engine), resume=resume, progress=progress)

    def remove(self, ids: Iterable[Any]) -> int:
        """Take items out, at once; an unknown id is an error and nothing is removed. Returns how many.

        `save` writes nothing of them, except of a large index in its folder: there they leave the files once an eighth
        of all items is gone, or with `compact` or `forget`. A search log and a score store still hold what they have of
        them: `forget` erases that, too, also afterwards.
        """
        with self._writing:
            self._claim()
            chosen = _distinct(ids)
            self.corpus = self.corpus.removed(chosen, self.scorer)
            return len(chosen)

    def compact(self) -> int:
        """Keep nothing of items that were removed, in memory now and on disk after `save`; returns how many they were.

        Positions (`hit.position`) change, ids do not.
        """
        with self._writing:
            corpus = self.local_corpus("compact")
            self.corpus = corpus.compacted(self.scorer)
            return len(corpus.items) - len(corpus)

    def forget(self, ids: Iterable[Any] = (), *, texts: str | Iterable[str] = ()) -> Forgotten:
        """`remove`, and no trace when it returns: not in memory, not in the files of the index's folder, which is
        saved (with all that was changed), not in its score store, and not in its log of searches; what was learned is
        learned again without them. Returns what was found.

        Items that were removed before, and earlier versions of items, are erased too, by their ids; the scores of an
        item that has left the index long ago are found by its text, which `texts` names.

        The files are written anew, whatever their size: forget many items in one call. If it fails, on a full disk say,
        the items are still in the index: call it again.
        """
        with self._writing:
            chosen, named = _distinct(ids), _distinct(texts)
            before, claimed = self.corpus, self._lock is not None
            if self.log is None and before.score_store is None:
                before.check_known(chosen)
            try:
                self._claim()
                searches = self._unlearn(ids=before.log_ids(chosen))
                self.corpus, items, scores = self.corpus.forgotten(chosen, named, self.scorer)
                if self._folder is not None:
                    self.save()
            except BaseException:  # as if it had not begun, so that it can be repeated
                self.corpus = before
                if not claimed:
                    self._release()
                raise
            self.corpus = self.corpus.fresh()
            return Forgotten(items, scores, searches)

    @property
    def completing_calls(self) -> int:
        """The calls that `complete` would make at most."""
        corpus = self.local_corpus("complete")
        return 0 if corpus.measured is None else len(self.anchor_queries) * int((~corpus.measured & corpus.alive).sum())

    def complete(
        self, *, max_calls: int | None = None, engine: EngineChoice = "local", progress: Progress | None = None
    ) -> int:
        """Score the anchor queries with items that were added since; returns the calls that took.

        It refuses to spend more than `max_calls`, if that is given.
        """
        with self._writing:
            corpus = self.local_corpus("complete")
            if corpus.anchors is None or corpus.measured is None:
                raise InputError("this index has no anchor queries: build it with queries=… to have them")
            if max_calls is not None and self.completing_calls > max_calls:
                raise InputError(
                    f"completing would make up to {self.completing_calls} calls and may make {max_calls}: allow more, "
                    "or leave the estimates"
                )
            self._claim()
            missing = np.flatnonzero(~corpus.measured & corpus.alive)
            if not len(missing):
                return 0
            scores, calls = self._seller(engine, progress).scores(corpus, self.anchor_queries, missing)
            self.corpus = corpus.measured_at(missing, scores)
            self.build_calls += calls
            return calls

    # -- searching ---------------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        k: int = 10,
        budget: int | None = None,
        *,
        candidates: Sequence[str] | None = None,
        query_vector: npt.ArrayLike | None = None,
        **options: Unpack[Options],
    ) -> Hits:
        """The k best items for one query, with at most `budget` calls of the scorer (100); see `search_many`."""
        check_keywords("search", options, OneQuery.__annotations__)
        return self.search_many(
            [query],
            k,
            budget,
            candidates=None if candidates is None else [candidates],
            query_vectors=None if query_vector is None else [query_vector],
            **options,
        )[0]

    def search_many(
        self,
        queries: Iterable[str],
        k: int = 10,
        budget: int | None = None,
        *,
        method: str | Method | None = None,
        filter: Filter | None = None,
        stop: str | Stop | None = None,
        target_recall: float | None = None,
        deadline: float | None = None,
        threshold: float | None = None,
        order: str | Order | None = None,
        candidates: Sequence[Sequence[Any] | None] | None = None,
        query_vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None = None,
        trace: bool = False,
        halts: Sequence[Halt] | None = None,
    ) -> list[Hits]:
        """The k best items for every query, each with at most `budget` calls; a round of all queries is one batch.

        Parameters
        ----------
        budget
            None: 100 calls, or every item for `exact`.
        method
            Instead of the index's own: a name with settings, `"axn@rounds=10,first=lexical"`, or a `Method`.
        filter
            Conditions on metadata, or a predicate on items; respected in every round.
        stop
            `Patience(rounds)` ends a search once its top k has stopped changing. A tuned index has a patience of its
            own; with the bundled scorer a search ends once the next items would not change its top k
            (`confident`). `"never"` spends the whole budget.
        target_recall
            Stop once this share of the top k is expected to be found; calibrated by `tune`, for its k and method.
        deadline
            Seconds after which no further batch of calls is made.
        threshold
            Only hits whose probability of being relevant is at least this, 0 … 1; of a calibrated index.
        order
            `"scorer"` orders hits by score. `"fused"` orders them by scorer, dual encoder and words together, which
            guards against a scorer that is wrong here; `"fused@scorer=2"` trusts it more.
        candidates
            Items for round one, from elsewhere.
        trace
            Keep every round's predictions in `hits.trace`, for plots; over a store the rounds have none.
        halts
            One function a query, asked before every batch of its calls: a reason ends that search.
        """
        started = time.perf_counter()
        checked_deadline(deadline)
        ranking = self.order if order is None else parse_order(order)
        calibration = calibration_for(self.calibration, self.scorer, threshold)
        budget = self._usual_budget(budget, method)
        queries = checked_queries(queries)
        since = None if self.log is None else self.log.since
        chosen, rule = self._method_and_rule(method, stop, target_recall, budget)
        corpus = self.corpus
        view = corpus.view(chosen, filter)
        if corpus.passages is not None and rule is not None and target_recall is None:
            rule = OfDocuments(parse_stop(rule), view.document)  # as k counts documents
        vectors = self.query_vectors(queries) if query_vectors is None else query_vectors
        try:
            found = view.searcher.search_many(
                queries,
                k,
                budget,
                query_vectors=vectors,
                candidates=None if candidates is None else [view.handles(ids) for ids in candidates],
                allow=view.allow,
                within=view.within,
                stop=rule,
                deadline=None if deadline is None else max(deadline - (time.perf_counter() - started), 1e-6),
                trace=trace,
                halts=halts,
            )
        except (ScorerError, StoreUnavailable) as error:
            error.hits = [self._finished(view, hits, k) for hits in error.hits]
            raise
        answers = []
        for vector, hits in zip([None] * len(queries) if vectors is None else vectors, found, strict=True):
            best = ordered(hits, ranking, view.evidence(hits, vector), k) if ranking.needs else hits
            best = self._finished(view, best, k)
            answers.append(best if calibration is None else best.calibrated(calibration, threshold))
        if vectors is not None:
            self._remember(view, queries, vectors, found, since)
        return answers

    def _finished(self, view: View, hits: Hits, k: int) -> Hits:
        """The best k with their ids, items and cost."""
        if self.price is not None:
            hits = self.price.on(hits, view.items(hits.scored))
        hits = replace(view.named(hits, k), items_at=view.items)
        scorer = view.searcher.scorer
        hits = replace(hits, note=scorer.note(hits.query))
        return replace(hits, stop_reason="base scores") if scorer.free else hits

    def default_stop(self, method: str | Method | None = None) -> Stop | None:
        """Return the stopping rule of searches that name none: `confident`, where the scorer has base scores and the
        method uses them."""
        if self.scorer is None:
            return None
        searcher = self.corpus.view(self.method if method is None else parse(method)).searcher
        return Confident() if searcher.scorer.has_base_scores and searcher.method.takes_base else None

    def _method_and_rule(
        self, method: str | Method | None, stop: str | Stop | None, target_recall: float | None, budget: int | None
    ) -> tuple[Method, str | Stop | None]:
        """The method of a search, and what ends it."""
        chosen = self.method if method is None else parse(method)
        if self.corpus.free_scorer:  # every method finds the same
            return Base(), None
        if target_recall is None:
            return chosen, stop or (self.stop if chosen == self.method else None) or self.default_stop(chosen)
        if stop is not None:
            raise InputError(f"target_recall={target_recall} and stop={stop} are two stopping rules: give one")
        model = self.recall_model
        if model is None or chosen != self.method:
            notes = (self.tuned or {}).get("notes") if chosen == self.method else None
            said = f" ({'; '.join(map(str, notes))})" if isinstance(notes, list | tuple) and notes else ""
            raise InputError(
                f"target_recall={target_recall} needs a calibration for method {chosen}: call index.tune(queries, k, "
                f"budget), crosscut index tune, and search with the method it chose{said}"
            )
        rounds = max(2, (budget or 100) // model.step)
        return chosen.with_settings({"rounds": rounds}), TargetRecall(model, target_recall)

    def _usual_budget(self, budget: int | None, method: str | Method | None) -> int | None:
        """The calls of a search that names none: those that were chosen for the index's own method."""
        if budget is not None or (method is None and self.budget is not None):
            return self.budget if budget is None else budget
        chosen = self.method if method is None else parse(method)
        return None if chosen.name == "exact" else getattr(self.scorer, "usual_budget", None)

    def query_vectors(self, queries: Sequence[str]) -> npt.NDArray[np.float32] | None:
        """The encoder's query vectors, if the items have such vectors too."""
        if self.encoder is None or not self.corpus.has_vectors or not queries:
            return None
        return self.encoder.encode_queries(queries)

    @property
    def methods(self) -> list[str]:
        """The names of the methods that this index can be searched with."""
        parts = self.corpus.parts
        return [name for name, method in methods().items() if method().missing(parts) is None]

    async def search_async(
        self, query: str, k: int = 10, budget: int | None = None, **options: Unpack[OneQuery]
    ) -> Hits:
        """`search`, beside other work of an event loop."""
        check_keywords("search_async", options, OneQuery.__annotations__)
        first, vector = options.pop("candidates", None), options.pop("query_vector", None)
        found = await self.search_many_async(
            [query],
            k,
            budget,
            candidates=None if first is None else [first],
            query_vectors=None if vector is None else [vector],
            **options,  # type: ignore[misc]
        )
        return found[0]

    async def search_many_async(
        self, queries: Iterable[str], k: int = 10, budget: int | None = None, **options: Unpack[ManyQueries]
    ) -> list[Hits]:
        """`search_many`, beside other work of an event loop; one that is cancelled makes no further calls."""
        gone, queries = threading.Event(), checked_queries(queries)

        def halt() -> str | None:
            return "cancelled" if gone.is_set() else None

        halts = [halt] * len(queries)
        try:
            return await asyncio.to_thread(partial(self.search_many, queries, k, budget, halts=halts, **options))
        finally:
            gone.set()

    def preload(self) -> None:
        """Let the scorer prepare every item now (encode it, say), instead of when it is first scored."""
        self.corpus.preload()

    # -- learning ----------------------------------------------------------------------------------------------------

    def keep_log(self, path: str | Path | None, *, limit: int = LIMIT, learn_every: int | None = None) -> None:
        """Log every search that has a query vector; nothing is logged unless this was asked for.

        Parameters
        ----------
        path
            The file: query vectors, ids and scores, not the texts. None: log no more.
        limit
            Bytes, at which the older half is dropped.
        learn_every
            Learn in the background after so many searches; None: only when `learn` is called.
        """
        if learn_every is not None:
            whole("learn_every", learn_every, 1)
        log = None if path is None else SearchLog(path, limit=limit)
        if log is not None:
            log.begin()
        self.log, self.learn_every = log, learn_every

    def learn(self, *, correction: float = 1.0) -> Learned:
        """Learn from the log what to expect of a query: better searches, and not one call more.

        What is learned is used by `crosscut`, beside anchor scores where there are any, and only if it does better on
        logged searches that were held out; the answer says so. Scores of another scorer or encoder do not count, nor
        those of items that are gone, nor searches of the anchor queries themselves; a search that is 2,000
        searches old counts half.

        With `correction` above 1, an item that was drawn at random (`crosscut@explore=0.1`) counts for as many that
        were not scored, up to so many.
        """
        if not correction >= 1:
            raise InputError(f"correction is for how many pairs one may count, 1 or more; got {correction}")
        if self.log is None:
            raise InputError("there is no log of searches to learn from: call index.keep_log('searches.log') first")
        with self._writing:
            got, self.corpus = learn_from(self.corpus, self.log, self._models, self.anchor_queries, correction)
            return got

    def forget_queries(self, queries: Iterable[str]) -> int:
        """Erase searches from the log, and learn again without them; returns how many were erased."""
        with self._writing:
            return self._unlearn(queries=[queries] if isinstance(queries, str) else list(queries))

    def _unlearn(self, *, queries: Sequence[str] = (), ids: Sequence[str] = ()) -> int:
        """Erase what the log holds of queries and items, and learn anew what was learned from it."""
        count = 0 if self.log is None else self.log.forget(queries=queries, ids=ids)
        if self.corpus.prior is not None:
            self.corpus = self.corpus.with_prior(None)
            if self.log is not None:
                self.learn()
        return count

    @property
    def _models(self) -> str:
        return "/".join("none" if one is None else one.fingerprint for one in (self.scorer, self.encoder))

    def _remember(
        self,
        view: View,
        queries: Sequence[str],
        vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any],
        found: Sequence[Hits],
        since: Any,
    ) -> None:
        """Log what searches have scored, if they are logged; `since` was the log's when they began."""
        if self.log is None or view.searcher.scorer.free:
            return
        each = zip(queries, vectors, found, strict=True)
        searches = [
            logged(view, query, vector, hits, self._models)
            for query, vector, hits in each
            if vector is not None and hits.calls + hits.cached
        ]
        try:
            self.log.append(searches, since=since)
        except CrosscutError as error:  # the searches were paid for, and their answers are returned all the same
            LOGGER.warning("%d searches were not logged: %s", len(searches), error)
            return
        self._unlearned += len(searches)
        busy = self._learner is not None and self._learner.is_alive()
        if self.learn_every is not None and self._unlearned >= self.learn_every and not busy:
            self._unlearned = 0
            self._learner = threading.Thread(target=self.learn, name="crosscut-learn", daemon=True)
            self._learner.start()

    # -- tuning and calibration --------------------------------------------------------------------------------------

    def tuning_calls(self, queries: Sequence[str] | None = None, budget: int = 100) -> int:
        """The calls that `tune` would make at most: none for anchor queries, every item for any other.

        Over a vector store: those of deep searches with some budgets.
        """
        asked = [query for query in dict.fromkeys(queries or ()) if query not in self.anchor_queries][:MOST]
        return len(asked) * (len(self) if self.store is None else budget * (2 * DEEP + TRIALS))

    def tune(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        budget: int = 100,
        *,
        qrels: Qrels | None = None,
        measure: Measure = "nDCG",
        methods: Sequence[str | Method] | None = None,
        max_calls: int | None = None,
        engine: EngineChoice = "local",
        progress: Progress | None = None,
    ) -> Tuning:
        """Choose how to search: by recall on train queries, or by what people judged.

        By recall: method, rounds, first stage, ridge, λ and patience, and `target_recall` is calibrated. By qrels:
        method, budget (the search's own from then on), the order of hits and the stopping rule. What an earlier `tune`
        chose is replaced: tuned by recall, hits are in the scorer's order again, and a search has its 100 calls.

        Parameters
        ----------
        queries
            Train queries; the first hundred are scored with every item (`tuning_calls(queries)` returns the number of
            calls beforehand; scores in the cache are free). None takes the anchor queries, whose scores are known. Over
            a vector store, what two deep searches find is taken for the truth.
        budget
            Calls of a search; with qrels, the most that is tried (k are the least).
        qrels
            Query → item id → relevance; then `measure` decides: "nDCG", "MRR" or "accuracy", of the best k.
        methods
            What is tried; None: every method that can work on this index (with qrels: the default, and those
            that rerank).
        max_calls
            Refuse to spend more than this.
        engine
            Where they are scored: `"local"`, `"ray"`, or an engine.
        """
        whole("k", k, 1)
        whole("budget", budget, 1)
        if qrels is not None and queries is not None:
            raise InputError("qrels bring their own queries: give either of them")
        if qrels is not None:
            report = self._tune_by_relevance(qrels, k, budget, measure, methods, max_calls, progress)
            best = report.chosen
            chosen: dict[str, Any] = {"budget": best.budget, "order": best.order, "stop": best.stop}
        else:
            report = self._tune_by_recall(queries, k, budget, methods, max_calls, engine, progress)
            patience = report.patience
            chosen = {"stop": None if patience is None else patience.stop}
            earlier = (self.tuned or {}).get("chosen", {})
            if (self.tuned or {}).get("measure") != "recall":  # what judgements chose, if nobody has since
                chosen |= {"budget": None} if self.budget == earlier.get("budget") else {}
                chosen |= {"order": ByScorer()} if str(self.order) == earlier.get("order") else {}
        self.settings = replace(self.settings, method=report.chosen.method, tuned=report.json(), **chosen)
        return report

    def _tune_by_recall(
        self,
        queries: Sequence[str] | None,
        k: int,
        budget: int,
        methods: Sequence[str | Method] | None,
        max_calls: int | None,
        engine: EngineChoice,
        progress: Progress | None,
    ) -> Tuning:
        corpus, known = self.corpus, list(self.anchor_queries)
        if queries is None and (corpus.anchors is None or len(known) < 8):
            count = 0 if corpus.anchors is None else len(known)
            raise InputError(
                f"there are {count} anchor queries to tune on, and 8 are needed: pass train queries (--queries), or "
                "build with some"
            )
        calls = self.tuning_calls(queries, budget)
        if max_calls is not None and calls > max_calls:
            raise InputError(f"tuning would make up to {calls} calls and may make {max_calls}; give fewer queries")
        asked = known if queries is None else list(dict.fromkeys(checked_queries(queries)))[:MOST]
        parts = corpus.parts
        tried = to_try(parts, methods, usual_methods(parts))
        vectors = self.query_vectors(asked)
        if corpus.place is not None:
            if not asked:
                raise InputError("there are no train queries to tune on: pass some")
            if engine != "local":
                raise InputError(f"over a store, tuning scores where it runs: engine='local', not {engine!r}")
            fold, scorer, _ = deep_fold(corpus, asked, vectors, DEEP * budget, progress)
            report = tune_by_recall(lambda count: [fold], k, budget, tried, progress)
            note = (
                f"the truth of each query is the best {k} that two searches of {DEEP * budget} calls (rerank, crosscut)"
                f" found in {corpus.place}, not of all its items"
            )
            return replace(report, calls=scorer.calls, notes=(*report.notes, note))
        local, paid = self.local_corpus("tune"), 0
        if queries is None:
            truth = np.asarray(local.anchors, np.float32)
        else:
            truth, paid = self._true_scores(asked, engine, progress)

        def folds(count: int) -> list[Fold]:
            return held_out_folds(local, asked, truth, vectors, anchors=queries is None, folds=count)

        return replace(tune_by_recall(folds, k, budget, tried, progress), calls=paid)

    def _true_scores(
        self, queries: Sequence[str], engine: EngineChoice, progress: Progress | None
    ) -> tuple[npt.NDArray[np.float32], int]:
        """Scores of queries with every item (q × n; −inf: removed), and the calls they took."""
        corpus = self.local_corpus("the scores of every item")
        truth = np.full((len(queries), len(corpus.items)), -np.inf, np.float32)
        there = np.flatnonzero(corpus.alive)
        truth[:, there], calls = self._seller(engine, progress).scores(corpus, queries, there)
        return truth, calls

    def truth(
        self,
        queries: Sequence[str],
        *,
        budget: int = 500,
        engine: EngineChoice = "local",
        progress: Progress | None = None,
    ) -> tuple[npt.NDArray[np.float32] | list[dict[Any, float]], int]:
        """Return the scores of queries with every item (q × n; −inf: removed), and the calls they took.

        Over a vector store: what two deep searches of each query score (id → score), each with this budget.
        """
        if self.store is None:
            return self._true_scores(queries, engine, progress)
        asked = checked_queries(queries)
        _, scorer, name = deep_fold(self.corpus, asked, self.query_vectors(asked), budget, progress)
        found = [{name(handle): score for handle, score in scorer.scores.get(query, {}).items()} for query in asked]
        return found, scorer.calls

    def _tune_by_relevance(
        self,
        qrels: Qrels,
        k: int,
        budget: int,
        measure: Measure,
        candidates: Sequence[str | Method] | None,
        max_calls: int | None,
        progress: Progress | None,
    ) -> Tuning:
        asked = judged_queries(qrels, self.corpus, measure, k, budget)
        there = self.methods if candidates is None else ()
        usual = [parse(name) for name in (Crosscut.name, *RIVALS) if name in there]
        tried = to_try(self.corpus.parts, candidates, usual)
        budgets = budgets_up_to(k, budget)
        most = len(asked) * len(tried) * sum(budgets)
        if self.store is not None:  # over a store nothing is remembered from one trial to the next
            most = 2 * most + len(asked) * (len(WEIGHTS) + len(RULES)) * budget
        if max_calls is not None and most > max_calls:
            raise InputError(
                f"tuning would make up to {most} calls and may make {max_calls}; give fewer queries or methods"
            )
        view = self.remembering()
        view.stop = view.calibration = None

        def search(queries: list[str], method: Method, size: int, order: Order, stop: Stop | None) -> list[Hits]:
            return view.search_many(queries, k, size, method=method, order=order, stop=stop)

        return tune_by_relevance(asked, search, tried, budgets, k, measure, view.default_stop, progress)

    def remembering(self) -> Index:
        """Return the same index with a memory: a pair that several searches score is paid once; nothing is logged."""
        corpus = self.corpus
        if isinstance(corpus, LocalCorpus) and corpus.scorer is not None:
            corpus = replace(corpus, scorer=CachingScorer(corpus.scorer, corpus.cache), cache=None)
        view = Index(corpus, self.settings, scorer=self.scorer, encoder=self.encoder)
        view.price = self.price
        return view

    def calibrate(self, qrels: Qrels, *, budget: int | None = None, max_calls: int | None = None) -> Calibration:
        """Learn what scores mean; from then on `hit.probability` is there and `threshold=` works. Saved with the index.

        Parameters
        ----------
        qrels
            Query → item id → relevance, above 0 for relevant; 50 queries do well. Each is searched, and of its ten best
            hits those judged relevant are, all others are not.
        budget
            Calls of each of these searches.
        max_calls
            Refuse to spend more than this.
        """
        if self.scorer is None:
            raise InputError("this index has no scorer to calibrate: load it with scorer=…")
        most = self.method.budget(self._usual_budget(budget, None), len(self)) * len(qrels)
        if max_calls is not None and most > max_calls:
            raise InputError(f"calibrating would make up to {most} calls and may make {max_calls}: give fewer")
        check_named(self.corpus, qrels.values())
        self.calibration = calibrate_by_judgements(
            qrels, lambda queries: self.search_many(queries, DEPTH, budget), self.scorer
        )
        return self.calibration

    def probabilities(self, scores: Sequence[float] | Floats) -> Floats:
        """The probability that a text with such a score is relevant, each score by itself: for reranking."""
        known = self.calibration
        fingerprint = "none" if self.scorer is None else self.scorer.fingerprint
        return required(known, fingerprint, "a probability").probabilities(np.asarray(scores, np.float64))

    # -- the folder --------------------------------------------------------------------------------------------------

    @property
    def path(self) -> Path | None:
        """The folder this index was loaded from, or saved to last."""
        return None if self._folder is None else self._folder.path

    @property
    def paths(self) -> Iterator[Path]:
        """The folders and files that it reads and writes: index, models, scores, log."""
        folders = (getattr(model, "folder", None) for model in (self.scorer, self.encoder))
        owners = (getattr(owner, "path", None) for owner in (self.log, self.score_store))
        return (path for path in (self.path, *folders, *owners) if isinstance(path, Path))

    @property
    def unsaved(self) -> bool:
        """Whether this index has changed since its folder was saved or loaded."""
        return self._lock is not None

    @property
    def score_store(self) -> ScoreStore | None:
        """The score store, if the index has one."""
        return self.corpus.score_store

    def save(self, path: str | Path | None = None) -> Path:
        """Write the index to a folder, in one step: until it is done, what was there stays readable."""
        with self._writing:
            corpus = self.local_corpus("save")
            target = Path(path) if path is not None else self.path
            if target is None:
                raise InputError("where should the index go? pass a folder: index.save('my.index')")
            same = self._folder is not None and target.resolve() == self._folder.path.resolve()
            folder = self._folder if same and self._folder is not None else Folder(target, KIND)
            if not same:
                folder.check()
            lock = self._lock if same and self._lock is not None else folder.lock()
            try:
                if same:
                    folder.unchanged()
                self.corpus = corpus.save(folder, self.settings.json(), self.scorer)
            finally:
                if lock is not self._lock:
                    lock.release()
            self._release()  # of this folder, or of another one that this index came from
            self._folder = folder
            return target

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        scorer: Any = None,
        encoder: Any = None,
        any_scorer: bool = False,
        trust_remote: bool = False,
        cache: ScoreCache | None = None,
        store: str | Path | None = None,
        verify: bool = False,
    ) -> Index:
        """Return an index that was saved.

        Parameters
        ----------
        scorer, encoder
            Needed when the index was built with an object or a function instead of a name. They must be the ones it
            was built with: fingerprints are compared. An index that holds nothing of its scorer (no train queries, no
            tuning, no calibration, nothing learned) takes any.
        any_scorer
            Take a scorer whose fingerprint differs all the same. Anchor scores and tuning stay those of the old one.
        trust_remote
            Let the folder name the address of its scorer, to which queries and items are sent. Without it, an index
            that was built with an address needs it again (`scorer`).
        cache, store
            As in `build`: scores found there are free, new ones are kept.
        verify
            Compare the checksums of all files; without it, those of files up to a megabyte.
        """
        folder, place = Folder(path, KIND), Path(path)

        def read(saved: Saved) -> Index:
            settings = Settings.from_json(saved.facts)
            statistics = read_statistics(saved)
            model = same_model(
                "scorer",
                scorer,
                saved.facts["scorer"],
                lambda given: with_statistics(load_scorer(given), statistics),
                place,
                lambda model: any_scorer or not owed(saved, model),
                trust_remote,
            )
            dual = same_model("encoder", encoder, saved.facts["encoder"], load_encoder, place)
            corpus = read_corpus(saved, model, cache)
            if store is not None and model is not None:
                corpus = replace(
                    corpus, cache=ScoreStore(store, scorer_fingerprint=model.fingerprint).cache(corpus.items)
                )
            names = {"scorer": (scorer, model), "encoder": (encoder, dual)}
            given: dict[str, Any] = {
                what: ModelName(_name(named), one.fingerprint)
                for what, (named, one) in names.items()
                if named is not None and one is not None
            }
            return cls(corpus, replace(settings, **given), scorer=model, encoder=dual)

        index = folder.load(read, verify=verify)
        index._folder = folder
        return index

    @staticmethod
    def verify(path: str | Path) -> list[str]:
        """Read all of a saved index and compare every checksum: a sentence for every file that is damaged."""
        return verify(path)

    def changed_on_disk(self) -> bool:
        """Whether somebody else has saved to the folder of this index since it was loaded or saved."""
        folder = self._folder
        return folder is not None and not self.unsaved and folder.record()["folder"] not in folder.known

    def reload(self) -> Index:
        """Return the index that its folder holds now, with the same models, price, log and score store."""
        if self.path is None:
            raise InputError("this index was never saved: there is nothing to load again")
        store = None if self.score_store is None else self.score_store.path
        try:
            self.flush()  # what was paid for stays known
        except StoreError as error:
            LOGGER.warning("scores were not written before the index was loaded again: %s", error)
        try:
            index = Index.load(self.path, scorer=self.scorer, encoder=self.encoder, store=store)
        except InputError:  # it was built with others since
            index = Index.load(self.path, store=store)
        index.price = self.price
        if self.log is not None:
            index.keep_log(self.log.path, limit=self.log.limit, learn_every=self.learn_every)
        return index

    def flush(self) -> None:
        """Write scores that wait for their store."""
        self.corpus.flush()

    def close(self) -> None:
        """Give up changes that were not saved, and the right to make any; scores that wait for a store are written."""
        self.corpus.close()
        self._release()

    def _claim(self) -> None:
        """The right to change the folder this index came from, until it is saved."""
        if self._folder is not None and self._lock is None:
            lock = self._folder.lock()
            try:
                self._folder.unchanged()
            except BaseException:
                lock.release()
                raise
            self._lock = lock

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    # -- parts -------------------------------------------------------------------------------------------------------

    def local_corpus(self, what: str) -> LocalCorpus:
        """The corpus, if its items are in memory or files."""
        if isinstance(self.corpus, LocalCorpus):
            return self.corpus
        raise InputError(
            f"the items stay in {self.corpus.place}, and this needs them in memory ({what}): build an index of them for"
            " that"
        )

    def _seller(self, engine: EngineChoice, progress: Progress | None, device: str | None = None) -> Seller:
        name = None if self.settings.scorer is None else self.settings.scorer.name
        return Seller(self.scorer, name, engine, progress, device)

    def __repr__(self) -> str:
        if self.store is not None:
            return f"Index.over({self.store!r}, scorer={self.scorer!r}, method={str(self.method)!r})"
        anchors = f", {len(self.anchor_queries)} anchor queries" if self.anchor_queries else ""
        return f"Index({len(self)} items, scorer={self.scorer!r}, method={str(self.method)!r}{anchors})"


def _name(model: Any) -> str | None:
    """Return a reference to a model: its name, if it was given by name."""
    return str(model) if isinstance(model, str | Path) else None


def _distinct(ids: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys([ids] if isinstance(ids, str) else ids))
