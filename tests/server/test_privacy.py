"""No query, document, address or key of one client or scorer reaches another client or the log.

Every test plants words that occur nowhere else, lets something fail while several clients share a batch, and looks for
the words in the answers, the metrics and every log line, whoever formats it.
"""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")

from crosscut.errors import ScorerError, StoreError
from crosscut.scorers.rerank_api import RerankEndpoint
from crosscut.server import Settings, make_app
from crosscut.server.logs import JsonFormatter
from tests.fake_endpoint import cohere, served, status
from tests.served import running, score_words, small_app, small_index

CLIENTS = 6
KEY = "canary-key-5150"
DOCUMENT = "canarydocument"


def query(client: int) -> str:
    return f"canaryquery{client}x red cat"


class Ear(logging.Handler):
    """Everything that is logged, as our formatter writes it and as anybody else's would."""

    def __init__(self) -> None:
        super().__init__(0)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += JsonFormatter().format(record) + logging.Formatter().format(record)


@pytest.fixture
def ear() -> Iterator[Ear]:
    made = Ear()
    loggers = [logging.getLogger(name) for name in ("crosscut", "uvicorn.error", "asyncio")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(made)
        logger.setLevel(logging.DEBUG)
    yield made
    for logger, level in zip(loggers, levels, strict=True):
        logger.removeHandler(made)
        logger.setLevel(level)


def ask_together(url: str, path: str = "/search", **more: Any) -> list[httpx.Response]:
    """One request of every client at the same moment, so that they share a batch."""

    def one(client: int) -> httpx.Response:
        body: dict[str, Any] = {"query": query(client), **more}
        if path == "/search":
            body["budget"] = 20
        else:
            body["documents"] = [f"{DOCUMENT}{client}x", "another"]
        return httpx.post(url + path, json=body, timeout=30)

    with ThreadPoolExecutor(CLIENTS) as pool:
        return list(pool.map(one, range(CLIENTS)))


def check(answers: list[httpx.Response], url: str, ear: Ear, secrets: tuple[str, ...] = ()) -> None:
    """Nothing of another client, nothing of the scorer, and nothing at all in the log and the metrics."""
    told = httpx.get(f"{url}/metrics").text
    for client, answer in enumerate(answers):
        foreign = [f"canaryquery{j}x" for j in range(CLIENTS) if j != client]
        foreign += [f"{DOCUMENT}{j}x" for j in range(CLIENTS) if j != client]
        for word in (*foreign, *secrets):
            assert word not in answer.text + str(answer.headers)
    for word in ("canaryquery", DOCUMENT, *secrets):
        assert word not in told
        assert word not in ear.text


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


def nan(asked: str, texts: Any) -> list[float]:
    return [float("nan") if "canaryquery3x" in asked else 1.0] * len(texts)


def short(asked: str, texts: Any) -> list[float]:
    return [1.0] * (len(texts) - ("canaryquery3x" in asked))


@pytest.mark.parametrize("scorer", [quoting(ValueError), quoting(ScorerError), exits, nan, short])
@pytest.mark.parametrize("path", ["/search", "/v2/rerank"])
def test_a_scorer_that_quotes_what_it_was_given(scorer: Any, path: str, ear: Ear) -> None:
    with running(small_app(scorer, linger=0.2)) as url:
        answers = ask_together(url, path)
        check(answers, url, ear, ("10.9.8.7",))
        assert httpx.get(f"{url}/health").status_code == 200
    assert any(answer.status_code == 502 for answer in answers)
    assert {answer.status_code for answer in answers} <= {200, 502}


@pytest.mark.parametrize(
    "fault",
    [
        lambda body: (500, {}, {"asked": body, "key": KEY}),
        lambda body: (401, {}, {"asked": body, "key": KEY}),
        lambda body: (429, {"retry-after": "100"}, {"asked": body}),
        lambda body: (302, {"location": "http://10.9.8.7/" + body["query"]}, None),
        lambda body: (200, {}, {"wrong": body}),
        lambda body: (200, {}, {"results": [{"index": body["query"], "relevance_score": body["documents"][0]}]}),
        lambda body: (0, {}, None),
    ],
)
@pytest.mark.parametrize("path", ["/search", "/v2/rerank"])
def test_an_endpoint_that_echoes(fault: Any, path: str, ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RERANK_KEY", KEY)
    with served(cohere) as endpoint:
        scorer = RerankEndpoint(
            endpoint.url, key_env="RERANK_KEY", batch_size=4, concurrency=2, retries=0, first_wait=0.01
        )
        with scorer, running(small_app(scorer, linger=0.2)) as url:
            endpoint.always = fault
            answers = ask_together(url, path)
            address = endpoint.url.removeprefix("http://").split("/")[0]
            check(answers, url, ear, (KEY, address, "10.9.8.7"))
    assert all(answer.status_code in (502, 503) for answer in answers)
    assert all(answer.json()["error"].startswith("Scor") for answer in answers)


def test_an_endpoint_that_is_not_there_or_slow(ear: Ear, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        scorer = RerankEndpoint(f"http://{address}/v2/rerank", retries=0)
        with scorer, running(small_app(scorer, linger=0.2)) as url:
            answers = ask_together(url)
            check(answers, url, ear, (address,))
    assert {answer.status_code for answer in answers} == {502}
    with served(cohere) as endpoint:
        endpoint.delay = 2.0
        scorer = RerankEndpoint(endpoint.url, retries=0, timeout=0.2)
        with scorer, running(small_app(scorer, linger=0.2)) as url:
            answers = ask_together(url)
            check(answers, url, ear, (endpoint.url.split("/")[2],))
    assert {answer.status_code for answer in answers} == {504}


@pytest.mark.parametrize("error", [KeyError, StoreError, RuntimeError, UnicodeDecodeError])
def test_what_nobody_expected(error: type[Exception], ear: Ear) -> None:
    index = small_index()
    inner = index.search_many

    def search_many(queries: Any, *rest: Any, **how: Any) -> Any:
        if queries == ["warm up"]:
            return inner(queries, *rest, **how)
        text = f"{list(queries)} in /home/{KEY}"
        raise UnicodeDecodeError("utf-8", text.encode(), 0, 1, text) if error is UnicodeDecodeError else error(text)

    index.search_many = search_many  # type: ignore[method-assign]
    with running(make_app(index, Settings(linger=0.2))) as url:
        answers = ask_together(url)
        check(answers, url, ear, (KEY,))
    expected = 503 if error is StoreError else 500
    assert {answer.status_code for answer in answers} == {expected}
    assert error.__name__ in ear.text  # the log says what kind of error, and where
    assert "search_many" in ear.text


def test_one_wrong_argument_in_a_batch_is_told_to_its_sender_alone(ear: Ear) -> None:
    with running(small_app(linger=0.2)) as url:

        def one(client: int) -> httpx.Response:
            ids = [f"canaryquery{client}x"] if client == 2 else ["i3"]
            return httpx.post(f"{url}/search", json={"query": query(client), "candidates": ids, "budget": 20})

        with ThreadPoolExecutor(CLIENTS) as pool:
            answers = list(pool.map(one, range(CLIENTS)))
        check(answers, url, ear)
    assert [answer.status_code for answer in answers] == [200, 200, 422, 200, 200, 200]
    assert "canaryquery2x" in answers[2].json()["message"]  # its own


def test_requests_that_are_refused_leave_no_trace_in_the_log(ear: Ear) -> None:
    with running(small_app()) as url, httpx.Client(base_url=url) as client:
        for body in (
            {"query": query(0), "k": query(0)},
            {"query": query(0), query(0): 1},
            {"query": query(0), "method": query(0)},
            {"query": query(0), "method": f"crosscut@{query(0)}=1"},
            {"query": query(0), "filter": {query(0): {query(0): 1}}},
            {"query": query(0), "filter": {query(0): [[query(0)]]}},
            {"query": query(0), "target_recall": 0.5},
            {"query": 3, "documents": [query(0)]},
        ):
            assert client.post("/search", json=body).status_code == 422
            assert client.post("/v2/rerank", json=body).status_code == 422
        assert client.get(f"/items/{query(0)}?{query(0)}").status_code == 404
        assert client.get(f"/{query(0)}").status_code == 404
        assert client.request("CANARYQUERY", "/search").status_code == 405
        assert client.get("/info", headers={"host": "canaryquery.example"}).status_code == 421
        assert client.post("/search", content=b'{"canaryquery').status_code in (400, 422)
        host, port = url.removeprefix("http://").split(":")
        for data in (
            b"canaryquery\r\n\r\n",
            b"GET /canaryquery HTTP/9\r\n\r\n",
            b"GET / HTTP/1.1\r\ncanaryquery\r\n\r\n",
        ):
            with socket.create_connection((host, int(port)), timeout=5) as line:
                line.sendall(data + b"\r\n")
                assert b" 400 " in line.recv(1000)
        told = client.get("/metrics").text
    assert "canaryquery" not in (told + ear.text).lower()
    assert "Invalid HTTP request" in ear.text


def test_an_unread_exception_is_told_by_its_kind() -> None:
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


def test_a_status_of_the_endpoint_is_no_secret() -> None:
    """The sentence tells the operator where to look."""
    with served(cohere) as endpoint, RerankEndpoint(endpoint.url, retries=0) as scorer:
        endpoint.always = status(401, "no")
        with running(small_app(scorer)) as url:
            body = httpx.post(f"{url}/search", json={"query": "a"}).json()
    assert body["error"] == "ScorerRefused"
    assert "key" in body["message"]
