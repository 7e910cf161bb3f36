"""Do probabilities hold? Expected calibration error on judged collections that were left out.

The evidence (benchmarks/matrices/evidence.npz) has scores and relevance of thirty candidates a query, of thirteen
collections. Fifty queries of a collection are judged, the others are predicted; and without any judgement.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from crosscut.scorers.calibration import (
    DEPTH,
    JudgedScores,
    against_random,
    brier_skill,
    calibrate,
    calibration_error,
)
from crosscut.types import Floats
from crosscut_lab.report import Records

QUERIES = 50
SCORERS = {"cross-encoder": ("score", 0), "bm25": ("best_bm25", 1), "sigmoid": ("score", 0)}
"""Column of the evidence, and column of the random pairs."""


def changed(scorer: str, scores: Floats) -> Floats:
    """Return scores on the scale of a scorer: a service may answer between 0 and 1, crowded at the ends."""
    return np.asarray(1 / (1 + np.exp(-(scores - 18) / 4))) if scorer == "sigmoid" else scores


def queries_of(evidence: Any, name: str, scorer: str) -> list[JudgedScores]:
    """Return the ten best items of every test query by one scorer, with their relevance."""
    column, _ = SCORERS[scorer]
    scores = evidence[f"{name}/test/{column}"].astype(np.float64)
    relevant = evidence[f"{name}/test/{'relevant' if column == 'score' else f'{column}_relevant'}"].astype(np.float64)
    made = []
    for row, right in zip(scores, relevant, strict=True):
        there = np.flatnonzero(np.isfinite(row))
        best = there[np.argsort(-row[there], kind="stable")][:DEPTH]
        made.append(JudgedScores(changed(scorer, row[best]), right[best]))
    return made


def outcome(curve: Any, judged: list[JudgedScores]) -> tuple[float, float]:
    """Return the calibration error and the Brier skill."""
    chance = np.concatenate([curve.chance(query.scores) for query in judged])
    truth = np.concatenate([query.relevant for query in judged])
    return calibration_error(chance, truth), brier_skill(chance, truth)


def calibration(path: Path, draws: int = 5) -> Records:
    """Return the error of every collection and scorer, with fifty judged queries and with none."""
    records = []
    with np.load(path, allow_pickle=False) as archive:
        evidence = {name: archive[name] for name in archive.files}
    for name in sorted({key.split("/")[0] for key in evidence}):
        for scorer, (_, place) in SCORERS.items():
            judged = queries_of(evidence, name, scorer)
            found = []
            for draw in range(draws):
                order = np.random.default_rng(draw).permutation(len(judged))
                made = calibrate([judged[j] for j in order[:QUERIES]], scorer)
                found.append(outcome(made.among, [judged[j] for j in order[QUERIES:]]))
            random = changed(scorer, evidence[f"{name}/random"][:, place].astype(np.float64))
            error, skill = outcome(against_random(random, scorer).among, judged)
            base = float(np.mean([query.relevant.mean() for query in judged]))
            mean = np.mean(found, axis=0)
            records.append(
                {
                    "data": name, "scorer": scorer, "queries": len(judged), "base_rate": base,
                    "error": float(mean[0]), "skill": float(mean[1]), "error_unjudged": error, "skill_unjudged": skill,
                }
            )  # fmt: skip
    return records
