"""A scorer of one's own as a class: the share of an item's words that the query has. A function does as well."""

from collections.abc import Sequence

import numpy as np

from crosscut.datasets import Items
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult


class BoundOverlap(BoundScorer):
    """Knows where its items are, and answers many queries at a time, as one batch of a model."""

    def __init__(self, items: Items) -> None:
        self.items = items

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        answers = []
        for query, handles in requests:
            asked = set(query.lower().split())
            words = [f"{item.title} {item.text}".lower().split() for item in self.items.get(handles)]
            answers.append(ScoreResult.of(np.array([len(asked & set(each)) / (1 + len(each)) for each in words])))
        return answers


class Overlap(Scorer):
    """`Index.build(items, scorer=Overlap())`. The fingerprint changes whenever the scores would."""

    fingerprint = "overlap-1"

    def bind(self, items: Items) -> BoundScorer:
        return BoundOverlap(items)
