"""Chat endpoints as judges."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError, ScorerAnswerError, ScorerRefused
from crosscut.scorers.base import Scorer
from crosscut.scorers.llm_judge import PROMPT, ChatJudge, expected_rating, filled
from tests.fake_endpoint import Endpoint, served, status

URL = "/v1/chat/completions"


def says(*answers: str | None, logprobs: Any = None) -> Callable[[dict[str, Any]], Any]:
    """A model that gives these answers in turn, and the last one ever after."""
    left = list(answers)

    def answer(body: dict[str, Any]) -> Any:
        content = left.pop(0) if len(left) > 1 else left[0]
        return {"choices": [{"message": {"role": "assistant", "content": content}, "logprobs": logprobs}]}

    return answer


def judge_of(endpoint: Endpoint, **settings: Any) -> ChatJudge:
    return ChatJudge(endpoint.url, **{"model": "m", "first_wait": 0.01, "timeout": 5.0, "concurrency": 1, **settings})


def test_a_digit_is_a_score() -> None:
    with served(says("7", " 3.", "Rating: 9", "0/9", "4.5"), URL) as endpoint, judge_of(endpoint) as judge:
        assert isinstance(judge, Scorer)
        assert judge.score("q", ["a", "b", "c", "d", "e"]).tolist() == [7, 3, 9, 0, 4.5]
    body = endpoint.bodies[0]
    assert body["temperature"] == 0
    assert body["logprobs"] is True
    assert "Query: q" in body["messages"][0]["content"]


def test_log_probabilities_give_the_expected_rating() -> None:
    top = [
        {"token": "7", "logprob": math.log(0.5)},
        {"token": " 7", "logprob": math.log(0.1)},
        {"token": "8", "logprob": math.log(0.2)},
        {"token": "the", "logprob": math.log(0.2)},
    ]
    logprobs = {"content": [{"token": "7", "logprob": math.log(0.5), "top_logprobs": top}]}
    with served(says("7", logprobs=logprobs), URL) as endpoint, judge_of(endpoint) as judge:
        np.testing.assert_allclose(judge.score("q", ["a"]), [(7 * 0.6 + 8 * 0.2) / 0.8])
    with served(says("7", logprobs=logprobs), URL) as endpoint, judge_of(endpoint, logprobs=False) as judge:
        assert judge.score("q", ["a"]).tolist() == [7.0]
    assert "logprobs" not in endpoint.bodies[0]


@pytest.mark.parametrize("logprobs", [None, [], {"content": None}, {"content": ["7"]}, {"content": [{"token": "x"}]}])
def test_unusable_log_probabilities_are_passed_over(logprobs: Any) -> None:
    assert expected_rating({"logprobs": logprobs}) is None
    with served(says("6", logprobs=logprobs), URL) as endpoint, judge_of(endpoint) as judge:
        assert judge.score("q", ["a"]).tolist() == [6.0]


def test_a_wrong_answer_is_asked_for_once_more() -> None:
    with served(says("It depends, maybe 7 or 8.", "8"), URL) as endpoint, judge_of(endpoint) as judge:
        assert judge.score("q", ["a"]).tolist() == [8.0]
    assert [message["role"] for message in endpoint.bodies[1]["messages"]] == ["user", "assistant", "user"]
    for wrong in ("10", "-1", "seven", "", None):
        with (
            served(says(wrong), URL) as endpoint,
            judge_of(endpoint) as judge,
            pytest.raises(ScorerAnswerError, match="asked twice"),
        ):
            judge.score("q", ["a"])
        assert len(endpoint.bodies) == 2


@pytest.mark.parametrize("content", [{}, [], {"choices": []}, {"choices": [3]}, {"choices": [{"text": "7"}]}])
def test_other_shapes_are_named(content: Any) -> None:
    with served(says("7"), URL) as endpoint, judge_of(endpoint) as judge:
        endpoint.always = status(200, content)
        with pytest.raises(ScorerAnswerError, match="choice"):
            judge.score("q", ["a"])
    assert len(endpoint.bodies) == 1


def test_refusals_and_options() -> None:
    with served(says("7"), URL) as endpoint:
        options = {"max_tokens": None, "max_completion_tokens": 4}
        with judge_of(endpoint, options=options) as judge:
            judge.score("q", ["a"])
            assert "max_tokens" not in endpoint.bodies[0]
            assert endpoint.bodies[0]["max_completion_tokens"] == 4
            endpoint.always = status(401)
            with pytest.raises(ScorerRefused, match="401"):
                judge.score("q", ["a"])


def test_prompts() -> None:
    assert filled("{query}|{item}|{query}", "{item}", "{0}") == "{item}|{0}|{item}"
    with pytest.raises(InputError, match=r"\{item\}"):
        ChatJudge("http://localhost/v1/chat/completions", model="m", prompt="Is {query} good?")
    plain = ChatJudge("http://localhost/v1/chat/completions", model="m")
    other = ChatJudge("http://localhost/v1/chat/completions", model="m", prompt=PROMPT + " Please.")
    assert plain.fingerprint != other.fingerprint


def test_a_pair_that_is_asked_for_once_more_is_two_calls() -> None:
    items = [f"item {j}" for j in range(8)]
    with served(says("It depends.", "8"), URL) as endpoint, judge_of(endpoint) as judge:
        searcher = crosscut.Searcher(vectors=np.eye(8), scorer=judge.bind(items), method="axn@first=random,rounds=4")
        hits = searcher.search("q", 2, 6)
        assert hits.calls == len(endpoint.bodies) <= 6


def test_a_judge_without_a_model_is_asked_for_one() -> None:
    with pytest.raises(InputError, match="the model that judges: put it behind the address, #model="):
        crosscut.Index.build(["a"], scorer="http://localhost:8000/v1/chat/completions")


def test_a_search_keeps_all_connections_of_a_judge_busy() -> None:
    texts = ["x" * n for n in range(1, 61)]
    with served(says("3"), URL) as endpoint, judge_of(endpoint, concurrency=8) as judge:
        endpoint.delay = 0.05
        searcher = crosscut.Searcher(judge.bind(texts), vectors=np.eye(60, 8) + 1)
        hits = searcher.search("q", 5, 20, query_vector=np.ones(8))
    assert [made.calls for made in hits.trace] == [7, 6, 7]  # one wait a round
    assert endpoint.peak >= 6
