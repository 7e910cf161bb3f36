"""A space: one vector per item, so that a query vector u predicts every score as V u.

    V   (n × d)   item vectors, one row per item
    u   (d)       query vector
    V u (n)       predicted scores

Arrays are used where they are: float16, float32 or float64, row- or column-major, in memory or memory-mapped.
Nothing here copies V.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.products import add, prepare, product
from crosscut.types import Floats, Positions

Array: TypeAlias = npt.NDArray[Any]


class Space(Protocol):
    """What a search needs of item vectors."""

    @property
    def n(self) -> int:
        """The number of items."""
        ...

    @property
    def d(self) -> int:
        """The number of dimensions."""
        ...

    def rows(self, positions: Positions) -> Floats:
        """V[positions] (m × d) in float64, for fitting."""
        ...

    def predict(self, queries: Floats) -> Array:
        """V u for every query vector: (q × d) → (q × n), in the space's precision."""
        ...


class Vectors:
    """Item vectors given as an array: a dual encoder's, factors, anything with an inner product."""

    def __init__(self, array: npt.ArrayLike) -> None:
        values = array if isinstance(array, np.ndarray) else np.asarray(array, dtype=np.float64)
        if values.ndim != 2:
            raise InputError(f"item vectors need two dimensions (items × dimensions); got shape {values.shape}")
        if not np.issubdtype(values.dtype, np.floating):
            raise InputError(f"item vectors must be floats; got {values.dtype}: convert with .astype(np.float32)")
        self.array: Array = values
        prepare(values)

    @property
    def n(self) -> int:
        return int(self.array.shape[0])

    @property
    def d(self) -> int:
        return int(self.array.shape[1])

    def rows(self, positions: Positions) -> Floats:
        rows = np.asarray(self.array[positions], dtype=np.float64)
        if not np.isfinite(rows).all():
            wrong = positions[~np.isfinite(rows).all(axis=1)]
            raise InputError(
                f"the vector of item {int(wrong[0])} contains NaN or infinities: encode it again, or drop it"
            )
        return rows

    def predict(self, queries: Floats) -> Array:
        return product(self.array, queries)


class Stacked:
    """Spaces side by side: v_i = [w₁ v_i⁽¹⁾ ‖ w₂ v_i⁽²⁾ ‖ …]. The blocks stay where they are.

    Under a ridge the weight of a block is how far its coordinates are trusted: w² scales the prior variance
    of the scores that the block explains.
    """

    def __init__(self, blocks: Sequence[Space], weights: Sequence[float] | None = None) -> None:
        if not blocks:
            raise InputError("a stacked space needs at least one block; got none")
        sizes = [block.n for block in blocks]
        if len(set(sizes)) > 1:
            raise InputError(f"the blocks of a stacked space must hold the same items; got {sizes} items")
        weights = [1.0] * len(blocks) if weights is None else list(weights)
        if len(weights) != len(blocks):
            raise InputError(f"{len(weights)} weights for {len(blocks)} blocks: give one weight per block")
        self.blocks = list(blocks)
        self.weights = weights

    @property
    def n(self) -> int:
        return self.blocks[0].n

    @property
    def d(self) -> int:
        return sum(block.d for block in self.blocks)

    def rows(self, positions: Positions) -> Floats:
        parts = [weight * block.rows(positions) for block, weight in zip(self.blocks, self.weights, strict=True)]
        return np.concatenate(parts, axis=1)

    def predict(self, queries: Floats) -> Array:
        total: Array | None = None
        start = 0
        for block, weight in zip(self.blocks, self.weights, strict=True):
            part = block.predict(weight * queries[:, start : start + block.d])
            start += block.d
            if total is None:
                total = part
            elif total.flags.writeable and total.dtype == np.result_type(total, part):
                add(total, part)  # a batch of predictions is large: no second one beside it
            else:
                total = total + part
        assert total is not None
        return total


class Constant:
    """One coordinate, 1 for every item: the offset that a dot product cannot express by itself."""

    def __init__(self, n: int) -> None:
        self._n = n

    @property
    def n(self) -> int:
        return self._n

    @property
    def d(self) -> int:
        return 1

    def rows(self, positions: Positions) -> Floats:
        return np.ones((len(positions), 1))

    def predict(self, queries: Floats) -> Array:
        return np.broadcast_to(queries.astype(np.float32), (len(queries), self._n))


def as_space(space: Space | npt.ArrayLike) -> Space:
    """A space from what the user brought: a space, or an array of item vectors (n × d)."""
    return cast(Space, space) if hasattr(space, "predict") else Vectors(space)
