"""Calls against pairs: does any scorer make a search report other calls than it made, or spend more than its budget?

    python benchmarks/soak_calls.py [--searches 200000] [--seed 0] [--json benchmarks/results/soak_calls.json]

Searches by every method, one query or many, with and without a deadline, a cache, a stopping rule, a filter and
clients that leave, over arrays, over a store that does not know how many items it has, over an index that grows and
shrinks between searches, over a vector database, with and without what past searches taught, and by two scorers. Some
know part of every score without a call. The scorer is a function, an async function or an object of a user's own, and
in the middle of it all it raises, hangs back with None, NaN, too few or too many numbers, words, half an answer, or
changes what it is given (`tests/test_meter_properties.py`). It writes down every pair that it is handed. Afterwards:

    wrong        a search, or its error, reports other calls than the scorer saw pairs for its query
    overspent    more pairs than the budget
    twice        a pair was handed out twice in one search
    invented     a score that the scorer did not give
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ |= {"CROSSCUT_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
sys.path.insert(0, str(Path(__file__).parent.parent))

import numpy as np
from crosscut.evaluation.report import machine
from tests.fake_store import FakeStore
from tests.unit.test_meter_properties import ACTS, OWN_ACTS, Adversary, OwnClass, as_async_function, as_function, truth

import crosscut
from crosscut.errors import BudgetError, InputError, ScorerError
from crosscut.scorers import MemoryCache, TextScorer
from crosscut.search.prior import Prior
from crosscut.spaces import CUR
from crosscut.storage import write_json

N, D = 60, 6
FORMS: dict[str, Any] = {"function": as_function, "async function": as_async_function, "own class": OwnClass}
METHODS = (
    *("rnr", "axn", "axn@rounds=3", "tour", "crosscut", "crosscut@rounds=4", "crosscut@explore=0.2"),
    *("gp", "gar", "rgs", "exact", "adacur", "anncur"),
)
ANCHORED = ("adacur", "anncur")
COUNTED = ("exact", "tour", "gp", "gar", "rgs")  # which need to know how many items there are
STOPS = (None, None, "patience@rounds=1", "patience@rounds=2")
BAD = ("wrong", "overspent", "twice", "invented")


class Planted:
    """An encoder made of hashes."""

    fingerprint = "soak"
    dimension = D

    def encode_items(self, texts: Sequence[Any], *, progress: Any = None) -> Any:
        return np.array([_hashed(str(getattr(text, "text", text))) for text in texts], np.float32).reshape(-1, D)

    def encode_queries(self, texts: Sequence[str]) -> Any:
        return self.encode_items(texts)


def _hashed(text: str) -> Any:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=4 * D).digest(), "<u4") / 2.0**31 - 1


class Knowing(OwnClass):
    """A user's scorer that knows a part of every score, in itself or over the items of an index."""

    knows = True
    fingerprint = "soak"

    def __init__(self, adversary: Adversary, items: Any = None) -> None:
        super().__init__(adversary)
        self.items = items

    def bind(self, items: Any) -> Knowing:
        return Knowing(self.adversary, items)

    def score(self, query: str, items: Any) -> Any:
        raise NotImplementedError("searches ask score_many")

    def known(self, query: str, handles: Any = None) -> Any:
        places = np.arange(N if self.items is None else len(self.items.items)) if handles is None else handles
        return np.array([truth(query, place) // 20 for place in self._numbers(places)], np.float64)

    def score_many(self, requests: Any) -> Any:
        return super().score_many([(query, np.array(self._numbers(handles), np.int64)) for query, handles in requests])

    def _numbers(self, handles: Any) -> list[int]:
        return handles.tolist() if self.items is None else [int(item.text) for item in self.items.get(handles)]


class Turning(Adversary):
    """Whoever is the adversary of a search: what an index is built with outlives them all."""

    def __init__(self, soak: Soak) -> None:
        super().__init__(["good"])
        self.soak = soak

    def act(self) -> str:
        return self.soak.adversary.act()

    def answer(self, act: str, query: str, positions: list[int]) -> Any:
        return self.soak.adversary.answer(act, query, positions)


class Soak:
    """One adversary after another, and what became of their searches."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter(dict.fromkeys(BAD, 0))
        self.places: Counter[str] = Counter()
        self.vectors = np.random.default_rng(seed).standard_normal((N, D))
        self.anchors = np.random.default_rng(seed + 1).standard_normal((8, N))
        self.adversary = Adversary(["good"])
        self.index = self._index(False)
        self.knowing = self._index(True)
        self.learned = self._taught()
        self.over = crosscut.Index.over(self._database(), scorer=self._scorer(), encoder=Planted())
        self.over_taught = crosscut.Index.over(self._database(), scorer=self._scorer(), encoder=Planted())
        known = self.over_taught.corpus.learning_space([])._replace(ids=[str(j) for j in range(N)])
        self.over_taught.corpus = self.over_taught.corpus.with_prior(self._prior(), known)
        self.added = N

    def _scorer(self) -> TextScorer:
        turning = Turning(self)
        return TextScorer(
            lambda query, texts: turning.answer(turning.act(), query, [int(text) for text in texts]), fingerprint="soak"
        )

    def _index(self, knowing: bool, anchors: bool = True) -> crosscut.Index:
        items = [{"id": f"i{j}", "text": str(j), "number": j} for j in range(N)]
        scorer = Knowing(Turning(self)) if knowing else self._scorer()
        queries = [f"anchor{j}" for j in range(8)] if anchors and not knowing else None
        return crosscut.Index.build(items, scorer=scorer, encoder=Planted(), queries=queries, dtype=np.float32)

    def _prior(self) -> Prior:
        """What searches might have taught: any mean, covariance and residuals."""
        rng = np.random.default_rng(2)
        half = rng.standard_normal((D, D))
        mean, centre = rng.standard_normal((2, D))
        own = rng.standard_normal(N // 2)
        return Prior(mean, centre, 0.7, half @ half.T, 1.0, 100, np.arange(0, N, 2), own)

    def _taught(self) -> crosscut.Index:
        index = self._index(False, anchors=False)
        index.corpus = replace(index.corpus, prior=self._prior())
        return index

    def _database(self) -> Any:
        import qdrant_client as q
        from qdrant_client import models as m

        local = q.QdrantClient(":memory:")
        local.create_collection("soak", vectors_config=m.VectorParams(size=D, distance=m.Distance.DOT))
        vectors = Planted().encode_items([str(j) for j in range(N)]).tolist()
        local.upsert("soak", [m.PointStruct(id=j, vector=v, payload={"body": str(j)}) for j, v in enumerate(vectors)])
        return crosscut.stores.Qdrant("soak", client=local, text="body")

    def _acts(self, own: bool) -> list[str]:
        """Mostly good: a scorer that fails at once makes short searches."""
        acts = [self.rng.choice(OWN_ACTS if own else ACTS) for _ in range(self.rng.randrange(1, 5))]
        return acts + ["good"] * self.rng.choice((0, 3, 10, 30)) if self.rng.random() < 0.9 else ["good"]

    def _how(self, queries: list[str]) -> dict[str, Any]:
        how: dict[str, Any] = {"stop": self.rng.choice(STOPS)}
        if self.rng.random() < 0.15:
            how["deadline"] = self.rng.choice((60.0, 5.0, 0.001))
        if self.rng.random() < 0.1:
            left = iter([None] * self.rng.randrange(6))
            how["halts"] = [lambda: next(left, "cancelled")] * len(queries)
        return how

    def _queries(self) -> list[str]:
        size = self.rng.choice((1, 1, 1, 4, 9))
        return [f"{self.rng.getrandbits(60):x}-{j}" for j in range(size)]

    def over_arrays(self) -> None:
        form = self.rng.choice(list(FORMS))
        self.adversary = Adversary(self._acts(form == "own class"))
        method = self.rng.choice(METHODS)
        parts: dict[str, Any] = {"vectors": self.vectors}
        if method in ANCHORED:
            parts = {"space": CUR(self.anchors)}
        elif method not in COUNTED and self.rng.random() < 0.3:
            form += ", store"
            parts = {"vectors": FakeStore([str(j) for j in range(N)], self.vectors)}
        elif method.startswith("crosscut") and form == "own class" and self.rng.random() < 0.5:
            form += ", known part"
        cache = MemoryCache() if self.rng.random() < 0.2 else None
        form_of = Knowing if form.endswith("known part") else FORMS[form.partition(",")[0]]
        scorer = form_of(self.adversary)
        searcher = crosscut.Searcher(scorer=scorer, method=method, cache=cache, **parts)
        queries = self._queries()
        if cache is not None:
            known = np.array(self.rng.sample(range(N), 5))
            cache.put(queries[0], known, np.array([truth(queries[0], place) for place in known.tolist()]))
        vectors = np.array([_hashed(query) for query in queries]) if "vectors" in parts else None
        how = self._how(queries)
        self._search(searcher, queries, self._budget(method, N), how | {"query_vectors": vectors}, f"{form}, {method}")

    def by_two_scorers(self) -> None:
        forms = [self.rng.choice([*FORMS, "known part"]) for _ in "ab"]
        own = [form in ("own class", "known part") for form in forms]
        cheap, dear = (Adversary(self._acts(one)) for one in own)
        if self.rng.random() < 0.5:
            cheap = Adversary(["good"])  # the dear one has its turn
        scorers = [
            (Knowing if form == "known part" else FORMS[form])(one)
            for form, one in zip(forms, (cheap, dear), strict=True)
        ]
        both = crosscut.CascadeSearcher(
            cheap=crosscut.Searcher(scorers[0], vectors=self.vectors),
            expensive=crosscut.Searcher(scorers[1], vectors=self.vectors),
        )
        queries = self._queries()
        budget = {"cheap": self.rng.randrange(1, 50), "expensive": self.rng.randrange(1, 30)}
        how = {name: value for name, value in self._how(queries).items() if name != "halts"}
        vectors = np.array([_hashed(query) for query in queries])
        try:
            found: Any = both.search_many(queries, self.rng.randrange(1, 12), budget, query_vectors=vectors, **how)
            total = sum(sum(hits.all_calls.values()) for hits in found)
            self.counts["ended well"] += len(queries)
        except ScorerError as error:
            found, total = error.hits, error.calls
            self.counts["the scorer failed"] += len(queries)
        cheap_hits = [hits.cheap for hits in found]
        place = f"two scorers, {' and '.join(forms)}"
        calls = {"cheap": sum(hits.calls for hits in cheap_hits), "dear": sum(hits.calls for hits in found)}
        bad = ["wrong"] * (sum(calls.values()) != total)
        for name, adversary, some in (("cheap", cheap, cheap_hits), ("dear", dear, found)):
            self.adversary = adversary
            bad += self._bad(queries, some, calls[name], budget[name])
        self._tell(place, len(queries), total, bad, how)

    def over_a_database(self) -> None:
        self.adversary = Adversary(self._acts(False))
        method = self.rng.choice(["crosscut", "crosscut@rounds=4", "rnr", "axn"])
        queries = self._queries()
        how = self._how(queries) | {"method": method}
        learned = self.rng.random() < 0.5
        place = f"database{', learned' if learned else ''}, {method}"
        self._search(self.over_taught if learned else self.over, queries, self._budget(method, N), how, place)

    def over_an_index(self) -> None:
        kind = self.rng.choices(["", ", known part", ", learned"], (5, 3, 2))[0]
        index = {"": self.index, ", known part": self.knowing, ", learned": self.learned}[kind]
        self.adversary = Adversary(["good"])
        if self.rng.random() < 0.05:
            if self.rng.random() < 0.6:
                index.add([{"id": f"i{self.added}", "text": str(self.added), "number": self.added}])
                self.added += 1
            elif len(index) > N // 2:
                index.remove([self.rng.choice(list(index.items)).id])
        self.adversary = Adversary(self._acts(kind == ", known part"))
        method = self.rng.choice(["hybrid", *(one for one in METHODS if not kind or one not in ANCHORED)])
        how: dict[str, Any] = {"method": method}
        size = len(index)
        if self.rng.random() < 0.2:
            bound = self.rng.randrange(self.added)
            size = sum(item.metadata["number"] >= bound for item in index.items)
            how["filter"] = {"number": {"gte": bound}}
        queries = self._queries()
        place = f"grown index{kind}, {method}"
        self._search(index, queries, self._budget(method, size), how | self._how(queries), place)
        if self.added > 4 * N:
            self.adversary = Adversary(["good"])
            self.index, self.knowing, self.learned = self._index(False), self._index(True), self._taught()
            self.added = N

    def _budget(self, method: str, size: int) -> int:
        return max(size, 1) if method == "exact" else self.rng.randrange(1, 50)

    def _search(self, searcher: Any, queries: list[str], budget: int, how: dict[str, Any], place: str) -> None:
        adversary = self.adversary
        adversary.seen.clear()
        try:
            found = searcher.search_many(queries, self.rng.randrange(1, 12), budget, **how)
            total = sum(hits.calls for hits in found)
            self.counts["ended well"] += len(queries)
        except ScorerError as error:
            found, total = error.hits, error.calls
            self.counts["the scorer failed"] += len(queries)
        except (InputError, BudgetError):
            self.counts["refused"] += len(queries)
            self.counts["wrong"] += bool(adversary.seen)
            return
        self._tell(place, len(queries), total, self._bad(queries, found, total, budget), how)

    def _tell(self, place: str, searches: int, pairs: int, bad: list[str], how: dict[str, Any]) -> None:
        self.places[place] += searches
        self.counts["searches"] += searches
        self.counts["pairs"] += pairs
        self.counts.update(bad)
        if bad:
            print(f"{place}: {bad} with {how}", file=sys.stderr)

    def _bad(self, queries: list[str], found: Sequence[Any], total: int, budget: int) -> list[str]:
        seen = self.adversary.seen
        bad = ["wrong"] * (total != sum(map(len, seen.values())) or len(found) != len(queries))
        for query, hits in zip(queries, found, strict=False):
            pairs = seen.get(query, [])
            bad += ["wrong"] * (hits.calls != len(pairs))
            bad += ["overspent"] * (len(pairs) > budget)
            bad += ["twice"] * (len(set(pairs)) != len(pairs))
            numbers = [int(hit.text) if hit.text is not None else hit.position for hit in hits]
            right = [truth(query, number) for number in numbers]
            bad += ["invented"] * ([hit.score for hit in hits] != right)
        return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    soak, started, told = Soak(arguments.seed), time.perf_counter(), 0
    while soak.counts["searches"] < arguments.searches:
        ways = [soak.over_arrays, soak.over_an_index, soak.by_two_scorers, soak.over_a_database]
        soak.rng.choices(ways, (45, 45, 8, 2))[0]()
        if soak.counts["searches"] >= told:
            told += arguments.searches // 20
            print(f"{time.perf_counter() - started:6.0f} s {dict(soak.counts)}", file=sys.stderr, flush=True)
    passed = not any(soak.counts[word] for word in BAD)
    report = {
        "benchmark": "soak_calls",
        "machine": machine(),
        "seed": arguments.seed,
        "passed": passed,
        "seconds": time.perf_counter() - started,
        "counts": dict(soak.counts),
        "places": dict(sorted(soak.places.items())),
    }
    print(json.dumps(report, indent=1))
    if arguments.json:
        write_json(arguments.json, report)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
