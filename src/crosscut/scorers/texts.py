"""Models that take texts, over items: each item is given to them as title, newline, text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from crosscut.datasets.records import Items, plain_text
from crosscut.errors import ScorerError
from crosscut.scorers.base import Answer, BoundScorer, Request, count_of

TextRequest: TypeAlias = tuple[str, list[str]]
"""One query and the texts to score it with."""


class BoundTexts(BoundScorer):
    """A bound scorer made of a function that answers requests of texts."""

    def __init__(self, items: Items, answer: Callable[[Sequence[TextRequest]], list[Answer]]) -> None:
        self.items = items
        self.answer = answer
        self.n_items = count_of(items)

    def score_many(self, requests: Sequence[Request]) -> list[Answer]:
        try:
            asked = [(str(query), [plain_text(item) for item in self.items.get(some)]) for query, some in requests]
        except Exception as error:  # wherever items come from: nothing has been paid for
            failed = ScorerError(f"items could not be read: {error}")
            failed.__cause__ = error
            return [Answer.nothing(len(handles), failed) for _, handles in requests]
        return self.answer(asked) if asked else []
