"""Whatever a scorer does, the calls that are reported are the pairs it saw, and never more than the budget."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crosscut.datasets import ItemList
from crosscut.errors import BudgetError, ScorerError
from crosscut.scorers import BoundScorer, CallableScorer, MemoryCache, Meter, ScoreResult, TextScorer
from crosscut.scorers.meter import QueryLedger

N = 30
ACTS = ["good", "good", "good", "raises", "none", "nan", "inf", "few", "many", "words", "partly", "matrix", "writes"]
OWN_ACTS = [*ACTS, "error in place", "unpaid", "half paid", "silent", "all raises", "an answer less", "no list"]


def truth(query: str, position: int) -> float:
    return (37 * ord(query[-1]) + 101 * position) % 1009 / 7


class Adversary:
    """A scorer that acts by a list, request by request, and counts the pairs it is given."""

    def __init__(self, acts: list[str]) -> None:
        self.acts = acts
        self.seen: dict[str, list[int]] = {}
        self.step = 0

    def act(self) -> str:
        self.step += 1
        return self.acts[self.step % len(self.acts)]

    def answer(self, act: str, query: str, positions: list[int]) -> Any:
        self.seen.setdefault(query, []).extend(positions)
        scores = [truth(query, position) for position in positions]
        if act == "raises":
            raise OSError("line is down")
        if act == "partly":
            raise ScorerError("half of it", scores=np.where(np.arange(len(scores)) % 2, scores, np.nan))
        return {
            "none": None,
            "nan": [np.nan, *scores[1:]],
            "inf": [*scores[:-1], -np.inf],
            "few": scores[:-1],
            "many": [*scores, 1.0],
            "words": ["good"] * len(scores),
            "matrix": np.ones((len(scores), 2)),
        }.get(act, scores)


def as_function(adversary: Adversary) -> BoundScorer:
    def score(query: str, handles: Any) -> Any:
        act = adversary.act()
        answer = adversary.answer(act, query, handles.tolist())
        if act == "writes":
            handles += 1
        return answer

    return CallableScorer(score)


def as_async_function(adversary: Adversary) -> BoundScorer:
    async def score(query: str, handles: Any) -> Any:
        return adversary.answer(adversary.act(), query, handles.tolist())

    return CallableScorer(score)


def over_growing_items(adversary: Adversary) -> BoundScorer:
    """Bound when there was one item; the others came later."""
    items = ItemList(["0"])
    scorer = TextScorer(lambda query, texts: adversary.answer(adversary.act(), query, [int(text) for text in texts]))
    bound = scorer.bind(items.shared)
    for position in range(1, N):
        items = items.grown([str(position)])
    return bound


class OwnClass:
    """A user's `score_many`, with faults of its own."""

    def __init__(self, adversary: Adversary) -> None:
        self.adversary = adversary

    def score_many(self, requests: Any) -> Any:
        acts = [self.adversary.act() for _ in requests]
        whole = next((act for act in acts if act in ("all raises", "an answer less", "no list")), None)
        if whole is not None:
            for query, handles in requests:
                self.adversary.answer("good", query, handles.tolist())
            if whole == "all raises":
                raise RuntimeError("no more")
            return None if whole == "no list" else [np.ones(len(handles)) for _, handles in requests[1:]]
        return [self.one(act, query, handles) for act, (query, handles) in zip(acts, requests, strict=True)]

    def one(self, act: str, query: str, handles: Any) -> Any:
        size = len(handles)
        if act in ("unpaid", "silent"):
            return ScoreResult.nothing(size, ScorerError("not now") if act == "unpaid" else None)
        if act == "half paid":
            called = np.arange(size) < size // 2
            self.adversary.answer("good", query, handles[called].tolist())
            scores = np.where(called, [truth(query, position) for position in handles.tolist()], np.nan)
            return ScoreResult(scores, called, ScorerError("called off"))
        try:
            return self.adversary.answer("good" if act == "writes" else act, query, handles.tolist())
        except OSError as error:
            return error  # in its place
        except ScorerError as error:
            return error


FORMS: dict[str, Any] = {
    "function": as_function,
    "async function": as_async_function,
    "growing items": over_growing_items,
    "own class": OwnClass,
}


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), form=st.sampled_from(list(FORMS)), cached=st.booleans(), timed=st.booleans())
def test_calls_are_the_pairs_that_the_scorer_saw(data: Any, form: str, cached: bool, timed: bool) -> None:
    acts = st.sampled_from(OWN_ACTS if form == "own class" else ACTS)
    adversary = Adversary(data.draw(st.lists(acts, min_size=1, max_size=12)))
    cache = MemoryCache() if cached else None
    if cache is not None:
        cache.put("q0", np.array([1, 4]), np.array([truth("q0", 1), truth("q0", 4)]))
    size = data.draw(st.sampled_from([1, 3, 32]))
    meter = Meter(FORMS[form](adversary), cache=cache, deadline=60.0 if timed else None, batch_size=size)
    accounts = [QueryLedger(f"q{j}", data.draw(st.integers(0, 20))) for j in range(data.draw(st.integers(1, 4)))]
    for _ in range(data.draw(st.integers(1, 4))):
        picks = [np.array(data.draw(st.lists(st.integers(0, N - 1), max_size=12)), np.int64) for _ in accounts]
        wanted = [pick.tolist() for pick in picks]
        try:
            meter.score(accounts, picks)
        except (ScorerError, BudgetError):
            pass
        else:
            for account, pick in zip(accounts, wanted, strict=True):
                assert set(pick) <= set(account.positions.tolist())  # without an error, nothing is missing
        assert [pick.tolist() for pick in picks] == wanted
        for account in accounts:
            seen = adversary.seen.get(account.query, [])
            assert account.calls == len(seen) <= account.budget
            assert len(set(account.positions.tolist())) == len(account.positions) == len(account.held)
            assert account.scores.tolist() == [truth(account.query, p) for p in account.positions.tolist()]
            assert account.cached + account.calls >= len(account.positions)
            if cache is not None and account.query == "q0":
                assert not {1, 4} & set(seen)
        assert meter.calls == sum(account.calls for account in accounts)
