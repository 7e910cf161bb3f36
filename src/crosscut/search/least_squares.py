"""Least squares that grows by rows: the u of every round, without starting again.

    min_u ‖V_A u − a‖² + μ ‖u‖²     μ = 0: u = (V_A)† a, the minimum-norm solution
                                    (ANNCUR §2.4, ADACUR alg. 1 l. 12–13, AXN eq. 4)

    V_A (m × d)   vectors of the scored items        a (m)   their scores
    V_A = L Q     Q (r × d) orthonormal rows spanning those of V_A, L (m × r) coordinates
    L = O T       T (r × r) upper triangular, O orthonormal (never formed);  c = Oᵀ a
    u = Qᵀ T⁻¹ c

New rows are projected on Q (Gram–Schmidt, twice), what is left of them extends Q, and their coordinates are rotated
into T by LAPACK's triangular–pentagonal QR: k new rows cost O(k (m + k) d). Everything is float64. The singular
values of T are those of V_A, so that a relative cut-off on them means what it means in `numpy.linalg.pinv`.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import lapack, qr, solve_triangular

from crosscut.errors import InputError
from crosscut.scorers.base import Floats

EPS = float(np.finfo(np.float64).eps)
SAFE = 1e-6  # a triangle whose diagonal spans less than this needs no singular values


class LeastSquares:
    """The least-squares query vector of a growing set of scored items.

    Parameters
    ----------
    d
        Dimensions of the space.
    ridge
        μ ≥ 0. With 0, the minimum-norm least squares of the papers.
    rcond
        Singular values of V_A under `rcond` times the largest count as zero; None: ε · max(m, d), numpy's own
        for `lstsq`. Only without ridge.
    """

    def __init__(self, d: int, *, ridge: float = 0.0, rcond: float | None = None) -> None:
        if not ridge >= 0:
            raise InputError(f"a ridge must be 0 or more; got {ridge}")
        self.d = d
        self.ridge = ridge
        self.rcond = rcond
        self.m = 0
        self._scale = 0.0  # the largest row norm seen
        self._basis = np.empty((0, d))  # Q, with room to grow
        self._rank = 0
        self._triangle = np.empty((0, 0), order="F")  # T
        self._rotated = np.empty(0)  # c

    def add(self, rows: Floats, targets: Floats) -> None:
        """Take in k more rows of V_A (k × d) and their scores (k)."""
        k = len(rows)
        if not k:
            return
        self.m += k
        self._scale = max(self._scale, float(np.sqrt(np.max(np.einsum("kd,kd->k", rows, rows)))))
        basis = self._basis[: self._rank]  # (r × d)
        inside = rows @ basis.T  # (k × r)
        rest = rows - inside @ basis  # (k × d)
        again = rest @ basis.T  # a second pass brings orthogonality to machine precision
        rest -= again @ basis
        new = self._directions(rest)  # (p × d)
        coordinates = np.concatenate([inside + again, rest @ new.T], axis=1)  # (k × (r + p))
        self._extend(new)
        self._rotate(coordinates, targets)

    def solve(self) -> Floats:
        """u (d)."""
        if not self._rank:
            return np.zeros(self.d)
        return np.asarray(self._coefficients() @ self._basis[: self._rank])

    def _directions(self, rest: Floats) -> Floats:
        """An orthonormal basis (p × d) of the rows' part outside Q; nothing for rows that lie inside."""
        room = self.d - self._rank
        if not room:
            return np.empty((0, self.d))
        directions, triangle, _ = qr(rest.T, mode="economic", pivoting=True, check_finite=False)
        tolerance = 4 * EPS * max(self.m, self.d) * self._scale
        p = min(int(np.sum(np.abs(np.diagonal(triangle)) > tolerance)), room)
        return np.ascontiguousarray(directions[:, :p].T)

    def _extend(self, new: Floats) -> None:
        r, p = self._rank, len(new)
        if r + p > len(self._basis):
            grown = np.empty((min(self.d, max(2 * (r + p), 64)), self.d))
            grown[:r] = self._basis[:r]
            self._basis = grown
        self._basis[r : r + p] = new
        triangle = np.zeros((r + p, r + p), order="F")
        triangle[:r, :r] = self._triangle
        triangle[range(r, r + p), range(r, r + p)] = np.sqrt(self.ridge)
        self._triangle = triangle
        self._rotated = np.concatenate([self._rotated, np.zeros(p)])
        self._rank = r + p

    def _rotate(self, coordinates: Floats, targets: Floats) -> None:
        """QR of [T; coordinates], keeping only the new T and c."""
        r = self._rank
        if not r:
            return
        block = min(32, r)
        triangle, reflectors, factors, _ = lapack.dtpqrt(
            0, block, self._triangle, np.asfortranarray(coordinates), overwrite_a=1, overwrite_b=1
        )
        rotated, _, _ = lapack.dtpmqrt(
            0, reflectors, factors, self._rotated[:, None], targets[:, None], side="L", trans="T"
        )
        self._triangle = triangle
        self._rotated = np.ascontiguousarray(rotated[:, 0])

    def _coefficients(self) -> Floats:
        """z = T⁺ c (r), at the cut-off."""
        cut = EPS * max(self.m, self.d) if self.rcond is None else self.rcond
        diagonal = np.abs(np.diagonal(self._triangle))
        if self.ridge > 0 or (cut < SAFE**1.5 and diagonal.min() > SAFE * diagonal.max()):
            solution: Floats = solve_triangular(self._triangle, self._rotated, check_finite=False)
            return solution
        left, singular, right = np.linalg.svd(self._triangle)
        kept = singular > cut * singular[0]
        inverse = np.divide(1.0, singular, where=kept, out=np.zeros_like(singular))
        return np.asarray((left.T @ self._rotated * inverse) @ right)
