"""Fill README and docs with tables, figures and a picture from the committed results: `python benchmarks/figures.py`.

A page asks for a table by a pair of comments, `<!-- figures: recall -->` … `<!-- end -->`, and for a number
within a sentence by `<!-- figure: name -->71 %<!-- end -->`. With --check nothing is written: it ends in an error where
something differs.
"""

from __future__ import annotations

import argparse
import functools
import json
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks/results"
RECALL = RESULTS / "reproduction-squad-sentences.json"
LOOP = RESULTS / "loop.json"
HUB = RESULTS / "hub_scorer.json"
OPERATIONS = RESULTS / "operations.json"
SEARCH = RESULTS / "relevance-search.json"
PRECISION = RESULTS / "models_precision.json"
PICTURE = ROOT / "docs/images/misses.svg"
COLUMNS = ((1, 50), (1, 100), (10, 50), (10, 100), (10, 200), (100, 200), (100, 500))
NAMES = {
    "rnr": "retrieve and rerank",
    "anncur": "ANNCUR",
    "adacur": "ADACUR",
    "adacur@first=dense": "ADACUR, encoder first",
    "axn": "AXN, encoder vectors",
    "crosscut, no anchors": "**crosscut**, no anchor scores",
    "crosscut": "**crosscut**",
}
CASES = (
    (10_000, 500, 500, 100, 1, "7 ms"),
    (100_000, 384, 500, 10, 1, "2 ms"),
    (100_000, 384, 500, 10, 64, "2 ms"),
    (1_000_000, 384, 500, 10, 1, "2 ms"),
)
README = RESULTS / "readme.json"
# The picture: at these budgets, k = 10.
BUDGETS = (50, 100, 200)
BARS = {
    "rnr": "reranking",
    "hybrid": "reranking, vectors and words",
    "axn, tuned": "AXN, tuned",
    "crosscut": "crosscut",
    "crosscut, past searches": "crosscut, after past searches",
}
AT_SIZE = {
    "rnr": "retrieve and rerank, vectors",
    "hybrid": "retrieve and rerank, vectors and words",
    "axn": "AXN, as it comes",
    "axn, tuned": "AXN; λ, α, β tuned",
    "crosscut": "**crosscut**",
    "crosscut, past searches": "**crosscut**, after 180 past searches",
    "crosscut, train queries": "**crosscut**, with scores of 20 train queries",
}


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def recall_table() -> str:
    records = _records(RECALL)
    rows = [[name, *(f"{records[method, *column]:.3f}" for column in COLUMNS)] for method, name in NAMES.items()]
    return table(["", *(f"k={k}, {budget} calls" for k, budget in COLUMNS)], rows)


def sizes_table() -> str:
    sizes = json.loads(OPERATIONS.read_text())["sizes"]
    rows = [
        [
            f"{int(n):,}",
            *(f"{one[f'mb_{name}']:.0f} MB" for name in ("on_disk", "loaded", "after_searches")),
            *(f"{one[name]:.0f} ms" for name in ("p50_ms", "p95_ms")),
        ]
        for n, one in sizes.items()
    ]
    return table(["items", "on disk", "memory, loaded", "memory, after searches", "a search, median", "95 %"], rows)


def operations(name: str) -> str:
    """What was measured of a server that changes."""
    told = json.loads(OPERATIONS.read_text())
    added = told["add"]
    return {
        "mixed": f"{told['mixed']['ratio']:.2f}×",
        "reload": f"{told['reload']['searches']:,} searches, {told['reload']['errors']} errors",
        "add": f"{added['seconds']:.1f} s, {added['errors']} errors",
    }[name]


def soaked() -> str:
    """Kills and damage."""
    told = json.loads((RESULTS / "soak.json").read_text())
    return (
        f"{told['stopped']:,} times a command was stopped and {told['damaged']:,} times a file was damaged; "
        f"{sum(told['bad'].values())} times something was lost, locked, crashed or silently different"
    )


def loop_table() -> str:
    cases: dict[Any, Any] = {
        (c["method"], c["n"], c["d"], c["budget"], c["rounds"], c["batch"]): c
        for c in json.loads(LOOP.read_text())["cases"]
    }
    rows = []
    for n, d, budget, rounds, batch, price in CASES:
        key = (n, d, budget, rounds, batch)
        share = [100 * cases[method, *key]["share_of_scorer_time"][price] for method in ("axn", "crosscut")]
        rival = cases.get(("transcription", *key))
        plain = "–" if rival is None else f"{100 * rival['share_of_scorer_time'][price]:.0f} %"
        what = f"{n:,} items, d = {d}, {budget} calls in {rounds} rounds, " + (
            "one query" if batch == 1 else f"{batch} queries"
        )
        rows.append([what, price, f"{share[0]:.1f} %", f"{share[1]:.1f} %", plain])
    return table(["", "a call takes", "axn", "crosscut", "plain numpy"], rows)


def hub_table() -> str:
    """A hub model on a CPU: ours and sentence-transformers' ONNX backend, as multiples of `predict`."""
    keys = ("CrossEncoder, onnx backend", "crosscut, float32", "crosscut, int8")
    rows = []
    for one in json.loads(HUB.read_text())["rows"]:
        times = [f"{one['times_predict'][key]:.2f}×" for key in keys]
        rows.append([one["model"], str(one["threads"]), str(one["items"]), *times])
    heads = ["model, same weights", "threads", "pairs", "`predict`'s ONNX backend", "crosscut, fp32"]
    return table([*heads, "crosscut, int8"], rows)


def int8_table() -> str:
    """What eight bits keep of each top 10, and how much faster they are."""
    rows = []
    for one in json.loads(HUB.read_text())["int8"]:
        for name, way in one["ways"].items():
            times = f"{way['times_predict']:.2f}×" if "times_predict" in way else "–"
            kept = f"{way['top10_kept']:.3f}"
            rows += [[one["model"], name, kept, f"{way['times_float32']:.2f}×", times]] if "int8" in name else []
    return table(["model", "", "kept of each top 10", "against crosscut, fp32", "against `predict`"], rows)


def search_table() -> str:
    """What searches with the scorer in the box cost and find, collection by collection."""
    rows = []
    for one in json.loads(SEARCH.read_text())["collections"]:
        runs, gap = one["runs"], one["ndcg differences"]
        cells = [one["collection"], f"{one['items']:,}", str(one["queries"]), f"{runs['default']['calls'][0]:.1f}"]
        cells += [f"{runs[run]['recall'][0]:.3f}" for run in ("default", "20", "30")]
        cells += [f"{runs[run]['ndcg'][0]:.3f}" for run in ("known", "default", "20", "200", "rnr")]
        cells += ["{:+.3f} [{:+.3f}, {:+.3f}]".format(*gap[pair]) for pair in ("200 - 20", "default - rnr")]
        rows.append(cells)
    header = ["", "items", "queries", "calls, default", "recall, default", "20 calls", "30 calls"]
    header += ["nDCG@10, no call", "default", "20 calls", "200 calls", "rnr, 100 calls", "200 − 20", "default − rnr"]
    return table(header, rows)


def precision_table() -> str:
    """Products of whole numbers against float32."""
    rows = []
    for one in json.loads(PRECISION.read_text())["collections"]:
        reading, scoring = one["tokens per CPU second"], one["pairs per CPU second"]
        cells = [one["collection"], f"{one['tokens'] / one['items']:.0f}"]
        cells += [f"{reading['float32']:,} → {reading['whole numbers']:,}", f"{one['reading, times as fast']:.2f}×"]
        cells += [f"{scoring['float32']:,} → {scoring['whole numbers']:,}", f"{one['scoring, times as fast']:.2f}×"]
        cells += [f"{one['top 10 of f kept']:.3f}", f"{one['nDCG@10 of f']['float32']:.3f}"]
        cells += ["{:+.3f} [{:+.3f}, {:+.3f}]".format(*one["nDCG@10 of f, whole - float32"])]
        rows.append(cells)
    header = ["", "tokens an item", "tokens read a CPU second", "", "pairs scored a CPU second", "", "top 10 kept"]
    return table([*header, "nDCG@10, float32", "whole numbers − float32"], rows)


def scale_table() -> str:
    """What an index of millions costs, size by size."""
    told = json.loads((RESULTS / "scale.json").read_text())
    runs, sizes = told["items"], sorted(told["items"], key=int)

    def median(stage: str, name: str) -> Callable[[Any], str]:
        return lambda run: f"{run[stage][name]['median']:.0f} ms"

    def seconds(stage: str, name: str) -> Callable[[Any], str]:
        return lambda run: f"{run[stage][name]:.1f} s"

    lines: dict[str, Callable[[Any], str]] = {
        "on disk": lambda run: f"{run['build']['bytes'] / 1e9:.1f} GB",
        "build": lambda run: f"{run['build']['seconds'] / 60:.0f} min",
        "load": seconds("load", "seconds"),
        "a search outside the scorer": median("search", "warm_ms"),
        "… first touch": median("search", "fresh_ms"),
        "… filtered (a third passes)": median("filter", "filtered_ms"),
        "… filtered, over unfiltered in turn": lambda run: f"{run['filter']['ratio']:.1f}×",
        "add 1,000 items with vectors": seconds("add", "add_seconds"),
        "remove 1,000 items": seconds("remove", "remove_seconds"),
        "… a search after it": median("remove", "search_ms"),
        "save after either": lambda run: f"{max(run[name]['save_seconds'] for name in ('add', 'remove')):.1f} s",
        "memory, building": lambda run: _memory(run["build"]),
        "memory, the other stages": lambda run: _memory(
            max((run[name] for name in ("load", "search", "filter", "add", "remove")), key=_peak)
        ),
    }
    rows = [[name, *(cell(runs[size]) for size in sizes)] for name, cell in lines.items()]
    return table(["", *(f"{int(size):,} items" for size in sizes)], rows)


def largest(name: str) -> str:
    """What ten million items cost, for a sentence."""
    run = json.loads((RESULTS / "scale.json").read_text())["items"]["10000000"]
    return {
        "on disk": f"{run['build']['bytes'] / 1e9:.1f} GB",
        "built": f"{run['build']['seconds'] / 60:.0f} min",
        "loaded": f"{run['load']['seconds']:.1f} s",
        "searched": f"{run['search']['warm_ms']['median']:.0f} ms",
        "first searched": f"{run['search']['fresh_ms']['median']:.0f} ms",
        "added": f"{run['add']['add_seconds']:.1f} s",
    }[name]


def in_store(store: str, mode: str) -> str:
    """Milliseconds of a search in a store."""
    told = json.loads((RESULTS / "stores.json").read_text())["records"]
    return next(f"{one['client_ms']:.0f} ms" for one in told if (one["store"], one["mode"]) == (store, mode))


def _peak(stage: Any) -> float:
    return float(stage["memory_gb"]["peak"])


def _memory(stage: Any) -> str:
    return f"{_peak(stage):.1f} GB, private {stage['memory_gb']['private']:.1f} GB"


STORES = {"flat array": "flat array", "edge": "Qdrant (edge)", "postgres": "PostgreSQL, pgvector", "lance": "LanceDB"}


def stores_table() -> str:
    """The default method over each store, beside the flat array."""
    rows = []
    for one in json.loads((RESULTS / "stores.json").read_text())["records"]:
        cells = [STORES[one["store"]], one["mode"], f"{one['recall']:.3f}"]
        cells += [f"{one[name]:.3f}" if name in one else "–" for name in ("round_recall_500_excluded",)]
        cells.append(f"{one['client_ms']:.0f} ms" if "client_ms" in one else "–")
        cells += [f"{one[name]:.1f} ms" if name in one else "–" for name in ("translation_ms", "rest_ms")]
        rows.append([*cells, f"{one['peak_mb']:.1f} MB" if "peak_mb" in one else "–"])
    head = ["recall", "of a round, 500 excluded", "in the store", "translating", "outside", "peak of a search"]
    return table(["", "mode", *head], rows)


def rounds_table() -> str:
    """Rounds over lists, beside flat ones: test queries."""
    rows = []
    for one in json.loads((RESULTS / "rounds.json").read_text())["records"]:
        if one["queries"] != "test":
            continue
        flat = one["patience"] is None
        low, high = one["interval"]
        against = "" if flat else f"{one['against_flat']:+.3f} [{low:+.3f}, {high:+.3f}]"
        cells = ["every item" if flat else one["visited_lists"], "" if flat else str(one["patience"])]
        cells += [f"{one['recall']:.3f}", against, "100 %" if flat else f"{100 * one['lists_read']:.1f} %"]
        rows.append([*cells, f"{one['ms']:.0f} ms"])
    return table(["visited lists are", "patience", "recall", "against flat", "lists read a round", "a search"], rows)


def _peak_of_an_eighth() -> str:
    told = json.loads((RESULTS / "stores.json").read_text())["records"]
    return f"{max(one.get('peak_mb_of_an_eighth', 0.0) for one in told):.1f} MB"


EXITS = {
    "chance": "**chance**",
    "reg": "REG",
    "reg+int": "REG+int",
    "classifier+reg+int": "classifier + REG+int",
    "classifier+patience": "classifier + patience",
}


def exits_table() -> str:
    """Early exit over 16,384 lists of a million vectors, rule by rule."""
    told = json.loads((RESULTS / "exits.json").read_text())["tau10"]
    rows = []
    for one in told["rows"]:
        name = f"fixed, N = {told['N']}" if one["name"] == "fixed" else EXITS.get(one["name"], one["name"])
        recalls = [_short(one[key]) for key in ("recall_1", "recall_k", "recall_100", "mrr_10")]
        low, high = one["against_rival_interval"]
        against = (
            "" if one["name"] == "fixed" else f"{_short(one['against_rival'], 2)} [{_short(low, 2)}, {_short(high, 2)}]"
        )
        rows.append([name, *recalls, f"{one['lists']:.1f}", f"{one['vectors']:,.0f}", str(one["rival"]), against])
    limits = told["limits"]
    rows.append(["oracle", _short(limits["oracle_recall_1"]), "", "", "", f"{limits['oracle_lists']:.1f}", "", "", ""])
    return table(["rule", "R*@1", "R*@100", "R@100", "mRR@10", "lists", "vectors", "N′", "lists/N′"], rows)


def _short(value: float, places: int = 3) -> str:
    """.945 for 0.945."""
    return f"{value:.{places}f}".removeprefix("0")


def flights_table() -> str:
    """Rounds, waits and recall by what a scorer answers side by side: the mean over all worlds."""
    rows = []
    for one in json.loads((RESULTS / "flights.json").read_text())["means"]:
        cells = [str(one[name]) for name in ("budget", "in_flight", "rounds")]
        cells.append(f"{one['waits_of_ten_rounds']} → {one['waits']}")
        cells += [f"{one[name]:.3f}" for name in ("recall_in_ten_rounds", "recall")]
        rows.append([*cells, f"{one['worse']} of {one['worlds']}"])
    header = ["calls", "side by side", "rounds", "waits", "recall in ten rounds", "recall", "significantly less"]
    return table(header, rows)


def candidates_table() -> str:
    """Searches over a store with what the scorer knows of candidates, and of the same scorer as a black box."""
    rows = []
    for one in json.loads((RESULTS / "candidates.json").read_text())["collections"]:
        known, few, many = (one["runs"][run] for run in ("known, 100", "black box, 30", "black box, 100"))
        cells = [one["collection"], f"{one['items']:,}", f"{known['calls'][0]:.1f}"]
        cells += [f"{value[0]:.3f}" for value in (known["recall"], few["recall"], many["recall"])]
        cells += [f"{run['ndcg'][0]:.3f}" for run in (known, many)]
        rows.append([*cells, *(f"{run['seconds'][0]:.2f} s" for run in (known, many))])
    header = ["", "items", "calls", "recall", "black box, 30 calls", "black box, 100 calls", "nDCG@10"]
    return table([*header, "black box, 100 calls", "CPU a search", "black box, 100 calls"], rows)


def accuracy(model: str) -> str:
    """Accuracy@1 over the queries of all held-out worlds."""
    worlds = _models("wordnet")
    right = sum(world["accuracy@1"][model][0] * world["queries"] for world in worlds)
    return f"{100 * right / sum(world['queries'] for world in worlds):.0f} %"


def _models(part: str) -> list[dict[str, Any]]:
    """What was measured of the models in the box: `relevance`, `wordnet` or `scifact`."""
    told: list[dict[str, Any]] = json.loads((RESULTS / f"models_{part}.json").read_text())["collections"]
    return told


def _paired(values: Sequence[float]) -> str:
    return "{:+.3f} [{:+.3f}, {:+.3f}]".format(*values)


ORDERS = ("bm25", "dual", "fusion", "known", "scorer")


def unseen_table() -> str:
    """The scorer in the box on collections that it has not seen."""
    rows = []
    for one in _models("relevance"):
        values = [f"{one[order][0]:.3f}" for order in ORDERS]
        values[-1] = f"**{values[-1]}**"
        gaps = [_paired(one[f"scorer - {other}"]) for other in ("best of three", "known")]
        rows.append([one["collection"], f"{one['items']:,}", str(one["queries"]), *values, *gaps])
    means = [mean([one[order][0] for one in _models("relevance")]) for order in ORDERS]
    known = mean([one["known - best of three"][0] for one in _models("relevance")])
    gaps = [f"{mean(unseen()):+.3f} (known alone {known:+.3f})", f"{means[-1] - means[-2]:+.3f}"]
    told = [f"{value:.3f}" for value in means]
    rows.append([f"**mean of {len(rows)}**", "", "", *told[:-1], f"**{told[-1]}**", *gaps])
    header = ["BM25", "dual", "fusion", "known alone", "scorer", "scorer − best of three", "scorer − known"]
    return table(["", "items", "queries", *header], rows)


def worlds_table() -> str:
    """Accuracy@1 of the scorer in the box in the held-out worlds of WordNet."""
    rows, worlds = [], _models("wordnet")
    for world in worlds:
        own = world["accuracy@1"]
        name = f"{world['collection'].removeprefix('wn_')}, {world['items']:,} items, {world['queries']} queries"
        values = [f"**{own['scorer'][0]:.3f}**", *(f"{own[order][0]:.3f}" for order in ("known", "dual", "bm25"))]
        rows.append([name, *values, *(_paired(own[f"scorer - {other}"]) for other in ("known", "bm25"))])

    def whole(order: str) -> float:
        right = [one["accuracy@1"][order][0] * one["queries"] for one in worlds]
        return float(sum(right) / sum(one["queries"] for one in worlds))

    scorer, known, dual, bm25 = (whole(order) for order in ("scorer", "known", "dual", "bm25"))
    told = [f"**{scorer:.3f}**", *(f"{value:.3f}" for value in (known, dual, bm25))]
    rows.append(
        [f"all {len(worlds)} worlds, {mentions()} queries", *told, f"{scorer - known:+.3f}", f"{scorer - bm25:+.3f}"]
    )
    return table(["", "scorer", "known alone", "dual", "BM25, mention twice", "scorer − known", "scorer − BM25"], rows)


def claims_table() -> str:
    """SciFact's test claims."""
    (one,) = _models("scifact")
    values = [f"{one[order][0]:.3f}" for order in ORDERS]
    row = [
        f"SciFact test, {one['queries']} claims",
        *values[:-1],
        f"**{values[-1]}**",
        _paired(one["scorer - best of three"]),
    ]
    return table(["nDCG@10", "BM25", "dual", "fusion", "known alone", "scorer", "scorer − best of three"], [row])


def unseen() -> list[float]:
    """Lead in nDCG@10 over the best of BM25, dual encoder and their sum, collection by collection."""
    return [one["scorer - best of three"][0] for one in _models("relevance")]


def mentions() -> str:
    return str(sum(world["queries"] for world in _models("wordnet")))


def found(method: str, budget: int) -> float:
    """Of the ten best of SQuAD's 13,447 sentences, how many are found."""
    return 10 * _records(README)[method, 10, budget]


def readme_table() -> str:
    """The picture's methods and more, at every budget."""
    records = _records(README)
    columns = [(10, 50), (10, 100), (10, 200), (10, 500), (100, 200), (100, 500)]
    rows = [[name, *(f"{records[method, *column]:.3f}" for column in columns)] for method, name in AT_SIZE.items()]
    return table(["", *(f"k={k}, {budget} calls" for k, budget in columns)], rows)


def missed(method: str) -> str:
    """Of the ten best, how many 100 calls do not find."""
    return f"{10 - found(method, 100):.1f}"


TABLES: dict[str, Callable[[], str]] = {
    "recall": recall_table,
    "loop": loop_table,
    "hub": hub_table,
    "int8": int8_table,
    "search": search_table,
    "precision": precision_table,
    "sizes": sizes_table,
    "scale": scale_table,
    "stores": stores_table,
    "rounds": rounds_table,
    "flights": flights_table,
    "candidates": candidates_table,
    "exits": exits_table,
    "readme": readme_table,
    "unseen": unseen_table,
    "worlds": worlds_table,
    "claims": claims_table,
}
FIGURES: dict[str, Callable[[], str]] = {
    **{
        f"ten million, {name}": functools.partial(largest, name)
        for name in ("on disk", "built", "loaded", "searched", "first searched", "added")
    },
    **{
        f"in {STORES[store]}, {mode}": functools.partial(in_store, store, mode)
        for store in ("edge", "postgres")
        for mode in ("exact", "approximate")
    },
    "one client": lambda: f"{json.loads((RESULTS / 'server.json').read_text())['one_client']['p50_ms']:.0f} ms",
    "accuracy of the scorer": lambda: accuracy("scorer"),
    "accuracy of the dual encoder": lambda: accuracy("dual"),
    "accuracy of BM25": lambda: accuracy("bm25"),
    "mentions": mentions,
    "newcomer": lambda: f"{json.loads((RESULTS / 'newcomer.json').read_text())['total_seconds']:.0f} s",
    "mixed settings": lambda: operations("mixed"),
    "reload": lambda: operations("reload"),
    "adding": lambda: operations("add"),
    "soaked": soaked,
    "unseen collections": lambda: str(len(unseen())),
    "lead": lambda: f"+{mean(unseen()):.3f} nDCG@10".replace("+0.", "+."),
    "missed by reranking": lambda: missed("rnr"),
    "missed with words": lambda: missed("hybrid"),
    "missed by AXN": lambda: missed("axn, tuned"),
    "missed by crosscut": lambda: missed("crosscut"),
    "missed after past searches": lambda: missed("crosscut, past searches"),
    "missed with train queries": lambda: missed("crosscut, train queries"),
    "items of the picture": lambda: f"{json.loads(README.read_text())['items']:,}",
    "calls of train queries": lambda: f"{_calls('crosscut, train queries'):,}",
    "peak over an eighth of a store": lambda: _peak_of_an_eighth(),
    "world of the stores": lambda: str(json.loads((RESULTS / "stores.json").read_text())["world"]),
}


def picture() -> str:
    """How many of the scorer's ten best items are found and missed, by budget and method, as an SVG."""
    left, width, bar, gap, top = 306, 364, 20, 6, 64
    lines, y = [], top
    for budget in BUDGETS:
        lines.append(f'<text class="head" x="16" y="{y + 15}">{budget} calls</text>')
        for method, name in BARS.items():
            value = found(method, budget)
            end = left + width * value / 10
            kind = "ours" if method.startswith("crosscut") else "plain"
            missed = f"misses {10 - value:.1f}"
            lines += [
                f'<text class="name" x="{left - 12}" y="{y + 15}">{name}</text>',
                f'<rect class="{kind}" x="{left}" y="{y}" width="{end - left:.1f}" height="{bar}"/>',
                f'<rect class="miss" x="{end:.1f}" y="{y}" width="{left + width - end:.1f}" height="{bar}"/>',
                f'<text class="value" x="{left + 8}" y="{y + 15}">{value:.1f}</text>',
                f'<text class="lost" x="{left + width + 10}" y="{y + 15}">{missed}</text>',
            ]
            y += bar + gap
        y += 18
    told = "; ".join(
        f"{budget} calls: " + ", ".join(f"{name} finds {found(method, budget):.1f}" for method, name in BARS.items())
        for budget in BUDGETS
    )
    style = (
        "text{font:14px system-ui,-apple-system,'Segoe UI',sans-serif;fill:#171b26}"
        ".title{font-size:17px;font-weight:650}.head{font-weight:650}.name{text-anchor:end;fill:#46505f;font-size:13px}.value{fill:#fff;font-weight:650}"
        ".lost{fill:#b3402a;font-size:13px}.plain{fill:#6b7689}.ours{fill:#315fd6}.miss{fill:#f6d5cd}"
    )
    size = f'viewBox="0 0 770 {y}" width="770" height="{y}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-labelledby="title told">',
            f"<style>{style}</style>",
            f'<rect width="770" height="{y}" rx="12" fill="#fff"/>',
            f'<desc id="told">{told}</desc>',
            '<text class="title" id="title" x="16" y="32">Of the ten items that the scorer likes best, found</text>',
            *lines,
            "</svg>\n",
        ]
    )


def filled(text: str) -> str:
    """A page with its tables and figures as the results have them."""
    for name, table_of in TABLES.items():
        block = f"<!-- figures: {name} -->\n{table_of()}\n<!-- end -->"
        text = re.sub(rf"<!-- figures: {name} -->\n.*?<!-- end -->", block, text, flags=re.DOTALL)

    def figure(match: re.Match[str]) -> str:
        if match[1] not in FIGURES:
            raise KeyError(f"a page asks for the figure {match[1]!r}; known are {', '.join(FIGURES)}")
        return f"<!-- figure: {match[1]} -->{FIGURES[match[1]]()}<!-- end -->"

    return re.sub(r"<!-- figure: (.*?) -->.*?<!-- end -->", figure, text, flags=re.DOTALL)


def pages() -> list[Path]:
    """README and every page of docs/ that asks for figures."""
    every = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in every if "<!-- figure" in path.read_text(encoding="utf-8")]


def made() -> dict[Path, str]:
    """What every page, and the picture, should be."""
    return {**{path: filled(path.read_text(encoding="utf-8")) for path in pages()}, PICTURE: picture()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    for path, text in made().items():
        if check and path.read_text(encoding="utf-8") != text:
            sys.exit(f"{path.name} is not what the results say: run benchmarks/figures.py")
        if not check:
            path.write_text(text, encoding="utf-8")


def _calls(method: str) -> int:
    """What its index took."""
    return next(int(r["index_calls"]) for r in json.loads(README.read_text())["records"] if r["method"] == method)


def _records(path: Path) -> dict[tuple[str, int, int], float]:
    return {(r["method"], r["k"], r["budget"]): r["recall"] for r in json.loads(path.read_text())["records"]}


if __name__ == "__main__":
    main()
