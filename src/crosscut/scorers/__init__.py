"""The expensive function, and the meter that counts every call of it."""

from crosscut.scorers.base import Answer, BoundScorer, Scorer
from crosscut.scorers.callable import CallableScorer, TextScorer, as_bound
from crosscut.scorers.matrix import MatrixScorer
from crosscut.scorers.meter import MemoryCache, Meter, ScoreCache

__all__ = [
    "Answer",
    "BoundScorer",
    "CallableScorer",
    "MatrixScorer",
    "MemoryCache",
    "Meter",
    "ScoreCache",
    "Scorer",
    "TextScorer",
    "as_bound",
]
