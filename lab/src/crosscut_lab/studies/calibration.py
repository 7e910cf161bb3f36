"""Do probabilities hold? Expected calibration error on judged collections that were left out.

The evidence (benchmarks/matrices/evidence.npz) has scores and relevance of thirty candidates a query, of thirteen
collections. Fifty queries of a collection are judged, the others are predicted; and by a calibration of the other
collections, whose base rates are not those of this one.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from crosscut.scorers.calibration import (
    DEPTH,
    Calibration,
    JudgedScores,
    brier_skill,
    calibrate,
    calibration_error,
)
from crosscut.types import Floats
from crosscut_lab.report import Records

QUERIES = 50
SCORERS = {"cross-encoder": "score", "bm25": "best_bm25", "sigmoid": "score"}
"""Column of the evidence."""


def changed(scorer: str, scores: Floats) -> Floats:
    """Return scores on the scale of a scorer: a service may answer between 0 and 1, crowded at the ends."""
    return np.asarray(1 / (1 + np.exp(-(scores - 18) / 4))) if scorer == "sigmoid" else scores


def queries_of(evidence: dict[str, Floats], name: str, scorer: str) -> list[JudgedScores]:
    """Return the ten best items of every test query by one scorer, with their relevance."""
    column = SCORERS[scorer]
    scores = evidence[f"{name}/test/{column}"].astype(np.float64)
    relevant = evidence[f"{name}/test/{'relevant' if column == 'score' else f'{column}_relevant'}"].astype(np.float64)
    made = []
    for row, right in zip(scores, relevant, strict=True):
        there = np.flatnonzero(np.isfinite(row))
        best = there[np.argsort(-row[there], kind="stable")][:DEPTH]
        made.append(JudgedScores(changed(scorer, row[best]), right[best]))
    return made


def outcome(made: Calibration, judged: list[JudgedScores]) -> tuple[float, float]:
    """Return the calibration error and the Brier skill."""
    chance = np.concatenate([made.probabilities(query.scores) for query in judged])
    truth = np.concatenate([query.relevant for query in judged])
    return calibration_error(chance, truth), brier_skill(chance, truth)


def calibration(path: Path, draws: int = 5) -> Records:
    """Return the error of every collection and scorer, with fifty judged queries and with none of its own."""
    records = []
    with np.load(path, allow_pickle=False) as archive:
        evidence = {name: archive[name] for name in archive.files}
    names = sorted({key.split("/")[0] for key in evidence})
    for name in names:
        for scorer in SCORERS:
            judged = queries_of(evidence, name, scorer)
            found = []
            for draw in range(draws):
                order = np.random.default_rng(draw).permutation(len(judged))
                made = calibrate([judged[j] for j in order[:QUERIES]], scorer)
                found.append(outcome(made, [judged[j] for j in order[QUERIES:]]))
            others = [query for other in names if other != name for query in queries_of(evidence, other, scorer)]
            error, skill = outcome(calibrate(others, scorer), judged)
            base = float(np.mean([query.relevant.mean() for query in judged]))
            mean = np.mean(found, axis=0)
            records.append(
                {
                    "data": name, "scorer": scorer, "queries": len(judged), "base_rate": base,
                    "error": float(mean[0]), "skill": float(mean[1]),
                    "error_elsewhere": error, "skill_elsewhere": skill,
                }
            )  # fmt: skip
    return records
