"""Late interaction over what cheaper stages rank first, as a first stage.

    late(q, i) = Σ_t w_t · max_j cos(q_t, i_j)          ColBERT (Khattab and Zaharia 2020); `encoders/late.py`

The items that dense and lexical ranking put first, a thousand of them, are put in order by how well every word of the
query finds its match in the item: some twenty milliseconds, against a thousand calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.ann.topk import Found
from crosscut.datasets.records import Item
from crosscut.search.loop import Picker, Query
from crosscut.search.stages import Stage, unpredicted
from crosscut.types import Floats, Handles, Positions

if TYPE_CHECKING:
    from crosscut.encoders.dual import OnnxDualEncoder
    from crosscut.encoders.late import TokenVectors

DEPTH = 1000


class Pairwise(Protocol):
    """Anything that tells of some items how well they match a query, cheaply."""

    def at(self, query: str, positions: Positions) -> Floats:
        """One number per position; higher is better."""


class Late:
    """Late interaction of queries with the items whose token vectors are kept.

    Parameters
    ----------
    encoder
        The dual encoder that read the tokens.
    tokens
        Of the items.
    idf
        (vocabulary) weights of word pieces; None: all alike.
    """

    def __init__(
        self,
        encoder: OnnxDualEncoder,
        tokens: TokenVectors,
        idf: npt.NDArray[np.float32] | None = None,
    ) -> None:
        self.encoder, self.tokens, self.idf = encoder, tokens, idf

    @classmethod
    def of(cls, items: Sequence[Item | str], encoder: OnnxDualEncoder) -> Late:
        """Of items that are read now."""
        return cls(encoder, encoder.read_items(items)[1])

    def __len__(self) -> int:
        return len(self.tokens)

    def at(self, query: str, positions: Positions) -> Floats:
        (read,) = self.encoder.read_queries([query])
        inner = slice(1, -1)  # without [CLS] and [SEP]
        tokens = read.tokens[inner]
        if not len(tokens) or not len(positions):
            return np.zeros(len(positions))
        weights = np.ones(len(tokens)) if self.idf is None else self.idf[read.text.ids[inner]].astype(np.float64)
        best = self.tokens.best(tokens, positions)  # (items × m)
        return np.asarray((best * (weights / max(float(weights.sum()), 1e-6))).sum(axis=1), np.float64)


@dataclass(frozen=True, eq=False)
class Reordered(Stage):
    """The best `depth` items of another stage, in the order of a closer look."""

    stage: Picker
    by: Pairwise
    depth: int = DEPTH

    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        wide = [max(count, self.depth) if count else 0 for count in counts]
        pools = [found.handles for found in self.stage.pick(queries, wide)]
        return [unpredicted(self._best(*one)) for one in zip(queries, counts, pools, strict=True)]

    def _best(self, query: Query, count: int, pool: Handles) -> Handles:
        values = self.by.at(query.account.query, pool)
        return pool[np.lexsort((pool, -values))][:count]
