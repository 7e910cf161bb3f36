"""crosscut: k-nearest-neighbour search when the similarity is expensive."""

from crosscut.errors import BudgetError, CrosscutError, InputError, ScorerError
from crosscut.scorers import MatrixScorer, MemoryCache, TextScorer
from crosscut.search.hits import Hit, Hits
from crosscut.search.searcher import Searcher
from crosscut.search.stopping import Patience
from crosscut.spaces import CUR, ItemScores, Stacked, Vectors

__version__ = "0.1.0"

__all__ = [
    "CUR",
    "BudgetError",
    "CrosscutError",
    "Hit",
    "Hits",
    "InputError",
    "ItemScores",
    "MatrixScorer",
    "MemoryCache",
    "Patience",
    "ScorerError",
    "Searcher",
    "Stacked",
    "TextScorer",
    "Vectors",
]
