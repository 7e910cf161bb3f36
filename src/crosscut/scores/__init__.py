"""Scores that survive: a resumable, crash-safe store of (query × item) scores, and the one way to buy them."""

from crosscut.scores.buy import Purchase, buy_matrix, buy_pairs
from crosscut.scores.cache import StoreCache
from crosscut.scores.coverage import Coverage
from crosscut.scores.keys import Keys
from crosscut.scores.records import Damage
from crosscut.scores.store import ScoredPairs, ScoreStore, scorers

__all__ = [
    "Coverage",
    "Damage",
    "Keys",
    "Purchase",
    "ScoreStore",
    "ScoredPairs",
    "StoreCache",
    "buy_matrix",
    "buy_pairs",
    "scorers",
]
