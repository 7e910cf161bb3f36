"""What a request may cost, and who may change items."""

from __future__ import annotations

import time
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from crosscut.server import Settings, make_app
from tests.served import score_words, small_index


class Counting:
    """A scorer that counts the pairs it is called with."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, query: str, texts: Any) -> list[float]:
        self.calls += len(texts)
        return score_words(query, texts)


@pytest.mark.parametrize(
    ("path", "name"), [("/v2/rerank", "documents"), ("/v1/rerank", "documents"), ("/rerank", "texts")]
)
def test_the_budget_cap_bounds_rerank_requests(path: str, name: str) -> None:
    scorer = Counting()
    with TestClient(make_app(small_index(scorer, n=40), Settings(max_budget=20, hosts=()))) as client:
        assert client.post(path, json={"query": "red", name: ["a text"] * 21}).status_code == 422
        assert scorer.calls == 0
        assert client.post(path, json={"query": "red", name: [f"text {j}" for j in range(20)]}).status_code == 200
        assert scorer.calls == 20


def test_starting_and_reloading_make_no_calls_of_a_user_scorer(tmp_path: Any) -> None:
    import crosscut

    built = crosscut.Index.build([f"red {j}" for j in range(20)], scorer=score_words, encoder=None, method="hybrid")
    built.save(tmp_path / "i")
    scorer = Counting()
    index = crosscut.Index.load(
        tmp_path / "i", scorer=crosscut.TextScorer(scorer, fingerprint=built.scorer.fingerprint)
    )
    with TestClient(make_app(index, Settings(hosts=(), reload_seconds=0.05))) as client:
        other = crosscut.Index.load(tmp_path / "i", scorer=built.scorer)
        other.add(["blue"])
        other.save()
        for _ in range(200):
            if client.get("/health").json()["items"] == 21:
                break
            time.sleep(0.05)
        assert client.get("/health").json()["items"] == 21
    assert scorer.calls == 0


def test_the_read_token_may_not_change_items(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_TOKEN", "read")
    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "write")
    with TestClient(make_app(small_index(n=40), Settings())) as client:

        def add(token: str | None) -> int:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            return client.post("/items", json={"items": [{"id": "new", "text": "red"}]}, headers=headers).status_code

        assert [add(None), add("wrong"), add("read"), add("write")] == [401, 401, 403, 200]


def test_metadata_that_json_cannot_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_WRITE_TOKEN", "write")
    headers = {"authorization": "Bearer write", "content-type": "application/json"}
    with TestClient(make_app(small_index(n=40), Settings(hosts=()))) as client:
        for value in ("NaN", "Infinity", '[1, {"deep": -Infinity}]', "1e999"):
            body = f'{{"items": [{{"id": "new", "text": "red", "metadata": {{"year": {value}}}}}]}}'
            answer = client.post("/items", content=body, headers=headers)
            assert answer.status_code == 422, answer.text
            assert "not finite" in answer.json()["message"]
