"""Late interaction (ColBERT, Khattab and Zaharia 2020): every word of the query looks for its best match in the item.

    late(q, i) = Σ_t w_t · max_j cos(q_t, i_j) / Σ_t w_t

q_t and i_j are the dual encoder's token vectors behind a narrow projection, [CLS] and [SEP] apart; w_t is the idf of a
word piece, from a table of the box's own. Token vectors are kept in eight bits, one byte a number: 128 bytes a token, a
sixth of what the cross-encoder keeps. Products of such numbers are whole and small enough for float32 to hold
exactly, so a pair's value does not depend on what else is computed with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.arrays import spans
from crosscut.linalg.blas import one_thread
from crosscut.storage import Files, Saved
from crosscut.storage.touched import Touched

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]
Positions = npt.NDArray[np.int64]
Lengths = npt.NDArray[np.int64]

TOKENS_AT_ONCE = 1 << 16
SMALL = 1 << 22  # bytes that are copied rather than kept in an array of their own
EIGHT_BITS = 127.0


def to_bytes(vectors: Floats) -> Bytes:
    """Unit vectors (tokens × d) in eight bits; a fixed scale, so that a token never depends on its neighbours."""
    rounded: Bytes = np.clip(np.rint(vectors * EIGHT_BITS), -127, 127).astype(np.int8)
    return rounded


class TokenVectors:
    """The token vectors of a corpus, in one or several flat arrays; items are positions 0 … n − 1.

    An array may be a memory map, compared with its checksums where it is read: what is added later stands in one of
    its own beside it.
    """

    def __init__(self, parts: Sequence[tuple[Bytes | Touched, Lengths]], width: int) -> None:
        self.width = width
        self._parts = [
            (flat if isinstance(flat, Touched) else Touched(flat), np.asarray(lengths, np.int64))
            for flat, lengths in parts
        ]
        counts = [len(lengths) for _, lengths in self._parts]
        self.lengths: Lengths = np.concatenate(
            [np.empty(0, np.int64), *(lengths for _, lengths in self._parts)]
        )  # (n,)
        self._part = np.repeat(np.arange(len(counts)), counts)  # (n,) where an item's tokens are
        self._starts = np.concatenate(
            [np.empty(0, np.int64), *(np.cumsum(lengths) - lengths for _, lengths in self._parts)]
        )  # (n,) from which row on

    @classmethod
    def of(cls, texts: Sequence[Bytes], width: int) -> TokenVectors:
        """From one array (length × d) per item."""
        flat = np.concatenate([np.empty((0, width), np.int8), *texts])
        return cls([(flat, np.asarray([len(text) for text in texts], np.int64))], width)

    def __len__(self) -> int:
        return len(self.lengths)

    def joined(self, more: TokenVectors) -> TokenVectors:
        """These items and more behind them; only what is small is copied."""
        width = max(self.width, more.width)
        if self.lengths.any() and more.lengths.any() and self.width != more.width:
            raise _unlike(self.width, more.width)
        parts = [part for part in (*self._parts, *more._parts) if len(part[1])]
        while len(parts) > 1 and parts[-2][0].array.nbytes <= SMALL:
            (flat, lengths), (added, counts) = parts[-2:]
            tokens = np.concatenate([flat.whole().reshape(-1, width), added.whole().reshape(-1, width)])
            parts[-2:] = [(Touched(tokens), np.concatenate([lengths, counts]))]
        return TokenVectors(parts, width)

    def taken(self, positions: Positions) -> TokenVectors:
        """Some of the items, in memory."""
        positions = np.asarray(positions, np.int64)
        return TokenVectors([(self._gathered(positions), self.lengths[positions])], self.width)

    def best(self, query: Bytes, positions: Positions | None = None) -> Floats:
        """The best cosine of every query token (m × d) with each item's tokens: (items × m); −1 where there are none.

        All items, or those at `positions`. Costs tokens · m · d multiplications: about 20 ms for a thousand items of
        a hundred tokens.
        """
        if self.lengths.any() and query.shape[1] != self.width:
            raise _unlike(self.width, query.shape[1])
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
            places = np.cumsum(lengths[rows]) - lengths[rows]  # where each item begins among the gathered tokens
            tokens = self._gathered(chosen[rows]).astype(np.float32)
            with one_thread():  # threads of BLAS would spin beside those of the model
                cosines = tokens @ asked  # (tokens, m), whole numbers
            out[rows] = np.maximum.reduceat(cosines, places, axis=0) / EIGHT_BITS**2
            start = stop
        return out

    def _gathered(self, positions: Positions) -> Bytes:
        """The tokens of these items, one after another, (tokens × d)."""
        starts, sizes = self._starts[positions], self.lengths[positions]
        rows = spans(starts, sizes)
        for number, (flat, _) in enumerate(self._parts):
            mine = (sizes > 0) & (self._part[positions] == number)
            flat.ready(starts[mine], starts[mine] + sizes[mine])
        if len(self._parts) == 1:
            return np.asarray(self._parts[0][0].array[rows])
        part = np.repeat(self._part[positions], sizes)
        out = np.empty((len(rows), self.width), np.int8)
        for number, (flat, _) in enumerate(self._parts):
            here = part == number
            out[here] = flat.array[rows[here]]
        return out

    def write(self, files: Files) -> None:
        """Lengths and vectors, as files of a generation."""
        files.array("token-lengths", self.lengths.astype(np.int32))
        flats = [flat.whole() for flat, _ in self._parts]
        files.rows("tokens", np.int8, (int(self.lengths.sum()), self.width), flats, scattered=True)

    @classmethod
    def read(cls, saved: Saved, n: int) -> TokenVectors:
        """What `write` wrote, of n items, memory-mapped."""
        lengths = saved.array("token-lengths", "<i4", (n,)).astype(np.int64)
        flat = saved.touched("tokens", "|i1", (None, None))
        if (lengths < 0).any() or int(lengths.sum()) != len(flat):
            raise saved.damaged("token-lengths.npy", f"does not divide {len(flat)} token vectors among {n} items")
        return cls([(flat, lengths)], flat.array.shape[1])


def _unlike(width: int, other: int) -> InputError:
    return InputError(
        f"the token vectors of these items have {width} dimensions and those of the encoder {other}: build the index "
        "again"
    )
