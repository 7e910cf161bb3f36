"""The papers' questions on one score matrix: tables, plots and raw JSON.

    python benchmarks/reproduction.py --data scores.npz --name wordnet-cognition

writes `benchmarks/results/reproduction-NAME.json`, `docs/reproduction/NAME.md` and plots beside it. The .npz holds
`test`, `train` (anchor queries), `vectors`, `query_vectors` and `anchor_query_vectors`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.oracle import oracle_study
from crosscut.evaluation.report import machine
from crosscut.evaluation.studies import approximation, spectrum
from crosscut.evaluation.world import World, make_world
from rich.progress import track

from crosscut.evaluation import plots
from crosscut.evaluation.replay import Report, replay
from crosscut.measures import paired_interval
from crosscut.methods import ADACUR, Crosscut
from crosscut.storage import write_json

BUDGETS = (50, 100, 200, 500)
KS = (1, 10, 100)
PAPERS = (
    "rnr",
    "anncur",
    "anncur@first=dense",
    "adacur",
    "adacur@first=dense",
    "axn",
    "axn@rounds=10",
    "tour",
    "tour@loss=mse",
)
ROUNDS = (1, 2, 5, 10, 20)
SELECTIONS = ("adacur", "adacur@select=softmax", "adacur@select=random", "adacur@explore=0.2", "adacur@explore=0.5")


def parts(world: World) -> dict[str, Any]:
    return {
        "test": world.test,
        "anchors": world.anchors,
        "vectors": world.vectors,
        "query_vectors": world.query_vectors,
        "anchor_query_vectors": world.anchor_query_vectors,
    }


def renamed(report: Report, names: dict[str, str]) -> list[Any]:
    return [type(r)(**{**r.__dict__, "method": names.get(r.method, r.method)}) for r in report.records]


def main_table(world: World, seeds: int) -> Report:
    """Every paper method, crosscut, and crosscut without one of its two sources."""
    records = list(replay(**parts(world), methods=(*PAPERS, "crosscut"), budgets=BUDGETS, k=KS, seeds=seeds).records)
    tuned = replay(**parts(world), methods=["axn"], budgets=BUDGETS, k=KS, seeds=1, tune_axn=True)
    records += renamed(tuned, {"axn": "axn, λ α β tuned"})
    no_anchors = {**parts(world), "anchors": None, "anchor_query_vectors": None}
    records += renamed(
        replay(**no_anchors, methods=["crosscut"], budgets=BUDGETS, k=KS, seeds=seeds),
        {"crosscut": "crosscut, no anchors"},
    )
    no_encoder = {**parts(world), "vectors": None, "query_vectors": None, "anchor_query_vectors": None}
    records += renamed(
        replay(**no_encoder, methods=["crosscut"], budgets=BUDGETS, k=KS, seeds=seeds),
        {"crosscut": "crosscut, no encoder"},
    )
    return Report(records)


def differences(report: Report) -> list[dict[str, Any]]:
    """crosscut against the paper method that is best at each k and budget (chosen in hindsight: the hardest rival)."""
    rows = []
    for k in KS:
        for budget in BUDGETS:
            rivals = [
                r for r in report.records if (r.k, r.budget) == (k, budget) and not r.method.startswith("crosscut")
            ]
            best = max(rivals, key=lambda r: r.recall)
            ours = report.get("crosscut", k, budget)
            mean, low, high = paired_interval(ours.per_query, best.per_query)
            rows.append({"k": k, "budget": budget, "rival": best.method, "difference": mean, "low": low, "high": high})
    return rows


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def by_cell(records: Sequence[dict[str, Any]]) -> dict[tuple[str, int, int], dict[str, Any]]:
    return {(one["method"], one["k"], one["budget"]): one for one in records}


def recall_rows(records: Sequence[dict[str, Any]], columns: Sequence[tuple[int, int]]) -> list[list[str]]:
    found = by_cell(records)
    best = {c: max(one["recall"] for one in records if (one["k"], one["budget"]) == c) for c in columns}
    rows = []
    for method in dict.fromkeys(one["method"] for one in records):
        cells = []
        for column in columns:
            record = found[method, *column]
            text = f"{record['recall']:.3f} ±{(record['high'] - record['low']) / 2:.3f}"
            cells.append(f"**{text}**" if record["recall"] == best[column] else text)
        rows.append([method, *cells])
    return rows


def oracle_rows(world: World) -> list[dict[str, Any]]:
    """Anchors chosen with sight of the scores: what the approximate scores then retrieve (ADACUR app. C.2)."""
    return oracle_study(world, [100], KS, epsilons=(0.0, 0.25, 0.5, 1.0), splits=(0.3, 0.6))


def oracle_section(oracle: list[dict[str, Any]]) -> list[str]:
    keys = list(dict.fromkeys((row["method"], row["masked"] > 0, row["epsilon"]) for row in oracle))
    found = {(row["method"], row["masked"] > 0, row["epsilon"], row["k"]): row["recall"] for row in oracle}
    return [
        "## Oracle anchor items (B = 100, the better of two splits)\n",
        "Counted: what the approximate scores retrieve, not the anchors themselves; ε: the share drawn at random.\n",
        markdown(
            ["anchors", "top k masked", "ε", *(f"k={k}" for k in KS)],
            [[m, "yes" if x else "no", f"{e:g}", *(f"{found[m, x, e, k]:.3f}" for k in KS)] for m, x, e in keys],
        ),
    ]


def page(name: str, told: dict[str, Any]) -> str:
    """docs/reproduction/NAME.md, of a file of results."""
    columns = [(k, b) for k in KS for b in BUDGETS if b >= k]
    text = [f"# {name}\n", f"Made by `{told['command']}`.\n", "## Top-k-Recall@B\n"]
    text.append(markdown(["method", *(f"k={k}, B={b}" for k, b in columns)], recall_rows(told["records"], columns)))
    text.append("± is half of the 95 % bootstrap interval over test queries.\n")
    text.append(f"![recall against budget]({name}-recall.png)\n")
    text.append("## crosscut against the best paper method of each cell\n")
    text.append(
        markdown(
            ["k", "B", "best paper method", "difference", "95 % interval (paired)"],
            [
                [
                    str(g["k"]),
                    str(g["budget"]),
                    g["rival"],
                    f"{g['difference']:+.3f}",
                    f"{g['low']:+.3f} … {g['high']:+.3f}",
                ]
                for g in told["crosscut_against_best_paper_method"]
                if g["budget"] >= g["k"]
            ],
        )
    )
    text.append("## Rounds\n")
    grid = [(10, 100), (10, 200), (100, 100), (100, 200)]
    rounds = {r: by_cell(told["rounds"][str(r)]) for r in ROUNDS}
    rows = [
        [method, str(r), *(f"{rounds[r][method, k, b]['recall']:.3f}" for k, b in grid)]
        for method in ("adacur@first=dense", "axn", "crosscut")
        for r in ROUNDS
    ]
    text.append(markdown(["method", "R", *(f"k={k}, B={b}" for k, b in grid)], rows))
    text.append(f"![recall against rounds]({name}-rounds.png)\n")
    text.append("## Selection\n")
    grid = [(k, b) for k in KS for b in (100, 200)]
    text.append(markdown(["method", *(f"k={k}, B={b}" for k, b in grid)], recall_rows(told["selection"], grid)))
    text.append("## Rank and approximation\n")
    test = told["spectrum"]["test"]
    text.append(
        f"Numerical rank {test['rank']} of {min(told['queries'], told['items'])}. "
        f"Directions that hold 90 / 95 / 99 % of the energy: {' / '.join(map(str, test['directions'].values()))}; "
        f"after removing each item's mean {' / '.join(map(str, test['centred'].values()))}.\n"
    )
    text.append(
        markdown(
            ["anchor items", "U", "error, all items", *(f"top {k}" for k in KS)],
            [
                [str(a["anchors"]), a["u"], f"{a['error']:.3f}", *(f"{a['top_error'][str(k)]:.3f}" for k in KS)]
                for a in told["approximation"]
            ],
        )
    )
    text.append(f"![spectrum]({name}-spectrum.png)\n")
    text += oracle_section(told["oracle"])
    text.append("## One query\n")
    text.append(
        f"adacur: ![adacur]({name}-one-query-adacur.png)\n\ncrosscut: ![crosscut]({name}-one-query-crosscut.png)\n"
    )
    text.append("## Time\n")
    text.append(f"With a scorer of 2 ms a call: ![time]({name}-time.png)\n")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--oracle", action="store_true", help="make the oracle rows anew, and nothing else")
    parser.add_argument("--docs", type=Path, default=Path("docs/reproduction"))
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        arrays = {name: archive[name].astype(np.float32) for name in ("test", "train", "vectors", "query_vectors")}
        arrays["anchor_query_vectors"] = archive["anchor_query_vectors"].astype(np.float32)
    world = make_world(
        arrays["test"], arrays["train"], arrays["vectors"], arrays["query_vectors"], arrays["anchor_query_vectors"]
    )
    options.docs.mkdir(parents=True, exist_ok=True)
    folder, name = options.docs, options.name
    results = options.results / f"reproduction-{name}.json"
    if options.oracle:
        kept = json.loads(results.read_text("utf-8"))
        write_json(results, {**kept, "oracle": oracle_rows(world)})
        (folder / f"{name}.md").write_text(page(name, json.loads(results.read_text("utf-8"))), encoding="utf-8")
        return

    report = main_table(world, options.seeds)
    gaps = differences(report)
    rounds = {
        r: replay(
            **parts(world),
            methods=["adacur@first=dense", "axn", "crosscut"],
            budgets=[100, 200],
            k=[10, 100],
            rounds=r,
            seeds=1,
        )
        for r in track(ROUNDS, "rounds")
    }
    selection = replay(**parts(world), methods=SELECTIONS, budgets=[100, 200], k=KS, seeds=options.seeds)
    told = {"test": spectrum(world.test).json(), "anchors": spectrum(np.asarray(world.anchors)).json()}
    close = [a.json() for a in approximation(world.test, np.asarray(world.anchors), [25, 50, 100, 200], KS)]
    oracle = oracle_rows(world)

    shown = [
        r for r in report.records if r.method in ("rnr", "anncur", "adacur", "adacur@first=dense", "axn", "crosscut")
    ]
    plots.recall_against_budget(Report(shown), folder / f"{name}-recall.png")
    plots.recall_against_rounds(rounds, folder / f"{name}-rounds.png")
    plots.spectrum_plot({"test": told["test"]["singular_values"]}, folder / f"{name}-spectrum.png")
    for method in (ADACUR(rounds=5), Crosscut(rounds=5)):
        plots.rounds_of_one_query(world, method, 0, 50, folder / f"{name}-one-query-{method.name}.png")
    split = [
        {"label": f"{method}, R={r}", "seconds": {**v.seconds, "scorer": 100 * 0.002}}
        for r in (5, 20)
        for method in ("adacur@first=dense", "axn", "crosscut")
        for v in [rounds[r].get(method, 10, 100)]
    ]
    plots.time_split(split, folder / f"{name}-time.png")

    command = f"python benchmarks/reproduction.py --data {options.data.name} --name {name}"
    write_json(
        results,
        {
            "command": command,
            "machine": machine(),
            "queries": len(world.test),
            "anchors": len(np.asarray(world.anchors)),
            "items": world.test.shape[1],
            "records": report.json(),
            "crosscut_against_best_paper_method": gaps,
            "rounds": {str(r): rep.json() for r, rep in rounds.items()},
            "selection": selection.json(),
            "spectrum": told,
            "approximation": close,
            "oracle": oracle,
        },
    )
    (folder / f"{name}.md").write_text(page(name, json.loads(results.read_text("utf-8"))), encoding="utf-8")


if __name__ == "__main__":
    main()
