"""Logistic regression: Newton's method under a ridge."""

from __future__ import annotations

import numpy as np
from scipy.special import expit

from crosscut.types import Floats


def logistic(x: Floats, share: Floats, ridge: Floats | float) -> Floats:
    """Weights w (d) such that σ(x w) tells a share, 0 … 1, of every row.

    Parameters
    ----------
    x
        (m × d) rows; a column of ones is the constant.
    ridge
        For all weights, or one for each (d).
    """
    penalty = np.broadcast_to(np.asarray(ridge, np.float64), x.shape[1:])
    weights = np.zeros(x.shape[1])
    for _ in range(50):
        guess = expit(x @ weights)
        hessian = (x * (guess * (1 - guess) + 1e-6)[:, None]).T @ x + np.diag(penalty)
        step = np.linalg.solve(hessian, x.T @ (share - guess) - penalty * weights)
        weights += step
        if np.abs(step).max() < 1e-8:
            break
    return weights
