"""The expensive function, and the meter that counts every call of it."""

from crosscut.scorers.adapters import CallableScorer, MatrixScorer, TextScorer, as_bound
from crosscut.scorers.base import BoundScorer, RetryBudget, Scorer, ScoreResult
from crosscut.scorers.caching import MemoryCache, ScoreCache
from crosscut.scorers.meter import Meter

__all__ = [
    "BoundScorer",
    "CallableScorer",
    "MatrixScorer",
    "MemoryCache",
    "Meter",
    "RetryBudget",
    "ScoreCache",
    "ScoreResult",
    "Scorer",
    "TextScorer",
    "as_bound",
]
