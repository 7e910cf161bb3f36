"""`Index`: texts, an expensive scorer, and a budget; one object that builds, searches, grows, saves and loads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, ItemList
from crosscut.datasets.storable import valid_text
from crosscut.encoders.named import DualEncoder, load_encoder
from crosscut.errors import InputError, ScorerError
from crosscut.index.building import Seller, distinct, encoded, factorized
from crosscut.index.folder import KIND, read_state, same_model, verify, write_state
from crosscut.index.items import Filter, Source, as_items
from crosscut.index.options import ManyQueries, OneQuery, Options
from crosscut.index.state import State
from crosscut.index.tune import MOST, Fold, Tuning, folds_of
from crosscut.index.tune import tune as choose
from crosscut.methods import Method, methods, parse
from crosscut.retrievers.bm25 import BM25
from crosscut.scorers.base import Scorer
from crosscut.scorers.callable import as_bound
from crosscut.scorers.meter import Halt, ScoreCache
from crosscut.scorers.named import load_scorer
from crosscut.scores.cache import StoreCache
from crosscut.scores.engines import EngineChoice
from crosscut.scores.store import ScoreStore
from crosscut.search.hits import Hits
from crosscut.search.recall import RecallModel, TargetRecall
from crosscut.search.stopping import Patience, Stop
from crosscut.searcher import checked_deadline
from crosscut.storage import Folder, Lock, Saved
from crosscut.types import Progress

ANCHORS = 200
PER_QUERY = 100
SPACES = ("encoder", "cur", "als", "transductive", "inductive")
SpaceName = Literal["auto", "encoder", "cur", "als", "transductive", "inductive"]


class Index:
    """Items, their vectors and words, and the scorer that decides.

    >>> index = Index.build("corpus.jsonl")                                # the models in the box
    >>> hits = index.search("how do vaccines work", k=10, budget=100)
    >>> for hit in hits:
    ...     hit.id, hit.score, hit.text, hit.round
    >>> index.save("my.index")
    >>> index = Index.load("my.index")
    """

    def __init__(
        self,
        state: State,
        *,
        scorer: Scorer | None,
        scorer_name: str | None,
        encoder: DualEncoder | None,
        encoder_name: str | None,
        queries: Sequence[str] = (),
        method: str | Method = "crosscut",
    ) -> None:
        self._state = state
        self.scorer = scorer
        self.encoder = encoder
        self._names = {"scorer": scorer_name, "encoder": encoder_name}
        self.anchor_queries = list(queries)
        self.method = parse(method)
        self.stop: Patience | None = None
        self.tuned: dict[str, Any] | None = None  # the report of the last `tune`
        self.recall_model: RecallModel | None = None
        self.build_calls = 0
        self._folder: Folder | None = None  # where it was loaded from, or saved to
        self._lock: Lock | None = None  # of that folder
        self._writing = threading.RLock()

    # -- building ------------------------------------------------------------------------------------------------

    @classmethod
    def build(
        cls,
        source: Source,
        *,
        scorer: Any = "default",
        encoder: Any = "default",
        queries: Iterable[str] | None = None,
        anchors: int = ANCHORS,
        space: SpaceName = "auto",
        per_query: int = PER_QUERY,
        bm25: bool = True,
        method: str | Method = "crosscut",
        cache: ScoreCache | None = None,
        store: str | Path | None = None,
        dtype: npt.DTypeLike = np.float16,
        seed: int = 0,
        engine: EngineChoice = "local",
        progress: Progress | None = None,
    ) -> Index:
        """An index over items.

        Parameters
        ----------
        source
            A .jsonl, .tsv or .txt file, a BEIR folder, a collection, or texts, records or items.
        scorer
            `"default"`, a model folder, a hub id, an address, a `CrossEncoder`, or `f(query, texts) -> scores`.
        encoder
            A dual encoder for round one and for the space: `"default"`, a folder, a hub id, a model, or None.
        queries
            Train queries: most of the recall comes from there. Without them nothing is scored while building.
        space
            What train queries are used for. `cur` scores up to `anchors` of them with every item. `als`,
            `transductive` and `inductive` score each with `per_query` items (half of them near its vector, half
            drawn) and factorise that. `encoder` uses none; with 200,000 items or more its rounds visit clusters of the
            vectors instead of reading them all (`crosscut.IVF`). `auto` is `cur` with queries, `encoder` without.
        bm25
            Whether round one also looks at words.
        method
            What `search` uses unless told otherwise.
        cache, store
            Scores that are known already, and a place for new ones: an object, or the folder of a score store. With a
            store, a build that was stopped goes on where it was.
        dtype
            Of the vectors kept: float16 or float32.
        engine
            Where train queries are scored: `"local"`, `"ray"`, `LocalEngine(…)`, `RayEngine(workers=4, gpus=1)`.
        progress
            Called as `progress(what, done, total)`.
        """
        items = ItemList(as_items(source))
        distinct(items)
        model = load_scorer(scorer)
        dual = None if encoder is None else load_encoder(encoder)
        asked = list(queries or ())
        if space == "auto":
            space = "cur" if asked else "encoder"
        if space not in SPACES:
            raise InputError(f"space is one of {', '.join(SPACES)} or auto; got {space!r}")
        if space == "cur":
            asked = asked[:anchors]
        if (space == "encoder") == bool(asked):
            told = f"space={space!r} and {len(asked)} train queries"
            raise InputError(f"{told} do not go together: give queries for a space that is made of them")
        for query in asked:
            valid_text(query, "a train query")
        if store is not None:
            cache = ScoreStore(store, scorer_fingerprint=model.fingerprint).cache(items)
        state = State(
            items,
            np.ones(len(items), np.bool_),
            as_bound(model.bind(items.growing)),
            vectors=None if dual is None else encoded(dual, items, dtype, progress),
            bm25=BM25(items) if bm25 else None,
            cache=cache,
            seed=seed,
        )
        index = cls(
            state,
            scorer=model,
            scorer_name=_name(scorer),
            encoder=dual,
            encoder_name=None if encoder is None else _name(encoder),
            queries=asked,
            method=method,
        )
        if asked and items and space == "cur":
            scores, index.build_calls = index._seller(engine, progress).scores(state, asked, np.arange(len(items)))
            index._state = state.changed(anchors=scores, measured=np.ones(len(items), np.bool_))
        elif asked and items:
            factors = factorized(state, dual, asked, per_query, space, index._seller(engine, progress))
            index.build_calls = factors.fitting.calls
            index._state = state.changed(factors=factors)
        else:
            index._state = state.clustered()
        if isinstance(cache, StoreCache):
            cache.flush()
        index._state.searcher(index.method)  # a method that cannot work here says so now
        return index

    def _seller(self, engine: EngineChoice, progress: Progress | None) -> Seller:
        return Seller(self.scorer, self._names["scorer"], engine, progress)

    # -- searching -----------------------------------------------------------------------------------------------

    def search(
        self,
        query: str,
        k: int = 10,
        budget: int | None = None,
        *,
        first_ids: Sequence[str] | None = None,
        query_vector: npt.ArrayLike | None = None,
        **options: Unpack[Options],
    ) -> Hits:
        """The k best items for one query, with at most `budget` calls of the scorer (100); see `search_many`."""
        return self.search_many(
            [query],
            k,
            budget,
            first_ids=None if first_ids is None else [first_ids],
            query_vectors=None if query_vector is None else [query_vector],
            **options,
        )[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        budget: int | None = None,
        *,
        method: str | Method | None = None,
        filter: Filter | None = None,
        stop: str | Stop | None = None,
        target_recall: float | None = None,
        deadline: float | None = None,
        first_ids: Sequence[Sequence[str] | None] | None = None,
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
            own; `Patience(budget)` never stops.
        target_recall
            Stop once this share of the top k is expected to be found; calibrated by `tune`, for its k and method.
        deadline
            Seconds after which no further batch of calls is made.
        first_ids
            Items for round one, from elsewhere.
        trace
            Keep every round's predictions in `hits.trace`, for plots.
        halts
            One function a query, asked before every batch of its calls: a reason ends that search.
        """
        started = time.perf_counter()
        checked_deadline(deadline)
        queries = _texts(queries)
        state = self._state
        chosen = self.method if method is None else parse(method)
        rule: str | Stop | None = stop or (self.stop if chosen == self.method else None)
        if target_recall is not None:
            rule = self._expecting(target_recall, chosen, stop)
            chosen = chosen.with_settings({"rounds": max(2, (budget or 100) // rule.model.step)})
        allow = state.alive if filter is None else state.alive & state.columns.passing(filter)
        try:
            found = state.searcher(chosen).search_many(
                queries,
                k,
                budget,
                query_vectors=self._vectors(queries) if query_vectors is None else query_vectors,
                first_ids=None if first_ids is None else [state.given(ids) for ids in first_ids],
                allow=None if allow.all() else allow,
                stop=rule,
                deadline=None if deadline is None else max(deadline - (time.perf_counter() - started), 1e-6),
                trace=trace,
                halts=halts,
            )
        except ScorerError as error:
            error.hits = [_with_items(hits, state.items) for hits in error.hits]
            raise
        return [_with_items(hits, state.items) for hits in found]

    def _vectors(self, queries: Sequence[str]) -> npt.NDArray[np.float32] | None:
        """The encoder's query vectors, if the items have such vectors too."""
        if self.encoder is None or self._state.vectors is None or not queries:
            return None
        return self.encoder.encode_queries(queries)

    def _expecting(self, target: float, method: Method, stop: str | Stop | None) -> TargetRecall:
        if stop is not None:
            raise InputError(f"target_recall={target} and stop={stop} are two stopping rules: give one")
        if self.recall_model is None or method != self.method:
            notes = "; ".join((self.tuned or {}).get("notes", [])) if method == self.method else ""
            raise InputError(
                f"target_recall={target} needs a calibration for method {method}: call index.tune(queries, k, "
                f"budget) first, and search with the method it chose{f' ({notes})' if notes else ''}"
            )
        return TargetRecall(self.recall_model, target)

    @property
    def methods(self) -> list[str]:
        """The names of the methods that this index can be searched with."""
        parts = self._state.parts
        return [name for name, method in methods().items() if method().missing(parts) is None]

    def tuning_calls(self, queries: Sequence[str] | None = None) -> int:
        """The calls that `tune` would make at most: none for anchor queries, every item for any other."""
        asked = (
            [] if queries is None else [query for query in dict.fromkeys(queries) if query not in self.anchor_queries]
        )
        return len(asked[:MOST]) * len(self)

    def tune(
        self,
        queries: Sequence[str] | None = None,
        k: int = 10,
        budget: int = 100,
        *,
        methods: Sequence[str | Method] | None = None,
        max_calls: int | None = None,
        engine: EngineChoice = "local",
        progress: Progress | None = None,
    ) -> Tuning:
        """Choose method, rounds, first stage, ridge, λ and patience on train queries, and calibrate `target_recall`.

        Parameters
        ----------
        queries
            Train queries; the first hundred are scored with every item, which `tuning_calls(queries)` tells
            beforehand (known scores in the cache are free). None takes the anchor queries, whose scores are known.
        methods
            What is tried; None: every method that can work on this index.
        max_calls
            Refuse to spend more than this.
        engine
            Where they are scored: `"local"`, `"ray"`, or an engine.
        """
        state = self._state
        anchors = None if state.anchors is None else self.anchor_queries
        if queries is None and (anchors is None or len(anchors) < 8):
            raise InputError(
                f"there are {len(anchors or [])} anchor queries to tune on, and 8 are needed: pass train queries"
            )
        calls = self.tuning_calls(queries)
        if max_calls is not None and calls > max_calls:
            raise InputError(f"tuning would make {calls} calls and may make {max_calls}; give fewer queries")
        asked = list(dict.fromkeys(queries))[:MOST] if queries is not None else list(self.anchor_queries)
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

        candidates = None if methods is None else [parse(method) for method in methods]
        report = choose(folds, k, budget, spent, candidates, progress)
        self.method = report.chosen.method
        self.stop = None if report.patience is None else Patience(report.patience)
        self.recall_model, self.tuned = report.model, report.json()
        return report

    async def search_async(
        self, query: str, k: int = 10, budget: int | None = None, **options: Unpack[OneQuery]
    ) -> Hits:
        """`search`, beside other work of an event loop."""
        return await asyncio.to_thread(partial(self.search, query, k, budget, **options))

    async def search_many_async(
        self, queries: Sequence[str], k: int = 10, budget: int | None = None, **options: Unpack[ManyQueries]
    ) -> list[Hits]:
        """`search_many`, beside other work of an event loop."""
        return await asyncio.to_thread(partial(self.search_many, queries, k, budget, **options))

    def preload(self) -> None:
        """Let the scorer prepare every item now (encode it, say), instead of when it is first scored."""
        if self._state.scorer is not None:
            self._state.scorer.preload(np.flatnonzero(self._state.alive))

    # -- items ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._state.alive.sum())

    def __contains__(self, id: object) -> bool:
        return id in self._state.places

    def __getitem__(self, id: str) -> Item:
        state = self._state
        return state.items[state.place(id)]

    @property
    def items(self) -> list[Item]:
        """The items that are there, in the order they came."""
        state = self._state
        return [item for item, alive in zip(state.items, state.alive, strict=True) if alive]

    def add(self, source: Source, *, progress: Progress | None = None) -> int:
        """More items, searchable at once; they are embedded, not scored. Returns how many."""
        with self._writing:
            self._claim()
            state = self._state
            items = as_items(source, taken=len(state.items))
            distinct(items)
            there = state.places
            known = [item.id for item in items if item.id in there]
            if known:
                raise InputError(
                    f"{len(known)} of {len(items)} ids are in the index already, the first is {known[0]!r}; "
                    "remove them first, or give new ids"
                )
            if items:
                if self.encoder is None and state.vectors is not None:
                    raise InputError("this index has vectors and no encoder: load it with encoder=… to add items")
                vectors = None
                if self.encoder is not None and state.vectors is not None:
                    vectors = encoded(self.encoder, items, state.vectors.dtype, progress)
                self._state = state.extended(items, vectors)
            return len(items)

    def remove(self, ids: Iterable[str]) -> int:
        """Take items out, at once; an unknown id is an error and nothing is removed. Returns how many.

        `save` writes nothing of them. Once most of what is kept in memory is of removed items, it is given up too.
        """
        with self._writing:
            self._claim()
            gone = [self._state.place(id) for id in dict.fromkeys([ids] if isinstance(ids, str) else ids)]
            self._state = self._state.removed(gone)
            if 2 * len(self) < len(self._state.items) and self._state.movable:
                self.compact()
            return len(gone)

    def compact(self) -> None:
        """Keep nothing in memory of items that were removed; positions (`hit.position`) change, ids do not."""
        with self._writing:
            if not self._state.movable:
                raise InputError("scores in this index's cache are kept by position: save the index and load it again")
            self._state = self._state.compacted(self.scorer)

    def forget(self, ids: Iterable[str]) -> int:
        """`remove`, and no trace: memory is given up, and so are the scores of these texts in the index's score store.

        The folder of the index holds them until `save`. Returns how many.
        """
        with self._writing:
            chosen = list(dict.fromkeys([ids] if isinstance(ids, str) else ids))
            items = [self[id] for id in chosen]
            count = self.remove(chosen)
            self.compact()
            if isinstance(self._state.cache, StoreCache):
                self._state.cache.store.forget(items)
            return count

    def complete(self, *, engine: EngineChoice = "local", progress: Progress | None = None) -> int:
        """Score the anchor queries with items that were added since; returns the calls that took."""
        with self._writing:
            state = self._state
            if state.anchors is None or state.measured is None:
                raise InputError("this index has no anchor queries: build it with queries=… to have them")
            self._claim()
            missing = np.flatnonzero(~state.measured & state.alive)
            calls = 0
            if len(missing):
                anchors = np.array(state.anchors)
                anchors[:, missing], calls = self._seller(engine, progress).scores(state, self.anchor_queries, missing)
                self._state = state.changed(
                    anchors=anchors, measured=state.measured | np.isin(np.arange(len(state.measured)), missing)
                )
                self.build_calls += calls
            return calls

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path | None = None) -> Path:
        """Write the index to a folder, in one step: until it is done, what was there stays readable."""
        with self._writing:
            target = Path(path) if path is not None else self.path
            if target is None:
                raise InputError("where should the index go? pass a folder: index.save('my.index')")
            same = self._folder is not None and target.resolve() == self._folder.path.resolve()
            folder = self._folder if same and self._folder is not None else Folder(target, KIND)
            lock = self._lock if same and self._lock is not None else folder.lock()
            try:
                if same:
                    folder.unchanged()
                folder.write(self._facts(), partial(write_state, self._state, self.anchor_queries))
            finally:
                if lock is not self._lock:
                    lock.release()
            self._release()  # of this folder, or of another one that this index came from
            self._folder = folder
            return target

    def _facts(self) -> dict[str, Any]:
        def told(name: str, model: Scorer | DualEncoder | None) -> dict[str, Any] | None:
            return None if model is None else {"name": self._names[name], "fingerprint": model.fingerprint}

        return {
            "items": len(self),
            "scorer": told("scorer", self.scorer),
            "encoder": told("encoder", self.encoder),
            "method": str(self.method),
            "patience": None if self.stop is None else self.stop.rounds,
            "tuned": self.tuned,
            "seed": self._state.seed,
            "build_calls": self.build_calls,
        }

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
        verify: bool = True,
    ) -> Index:
        """An index that was saved.

        Parameters
        ----------
        scorer, encoder
            Needed when the index was built with an object or a function instead of a name. They must be the ones it
            was built with: fingerprints are compared.
        any_scorer
            Take a scorer whose fingerprint differs all the same. Anchor scores and tuning stay those of the old one.
        trust_remote
            Let the folder name the address of its scorer, to which queries and items are sent. Without it, an index
            that was built with an address wants to be told it again (`scorer`).
        cache, store
            As in `build`: scores found there are free, new ones are kept.
        verify
            Compare the checksums of all files; those of large arrays before the first search.
        """
        folder = Folder(path, KIND)

        def read(saved: Saved) -> Index:
            return cls._read(saved, Path(path), scorer, encoder, any_scorer, trust_remote, cache, store)

        index = folder.load(read, verify=verify)
        index._folder = folder
        return index

    @classmethod
    def _read(
        cls,
        saved: Saved,
        target: Path,
        scorer: Any,
        encoder: Any,
        any_scorer: bool,
        trust_remote: bool,
        cache: ScoreCache | None,
        store: str | Path | None,
    ) -> Index:
        manifest = saved.facts
        model = same_model("scorer", scorer, manifest["scorer"], load_scorer, target, any_scorer, trust_remote)
        dual = same_model("encoder", encoder, manifest["encoder"], load_encoder, target, False)
        state, queries = read_state(saved, model, cache)
        if store is not None and model is not None:
            state = state.changed(cache=ScoreStore(store, scorer_fingerprint=model.fingerprint).cache(state.items))
        index = cls(
            state,
            scorer=model,
            scorer_name=_name(scorer) if scorer is not None else (manifest["scorer"] or {}).get("name"),
            encoder=dual,
            encoder_name=_name(encoder) if encoder is not None else (manifest["encoder"] or {}).get("name"),
            queries=queries,
            method=manifest["method"],
        )
        index.build_calls = manifest["build_calls"]
        index.stop = None if manifest["patience"] is None else Patience(manifest["patience"])
        index.tuned = manifest["tuned"]
        if index.tuned is not None and index.tuned["model"] is not None:
            index.recall_model = RecallModel.from_json(index.tuned["model"])
        return index

    @staticmethod
    def verify(path: str | Path) -> list[str]:
        """Read all of a saved index and compare every checksum: a sentence for every file that is damaged."""
        return verify(path)

    @property
    def path(self) -> Path | None:
        """The folder this index was loaded from, or saved to last."""
        return None if self._folder is None else self._folder.path

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

    def close(self) -> None:
        """Give up changes that were not saved, and the right to make any; scores that wait for a store are written."""
        if isinstance(self._state.cache, StoreCache):
            self._state.cache.flush()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __repr__(self) -> str:
        anchors = f", {len(self.anchor_queries)} anchor queries" if self.anchor_queries else ""
        return f"Index({len(self)} items, scorer={self.scorer!r}, method={str(self.method)!r}{anchors})"


def _name(model: Any) -> str | None:
    return str(model) if isinstance(model, str | Path) else None


def _texts(queries: Sequence[str]) -> list[str]:
    wrong = [query for query in queries if not isinstance(query, str)]
    if wrong:
        raise InputError(f"a query is a text; got {wrong[0]!r}")
    return list(queries)


def _with_items(hits: Hits, items: ItemList) -> Hits:
    found = [(hit, items[hit.position]) for hit in hits]
    return replace(hits, items=tuple(replace(hit, id=item.id, text=item.text, item=item) for hit, item in found))
