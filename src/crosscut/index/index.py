"""`Index`: texts, an expensive scorer, and a budget; one object that builds, searches, grows, saves and loads."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.encoders.named import DualEncoder, load_encoder
from crosscut.errors import InputError, ScorerError
from crosscut.index import folder as on_disk
from crosscut.index.items import Filter, Source, as_items, passing
from crosscut.index.state import FirstChoice, State
from crosscut.index.tune import MOST, Fold, Tuning, folds_of
from crosscut.index.tune import tune as choose
from crosscut.retrievers.bm25 import BM25
from crosscut.scorers.base import Scorer
from crosscut.scorers.meter import Account, Meter, ScoreCache
from crosscut.scorers.named import load_scorer
from crosscut.scorers.segments import Segments
from crosscut.search.hits import Hits
from crosscut.search.recall import RecallModel, TargetRecall
from crosscut.search.stopping import Patience

Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

ANCHORS = 200


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
        method: str = "crosscut",
        first: FirstChoice = "auto",
        settings: dict[str, Any] | None = None,
    ) -> None:
        self._state = state
        self.scorer = scorer
        self.encoder = encoder
        self._names = {"scorer": scorer_name, "encoder": encoder_name}
        self.anchor_queries = list(queries)
        self.method = method
        self.first: FirstChoice = first
        self.settings = dict(settings or {})
        self.stop: Patience | None = None
        self.tuned: dict[str, Any] | None = None  # the report of the last `tune`
        self.recall_model: RecallModel | None = None
        self.build_calls = 0
        self.path: Path | None = None
        self._generation = 0
        self._lock: on_disk.Lock | None = None
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
        bm25: bool = True,
        method: str = "crosscut",
        cache: ScoreCache | None = None,
        dtype: npt.DTypeLike = np.float16,
        seed: int = 0,
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
            Train queries. Up to `anchors` of them are scored with every item (that many calls per item): most of the
            recall comes from there. Without them nothing is scored while building.
        bm25
            Whether round one also looks at words.
        method
            What `search` uses unless told otherwise.
        cache
            Scores that are known already, and a place for new ones.
        dtype
            Of the vectors kept: float16 or float32.
        progress
            Called as `progress(what, done, total)`.
        """
        items = as_items(source)
        _distinct(items)
        model = load_scorer(scorer)
        dual = None if encoder is None else load_encoder(encoder)
        asked = list(queries or ())[:anchors]
        if any(not isinstance(query, str) for query in asked):
            raise InputError("train queries must be texts")
        texts = [item.full_text for item in items]
        state = State(
            items,
            np.ones(len(items), np.bool_),
            Segments(model, texts),
            vectors=None if dual is None else _encoded(dual, texts, dtype, progress),
            bm25=BM25(texts) if bm25 else None,
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
        if asked and items:
            scores = index._exhaustive(asked, np.arange(len(items)), progress)
            index._state = state.changed(anchors=scores, measured=np.ones(len(items), np.bool_))
        index._state.searcher(method, "auto", {})  # a method that cannot work here says so now
        return index

    def _exhaustive(
        self, queries: Sequence[str], positions: npt.NDArray[np.int64], progress: Progress | None
    ) -> npt.NDArray[np.float32]:
        """Scores (q × m) of queries with items, every call through the meter."""
        scorer = self._state.scorer
        if scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        meter = Meter(scorer, cache=self._state.cache)
        scores = np.empty((len(queries), len(positions)), np.float32)
        done = 0
        for row, query in enumerate(queries):
            account = Account(query, len(positions))
            for start in range(0, len(positions), 512):
                part = positions[start : start + 512]
                meter.buy([account], [part])
                done += len(part)
                if progress is not None:
                    progress("scoring train queries with every item", done, scores.size)
            order = np.argsort(account.positions)
            scores[row] = account.scores[order[np.searchsorted(account.positions, positions, sorter=order)]]
        self.build_calls += meter.calls
        return scores

    # -- searching -----------------------------------------------------------------------------------------------

    def search(self, query: str, k: int = 10, budget: int | None = 100, **how: Any) -> Hits:
        """The k best items for one query, with at most `budget` calls of the scorer; see `search_many`."""
        if "query_vector" in how:
            how["query_vectors"] = [how.pop("query_vector")]
        if how.get("first_ids") is not None:
            how["first_ids"] = [how["first_ids"]]
        return self.search_many([query], k, budget, **how)[0]

    def search_many(
        self,
        queries: Sequence[str],
        k: int = 10,
        budget: int | None = 100,
        *,
        method: str | None = None,
        first: FirstChoice | None = None,
        filter: Filter | None = None,
        stop: Patience | None = None,
        target_recall: float | None = None,
        deadline: float | None = None,
        first_ids: Sequence[Sequence[str] | None] | None = None,
        query_vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None = None,
        keep_predictions: bool = False,
        **settings: Any,
    ) -> list[Hits]:
        """The k best items for every query, each with at most `budget` calls; a round of all queries is one batch.

        Parameters
        ----------
        method, first, settings
            Instead of the index's own: a named method, its round one (`auto`, `dense`, `lexical`, `union`, `random`)
            and its settings (`rounds`, `mix`, …).
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
        keep_predictions
            Keep every round's predictions in `hits.trace`, for plots.
        """
        queries = list(queries)
        for query in queries:
            if not isinstance(query, str):
                raise InputError(f"a query is a text; got {query!r}")
        state = self._state
        own = method is None or method == self.method
        rule: Patience | TargetRecall | None = stop or (self.stop if own else None)
        if target_recall is not None:
            rule = self._expecting(target_recall, own, stop)
            settings["rounds"] = max(2, (budget or 0) // rule.model.step)
        searcher = state.searcher(
            method or self.method,
            first or (self.first if own else "auto"),
            {**(self.settings if own else {}), **settings},
        )
        if query_vectors is None and self.encoder is not None and state.vectors is not None and queries:
            query_vectors = self.encoder.encode_queries(queries)
        given = None
        if first_ids is not None:
            places = state.places
            given = [None if ids is None else [_place(places, id) for id in ids] for ids in first_ids]
        allow = state.alive if filter is None else state.alive & passing(state.items, filter)
        try:
            found = searcher.search_many(
                queries,
                k,
                budget,
                query_vectors=query_vectors if state.vectors is not None else None,
                first_ids=given,
                allow=None if allow.all() else allow,
                stop=rule,
                deadline=deadline,
                keep_predictions=keep_predictions,
            )
        except ScorerError as error:
            error.hits = [_with_ids(hits, state.items) for hits in error.hits]
            raise
        return [_with_ids(hits, state.items) for hits in found]

    def _expecting(self, target: float, own: bool, stop: Patience | None) -> TargetRecall:
        if stop is not None:
            raise InputError(f"target_recall={target} and stop={stop} are two stopping rules: give one")
        if self.recall_model is None or not own:
            raise InputError(
                f"target_recall={target} needs a calibration for method {self.method!r}: call index.tune(queries, k, "
                "budget) first, and search with the method it chose"
            )
        return TargetRecall(self.recall_model, target)

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
        max_calls: int | None = None,
        progress: Progress | None = None,
    ) -> Tuning:
        """Choose method, rounds, first stage, ridge, λ and patience on train queries, and calibrate `target_recall`.

        Parameters
        ----------
        queries
            Train queries; the first hundred are scored with every item, which `tuning_calls(queries)` tells
            beforehand (known scores in the cache are free). None takes the anchor queries, whose scores are known.
        max_calls
            Refuse to spend more than this.
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
        before = self.build_calls
        if queries is None:
            truth = np.asarray(state.anchors, np.float32)
        else:
            truth = np.full((len(asked), len(state.items)), -np.inf, np.float32)
            there = np.flatnonzero(state.alive)
            truth[:, there] = self._exhaustive(asked, there, progress)
        vectors = None
        if self.encoder is not None and state.vectors is not None:
            vectors = self.encoder.encode_queries(asked)

        def folds(count: int) -> list[Fold]:
            return folds_of(state, asked, truth, vectors, held_out=queries is None, folds=count, seed=state.seed)

        report = choose(folds, k, budget, self.build_calls - before, progress)
        self.method, self.first, self.settings = report.chosen.method, report.chosen.first, report.chosen.settings
        self.stop = None if report.patience is None else Patience(report.patience)
        self.recall_model, self.tuned = report.model, report.json()
        return report

    async def search_async(self, query: str, k: int = 10, budget: int | None = 100, **how: Any) -> Hits:
        """`search`, beside other work of an event loop."""
        return await asyncio.to_thread(self.search, query, k, budget, **how)

    async def search_many_async(
        self, queries: Sequence[str], k: int = 10, budget: int | None = 100, **how: Any
    ) -> list[Hits]:
        """`search_many`, beside other work of an event loop."""
        return await asyncio.to_thread(self.search_many, queries, k, budget, **how)

    def preload(self) -> None:
        """Let the scorer prepare every item now (encode it, say), instead of when it is first scored."""
        if self._state.scorer is not None:
            self._state.scorer.preload()

    # -- items ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return int(self._state.alive.sum())

    def __contains__(self, id: object) -> bool:
        return id in self._state.places

    def __getitem__(self, id: str) -> Item:
        state = self._state
        return state.items[_place(state.places, id)]

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
            _distinct(items)
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
                texts = [item.full_text for item in items]
                vectors = None
                if self.encoder is not None and state.vectors is not None:
                    vectors = _encoded(self.encoder, texts, state.vectors.dtype, progress)
                self._state = state.extended(items, vectors)
            return len(items)

    def remove(self, ids: Iterable[str]) -> int:
        """Take items out, at once; an unknown id is an error and nothing is removed. Returns how many."""
        with self._writing:
            self._claim()
            places = self._state.places
            gone = [_place(places, id) for id in dict.fromkeys([ids] if isinstance(ids, str) else ids)]
            alive = self._state.alive.copy()
            alive[gone] = False
            self._state = self._state.changed(alive=alive)
            return len(gone)

    def complete(self, *, progress: Progress | None = None) -> int:
        """Score the anchor queries with items that were added since; returns the calls that took."""
        with self._writing:
            state = self._state
            if state.anchors is None or state.measured is None:
                raise InputError("this index has no anchor queries: build it with queries=… to have them")
            self._claim()
            missing = np.flatnonzero(~state.measured & state.alive)
            before = self.build_calls
            if len(missing):
                anchors = np.array(state.anchors)
                anchors[:, missing] = self._exhaustive(self.anchor_queries, missing, progress)
                self._state = state.changed(
                    anchors=anchors, measured=state.measured | np.isin(np.arange(len(state.measured)), missing)
                )
            return self.build_calls - before

    # -- keeping -------------------------------------------------------------------------------------------------

    def save(self, path: str | Path | None = None) -> Path:
        """Write the index to a folder, in one step: until it is done, what was there stays readable."""
        with self._writing:
            target = Path(path) if path is not None else self.path
            if target is None:
                raise InputError("where should the index go? pass a folder: index.save('my.index')")
            same = self.path is not None and target.resolve() == self.path.resolve()
            lock = self._lock if same and self._lock is not None else on_disk.Lock(target)
            try:
                if same:
                    self._unchanged()
                self._generation = on_disk.write(target, self._manifest(), self._fill)
                self.path = target
            finally:
                lock.release()
                if same:
                    self._lock = None
            return target

    def _fill(self, home: Path) -> None:
        state = self._state
        with (home / "items.jsonl").open("w", encoding="utf-8") as file:
            for item in state.items:
                record = {"id": item.id, "title": item.title, "text": item.text, "metadata": dict(item.metadata)}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
        with (home / "queries.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(query, ensure_ascii=False) + "\n" for query in self.anchor_queries)
        for name in ("alive", "vectors", "anchors", "measured"):
            array = getattr(state, name)
            if array is not None:
                np.save(home / f"{name}.npy", np.ascontiguousarray(array))
        if state.bm25 is not None:
            state.bm25.save(home)

    def _manifest(self) -> dict[str, Any]:
        def told(name: str, model: Scorer | DualEncoder | None) -> dict[str, Any] | None:
            return None if model is None else {"name": self._names[name], "fingerprint": model.fingerprint}

        return {
            "items": len(self._state.items),
            "scorer": told("scorer", self.scorer),
            "encoder": told("encoder", self.encoder),
            "method": self.method,
            "first": self.first,
            "settings": self.settings,
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
        cache: ScoreCache | None = None,
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
        verify
            Compare the checksums of all files (reads them once).
        """
        target = Path(path)
        manifest, home = on_disk.read(target, verify=verify)
        model = _again("scorer", scorer, manifest["scorer"], load_scorer, target, any_scorer)
        dual = _again("encoder", encoder, manifest["encoder"], load_encoder, target, False)

        def array(name: str) -> Any:
            file = home / f"{name}.npy"
            if file.name not in manifest["files"]:
                return None
            return np.load(file, mmap_mode="r" if name in ("vectors", "anchors") else None, allow_pickle=False)

        with (home / "items.jsonl").open(encoding="utf-8") as file:
            items = [Item(**json.loads(line)) for line in file]
        with (home / "queries.jsonl").open(encoding="utf-8") as file:
            queries = [json.loads(line) for line in file]
        state = State(
            items,
            array("alive"),
            None if model is None else Segments(model, [item.full_text for item in items]),
            vectors=array("vectors"),
            bm25=BM25.load(home) if "bm25.json" in manifest["files"] else None,
            anchors=array("anchors"),
            measured=array("measured"),
            cache=cache,
            seed=manifest["seed"],
        )
        index = cls(
            state,
            scorer=model,
            scorer_name=_name(scorer) if scorer is not None else (manifest["scorer"] or {}).get("name"),
            encoder=dual,
            encoder_name=_name(encoder) if encoder is not None else (manifest["encoder"] or {}).get("name"),
            queries=queries,
            method=manifest["method"],
            first=manifest["first"],
            settings=manifest["settings"],
        )
        index.build_calls = manifest["build_calls"]
        index.stop = None if manifest["patience"] is None else Patience(manifest["patience"])
        index.tuned = manifest["tuned"]
        if index.tuned is not None and index.tuned["model"] is not None:
            index.recall_model = RecallModel.from_json(index.tuned["model"])
        index.path, index._generation = target, manifest["generation"]
        return index

    def _claim(self) -> None:
        """The right to change the folder this index came from, until it is saved."""
        if self.path is not None and self._lock is None:
            self._lock = on_disk.Lock(self.path)
            try:
                self._unchanged()
            except InputError:
                self.close()
                raise

    def _unchanged(self) -> None:
        assert self.path is not None
        generation = on_disk.read(self.path, verify=False)[0]["generation"]
        if generation != self._generation:
            raise InputError(
                f"the index at {str(self.path)!r} was changed since it was loaded (generation {generation}, "
                f"loaded {self._generation}); load it again, or save to another folder"
            )

    def close(self) -> None:
        """Give up changes that were not saved, and the right to make any."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __repr__(self) -> str:
        anchors = f", {len(self.anchor_queries)} anchor queries" if self.anchor_queries else ""
        return f"Index({len(self)} items, scorer={self.scorer!r}, method={self.method!r}{anchors})"


def _encoded(
    encoder: DualEncoder, texts: Sequence[str], dtype: npt.DTypeLike, progress: Progress | None
) -> npt.NDArray[Any]:
    if np.dtype(dtype) not in (np.dtype(np.float16), np.dtype(np.float32)):
        raise InputError(f"vectors are kept as float16 or float32; got {np.dtype(dtype)}")
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count
        if progress is not None:
            progress("encoding items", done, len(texts))

    return encoder.encode_items(texts, progress=advance).astype(dtype)


def _again(
    what: str,
    given: Any,
    saved: dict[str, Any] | None,
    load: Callable[[Any], Any],
    path: Path,
    any_fingerprint: bool,
) -> Any:
    """The scorer or encoder of a saved index, checked against what the index was built with."""
    if saved is None:
        return None if given is None else load(given)
    if given is None and saved["name"] is None:
        if what == "scorer":
            raise InputError(
                f"the index at {str(path)!r} was built with a scorer that has no name: pass it, Index.load(…, scorer=…)"
            )
        return None  # searches go without query vectors, or with the caller's
    model = load(saved["name"] if given is None else given)
    if model.fingerprint != saved["fingerprint"] and not any_fingerprint:
        way = "; pass any_scorer=True to use it all the same" if what == "scorer" else ""
        raise InputError(
            f"the index at {str(path)!r} was built with {what} {saved['fingerprint']}, and this one is "
            f"{model.fingerprint}{way}"
        )
    return model


def _name(model: Any) -> str | None:
    return str(model) if isinstance(model, str | Path) else None


def _distinct(items: Sequence[Item]) -> None:
    if len({item.id for item in items}) != len(items):
        seen: set[str] = set()
        twice = next(item.id for item in items if item.id in seen or seen.add(item.id))  # type: ignore[func-returns-value]
        raise InputError(f"the id {twice!r} stands twice among {len(items)} items; ids must be unique")


def _place(places: dict[str, int], id: str) -> int:
    if id not in places:
        raise InputError(f"item id {id!r} is not among the {len(places)} items of the index")
    return places[id]


def _with_ids(hits: Hits, items: list[Item]) -> Hits:
    return replace(hits, items=tuple(replace(hit, id=items[hit.position].id) for hit in hits))
