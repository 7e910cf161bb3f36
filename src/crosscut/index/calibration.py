"""Probabilities instead of a scorer's own numbers: which calibration applies, and how one is learned for an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.scorers.base import Scorer
from crosscut.scorers.calibration import LEAST, Calibration, JudgedScores, calibrate
from crosscut.search.hits import Hits

Qrels = Mapping[str, Mapping[Any, float]]


def calibration_for(own: Calibration | None, scorer: Scorer | None, threshold: float | None) -> Calibration | None:
    """Return the index's own calibration, if it is for this scorer.

    With a `threshold` one is required, and an error says how to get it.
    """
    fingerprint = "none" if scorer is None else scorer.fingerprint
    if threshold is None:
        return own if own is not None and own.fingerprint == fingerprint else None
    number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
    if not (number and 0 <= threshold <= 1):
        raise InputError(f"a threshold is a probability, 0 … 1; got {threshold!r}")
    return required(own, fingerprint, f"threshold={threshold}")


def required(found: Calibration | None, fingerprint: str, what: str) -> Calibration:
    """Return a calibration of the scorer with this fingerprint, or raise an error that says how to get one."""
    if found is None:
        raise InputError(
            f"{what} needs an index that is calibrated: index.calibrate({{query: {{id: 1}}, …}}), or "
            "crosscut calibrate my.index"
        )
    found.check(fingerprint)
    return found


def calibrate_by_judgements(qrels: Qrels, search: Callable[[list[str]], list[Hits]], scorer: Scorer) -> Calibration:
    """Learn from judged queries: of the best hits of each, those judged relevant are, all others are not."""
    right = sum(any(gain > 0 for gain in each.values()) for each in qrels.values())
    if len(qrels) < LEAST or not right:
        raise InputError(
            f"{len(qrels)} judged queries, {right} of them with something relevant, are too few to "
            f"calibrate on: {LEAST} queries are needed, and relevant items"
        )
    found = search(list(qrels))
    judged = [
        JudgedScores(hits.scores, np.array([float(gains.get(hit.id, 0) > 0) for hit in hits]))
        for hits, gains in zip(found, qrels.values(), strict=True)
    ]
    return calibrate(judged, scorer.fingerprint, sum(hits.calls for hits in found))
