"""Learning from past searches: the prior, the estimator that uses it, and the choice whether to."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from crosscut.ann.topk import as_vectors
from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.methods import Parts
from crosscut.methods.learning import FEWEST, learn
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.fits import learned
from crosscut.search.prior import Past, Prior, fit_prior
from crosscut.searcher import Searcher
from crosscut.spaces.base import Constant, Stacked, Vectors
from crosscut.types import Array, Floats, Handles
from tests.fake_store import FakeStore

D, N = 24, 400


@dataclass
class Planted:
    """Queries whose vectors differ along a few directions, under a scorer that is linear in the items' vectors."""

    vectors: Floats  # (n × d)
    queries: Floats  # (q × d)
    scores: Floats  # (q × n)
    mean: Floats
    directions: Floats  # (3 × d)

    @property
    def parts(self) -> Parts:
        return Parts(encoder=Vectors(self.vectors), n=N)

    def log(self, rows: range, budget: int = 60) -> list[Past]:
        searcher = Searcher(MatrixScorer(self.scores), parts=self.parts)
        hits = searcher.search_many(list(rows), 10, budget, query_vectors=self.queries[rows.start : rows.stop])
        return [
            Past(self.queries[j], found.scored, self.scores[j, found.scored])
            for j, found in zip(rows, hits, strict=True)
        ]

    def recall(self, parts: Parts, rows: range, budget: int = 30) -> float:
        searcher = Searcher(MatrixScorer(self.scores), parts=parts)
        hits = searcher.search_many(list(rows), 10, budget, query_vectors=self.queries[rows.start : rows.stop])
        return float(np.mean([recall(self.scores[j], found.scored, 10) for j, found in zip(rows, hits, strict=True)]))


def planted(seed: int = 0, queries: int = 140, related: float = 1.0) -> Planted:
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(N, D)) / np.sqrt(D)
    asked = rng.normal(size=(queries, D)) / np.sqrt(D)
    mean = rng.normal(size=D)
    directions = np.linalg.qr(rng.normal(size=(D, 3)))[0].T
    u = mean + asked + 4 * rng.normal(size=(queries, 3)) @ directions
    scores = related * u @ vectors.T + 0.2 * rng.normal(size=(queries, N)) + rng.normal(size=(queries, 1))
    return Planted(vectors, asked, scores, mean, directions)


def test_learns_the_directions_along_which_queries_differ() -> None:
    world = planted()
    prior = fit_prior(world.log(range(100)), lambda items: world.vectors[items], shrink=0.0)
    inside = np.trace(world.directions @ prior.covariance @ world.directions.T)
    assert inside > 0.8 * np.trace(prior.covariance)  # 3 of 24 directions
    assert prior.noise == pytest.approx(0.04, rel=0.5)
    assert prior.mean @ world.mean > 0.8 * np.linalg.norm(world.mean) * np.linalg.norm(prior.mean)
    assert prior.searches == 100


def test_an_items_own_residual_is_learned_only_where_it_was_seen() -> None:
    world = planted()
    special = int(np.argsort(-world.scores.mean(axis=0))[0])
    world.scores[:, special] += 3.0
    log = world.log(range(100))
    seen = np.unique(np.concatenate([past.handles for past in log]))
    prior = fit_prior(log, lambda items: world.vectors[items])
    base = prior.base(N)
    assert special in seen
    assert int(np.argmax(base)) == special
    assert not base[np.setdiff1d(np.arange(N), seen)].any()
    assert not fit_prior(log, lambda items: world.vectors[items], own=0.0).base(N).any()


def test_a_search_that_counts_nothing_teaches_nothing() -> None:
    world = planted()
    log = world.log(range(60))
    weights = np.repeat([1.0, 0.0], 30)
    rows = Vectors(world.vectors).rows
    start = fit_prior(log[:30], rows, rounds=1)
    faded = fit_prior(log, rows, weights=weights, start=start, rounds=2)
    short = fit_prior(log[:30], rows, start=start, rounds=2)
    assert np.allclose(faded.covariance, short.covariance, atol=1e-4 * np.abs(short.covariance).max())
    assert np.allclose(faded.mean, short.mean, atol=1e-4)
    assert np.allclose(faded.base(N), short.base(N), atol=1e-4)


def test_the_estimate_is_the_posterior_mean() -> None:
    rng = np.random.default_rng(0)
    vectors, scores = rng.normal(size=(50, 6)), rng.normal(size=50)
    half = rng.normal(size=(6, 6))
    prior = Prior(rng.normal(size=6), rng.normal(size=6), 0.7, half @ half.T, 0.3, 9)
    space = Stacked([Vectors(vectors), Constant(50)], [1.0, 5.0])
    query = rng.normal(size=6)
    fit = learned(7, 0.3, prior, query)
    for items in (np.arange(7), np.arange(7, 20)):
        fit.add(items, space.rows(items), scores[items])
    rows, expected = vectors[:20], prior.at(query)
    gram = rows @ prior.covariance @ rows.T + 25.0 + 0.3 * np.eye(20)
    dual = np.linalg.solve(gram, scores[:20] - rows @ expected)
    u = fit.solve()
    assert np.allclose(u[:6], expected + prior.covariance @ rows.T @ dual)
    assert np.allclose(5.0 * u[6], 25.0 * dual.sum())
    assert np.allclose(learned(7, 0.3, prior, None).solve()[:6], prior.mean)
    with pytest.raises(InputError, match="6 dimensions and the space 2"):
        learned(3, 0.3, prior, None)


def test_past_searches_raise_recall() -> None:
    world = planted()
    got = learn(world.log(range(80)), Vectors(world.vectors), n=N)
    assert got.prior is not None
    assert got.learned > got.plain
    assert got.why.startswith("used")
    test = range(100, 140)
    before = world.recall(world.parts, test)
    after = world.recall(replace(world.parts, prior=got.prior), test)
    assert 1 - after < 0.75 * (1 - before)


def test_too_few_searches_and_searches_that_do_not_help_are_not_used() -> None:
    world = planted()
    log = world.log(range(FEWEST))
    few = learn(log[:-1], Vectors(world.vectors), n=N)
    assert few.prior is None
    assert f"{FEWEST} are needed" in few.why
    noise = planted(related=0.0)
    noise.scores[:] = np.random.default_rng(1).normal(size=noise.scores.shape)
    nothing = learn(noise.log(range(60)), Vectors(noise.vectors), n=N)
    assert nothing.prior is None
    assert nothing.why.startswith("not used")


def test_without_a_prior_of_its_dimensions_the_search_is_the_plain_one() -> None:
    world = planted()
    prior = Prior(np.zeros(3), np.zeros(3), 1.0, np.eye(3), 0.1, 50)
    right = Prior(np.zeros(D), np.zeros(D), 1.0, np.eye(D), 0.1, 50)
    query, vector = 3, world.queries[3]

    def scored(parts: Parts, method: str = "crosscut") -> Array:
        found = Searcher(MatrixScorer(world.scores), parts=parts, method=method)
        return found.search(query, 10, 40, query_vector=vector).scored

    plain = scored(world.parts)
    assert np.array_equal(plain, scored(replace(world.parts, prior=prior)))
    assert np.array_equal(plain, scored(replace(world.parts, prior=right), "crosscut@learned=false"))
    assert not np.array_equal(plain, scored(replace(world.parts, prior=right)))


def test_a_learned_prior_searches_a_store_with_one_vector() -> None:
    world = planted()
    prior = fit_prior(world.log(range(60)), Vectors(world.vectors).rows, own=0.0)
    flat = Searcher(MatrixScorer(world.scores), parts=replace(world.parts, prior=prior))
    for query in range(100, 105):
        store = FakeStore([str(row) for row in range(N)], world.vectors)

        def score(query: int, handles: Handles, store: FakeStore = store) -> Floats:
            return np.asarray(world.scores[query, [int(store.name(int(handle))) for handle in handles]])

        over = Searcher(score, parts=Parts(encoder=as_vectors(store), prior=prior))
        vector = world.queries[query]
        ours = flat.search(query, 10, 40, query_vector=vector)
        theirs = over.search(query, 10, 40, query_vector=vector)
        assert [hit.score for hit in ours] == [hit.score for hit in theirs]


def test_unusable_searches_are_an_error() -> None:
    world = planted()
    log = world.log(range(2))
    with pytest.raises(InputError, match="at least 2 searches"):
        fit_prior(log[:1], Vectors(world.vectors).rows)
    with pytest.raises(InputError, match="1 weights for 2 searches"):
        fit_prior(log, Vectors(world.vectors).rows, weights=np.ones(1))
