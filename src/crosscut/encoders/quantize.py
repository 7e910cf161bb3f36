"""Weights in eight bits: one scale per row, symmetric, no zero point.

Here weights are rounded. Where activations are too (`crosscut.encoders.graph`), each row has a scale of its own: a
score then depends on its own pair alone, and not on what is computed with it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def quantize(
    weight: npt.NDArray[np.float32],
) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """A matrix (rows × columns) as int8 and one float32 scale per row (rows × 1)."""
    scale = np.maximum(np.abs(weight).max(axis=1, keepdims=True) / 127, 1e-12).astype(np.float32)
    return np.clip(np.rint(weight / scale), -127, 127).astype(np.int8), scale


def rounded(weight: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """The matrix as eight bits would keep it; applying it twice changes nothing."""
    values, scale = quantize(weight)
    return values.astype(np.float32) * scale
