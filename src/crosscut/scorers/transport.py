"""One HTTP endpoint that takes JSON and answers JSON: concurrent, retried, and polite.

Retried are answers that say "later" (408, 425, 429, 5xx) and lines that break, at most `retries` times a request, with
exponential back-off and jitter; nothing else is. Two rules keep retries from making a bad hour worse:

- failures draw on a small stock of retries that successes refill, so an endpoint that is down is left alone;
- a 429 halves the number of requests in flight, and a `Retry-After` holds back all of them.

A key is read from the environment when a request is sent. It is never kept, logged, saved or quoted.
"""

from __future__ import annotations

import asyncio
import email.utils
import json
import os
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict
from urllib.parse import urlsplit, urlunsplit

from crosscut.errors import (
    InputError,
    ScorerAnswerError,
    ScorerError,
    ScorerRateLimited,
    ScorerRefused,
    ScorerTimeout,
    ScorerUnavailable,
)

if TYPE_CHECKING:
    import httpx

    from crosscut.scorers.base import Spare

LATER = {408, 425, 429, 500, 502, 503, 504, 529}
LOCAL = {"localhost", "127.0.0.1", "::1"}
SECRET_WORDS = ("key", "token", "secret", "password", "signature")
LARGEST_ANSWER = 64 << 20
STOCK = 10.0


@dataclass
class _Line:
    """What belongs to the event loop that runs the requests."""

    loop: asyncio.AbstractEventLoop
    client: httpx.AsyncClient
    turn: asyncio.Condition
    allowed: float
    running: int = 0
    not_before: float = 0.0  # on time.monotonic's clock
    stock: float = STOCK


@dataclass
class Sent:
    """What went over the wire, retries included."""

    requests: int = 0
    retries: int = 0
    pairs: int = 0
    rate_limited: int = 0
    failures: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """What one request may take: `end` is when its answer must be here (time.monotonic), `spare` what pays for more."""

    end: float | None = None
    spare: Spare | None = None

    def again(self, pairs: int) -> bool:
        """Whether so many pairs may be sent another time; then they are counted."""
        return self.spare is None or self.spare.take(pairs)

    def not_sent(self, pairs: int) -> None:
        """They were not, after all."""
        if self.spare is not None:
            self.spare.take(-pairs)


class Sending(TypedDict, total=False):
    """Settings of a `Transport` that scorers pass on."""

    timeout: float
    retries: int
    first_wait: float
    longest_wait: float
    allow_plain_http: bool


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
        Seconds of back-off before the first retry (doubled each time), and the longest wait that is made at all.
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
        self._line: _Line | None = None
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
        return {**self.__dict__, "_line": None}  # connections stay where they are

    async def post(self, body: dict[str, Any], pairs: int, limits: Limits) -> Any:
        """The JSON answer to `body`, which carries `pairs` pairs; they are counted once already."""
        line = self._connected()
        left = 0  # how often the pairs have gone out
        for attempt in range(self.retries + 1):
            error, wait = await self._once(line, body, pairs, limits.end)
            if error is None:
                line.stock = min(line.stock + 0.1, STOCK)
                return wait
            if error.paid:
                left += 1
            elif left:
                limits.not_sent(pairs)
            error.paid = left > 0
            name = type(error).__name__
            self.sent.failures[name] = self.sent.failures.get(name, 0) + 1
            if attempt == self.retries or not self._may_retry(line, error, wait, limits.end):
                raise error
            if left and not limits.again(pairs):
                error.spent = True
                raise error
            self.sent.retries += 1
            await asyncio.sleep(self._pause(attempt, wait))
        raise AssertionError("unreachable")

    async def _once(
        self, line: _Line, body: dict[str, Any], pairs: int, end: float | None
    ) -> tuple[ScorerError | None, Any]:
        """(None, the answer), or an error and the seconds to wait at least; NaN: not to be retried."""
        import httpx

        await self._take_turn(line)
        try:
            held = await self._hold(line, end)
            if held is not None:
                return held, float("nan")
            left = self.timeout if end is None else min(self.timeout, end - time.monotonic())
            if left <= 0:
                return ScorerTimeout(f"no time was left for a request to {self.url}", paid=False), float("nan")
            self.sent.requests += 1
            self.sent.pairs += pairs
            key = os.environ.get(self.key_env or "", "")
            headers = {"authorization": f"Bearer {key}"} if key else {}
            try:
                async with asyncio.timeout(left):
                    status, answered, content = await self._exchange(line.client, body, headers)
            except TimeoutError:
                late = end is not None and left < self.timeout
                why = "the search's deadline" if late else "its timeout"
                return ScorerTimeout(f"{self.url} did not answer {pairs} pairs within {left:.3g} s, {why}"), 0.0
            except httpx.TransportError as error:
                reason = _without(key, str(error)) or type(error).__name__
                there = not isinstance(error, httpx.ConnectError)
                self.sent.pairs -= 0 if there else pairs  # nobody was there to take them
                return ScorerUnavailable(f"{self.url} cannot be reached: {reason}", paid=there), 0.0
            except UnicodeError:
                self.sent.requests, self.sent.pairs = self.sent.requests - 1, self.sent.pairs - pairs
                return ScorerRefused("a query or text holds half a character and was not sent", paid=False), float(
                    "nan"
                )
            except httpx.InvalidURL as error:
                return ScorerRefused(f"{self.url} is not a usable address: {error}"), float("nan")
            except httpx.DecodingError:
                return ScorerAnswerError(f"{self.url} answered what cannot be decompressed"), float("nan")
            return self._read(line, status, answered, content, key)
        finally:
            await self._give_turn(line)

    async def _exchange(
        self, client: httpx.AsyncClient, body: dict[str, Any], headers: dict[str, str]
    ) -> tuple[int, httpx.Headers, bytes]:
        parts: list[bytes] = []
        async with client.stream("POST", self.url, json=body, headers=headers) as response:
            size = 0
            async for part in response.aiter_bytes():
                size += len(part)
                if size > LARGEST_ANSWER:
                    raise ScorerAnswerError(f"{self.url} answers with more than {LARGEST_ANSWER >> 20} MB")
                parts.append(part)
        return response.status_code, response.headers, b"".join(parts)

    def _read(
        self, line: _Line, status: int, headers: httpx.Headers, content: bytes, key: str
    ) -> tuple[ScorerError | None, Any]:
        said = _excerpt(content, key)
        if 200 <= status < 300:
            line.allowed = min(line.allowed + 1 / self.concurrency, self.concurrency)
            try:
                return None, json.loads(content)
            except (ValueError, RecursionError):
                return ScorerAnswerError(f"{self.url} answered no JSON: {said}"), float("nan")
        asked = retry_after(headers.get("retry-after"))
        if asked is not None:
            line.not_before = max(line.not_before, time.monotonic() + asked)
        if status == 429:
            self.sent.rate_limited += 1
            line.allowed = max(line.allowed / 2, 1.0)
            told = "" if asked is None else f"; it asks to wait {asked:.3g} s"
            return ScorerRateLimited(f"{self.url} answered 429, too many requests{told}: {said}"), asked or 0.0
        if status in LATER:
            return ScorerUnavailable(f"{self.url} answered {status}: {said}"), asked or 0.0
        hint = ""
        if status in (401, 403):
            hint = f"; the key came from {self.key_env}" if key else "; no key was sent, name its variable in key_env"
        elif 300 <= status < 400:
            hint = f"; it points to {_bare(headers.get('location', '?'))}, and keys do not follow: use that address"
        return ScorerRefused(f"{self.url} answered {status}{hint}: {said}"), float("nan")

    def _may_retry(self, line: _Line, error: ScorerError, wait: float, end: float | None) -> bool:
        if wait != wait or isinstance(error, ScorerRefused | ScorerAnswerError):
            return False
        if wait > self.longest_wait or (end is not None and time.monotonic() + wait >= end):
            return False
        if isinstance(error, ScorerRateLimited):
            return True  # the endpoint works, and says how fast it may be asked
        if line.stock < 1:
            return False
        line.stock -= 1
        return True

    def _pause(self, attempt: int, asked: float) -> float:
        """Seconds before the next attempt: at least what was asked for, and never in step with the others."""
        back_off = min(self.first_wait * 2.0**attempt, self.longest_wait)
        return asked + random.uniform(0.5, 1.0) * back_off

    async def _take_turn(self, line: _Line) -> None:
        async with line.turn:
            await line.turn.wait_for(lambda: line.running < int(line.allowed))
            line.running += 1

    async def _hold(self, line: _Line, end: float | None) -> ScorerError | None:
        """Wait until the endpoint wants to be asked again; the error, if that is too late."""
        wait = line.not_before - time.monotonic()
        if wait > self.longest_wait or (wait > 0 and end is not None and line.not_before >= end):
            return ScorerRateLimited(f"{self.url} asks to be left alone for another {wait:.3g} s", paid=False)
        await asyncio.sleep(max(wait, 0.0))
        return None

    async def _give_turn(self, line: _Line) -> None:
        async with line.turn:
            line.running -= 1
            line.turn.notify_all()

    def _connected(self) -> _Line:
        import httpx

        loop = asyncio.get_running_loop()
        if self._line is None or self._line.loop is not loop:
            client = httpx.AsyncClient(
                timeout=None,
                limits=httpx.Limits(max_connections=self.concurrency),
                verify=self.url.startswith("https"),  # plain http needs no certificates, which are slow to load
            )
            self._line = _Line(loop, client, asyncio.Condition(), float(self.concurrency))
        return self._line

    async def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        line, self._line = self._line, None
        if line is not None and line.loop is asyncio.get_running_loop():
            await line.client.aclose()


def checked_url(url: str) -> str:
    """The URL, if it is one that carries no secret: it will be shown, logged and saved."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise InputError(f"an endpoint is an http:// or https:// address; got {_bare(url)!r}")
    if parts.username is not None or parts.password is not None:
        raise InputError(
            f"the address of {parts.hostname} carries a user name or password; keys come from the environment only: "
            "name the variable in key_env"
        )
    names = [pair.split("=")[0] for pair in parts.query.split("&")]
    secret = next((name for name in names if any(word in name.lower() for word in SECRET_WORDS)), None)
    if secret is not None:
        raise InputError(
            f"the address of {parts.hostname} carries {secret!r}; keys come from the environment only: name the "
            "variable in key_env"
        )
    return urlunsplit(parts._replace(fragment=""))


def retry_after(value: str | None) -> float | None:
    """Seconds to wait, from a Retry-After header: a number or a date."""
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


def _bare(url: str) -> str:
    """A URL without what may be secret in it."""
    try:
        parts = urlsplit(url)
        return urlunsplit((parts.scheme, parts.hostname or "", parts.path, "", ""))
    except ValueError:
        return "?"


def _excerpt(content: bytes, key: str, length: int = 200) -> str:
    text = " ".join(_without(key, content[:65536].decode("utf-8", "replace")).split())
    return (text if len(text) <= length else text[: length - 1] + "…") or "nothing"


def _without(key: str, text: str) -> str:
    return text.replace(key, "…") if key else text
