"""Rounds over a clustered index: some of its lists are read, not every item."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.rules import USUAL, Patience, Rule
from crosscut.ann.topk import NOTHING_FOUND, Ask, Found, OfRows
from crosscut.errors import InputError
from crosscut.types import Floats

SMALL = 200_000
"""Items up to which every round reads them all: a flat round is exact and as fast."""
CAREFUL = Patience(28, 0.0)
"""The exit rule of rounds over an index that was not tuned, chosen on train queries."""


class Clustered(OfRows):
    """An index over the items 0 … n − 1."""

    exact = False

    def __init__(self, index: IVF) -> None:
        if index.metric != "ip":
            raise InputError(
                "rounds look for high inner products; this index ranks by distance: build it with metric='ip'"
            )
        super().__init__(index)
        self.index = index

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        found: list[Found] = [NOTHING_FOUND] * len(asks)
        if not asks:
            return found
        # the order does not depend on the length of u, and float32 does
        queries = np.stack([ask.vector for ask in asks])
        queries = queries / np.maximum(np.linalg.norm(queries, axis=1, keepdims=True), 1e-30)
        for count in {ask.count for ask in asks}:  # mostly one: how many are asked for is what an exit rule watches
            rows = [j for j, ask in enumerate(asks) if ask.count == count]
            for j, one in zip(rows, self._search(queries[rows], [asks[j] for j in rows]), strict=True):
                found[j] = one
        for j, ask in enumerate(asks):
            size = self.count(ask.allowed)
            if len(found[j].handles) < min(ask.count, size - len(ask.exclude)):
                # the rule was content with less than is asked for
                found[j] = self._search(queries[j : j + 1], [ask], self.index.most)[0]
        return found

    def _search(self, queries: Floats, asks: Sequence[Ask], rule: Rule | int | None = None) -> list[Found]:
        """Asks for one number of items, all within the same filter."""
        if rule is None and self.index.rule is USUAL:
            rule = CAREFUL
        found = self.index.search_many(
            queries,
            asks[0].count,
            rule=rule,
            exclude=[ask.exclude for ask in asks],
            allow=asks[0].allowed,
            starts=[ask.start for ask in asks],
        )
        answers = zip(found.ids, found.scores, strict=True)
        return [Found(ids[ids >= 0], scores[ids >= 0].astype(np.float64)) for ids, scores in answers]
