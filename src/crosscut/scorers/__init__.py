"""The expensive function, and the meter that counts every call of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crosscut.scorers.adapters import CallableScorer, MatrixScorer, TextScorer, as_bound
from crosscut.scorers.base import BoundScorer, RetryBudget, Scorer, ScoreResult
from crosscut.scorers.caching import MemoryCache, ScoreCache
from crosscut.scorers.meter import Meter

if TYPE_CHECKING:
    from crosscut.scorers.llm_judge import ChatJudge
    from crosscut.scorers.rerank_api import RerankEndpoint

__all__ = [
    "BoundScorer",
    "CallableScorer",
    "ChatJudge",
    "MatrixScorer",
    "MemoryCache",
    "Meter",
    "RerankEndpoint",
    "RetryBudget",
    "ScoreCache",
    "ScoreResult",
    "Scorer",
    "TextScorer",
    "as_bound",
]


def __getattr__(name: str) -> Any:
    """Import scorers behind HTTP when they are asked for."""
    if name == "ChatJudge":
        from crosscut.scorers.llm_judge import ChatJudge

        return ChatJudge
    if name == "RerankEndpoint":
        from crosscut.scorers.rerank_api import RerankEndpoint

        return RerankEndpoint
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
