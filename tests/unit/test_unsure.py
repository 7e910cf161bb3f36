"""Anchor scores that are estimates: how far they are off, and what a search makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from crosscut.errors import InputError
from crosscut.methods import Parts
from crosscut.scorers.adapters import MatrixScorer
from crosscut.search.fits import Ridge
from crosscut.searcher import Searcher
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.extension import extended_scores, extension_error

WORLD = Path(__file__).parents[2] / "benchmarks" / "matrices" / "wordnet-feeling.npz"


def test_the_error_of_estimates_is_measured_on_held_out_items() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(600, 8))
    scores = rng.normal(size=(12, 8)) @ vectors.T + 0.7 * rng.normal(size=(12, 600))
    measured = np.arange(600) < 500
    error = extension_error(scores, vectors, measured)
    estimates = extended_scores(scores, vectors, vectors[500:], measured, 100)
    assert error == pytest.approx(np.sqrt(np.mean((estimates - scores[:, 500:]) ** 2)), rel=0.1)
    assert error == pytest.approx(0.7, rel=0.1)
    without = extension_error(scores, None, measured)
    assert without == pytest.approx(scores.std(axis=1).mean(), rel=0.05)
    assert extension_error(scores, vectors, np.zeros(600, bool)) == 0.0


def test_what_is_trusted_less_has_more_noise() -> None:
    rng = np.random.default_rng(0)
    vectors, scores = rng.normal(size=(30, 5)), rng.normal(size=30)
    noises = np.where(np.arange(30) % 3, 0.4, 2.5)
    fit = Ridge(5, 0.4, trust=np.sqrt(0.4 / noises))
    for items in (np.arange(12), np.arange(12, 30)):
        fit.add(items, vectors[items], scores[items])
    expected = vectors.T @ np.linalg.solve(vectors @ vectors.T + np.diag(noises), scores)
    assert np.allclose(fit.solve(), expected)


def test_items_without_anchor_scores_are_not_crowded_out() -> None:
    with np.load(WORLD, allow_pickle=False) as archive:
        data = {name: archive[name] for name in ("test", "train", "vectors", "query_vectors")}
    vectors, test = data["vectors"].astype(np.float32), data["test"].astype(np.float64)
    hidden = np.random.default_rng(0).random(len(vectors)) < 0.3
    scores = data["train"][:40].astype(np.float64)
    scores[:, hidden] = 0.0
    scores[:, hidden] = extended_scores(scores, vectors, vectors[hidden], ~hidden, int(hidden.sum()))
    errors = np.where(hidden, extension_error(scores, vectors, ~hidden), 0.0)
    parts = Parts(encoder=Vectors(vectors), n=len(vectors))

    def share(made: Parts) -> float:
        searcher = Searcher(MatrixScorer(test), parts=made)
        hits = searcher.search_many(range(len(test)), 10, 50, query_vectors=data["query_vectors"])
        tops = [np.argsort(-row, kind="stable")[:10] for row in test]
        return float(
            np.mean(np.concatenate([np.isin(t[hidden[t]], h.scored) for t, h in zip(tops, hits, strict=True)]))
        )

    wider = share(replace(parts, anchors=CUR(scores, errors=errors)))
    assert wider > share(replace(parts, anchors=CUR(scores))) + 0.03  # estimates taken for measurements
    assert wider > share(parts) - 0.01  # no anchors at all


def searched(parts: Parts, k: int = 10) -> list[list[int]]:
    rng = np.random.default_rng(1)
    scorer, vector = MatrixScorer(rng.normal(size=(1, 80))), rng.normal(size=(1, 4))
    hits = Searcher(scorer, parts=parts).search_many([0], k, 40, query_vectors=vector)[0]
    return [entry.estimates.tolist() for entry in hits.trace]


def unsure_parts() -> Parts:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(80, 4))
    scores = rng.normal(size=(10, 4)) @ vectors.T + 0.3 * rng.normal(size=(10, 80))
    return Parts(encoder=Vectors(vectors), anchors=CUR(scores, errors=np.where(np.arange(80) % 2, 0.6, 0.0)), n=80)


def test_an_error_of_zero_everywhere_changes_nothing_and_errors_are_one_an_item() -> None:
    parts = unsure_parts()
    assert parts.anchors is not None
    scores = parts.anchors.anchor_scores
    same = searched(replace(parts, anchors=CUR(scores, errors=np.zeros(80))))
    np.testing.assert_equal(same, searched(replace(parts, anchors=CUR(scores))))
    with pytest.raises(InputError, match="3 errors for 80 items"):
        CUR(scores, errors=np.zeros(3))


def test_with_fewer_than_two_calls_a_result_less_is_hoped_for() -> None:
    parts = unsure_parts()
    usual, scarce = searched(parts, k=20), searched(parts, k=21)
    assert np.nanmean(usual[1]) > np.nanmean(scarce[1])
