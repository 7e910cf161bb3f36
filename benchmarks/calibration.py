"""Do probabilities keep their word? `python benchmarks/calibration.py [EVIDENCE]` writes results/calibration.json

EVIDENCE (scripts/evidence.py; benchmarks/matrices/evidence.npz) has scores and judgements of twelve collections. Three
scorers: the one in the box, BM25, and the box's put on another scale (a sigmoid of it, as some services answer), all
over the ten best items of each query. Fifty queries are judged, the rest are asked what became of the probabilities:
expected calibration error in ten bins of equal size, Brier skill, and of the hits with a probability of .4 … .6 the
share that is relevant. Means over `--draws` draws of the fifty. The same without any judgement: constants that were
learned on train queries of the collections that may be trained on (`--constants` prints them).

The scorer in the box ships with a calibration of its own, learned on the same train queries (`--box` writes it). What
that does for a collection that nobody has judged: learned without the collection, asked of its test queries; and of
lists of texts as somebody may bring them for reranking, drawn from the thirty candidates.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.scorers.calibration import (
    BOX,
    DEPTH,
    EMPTY,
    LISTED,
    SHAPE,
    Calibration,
    Curve,
    JudgedScores,
    against_random,
    brier_skill,
    calibrate,
    calibration_error,
    learned,
)
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.types import Floats

HERE = Path(__file__).parent
EVALUATED = ("classic", "wikiqa", "reuters", "rfc")
"""Collections that nothing was trained on; the others were left out of the weights that judge them."""
QUERIES = 50
RIDGE = 3.0
LENGTHS = (2, 5, 10, 20, 30)
"""Of lists for reranking."""


def squashed(scores: Floats) -> Floats:
    """A service's way to answer: between 0 and 1, and crowded at the ends."""
    return np.asarray(1 / (1 + np.exp(-(scores - 18) / 4)))


SCORERS: dict[str, tuple[str, int, Callable[[Floats], Floats]]] = {
    "box": ("score", 0, lambda scores: scores),
    "bm25": ("best_bm25", 1, lambda scores: scores),
    "sigmoid": ("score", 0, squashed),
}
"""Column of the evidence, column of the random pairs, and what is done to either."""


def queries_of(evidence: Any, name: str, part: str, scorer: str) -> list[JudgedScores]:
    """The ten best items of every query by one scorer."""
    column, _, change = SCORERS[scorer]
    scores = evidence[f"{name}/{part}/{column}"].astype(np.float64)
    right = evidence[f"{name}/{part}/{'relevant' if column == 'score' else f'{column}_relevant'}"].astype(np.float64)
    made = []
    for own, relevant in zip(scores, right, strict=True):
        there = np.flatnonzero(np.isfinite(own))
        best = there[np.argsort(-own[there], kind="stable")][:DEPTH]
        made.append(JudgedScores(change(own[best]), relevant[best]))
    return made


def outcome(curve: Curve, judged: list[JudgedScores]) -> tuple[float, float, int, float]:
    """Calibration error, Brier skill, hits in the middle and how many of them are relevant."""
    chance = np.concatenate([curve.chance(query.scores) for query in judged])
    truth = np.concatenate([query.relevant for query in judged])
    middle = (chance >= 0.4) & (chance <= 0.6)
    return calibration_error(chance, truth), brier_skill(chance, truth), int(middle.sum()), float(truth[middle].sum())


def measured(evidence: Any, name: str, scorer: str, draws: int) -> dict[str, Any]:
    """One scorer on one collection, with fifty judged queries and with none."""
    judged = queries_of(evidence, name, "test", scorer)
    found = []
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(judged))
        made = calibrate([judged[j] for j in order[:QUERIES]], scorer)
        found.append(outcome(made.among, [judged[j] for j in order[QUERIES:]]))
    error, skill, middle, right = (np.array(column) for column in zip(*found, strict=True))
    _, place, change = SCORERS[scorer]
    guess = against_random(change(evidence[f"{name}/random"][:, place].astype(np.float64)), scorer)
    apart = outcome(guess.among, judged)
    return {
        "collection": name,
        "scorer": scorer,
        "queries": len(judged),
        "base_rate": round(float(np.mean([query.relevant.mean() for query in judged])), 4),
        "error": round(float(error.mean()), 4),
        "error_spread": round(float(error.std()), 4),
        "skill": round(float(skill.mean()), 4),
        "skill_least": round(float(skill.min()), 4),
        "middle": int(middle.sum()),
        "middle_relevant": round(float(right.sum() / max(middle.sum(), 1)), 4),
        "guess_error": round(apart[0], 4),
        "guess_skill": round(apart[1], 4),
    }


def constants(evidence: Any) -> dict[str, Any]:
    """What `crosscut.scorers.calibration` has as constants: learned on train queries, scorers and collections alike."""
    names = sorted({key.split("/")[0] for key in evidence.files if "/choose/" in key})
    curves, alone = [], []
    for name in names:
        for scorer, (_, place, change) in SCORERS.items():
            judged = queries_of(evidence, name, "choose", scorer)
            curves.append(learned(judged, "shape", 1.0))
            random = change(evidence[f"{name}/random"][:, place].astype(np.float64))
            moved = [JudgedScores((query.scores - random.mean()) / random.std(), query.relevant) for query in judged]
            alone.append(learned(moved, "score", 1.0))
    raw = [plain(curve) for curve in curves]
    by_score = [plain(curve) for curve in alone]
    return {
        "shape": [round(float(value), 3) for value in np.mean(raw, 0)],
        "score": [round(float(value), 3) for value in np.median(by_score, 0)],
        "cut": {length: cut_constants(evidence, names, length) for length in range(2, DEPTH)},
        "collections": names,
    }


def cut_constants(evidence: Any, names: list[str], length: int) -> list[float]:
    """Of the best scores of ten: how much wider all ten spread, and how far below lies their mean, in that spread."""
    found = []
    for scorer in SCORERS:
        lists = [query.scores for name in names for query in queries_of(evidence, name, "choose", scorer)]
        rows = np.array([scores for scores in lists if len(scores) == DEPTH and scores.std() > 0])
        best, spread = rows[:, :length], rows.std(1)
        wider = np.median(spread / np.maximum(best.std(1), EMPTY))
        found.append([wider, np.median((best.mean(1) - rows.mean(1)) / spread)])
    return [round(float(value), 2) for value in np.mean(found, 0)]


def cut_short(evidence: Any, name: str, length: int) -> dict[str, float]:
    """Test queries of a collection that was left out, of which a search has found the best few: with what is made of
    that, and as if there were no more."""
    among, _, _ = box_curves(evidence, without=name)
    judged = queries_of(evidence, name, "test", "box")
    some = [JudgedScores(query.scores[:length], query.relevant[:length]) for query in judged]
    truth = np.concatenate([query.relevant for query in some])
    told = {"length": float(length), "first": float(np.mean([query.relevant[0] for query in some]))}
    for cut, what in ((True, "cut"), (False, "whole")):
        said = [among.chance(query.scores, cut=cut) for query in some]
        told[f"{what}_error"] = calibration_error(np.concatenate(said), truth)
        told[f"{what}_skill"] = brier_skill(np.concatenate(said), truth)
        told[f"{what}_first"] = float(np.mean([chance[0] for chance in said]))
    return told


def box_curves(evidence: Any, without: str = "") -> tuple[Curve, Curve, list[JudgedScores]]:
    """The box's curves from train queries of all collections but one: among others, alone, and what they saw."""
    names = sorted({key.split("/")[0] for key in evidence.files if "/choose/" in key} - {without})
    judged = [query for name in names for query in queries_of(evidence, name, "choose", "box")]
    return learned(judged, "level", RIDGE), learned(judged, "score", RIDGE), judged


def box_record(evidence: Any, name: str) -> dict[str, Any]:
    """What the shipped way of learning does for a collection it has not seen."""
    among, alone, _ = box_curves(evidence, without=name)
    judged = queries_of(evidence, name, "test", "box")
    error, skill, middle, right = outcome(among, judged)
    return {
        "collection": name,
        "queries": len(judged),
        "base_rate": round(float(np.mean([query.relevant.mean() for query in judged])), 4),
        "error": round(error, 4),
        "skill": round(skill, 4),
        "middle": middle,
        "middle_relevant": round(right / max(middle, 1), 4),
        "lists": {str(length): listed(evidence, name, among, alone, length) for length in LENGTHS},
    }


def listed(evidence: Any, name: str, among: Curve, alone: Curve, length: int) -> dict[str, float]:
    """Error and skill of lists of some candidates, by either curve, and by the one that reranking takes."""
    rng = np.random.default_rng(0)
    said: dict[str, list[Floats]] = {"among": [], "alone": []}
    truth = []
    columns = (evidence[f"{name}/test/{column}"].astype(np.float64) for column in ("score", "relevant"))
    for own, relevant in zip(*columns, strict=True):
        some = rng.permutation(np.flatnonzero(np.isfinite(own)))[:length]
        said["among"].append(among.chance(own[some]))
        said["alone"].append(alone.chance(own[some]))
        truth.append(relevant[some])
    right = np.concatenate(truth)
    made = {}
    for kind, values in said.items():
        made[f"{kind}_error"] = round(calibration_error(np.concatenate(values), right), 4)
        made[f"{kind}_skill"] = round(brier_skill(np.concatenate(values), right), 4)
    taken = "among" if length >= LISTED else "alone"
    return {**made, "error": made[f"{taken}_error"], "skill": made[f"{taken}_skill"]}


def box_told(evidence: Any, names: list[str]) -> dict[str, Any]:
    """All collections, and their means."""
    records = [box_record(evidence, name) for name in names]
    middle = sum(record["middle"] for record in records)
    lists = {
        str(length): {
            key: round(float(np.mean([record["lists"][str(length)][key] for record in records])), 4)
            for key in records[0]["lists"][str(length)]
        }
        for length in LENGTHS
    }
    return {
        "error": round(float(np.mean([record["error"] for record in records])), 4),
        "skill": round(float(np.mean([record["skill"] for record in records])), 4),
        "middle_relevant": round(sum(r["middle"] * r["middle_relevant"] for r in records) / max(middle, 1), 4),
        "lists": lists,
        "records": records,
    }


def shipped(evidence: Any, told: dict[str, Any]) -> Calibration:
    """The calibration in the box; its error and skill are those on collections left out."""
    among, alone, judged = box_curves(evidence)
    return Calibration(
        OnnxCrossEncoder.load(threads=1).weights_fingerprint,
        among,
        alone,
        queries=len(judged),
        relevant=int(sum(query.relevant.sum() for query in judged)),
        error=told["error"],
        skill=told["skill"],
        notes=("learned on other collections",),
    )


def plain(curve: Curve) -> list[float]:
    """Weights and level without standardisation."""
    weights = np.array(curve.weights) / np.array(curve.scale)
    return [*weights, curve.level - float(weights @ np.array(curve.mean))]


def together(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over collections, and the worst of them."""
    middle = sum(record["middle"] for record in records)
    right = sum(record["middle"] * record["middle_relevant"] for record in records)
    return {
        "error": round(float(np.mean([record["error"] for record in records])), 4),
        "error_most": max(records, key=lambda record: record["error"])["collection"],
        "over_0.05": [record["collection"] for record in records if record["error"] > 0.05],
        "skill": round(float(np.mean([record["skill"] for record in records])), 4),
        "skill_not_positive": [record["collection"] for record in records if record["skill"] <= 0],
        "middle": middle,
        "middle_relevant": round(right / max(middle, 1), 4),
        "guess_error": round(float(np.mean([record["guess_error"] for record in records])), 4),
        "guess_skill": round(float(np.mean([record["guess_skill"] for record in records])), 4),
    }


def doc_table(told: dict[str, Any]) -> str:
    """The table of docs/lab/relevance.md."""
    lines = [
        "| scorer | error | largest | skill | middle | without judgements: error | skill |",
        "|---|---|---|---|---|---|---|",
    ]
    for scorer, means in told["scorers"].items():
        own = {record["collection"]: record for record in told["records"] if record["scorer"] == scorer}
        worst = means["error_most"]
        lines.append(
            f"| {scorer} | {means['error']:.3f} | {own[worst]['error']:.3f} ({worst}) | {means['skill']:.3f} | "
            f"{means['middle_relevant']:.3f} | {means['guess_error']:.3f} | {means['guess_skill']:.3f} |"
        )
    return "\n".join(lines)


def box_table(told: dict[str, Any]) -> str:
    """The tables of docs/lab/relevance.md on the calibration in the box."""
    own = told["box"]
    lines = ["| collection left out | queries | hits that are relevant | error | skill |", "|---|---|---|---|---|"]
    for one in own["records"]:
        values = " | ".join(f"{one[key]:.3f}" for key in ("base_rate", "error", "skill"))
        lines.append(f"| {one['collection']} | {one['queries']} | {values} |")
    lines += [f"| **mean** | | | {own['error']:.3f} | {own['skill']:.3f} |", ""]
    lines += ["| texts to rerank | error | skill |", "|---|---|---|"]
    lines += [f"| {length} | {one['error']:.3f} | {one['skill']:.3f} |" for length, one in own["lists"].items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("evidence", type=Path, nargs="?", default=HERE / "matrices" / "evidence.npz")
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--cut", action="store_true", help="print what becomes of searches of fewer than ten calls")
    parser.add_argument("--box", action="store_true", help="also write the calibration that ships")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "calibration.json")
    arguments = parser.parse_args()
    evidence = np.load(arguments.evidence)
    if arguments.constants:
        print(json.dumps(constants(evidence), indent=1))
        return
    names = sorted({key.split("/")[0] for key in evidence.files})
    if arguments.cut:
        for length in (2, 3, 5, 7, 9):
            each = [cut_short(evidence, name, length) for name in names]
            print(json.dumps({key: round(float(np.mean([one[key] for one in each])), 3) for key in each[0]}))
        return
    records = [measured(evidence, name, scorer, arguments.draws) for scorer in SCORERS for name in names]
    told = {
        "judged_queries": QUERIES,
        "draws": arguments.draws,
        "constants": {"shape": [*SHAPE.weights, SHAPE.level]},
        "scorers": {scorer: together([r for r in records if r["scorer"] == scorer]) for scorer in SCORERS},
        "box": box_told(evidence, names),
        "never_trained_on": list(EVALUATED),
        "records": records,
    }
    arguments.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(doc_table(told), box_table(told), sep="\n\n")
    if arguments.box:
        BOX.write_text(json.dumps(shipped(evidence, told["box"]).json(), indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
