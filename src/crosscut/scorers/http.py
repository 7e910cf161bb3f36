"""Scorers behind HTTP: what rerank endpoints and LLM judges share.

A round is cut into batches, of which `concurrency` are in flight together; before each one leaves, the search is asked
whether it still wants it. A batch that fails does so in its place: the scores of the others are kept, and batches of
the same query that have not left are not sent. An endpoint that fails again and again is left alone.

Answers that say "later" (408, 425, 429, 5xx) and broken connections are retried, at most `retries` times, with
exponential back-off and jitter; a `Retry-After` holds back all requests to the endpoint.

A pair that is sent again is another call: the budget of a search holds on the wire, and a request that cannot be sent
again within it fails as it is (`ScorerError.budget_ended`). `sent` counts what went over the wire.

A key is read from the environment when a request is sent. It is never stored, logged, saved or quoted.
"""

from __future__ import annotations

import asyncio
import email.utils
import hashlib
import json
import os
import random
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlsplit, urlunsplit

import numpy as np

from crosscut.datasets.records import Item, Items, items_of
from crosscut.errors import (
    InputError,
    ScorerAnswerError,
    ScorerError,
    ScorerRateLimited,
    ScorerRefused,
    ScorerTimeout,
    ScorerUnavailable,
)
from crosscut.scorers.adapters import texts_of
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult, count_of
from crosscut.scorers.validation import validate_scores
from crosscut.threads import run_async
from crosscut.types import Floats

if TYPE_CHECKING:
    import httpx2

LATER = {408, 425, 429, 500, 502, 503, 504, 529}
LOCAL = {"localhost", "127.0.0.1", "::1"}
SECRET_WORDS = ("key", "token", "secret", "password", "signature")
FAILURES_IN_A_ROW = 3
"""Batches of one round that fail for the endpoint's sake, one after the other: then no further ones are sent."""


@dataclass
class Sent:
    """Counts of requests that were sent, retries included."""

    requests: int = 0
    retries: int = 0
    pairs: int = 0
    rate_limited: int = 0
    failures: dict[str, int] = field(default_factory=dict)


@dataclass
class Delivery:
    """The way of one batch to the endpoint and back.

    `end` is when its answer must be here (time.monotonic), `budget` pays for sending its pairs again, `wanted` is asked
    before they leave, and `times` is how often they have left.
    """

    pairs: int
    end: float | None
    budget: RetryBudget
    wanted: Callable[[], bool] = lambda: True
    times: int = 0

    def leave(self) -> bool:
        """Count the pairs as sent; False if the budget does not allow it."""
        if self.times and not self.budget.take(self.pairs):
            return False
        if not self.times:
            self.budget.attempted += self.pairs
        self.times += 1
        return True

    def undo(self) -> None:
        """Take back the last `leave`: nobody has received the pairs."""
        self.times -= 1
        if self.times:
            self.budget.give_back(self.pairs)
        else:
            self.budget.attempted -= self.pairs


class NotSent(Exception):
    """A batch that is no longer wanted."""


class _Later(Exception):
    """A failure after which a request may be sent again, `wait` seconds later at least."""

    def __init__(self, error: ScorerError, wait: float = 0.0) -> None:
        super().__init__(str(error))
        self.error, self.wait = error, wait


class TransportOptions(TypedDict, total=False):
    """Settings of a `Transport` that scorers pass on."""

    timeout: float
    retries: int
    first_wait: float
    longest_wait: float
    allow_plain_http: bool


@dataclass
class _Connection:
    """State of the event loop that runs the requests."""

    loop: asyncio.AbstractEventLoop
    client: httpx2.AsyncClient
    slots: asyncio.Semaphore


class Transport:
    """POSTs JSON to one URL.

    Parameters
    ----------
    url
        http:// or https://, without user name, password or key in it.
    key_env
        The environment variable that holds the key, sent as a bearer token; None sends none.
    timeout
        Seconds one request may take, from the first byte to the last.
    retries
        How often one request is sent again.
    concurrency
        How many requests are in flight at most.
    first_wait, longest_wait
        Seconds of back-off before the first retry (doubled each time), and the longest wait that is accepted.
    allow_plain_http
        Send a key over http:// to another machine.
    """

    def __init__(
        self,
        url: str,
        *,
        key_env: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        concurrency: int = 4,
        first_wait: float = 0.5,
        longest_wait: float = 60.0,
        allow_plain_http: bool = False,
    ) -> None:
        self.url = checked_url(url)
        self.key_env = key_env
        if not timeout > 0:
            raise InputError(f"a timeout is a number of seconds above 0; got {timeout}")
        if retries < 0 or concurrency < 1:
            raise InputError(f"retries must be 0 or more and concurrency 1 or more; got {retries} and {concurrency}")
        self.timeout = timeout
        self.retries = retries
        self.concurrency = concurrency
        self.first_wait = first_wait
        self.longest_wait = longest_wait
        self.sent = Sent()
        self._not_before = 0.0  # time.monotonic at which the endpoint takes requests again
        self._connection: _Connection | None = None
        parts = urlsplit(self.url)
        if key_env is not None:
            if not os.environ.get(key_env):
                raise InputError(
                    f"the key for {self.url} is to come from the environment variable {key_env}, and it is not set: "
                    f"export {key_env}=…"
                )
            if parts.scheme == "http" and parts.hostname not in LOCAL and not allow_plain_http:
                raise InputError(
                    f"the key in {key_env} would travel to {parts.hostname} in clear text: use https://, or "
                    "allow_plain_http=True on a network you trust"
                )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    async def post(self, body: dict[str, Any], delivery: Delivery) -> Any:
        """Return the JSON answer to `body`, which carries the pairs of `delivery`."""
        try:
            content = json.dumps(body, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ScorerRefused(
                "a query or text contains a lone surrogate, which is no valid Unicode: it was not sent", attempted=False
            ) from None
        failure: _Later | None = None
        for attempt in range(self.retries + 1):
            try:
                return await self._send(content, delivery, failure)
            except _Later as later:
                failure = later
                name = type(later.error).__name__
                self.sent.failures[name] = self.sent.failures.get(name, 0) + 1
                late = delivery.end is not None and time.monotonic() + later.wait >= delivery.end
                if attempt == self.retries or later.wait > self.longest_wait or late:
                    break
                if delivery.times and delivery.budget.left < delivery.pairs:
                    later.error.budget_ended = True
                    break
                back_off = min(self.first_wait * 2.0**attempt, self.longest_wait)
                await asyncio.sleep(later.wait + random.uniform(0.5, 1.0) * back_off)
            except ScorerError as error:
                name = type(error).__name__
                self.sent.failures[name] = self.sent.failures.get(name, 0) + 1
                raise
        assert failure is not None
        raise failure.error from None

    async def _send(self, content: bytes, delivery: Delivery, before: _Later | None) -> Any:
        """Send one request and return its answer; `before` is why it is sent again."""
        import httpx2

        line = self._open()
        async with line.slots:
            await self._hold_back(delivery.end)
            left = self.timeout if delivery.end is None else min(self.timeout, delivery.end - time.monotonic())
            if left <= 0:
                raise ScorerTimeout(f"no time was left for a request to {self.url}", attempted=False)
            if not delivery.wanted():
                raise NotSent if before is None else before.error
            if not delivery.leave():
                error = ScorerError("the budget of the search has ended") if before is None else before.error
                error.budget_ended = True
                raise error
            self.sent.requests += 1
            self.sent.retries += before is not None
            self.sent.pairs += delivery.pairs
            key = os.environ.get(self.key_env or "", "")
            headers = {"content-type": "application/json"} | ({"authorization": f"Bearer {key}"} if key else {})
            written = False

            async def trace(event: str, _: object) -> None:
                nonlocal written
                written = written or event.endswith("send_request_headers.complete")

            try:
                async with asyncio.timeout(left):
                    response = await line.client.post(
                        self.url, content=content, headers=headers, extensions={"trace": trace}
                    )
            except TimeoutError:
                why = "its timeout" if delivery.end is None or left == self.timeout else "the search's deadline"
                error = ScorerTimeout(f"{self.url} did not answer {delivery.pairs} pairs within {left:.3g} s, {why}")
                raise _Later(error) from None
            except httpx2.TransportError as failed:
                reason = _redact(str(failed), key) or type(failed).__name__
                raise _Later(ScorerUnavailable(f"{self.url} cannot be reached: {reason}")) from None
            except httpx2.HTTPError as failed:
                raise ScorerAnswerError(
                    f"{self.url} answered what cannot be read: {_redact(str(failed), key)}"
                ) from None
            finally:
                if not written:  # nobody has received the pairs
                    delivery.undo()
                    self.sent.pairs -= delivery.pairs
        return self._read(response, key)

    def _read(self, response: httpx2.Response, key: str) -> Any:
        status, text = response.status_code, _redact(response.text[:65536], key)
        excerpt = (text if len(text) <= 200 else text[:199] + "…") or "nothing"
        if 200 <= status < 300:
            try:
                return json.loads(response.content)
            except (ValueError, RecursionError):
                raise ScorerAnswerError(f"{self.url} answered no JSON: {excerpt}") from None
        wait = retry_after(response.headers.get("retry-after"))
        if wait is not None:
            self._not_before = max(self._not_before, time.monotonic() + wait)
        if status == 429:
            self.sent.rate_limited += 1
            asked = "" if wait is None else f"; it asks to wait {wait:.3g} s"
            error = ScorerRateLimited(f"{self.url} answered 429, too many requests{asked}: {excerpt}")
            raise _Later(error, wait or 0.0)
        if status in LATER:
            raise _Later(ScorerUnavailable(f"{self.url} answered {status}: {excerpt}"), wait or 0.0)
        hint = ""
        if status in (401, 403):
            hint = f"; the key came from {self.key_env}" if key else "; no key was sent, name its variable in key_env"
        elif 300 <= status < 400:
            target = _without_query(response.headers.get("location", "?"))
            hint = f"; it points to {target}, and keys do not follow: use that address"
        raise ScorerRefused(f"{self.url} answered {status}{hint}: {excerpt}")

    async def _hold_back(self, end: float | None) -> None:
        """Wait until the endpoint takes requests again."""
        wait = self._not_before - time.monotonic()
        if wait > self.longest_wait or (wait > 0 and end is not None and self._not_before >= end):
            raise ScorerRateLimited(f"{self.url} asks to be left alone for another {wait:.3g} s", attempted=False)
        await asyncio.sleep(max(wait, 0.0))

    def _open(self) -> _Connection:
        import httpx2

        loop = asyncio.get_running_loop()
        if self._connection is None or self._connection.loop is not loop:
            client = httpx2.AsyncClient(
                timeout=None,
                limits=httpx2.Limits(max_connections=self.concurrency),
                verify=self.url.startswith("https"),  # plain http needs no certificates, which are slow to load
            )
            self._connection = _Connection(loop, client, asyncio.Semaphore(self.concurrency))
        return self._connection

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        connection, self._connection = self._connection, None
        if connection is not None and connection.loop is asyncio.get_running_loop():
            await connection.client.aclose()


class RemoteScorer(Scorer):
    """A scorer of texts behind an HTTP endpoint. Subclasses define what one request looks like."""

    def __init__(self, transport: Transport, *, batch_size: int) -> None:
        if batch_size < 1:
            raise InputError(f"a batch of {batch_size} pairs is not possible; use 1 or more")
        self.transport = transport
        self.batch_size = batch_size

    @property
    def url(self) -> str:
        return self.transport.url

    @property
    def sent(self) -> Sent:
        """Requests, retries and pairs that went over the wire so far."""
        return self.transport.sent

    @property
    def fingerprint(self) -> str:
        text = json.dumps(self.identity(), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return what the scores depend on, without any key."""

    @abstractmethod
    async def ask(self, query: str, texts: Sequence[str], delivery: Delivery) -> Floats:
        """Return the scores of one batch."""

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """Return this scorer over items, whose texts are title, newline, text."""
        return BoundRemoteScorer(self, items_of(items))

    def close(self) -> None:
        """Close the connections."""
        run_async(self.transport.close())

    def __enter__(self) -> RemoteScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.identity().items() if value not in (None, {}))
        return f"{type(self).__name__}({given})"


class BoundRemoteScorer(BoundScorer):
    """A remote scorer bound to items."""

    keeps_deadline = True
    counts_attempts = True
    pairs_per_batch = None

    def __init__(self, model: RemoteScorer, items: Items) -> None:
        self.model, self.items = model, items
        self.n_items = count_of(items)
        self.concurrency = model.transport.concurrency

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        sending = _Round(self.model)
        results: list[ScoreResult | None] = []
        for place, (query, handles) in enumerate(requests):
            try:
                texts = texts_of(self.items, handles)
            except ScorerError as error:
                results.append(ScoreResult.nothing(len(handles), error))
            else:
                results.append(None)
                sending.add(place, str(query), texts, deadline, retries[place] if retries else RetryBudget())
        try:
            run_async(sending.run())
        except BaseException as error:  # Ctrl-C: the meter counts what has left
            vars(error)["results"] = [one or sending.result(place) for place, one in enumerate(results)]
            raise
        return [one or sending.result(place) for place, one in enumerate(results)]


@dataclass
class _Batch:
    query: str
    texts: list[str]
    delivery: Delivery
    result: ScoreResult | None = None


class _Round:
    """The batches of all requests of one `score_many`."""

    def __init__(self, scorer: RemoteScorer) -> None:
        self.scorer = scorer
        self.batches: dict[int, list[_Batch]] = {}
        self.failed: set[int] = set()  # requests of which no further batch is sent
        self.failures = 0  # of the endpoint, in a row
        self.last: ScorerError | None = None

    def add(self, place: int, query: str, texts: list[str], end: float | None, budget: RetryBudget) -> None:
        def wanted() -> bool:
            return not (budget.halted or place in self.failed or self.failures >= FAILURES_IN_A_ROW)

        size = self.scorer.batch_size
        parts = [texts[start : start + size] for start in range(0, len(texts), size)]
        self.batches[place] = [_Batch(query, part, Delivery(len(part), end, budget, wanted)) for part in parts]

    async def run(self) -> None:
        sending = [self._send(place, batch) for place, some in self.batches.items() for batch in some]
        await asyncio.gather(*sending, return_exceptions=True)  # a cancellation waits until all have ended

    async def _send(self, place: int, batch: _Batch) -> None:
        positions = np.arange(len(batch.texts))
        given: Any
        try:
            given = await self.scorer.ask(batch.query, batch.texts, batch.delivery)
            self.failures = 0
        except NotSent:
            return
        except Exception as error:
            if not getattr(error, "budget_ended", False):  # then other batches of the query are paid for
                self.failed.add(place)
            if isinstance(error, ScorerError):
                error.attempted = batch.delivery.times > 0
                if not error.budget_ended and isinstance(error, ScorerUnavailable | ScorerRateLimited | ScorerTimeout):
                    self.failures += 1
                    self.last = error
            given = error
        batch.result = validate_scores(given, batch.query, positions)

    def result(self, place: int) -> ScoreResult:
        """Return what has come of one request, also while its batches are interrupted."""
        batches = self.batches[place]
        if not batches:
            return ScoreResult.nothing(0)
        parts = [
            batch.result or ScoreResult.nothing(len(batch.texts), attempted=batch.delivery.times > 0)
            for batch in batches
        ]
        error = next((part.error for part in parts if part.error is not None), None)
        if error is None and self.failures >= FAILURES_IN_A_ROW and any(batch.result is None for batch in batches):
            error = self.last
        return ScoreResult(
            np.concatenate([part.scores for part in parts]), np.concatenate([part.attempted for part in parts]), error
        )


def checked_url(url: str) -> str:
    """Return the URL if it carries no secret, since it will be shown, logged and saved."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError(f"an endpoint is an http:// or https:// address; got {_without_query(url)!r}")
    names = [pair.split("=")[0] for pair in parts.query.split("&")]
    secret = next((name for name in names if any(word in name.lower() for word in SECRET_WORDS)), None)
    if parts.username is not None or parts.password is not None or secret is not None:
        what = "a user name or password" if secret is None else repr(secret)
        raise InputError(
            f"the address of {parts.hostname} carries {what}; keys come from the environment only: name the variable "
            "in key_env"
        )
    return urlunsplit(parts._replace(fragment=""))


def retry_after(value: str | None) -> float | None:
    """Return the seconds to wait of a Retry-After header, which is a number or a date."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (TypeError, ValueError):
            return None
    return max(seconds, 0.0) if seconds == seconds and abs(seconds) != float("inf") else None


def _without_query(url: str) -> str:
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))
    except ValueError:
        return "?"


def _redact(text: str, key: str) -> str:
    return " ".join((text.replace(key, "…") if key else text).split())
