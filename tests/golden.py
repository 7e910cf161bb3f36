"""Answers of the second version (e18911a) to 500 searches through the public surface, to hold a redesign against.

    python golden.py answers.json.gz          # write what the installed crosscut answers
    python golden.py --check e18911a.json.gz  # compare: every case that differs, with both answers
    python golden.py --core --check e18911a.json.gz  # without torch and without crosscut-lab

Planted data, no model, no draws but those of seeded numpy: the same items in the same order, the same number of calls and
the same reason to stop. `factors/transductive` and `factors/inductive` need torch. Where a public name changes on purpose,
change the call in a copy of this file beside the tests; the answers stay. A case whose *answer* changes on purpose is
named in the commit, with the reason.
"""

# mypy: ignore-errors
from __future__ import annotations

import gzip
import json
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import crosscut

warnings.simplefilter("ignore")
N, D, ANCHORS, QUERIES = 900, 24, 48, 6
rng = np.random.default_rng(20261119)
V = rng.standard_normal((N, D))
V /= np.linalg.norm(V, axis=1, keepdims=True)
U = rng.standard_normal((ANCHORS + QUERIES, D))
LATENT = rng.standard_normal((N, 12))  # what the encoder does not see
M = (
    3 * U @ V.T
    + rng.standard_normal((ANCHORS + QUERIES, 12)) @ LATENT.T
    + 0.2 * rng.standard_normal((ANCHORS + QUERIES, N))
    + rng.standard_normal(N)
)
V, U, M = V.astype("f4"), U.astype("f4"), M.astype("f4")
TRAIN, TEST, TEST_U = M[:ANCHORS], M[ANCHORS:], U[ANCHORS:]
WORDS = [" ".join(f"w{w}" for w in sorted(set(rng.zipf(1.4, 12).clip(1, 400).tolist()))) for _ in range(N)]
ITEMS = [{"id": f"d{j}", "text": f"{WORDS[j]} t{j}", "year": 1990 + j % 30, "kind": "abc"[j % 3]} for j in range(N)]
TEXT = [f"w{1 + q} w{3 + 2 * q} w{11 + q}" for q in range(QUERIES)]
ROW = {t: q for q, t in enumerate(TEXT)}


def place(text: str) -> int:
    return int(text.rsplit(" t", 1)[1].split()[0])


def scorer(query: str, texts: list[str]) -> list[float]:
    return [float(TEST[ROW[query], place(t)]) if " t" in t else 0.0 for t in texts]


def said(hits) -> list:
    return [[str(h.id) for h in hits], hits.calls, hits.stop_reason]


def searchers() -> Iterator[tuple[str, Callable[[], list]]]:
    cur, matrix = crosscut.CUR(TRAIN), crosscut.MatrixScorer(TEST)
    dense = dict(vectors=V)
    both = dict(vectors=V, space=cur)
    parts = {
        "dense": (
            dense,
            [
                "rnr",
                "axn",
                "axn@rounds=10",
                "axn@mix=0.5",
                "axn@alpha=1.0,beta=0.5",
                "axn@shortlist=200",
                "tour",
                "tour@loss=mse",
                "crosscut",
                "crosscut@rounds=5",
                "crosscut@ridge=0.3",
                "crosscut@slope=16",
            ],
        ),
        "anchors": (dict(space=cur), ["crosscut"]),
        "both": (
            both,
            [
                "adacur@first=dense",
                "adacur@rounds=10,first=dense",
                "axn@space=anchors,first=dense",
                "anncur@first=dense",
                "crosscut",
                "crosscut@rank=16",
                "crosscut@rounds=20",
            ],
        ),
    }
    for name, (given, methods) in parts.items():
        for method in methods:
            for k, budget in ((1, 20), (10, 60), (10, 150)):

                def case(method=method, given=given, k=k, budget=budget, vectors="vectors" in given):
                    s = crosscut.Searcher(matrix, method=method, **given)
                    return [
                        said(h)
                        for h in s.search_many(
                            list(range(QUERIES)), k, budget, query_vectors=list(TEST_U) if vectors else None
                        )
                    ]

                yield f"searcher/{name}/{method}/k={k}/B={budget}", case
    s = crosscut.Searcher(matrix, vectors=V)
    first = [list(map(int, np.argsort(-TEST[q] + 2 * np.sin(np.arange(N)))[:30])) for q in range(QUERIES)]
    yield (
        "searcher/candidates",
        lambda: [said(s.search(q, 10, 60, query_vector=TEST_U[q], candidates=first[q])) for q in range(QUERIES)],
    )
    yield (
        "searcher/allowed",
        lambda: [said(s.search(q, 10, 60, query_vector=TEST_U[q], allow=list(range(q, N, 5)))) for q in range(QUERIES)],
    )
    sure = crosscut.Searcher(matrix, **both)
    for stop in ("patience@rounds=2", "patience@rounds=1", "confident"):
        yield (
            f"searcher/{stop}",
            lambda stop=stop: [said(sure.search(q, 5, 200, query_vector=TEST_U[q], stop=stop)) for q in range(QUERIES)],
        )
    yield (
        "searcher/exact",
        lambda: [said(crosscut.Searcher(matrix, n=N, method="exact").search(q, 10)) for q in range(QUERIES)],
    )


def factors() -> Iterator[tuple[str, Callable[[], list]]]:
    top = np.argsort(-TRAIN @ np.eye(N, dtype="f4"), axis=1)[:, :120]
    sparse = np.full_like(TRAIN, np.nan)
    np.put_along_axis(sparse, top, np.take_along_axis(TRAIN, top, 1), 1)
    sparse[:, ::7] = TRAIN[:, ::7]
    for solver in ("als", "transductive", "inductive"):

        def case(solver=solver):
            f = crosscut.factorize(crosscut.SparseScores.from_dense(sparse), V, U[:ANCHORS], solver=solver)
            s = crosscut.Searcher(crosscut.MatrixScorer(TEST), space=f, vectors=V, method="axn@space=factors")
            return [said(s.search(q, 10, 100, query_vector=TEST_U[q])) for q in range(QUERIES)]

        yield f"factors/{solver}", case


def indexes() -> Iterator[tuple[str, Callable[[], list]]]:
    place_of = {x["text"]: j for j, x in enumerate(ITEMS)}
    query_of = {t: TEST_U[q] for t, q in ROW.items()}

    def encode(texts):
        return np.stack([query_of[t] if t in query_of else V[place_of[t]] for t in texts])

    def build(**more):
        return crosscut.Index.build(ITEMS, scorer=scorer, encoder=encode, dtype=np.float32, **more)

    def ask(index, k=10, budget=60, **more):
        return [said(index.search(t, k=k, budget=budget, **more)) for t in TEXT]

    one: list = []

    def index():
        if not one:
            one.append(build())
        return one[0]

    yield "index/default", lambda: ask(index())
    for method in (
        "rnr",
        "hybrid",
        "axn",
        "crosscut@words=0",
        "crosscut@words=3",
        "crosscut@first=lexical",
        "crosscut@first=union",
    ):
        yield f"index/{method}", lambda method=method: ask(index(), method=method)
    for name, condition in {
        "equal": {"kind": "a"},
        "bounds": {"year": {"gte": 2005, "lt": 2012}},
        "both": {"kind": "b", "year": {"gte": 2000}},
        "either": {"kind": ["a", "c"]},
    }.items():
        yield f"index/filter/{name}", lambda condition=condition: ask(index(), filter=condition)

    def saved():
        with tempfile.TemporaryDirectory() as t:
            index().save(Path(t) / "i")
            return ask(crosscut.Index.load(Path(t) / "i", scorer=scorer, encoder=encode))

    yield "index/saved", saved

    def changed():
        i = crosscut.Index.build(ITEMS[:800], scorer=scorer, encoder=encode, dtype=np.float32)
        i.add(ITEMS[800:])
        i.remove([f"d{j}" for j in range(0, 900, 9)])
        answers = ask(i)
        with tempfile.TemporaryDirectory() as t:
            i.save(Path(t) / "i")
            return answers + ask(crosscut.Index.load(Path(t) / "i", scorer=scorer, encoder=encode))

    yield "index/changed", changed
    yield "index/many", lambda: [said(h) for h in index().search_many(TEXT, k=10, budget=60)]
    yield "index/exact", lambda: ask(index(), budget=None, method="exact")
    yield "index/candidates", lambda: ask(index(), candidates=[f"d{j}" for j in range(0, 900, 11)][:40])

    def hashed(texts):
        return np.stack([np.random.default_rng(zlib.crc32(t.encode())).standard_normal(D).astype("f4") for t in texts])

    def passages():
        long = [
            {
                "id": f"p{j}",
                "text": ". ".join(f"Sentence {s} of {j} has {WORDS[(j + s) % N]}" for s in range(1 + j % 7)) + ".",
            }
            for j in range(200)
        ]
        i = crosscut.Index.build(
            long,
            scorer=lambda q, ts: [float(zlib.crc32((q + t).encode()) % 1000) for t in ts],
            encoder=hashed,
            passages=40,
            dtype=np.float32,
        )
        before = ask(i)
        i.remove(["p3", "p50"])
        i.add([{"id": "p3", "text": "Back again. With two sentences."}])
        return before + ask(i)

    yield "index/passages", passages

    def learned():
        i = build()
        with tempfile.TemporaryDirectory() as t:
            for q, row in enumerate(TRAIN):
                text = f"train {q}"
                ROW[text] = q
                query_of[text] = U[q]
            global TEST
            kept, TEST = TEST, M
            ROW.update({t: ANCHORS + q for q, t in enumerate(TEXT)})
            try:
                i.keep_log(Path(t) / "log")
                for q in range(ANCHORS):
                    i.search(f"train {q}", k=10, budget=100)
                i.learn()
                return ask(i)
            finally:
                TEST = kept
                ROW.update({t: q for q, t in enumerate(TEXT)})

    yield "index/learned", learned

    def anchored():
        global TEST
        kept, TEST = TEST, M
        try:
            for q in range(ANCHORS):
                ROW[f"train {q}"] = q
                query_of[f"train {q}"] = U[q]
            ROW.update({t: ANCHORS + q for q, t in enumerate(TEXT)})
            i = build(queries=[f"train {q}" for q in range(ANCHORS)])
            return ask(i) + ask(i, method="adacur@first=dense") + ask(i, method="anncur@first=dense")
        finally:
            TEST = kept
            ROW.update({t: q for q, t in enumerate(TEXT)})

    yield "index/anchors", anchored


def exits() -> Iterator[tuple[str, Callable[[], list]]]:
    index = crosscut.IVF.build(V, centroids=V[::28][:32])  # its own, since k-means may differ from machine to machine
    for name, rule in {
        "fixed 4": crosscut.Fixed(4),
        "fixed 32": crosscut.Fixed(32),
        "patience": crosscut.Patience(3, 0.05),
    }.items():

        def case(rule=rule):
            found = [index.search(u, k=10, rule=rule) for u in TEST_U]
            return [[np.asarray(f.ids).ravel().tolist(), int(np.asarray(f.lists).sum())] for f in found]

        yield f"ivf/{name}", case


MORE = "transductive", "inductive", "/tour"  # need torch, or the laboratory's methods


def answers(core: bool = False) -> dict[str, list]:
    out = {}
    for group in (searchers, factors, indexes, exits):
        for name, case in group():
            if core and any(w in name for w in MORE):
                continue
            try:
                out[name] = case()
            except Exception as e:
                out[name] = [f"{type(e).__name__}: {e}"[:160]]
    return json.loads(json.dumps(out))


def main() -> int:
    core = "--core" in sys.argv
    args = [a for a in sys.argv[1:] if a != "--core"]
    if args[:1] != ["--check"]:
        Path(args[0]).write_bytes(gzip.compress(json.dumps(answers()).encode(), mtime=0))
        return 0
    then, now = json.loads(gzip.decompress(Path(args[1]).read_bytes())), answers(core)
    if core:
        then = {name: v for name, v in then.items() if not any(w in name for w in MORE)}
    wrong = [name for name in then if now.get(name) != then[name]]
    for name in wrong:
        pairs = [(a, b) for a, b in zip(then[name], now.get(name, []) + [None] * len(then[name])) if a != b]
        print(
            f"{name}: {len(pairs)} of {len(then[name])} differ\n  then {str(pairs[0][0])[:170]}\n  now  {str(pairs[0][1])[:170]}"
        )
    print(f"{len(then) - len(wrong)} of {len(then)} cases as at e18911a")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
