"""An answer from whatever a scorer returned: what gets past here is a finite score, or an error."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from crosscut.errors import CrosscutError, ScoreCountError, ScorerError, ScoreValueError
from crosscut.scorers.base import Answer, BoundScorer
from crosscut.types import Array, Floats, Handles

NO_NUMBERS = "cmMV"
"""Kinds of arrays that numpy would make numbers of, by leaving something out: complex, times, records."""


def checked(given: Any, query: Any, handles: Handles) -> Answer:
    """An honest answer: one number per item or an error that says why not.

    `given` is an `Answer`, numbers (a list, an array, a tensor), or an exception. Whoever does not say what was paid
    for is taken to have seen every pair; None is a wrong answer like any other.
    """
    size = len(handles)
    if isinstance(given, Answer):
        scores, paid = np.array(given.scores, np.float64), np.array(given.paid, np.bool_)
        if scores.shape != (size,) or paid.shape != (size,):
            return Answer.nothing(size, _miscounted(scores, query, size), paid=True)
        answer = Answer(scores, paid | np.isfinite(scores), given.error)
        if all_finite(scores):
            return answer
    elif isinstance(given, BaseException):
        return _failed(given, query, size)
    else:
        try:
            scores = _as_floats(given)
        except Exception as error:
            return _failed(error, query, size)
        if given is None or scores.size != size or scores.size != max(scores.shape, default=1):
            return Answer.nothing(size, _miscounted(given if given is None else scores, query, size), paid=True)
        answer = Answer.of(scores.reshape(-1))
        if all_finite(answer.scores):
            return answer
    bad = answer.paid & ~np.isfinite(answer.scores)
    if answer.error is not None or not bad.any():
        return answer
    where = int(np.flatnonzero(bad)[0])
    fault = ScoreValueError(
        f"the scorer returned {answer.scores[where]} for query {brief(query)} and item {int(handles[where])} "
        f"({int(bad.sum())} of {size} scores are not finite); scores must be real numbers"
    )
    return Answer(answer.scores, answer.paid, fault)


def all_finite(scores: Floats) -> bool:
    """Whether none of some scores (m) is infinite or NaN, by a product: a round looks, and its caches are empty."""
    return math.isfinite(scores.dot(scores)) or bool(np.isfinite(scores).all())


def checked_known(scorer: BoundScorer, queries: Sequence[Any], n: int, handles: Handles | None = None) -> list[Floats]:
    """What a scorer knows of n items (these, or all) without a call, for every query; or an error that says why not."""
    try:
        told_of = scorer.known_of_all(queries, n) if handles is None else [scorer.known(q, handles) for q in queries]
        given = [_real(known) for known in told_of]
    except CrosscutError:
        raise
    except Exception as error:
        told = f"the scorer failed to tell what it knows of {n:,} items without a call: {type(error).__name__}: {error}"
        raise ScorerError(told) from error
    for query, known in zip(queries, given, strict=True):
        if known.shape != (n,):
            raise ScoreCountError(
                f"known() gave an array of shape {known.shape} for {n:,} items of query {brief(query)}; "
                "it must give one number per item, in order"
            )
        if not np.isfinite(known).all():
            raise ScoreValueError(
                f"known() gave what is no real number for query {brief(query)}; of an item of which nothing is known "
                "it must give what its score is without the costly part, such as 0"
            )
    return given


def _real(given: Any) -> Floats:
    """Numbers as they are, if they are floats; others as such."""
    array = np.asarray(given)
    return array if array.dtype.kind == "f" else array.astype(np.float64)


def _failed(error: BaseException, query: Any, size: int) -> Answer:
    """The answer of a scorer that raised; a `ScorerError` may carry the scores that it has."""
    if not isinstance(error, ScorerError):
        told = f"the scorer failed on {size} items of query {brief(query)}: {type(error).__name__}: {error}"
        wrapped = ScorerError(told)
        wrapped.__cause__ = error
        return Answer.nothing(size, wrapped, paid=True)
    known = np.full(size, np.nan)
    with contextlib.suppress(Exception):  # what it has may be anything
        scores = _as_floats(error.scores)
        known = scores if scores.shape == (size,) else known
    return Answer(known, np.isfinite(known) | error.paid, error)


def _as_floats(given: Any) -> Floats:
    """A copy: a scorer may fill the same array for every request. What is masked is no number."""
    if type(given) is not np.ndarray:
        if hasattr(given, "detach"):
            given = given.detach().cpu().numpy()
        given = np.asarray(np.ma.filled(given.astype(np.float64), np.nan) if np.ma.isMaskedArray(given) else given)
    array: Array = given
    if array.dtype.kind in NO_NUMBERS:
        raise TypeError(f"scores are real numbers, and these are {array.dtype}")
    return np.array(array, dtype=np.float64)


def _miscounted(given: Any, query: Any, size: int) -> ScoreCountError:
    if given is None:
        told = "None"
    else:
        told = f"{given.size} scores" if given.ndim == 1 else f"an array of shape {given.shape}"
    return ScoreCountError(
        f"the scorer returned {told} for {size} items of query {brief(query)}; "
        "it must return one score per item, in order"
    )


def brief(query: Any) -> str:
    text = " ".join(repr(query).split())
    return text if len(text) <= 60 else text[:57] + ("…'" if isinstance(query, str) else "…")
