"""The papers' experiments on one data set: each takes matrices and vectors and returns records.

Every figure has AXN in two forms: on raw scores, and on β(s − α) (app. A.4), as its paper runs it; with λ of
eq. 7 where the paper has it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.evaluation.replay import SPLITS, ScoreData, normalisation, per_query_recall, replay
from crosscut.linalg.top import ranked as top_ranked
from crosscut.measures import paired_interval, recall
from crosscut.methods import Method, parse
from crosscut.methods.base import InRounds
from crosscut.spaces.base import Vectors
from crosscut.spaces.factorization import Solver, factorize
from crosscut.spaces.sparse import Pairs, SparseScores, items_per_query, queries_per_item
from crosscut.spaces.sparse import normalisation as sparse_normalisation
from crosscut.types import Array, Positions
from crosscut_lab.papers.exits import exit_rules, exits
from crosscut_lab.papers.oracle import anchor_items, approximate, oracle_study, retrieved, sampling_errors, spectrum
from crosscut_lab.report import Records, record

DEEPEST = 100  # hits of a search that are judged
VALUES = "values"  # per query; never written
CONTROL = "axn, α β, no factors"


@dataclass(frozen=True)
class Setting:
    """A data set, the right items of its queries, and the sizes of an experiment."""

    data: ScoreData
    gold: Sequence[Sequence[int]] | None = None  # of every test query, positions of the right items
    ks: tuple[int, ...] = (1, 10, 100)
    budgets: tuple[int, ...] = (50, 100, 200, 500)
    seeds: int = 3
    views: Mapping[str, Any] = field(default_factory=dict)  # MultiView by how items were cut
    rounds: int | None = None  # of adaptive methods where the experiment does not vary them; None: their own
    shortlist: int | None = None  # rounds stay within the first stage's top S
    mix: float = 0.8  # λ of eq. 7 where it is not varied: the paper's for k = 1
    solver: Solver = "als"  # of factors
    depths: tuple[int, ...] = (25, 100, 400, 1000)  # k_d, items per train query
    per_item: tuple[int, ...] = (2, 5, 10)  # train queries per item
    device: str | None = None  # of factors that are trained by gradients
    train_vectors: Array | None = None  # of train queries without dense scores
    buy: Callable[[Pairs], SparseScores] | None = None  # scores of train pairs; None: read from the anchor matrix

    @property
    def n(self) -> int:
        return int(self.data.test.shape[1])

    @property
    def fitting(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """k and budgets of which the data set has at least twice as many items."""
        most = max(2, self.n // 2)
        return tuple(k for k in self.ks if k <= most) or (1,), tuple(b for b in self.budgets if b <= most) or (most,)

    @property
    def adaptive_rounds(self) -> int:
        return self.rounds or 5

    def anchors(self) -> Array:
        if self.data.anchors is None:
            raise InputError("this experiment needs anchors: the scores of train queries with every item")
        return self.data.anchors

    def encoders(self) -> tuple[Any, Array, Array]:
        """Return item vectors, vectors of test queries and of train queries."""
        data = self.data
        asked = data.anchor_query_vectors if self.train_vectors is None else self.train_vectors
        if data.vectors is None or data.query_vectors is None or asked is None:
            raise InputError("this experiment needs vectors of items, of test queries and of train queries")
        return data.vectors, data.query_vectors, asked


def replayed(
    setting: Setting,
    methods: Sequence[str] | Mapping[str, str],
    *,
    data: ScoreData | None = None,
    rounds: int | None = None,
    seeds: int | None = None,
    **facts: Any,
) -> Records:
    """Replay methods, or a mapping from the names of rows to methods; splits are the oracle's, as in the papers."""
    names = methods if isinstance(methods, Mapping) else {method: method for method in methods}
    ks, budgets = setting.fitting
    report = replay(
        data or setting.data,
        methods=[str(shortened(method, setting.shortlist)) for method in names.values()],
        k=ks,
        budgets=budgets,
        rounds=setting.rounds if rounds is None else rounds,
        seeds=setting.seeds if seeds is None else seeds,
        split="oracle",
    )
    labels = dict(zip((str(shortened(m, setting.shortlist)) for m in names.values()), names, strict=True))
    return [
        {"x": one.budget, **one.json(), "method": labels[one.method], "run": one.method, VALUES: one.per_query, **facts}
        for one in report.records
    ]


def from_ranking(
    setting: Setting, name: str, method: str, data: ScoreData, order: Sequence[Positions], **facts: Any
) -> Records:
    """Search with round one taken from a ranking of another model (AXN_{MF,DE})."""
    ks, budgets = setting.fitting
    searcher, made = data.searcher(parse(method)), []
    for budget in budgets:
        hits = [data.search(searcher, max(ks), budget, candidates=order)]
        for k in ks:
            values = per_query_recall(data, hits, k)
            calls = float(np.mean([one.calls for one in hits[0]]))
            made.append(
                {**record(name, k, budget, values, budget=budget, calls=calls, run=method, **facts), VALUES: values}
            )
    return made


def shortened(method: str, shortlist: int | None) -> Method:
    """Return the method with its rounds within the first stage's top S (AXN app. A.4), if it has both."""
    made = parse(method)
    if shortlist is None or not isinstance(made, InRounds) or made.drawn:
        return made
    return made.with_settings({"shortlist": shortlist})


def normalised(setting: Setting) -> str:
    """Return α and β of AXN app. A.4 from train queries, as settings of `axn` and `tour`."""
    anchors = setting.anchors()
    vectors, _, asked = setting.encoders()
    alpha, beta = normalisation(anchors, vectors, asked[: len(anchors)])
    return f"alpha={alpha:.6g},beta={beta:.6g}"


def axn_rows(setting: Setting, mix: bool = False) -> dict[str, str]:
    """Return AXN on raw scores and on β(s − α), and with λ if asked, where the data set allows them."""
    data = setting.data
    if data.vectors is None:
        return {}
    rows = {"axn, raw": "axn"}
    if data.anchors is not None and data.anchor_query_vectors is not None:
        scaled = normalised(setting)
        rows["axn, β(s − α)"] = f"axn@{scaled}"
        if mix:
            rows[f"axn, β(s − α), λ = {setting.mix:g}"] = f"axn@mix={setting.mix:g},{scaled}"
    return rows


def starts(setting: Setting, methods: Sequence[str]) -> list[str]:
    """Return methods with the first stages of this data set: random, by vectors, lexical."""
    made = []
    stages = ["dense"] * (setting.data.vectors is not None) + ["lexical"] * (setting.data.words is not None)
    for method in methods:
        if method == "rerank":
            made += [{"dense": "rerank", "lexical": "rerank@first=lexical"}[stage] for stage in stages]
            continue
        join = "," if "@" in method else "@"
        made += [method, *(f"{method}{join}first={stage}" for stage in stages)]
    return made


def recall_against_cost(setting: Setting) -> Records:
    """Recall at equal calls from every first stage (ANNCUR fig. 3b, ADACUR fig. 2 and 12 … 15).

    `error_reduction` is ADACUR's measure: by how much 1 − recall is below that of reranking.
    """
    records = replayed(setting, starts(setting, ["rerank", "anncur", "adacur"]))
    records += replayed(setting, axn_rows(setting, mix=True))
    errors = {(one["k"], one["x"]): 1 - one["recall"] for one in records if one["method"] == "rerank"}
    for one in records:
        error = errors.get((one["k"], one["x"]), 0.0)
        if error > 0:
            one["error_reduction"] = 1 - (1 - one["recall"]) / error
    return records


def recall_of_retrieved(setting: Setting) -> Records:
    """Recall at equal numbers retrieved; ANNCUR's k_i anchor calls are not counted (ANNCUR fig. 3a)."""
    data, (ks, sizes) = setting.data, setting.fitting
    known = np.asarray(setting.anchors(), np.float64)
    exact = np.asarray(data.test, np.float64)
    orders: dict[str, Array] = {}
    if data.vectors is not None and data.query_vectors is not None:
        orders["dual encoder"] = np.argsort(-data.vectors.predict(data.query_vectors), axis=1, kind="stable")
    if data.words is not None:
        orders["lexical"] = np.argsort(-np.asarray(data.words), axis=1, kind="stable")
    rng = np.random.default_rng(0)
    for count in (50, 100, 200):
        if count < setting.n // 2:
            chosen = np.sort(rng.choice(setting.n, count, replace=False))
            mixing = np.linalg.pinv(known[:, chosen]) @ known  # (k_i × n), offline
            orders[f"anncur, k_i = {count}"] = np.argsort(-(exact[:, chosen] @ mixing), axis=1, kind="stable")
    return [
        record(name, k, size, np.asarray([recall(row, one[:size], k) for row, one in zip(exact, order, strict=True)]))
        for name, order in orders.items()
        for size in sizes
        for k in ks
    ]


def train_sizes(setting: Setting) -> Records:
    """Recall against the number of train queries (ANNCUR fig. 4, ADACUR fig. 13 … 15)."""
    anchors, data = setting.anchors(), setting.data
    methods = ["anncur", "adacur"]
    methods += ["anncur@first=dense", "adacur@first=dense"] if data.vectors is not None else []
    records = []
    for size in [size for size in (10, 25, 50, 100, 200, 500, 2000) if size < len(anchors)] + [len(anchors)]:
        part = replace(data, anchors=anchors[:size], anchor_query_vectors=None)
        for one in replayed(setting, methods, data=part):
            records.append({**one, "x": size, "method": f"{one['method']}, B = {one['budget']}"})
    return records


def grid(setting: Setting) -> Records:
    """Recall and error of CUR by numbers of anchor queries and items (ANNCUR fig. 6, 8, 9).

    U is (R[:, A])†, or the oracle's C† M R†.
    """
    anchors, exact = np.asarray(setting.anchors(), np.float64), np.asarray(setting.data.test, np.float64)
    ks, budgets = setting.fitting
    k, cost = min(10, max(ks)), max(budgets)
    rows = [size for size in (10, 25, 50, 100, 200, 500, 1000, 2000) if size < len(anchors)] + [len(anchors)]
    columns = [size for size in (10, 25, 50, 100, 200, 500, 1000) if size < min(cost, setting.n // 2)]
    rng = np.random.default_rng(0)
    order = rng.permutation(setting.n)
    records = []
    for queries in rows:
        known = anchors[rng.permutation(len(anchors))[:queries]]  # (k_q × n)
        right = np.linalg.pinv(known)
        for items in columns:
            chosen = order[:items]
            outer = exact[:, chosen]  # (q × k_i)
            middle = {
                "pseudo-inverse": np.linalg.pinv(known[:, chosen]),
                "oracle U": np.linalg.pinv(outer) @ exact @ right,
            }
            for name, u in middle.items():
                guess = outer @ u @ known  # (q × n)
                found = [
                    recall(row, np.union1d(retrieved(one, chosen, cost - items), chosen), k)
                    for row, one in zip(exact, guess, strict=True)
                ]
                error = float(np.linalg.norm(exact - guess) / max(float(np.linalg.norm(exact)), 1e-300))
                records.append(
                    record(f"{name}, k_q = {queries}", k, items, np.asarray(found), error=error, budget=cost)
                )
    return records


def item_baselines(setting: Setting) -> Records:
    """FIXEDITEM, ITEMCUR and ANNCUR (ANNCUR fig. 7, §3.4)."""
    return replayed(setting, ["fixed-item", "item-cur", "anncur"])


def rank(setting: Setting) -> Records:
    """Rank and spectrum of the scores of all queries, train and test (ANNCUR §3.3, table 3b)."""
    data = setting.data
    matrices = {"test queries": np.asarray(data.test)}
    if data.anchors is not None:
        matrices["all queries"] = np.concatenate([np.asarray(data.anchors), np.asarray(data.test)])
    records = []
    for name, matrix in matrices.items():
        found = spectrum(matrix)
        facts = {"queries": len(matrix), "rank": found.rank, "directions": found.directions, "centred": found.centred}
        first = max(found.singular_values[0], 1e-300)
        records += [
            {"method": name, "k": 0, "x": place, "recall": value / first, **facts}
            for place, value in enumerate(found.singular_values, 1)
        ]
    return records


def histogram(setting: Setting) -> Records:
    """Distribution of the scores of scorer and dual encoder, centred (ANNCUR fig. 1b, AXN fig. 4)."""
    data = setting.data
    series = {"scorer": np.asarray(data.test, np.float64)}
    if data.vectors is not None and data.query_vectors is not None:
        series["dual encoder"] = np.asarray(data.vectors.predict(data.query_vectors), np.float64)
    records = []
    for name, values in series.items():
        counts, edges = np.histogram(values - values.mean(), bins=50, density=True)
        skew = float(((values - values.mean()) ** 3).mean() / max(float(values.std()) ** 3, 1e-300))
        facts = {"mean": float(values.mean()), "deviation": float(values.std()), "skew": skew}
        for x, y in zip(((edges[:-1] + edges[1:]) / 2).tolist(), counts.tolist(), strict=True):
            records.append({"method": name, "k": 0, "x": x, "recall": y, **facts})
    return records


def rounds(setting: Setting) -> Records:
    """Recall, and seconds outside the scorer, against the number of rounds (ADACUR fig. 3 … 5, AXN fig. 5, 6)."""
    methods = {}
    if setting.data.anchors is not None:
        methods["adacur"] = "adacur"
        if setting.data.vectors is not None:
            methods["adacur, dense first"] = "adacur@first=dense"
    methods |= axn_rows(setting)
    records = []
    for count in (1, 2, 5, 10, 20, 50, 100):
        for one in replayed(setting, methods, rounds=count):
            if count <= one["budget"]:
                records.append({**one, "x": count, "method": f"{one['method']}, B = {one['budget']}"})
    return records


def selection(setting: Setting) -> Records:
    """TopK, SoftMax and random choice in the rounds of ADACUR (fig. 6)."""
    return replayed(setting, ["adacur", "adacur@select=softmax", "adacur@select=random"])


def sampling(setting: Setting) -> Records:
    """Error of the approximate scores by how anchor items are chosen (ADACUR fig. 7)."""
    ks, _ = setting.fitting
    count = min(50, setting.n // 4)
    return [
        {"method": one["anchors"], "k": k, "x": 0, "recall": error, "count": count, "all_items": one["error"]}
        for one in sampling_errors(setting.data, count, ks)
        for k, error in one["top_error"].items()
    ]


def oracle(setting: Setting) -> Records:
    """Anchor items chosen with sight of the scores (ADACUR fig. 8): masked or not, a share ε at random."""
    ks, budgets = setting.fitting
    rows = oracle_study(
        setting.data,
        [min(budgets, key=lambda b: abs(b - 100))],
        ks,
        epsilons=(0.0, 0.25, 0.5, 0.75, 1.0),
        splits=SPLITS[2::2],  # .3, .5, .7, .9: one pseudo-inverse a query and split
    )
    return [{**row, "x": row["epsilon"], "method": f"{row['method']}, k_m = {row['masked']}"} for row in rows]


def query_methods(setting: Setting) -> Records:
    """AXN with and without the encoder's query vector, TOUR by KL and by MSE at the same rounds, reranking (fig. 7)."""
    count = setting.rounds or 10
    rows = {"rerank": "rerank", "tour, KL": "tour", "tour, MSE": "tour@loss=mse", **axn_rows(setting, mix=True)}
    if "axn, β(s − α)" in rows:
        scaled = normalised(setting)
        rows |= {"tour, KL, β(s − α)": f"tour@{scaled}", "tour, MSE, β(s − α)": f"tour@loss=mse,{scaled}"}
    return replayed(setting, rows, rounds=count)


def mixing(setting: Setting) -> Records:
    """Recall against λ of AXN eq. 7 (AXN fig. 8), chosen on train queries and reported on test queries."""
    _, _, asked = setting.encoders()
    anchors, scaled = setting.anchors(), normalised(setting)
    held = replace(
        setting.data, test=anchors[:200], query_vectors=asked[:200], anchors=None, words=None,
        anchor_query_vectors=None, item_scores=None, item_anchors=None,
    )  # fmt: skip
    count = setting.rounds or 10
    records = []
    for queries, data in (("train", held), ("test", setting.data)):
        for mix in (0.0, 0.2, 0.4, 0.6, 0.8, 0.9):
            for one in replayed(setting, [f"axn@mix={mix:g},{scaled}"], data=data, rounds=count, of=queries):
                records.append({**one, "x": mix, "method": f"{queries} queries, B = {one['budget']}"})
    chosen: dict[tuple[int, int], tuple[float, float]] = {}
    for one in records:
        key = (one["k"], one["budget"])
        if one["of"] == "train" and one["recall"] > chosen.get(key, (-1.0, 0.0))[0]:
            chosen[key] = (one["recall"], one["x"])
    return [{**one, "chosen": chosen[one["k"], one["budget"]][1] == one["x"]} for one in records]


def train_scores(setting: Setting, pairs: Pairs) -> SparseScores:
    """Return scores of train pairs: bought, or read from the anchor matrix where there is one."""
    if setting.buy is not None:
        return setting.buy(pairs)
    return SparseScores.from_dense(np.asarray(setting.anchors(), np.float64), pairs)


def indexing(setting: Setting) -> Records:
    """Recall against indexing calls: none, CUR, factors (AXN fig. 1, 2, 9, 10; table 3; ANNCUR table 2).

    x counts the scores of train pairs. The control "no factors" has the α and β of the same sparse matrix and searches
    the encoder's own vectors: `gain`, with its paired interval, is what the factors add to it.
    """
    vectors, test_vectors, queries = setting.encoders()
    data, n, count, rounds = setting.data, setting.n, len(queries), setting.adaptive_rounds
    plain = replace(data, anchors=None, anchor_query_vectors=None)
    dense = top_orders(vectors, test_vectors, max(setting.fitting[1]))
    records = replayed(
        setting, {"rerank, no index": "rerank", "axn, raw, no index": f"axn@rounds={rounds}"},
        data=plain, seeds=1, index="none", indexing_calls=0,
    )  # fmt: skip
    if data.anchors is not None:
        whole = len(data.anchors)
        for size in [size for size in (10, 20, 40, 100, 500) if size < whole] + [whole]:
            part = replace(data, anchors=np.asarray(data.anchors)[:size], anchor_query_vectors=None)
            rows = {"adacur": "adacur", "adacur, dense first": "adacur@first=dense"}
            rows |= {"anncur": "anncur", "anncur, dense first": "anncur@first=dense"}
            records += replayed(setting, rows, data=part, seeds=1, index=f"CUR, {size}", indexing_calls=size * n)
    ranked = top_orders(vectors, queries, max(setting.depths, default=1))
    shape = (count, n)
    plans = [
        (f"{depth} items a query", items_per_query(depth, shape, ranked=ranked))
        for depth in setting.depths
        if depth < n // 2
    ]
    plans += [(f"{each} queries an item", queries_per_item(each, shape)) for each in setting.per_item if each < count]
    for name, pairs in plans:
        sparse = train_scores(setting, pairs)
        facts: dict[str, Any] = {"index": name, "indexing_calls": len(sparse)}
        scale = sparse_normalisation(sparse, vectors, queries)
        scaled = f"rounds={rounds},alpha={scale.alpha:.6g},beta={scale.beta:.6g}"
        rows = {CONTROL: f"axn@{scaled}"}
        rows |= {f"axn, α β, λ = {setting.mix:g}, no factors": f"axn@mix={setting.mix:g},{scaled}"}
        controls = replayed(setting, rows, data=plain, seeds=1, **facts)
        records += controls
        how: dict[str, Any] = {} if setting.solver == "als" else {"device": setting.device}
        started = time.process_time()
        factors = factorize(sparse, vectors, queries, solver=setting.solver, **how)
        facts |= {"solver": setting.solver, "training_seconds": time.process_time() - started}
        # eq. 7 mixes the query vector that lives in the searched space: of inductive factors, the embedded one
        space = replace(plain, vectors=Vectors(factors.array), query_vectors=factors.embed_queries(test_vectors))
        alpha, beta = factors.normal
        scaled = f"axn@rounds={rounds},alpha={alpha:.6g},beta={beta:.6g}"
        made = replayed(
            setting, {"rerank on factors": "rerank", "axn on factors": scaled}, data=space, seeds=1, **facts
        )
        made += from_ranking(setting, "axn on factors, dense first", scaled, space, dense, **facts)
        mixed = f"{scaled},mix={setting.mix:g}"
        made += from_ranking(setting, f"axn on factors, dense first, λ = {setting.mix:g}", mixed, space, dense, **facts)
        records += [against(one, controls) for one in made]
    for one in records:
        name = one["method"]
        one |= {"x": one["indexing_calls"], "arm": name, "method": f"{name}, B = {one['budget']}"}
    return records


def against(one: dict[str, Any], controls: Records) -> dict[str, Any]:
    """Return a record with the gain over AXN with the same normalisation and without factors."""
    same = next(c for c in controls if (c["method"], c["k"], c["budget"]) == (CONTROL, one["k"], one["budget"]))
    gain, low, high = paired_interval(one[VALUES], same[VALUES])
    return {**one, "gain": gain, "gain_low": low, "gain_high": high}


def top_orders(vectors: Any, queries: Array, count: int) -> list[Positions]:
    """Return the best items of each query by the encoder."""
    return [top_ranked(row, count) for row in np.asarray(vectors.predict(queries))]


def downstream(setting: Setting) -> Records:
    """Accuracy, nDCG@10 and R@100 of right items, by method and budget (AXN fig. 3, 11 … 16; ANNCUR §3.1)."""
    if setting.gold is None:
        raise InputError("the downstream figure needs qrels: mentions with their entities, for example")
    data, (_, budgets) = setting.data, setting.fitting
    best = np.argsort(-np.asarray(data.test), axis=1, kind="stable")[:, :DEEPEST].tolist()
    records = [one for budget in budgets for one in judged("exact", budget, best, setting.gold)]
    rows = {name: (data, name, None) for name in starts(setting, ["rerank"])}
    if data.anchors is not None:
        rows |= {name: (data, name, None) for name in starts(setting, ["anncur", "adacur"])}
    rows |= {name: (data, method, None) for name, method in axn_rows(setting, mix=True).items()}
    if data.vectors is not None and data.anchor_query_vectors is not None:
        rows |= factor_rows(setting)
    for name, (where, method, order) in rows.items():
        searcher = where.searcher(str(shortened(method, setting.shortlist)), 0)
        for budget in budgets:
            hits = where.search(searcher, min(DEEPEST, budget), budget, candidates=order)
            found = [[int(hit.id) for hit in one] for one in hits]
            records += judged(name, budget, found, setting.gold)
    return records


def factor_rows(setting: Setting) -> dict[str, tuple[ScoreData, str, Any]]:
    """Return MF, AXN_MF and AXN_{MF,DE} on factors of the setting's first depth."""
    vectors, test_vectors, queries = setting.encoders()
    depth = min(setting.depths[0], setting.n // 2)
    ranked = top_orders(vectors, queries, depth)
    sparse = train_scores(setting, items_per_query(depth, (len(queries), setting.n), ranked=ranked))
    factors = factorize(sparse, vectors, queries, solver=setting.solver)
    space = replace(
        setting.data, anchors=None, anchor_query_vectors=None, words=None,
        vectors=Vectors(factors.array), query_vectors=factors.embed_queries(test_vectors),
    )  # fmt: skip
    alpha, beta = factors.normal
    axn = f"axn@rounds={setting.adaptive_rounds},alpha={alpha:.6g},beta={beta:.6g}"
    dense = top_orders(vectors, test_vectors, max(setting.fitting[1]))
    return {
        "rerank on factors": (space, "rerank", None),
        "axn on factors": (space, axn, None),
        "axn on factors, dense first": (space, axn, dense),
    }


def judged(method: str, budget: int, found: Sequence[Sequence[int]], gold: Sequence[Sequence[int]]) -> Records:
    """Return accuracy, nDCG@10 and R@100 of ranked items by ir-measures; every right item counts the same."""
    import ir_measures

    qrels = {str(row): {str(item): 1 for item in right} for row, right in enumerate(gold) if len(right)}
    run = {str(row): {str(item): -float(place) for place, item in enumerate(items)} for row, items in enumerate(found)}
    names = {"Success@1": 1, "nDCG@10": 10, f"R@{DEEPEST}": DEEPEST}
    values: dict[str, dict[str, float]] = {name: dict.fromkeys(qrels, 0.0) for name in names}
    for one in ir_measures.iter_calc([ir_measures.parse_measure(name) for name in names], qrels, run):
        values[str(one.measure)][one.query_id] = one.value
    return [
        record(f"{method}, {name}", k, budget, np.asarray(list(values[name].values())), measure=name, arm=method)
        for name, k in names.items()
    ]


def one_query(setting: Setting) -> Records:
    """Approximate against exact scores of every item for one query (ADACUR fig. 1, 9, 11).

    x is the exact score, `recall` the approximate one, `anchor` whether it is known.
    """
    ks, _ = setting.fitting
    exact = np.asarray(setting.data.test[0], np.float64)
    known = np.asarray(setting.anchors(), np.float64)
    records = []
    for name, chosen in anchor_items(setting.data, min(50, setting.n // 4), max(ks)).items():
        guess, anchors = approximate(exact, known, chosen[0]), set(chosen[0].tolist())
        records += [
            {"method": name, "k": 0, "x": float(x), "recall": float(y), "anchor": place in anchors}
            for place, (x, y) in enumerate(zip(exact, guess, strict=True))
        ]
    return records


def multi_view(setting: Setting) -> Records:
    """Several vectors an item, beside one vector and ADACUR from it, at equal calls (ADACUR app. C.3, fig. 10)."""
    asked = setting.data.query_vectors
    if not setting.views or asked is None:
        raise InputError(
            "the study of views needs several vectors an item: a folder of texts and an encoder, or an archive with "
            "views and view_counts"
        )
    data, (ks, budgets) = setting.data, setting.fitting
    methods = ["rerank"] if data.vectors is not None else []
    methods += ["adacur", "adacur@first=dense"] if data.anchors is not None and data.vectors is not None else []
    records = replayed(setting, methods)
    exact = np.asarray(data.test, np.float64)
    for name, views in setting.views.items():
        order = views.rank(asked, max(budgets))
        for budget in budgets:
            for k in ks:
                found = np.asarray([recall(row, one[:budget], k) for row, one in zip(exact, order, strict=True)])
                records.append(record(f"rerank, {name}", k, budget, found, views=len(views.vectors)))
        if data.anchors is not None:
            records += from_ranking(setting, f"adacur, {name} first", "adacur@first=dense", data, order)
    return records


def macro_average(runs: Sequence[Records]) -> Records:
    """Average the records of several data sets, each counting the same (ANNCUR table 3a)."""
    grouped: dict[tuple[str, int, float], list[float]] = {}
    for records in runs:
        for one in records:
            grouped.setdefault((one["method"], one["k"], one["x"]), []).append(one["recall"])
    return [
        {"method": method, "k": k, "x": x, "recall": float(np.mean(values)), "sets": len(values)}
        for (method, k, x), values in grouped.items()
        if len(values) == len(runs)
    ]


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
        multi_view,
    )
}
"""Every experiment on scores, by name."""
VECTOR_EXPERIMENTS: Mapping[str, Callable[[ScoreData, int], Records]] = {"exits": exits, "exit-rules": exit_rules}
"""Experiments on vectors alone."""
