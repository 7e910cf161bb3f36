"""Item vectors that live on a device, such as a GPU: they stay there, and so do the products with them.

Predictions (q × n) and the rows of what was scored come back; fits, masks and the choice of the next items are made on
the CPU, as for any other space. Half-precision vectors are multiplied in float32, block by block.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from crosscut.errors import InputError
from crosscut.spaces.base import Slot, Space, Vectors, finite
from crosscut.types import Array, Floats, Positions

BLOCK = 1 << 16  # half-precision vectors that are widened at a time


class OnDevice(Space):
    """Item vectors in a torch tensor (n × d), wherever it is.

    >>> searcher = crosscut.Searcher(scorer, vectors=tensor.to("cuda"))
    """

    slot: ClassVar[Slot] = "encoder"
    of_queries: ClassVar[bool] = True

    def __init__(self, tensor: Any) -> None:
        if tensor.ndim != 2 or not tensor.is_floating_point():
            raise InputError(
                f"item vectors are floats of two dimensions (items × dimensions); got {tensor.dtype} of shape "
                f"{tuple(tensor.shape)}"
            )
        self.tensor = tensor.detach()

    @property
    def n(self) -> int:
        return int(self.tensor.shape[0])

    @property
    def d(self) -> int:
        return int(self.tensor.shape[1])

    def rows(self, positions: Positions) -> Floats:
        import torch

        places = torch.as_tensor(np.asarray(positions, np.int64), device=self.tensor.device)
        return finite(self.tensor[places].cpu().double().numpy(), positions)

    def predict(self, queries: Floats) -> Array:
        import torch

        half = self.tensor.dtype in (torch.float16, torch.bfloat16)
        kind = torch.float32 if half else self.tensor.dtype
        asked = torch.as_tensor(np.asarray(queries)).to(kind).to(self.tensor.device)  # (q × d)
        step = BLOCK if half else max(self.n, 1)
        parts = [asked @ self.tensor[start : start + step].to(kind).T for start in range(0, self.n, step)]
        made: Array = torch.cat(parts, dim=1).cpu().numpy() if parts else np.empty((len(queries), 0), np.float32)
        return made


def of_tensor(tensor: Any) -> Space:
    """The space of a tensor: on the CPU its numbers are an array, read where they are."""
    if tensor.device.type == "cpu" and tensor.is_floating_point() and tensor.element_size() != 2:
        return Vectors(tensor.detach().numpy())
    return OnDevice(tensor)
