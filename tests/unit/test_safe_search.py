"""Searches that go wrong: what was paid is reported, wild scores end nothing, a deadline has an answer."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest

import crosscut
from crosscut.ann.topk import Found
from crosscut.errors import InputError
from crosscut.methods import Method, Parts
from crosscut.search.loop import Picker, Plan, Query
from crosscut.search.stages import FirstRound, Random
from crosscut.search.stopping import Schedule
from crosscut.types import Floats, Handles

VECTORS = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
SCORES = VECTORS @ VECTORS[:5].T


class Failing(Picker):
    def pick(self, queries: Sequence[Query], counts: Sequence[int]) -> list[Found]:
        raise ZeroDivisionError("a defect of a plug-in")


@dataclass(frozen=True, repr=False)
class Broken(Method):
    name: ClassVar[str] = "broken"

    def plan(self, parts: Parts) -> Plan:
        return Plan(FirstRound(Random(parts.pool), parts.pool), Schedule(2), Failing())


def test_any_failure_after_paid_calls_carries_hits_and_calls() -> None:
    searcher = crosscut.Searcher(crosscut.MatrixScorer(SCORES.T), method=Broken(), vectors=VECTORS)
    with pytest.raises(ZeroDivisionError) as caught:
        searcher.search(0, 5, 40, query_vector=VECTORS[0])
    assert caught.value.calls == 20  # type: ignore[attr-defined]
    assert len(caught.value.hits[0]) == 5  # type: ignore[attr-defined]


def test_what_a_method_cannot_trace_is_refused_before_the_first_call() -> None:
    calls: list[int] = []
    searcher = crosscut.Searcher(
        lambda query, ids: calls.append(len(ids)) or np.zeros(len(ids)), n=200, method=Broken()
    )
    with pytest.raises(InputError, match="makes none"):
        searcher.search(0, 5, 40, trace=True)
    assert not calls


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_vectors_that_are_no_numbers_are_refused_before_a_search(wrong: float) -> None:
    vectors = VECTORS.copy()
    vectors[150, 3] = wrong
    with pytest.raises(InputError, match="the vector of item 150 contains NaN or infinities"):
        crosscut.Searcher(crosscut.MatrixScorer(SCORES.T), vectors=vectors)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("never", [-1e35, -1e150, -1e300, -1.7e308, 1e300])
@pytest.mark.parametrize("method", ["crosscut", "axn", "adacur@first=dense", "axn@select=softmax"])
@pytest.mark.parametrize("share", [0.3, 1.0])
def test_wild_scores_do_not_end_a_search(never: float, method: str, share: float) -> None:
    scores = SCORES.T.astype(np.float64)
    scores[:, np.random.default_rng(1).random(200) < share] = never
    space = crosscut.CUR(SCORES.T) if "adacur" in method else None
    searcher = crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=VECTORS, space=space, method=method)
    for stop in (None, "confident"):
        hits = searcher.search(0, 5, 60, query_vector=VECTORS[0], stop=stop)
        assert stop or (hits.calls, hits.stop_reason) == (60, "budget")
        assert [hit.score for hit in hits] == sorted((scores[0, j] for j in hits.scored), reverse=True)[:5]


def test_a_wild_score_enters_fits_as_the_lowest_of_the_others() -> None:
    low, never = SCORES.T.astype(np.float64), SCORES.T.astype(np.float64)
    first = np.argsort(-(VECTORS @ VECTORS[0]), kind="stable")[:4]
    low[0, first[2]] = low[0, first[:4]].min() - 0.0
    never[0, first[2]] = -1e300
    low[0, first[2]] = low[0, first[[0, 1, 3]]].min()
    one, other = (
        crosscut.Searcher(crosscut.MatrixScorer(matrix), vectors=VECTORS, method="axn@rounds=2").search(
            0, 3, 8, query_vector=VECTORS[0]
        )
        for matrix in (low, never)
    )
    assert one.scored.tolist() == other.scored.tolist()


class Knowing:
    """A scorer whose base scores take a while."""

    has_base_scores = True
    n_items = 200

    def __init__(self, seconds: float) -> None:
        self.seconds, self.calls = seconds, 0

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        time.sleep(self.seconds)
        row = SCORES[:, query].astype(np.float64)
        return row if handles is None else row[handles]

    def score_many(self, requests: Sequence[Any]) -> list[Floats]:
        self.calls += 1
        return [SCORES[handles, query].astype(np.float64) for query, handles in requests]


def test_base_scores_are_under_the_deadline_and_what_is_known_is_an_answer() -> None:
    scorer = Knowing(2.0)
    searcher = crosscut.Searcher(scorer, vectors=VECTORS)
    started = time.monotonic()
    hits = searcher.search(1, 4, 40, query_vector=VECTORS[1], deadline=0.1)
    assert time.monotonic() - started < 1.0
    assert (hits.stop_reason, hits.calls, scorer.calls) == ("deadline", 0, 0)
    assert hits.ids == np.argsort(-(VECTORS @ VECTORS[1]), kind="stable")[:4].tolist()
    assert not any(hit.scored for hit in hits)
    assert all(hit.to_json()["score"] is None and hit.to_json()["scored"] is False for hit in hits)


def test_an_answer_without_calls_is_by_base_scores_where_they_are_known() -> None:
    searcher = crosscut.Searcher(Knowing(0.0), vectors=VECTORS)
    hits = searcher.search(2, 4, 40, query_vector=VECTORS[1], deadline=1e-9)
    if hits.items[0].score == hits.items[0].score:  # known in time
        assert hits.ids == np.argsort(-SCORES[:, 2], kind="stable")[:4].tolist()
    assert (hits.stop_reason, hits.calls) == ("deadline", 0)
