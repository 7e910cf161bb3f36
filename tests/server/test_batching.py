"""Searches that share a batch: a failure ends its own search and no other."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import crosscut
from crosscut.server import Settings, make_app
from tests.served import WORDS, score_words, small_index

QUERIES = [f"{a} {b}" for a in WORDS[:5] for b in WORDS[5:8]]


def together(app: Any, queries: list[str], **body: Any) -> list[Any]:
    """The answers to these queries, sent at the same time."""
    with TestClient(app) as client, ThreadPoolExecutor(len(queries)) as pool:
        return list(
            pool.map(lambda query: client.post("/search", json={"query": query, "budget": 30, **body}), queries)
        )


def raises(query: str, texts: Any) -> list[float]:
    if query == "poison":
        raise ValueError("not this text")
    return score_words(query, texts)


def nothing(query: str, texts: Any) -> Any:
    return None if query == "poison" else score_words(query, texts)


@pytest.mark.parametrize("scorer", [raises, nothing])
def test_a_poisoned_query_fails_alone(scorer: Callable[..., Any]) -> None:
    settings = Settings(linger=0.2, hosts=())
    alone = together(make_app(small_index(scorer), settings), QUERIES)
    *others, poisoned = together(make_app(small_index(scorer), settings), [*QUERIES, "poison"])
    assert poisoned.status_code == 502
    assert [answer.status_code for answer in others] == [200] * len(QUERIES)
    for one, other in zip(alone, others, strict=True):
        assert one.json()["hits"] == other.json()["hits"]
        assert one.json()["calls"] == other.json()["calls"] == 30


def test_a_query_that_cannot_be_encoded_fails_alone() -> None:
    rows_of = {word: [float(j == place) for j in range(len(WORDS))] for place, word in enumerate(WORDS)}

    def encode(texts: Any) -> Any:
        if any("poison" in text for text in texts):
            raise RuntimeError("not this text")
        return [
            [sum(column) + 0.01 for column in zip(*(rows_of[w] for w in text.split()), strict=True)] for text in texts
        ]

    items = [" ".join(WORDS[(j * m) % 20] for m in (1, 3, 7)) for j in range(60)]
    index = crosscut.Index.build(items, scorer=score_words, encoder=encode, method="rerank")
    *others, poisoned = together(make_app(index, Settings(linger=0.2, hosts=())), [*QUERIES, "poison"])
    assert poisoned.status_code == 500
    assert [answer.status_code for answer in others] == [200] * len(QUERIES)


def test_a_batch_that_has_paid_is_not_repeated() -> None:
    index, batches = small_index(), []
    inner = index.search_many

    def fails_late(queries: Any, *rest: Any, **options: Any) -> Any:
        batches.append(len(queries))
        inner(queries, *rest, **options)
        raise crosscut.InputError("this cannot be shown")

    index.search_many = fails_late  # type: ignore[method-assign]
    answers = together(make_app(index, Settings(linger=0.2, hosts=())), QUERIES[:4])
    assert {answer.status_code for answer in answers} == {422}
    assert sum(batches) == 4
