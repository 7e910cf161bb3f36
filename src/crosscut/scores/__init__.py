"""Scores that survive: a resumable, crash-safe store of (query × item) scores, and the engines that fill it."""

from crosscut.scores.cache import StoreCache
from crosscut.scores.keys import Keys
from crosscut.scores.records import Damage
from crosscut.scores.store import Coverage, Pairs, ScoreStore, scorers

__all__ = ["Coverage", "Damage", "Keys", "Pairs", "ScoreStore", "StoreCache", "scorers"]
