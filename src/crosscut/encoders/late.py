"""Late interaction (ColBERT, Khattab and Zaharia 2020): every word of the query looks for its best match in the item.

    late(q, i) = Σ_t w_t · max_j cos(q_t, i_j) / Σ_t w_t

q_t and i_j are the dual encoder's token vectors behind a narrow projection, [CLS] and [SEP] apart; w_t is the idf of a
word piece, from a table of the box's own. Token vectors are kept in eight bits, one byte a number: 64 bytes a token, a
twelfth of what the cross-encoder keeps. Products of such numbers are whole and small enough for float32 to hold
exactly, so a pair's value does not depend on what else is computed with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]
Positions = npt.NDArray[np.int64]

TOKENS_AT_ONCE = 1 << 16
EIGHT_BITS = 127.0


def to_bytes(vectors: Floats) -> Bytes:
    """Unit vectors (tokens × d) in eight bits; a fixed scale, so that a token never depends on its neighbours."""
    rounded: Bytes = np.clip(np.rint(vectors * EIGHT_BITS), -127, 127).astype(np.int8)
    return rounded


class TokenVectors:
    """The token vectors of a corpus, one flat array; items are positions 0 … n − 1."""

    def __init__(self, flat: Bytes, lengths: npt.NDArray[np.int64]) -> None:
        self.flat = flat  # (tokens × d)
        self.lengths = np.asarray(lengths, np.int64)  # (n,)
        self.starts = np.cumsum(self.lengths) - self.lengths

    @classmethod
    def of(cls, texts: Sequence[Bytes], width: int) -> TokenVectors:
        """From one array (length × d) per item."""
        flat = np.concatenate(list(texts)) if len(texts) else np.empty((0, width), np.int8)
        return cls(flat, np.asarray([len(text) for text in texts], np.int64))

    def __len__(self) -> int:
        return len(self.lengths)

    def best(self, query: Bytes, positions: Positions | None = None) -> Floats:
        """The best cosine of every query token (m × d) with each item's tokens: (items × m); −1 where there are none.

        All items, or those at `positions`. Costs tokens · m · d multiplications: about 20 ms for a thousand items of
        a hundred tokens.
        """
        every = positions is None
        asked = query.astype(np.float32).T  # (d, m)
        chosen = np.arange(len(self)) if positions is None else np.asarray(positions, np.int64)
        lengths = self.lengths[chosen]
        out = np.full((len(chosen), len(query)), -1.0, np.float32)
        full = np.flatnonzero(lengths > 0)  # reduceat wants no empty slices
        ends = np.cumsum(lengths[full])
        start = 0
        while start < len(full):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + TOKENS_AT_ONCE, "right")))
            rows = full[start:stop]
            firsts, sizes = self.starts[chosen[rows]], lengths[rows]
            places = np.cumsum(sizes) - sizes  # where each item begins among the gathered tokens
            if every:
                tokens = self.flat[firsts[0] : firsts[-1] + sizes[-1]]
            else:
                tokens = self.flat[np.arange(int(sizes.sum())) + np.repeat(firsts - places, sizes)]
            cosines = tokens.astype(np.float32) @ asked  # (tokens, m), whole numbers
            out[rows] = np.maximum.reduceat(cosines, places, axis=0) / EIGHT_BITS**2
            start = stop
        return out
