"""No query, document, address or key of one client or scorer reaches another client or the log.

Every test plants words that occur nowhere else, lets something fail while several clients share a batch, and looks for
the words in the answers, the metrics and every log line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import crosscut
from crosscut.errors import ScorerError, StoreError
from crosscut.scorers.rerank_api import RerankEndpoint
from crosscut.server import Settings, make_app
from crosscut.server.observability import JsonFormatter
from tests.fake_endpoint import cohere, served, status
from tests.served import client, score_words, small_client, small_index, together

CLIENTS = 6
KEY = "canary-key-5150"
DOCUMENT = "canarydocument"
ENDPOINT = {"batch_size": 4, "concurrency": 2, "retries": 0, "first_wait": 0.01}


def query(client: int) -> str:
    return f"canaryquery{client}x red cat"


class Log(logging.Handler):
    """Everything that is logged, as our formatter writes it and as any other would."""

    def __init__(self) -> None:
        super().__init__(0)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += JsonFormatter().format(record) + "\n" + logging.Formatter().format(record) + "\n"


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    loggers = [logging.getLogger(name) for name in ("crosscut", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def ask(api: TestClient, path: str = "/search") -> list[httpx.Response]:
    """One request of every client at the same moment, so that they share a batch."""
    more = [{"budget": 20} if path == "/search" else {"documents": [f"{DOCUMENT}{j}x", "b"]} for j in range(CLIENTS)]
    return together(api, [{"query": query(j), **more[j]} for j in range(CLIENTS)], path)


def check(answers: list[httpx.Response], api: TestClient, log: Log, *secrets: str) -> None:
    """Assert that nothing of another client or of the scorer is in an answer, and nothing at all in log and metrics."""
    metrics = api.get("/metrics").text
    for own, answer in enumerate(answers):
        others = [f"{word}{j}x" for j in range(CLIENTS) if j != own for word in ("canaryquery", DOCUMENT)]
        for word in (*others, *secrets):
            assert word not in answer.text + str(answer.headers)
    for word in ("canaryquery", DOCUMENT, *secrets):
        assert word not in metrics
        assert word not in log.text


def quoting(error: type[Exception]) -> Any:
    def score(asked: str, texts: Any) -> list[float]:
        if "canaryquery" in asked:
            raise error(f"http://10.9.8.7/secret {asked} {list(texts)}")
        return score_words(asked, texts)

    return score


def exits(asked: str, texts: Any) -> list[float]:
    if "canaryquery" in asked:
        raise SystemExit(asked)
    return score_words(asked, texts)


def short(asked: str, texts: Any) -> list[float]:
    return [1.0] * (len(texts) - ("canaryquery3x" in asked))


@pytest.mark.parametrize("scorer", [quoting(ValueError), quoting(ScorerError), exits, short])
@pytest.mark.parametrize("path", ["/search", "/v2/rerank"])
def test_the_words_of_a_failing_scorer_stay_with_it(scorer: Any, path: str, log: Log) -> None:
    with small_client(scorer, linger=0.2) as api:
        answers = ask(api, path)
        check(answers, api, log, "10.9.8.7")
        assert api.get("/health").status_code == 200
    assert any(answer.status_code == 502 for answer in answers)
    assert {answer.status_code for answer in answers} <= {200, 502}


@pytest.mark.parametrize(
    "fault",
    [
        lambda body: (500, {}, {"asked": body, "key": KEY}),
        lambda body: (429, {"retry-after": "100"}, {"asked": body}),
        lambda body: (302, {"location": "http://10.9.8.7/" + body["query"]}, None),
        lambda body: (200, {}, {"wrong": body}),
        lambda body: (0, {}, None),
    ],
)
@pytest.mark.parametrize("path", ["/search", "/v2/rerank"])
def test_an_endpoint_that_echoes(fault: Any, path: str, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RERANK_KEY", KEY)
    with served(cohere) as endpoint:
        scorer = RerankEndpoint(endpoint.url, key_env="RERANK_KEY", timeout=30.0, **ENDPOINT)
        with scorer, small_client(scorer, linger=0.2) as api:
            endpoint.always = fault
            answers = ask(api, path)
            check(answers, api, log, KEY, endpoint.url.removeprefix("http://").split("/")[0], "10.9.8.7")
    assert all(answer.status_code in (502, 503) for answer in answers)
    assert all(answer.json()["error"].startswith("Scor") for answer in answers)


@pytest.mark.parametrize(
    ("faults", "code", "error"),
    [
        ({"always": status(500)}, 502, "ScorerUnavailable"),
        ({"always": status(429, retry_after="1000")}, 503, "ScorerRateLimited"),
        ({"always": status(200, {"wrong": 1})}, 502, "ScorerAnswerError"),
        ({"always": status(401, "bad key KEY")}, 502, "ScorerRefused"),
        ({"delay": 2.0}, 504, "ScorerTimeout"),
    ],
)
def test_failures_of_an_endpoint_are_named(
    faults: dict[str, Any], code: int, error: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the hits so far, and without the key."""
    monkeypatch.setenv("RERANK_KEY", KEY)
    with served(cohere) as endpoint:
        options = {"batch_size": 1, "concurrency": 2, "timeout": 60.0 if "always" in faults else 0.3}
        scorer = RerankEndpoint(endpoint.url, key_env="RERANK_KEY", retries=1, first_wait=0.01, **options)
        with scorer, small_client(scorer) as api:
            endpoint.faults = [lambda body: (200, {}, cohere(body))] * 2  # the search begins well
            for name, value in faults.items():
                setattr(endpoint, name, value)
            answer = api.post("/search", json={"query": "b", "budget": 20})
            assert api.get("/health").status_code == 200
    assert (answer.status_code, answer.json()["error"]) == (code, error)
    if "always" in faults:
        assert len(answer.json()["hits"]) == 2
    assert KEY not in answer.text + log.text
    assert any(json.loads(line).get("error") == error for line in log.text.splitlines() if line.startswith("{"))


@pytest.mark.parametrize("error", [KeyError, StoreError, RuntimeError])
def test_unexpected_errors(error: type[Exception], log: Log) -> None:
    index = small_index()

    def search_many(queries: Any, *rest: Any, **options: Any) -> Any:
        raise error(f"{list(queries)} in /home/{KEY}")

    index.search_many = search_many  # type: ignore[method-assign]
    with client(make_app(index, Settings(linger=0.2))) as api:
        answers = ask(api)
        check(answers, api, log, KEY)
    assert {answer.status_code for answer in answers} == {503 if error is StoreError else 500}
    assert error.__name__ in log.text  # the log says what kind of error, and where
    assert "search_many" in log.text


def test_refused_requests_leave_no_trace_in_the_log(log: Log) -> None:
    with small_client() as api:
        for body in (
            {"query": query(0), "k": query(0)},
            {"query": query(0), query(0): 1},
            {"query": query(0), "method": f"crosscut@{query(0)}=1"},
            {"query": query(0), "filter": {query(0): {query(0): 1}}},
            {"query": query(0), "target_recall": 0.5},
            {"query": 3, "documents": [query(0)]},
        ):
            assert api.post("/search", json=body).status_code == 422
            assert api.post("/v2/rerank", json=body).status_code == 422
        assert api.get(f"/items/{query(0)}?{query(0)}").status_code == 404
        assert api.get(f"/{query(0)}").status_code == 404
        assert api.request("CANARYQUERY", "/search").status_code == 405
        assert api.get("/info", headers={"host": "canaryquery.example"}).status_code == 400
        metrics = api.get("/metrics").text
    assert "canaryquery" not in (metrics + log.text).lower()


def test_an_index_that_is_damaged_while_it_is_served_is_not_located(tmp_path: Path) -> None:
    path = tmp_path / "secret-place" / "i"
    scorer = crosscut.TextScorer(score_words, fingerprint="words")
    crosscut.Index.build({f"i{j}": f"cat {j}" for j in range(50)}, scorer=scorer, encoder=None, method="hybrid").save(
        path
    )
    index = crosscut.Index.load(path, scorer=scorer)
    with client(make_app(index, Settings(reload_seconds=0))) as api:
        for file in path.rglob("*"):
            if file.is_file():
                file.write_bytes(bytes(byte ^ 1 for byte in file.read_bytes()))
        answers = [
            api.post("/search", json={"query": "cat", "budget": 20}),
            api.post("/items", json={"items": [{"id": "n", "text": "t"}]}),
        ]
        answers += [api.get("/items/i7"), api.get("/info")]
    assert not [answer.text for answer in answers if "secret-place" in answer.text or str(tmp_path) in answer.text]


def test_unread_exceptions_are_logged_by_their_kind() -> None:
    """asyncio quotes exceptions that nobody fetched; our lines keep the first line only."""
    record = logging.LogRecord("asyncio", 40, "x", 1, f"Task exception was never retrieved\nfuture: {KEY}", None, None)
    try:
        try:
            raise KeyError(KEY)
        except KeyError as error:
            raise ValueError(KEY) from error
    except ValueError as error:
        record.exc_info = (type(error), error, error.__traceback__)
    line = JsonFormatter().format(record)
    assert KEY not in line
    assert [cause.split()[0] for cause in json.loads(line)["traceback"]] == ["ValueError", "KeyError"]
