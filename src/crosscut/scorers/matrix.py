"""A scorer that replays a known matrix: the fake for tests, examples and the papers' experiments."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.scorers.callable import CallableScorer
from crosscut.types import Floats, Handles


class MatrixScorer(CallableScorer):
    """f(q, i) = M[q, i]: a bound scorer whose query is a row number.

    Parameters
    ----------
    matrix
        (queries × items) scores of any float type, in memory or memory-mapped; never copied whole.
    """

    def __init__(self, matrix: npt.ArrayLike) -> None:
        array = matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix, dtype=np.float64)
        if array.ndim != 2:
            raise InputError(f"a score matrix has two dimensions (queries × items); this one has shape {array.shape}")
        self.matrix = array
        self.n_items = int(array.shape[1])

    def _ask(self, query: Any, given: Handles) -> Floats:
        row = int(query)
        if not 0 <= row < len(self.matrix):
            raise InputError(f"query {row} is not a row of this matrix, which has {len(self.matrix)} rows")
        return np.asarray(self.matrix[row, given], dtype=np.float64)
