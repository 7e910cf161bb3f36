"""Logistic regression: Newton's method under a ridge."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from crosscut.types import Floats


def logistic(x: Floats, share: Floats, ridge: Floats | float, *, towards: Floats | None = None) -> Floats:
    """Weights w (d) such that σ(x w) tells a share, 0 … 1, of every row.

    Parameters
    ----------
    x
        (m × d) rows; a column of ones is the constant.
    ridge
        For all weights, or one for each (d).
    towards
        (d) the weights that the ridge pulls to; 0 by default.
    """
    penalty = np.broadcast_to(np.asarray(ridge, np.float64), x.shape[1:])
    home = np.zeros(x.shape[1]) if towards is None else towards
    weights = home.copy()
    for _ in range(50):
        guess = expit(x @ weights)
        hessian = (x * (guess * (1 - guess) + 1e-6)[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(hessian, x.T @ (share - guess) - penalty * (weights - home))
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights
