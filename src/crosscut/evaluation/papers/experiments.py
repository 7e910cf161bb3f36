"""The papers' experiments on one world: each takes matrices and vectors and answers with records.

Every record is a flat dictionary of numbers and names, ready for JSON, a table and a plot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.evaluation.oracle import anchor_items, approximate, oracle_study, retrieved, sampling_errors
from crosscut.evaluation.papers.clustered import exit_rules, exits
from crosscut.evaluation.papers.setting import Records, Setting, record_of, replayed, shortened
from crosscut.evaluation.papers.views import multi_view
from crosscut.evaluation.replay import SPLITS, normalisation
from crosscut.evaluation.studies import spectrum
from crosscut.measures import recall
from crosscut.types import Positions

DEEPEST = 100  # hits of a search that are judged


def _starts(setting: Setting, methods: Sequence[str]) -> list[str]:
    """Methods with the first stages that this world has: random, dense, words."""
    made = []
    for method in methods:
        own = method.split("@")[0]
        if own == "rerank":
            made += ["rerank"] if setting.world.vectors is not None else []
            made += ["rerank@first=lexical"] if setting.world.words is not None else []
            continue
        made.append(method)
        join = "," if "@" in method else "@"
        made += [f"{method}{join}first=dense"] if setting.world.vectors is not None else []
        made += [f"{method}{join}first=lexical"] if setting.world.words is not None else []
    return made


def recall_against_cost(setting: Setting) -> Records:
    """Top-k-Recall at equal calls (ANNCUR fig. 3b, ADACUR fig. 2 and 12 … 15): every method from every first stage."""
    return reduced(replayed(setting, _starts(setting, ["rerank", "anncur", "adacur"])))


def reduced(records: Records) -> Records:
    """With each record, by how much its recall error (1 − recall) is below that of reranking: ADACUR's measure."""
    errors = {(one["k"], one["x"]): 1 - one["recall"] for one in records if one["method"] == "rerank"}
    told = []
    for one in records:
        error = errors.get((one["k"], one["x"]), 0.0)
        told.append({**one, "error_reduction": 1 - (1 - one["recall"]) / error} if error > 0 else one)
    return told


def recall_of_retrieved(setting: Setting) -> Records:
    """Top-k-Recall@k_r: all retrieve as many, and what ANNCUR's k_i anchors cost is not counted (ANNCUR fig. 3a)."""
    world, (ks, sizes) = setting.world, setting.fitting
    known = np.asarray(setting.anchors(), np.float64)
    exact = np.asarray(world.test, np.float64)
    orders: dict[str, list[Positions]] = {}
    if world.vectors is not None and world.query_vectors is not None:
        orders["dual encoder"] = list(np.argsort(-world.vectors.predict(world.query_vectors), axis=1, kind="stable"))
    if world.words is not None:
        orders["words"] = list(np.argsort(-np.asarray(world.words), axis=1, kind="stable"))
    rng = np.random.default_rng(0)
    for count in (50, 100, 200):
        if count < setting.n // 2:
            chosen = np.sort(rng.choice(setting.n, count, replace=False))
            mixing = np.linalg.pinv(known[:, chosen]) @ known  # (k_i × n), offline
            orders[f"anncur, k_i = {count}"] = list(np.argsort(-(exact[:, chosen] @ mixing), axis=1, kind="stable"))
    records = []
    for name, order in orders.items():
        for size in sizes:
            for k in ks:
                found = np.asarray([recall(row, one[:size], k) for row, one in zip(exact, order, strict=True)])
                records.append(record_of(name, k, size, found))
    return records


def train_sizes(setting: Setting) -> Records:
    """Recall against the number of train queries (ANNCUR fig. 4, ADACUR fig. 13 … 15)."""
    anchors, world = setting.anchors(), setting.world
    sizes = [size for size in (10, 25, 50, 100, 200, 500, 2000) if size < len(anchors)] + [len(anchors)]
    records = []
    for size in sizes:
        vectors = world.anchor_query_vectors
        part = replace(world, anchors=anchors[:size], anchor_query_vectors=None if vectors is None else vectors[:size])
        for record in replayed(replace(setting, world=part), ["anncur", "adacur"]):
            records.append({**record, "x": size, "method": f"{record['method']}, B = {record['budget']}"})
    return records


def grid(setting: Setting) -> Records:
    """Recall and error of CUR by numbers of anchor queries and items, with U = (R[:, A])† and the oracle's
    U = C† M R† (ANNCUR fig. 6, 8 and 9)."""
    anchors, exact = np.asarray(setting.anchors(), np.float64), np.asarray(setting.world.test, np.float64)
    ks, budgets = setting.fitting
    k, cost = min(10, max(ks)), max(budgets)
    rows = [size for size in (10, 25, 50, 100, 200, 500, 1000, 2000) if size < len(anchors)] + [len(anchors)]
    columns = [size for size in (10, 25, 50, 100, 200, 500, 1000) if size < min(cost, setting.n // 2)]
    rng = np.random.default_rng(0)
    order = rng.permutation(setting.n)
    records = []
    for queries in rows:
        known = anchors[rng.permutation(len(anchors))[:queries]]
        right = np.linalg.pinv(known)
        for items in columns:
            chosen = order[:items]
            outer = exact[:, chosen]
            for name, u in (
                ("pseudo-inverse", np.linalg.pinv(known[:, chosen])),
                ("oracle U", np.linalg.pinv(outer) @ exact @ right),
            ):
                guess = outer @ u @ known
                found = [
                    recall(row, np.union1d(retrieved(one, chosen, cost - items), chosen), k)
                    for row, one in zip(exact, guess, strict=True)
                ]
                error = float(np.linalg.norm(exact - guess) / max(float(np.linalg.norm(exact)), 1e-300))
                records.append(
                    record_of(f"{name}, k_q = {queries}", k, items, np.asarray(found), error=error, budget=cost)
                )
    return records


def item_baselines(setting: Setting) -> Records:
    """FIXEDITEM, ITEMCUR and ANNCUR (ANNCUR fig. 7, §3.4)."""
    return replayed(setting, ["fixed-item", "item-cur", "anncur"])


def rank(setting: Setting) -> Records:
    """Rank and spectrum of the score matrix (ANNCUR §3.3, table 3b)."""
    found = spectrum(setting.world.test)
    told = found.json()
    values = told.pop("singular_values")
    return [
        {"method": "test queries", "k": 0, "x": place, "recall": value / max(values[0], 1e-300), **told}
        for place, value in enumerate(values, 1)
    ]


def histogram(setting: Setting) -> Records:
    """How the scores of scorer and dual encoder are distributed, mean taken off (ANNCUR fig. 1b, AXN fig. 4)."""
    world = setting.world
    series = {"scorer": np.asarray(world.test, np.float64)}
    if world.vectors is not None and world.query_vectors is not None:
        series["dual encoder"] = np.asarray(world.vectors.predict(world.query_vectors), np.float64)
    records = []
    for name, values in series.items():
        counts, edges = np.histogram(values - values.mean(), bins=50, density=True)
        middles = (edges[:-1] + edges[1:]) / 2
        skew = float(((values - values.mean()) ** 3).mean() / max(float(values.std()) ** 3, 1e-300))
        for x, y in zip(middles.tolist(), counts.tolist(), strict=True):
            told = {"mean": float(values.mean()), "deviation": float(values.std()), "skew": skew}
            records.append({"method": name, "k": 0, "x": x, "recall": y, **told})
    return records


def rounds(setting: Setting) -> Records:
    """Recall, and seconds outside the scorer, against the number of rounds (ADACUR fig. 3 … 5, AXN fig. 5 and 6)."""
    methods = ["adacur"] if setting.world.anchors is not None else []
    methods += ["axn"] if setting.world.vectors is not None else []
    records = []
    for count in (1, 2, 5, 10, 20, 50, 100):
        for record in replayed(setting, methods, rounds=count):
            if count <= record["budget"]:
                records.append({**record, "x": count, "method": f"{record['method']}, B = {record['budget']}"})
    return records


def selection(setting: Setting) -> Records:
    """TopK, SoftMax and random choice in the rounds of ADACUR (fig. 6)."""
    return replayed(setting, ["adacur", "adacur@select=softmax", "adacur@select=random"])


def sampling(setting: Setting) -> Records:
    """Error of the approximate scores by how anchor items are chosen (ADACUR fig. 7, 9 and 11)."""
    ks, _ = setting.fitting
    count = min(50, setting.n // 4)
    found = sampling_errors(setting.world, count, ks)
    return [
        {"method": one["anchors"], "k": k, "x": 0, "recall": error, "count": count, "all_items": one["error"]}
        for one in found
        for k, error in one["top_error"].items()
    ]


def oracle(setting: Setting) -> Records:
    """Anchor items chosen with sight of the scores (ADACUR fig. 8): masked or not, with more and more at random."""
    ks, budgets = setting.fitting
    rows = oracle_study(
        setting.world,
        [min(budgets, key=lambda b: abs(b - 100))],
        ks,
        epsilons=(0.0, 0.25, 0.5, 0.75, 1.0),
        splits=SPLITS[2::2],  # .3, .5, .7, .9: one pseudo-inverse a query and split
    )
    return [{**row, "x": row["epsilon"], "method": f"{row['method']}, k_m = {row['masked']}"} for row in rows]


def query_methods(setting: Setting) -> Records:
    """AXN with and without the encoder's query vector, TOUR by KL and by MSE, reranking (AXN fig. 7)."""
    world = setting.world
    methods = ["rerank", "tour", "tour@loss=mse", "axn@rounds=10"]
    if world.anchor_query_vectors is not None and world.vectors is not None:
        alpha, beta = normalisation(setting.anchors(), world.vectors, world.anchor_query_vectors)
        scaled = f"alpha={alpha:.6g},beta={beta:.6g}"
        methods += [f"axn@rounds=10,{scaled}", f"axn@rounds=10,mix=0.8,{scaled}"]
    return replayed(setting, methods)


def mixing(setting: Setting) -> Records:
    """Recall against λ of AXN eq. 7 (AXN fig. 8), on train queries: no test query is looked at."""
    world, anchors = setting.world, setting.anchors()
    if world.vectors is None or world.anchor_query_vectors is None:
        raise InputError("the study of λ needs vectors of items and of train queries")
    alpha, beta = normalisation(anchors, world.vectors, world.anchor_query_vectors)
    held = replace(
        world, test=anchors[:200], query_vectors=world.anchor_query_vectors[:200], anchors=None, words=None,
        anchor_query_vectors=None, item_scores=None, item_anchors=None,
    )  # fmt: skip
    records = []
    for mix in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9):
        method = f"axn@rounds=10,mix={mix},alpha={alpha:.6g},beta={beta:.6g}"
        for record in replayed(replace(setting, world=held), [method]):
            records.append({**record, "x": mix, "method": f"B = {record['budget']}"})
    return records


def indexing(setting: Setting) -> Records:
    """Recall against indexing calls: CUR, factors of a sparse matrix, no index (AXN fig. 1, 2, 9, 10; table 3)."""
    from crosscut.spaces.factorization import factorize
    from crosscut.spaces.sparse import SparseScores, items_per_query, queries_per_item

    world, anchors = setting.world, np.asarray(setting.anchors(), np.float64)
    if world.vectors is None or world.query_vectors is None or world.anchor_query_vectors is None:
        raise InputError("the study of indexing needs vectors of items, of test and of train queries")
    n, count = setting.n, len(anchors)
    vectors, queries = world.vectors, world.anchor_query_vectors
    records = [
        {**one, "x": 0, "index": "none", "method": f"{one['method']}, no index, B = {one['budget']}"}
        for one in replayed(setting, ["rerank", "axn"], seeds=1)
    ]
    for size in [size for size in (10, 20, 40, 100, 500) if size < count] + [count]:
        part = replace(world, anchors=anchors[:size], anchor_query_vectors=None)
        for one in replayed(replace(setting, world=part), ["adacur@first=dense"], seeds=1):
            named = {"index": f"CUR, {size}", "method": f"adacur, dense first, B = {one['budget']}"}
            records.append({**one, "x": size * n, **named})
    depths = [depth for depth in (25, 100, 400, 1000) if depth < n // 2]
    ranked = np.argsort(-np.asarray(vectors.predict(queries)), axis=1, kind="stable")
    plans = [(f"{depth} items a query", items_per_query(depth, (count, n), ranked=ranked)) for depth in depths]
    plans += [(f"{each} queries an item", queries_per_item(each, (count, n))) for each in (2, 5, 10) if each < count]
    how: dict[str, Any] = {} if setting.solver == "als" else {"device": setting.device, "dtype": setting.dtype}
    for name, pairs in plans:
        sparse = SparseScores.from_dense(anchors, pairs)
        started = time.process_time()
        factors = factorize(sparse, vectors, queries, solver=setting.solver, **how)
        seconds = time.process_time() - started
        asked = factors.embed_queries(world.query_vectors)
        part = replace(world, vectors=factors, query_vectors=asked, anchors=None, anchor_query_vectors=None)
        for one in replayed(replace(setting, world=part), ["rerank", "axn"], seeds=1):
            more = {"x": len(sparse), "index": f"factors, {name}", "training_seconds": seconds}
            kind = name.split(" ", 1)[1]
            records.append({**one, **more, "method": f"{one['method']} on factors, {kind}, B = {one['budget']}"})
    return records


def downstream(setting: Setting) -> Records:
    """What searches are for, by method and budget, EXACT included (AXN fig. 3 and 11 … 16, ANNCUR §3.1): of how many
    queries the best item found is a right one (entity-linking accuracy where one is), nDCG@10 and recall of the right
    items among the best 100."""
    if setting.gold is None:
        raise InputError("the downstream figure needs judgements: mentions with their entities, or qrels")
    world, (_, budgets) = setting.world, setting.fitting
    right = [set(some) for some in setting.gold]
    best = np.argsort(-np.asarray(world.test), axis=1, kind="stable")[:, :DEEPEST].tolist()
    records = [one for budget in budgets for one in _judged("exact", budget, best, right)]
    methods = _starts(setting, ["rerank", "adacur"] if world.anchors is not None else ["rerank"])
    methods += ["axn"] if world.vectors is not None else []
    for method in methods:
        searcher = world.searcher(str(shortened(method, setting.shortlist)), 0)
        for budget in budgets:
            found = [[int(hit.id) for hit in hits] for hits in world.search(searcher, min(DEEPEST, budget), budget)]
            records += _judged(method, budget, found, right)
    return records


def _judged(method: str, budget: int, found: Sequence[Sequence[int]], right: Sequence[set[int]]) -> Records:
    """Accuracy, nDCG@10 and recall at 100 of what was found, best first; every right item counts the same."""
    discounts = 1 / np.log2(np.arange(2, 12))
    accurate, gains, recalled = [], [], []
    for items, good in zip(found, right, strict=True):
        hits = np.asarray([item in good for item in items])
        accurate.append(float(hits[0]))
        gains.append(float(hits[:10] @ discounts[: len(hits[:10])] / discounts[: len(good)].sum()) if good else 0.0)
        recalled.append(float(hits.sum() / max(1, len(good))))
    measured = {"accuracy": (1, accurate), "nDCG@10": (10, gains), f"R@{DEEPEST}": (DEEPEST, recalled)}
    return [
        record_of(method if name == "accuracy" else f"{method}, {name}", k, budget, np.asarray(values), measure=name)
        for name, (k, values) in measured.items()
    ]


def one_query(setting: Setting) -> Records:
    """Approximate against exact scores of every item for one query, by how 50 anchor items are chosen (ADACUR fig. 1, 9
    and 11): x is the exact score, `recall` the approximate one, `anchor` whether it is known."""
    ks, _ = setting.fitting
    exact = np.asarray(setting.world.test[0], np.float64)
    known = np.asarray(setting.anchors(), np.float64)
    records = []
    for name, chosen in anchor_items(setting.world, min(50, setting.n // 4), max(ks)).items():
        guess, anchors = approximate(exact, known, chosen[0]), set(chosen[0].tolist())
        for place in range(setting.n):
            told = {"x": float(exact[place]), "recall": float(guess[place]), "anchor": place in anchors}
            records.append({"method": name, "k": 0, **told})
    return records


EXPERIMENTS: Mapping[str, Callable[[Setting], Records]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        recall_against_cost,
        recall_of_retrieved,
        train_sizes,
        grid,
        item_baselines,
        rank,
        histogram,
        rounds,
        selection,
        sampling,
        oracle,
        query_methods,
        mixing,
        indexing,
        downstream,
        one_query,
        exits,
        exit_rules,
        multi_view,
    )
}
"""Every experiment by name."""
