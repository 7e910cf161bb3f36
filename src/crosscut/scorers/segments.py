"""A corpus that grows: one bound scorer per segment, addressed as one.

What a scorer prepared for the items it knew (tokens, encoded states) is kept when others are added behind them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crosscut.scorers.base import BoundScorer, Request, Scorer
from crosscut.types import Floats, Positions

MOST = 16
"""Segments before the later ones are bound together again."""


class Segments:
    """A bound scorer over texts that were bound at different times."""

    def __init__(self, scorer: Scorer, texts: Sequence[str]) -> None:
        self.scorer = scorer
        self._parts: list[tuple[list[str], BoundScorer]] = []
        self._ends = np.zeros(0, np.int64)
        self._append(list(texts))

    def extended(self, texts: Sequence[str]) -> Segments:
        """The same corpus with more texts at its end; this one stays as it is."""
        made = Segments.__new__(Segments)
        made.scorer, made._parts, made._ends = self.scorer, list(self._parts), self._ends
        more = list(texts)
        if len(made._parts) >= MOST:
            more = [text for part, _ in made._parts[1:] for text in part] + more
            made._parts, made._ends = made._parts[:1], made._ends[:1]
        made._append(more)
        return made

    def _append(self, texts: list[str]) -> None:
        self._parts.append((texts, self.scorer.bind(texts)))
        self._ends = np.append(self._ends, self.n_items + len(texts))

    @property
    def n_items(self) -> int:
        """The size of the corpus, for whoever searches it."""
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def pairs_at_once(self) -> int:
        """Pairs that the scorer likes to be handed at a time, when there is a deadline."""
        return max((int(getattr(bound, "pairs_at_once", 32)) for _, bound in self._parts), default=32)

    def within(self, seconds: float) -> Segments:
        """The same for a scorer that keeps time itself, told how long it has."""
        if not any(hasattr(bound, "within") for _, bound in self._parts):
            return self
        made = Segments.__new__(Segments)
        made.scorer, made._ends = self.scorer, self._ends
        made._parts = [
            (texts, bound.within(seconds) if hasattr(bound, "within") else bound) for texts, bound in self._parts
        ]
        return made

    def preload(self) -> None:
        """Prepare every item now, where a scorer would do it when an item is first scored."""
        for _, bound in self._parts:
            if hasattr(bound, "preload"):
                bound.preload()

    def score(self, query: Any, positions: Positions) -> Floats:
        (answer,) = self.score_many([(query, positions)])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        if len(self._parts) == 1:
            return self._parts[0][1].score_many(requests)
        wanted = [(query, np.asarray(positions, np.int64)) for query, positions in requests]
        homes = [np.searchsorted(self._ends, positions, side="right") for _, positions in wanted]
        answers: list[Any] = [np.empty(len(positions), np.float64) for _, positions in wanted]
        for part, (_, bound) in enumerate(self._parts):
            start = 0 if part == 0 else int(self._ends[part - 1])
            asked = [j for j, home in enumerate(homes) if (home == part).any() and isinstance(answers[j], np.ndarray)]
            if not asked:
                continue
            inside = [(wanted[j][0], wanted[j][1][homes[j] == part] - start) for j in asked]
            for j, scores in zip(asked, bound.score_many(inside), strict=True):
                whole = isinstance(scores, np.ndarray) and scores.shape == (int((homes[j] == part).sum()),)
                if whole:
                    answers[j][homes[j] == part] = scores
                else:  # a fault, or a wrong count: the meter says so
                    answers[j] = scores
        return answers
