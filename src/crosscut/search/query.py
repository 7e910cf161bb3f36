"""One query on its way through the rounds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from crosscut.ann.base import Ask, Within
from crosscut.ann.known import Known
from crosscut.ann.trail import Trail
from crosscut.retrievers.first import FirstRequest
from crosscut.scorers.meter import QueryLedger
from crosscut.search.estimators import Fit
from crosscut.search.hits import Bought, Hits, Round
from crosscut.search.stopping import SoFar, Watch
from crosscut.types import NO_HANDLES, Floats, Handles, Positions


@dataclass
class QueryState:
    """What one query brought, what it has bought, how far its fit has come."""

    account: QueryLedger
    seed: int = 0
    vector: Floats | None = None  # the encoder's query vector
    given: Handles = field(default_factory=lambda: NO_HANDLES)  # what the caller wants in round one
    known: Known | None = None  # the part of scores that takes no call
    words: Floats | None = None  # (n) φ: how far the words of every item are those of the query
    told: Floats | None = None  # (n) what they tell of the scores, by now
    within: Within = None  # None: all items
    size: int | None = None  # how many items may be scored in all, if that is known
    watch: Watch | None = None  # of a stopping rule
    reason: str = ""  # that it gives
    fit: Fit | None = None
    fitted: int = 0  # how many of the account's items the fit has taken in
    trail: Trail = field(default_factory=Trail)  # through a clustered index
    rounds: list[Round] = field(default_factory=list)
    stop: str | None = None

    @cached_property
    def rng(self) -> np.random.Generator:
        """Of this query's random draws: made with the first of them."""
        return generator(self.seed, self.account.query)

    def first(self, count: int, taken: Handles) -> FirstRequest:
        """What a first stage is told."""
        account = self.account
        gone = np.concatenate([taken, account.positions])
        return FirstRequest(
            account.query, count, lambda: self.rng, self.vector, gone, self.within, bool(len(self.given)), self.known
        )

    def ask(self, u: Floats, count: int) -> Ask:
        """What an index is asked."""
        return Ask(
            u, count, self.account.positions, self.within, self.trail, self.known if self.told is None else self.told
        )

    def so_far(self, k: int, estimates: Floats) -> SoFar:
        """What a stopping rule is told."""
        top = self.top(k)
        return SoFar(k, self.account.positions[top], self.account.scores[top], self.rounds, estimates)

    def top(self, k: int) -> Positions:
        """Places, in the account, of the best k by exact score; ties go to the lower position."""
        account = self.account
        return np.lexsort((account.positions, -account.scores))[:k]

    def hits(self, k: int, ids: Any = None, texts: Any = None) -> Hits:
        """The result so far."""
        items = Bought.of(self.rounds).hits(self.top(k))
        if ids is not None:
            items = [replace(hit, id=ids[hit.position]) for hit in items]
        if texts is not None:
            items = [replace(hit, text=texts[hit.position]) for hit in items]
        return Hits(
            query=self.account.query,
            items=tuple(items),
            calls=self.account.calls,
            cached=self.account.cached,
            budget=self.account.budget,
            stop_reason=self.stop or "running",
            trace=tuple(self.rounds),
        )


def generator(seed: int, query: Any) -> np.random.Generator:
    """Random draws that depend on the seed and the query alone, not on its place in a batch.

    A query is its text, number or array; of any other object, its `repr`.
    """
    if isinstance(query, np.ndarray):
        text = query.tobytes()
    elif isinstance(query, int | np.integer):
        text = str(int(query)).encode()
    else:
        text = (query if isinstance(query, str) else repr(query)).encode(errors="surrogatepass")
    digest = hashlib.blake2b(text, digest_size=8).digest()
    return np.random.default_rng([seed, int.from_bytes(digest, "little")])
