"""A space: one vector per item, so that a query vector u predicts every score as V u.

    V   (n × d)   item vectors, one row per item
    u   (d)       query vector
    V u (n)       predicted scores

Arrays are used where they are: float16, float32 or float64, row- or column-major, in memory or memory-mapped.
Nothing here copies V.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.linalg.products import add, prepare, product
from crosscut.spaces.home import Home
from crosscut.types import Array, Floats, Positions

if TYPE_CHECKING:
    from crosscut.ann.topk import TopK

Slot: TypeAlias = str
BLOCK = 1 << 14  # vectors checked at a time


class Block(NamedTuple):
    """A space inside another: what its vectors are multiplied with there, and which coordinates they are."""

    space: Space
    weight: float
    part: slice


@runtime_checkable
class Space(Protocol):
    """The interface of item vectors to a search. Subclass it to write your own."""

    slot: ClassVar[Slot] = "factors"
    """Which part of a method it is, when a user passes it as `space=`."""
    constant: ClassVar[bool] = False
    """Whether every item has the same vector."""
    of_queries: ClassVar[bool] = False
    """Whether the encoder's query vectors live in this space too."""
    alike: Sequence[tuple[slice, Floats]] = ()
    """Coordinates that are the same for every item, and their values (1 × m), where it is stacked with such."""

    @property
    def normal(self) -> tuple[float, float]:
        """α and β of β(s − α): how the scores were normalised that it was made from."""
        return 0.0, 1.0

    @property
    def blocks(self) -> Sequence[Block]:
        """The spaces that are concatenated in it; otherwise itself alone."""
        return (Block(self, 1.0, slice(0, self.d)),)

    @property
    def lasting(self) -> Space | None:
        """The part of a large index that does not change while items are added: samples of it may be cached."""
        return None

    @property
    def topk(self) -> TopK | None:
        """The index or store that finds its top; None: every item is read."""
        return None

    @property
    def home(self) -> Home | None:
        """Lists of items that are near each other, where there are such."""
        inner = (block.space for block in self.blocks if block.space is not self)
        return next((space.home for space in inner if space.home is not None), None)

    @property
    def readable(self) -> bool:
        """Whether `predict` can read every item; vectors in a store cannot be read so."""
        return all(block.space.readable for block in self.blocks if block.space is not self)

    @property
    @abstractmethod
    def n(self) -> int:
        """The number of items."""

    @property
    @abstractmethod
    def d(self) -> int:
        """The number of dimensions."""

    @abstractmethod
    def rows(self, positions: Positions) -> Floats:
        """V[positions] (m × d) in float64, for fitting."""

    @abstractmethod
    def predict(self, queries: Floats) -> Array:
        """V u for every query vector: (q × d) → (q × n), in the space's precision."""

    def at(self, positions: Positions, vector: Floats) -> Array:
        """V[positions] u (m), in the space's precision."""
        return np.asarray(self.rows(positions) @ vector)


def finite(rows: Floats, positions: Positions) -> Floats:
    """The vectors of these items; one that holds no numbers is named."""
    if not np.isfinite(rows).all():
        wrong = np.asarray(positions)[~np.isfinite(rows).all(axis=1)]
        raise InputError(f"the vector of item {int(wrong[0])} contains NaN or infinities: encode it again, or drop it")
    return rows


class Vectors(Space):
    """Item vectors given as an array: a dual encoder's, factors, anything with an inner product."""

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(self, array: npt.ArrayLike) -> None:
        values = array if isinstance(array, np.ndarray) else np.asarray(array, dtype=np.float64)
        if values.ndim != 2:
            raise InputError(f"item vectors need two dimensions (items × dimensions); got shape {values.shape}")
        if not np.issubdtype(values.dtype, np.floating):
            raise InputError(f"item vectors must be floats; got {values.dtype}: convert with .astype(np.float32)")
        self.array: Array = values
        self._home: Home | None = None
        prepare(values)

    @property
    def home(self) -> Home | None:
        return self._home

    def lying(self, home: Home | None) -> Self:
        """The same vectors, of items that lie in lists."""
        made = copy.copy(self)
        made._home = home
        return made

    @property
    def n(self) -> int:
        return int(self.array.shape[0])

    @property
    def d(self) -> int:
        return int(self.array.shape[1])

    def rows(self, positions: Positions) -> Floats:
        return finite(np.asarray(self.array[positions], dtype=np.float64), positions)

    def predict(self, queries: Floats) -> Array:
        return product(self.array, queries)

    def at(self, positions: Positions, vector: Floats) -> Array:
        return np.asarray(product(self.array[positions], vector[None, :])[0])


class Stacked(Space):
    """Spaces side by side: v_i = [w₁ v_i⁽¹⁾ ‖ w₂ v_i⁽²⁾ ‖ …]. The blocks stay where they are.

    Under a ridge the weight of a block is how far its coordinates are trusted: w² scales the prior variance
    of the scores that the block explains.
    """

    def __init__(self, blocks: Sequence[Space], weights: Sequence[float] | None = None) -> None:
        if not blocks:
            raise InputError("a stacked space needs at least one block; got none")
        sizes = [block.n for block in blocks if block.readable]
        if len(set(sizes)) > 1:
            raise InputError(f"the blocks of a stacked space must hold the same items; got {sizes} items")
        weights = [1.0] * len(blocks) if weights is None else list(weights)
        if len(weights) != len(blocks):
            raise InputError(f"{len(weights)} weights for {len(blocks)} blocks: give one weight per block")
        ends = np.cumsum([block.d for block in blocks]).tolist()
        places = [slice(end - block.d, end) for block, end in zip(blocks, ends, strict=True)]
        self._blocks = tuple(map(Block, blocks, weights, places))
        self._d = int(ends[-1])
        one = np.zeros(1, np.int64)
        self.alike = [(part, weight * space.rows(one)) for space, weight, part in self._blocks if space.constant]
        self._moving = [block for block in self._blocks if not block.space.constant]

    @property
    def blocks(self) -> Sequence[Block]:
        return self._blocks

    @property
    def n(self) -> int:
        return self._blocks[0].space.n

    @property
    def d(self) -> int:
        return self._d

    def rows(self, positions: Positions) -> Floats:
        taken = np.empty((len(positions), self._d))
        for part, row in self.alike:
            taken[:, part] = row
        for space, weight, part in self._moving:
            np.multiply(space.rows(positions), weight, out=taken[:, part])
        return taken

    def at(self, positions: Positions, vector: Floats) -> Array:
        total = np.zeros(len(positions))
        for space, weight, part in self._blocks:
            total += space.at(positions, weight * vector[part])
        return total

    def predict(self, queries: Floats) -> Array:
        total: Array | None = None
        for space, weight, part in self._blocks:
            more = space.predict(weight * queries[:, part])
            if total is None:
                total = more
            elif total.flags.writeable and total.dtype == np.result_type(total, more):
                add(total, more)  # a batch of predictions is large: no second one beside it
            else:
                total = total + more
        assert total is not None
        return total


class Constant(Space):
    """One coordinate, 1 for every item: the offset that a dot product cannot express by itself."""

    constant: ClassVar[bool] = True

    def __init__(self, n: int | None) -> None:
        self._n = n

    @property
    def readable(self) -> bool:
        return self._n is not None

    @property
    def n(self) -> int:
        return known_count(self._n)

    @property
    def d(self) -> int:
        return 1

    def rows(self, positions: Positions) -> Floats:
        return np.ones((len(positions), 1))

    def predict(self, queries: Floats) -> Array:
        return np.broadcast_to(queries.astype(np.float32), (len(queries), self.n))

    def at(self, positions: Positions, vector: Floats) -> Array:
        return np.full(len(positions), vector[0])


def known_count(n: int | None) -> int:
    """Return the number of items, or raise an error if a store does not know it."""
    if n is None:
        raise InputError("this store does not know how many items it has")
    return n


def as_space(space: Space | npt.ArrayLike) -> Space:
    """A space from what the user brought: a space, or item vectors (n × d), an array or a tensor of torch."""
    if isinstance(space, Space):
        return space
    if type(space).__module__ == "torch":
        from crosscut.spaces.device import of_tensor

        return of_tensor(space)
    vectors = Vectors(space)
    if not isinstance(vectors.array, np.memmap):  # a file is read when it is searched
        for start in range(0, vectors.n, BLOCK):
            block = vectors.array[start : start + BLOCK]
            if not np.isfinite(block).all():
                finite(block, np.arange(start, start + len(block)))
    return vectors
