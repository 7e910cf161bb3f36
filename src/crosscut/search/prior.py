"""A prior for the query vector of a search, learned from the scores of past searches.

    f(q_j, i) = c_j + b_i + v_i · u_j + noise of variance σ²        one search j, the items i that it scored
    u_j ~ N(ū + s (q_j − q̄), Σ)                                     in the encoder's space

    q_j (d)   the encoder's query vector, q̄ their mean         s   slope: how far scores follow the encoder
    c_j       the query's level, free                           ū, Σ   mean and covariance of what u turned out to be
    b_i       an item's own residual: 0 until it was seen, and near 0 until it was seen often

What a search scored is no random sample. But what it scored next followed from what it had scored, so that under the
model the likelihood of the log is that of a sample (missing at random; Rubin 1976), and nothing has to be corrected. As
far as the model is wrong, pairs that were drawn at random can be made to count for those that were not scored.

The plain ridge takes u ~ N(0, τ² I): every direction is as likely as any other. Σ knows along which directions queries
do differ under this scorer. It is found by expectation–maximisation (the multi-task model of Schwaighofer, Tresp and
Yu, NIPS 2004). With X_j (m × d) the scored items' vectors, y_j their scores less what is expected of them, and
K_j = X_j Σ X_jᵀ + σ² I + level:

    E   û_j = u₀(q_j) + Σ X_jᵀ K_j⁻¹ y_j        C_j = Σ − Σ X_jᵀ K_j⁻¹ X_j Σ
    M   ū, s by least squares of û on q;        Σ = mean of (û_j − u₀)(û_j − u₀)ᵀ + C_j, then shrunk
        σ² = mean of E ε²;                      b_i = Σ_j [K_j⁻¹ y_j]_i / (Σ_j [K_j⁻¹]_ii + 1 / (ρ σ²))

Everything is arrays: a log of searches in, a `Prior` out. u stays a vector of the encoder's space. Beside anchor scores
it is one of the stacked space [w × encoder ‖ anchor scores], and q has no coordinates in the second part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from scipy.linalg.blas import ssyrk
from scipy.linalg.lapack import dtrtri

from crosscut.errors import InputError
from crosscut.linalg.arrays import looked_up
from crosscut.linalg.blas import one_thread
from crosscut.storage import WILD, Files, Saved
from crosscut.types import NO_HANDLES, NO_SCORES, Floats, Handles

ROUNDS = 8  # of expectation and maximisation: the start is sound, and stopping early is one more shrinkage
SHRINK = (0.15, 0.7)  # of Σ, towards a multiple of the identity: least and most
UNSURE = 80  # searches: of N, it is shrunk by so many over N. They determine little of d × d numbers
OWN = 1.0  # ρ: variance of an item's own residual, against σ²
CAUTION = 2.0  # noise in a search, against what the logged pairs show: they were scored because they looked alike
LEVEL = 1e4  # variance of a query's level, against σ²
EXACT = 1e-3  # the noise falls by no more than this in a round: scores may be exactly linear
RANK = 48  # directions of Σ that a search distinguishes; along all others queries differ alike
PAIRS = 4096  # whose products are made together
SAMPLE = 1000  # searches that all rounds but the last look at


class Past(NamedTuple):
    """A search as it was logged: the encoder's query vector (d), the items scored (m), in order, and their scores.

    `weights` (m): for how many pairs each stands, where some were drawn at random; None: one each.
    """

    vector: Floats
    handles: Handles
    scores: Floats
    weights: Floats | None = None


@dataclass(frozen=True, eq=False)
class Prior:
    """u ~ N(mean + slope (q − centre), covariance), scores with this noise, residuals of items that were seen."""

    mean: Floats  # ū (d)
    centre: Floats  # q̄ (d)
    slope: float  # s
    covariance: Floats  # Σ (d × d)
    noise: float  # σ²
    searches: int  # how many it was learned from
    seen: Handles = field(default_factory=lambda: NO_HANDLES)  # items with a residual of their own
    residuals: Floats = field(default_factory=lambda: NO_SCORES)  # b of those
    weight: float = 1.0  # w of the encoder's coordinates, beside anchor scores
    bought: bool = False  # by searches of train queries, while an index was built
    floor: float = field(init=False, repr=False)  # a search takes Σ = floor I + Dᵀ D
    directions: Floats = field(init=False, repr=False)  # D (r × d)

    def __post_init__(self) -> None:
        values, vectors = np.linalg.eigh(self.covariance)  # rising
        rest = max(0, len(values) - RANK)
        floor = float(np.maximum(values[:rest], 0.0).mean()) if rest else 0.0
        object.__setattr__(self, "floor", floor)
        stretched = vectors[:, rest:] * np.sqrt(np.maximum(values[rest:] - floor, 0.0))
        object.__setattr__(self, "directions", np.ascontiguousarray(stretched.T))

    @property
    def d(self) -> int:
        return len(self.mean)

    def at(self, query_vector: Floats | None) -> Floats:
        """u₀ (d): what u is expected to be; without a query vector, what it is for the average query."""
        return self.mean if query_vector is None else self.mean + self.slope * (self.whole(query_vector) - self.centre)

    def whole(self, query_vector: Floats) -> Floats:
        """q (d), 0 in coordinates that the encoder does not have."""
        return padded(query_vector, self.d)

    def spread(self, rows: Floats) -> float:
        """Standard deviation of v · u over items, of which some rows (m × d) are given, and over queries."""
        apart = rows - rows.mean(axis=0)
        parts = self.floor * (apart**2).sum() + ((apart @ self.directions.T) ** 2).sum()  # of v Σ vᵀ
        return float(np.sqrt(parts / len(rows)))

    def base(self, n: int) -> Floats:
        """b (n), 0 for items that no search has seen."""
        base = np.zeros(n)
        there = self.seen < n
        base[self.seen[there]] = self.residuals[there]
        return base

    def taken(self, positions: Handles) -> Prior:
        """The same for some of the items, in this order, which then have positions of their own."""
        order = np.argsort(positions, kind="stable")
        places = np.searchsorted(positions, self.seen, sorter=order)
        places = order[np.minimum(places, len(positions) - 1)] if len(positions) else np.zeros(0, np.int64)
        stay = np.flatnonzero(positions[places] == self.seen) if len(positions) else np.zeros(0, np.int64)
        stay = stay[np.argsort(places[stay], kind="stable")]
        return replace(self, seen=places[stay], residuals=self.residuals[stay])

    def write(self, files: Files) -> None:
        """Into the folder of an index: `prior.json`, `prior-*.npy`."""
        files.json("prior", {name: getattr(self, name) for name in ("slope", "noise", "searches", "weight", "bought")})
        for name in ("mean", "centre", "covariance", "seen", "residuals"):
            files.array(f"prior-{name}", getattr(self, name))

    @staticmethod
    def read(saved: Saved, n: int, sizes: Sequence[int]) -> Prior:
        """Read the files of `write`; d is one of these."""
        facts = saved.json("prior")
        mean = saved.numbers("prior-mean", "<f8", (None,))
        d = len(mean)
        if d not in sizes:
            raise saved.damaged("prior-mean.npy", f"has {d} dimensions, and the items {' or '.join(map(str, sizes))}")
        seen = saved.array("prior-seen", "<i8", (None,))
        if len(seen) and not (seen[0] >= 0 and seen[-1] < n and (seen[1:] > seen[:-1]).all()):
            raise saved.damaged("prior-seen.npy", f"does not name items of the {n} there are, each once and in order")
        slope, noise, weight = (float(facts.get(name, 1.0)) for name in ("slope", "noise", "weight"))
        if not (abs(slope) <= WILD and 0 <= noise <= WILD and 0 <= weight <= WILD):
            raise saved.damaged("prior.json", f"has a slope of {slope}, a noise of {noise} and a weight of {weight}")
        return Prior(
            mean,
            saved.numbers("prior-centre", "<f8", (d,)),
            slope,
            saved.numbers("prior-covariance", "<f8", (d, d)),
            noise,
            int(facts["searches"]),
            seen,
            saved.numbers("prior-residuals", "<f8", (len(seen),)),
            weight,
            bool(facts.get("bought", False)),
        )


def padded(vector: Floats, d: int) -> Floats:
    """A vector with 0 in the coordinates that it does not have."""
    return vector if len(vector) == d else np.concatenate([vector, np.zeros(d - len(vector))])


def fit_prior(
    searches: Sequence[Past],
    rows: Callable[[Handles], Floats],
    *,
    weights: Floats | None = None,
    start: Prior | None = None,
    rounds: int = ROUNDS,
    shrink: float | None = None,
    own: float = OWN,
    seed: int = 0,
) -> Prior:
    """The prior that explains a log of searches.

    Parameters
    ----------
    searches
        At least two. Those with fewer than two scores say nothing.
    rows
        Vectors of items (m × d) by handle, as `Space.rows`.
    weights
        (N) how much each search counts; None: all the same.
    start
        A prior to go on from, when a log has grown: two or three rounds are then enough.
    rounds
        All but the last look at no more than a thousand searches; the last looks at all of them.
    shrink
        How far Σ is drawn towards a multiple of the identity, 0 … 1; None: the less, the more searches there are.
    own
        ρ, the variance of an item's own residual against that of the noise; 0: items have none.
    """
    if weights is not None and len(weights) != len(searches):
        raise InputError(f"{len(weights)} weights for {len(searches)} searches: give one for each")
    usable = [j for j, past in enumerate(searches) if len(past.scores) > 1]
    if len(usable) < 2:
        raise InputError(f"a prior is learned from at least 2 searches with 2 scores each; got {len(usable)}")
    counts = np.ones(len(searches)) if weights is None else np.asarray(weights, dtype=np.float64)
    shrink = float(np.clip(UNSURE / len(usable), *SHRINK)) if shrink is None else shrink
    rng = np.random.default_rng(seed)
    some = np.sort(rng.choice(usable, SAMPLE, replace=False)).tolist() if len(usable) > SAMPLE else usable
    prior = start or _plain([searches[j] for j in some], rows)
    with one_thread():  # a search's products are small: threads would wait for each other, 2.5 times as long
        for number in range(rounds):
            chosen = usable if number == rounds - 1 else some
            steps = _Expectation(prior, own)
            for block in _blocks(searches, chosen):
                steps.add([searches[j] for j in block], [float(counts[j]) for j in block], rows)
            prior = steps.maximised(shrink)
    return prior


def _blocks(searches: Sequence[Past], chosen: Sequence[int]) -> Iterator[list[int]]:
    """Searches whose pairs are worked on together."""
    block: list[int] = []
    size = 0
    for j in chosen:
        block.append(j)
        size += len(searches[j].handles)
        if size >= PAIRS:
            yield block
            block, size = [], 0
    if block:
        yield block


def _plain(searches: Sequence[Past], rows: Callable[[Handles], Floats]) -> Prior:
    """The plain ridge as a prior: where learning starts."""
    variance = float(np.mean([past.scores.var() for past in searches])) or 1.0
    spread = float(np.mean([rows(past.handles).var(axis=0).sum() for past in searches[:50]])) or 1.0
    d = len(searches[0].vector)
    zeros = np.zeros(d)
    return Prior(zeros, zeros, 0.0, np.eye(d) * variance / spread, 0.3 * variance, 0)


class _Expectation:
    """One round over the log: what each search says under the prior so far, summed up."""

    def __init__(self, prior: Prior, own: float) -> None:
        self.prior, self.own = prior, own
        self.covariance = prior.covariance.astype(np.float32)
        self.vectors: list[Floats] = []  # q_j
        self.pulls: list[Floats] = []  # X_jᵀ K_j⁻¹ y_j
        self.counts: list[float] = []
        self.information = np.zeros((prior.d, prior.d))  # Σ_j w_j X_jᵀ K_j⁻¹ X_j, its upper triangle
        self.noise = self.pairs = 0.0
        self.pull: list[tuple[Handles, Floats, Floats]] = []  # of items' own residuals

    def add(self, block: Sequence[Past], counts: Sequence[float], rows: Callable[[Handles], Floats]) -> None:
        """Take in some searches, each counting so many times; their products are made together."""
        handles = np.concatenate([past.handles for past in block])
        vectors = rows(handles)  # (M × d), of all
        single = vectors.astype(np.float32)  # two products of M × d × d are most of the work
        spread = (single @ self.covariance).astype(np.float64)  # X Σ
        base = looked_up(handles, self.prior.seen, self.prior.residuals)  # what is known so far of items' own
        ends = np.cumsum([len(past.handles) for past in block])
        for past, count, end in zip(block, counts, ends.tolist(), strict=True):
            part = slice(end - len(past.handles), end)
            single[part] = self._one(past, count, vectors[part], spread[part], base[part])
        self.information += ssyrk(1.0, single.T)

    def _one(self, past: Past, count: float, rows: Floats, spread: Floats, base: Floats) -> Floats:
        """√w L⁻¹ X of one search (m × d), with L Lᵀ = K; what else it says is summed up here."""
        noise = self.prior.noise
        gram = spread @ rows.T + LEVEL * noise  # (m × m)
        own = np.full(len(rows), noise) if past.weights is None else noise / past.weights  # σ²_i
        gram[np.diag_indices_from(gram)] += own
        triangle = np.linalg.cholesky(gram)
        inverse = dtrtri(triangle, lower=1)[0]  # L⁻¹
        left = past.scores - rows @ self.prior.at(past.vector) - base  # y (m)
        dual = inverse.T @ (inverse @ left)  # K⁻¹ y
        precision = np.einsum("kj,kj->j", inverse, inverse)  # diagonal of K⁻¹
        self.vectors.append(past.vector)
        self.pulls.append(dual @ rows)
        self.counts.append(count)
        error = (own * dual) ** 2 + own - own**2 * precision  # E ε²
        self.noise += count * float((error * (noise / own)).sum())
        self.pairs += count * len(rows)
        self.pull.append((past.handles, count * (dual + precision * base), count * precision))
        return np.asarray((np.sqrt(count) * inverse) @ rows)

    def maximised(self, shrink: float) -> Prior:
        """The prior that makes all of it most likely, shrunk."""
        vectors, counts = np.array(self.vectors), np.array(self.counts)
        prior, sigma = self.prior, self.prior.covariance
        means = prior.mean + prior.slope * (vectors - prior.centre) + np.array(self.pulls) @ sigma  # û_j (N × d)
        share = counts / counts.sum()  # (N)
        centre, mean = share @ vectors, share @ means
        apart, moved = vectors - centre, means - mean  # (N × d)
        length = float(share @ np.einsum("jd,jd->j", apart, apart))
        slope = float(share @ np.einsum("jd,jd->j", apart, moved)) / length if length > 0 else 0.0
        rest = moved - slope * apart
        information = np.triu(self.information) + np.triu(self.information, 1).T
        left = sigma - sigma @ information @ sigma / counts.sum()  # mean of C_j
        covariance = (rest * share[:, None]).T @ rest + left
        floor = float(np.trace(covariance)) / self.prior.d
        covariance = (1 - shrink) * covariance + shrink * floor * np.eye(self.prior.d)
        noise = max(self.noise / self.pairs, EXACT * self.prior.noise)
        seen, residuals = self._own(noise)
        return Prior(mean, centre, slope, (covariance + covariance.T) / 2, noise, len(counts), seen, residuals)

    def _own(self, noise: float) -> tuple[Handles, Floats]:
        """Items' own residuals: what the searches that scored them left over, drawn towards 0."""
        if not self.own:
            return NO_HANDLES, NO_SCORES
        handles = np.concatenate([items for items, _, _ in self.pull])
        seen, place = np.unique(handles, return_inverse=True)
        pulled = np.bincount(place, np.concatenate([pull for _, pull, _ in self.pull]))
        precision = np.bincount(place, np.concatenate([sure for _, _, sure in self.pull]))
        return seen, np.asarray(pulled / (precision + 1 / (self.own * noise)))
