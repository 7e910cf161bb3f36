"""One query on its way through the rounds."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann.trail import Trail
from crosscut.scorers.meter import Account
from crosscut.search.estimators import Fit
from crosscut.search.hits import Hit, Hits, Round
from crosscut.search.recall import Expecting
from crosscut.search.stopping import Watch
from crosscut.types import NO_HANDLES, Floats, Positions


@dataclass
class Walk:
    """The state of one query: what it brought, what it has bought, how far its fit has come."""

    account: Account
    rng: np.random.Generator
    vector: Floats | None = None  # the encoder's query vector
    given: Positions = field(default_factory=lambda: NO_HANDLES)  # what the caller wants in round one
    allowed: Positions | None = None  # sorted; None: all items
    watch: Watch | None = None  # stops when the top k has settled
    expecting: Expecting | None = None  # stops when the expected recall will do
    fit: Fit | None = None
    fitted: int = 0  # how many of the account's items the fit has taken in
    trail: Trail = field(default_factory=Trail)  # through a clustered index
    rounds: list[Round] = field(default_factory=list)
    stop: str | None = None

    def mask(self, values: npt.NDArray[Any], taken: Positions = NO_HANDLES) -> npt.NDArray[Any]:
        """`values` (n) with −inf for what is not allowed, already scored, or `taken`; in place."""
        if self.allowed is not None and len(self.allowed) < len(values):
            open_values = values[self.allowed]
            values[:] = -np.inf
            values[self.allowed] = open_values
        values[self.account.positions] = -np.inf
        values[taken] = -np.inf
        return values

    def open(self, n: int) -> int:
        """How many items may still be scored."""
        return (n if self.allowed is None else len(self.allowed)) - len(self.account.positions)

    def top(self, k: int) -> Positions:
        """Places, in the account, of the best k by exact score; ties go to the lower position."""
        account = self.account
        return np.lexsort((account.positions, -account.scores))[:k]

    def hits(self, k: int, ids: Any = None, texts: Any = None) -> Hits:
        """The result so far."""
        found = np.repeat(np.arange(1, len(self.rounds) + 1), [len(r.positions) for r in self.rounds])
        estimates = np.concatenate([r.estimates for r in self.rounds]) if self.rounds else np.empty(0)
        items = []
        for place in self.top(k):
            position = int(self.account.positions[place])
            items.append(
                Hit(
                    id=position if ids is None else ids[position],
                    score=float(self.account.scores[place]),
                    round=int(found[place]),
                    estimate=float(estimates[place]),
                    position=position,
                    text=None if texts is None else texts[position],
                )
            )
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
