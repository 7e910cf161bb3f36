"""Validation of scorer output: what passes here is a finite score, or an error that says what is wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError, ScoreCountError, ScorerError, ScoreValueError
from crosscut.scorers.base import BoundScorer, ScoreResult
from crosscut.types import Array, Floats, Handles

NOT_NUMBERS = "cmMV"
"""Kinds of arrays that numpy would convert to numbers by dropping something: complex, times, records."""


def validate_scores(given: Any, query: Any, handles: Handles) -> ScoreResult:
    """Return a valid result: one finite number per item, or an error.

    `given` is a `ScoreResult`, numbers (a list, an array, a tensor), or an exception. Unless it says otherwise, every
    pair counts as attempted.
    """
    size = len(handles)
    if isinstance(given, ScoreResult):
        scores, attempted = np.array(given.scores, np.float64), np.array(given.attempted, np.bool_)
        if scores.shape != (size,) or attempted.shape != (size,):
            return ScoreResult.nothing(size, _miscounted(scores, query, size), attempted=True)
        result = ScoreResult(scores, attempted | np.isfinite(scores), given.error)
    elif isinstance(given, BaseException):
        return _failed(given, query, size)
    else:
        try:
            scores = _as_floats(given)
        except Exception as error:
            return _failed(error, query, size)
        if given is None or scores.size != size or scores.size != max(scores.shape, default=1):
            fault = _miscounted(given if given is None else scores, query, size)
            return ScoreResult.nothing(size, fault, attempted=True)
        result = ScoreResult.of(scores.reshape(-1))
    if result.error is not None or all_finite(result.scores):
        return result
    bad = np.flatnonzero(result.attempted & ~np.isfinite(result.scores))
    if not len(bad):
        return result
    return ScoreResult(
        result.scores,
        result.attempted,
        ScoreValueError(
            f"the scorer returned {result.scores[bad[0]]} for query {brief(query)} and item {int(handles[bad[0]])} "
            f"({len(bad)} of {size} scores are not finite); scores must be real numbers"
        ),
    )


def all_finite(scores: Floats) -> bool:
    """Return whether all scores (m) are finite."""
    return bool(np.isfinite(scores).all())


def validate_base_scores(
    scorer: BoundScorer, queries: Sequence[Any], n: int, handles: Handles | None = None
) -> list[Floats]:
    """Return what a scorer knows of n items (these, or all) without a call, for every query."""
    try:
        given = (
            scorer.base_scores_many(queries, n)
            if handles is None
            else [scorer.base_scores(q, handles) for q in queries]
        )
        scores = [_real(known) for known in given]
    except CrosscutError:
        raise
    except Exception as error:
        raise ScorerError(
            f"the scorer's base scores of {n:,} items failed: {type(error).__name__}: {error}", attempted=False
        ) from error
    for query, known in zip(queries, scores, strict=True):
        if known.shape != (n,):
            raise ScoreCountError(
                f"base_scores() gave an array of shape {known.shape} for {n:,} items of query {brief(query)}; "
                "it must give one number per item, in order"
            )
        if not np.isfinite(known).all():
            raise ScoreValueError(
                f"base_scores() gave NaN or an infinity for query {brief(query)}; for an item of which nothing is "
                "known it must give the score without the costly part, such as 0"
            )
    return scores


def _real(given: Any) -> Floats:
    array = np.asarray(given)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _failed(error: BaseException, query: Any, size: int) -> ScoreResult:
    """Return the result of a scorer that raised; a `ScorerError` may carry the scores that it has."""
    if not isinstance(error, ScorerError):
        wrapped = ScorerError(
            f"the scorer failed on {size} items of query {brief(query)}: {type(error).__name__}: {error}"
        )
        wrapped.__cause__ = error
        return ScoreResult.nothing(size, wrapped, attempted=True)
    scores = np.full(size, np.nan)
    with contextlib.suppress(Exception):  # `scores` may be anything
        given = _as_floats(error.scores)
        scores = given if given.shape == (size,) else scores
    return ScoreResult(scores, np.isfinite(scores) | error.attempted, error)


def _as_floats(given: Any) -> Floats:
    """Return a copy, since a scorer may fill the same array for every request. Masked values become NaN."""
    if type(given) is not np.ndarray:
        if hasattr(given, "detach"):
            given = given.detach().cpu().numpy()
        given = np.asarray(np.ma.filled(given.astype(np.float64), np.nan) if np.ma.isMaskedArray(given) else given)
    array: Array = given
    if array.dtype.kind in NOT_NUMBERS:
        raise TypeError(f"scores are real numbers, and these are {array.dtype}")
    return np.array(array, dtype=np.float64)


def _miscounted(given: Any, query: Any, size: int) -> ScoreCountError:
    if given is None:
        what = "None"
    else:
        what = f"{given.size} scores" if given.ndim == 1 else f"an array of shape {given.shape}"
    return ScoreCountError(
        f"the scorer returned {what} for {size} items of query {brief(query)}; "
        "it must return one score per item, in order"
    )


def brief(query: Any) -> str:
    """Return a query's repr, cut to 60 characters."""
    text = " ".join(repr(query).split())
    return text if len(text) <= 60 else text[:57] + ("…'" if isinstance(query, str) else "…")
