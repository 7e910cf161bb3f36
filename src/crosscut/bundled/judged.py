"""The default scorer where a judge is installed: base scores, and a language model's opinion of the best of them.

    f(q, i) = g(q, i) + w · likelihood(q, i)

g takes no call (`crosscut.bundled.base_scores`); the likelihood is that of `crosscut.models.likelihood`. For a query
with a marked mention every plain opinion hurts, and w is 0 there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.bundled.base_scores import UNREADABLE, BaseScorer, BoundBaseScorer
from crosscut.bundled.tokenizer import split_mention
from crosscut.datasets.records import Item, Items, items_of
from crosscut.models.likelihood import QueryLikelihood
from crosscut.retrieval.bm25 import BM25
from crosscut.scorers.base import BoundScorer, CorpusScorer, Request, RetryBudget, ScoreResult
from crosscut.types import Array, Floats, Handles, Progress

WEIGHT = 1.0
BUDGET = 20
"""Calls of a search that names no budget."""


class JudgedScorer(CorpusScorer):
    """Base scores and a language model's likelihood of the query."""

    local = True
    usual_budget = BUDGET

    def __init__(self, base: BaseScorer, judge: QueryLikelihood, *, weight: float = WEIGHT) -> None:
        self.base, self.judge, self.weight = base, judge, weight

    @property
    def fingerprint(self) -> str:
        return f"{self.base.fingerprint}+{self.weight:g}-{self.judge.fingerprint}"

    @property
    def encoder_fingerprint(self) -> str:
        return self.base.encoder_fingerprint

    @property
    def statistics(self) -> Mapping[str, Array]:
        return self.base.statistics

    def fitted(self, words: BM25) -> JudgedScorer:
        return self._over(self.base.fitted(words))

    def with_statistics(self, arrays: Mapping[str, Array]) -> JudgedScorer:
        return self._over(self.base.with_statistics(arrays))

    def _over(self, base: BaseScorer) -> JudgedScorer:
        made = copy(self)
        made.base = base
        return made

    def precompute(self, items: Sequence[Item], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        return self.base.precompute(items, progress)

    def bind(
        self, items: Items | Sequence[Item | str], vectors: Array | None = None, words: BM25 | None = None
    ) -> BoundScorer:
        held = items_of(items)
        return _BoundJudged(self.base.bind(held, vectors, words), self.judge.bind(held), self.weight)

    def __repr__(self) -> str:
        return f"JudgedScorer({self.base!r}, {self.judge!r}, weight={self.weight})"


class _BoundJudged(BoundScorer):
    """Both over the same items."""

    def __init__(self, base: BoundBaseScorer, judge: BoundScorer, weight: float) -> None:
        self._base, self._judge, self._weight = base, judge, weight
        self.n_items, self.has_base_scores = base.n_items, base.has_base_scores
        self.pairs_per_batch = judge.pairs_per_batch

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        return self._base.base_scores(query, handles)

    def base_scores_many(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        return self._base.base_scores_many(queries, n)

    def note(self, query: Any) -> str | None:
        return UNREADABLE if self._base.scorer.model.tokenizer.unreadable(str(query)) else None

    def _is_judged(self, query: str) -> bool:
        """Whether the language model has a say: not on a marked mention, nor in a script that it does not read."""
        return not split_mention(query)[1] and not self._base.scorer.model.tokenizer.unreadable(query)

    def extended(self, vectors: Array | None, words: BM25 | None) -> BoundScorer:
        return _BoundJudged(self._base.extended(vectors, words), self._judge, self._weight)

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        results: list[ScoreResult] = [ScoreResult.of(np.empty(0))] * len(requests)
        judged = [place for place, (query, _) in enumerate(requests) if self._is_judged(str(query))]
        opinions = self._judge.score_many([requests[place] for place in judged], deadline=deadline)
        for place, opinion in zip(judged, opinions, strict=True):
            base = self._base.base_scores(*requests[place])
            results[place] = ScoreResult(base + self._weight * opinion.scores, opinion.attempted, opinion.error)
        for place in set(range(len(requests))) - set(judged):
            results[place] = ScoreResult.of(self._base.base_scores(*requests[place]))
        return results
