"""crosscut: k-nearest-neighbour search when the similarity is expensive.

Names are loaded when they are first used, so that `import crosscut` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscut import methods, stores
    from crosscut.ann.ivf.index import IVF
    from crosscut.ann.ivf.rules import Fixed, Patience
    from crosscut.ann.topk import TopK
    from crosscut.cascade import CascadeSearcher
    from crosscut.errors import (
        BudgetError,
        CrosscutError,
        DivergedError,
        InputError,
        LockedError,
        MissingDependency,
        ScorerError,
        StoreError,
    )
    from crosscut.evaluation.replay import Report, replay
    from crosscut.index import Index
    from crosscut.index.passages import Passages
    from crosscut.methods import Method, Parts, register
    from crosscut.scorers import MatrixScorer, MemoryCache, TextScorer
    from crosscut.scorers.calibration import Calibration
    from crosscut.search.hits import Hit, Hits, Price
    from crosscut.search.stopping import Stop
    from crosscut.searcher import Searcher
    from crosscut.spaces import CUR, Stacked, Vectors
    from crosscut.spaces.factorization import Factors, factorize
    from crosscut.spaces.sparse import SparseScores

__version__ = "0.2.0"

__all__ = [
    "CUR",
    "IVF",
    "BudgetError",
    "Calibration",
    "CascadeSearcher",
    "CrosscutError",
    "DivergedError",
    "Factors",
    "Fixed",
    "Hit",
    "Hits",
    "Index",
    "InputError",
    "LockedError",
    "MatrixScorer",
    "MemoryCache",
    "Method",
    "MissingDependency",
    "Parts",
    "Passages",
    "Patience",
    "Price",
    "Report",
    "ScorerError",
    "Searcher",
    "SparseScores",
    "Stacked",
    "Stop",
    "StoreError",
    "TextScorer",
    "TopK",
    "Vectors",
    "factorize",
    "methods",
    "register",
    "replay",
    "stores",
]

_HOME = {
    "errors": (
        "BudgetError",
        "CrosscutError",
        "DivergedError",
        "InputError",
        "LockedError",
        "MissingDependency",
        "ScorerError",
        "StoreError",
    ),
    "evaluation.replay": ("Report", "replay"),
    "index": ("Index",),
    "index.passages": ("Passages",),
    "scorers": ("MatrixScorer", "MemoryCache", "TextScorer"),
    "scorers.calibration": ("Calibration",),
    "cascade": ("CascadeSearcher",),
    "search.hits": ("Hit", "Hits", "Price"),
    "methods": ("Method", "Parts", "register"),
    "search.stopping": ("Stop",),
    "searcher": ("Searcher",),
    "spaces": ("CUR", "Stacked", "Vectors"),
    "spaces.factorization": ("Factors", "factorize"),
    "spaces.sparse": ("SparseScores",),
    "ann.topk": ("TopK",),
    "ann.ivf.index": ("IVF",),
    "ann.ivf.rules": ("Fixed", "Patience"),
}


def __getattr__(name: str) -> Any:
    if name in ("methods", "stores"):  # rooms of their own: crosscut.methods.AXN(rounds=10), crosscut.stores.Qdrant(…)
        return import_module(f"crosscut.{name}")
    for module, names in _HOME.items():
        if name in names:
            return getattr(import_module(f"crosscut.{module}"), name)
    raise AttributeError(f"module 'crosscut' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
