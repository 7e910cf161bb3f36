"""The sparse matrix G: which pairs to score for an index, and their scores.

AXN (Yadav et al. 2024, §2.1 and app. A.4):

    G ∈ ℝ^{|Q| × n}     scores of train queries with items, observed on the pairs P alone
    k_d                 items scored per train query (k_d |Q| calls), or queries per item (k_d n calls)
    β (s − α)           scores brought to the range of the encoder's, in G and again at search time

The pairs are the top of a retriever, drawn at random, or a mix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

import numpy as np
import numpy.typing as npt
from scipy import sparse

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.score_store.jobs import AnyScorer, ScoringOptions, score_pairs
from crosscut.spaces.base import Space, as_space
from crosscut.types import Array, Floats, Positions, whole


@dataclass(frozen=True)
class Pairs:
    """Pairs (query, item) to score, by query and then by item, each once."""

    queries: Positions  # (m)
    items: Positions  # (m)
    shape: tuple[int, int]  # |Q|, n

    def __len__(self) -> int:
        return len(self.queries)


@dataclass(frozen=True)
class Normalisation:
    """β(s − α): the scorer's scores in the range of the encoder's (AXN app. A.4)."""

    alpha: float = 0.0
    beta: float = 1.0

    def __post_init__(self) -> None:
        if not (np.isfinite(self.alpha) and np.isfinite(self.beta) and self.beta > 0):
            raise InputError(
                f"a normalisation β(s − α) needs a real α and a β above 0; got α = {self.alpha}, β = {self.beta}"
            )

    def __call__(self, scores: npt.NDArray[Any]) -> Floats:
        return np.asarray(self.beta * (scores.astype(np.float64) - self.alpha))


@dataclass(frozen=True)
class SparseScores:
    """G: the observed scores of train queries with items, and what they cost.

    `from_triples`, `from_csr` and `from_dense` take scores that are already there; `from_scorer` obtains them.
    """

    pairs: Pairs
    scores: Floats  # (m)
    normalisation: Normalisation = Normalisation()  # what `scores` have been through
    calls: int = 0
    cached: int = 0
    seconds: float = 0.0  # in the scorer

    def __post_init__(self) -> None:
        if len(self.scores) != len(self.pairs):
            raise InputError(f"{len(self.scores)} scores for {len(self.pairs)} pairs: give one for each")
        if not np.isfinite(self.scores).all():
            where = int(np.flatnonzero(~np.isfinite(self.scores))[0])
            raise InputError(
                f"the score of query {int(self.pairs.queries[where])} with item {int(self.pairs.items[where])} is "
                f"{self.scores[where]}: score the pair again, or leave it out"
            )

    @classmethod
    def from_triples(
        cls, queries: npt.ArrayLike, items: npt.ArrayLike, scores: npt.ArrayLike, shape: tuple[int, int]
    ) -> SparseScores:
        """From query positions, item positions and scores (m each), in any order."""
        rows = np.asarray(queries, dtype=np.int64).reshape(-1)
        columns = np.asarray(items, dtype=np.int64).reshape(-1)
        values = np.asarray(scores, dtype=np.float64).reshape(-1)
        if not len(rows) == len(columns) == len(values):
            raise InputError(f"{len(rows)} queries, {len(columns)} items and {len(values)} scores are no triples")
        for what, places, size in (("query", rows, shape[0]), ("item", columns, shape[1])):
            if len(places) and not (places.min() >= 0 and places.max() < size):
                wrong = places.min() if places.min() < 0 else places.max()
                raise InputError(f"{what} {wrong} of the sparse scores is not one of {size} (0 … {size - 1})")
        order = np.lexsort((columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        twice = np.flatnonzero((np.diff(rows) == 0) & (np.diff(columns) == 0))
        if len(twice):
            raise InputError(f"query {rows[twice[0]]} and item {columns[twice[0]]} are scored twice: keep one score")
        return cls(Pairs(rows, columns, shape), values)

    @classmethod
    def from_csr(cls, matrix: sparse.csr_matrix[Any] | sparse.csr_array[Any]) -> SparseScores:
        """From a scipy matrix (|Q| × n) whose stored entries, zeros included, are the observed ones."""
        coordinates = matrix.tocoo()
        rows, columns = coordinates.coords if hasattr(coordinates, "coords") else (coordinates.row, coordinates.col)
        return cls.from_triples(rows, columns, coordinates.data, (int(matrix.shape[0]), int(matrix.shape[1])))

    @classmethod
    def from_dense(cls, matrix: Array, pairs: Pairs | None = None) -> SparseScores:
        """From a matrix (|Q| × n): these pairs of it, or all that are not NaN."""
        if pairs is None:
            rows, columns = np.nonzero(~np.isnan(matrix))
            return cls.from_triples(rows, columns, matrix[rows, columns], (matrix.shape[0], matrix.shape[1]))
        if matrix.shape != pairs.shape:
            raise InputError(f"the matrix has shape {matrix.shape} and the pairs were chosen for {pairs.shape}")
        return cls(pairs, matrix[pairs.queries, pairs.items].astype(np.float64))

    @classmethod
    def from_scorer(
        cls,
        scorer: AnyScorer,
        queries: Sequence[Any],
        pairs: Pairs,
        *,
        items: Sequence[Item | str] | None = None,
        **options: Unpack[ScoringOptions],
    ) -> SparseScores:
        """Score these pairs, by a scorer bound to its items, or one of texts with `items`.

        Parameters
        ----------
        queries
            (|Q|) the train queries, as the scorer takes them.
        options
            cache, store, engine, progress …: see `crosscut.score_store.jobs.ScoringOptions`.
        """
        if len(queries) != pairs.shape[0]:
            raise InputError(f"{len(queries)} queries for pairs that were chosen for {pairs.shape[0]}")
        result = score_pairs(scorer, queries, items, pairs.queries, pairs.items, **options)
        scores = np.asarray(result.scores, np.float64)
        return cls(pairs, scores, calls=result.calls, cached=result.known, seconds=result.seconds)

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def shape(self) -> tuple[int, int]:
        return self.pairs.shape

    def csr(self) -> sparse.csr_matrix[np.float64]:
        """As a scipy matrix (|Q| × n)."""
        return sparse.csr_matrix((self.scores, (self.pairs.queries, self.pairs.items)), shape=self.shape)

    def take(self, keep: npt.NDArray[np.bool_]) -> SparseScores:
        """The entries where `keep` (m) is true."""
        pairs = Pairs(self.pairs.queries[keep], self.pairs.items[keep], self.shape)
        return replace(self, pairs=pairs, scores=self.scores[keep])

    def normalised(self, by: Normalisation) -> SparseScores:
        """The same with scores β(s − α); only raw scores can be normalised."""
        if self.normalisation != Normalisation():
            raise InputError(f"these scores are normalised already, by {self.normalisation}")
        return replace(self, scores=by(self.scores), normalisation=by)


def items_per_query(
    k_d: int,
    shape: tuple[int, int],
    *,
    ranked: Sequence[npt.ArrayLike] | Array | None = None,
    random: float | None = None,
    seed: int = 0,
) -> Pairs:
    """k_d items for each train query: k_d |Q| calls.

    Parameters
    ----------
    shape
        |Q| and n.
    ranked
        For each query, items of a retriever, best first (`ann.flat.top_items` makes them from vectors).
    random
        Share of the k_d that is drawn instead: 0 is the top of the retriever, 1 uniform. By default 0, without a
        retriever 1.
    """
    return _sorted(*_chosen(k_d, shape[0], shape[1], ranked, random, seed), shape)


def queries_per_item(
    k_d: int,
    shape: tuple[int, int],
    *,
    ranked: Sequence[npt.ArrayLike] | Array | None = None,
    random: float | None = None,
    seed: int = 0,
) -> Pairs:
    """k_d train queries for each item: k_d n calls. `ranked` holds, for each item, queries, best first."""
    items, queries = _chosen(k_d, shape[1], shape[0], ranked, random, seed)
    return _sorted(queries, items, shape)


def _chosen(
    k_d: int,
    rows: int,
    columns: int,
    ranked: Sequence[npt.ArrayLike] | Array | None,
    random: float | None,
    seed: int,
) -> tuple[Positions, Positions]:
    whole("k_d, the scores per train query (or per item),", k_d, 1)
    share = (1.0 if ranked is None else 0.0) if random is None else random
    if not 0 <= share <= 1:
        raise InputError(f"random is the share of pairs drawn uniformly, 0 … 1; got {random}")
    if ranked is None and share < 1:
        raise InputError(f"{1 - share:.0%} of the pairs are to be the top of a retriever: pass its ranking as ranked=")
    if ranked is not None and len(ranked) != rows:
        raise InputError(f"{len(ranked)} rankings for {rows} rows of the score matrix: give one for each")
    rng = np.random.default_rng(seed)
    count = min(k_d, columns)
    drawn = round(share * count)
    chosen = []
    for row in range(rows):
        top = np.empty(0, dtype=np.int64)
        if ranked is not None and drawn < count:
            top = np.asarray(ranked[row], dtype=np.int64)[: count - drawn]
            if len(top) and not (top.min() >= 0 and top.max() < columns):
                raise InputError(f"a ranking names {top.max()}, which is not one of {columns} (0 … {columns - 1})")
        # a ranking may be short: chance fills up what it leaves
        chosen.append(np.concatenate([top, _drawn(rng, columns, count - len(top), top)]))
    return np.repeat(np.arange(rows), [len(choice) for choice in chosen]), np.concatenate(chosen)


def _drawn(rng: np.random.Generator, size: int, count: int, without: Positions) -> Positions:
    """`count` of 0 … size − 1, none of them in `without`."""
    if not count:
        return np.empty(0, dtype=np.int64)
    drawn = rng.choice(size, size=min(count + len(without), size), replace=False, shuffle=True)
    return np.asarray(drawn[~np.isin(drawn, without)][:count], dtype=np.int64)


def _sorted(queries: Positions, items: Positions, shape: tuple[int, int]) -> Pairs:
    order = np.lexsort((items, queries))
    return Pairs(queries[order], items[order], shape)


def normalisation(
    scores: SparseScores, vectors: Space | npt.ArrayLike, query_vectors: Array, *, most: int = 100
) -> Normalisation:
    """α and β that give observed scores the mean and the deviation of the encoder's, on up to `most` train queries."""
    check_vectors(scores, as_space(vectors), query_vectors)
    some = np.unique(scores.pairs.queries)[:most]
    part = scores.take(np.isin(scores.pairs.queries, some))
    theirs = encoder_scores(part, as_space(vectors), query_vectors)
    spread, wanted = float(part.scores.std()), float(theirs.std())
    if not (spread and wanted):
        who = "the scorer" if not spread else "the encoder"
        raise InputError(f"{who} gives all {len(part)} pairs the same score: there is no range to normalise")
    beta = wanted / spread
    return Normalisation(float(part.scores.mean() - theirs.mean() / beta), beta)


def encoder_scores(scores: SparseScores, vectors: Space, query_vectors: Array) -> Floats:
    """The encoder's own scores of the observed pairs (m)."""
    values = np.empty(len(scores))
    for start in range(0, len(scores), 1 << 14):
        part = slice(start, start + (1 << 14))
        rows = vectors.rows(scores.pairs.items[part])  # (m × d)
        values[part] = np.einsum("md,md->m", rows, query_vectors[scores.pairs.queries[part]].astype(np.float64))
    return values


def check_vectors(scores: SparseScores, vectors: Space, query_vectors: Array) -> None:
    """Whether encoder vectors fit a sparse matrix; an error says what does not."""
    if not len(scores):
        raise InputError("the sparse matrix has no observed score: choose k_d of 1 or more")
    if (vectors.n, len(query_vectors)) != (scores.shape[1], scores.shape[0]):
        raise InputError(
            f"{len(query_vectors)} query vectors and {vectors.n} item vectors for scores of "
            f"{scores.shape[0]} queries with {scores.shape[1]} items"
        )
    if query_vectors.ndim != 2 or query_vectors.shape[1] != vectors.d:
        raise InputError(
            f"the query vectors have shape {query_vectors.shape} and the item vectors {vectors.d} dimensions: "
            "both must come from the same encoder"
        )
