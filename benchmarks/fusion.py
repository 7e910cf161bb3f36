"""A guard for any scorer: is `order="fused"` never worse than what is known without it? `python benchmarks/fusion.py`

On the evidence of scripts/evidence.py, 30 candidates a query, two scorers: `good`, the one in the box, and `poor`, its
cross-encoder alone, a black box that is worse than words and vectors on most of these collections. nDCG@10 over test
queries of the scorer's order, of words and vectors without it, of the fusion with its usual weights, and with weights
that fifty judged queries chose (mean over draws; on the other queries). Weights are chosen on train queries
(`--constants`): the scorer's weight beside 1 and 1 whose mean over both scorers and all collections is highest.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.index.tuning import WEIGHTS
from crosscut.measures import paired_interval
from crosscut.search.ranking import Fused, Order
from crosscut.types import Floats

HERE = Path(__file__).parent
SCORERS = {"good": "score", "poor": "costly"}
QUERIES = 50
DISCOUNTS = 1 / np.log2(np.arange(2, 12))


def ndcg(evidence: Any, name: str, part: str, scorer: str, rank: Order | None) -> Floats:
    """nDCG@10 of every query; rank None: by the scorer."""
    columns = {key: evidence[f"{name}/{part}/{key}"].astype(np.float64) for key in ("bm25", "cosine", SCORERS[scorer])}
    right, judged = evidence[f"{name}/{part}/relevant"], evidence[f"{name}/{part}/judged"]
    values = []
    for row in range(len(right)):
        there = np.isfinite(columns["bm25"][row])
        scores = columns[SCORERS[scorer]][row][there]
        free = {"dense": columns["cosine"][row][there], "words": columns["bm25"][row][there]}
        order = np.argsort(-(scores if rank is None else rank.values(scores, free)), kind="stable")[:10]
        gains = right[row][there][order].astype(np.float64)
        ideal = DISCOUNTS[: max(1, min(10, int(judged[row])))].sum()
        values.append(float(gains @ DISCOUNTS[: len(gains)] / ideal))
    return np.array(values)


def tuned(by_rank: dict[Order | None, Floats], draws: int) -> float:
    """The mean on unseen queries of the order that fifty queries chose."""
    size = len(next(iter(by_rank.values())))
    found = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(size)
        best = max(by_rank, key=lambda rank: float(by_rank[rank][order[:QUERIES]].mean()))
        found.append(float(by_rank[best][order[QUERIES:]].mean()))
    return float(np.mean(found))


def measured(evidence: Any, name: str, scorer: str, draws: int) -> dict[str, Any]:
    by_rank: dict[Order | None, Floats] = {
        rank: ndcg(evidence, name, "test", scorer, rank) for rank in (None, Fused(), *WEIGHTS)
    }
    free = ndcg(evidence, name, "test", scorer, Fused(scorer=0.0))
    usual = by_rank[Fused()]
    return {
        "collection": name,
        "scorer": scorer,
        "queries": len(free),
        "by_scorer": round(float(by_rank[None].mean()), 4),
        "without": round(float(free.mean()), 4),
        "fused": round(float(usual.mean()), 4),
        "tuned": round(tuned(by_rank, draws), 4),
        "fused - without": [round(value, 4) for value in paired_interval(usual, free)],
        "fused - by_scorer": [round(value, 4) for value in paired_interval(usual, by_rank[None])],
    }


def constants(evidence: Any) -> dict[str, float]:
    """Mean nDCG@10 on train queries by the scorer's weight."""
    names = sorted({key.split("/")[0] for key in evidence.files if "/choose/" in key})
    return {
        f"{weight:g}": round(
            float(
                np.mean(
                    [
                        ndcg(evidence, name, "choose", scorer, Fused(scorer=weight)).mean()
                        for name in names
                        for scorer in SCORERS
                    ]
                )
            ),
            4,
        )
        for weight in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
    }


def doc_table(told: dict[str, Any]) -> str:
    """The table of docs/lab/relevance.md."""
    lines = ["| scorer | by the scorer | without it | fused | fused, tuned | worse than without |", "|---" * 6 + "|"]
    for scorer, means in told["scorers"].items():
        lines.append(
            f"| {scorer} | {means['by_scorer']:.3f} | {means['without']:.3f} | {means['fused']:.3f} | "
            f"{means['tuned']:.3f} | {len(means['worse'])} of {told['collections']} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", default=HERE / "matrices" / "evidence.npz")
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "fusion.json")
    arguments = parser.parse_args()
    evidence = np.load(arguments.evidence)
    if arguments.constants:
        print(constants(evidence))
        return
    names = sorted({key.split("/")[0] for key in evidence.files})
    records = [measured(evidence, name, scorer, arguments.draws) for scorer in SCORERS for name in names]
    told: dict[str, Any] = {"collections": len(names), "by_weight": constants(evidence), "scorers": {}}
    for scorer in SCORERS:
        own = [record for record in records if record["scorer"] == scorer]
        keys = ("by_scorer", "without", "fused", "tuned")
        told["scorers"][scorer] = {
            **{key: round(float(np.mean([record[key] for record in own])), 4) for key in keys},
            "worse": [record["collection"] for record in own if record["fused - without"][2] < 0],
        }
    told["records"] = records
    arguments.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(doc_table(told))


if __name__ == "__main__":
    main()
