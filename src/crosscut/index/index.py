"""`Index`: texts, an expensive scorer, and a budget; one object that builds, searches, grows, saves and loads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

import numpy as np
import numpy.typing as npt

from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.records import ItemList
from crosscut.encoders.named import load_encoder
from crosscut.errors import InputError
from crosscut.index.building import (
    Brought,
    Seller,
    distinct,
    factorized,
    promised,
    read,
    separate,
    train_queries,
    training,
)
from crosscut.index.core import name_of
from crosscut.index.growing import Growing
from crosscut.index.items import Source, as_items
from crosscut.index.knowing import bound, corpus_scorer
from crosscut.index.options import Loading, SpaceName, checked_queries
from crosscut.index.passages import Passages
from crosscut.index.relevance import Judgements, Measure, RelevanceTuning, give_up_choice, tune_relevance
from crosscut.index.searching import Searching
from crosscut.index.spending import spend
from crosscut.index.state import State
from crosscut.index.streaming import StreamedBuild
from crosscut.index.tune import MOST, Fold, Tuning, folds_of, to_try
from crosscut.index.tune import tune as choose
from crosscut.methods import Method, parse
from crosscut.retrieval.bm25 import BM25
from crosscut.score_store.engines import EngineChoice
from crosscut.score_store.store import ScoreStore
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.loading import load_scorer
from crosscut.search.price import Price
from crosscut.search.stopping import Patience
from crosscut.types import Progress, whole

if TYPE_CHECKING:
    from crosscut.index.over import StoreIndex
    from crosscut.stores.base import Store

ANCHORS = 200
PER_QUERY = 100


class Index(Searching, Growing):
    """Items, their vectors and words, and the scorer that decides.

    >>> index = Index.build("corpus.jsonl")                                # the models in the box
    >>> hits = index.search("how do vaccines work", k=10, budget=100)
    >>> for hit in hits:
    ...     hit.id, hit.score, hit.text, hit.round
    >>> index.save("my.index")
    >>> index = Index.load("my.index")
    """

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
            and every search brings its `query_vector`. No item is encoded then, and what the scorer in the box knows
            without a call it knows of candidates only.
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
            Whether searches also look at words; a scorer that weighs words itself, as the one in the box, always has
            them. How common words are is frozen now: items that are added later change no score.
        method
            What `search` uses unless told otherwise.
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
            same is asked for again. What the scorer in the box knows without a call it then knows of candidates only.
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
        counted = bm25 or (path is None and corpus_scorer(model) is not None)
        promised(parse(method), space, dual is not None, vectors is not None, counted)
        seed, per_query = whole("seed", seed), whole("per_query", per_query, 1)
        named: dict[str, Any] = {
            "scorer": model,
            "scorer_name": name_of(scorer),
            "encoder": dual,
            "encoder_name": None if encoder is None else name_of(encoder),
            "method": method,
        }
        cut = Passages.of(passages, source)
        if path is not None:
            made = StreamedBuild(Path(path), source, columns, cut, dual, vectors, dtype, bm25, seed, progress)
            index = cls._streamed(made, named, asked, {"cache": cache, "store": store})
            index.price = price
            index._buy(asked, space, per_query, calls, anchors, index._seller(engine, progress, device))
            if asked:
                index.save()
            index._state.searcher(index.method)
            return index
        given = as_items(source, progress=progress, **columns)
        if not given:
            raise InputError("there is no item to build an index of: the source is empty")
        distinct(given)
        items = ItemList(given if cut is None else cut.cut(given))
        if cut is not None:
            separate(given, items)
        words = BM25(items) if counted else None
        weighing = corpus_scorer(model)
        if weighing is not None and words is not None:
            model = named["scorer"] = weighing = weighing.fitted(words)
        reading = read(items, model if vectors is None else None, dual, dtype, progress, vectors)
        known = reading.scorer_vectors(model)
        if store is not None:
            cache = ScoreStore(store, scorer_fingerprint=model.fingerprint).cache(items)
        state = State(
            items,
            np.ones(len(items), np.bool_),
            bound(model, items, known, reading.vectors, words),
            vectors=reading.vectors,
            bm25=words,
            statistics={} if weighing is None else weighing.statistics,
            known=known,
            cache=cache,
            seed=seed,
            passages=cut,
        )
        index = cls(state, queries=asked, **named)
        index.price = price
        index._buy(asked, space, per_query, calls, anchors, index._seller(engine, progress, device))
        index._state.searcher(index.method)  # a method that cannot work here says so now
        return index

    def _buy(
        self, asked: list[str], space: SpaceName, per_query: int, calls: int | None, anchors: int, seller: Seller
    ) -> None:
        """Scores of train queries: as many as the space takes, or as many calls as there are."""
        if calls is None:
            self._train(asked, space, per_query, seller)
        else:
            self._spend(asked, calls, anchors, seller)
        self._state.flush()

    def _train(self, asked: list[str], space: SpaceName, per_query: int, seller: Seller) -> None:
        """Scores of train queries, if there are any; lists of the vectors, where there are many."""
        state = self._state = self._state.clustered(self.scorer)
        n = len(state.items)
        if not asked or not n:
            return
        if space == "cur":
            scores, self.build_calls = seller.scores(state, asked, np.arange(n))
            self._state = replace(state, anchors=scores, measured=np.ones(n, np.bool_))
        else:
            factors = factorized(state, self.encoder, asked, per_query, space, seller)
            self.build_calls = factors.fitting.calls
            self._state = replace(state, factors=factors)

    def _spend(self, asked: list[str], calls: int, anchors: int, seller: Seller) -> None:
        """At most so many calls for train queries, where they help most."""
        spent = spend(self._state.clustered(self.scorer), self.encoder, [*dict.fromkeys(asked)], calls, anchors, seller)
        self._state, self.anchor_queries, self.build_calls = spent.state, spent.queries, spent.calls
        self.taught = spent.taught

    @classmethod
    def _streamed(cls, build: StreamedBuild, named: dict[str, Any], asked: list[str], known: Loading) -> Index:
        """Built in its folder, and loaded from there; `known` scores are those of `load`."""
        nothing = State(ItemList(), np.ones(0, np.bool_), None, seed=build.seed, passages=build.passages)
        empty = cls(nothing, **named)
        build.run(empty._facts())
        made = cls.load(build.path, **(known | Loading(scorer=named["scorer"], encoder=named["encoder"])))
        made._names = {"scorer": named["scorer_name"], "encoder": named["encoder_name"]}
        made.anchor_queries = asked
        return made

    @staticmethod
    def over(
        store: Store,
        *,
        scorer: Any = "default",
        encoder: Any = "default",
        method: str | Method = "crosscut",
        seed: int = 0,
    ) -> StoreIndex:
        """An index over a vector database: items and vectors stay there, nothing is copied (`crosscut.stores`).

        `encoder` is the one that made the store's vectors, or None, and every search brings a `query_vector`.
        """
        from crosscut.index.over import StoreIndex

        return StoreIndex(store, scorer=scorer, encoder=encoder, method=method, seed=seed)

    def tuning_calls(self, queries: Sequence[str] | None = None) -> int:
        """The calls that `tune` would make at most: none for anchor queries, every item for any other."""
        asked = [query for query in dict.fromkeys(queries or ()) if query not in self.anchor_queries]
        return len(asked[:MOST]) * len(self)

    @overload
    def tune(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        budget: int = 100,
        *,
        judgements: None = None,
        methods: Sequence[str | Method] | None = None,
        max_calls: int | None = None,
        engine: EngineChoice = "local",
        progress: Progress | None = None,
    ) -> Tuning: ...
    @overload
    def tune(
        self,
        queries: None = None,
        k: int = 10,
        budget: int = 100,
        *,
        judgements: Judgements,
        measure: Measure = "nDCG",
        methods: Sequence[str | Method] | None = None,
        max_calls: int | None = None,
        progress: Progress | None = None,
    ) -> RelevanceTuning: ...
    def tune(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        budget: int = 100,
        *,
        judgements: Judgements | None = None,
        measure: Measure = "nDCG",
        methods: Sequence[str | Method] | None = None,
        max_calls: int | None = None,
        engine: EngineChoice = "local",
        progress: Progress | None = None,
    ) -> Tuning | RelevanceTuning:
        """Choose how to search: by recall on train queries, or by what people judged.

        By recall: method, rounds, first stage, ridge, λ and patience, and `target_recall` is calibrated. By judgements:
        method, budget (the search's own from then on), the order of hits and the stopping rule. What an earlier `tune`
        chose is replaced: tuned by recall, hits are in the scorer's order again, and a search has its 100 calls.

        Parameters
        ----------
        queries
            Train queries; the first hundred are scored with every item, which `tuning_calls(queries)` tells
            beforehand (known scores in the cache are free). None takes the anchor queries, whose scores are known.
        budget
            Calls of a search; with judgements, the most that is tried (k are the least).
        judgements
            Query → item id → relevance; then `measure` decides: "nDCG", "MRR" or "accuracy", of the best k.
        methods
            What is tried; None: every method that can work on this index (with judgements: the default, and those
            that rerank).
        max_calls
            Refuse to spend more than this.
        engine
            Where they are scored: `"local"`, `"ray"`, or an engine.
        """
        if judgements is None:
            return self._tune(queries, k, budget, methods, max_calls, engine, progress)
        if queries is not None:
            raise InputError("judgements bring their own queries: give either of them")
        found = tune_relevance(
            self, judgements, k, budget, measure=measure, methods=methods, max_calls=max_calls, progress=progress
        )
        best = found.chosen
        self.method, self.budget, self.rank, self.stop = best.method, best.budget, best.rank, best.stop
        self.recall_model, self.tuned = None, found.json()
        return found

    def _tune(
        self,
        queries: Sequence[str] | None,
        k: int,
        budget: int,
        methods: Sequence[str | Method] | None,
        max_calls: int | None,
        engine: EngineChoice,
        progress: Progress | None,
    ) -> Tuning:
        """By recall."""
        state = self._state
        anchors = None if state.anchors is None else self.anchor_queries
        if queries is None and (anchors is None or len(anchors) < 8):
            raise InputError(
                f"there are {len(anchors or [])} anchor queries to tune on, and 8 are needed: pass train queries "
                "(--queries), or build with some"
            )
        calls = self.tuning_calls(queries)
        if max_calls is not None and calls > max_calls:
            raise InputError(f"tuning would make {calls} calls and may make {max_calls}; give fewer queries")
        asked = self.anchor_queries if queries is None else list(dict.fromkeys(checked_queries(queries)))[:MOST]
        tried = to_try(state.parts, methods, k, budget)
        spent = 0
        if queries is None:
            truth = np.asarray(state.anchors, np.float32)
        else:
            truth = np.full((len(asked), len(state.items)), -np.inf, np.float32)
            there = np.flatnonzero(state.alive)
            truth[:, there], spent = self._seller(engine, progress).scores(state, asked, there)
        vectors = self._vectors(asked)

        def folds(count: int) -> list[Fold]:
            return folds_of(state, asked, truth, vectors, held_out=queries is None, folds=count, seed=state.seed)

        return self._tuned(choose(folds, k, budget, spent, tried, progress))

    def _tuned(self, report: Tuning) -> Tuning:
        give_up_choice(self)
        self.method = report.chosen.method
        self.stop = None if report.patience is None else Patience(report.patience)
        self.recall_model, self.tuned = report.model, report.json()
        return report

    def __repr__(self) -> str:
        anchors = f", {len(self.anchor_queries)} anchor queries" if self.anchor_queries else ""
        return f"Index({len(self)} items, scorer={self.scorer!r}, method={str(self.method)!r}{anchors})"
