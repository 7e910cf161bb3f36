"""Least squares that grows by rows: the u of every round, without starting again.

    min_u ‖V_A u − a‖² + μ ‖u‖²     μ = 0: u = (V_A)† a, the minimum-norm solution
                                    (ANNCUR §2.4, ADACUR alg. 1 l. 12–13, AXN eq. 4)

    V_A (m × d)   vectors of the scored items        a (m)   their scores

**Innovations.** With L Lᵀ = V_A V_Aᵀ + μ I, keep B = L⁻¹ V_A (m × d) and z = L⁻¹ a; then u = Bᵀ z. New rows X with
scores x only see what is new in them:

    W = X Bᵀ                          their coordinates among the old            (k × m)
    D Dᵀ = X Xᵀ + μ I − W Wᵀ          what is left, triangular                   (k × k)
    B′ = D⁻¹ (X − W B),  z′ = D⁻¹ (x − W z),  u += B′ᵀ z′

For μ = 0 this is Gram–Schmidt and B is orthonormal; for μ > 0 it is Gaussian-process regression, one block at a time.
k new rows cost O(k (m + k) d).

**A prior of its own.** Under u ~ N(0, Σ) the penalty is μ uᵀ Σ⁻¹ u. With the images P = X Σ of the rows (k × d), X Xᵀ
becomes X Pᵀ and B = L⁻¹ V_A Σ: only B′ = D⁻¹ (P − W B) changes above, and neither a root nor an inverse of Σ is needed.

**Rank.** Without a ridge, rows must be independent for that. When they are not (duplicates, zero vectors, m > d), the
fit goes on as V_A = L Q with L = O T, T triangular and O never formed: new rows are rotated into T by LAPACK's
triangular–pentagonal QR, at the same cost. The singular values of T are those of V_A, so that a relative cut-off on
them means what it means in `numpy.linalg.pinv`; where the cut-off bites, they are computed anew each round, O(r³).

Everything is float64.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import blas, lapack, qr

from crosscut.errors import InputError
from crosscut.types import Floats

EPS = float(np.finfo(np.float64).eps)
SAFE = 1e-6  # rows whose new part is smaller than this, relative to the largest row, may be dependent
ROOM = 1024  # rows that a fit has room for from the start
CLOSE = 0.1  # after losing this much of its length, a row is orthogonalised again
GEMM = 1 << 18  # multiplications of a product that OpenBLAS does not share out between threads
LEAST = 8  # rows that are worth a product of their own


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
    sides
        Right-hand sides: with 2 or more, targets are (k × sides), `solve` returns one u a side (sides × d), and
        `products` their AᵀK⁻¹A. Only with a ridge.
    """

    def __init__(self, d: int, *, ridge: float = 0.0, rcond: float | None = None, sides: int = 1) -> None:
        if not ridge >= 0:
            raise InputError(f"a ridge must be 0 or more; got {ridge}")
        if rcond is not None and not 0 <= rcond < 1:
            raise InputError(f"a relative cut-off lies in 0 … 1 (1 excluded); got {rcond}")
        self._fit: _Innovations | _Triangle = _Innovations(d, ridge, sides)
        self._rcond = rcond
        if rcond is not None and rcond > SAFE**1.5 and not ridge:
            self._fit = _Triangle(d, rcond)  # the cut-off is meant to bite

    def add(self, rows: Floats, targets: Floats, images: Floats | None = None) -> None:
        """Take in k more rows of V_A (k × d) and their scores (k); with a prior of its own, their images X Σ (k × d).

        Images are for a ridge, and for all rows of a fit or for none.
        """
        if not len(rows):
            return
        if isinstance(self._fit, _Innovations):
            if self._fit.ridge:
                self._fit.add(rows, targets, images)
                return
            room = self._fit.room()
            if 0 < room < len(rows):  # fill the dimensions first: with a complete basis the rest is cheaper
                self.add(rows[:room], targets[:room])
                self.add(rows[room:], targets[room:])
                return
            if self._fit.add(rows, targets):
                return
            self._fit = self._fit.triangle(self._rcond)
        self._fit.add(rows, targets)

    def solve(self) -> Floats:
        """Return u (d)."""
        return self._fit.solve()

    @property
    def products(self) -> Floats:
        """AᵀK⁻¹A (sides × sides) of the targets A (m × sides), with K = V_A Σ V_Aᵀ + μ I."""
        assert isinstance(self._fit, _Innovations)
        return self._fit.products


class _Innovations:
    """B, z and u of the module's docstring, and for μ = 0 also L and a. z is stored as one more column of B.

    Rows are kept newest first, laid in from the end of the room towards its beginning: a lower triangle read backwards
    is an upper one, so that L becomes the T of `_Triangle` where it lies.
    """

    def __init__(self, d: int, ridge: float, sides: int = 1) -> None:
        self.d, self.sides = d, sides
        self.ridge = ridge
        self.m = 0
        self._both = np.empty((0, d + sides))  # [B ‖ z] (room × d + sides)
        self.products = np.zeros((sides, sides))  # zᵀz
        self._triangle = np.empty((0, 0), order="F")  # L (room × room); below the diagonal nothing is ever read
        self._scores = np.empty(0)  # a (room)
        self._u = np.zeros(d) if sides == 1 else np.zeros((sides, d))
        self._scale = 0.0  # the largest row norm seen

    @property
    def _basis(self) -> Floats:
        """B (m × d)."""
        return self._both[len(self._both) - self.m :, : self.d]

    def add(self, rows: Floats, targets: Floats, images: Floats | None = None) -> bool:
        """Take in rows; False, and the fit is as before, if they are not independent enough."""
        if len(rows) > self.room():
            return False
        k, d = rows.shape
        both = self._both[len(self._both) - self.m :]
        rest = np.empty((k, d + self.sides))  # [X Σ ‖ x] − W [B ‖ z]
        rest[:, :d] = rows if images is None else images
        rest[:, d:] = targets.reshape(k, -1)
        if self.ridge:
            # a ridge that is tiny beside the rows would be lost in rounding
            square = rows.reshape(-1).dot((rows if images is None else images).reshape(-1))
            ridge = max(self.ridge, 4 * EPS * k * float(square))
            step = max(GEMM // (k * (d + 1)), LEAST)
            for start in range(0, self.m, step):
                some = both[start : start + step]
                rest -= (rows @ some[:, :d].T) @ some
            own = rows @ rest[:, :d].T  # X (X Σ − W B)ᵀ = X Σ Xᵀ − W Wᵀ
            own.reshape(-1)[:: k + 1] += ridge
            new = _inverse_root(own) @ rest
        else:
            inside = rows @ both[:, :-1].T  # W (k × m)
            split = self._orthonormal(rows, inside, rest[:, :-1] - inside @ both[:, :-1])
            if split is None:
                return False
            inside, triangle, rest[:, :-1] = split
            rest[:, -1:] = solve_lower(triangle, (targets - inside @ both[:, -1])[:, None])
            new = rest
        z = new[:, d:]
        self._u = self._u + (z[:, 0] if self.sides == 1 else z.T) @ new[:, :d]
        if self.sides > 1:
            self.products += z.T @ z
        self._make_room(k)
        end = len(self._both) - self.m
        start = end - k
        self._both[start:end] = new[::-1]
        if not self.ridge:
            self._triangle[start:end, start:end] = triangle[::-1, ::-1]
            self._triangle[start:end, end:] = inside[::-1]
            self._scores[start:end] = targets[::-1]
        self.m += k
        return True

    def room(self) -> int:
        """Return how many more rows can be independent; with a ridge, any number."""
        return sys.maxsize if self.ridge else self.d - self.m

    def solve(self) -> Floats:
        return self._u

    def triangle(self, rcond: float | None) -> _Triangle:
        """The same fit, ready for rows of any rank."""
        first = len(self._both) - self.m
        fit = _Triangle(self.d, rcond)
        basis = np.ascontiguousarray(self._basis)
        fit.start(basis, self._triangle[first:, first:], self._scores[first:], self._scale)
        return fit

    def _make_room(self, more: int) -> None:
        m, room = self.m, len(self._both)
        if m + more <= room:
            return
        grown = max(2 * (m + more), ROOM)  # memory that is not used yet costs nothing
        if not self.ridge:
            grown = min(grown, self.d)
            triangle, scores = np.empty((grown, grown), order="F"), np.empty(grown)
            triangle[grown - m :, grown - m :] = self._triangle[room - m :, room - m :]
            scores[grown - m :] = self._scores[room - m :]
            self._triangle, self._scores = triangle, scores
        both = np.empty((grown, self.d + self.sides))
        both[grown - m :] = self._both[room - m :]
        self._both = both

    def _orthonormal(self, rows: Floats, inside: Floats, rest: Floats) -> tuple[Floats, Floats, Floats] | None:
        """W, D and B′ with orthonormal B′; None for rows that depend on others, nearly or wholly."""
        lengths = np.sqrt(np.einsum("kd,kd->k", rows, rows))
        self._scale = max(self._scale, float(lengths.max()))
        left = np.sqrt(np.einsum("kd,kd->k", rest, rest))
        if np.any(left < CLOSE * lengths):
            basis = self._basis
            again = rest @ basis.T
            inside, rest = inside + again, rest - again @ basis
            left = np.sqrt(np.einsum("kd,kd->k", rest, rest))
        if left.min() <= SAFE * self._scale:
            return None
        new = rest / left[:, None]
        triangle = np.diag(left)
        for _ in range(2):  # Cholesky QR, and once more where the first lost precision
            try:
                factor = np.linalg.cholesky(new @ new.T)
            except np.linalg.LinAlgError:
                return None
            new = solve_lower(factor, new)
            triangle = triangle @ factor
            if np.diagonal(factor).min() > CLOSE:
                break
        if np.diagonal(triangle).min() <= SAFE * self._scale:
            return None
        return inside, triangle, new


def _inverse_root(matrix: Floats) -> Floats:
    """D⁻¹ with D Dᵀ = matrix (k × k), lower. LAPACK reads the symmetric matrix as it lies, transposed."""
    factor, wrong = lapack.dpotrf(matrix.T, lower=0, overwrite_a=1)
    if wrong:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    inverse, _ = lapack.dtrtri(factor, lower=0, overwrite_c=1)
    return np.asarray(inverse.T)


def solve_lower(triangle: npt.NDArray[Any], rows: Floats) -> Floats:
    """D⁻¹ rows, for a lower triangle D. BLAS reads both as they lie in memory, transposed."""
    return np.asarray(blas.dtrsm(1.0, triangle.T, rows.T, side=1).T)


class _Triangle:
    """Q, T and c = Oᵀ a: u = Qᵀ T⁺ c, for rows of any rank."""

    def __init__(self, d: int, rcond: float | None) -> None:
        self.d = d
        self.rcond = rcond
        self.m = 0
        self._scale = 0.0
        self._basis = np.empty((0, d))  # Q (r × d), orthonormal rows
        self._triangle = np.empty((0, 0), order="F")  # T (r × r)
        self._rotated = np.empty(0)  # c (r)
        self._sound = 0.0  # reciprocal condition number of T

    def start(self, basis: Floats, triangle: Floats, rotated: Floats, scale: float) -> None:
        """Begin with what independent rows have left."""
        self.m, self._scale = len(basis), scale
        self._basis, self._rotated = basis, rotated
        self._became(np.asfortranarray(triangle))

    def add(self, rows: Floats, targets: Floats) -> None:
        self.m += len(rows)
        self._scale = max(self._scale, float(np.sqrt(np.max(np.einsum("kd,kd->k", rows, rows)))))
        coordinates = rows @ self._basis.T  # (k × r)
        if len(self._basis) < self.d:
            rest = rows - coordinates @ self._basis
            again = rest @ self._basis.T
            rest -= again @ self._basis
            new = self._directions(rest)  # (p × d)
            coordinates = np.concatenate([coordinates + again, rest @ new.T], axis=1)
            self._extend(new)
        self._rotate(coordinates, targets)

    def _directions(self, rest: Floats) -> Floats:
        """An orthonormal basis (p × d) of the rows' part outside Q; nothing for rows that lie inside."""
        directions, triangle, _ = qr(rest.T, mode="economic", pivoting=True, check_finite=False)
        tolerance = 4 * EPS * max(self.m, self.d) * self._scale
        p = min(int(np.sum(np.abs(np.diagonal(triangle)) > tolerance)), self.d - len(self._basis))
        new: Floats = np.ascontiguousarray(directions[:, :p].T, dtype=np.float64)
        if p and len(self._basis):  # a direction of little length is orthogonal to Q only roughly: once more
            new -= (new @ self._basis.T) @ self._basis
            new = np.ascontiguousarray(qr(new.T, mode="economic", check_finite=False)[0].T, dtype=np.float64)
        return new

    def _extend(self, new: Floats) -> None:
        r = len(self._basis)
        self._basis = np.concatenate([self._basis, new])
        triangle = np.zeros((len(self._basis), len(self._basis)), order="F")
        triangle[:r, :r] = np.triu(self._triangle)
        self._triangle = triangle
        self._rotated = np.concatenate([self._rotated, np.zeros(len(new))])

    def _rotate(self, coordinates: Floats, targets: Floats) -> None:
        """QR of [T; what waited; coordinates], keeping only the new T and c."""
        if not len(self._basis):
            return
        triangle, reflectors, factors, _ = lapack.dtpqrt(
            0, min(32, len(self._basis)), self._triangle, np.asfortranarray(coordinates), overwrite_a=1, overwrite_b=1
        )
        rotated, _, _ = lapack.dtpmqrt(
            0, reflectors, factors, self._rotated[:, None], targets[:, None], side="L", trans="T"
        )
        self._rotated = np.ascontiguousarray(rotated[:, 0])
        self._became(triangle)

    def _became(self, triangle: Floats) -> None:
        self._triangle = triangle
        self._sound = float(lapack.dtrcon(triangle)[0])

    def _cut(self) -> float:
        return EPS * max(self.m, self.d) if self.rcond is None else self.rcond

    def solve(self) -> Floats:
        if not len(self._basis):
            return np.zeros(self.d)
        return np.asarray(self._coefficients() @ self._basis)

    def _coefficients(self) -> Floats:
        """T⁺ c (r), at the cut-off."""
        cut = self._cut()
        # far above the cut-off nothing is cut off, and a triangular solve is the pseudo-inverse
        if cut < SAFE**1.5 and self._sound > 100 * cut:
            return np.asarray(lapack.dtrtrs(self._triangle, self._rotated)[0])
        left, singular, right = np.linalg.svd(np.triu(self._triangle))
        kept = singular > cut * singular[0]
        inverse = np.divide(1.0, singular, where=kept, out=np.zeros_like(singular))
        return np.asarray((left.T @ self._rotated * inverse) @ right)
