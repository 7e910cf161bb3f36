"""A durable store of (query, item) scores on SQLite, and resumable jobs that fill it."""

from crosscut.score_store.cache import StoreCache
from crosscut.score_store.jobs import Estimate, ScoringOptions, ScoringResult, score_matrix, score_pairs
from crosscut.score_store.keys import Keys
from crosscut.score_store.store import ScoredPairs, ScoreStore, scorers

__all__ = [
    "Estimate",
    "Keys",
    "ScoreStore",
    "ScoredPairs",
    "ScoringOptions",
    "ScoringResult",
    "StoreCache",
    "score_matrix",
    "score_pairs",
    "scorers",
]
