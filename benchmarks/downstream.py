"""The papers' downstream results: what a search is for, against its budget. `python benchmarks/downstream.py`

k-NN recall says how much of the scorer's answer a search finds. This says whether the answer is right (AXN fig. 3,
ANNCUR §3.1): entity-linking accuracy (the first hit is the gold entity) and nDCG@10 of *search methods*, with the exact
search as the ceiling that the scorer sets. Differences to the exact search are paired over queries. Queries of the
WordNet matrices name their gold synset; `--data` has judgements of the others, and one more matrix if it holds
`gold_test`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from crosscut.evaluation.world import World, make_world

from crosscut.datasets.beir import read_judgements
from crosscut.datasets.files import find
from crosscut.measures import interval, paired_interval, recall
from crosscut.types import Floats

HERE = Path(__file__).parent
METHODS = ("rnr", "anncur", "adacur@first=dense", "axn", "crosscut")
BUDGETS = (10, 20, 50, 100, 200, 500)
WITHOUT = "crosscut, no anchors"
NAMES = ("wordnet-time", "wordnet-feeling", "wordnet-verb-emotion", "squad-sentences", "wordnet-cognition")
DISCOUNTS = 1 / np.log2(np.arange(2, 12))


def gold_of(name: str, arrays: Any, data: Path | None) -> list[set[int]]:
    """Places of the right items of every test query."""
    if "gold_test" in arrays:
        return [{int(place)} for place in arrays["gold_test"]]
    places = {str(id): place for place, id in enumerate(arrays["item_ids"])}
    ids = [str(id) for id in arrays["test_ids"]]
    if name.startswith("wordnet"):
        return [{places[id.rpartition(".")[0]]} for id in ids]
    if data is None:
        raise SystemExit(f"{name} needs --data, the folder of its judgements")
    right: dict[str, set[int]] = {id: set() for id in ids}
    for judgement in read_judgements(find(data / name.replace("-", "_"), "qrels.tsv")):
        if judgement.query_id in right and judgement.item_id in places:
            right[judgement.query_id].add(places[judgement.item_id])
    return [right[id] for id in ids]


def ndcg(found: npt.NDArray[np.int64], right: set[int]) -> float:
    gains = np.array([place in right for place in found[:10].tolist()], np.float64)
    return float(gains @ DISCOUNTS[: len(gains)] / DISCOUNTS[: min(10, len(right))].sum()) if right else 0.0


def measured(world: World, method: str, budget: int | None, gold: list[set[int]]) -> dict[str, Floats]:
    """Accuracy, nDCG@10 and recall of the scorer's own best ten, of every query."""
    hits = world.search(world.searcher(method), 10, budget)
    found = [np.array([hit.position for hit in one]) for one in hits]
    return {
        "accuracy": np.array([float(int(one[0]) in right) for one, right in zip(found, gold, strict=True)]),
        "nDCG@10": np.array([ndcg(one, right) for one, right in zip(found, gold, strict=True)]),
        "recall@10": np.array(
            [recall(row.astype(np.float64), one.scored, 10) for row, one in zip(world.test, hits, strict=True)]
        ),
    }


def records_of(name: str, path: Path, data: Path | None) -> list[dict[str, Any]]:
    with np.load(path, allow_pickle=False) as arrays:
        parts = {key: arrays[key] for key in ("query_vectors", "anchor_query_vectors", "vectors")}
        world = make_world(arrays["test"], arrays["train"], **parts)
        gold = gold_of(name, arrays, data)
    plain = World(world.test, None, world.vectors, world.query_vectors)
    exact = measured(world, "exact", None, gold)
    made = []
    cases: list[tuple[str, int | None]] = [("exact", None)]
    cases += [(method, budget) for method in (*METHODS, WITHOUT) for budget in BUDGETS if budget <= world.test.shape[1]]
    for method, budget in cases:
        own, called = (plain, "crosscut") if method == WITHOUT else (world, method)
        values = exact if method == "exact" else measured(own, called, budget, gold)
        record: dict[str, Any] = {
            "world": name,
            "items": world.test.shape[1],
            "queries": len(gold),
            "method": method,
            "calls": world.test.shape[1] if budget is None else budget,
        }
        for measure, each in values.items():
            record[measure] = [round(float(value), 4) for value in (each.mean(), *interval(each))]
            record[f"{measure} - exact"] = [round(value, 4) for value in paired_interval(each, exact[measure])]
        made.append(record)
    return made


def doc_table(told: dict[str, Any], budgets: tuple[int, ...] = (20, 50, 100)) -> str:
    """The table of docs/lab/relevance.md: accuracy or nDCG@10 of every method, and of the exact search."""
    records = told["records"]
    found = {(r["world"], r["method"], r["calls"]): r for r in records}
    worlds = list(dict.fromkeys(r["world"] for r in records))
    exact = {r["world"]: r for r in records if r["method"] == "exact"}
    lines = [
        "| world, items | measure | method | " + " | ".join(f"{budget} calls" for budget in budgets) + " | exact |",
        "|---" * (len(budgets) + 4) + "|",
    ]
    for world in worlds:
        measure = "nDCG@10" if world.startswith("squad") else "accuracy"
        for method in (*METHODS, WITHOUT):
            cells = [found[world, method, budget][measure][0] for budget in budgets]
            lines.append(
                f"| {world}, {exact[world]['items']:,} | {measure} | {method} | "
                + " | ".join(f"{cell:.3f}" for cell in cells)
                + f" | {exact[world][measure][0]:.3f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--json", type=Path, default=HERE / "results" / "downstream.json")
    arguments = parser.parse_args()
    records: list[dict[str, Any]] = []
    for name in NAMES:
        places = [HERE / "matrices" / f"{name}.npz"]
        places += [] if arguments.data is None else [arguments.data / "scores" / f"{name}.npz"]
        path = next((place for place in places if place.is_file()), None)
        if path is not None:
            records += records_of(name, path, arguments.data)
            print(name, flush=True)
    told = {"command": "python benchmarks/downstream.py --data DATA", "records": records}
    arguments.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(doc_table(told))


if __name__ == "__main__":
    main()
