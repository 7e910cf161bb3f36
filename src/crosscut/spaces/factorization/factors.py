"""Factors: item vectors that explain the observed scores of a sparse matrix.

AXN (Yadav et al. 2024, §2.1, eq. 3):

    min_{U, V}  ‖(G − U Vᵀ)_P‖²      G normalised to the encoder's range, U and V started at the encoder's vectors

    U (|Q| × d)   train-query factors        V (n × d)   item factors, the space that is searched

The solvers are in `als.py`, `transductive.py` and `inductive.py`. A tenth of the observed pairs is held out; every
solver keeps the factors of its lowest held-out loss and reports what they took. They hold the vectors of items that
have a score, a small part of a large corpus; the others follow from the encoder's, which are read where they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import DivergedError, InputError
from crosscut.spaces.base import Slot, Space, Vectors, as_space
from crosscut.spaces.sparse import Normalisation, Pairs, SparseScores, check_vectors, normalisation
from crosscut.storage import Files, Folder, Kind, Saved, put_down, room
from crosscut.types import Array, Positions

KIND = Kind("factors", "factors.json", 2, "factorise again")
Matrix = npt.NDArray[np.float32]
ROWS = 1 << 14  # vectors read at a time


@dataclass(frozen=True)
class Fitting:
    """Settings and cost of fitting factors."""

    solver: str
    calls: int  # of the scorer, for G
    cached: int
    scoring_seconds: float
    training_seconds: float
    observed: int  # entries of G
    held_out: list[float]  # root mean squared error on the held-out pairs: at the start, after each epoch
    trained: list[float]  # the same on the pairs trained on
    elapsed: list[float]  # seconds from the start of the fit to each of them
    best: int  # the epoch that was kept
    settings: dict[str, Any] = field(default_factory=dict)


class Factors(Vectors):
    """A space of item factors V, with the normalisation that its scores went through.

    `rerank` searches transductive factors with the encoder's query vector; `axn` and `crosscut` fit one. `axn` takes
    α and β from here.

    Parameters
    ----------
    items
        V (n × d).
    queries
        U (|Q| × d) of the train queries.
    """

    kind: ClassVar[str] = "transductive"
    slot: ClassVar[Slot] = "factors"

    def __init__(self, items: Array, queries: Array, normalisation: Normalisation, fitting: Fitting) -> None:
        super().__init__(items)
        self.query_factors = queries
        self.normalisation = normalisation
        self.fitting = fitting

    @property
    def normal(self) -> tuple[float, float]:
        return self.normalisation.alpha, self.normalisation.beta

    def embed_queries(self, vectors: npt.ArrayLike) -> Array:
        """The encoder's vectors of any queries (m × d), in this space: as they are, for factors that start there."""
        return np.asarray(vectors)

    def extended(self, vectors: Array) -> Factors:
        """With more items at the end, by their encoder vectors (m × d): that is where transductive factors start."""
        return self._of(self._with(vectors))

    def taken(self, positions: Positions) -> Factors:
        """Of some of the items."""
        return self._of(self.array[positions])

    def _of(self, items: Array) -> Factors:
        return Factors(items, self.query_factors, self.normalisation, self.fitting)

    def _with(self, rows: Array) -> Array:
        return np.concatenate([self.array, rows.astype(self.array.dtype)])

    def save(self, path: str | Path) -> Path:
        """Write a folder (`crosscut.storage.folders`): factors.json, factors-items.npy and more, in float32."""
        Folder(path, KIND).save({}, self.write)
        return Path(path)

    def write(self, files: Files) -> None:
        """These factors, as files of a generation."""
        facts = {"kind": self.kind, "normalisation": asdict(self.normalisation), "fitting": asdict(self.fitting)}
        files.json("factors", facts)
        for name, array in self._arrays().items():
            files.array(f"factors-{name}", np.asarray(array, dtype=np.float32))

    def _arrays(self) -> dict[str, Array]:
        return {"items": self.array, "queries": self.query_factors}

    @classmethod
    def load(cls, path: str | Path) -> Factors:
        """Factors from a folder that `save` wrote; item factors are memory-mapped."""
        return Folder(path, KIND).load(cls.read)

    @staticmethod
    def read(saved: Saved, n: int | None = None) -> Factors:
        """Read the files of `write`, of n items."""
        facts = saved.json("factors")
        try:
            normal, fitting = Normalisation(**facts["normalisation"]), Fitting(**facts["fitting"])
        except (KeyError, TypeError) as error:
            raise saved.damaged("factors.json", f"cannot be read ({error!r})") from error
        items = saved.array("factors-items", "<f4", (n, None))
        queries = saved.numbers("factors-queries", "<f4", (None, items.shape[1]))
        if facts["kind"] == "inductive":
            from crosscut.spaces.factorization.inductive import InductiveFactors, read_mlps

            return InductiveFactors(items, queries, normal, fitting, *read_mlps(saved, items.shape[1]))
        return Factors(items, queries, normal, fitting)


@dataclass(frozen=True)
class FactorProblem:
    """The input of every solver: normalised scores, split, and the encoder's vectors.

    Items are numbered among those that have a score: m of them.
    """

    train: SparseScores
    held: SparseScores
    items: Matrix  # V⁰ (m × d)
    queries: Matrix  # U⁰ (|Q| × d)
    whole: SparseScores
    seen: Positions  # (m) which items these are
    space: Space  # of all of them (n × d)

    def spread(self, items: Matrix, others: Callable[[Matrix], Matrix]) -> Matrix:
        """Factors of all items (n × d): those that were found (m × d), and what `others` makes of encoder vectors."""
        out = room((self.space.n, self.space.d), np.float32)
        for start in range(0, self.space.n, ROWS):
            end = min(start + ROWS, self.space.n)
            low, high = np.searchsorted(self.seen, (start, end))
            if high - low < end - start:
                out[start:end] = others(self.space.rows(np.arange(start, end)).astype(np.float32))
            out[self.seen[low:high]] = items[low:high]
            put_down(out)
        return out

    def loss(self, part: SparseScores, queries: Array, items: Array) -> float:
        """Root mean squared error of U Vᵀ on the pairs of a part."""
        total = 0.0
        for start in range(0, len(part), 1 << 15):
            piece = slice(start, start + (1 << 15))
            rows, columns = part.pairs.queries[piece], part.pairs.items[piece]
            predicted = np.einsum("md,md->m", queries[rows], items[columns])
            total += float(np.sum((predicted - part.scores[piece]) ** 2))
        return float(np.sqrt(total / len(part))) if len(part) else float("nan")


def problem(
    scores: SparseScores,
    vectors: Space | npt.ArrayLike,
    query_vectors: npt.ArrayLike,
    *,
    normalise: bool | Normalisation,
    validation: float,
    by_query: bool,
    seed: int,
) -> FactorProblem:
    """Normalise G, hold a share of it out, and take the encoder's vectors as a starting point.

    `by_query` holds whole queries out, to judge how a model does on queries it has never seen.
    """
    space, given = as_space(vectors), np.asarray(query_vectors)
    check_vectors(scores, space, given)
    if not 0 <= validation < 1:
        raise InputError(f"validation is the share of scores held out, 0 or more and below 1; got {validation}")
    if normalise and scores.normalisation == Normalisation():
        by = normalise if isinstance(normalise, Normalisation) else normalisation(scores, space, given)
        scores = scores.normalised(by)
    rng = np.random.default_rng(seed)
    held = np.zeros(len(scores), dtype=bool)
    queries = np.unique(scores.pairs.queries)
    if validation and by_query and len(queries) >= 10:
        some = rng.choice(queries, max(1, round(validation * len(queries))), replace=False)
        held = np.isin(scores.pairs.queries, some)
    elif validation and len(scores) >= 2:
        held[rng.choice(len(scores), min(max(1, round(validation * len(scores))), len(scores) - 1), False)] = True
    if not np.isfinite(given).all():
        raise InputError("a query vector contains NaN or infinities: encode the train queries again")
    seen, numbers = np.unique(scores.pairs.items, return_inverse=True)
    pairs = Pairs(scores.pairs.queries, numbers.reshape(-1).astype(np.int64), (scores.shape[0], len(seen)))
    scores = replace(scores, pairs=pairs)
    start = np.empty((len(seen), space.d), np.float32)
    for first in range(0, len(seen), ROWS):
        start[first : first + ROWS] = space.rows(seen[first : first + ROWS])
    return FactorProblem(scores.take(~held), scores.take(held), start, given.astype(np.float32), scores, seen, space)


class SolverProgress:
    """The losses of a fit, epoch by epoch; guards against NaN and says when to stop."""

    def __init__(self, solver: str, patience: int, hint: str, started: float | None = None) -> None:
        self.solver, self.patience, self.hint = solver, patience, hint
        self.started = time.perf_counter() if started is None else started
        self.elapsed: list[float] = []
        self.held_out: list[float] = []
        self.trained: list[float] = []
        self.best = 0

    def note(self, trained: float, held_out: float) -> bool:
        """Take in an epoch; true when its factors are the best so far."""
        epoch = len(self.held_out)
        for name, value in (("training", trained), ("held-out", held_out)):
            if not np.isfinite(value) and not (name == "held-out" and np.isnan(value) and np.isfinite(trained)):
                raise DivergedError(f"the {name} loss of {self.solver} is {value} after epoch {epoch}: {self.hint}")
        self.elapsed.append(time.perf_counter() - self.started)
        self.trained.append(trained)
        self.held_out.append(held_out)
        # without held-out pairs there is nothing to choose by: the last epoch counts
        if np.isnan(held_out) or not epoch or held_out < self.held_out[self.best]:
            self.best = epoch
            return True
        return False

    @property
    def settled(self) -> bool:
        """Whether the held-out loss has not fallen for `patience` epochs."""
        return len(self.held_out) - 1 - self.best >= self.patience

    def fitting(self, scores: SparseScores, settings: dict[str, Any]) -> Fitting:
        """The report of a fit that ends now."""
        return Fitting(
            solver=self.solver,
            calls=scores.calls,
            cached=scores.cached,
            scoring_seconds=scores.seconds,
            training_seconds=time.perf_counter() - self.started,
            observed=len(scores),
            held_out=self.held_out,
            trained=self.trained,
            elapsed=self.elapsed,
            best=self.best,
            settings=settings,
        )
