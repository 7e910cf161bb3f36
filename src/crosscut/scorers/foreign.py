"""Scorers of other libraries, known by their classes, so that nothing has to be imported for them.

| class | of | called as |
|---|---|---|
| `BaseCrossEncoder` | langchain-core, langchain-community | `score([(query, text), …])` |
| `BaseRanker` | rerankers | `rank(query, texts, doc_ids)` |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crosscut.errors import ScorerError
from crosscut.scorers.callable import TextScorer
from crosscut.types import Floats


def foreign(scorer: Any) -> TextScorer | None:
    """A scorer made of an object of another library, if it is of a known class."""
    kinds = {(kind.__module__.split(".")[0].split("_")[0], kind.__name__) for kind in type(scorer).__mro__}
    if ("langchain", "BaseCrossEncoder") in kinds:
        return TextScorer(
            lambda query, texts: scorer.score([(query, text) for text in texts]), fingerprint=_name(scorer)
        )
    if ("rerankers", "BaseRanker") in kinds:
        return TextScorer(lambda query, texts: _ranked(scorer, query, texts), fingerprint=_name(scorer))
    return None


def _ranked(ranker: Any, query: str, texts: Sequence[str]) -> Floats:
    """The scores of a ranker, in the order of the texts."""
    scores = np.full(len(texts), np.nan)
    for result in ranker.rank(query, list(texts), doc_ids=list(range(len(texts)))):
        if result.score is None:
            raise ScorerError(
                f"{type(ranker).__name__} ranks its documents and scores none of them: a scorer must score"
            )
        scores[result.document.doc_id] = result.score
    return scores


def _name(scorer: Any) -> str:
    """What the scores depend on, as far as the object tells: its class and the name of its model."""
    named = (getattr(scorer, name, None) for name in ("model_name", "model_name_or_path", "model"))
    model = next((name for name in named if isinstance(name, str)), "")
    return f"{type(scorer).__module__}.{type(scorer).__qualname__}:{model}"
