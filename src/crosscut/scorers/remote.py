"""Scorers that live behind HTTP: what rerank endpoints and chat judges share.

A request of the meter, one query with many items, is cut into batches; the batches of all requests of a round are
in flight together, as many as `concurrency` allows. What fails does so in its place: the scores that came back are
kept, and batches that had not left when another failed are not sent.

A retried pair is one call to the meter, whose budget is on pairs asked for: most retries follow a refusal, which nobody
is paid for. `sent` counts what went over the wire, retries included.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import TracebackType
from typing import Any

import numpy as np

from crosscut.errors import InputError, ScorerAnswerError, ScorerError
from crosscut.scorers.base import Request
from crosscut.scorers.transport import Sent, Transport
from crosscut.threads import run_async
from crosscut.types import Floats, Positions


class RemoteScorer(ABC):
    """A scorer of texts behind an HTTP endpoint. Subclasses say what one request looks like."""

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
        """What the scores depend on, without any key."""

    @abstractmethod
    async def ask(self, query: str, texts: Sequence[str], end: float | None) -> Floats:
        """The scores of one batch; `end` is when they must be here (time.monotonic)."""

    def score(self, query: str, items: Sequence[str]) -> Floats:
        """Scores of a query with item texts, (len(items),)."""
        (answer,) = self.score_texts([(query, items)])
        if isinstance(answer, ScorerError):
            raise answer
        if answer is None:
            raise AssertionError("a single request is always sent")
        return answer

    def score_texts(
        self, requests: Sequence[tuple[str, Sequence[str]]], *, seconds: float | None = None
    ) -> list[Floats | ScorerError | None]:
        """The scores of every request; where it failed its error, with `scores` so far; None where it was not sent."""
        end = None if seconds is None else time.monotonic() + seconds
        return run_async(self._gather(requests, end))

    async def _gather(
        self, requests: Sequence[tuple[str, Sequence[str]]], end: float | None
    ) -> list[Floats | ScorerError | None]:
        failed = False

        async def batch(query: str, texts: Sequence[str]) -> Floats | ScorerError | None:
            nonlocal failed
            async with room:  # as many at a time as the transport lets out: the rest can still be called off
                if failed:
                    return None
                try:
                    return await self.ask(query, texts, end)
                except ScorerError as error:
                    failed = True
                    return error

        room = asyncio.Semaphore(self.transport.concurrency)
        tasks = [
            [
                asyncio.ensure_future(batch(query, texts[start : start + self.batch_size]))
                for start in range(0, len(texts), self.batch_size)
            ]
            for query, texts in requests
        ]
        answers: list[Floats | ScorerError | None] = []
        for (_, texts), parts in zip(requests, tasks, strict=True):
            sizes = [min(self.batch_size, len(texts) - start) for start in range(0, len(texts), self.batch_size)]
            answers.append(_joined([await part for part in parts], sizes))
        return answers

    def bind(self, items: Sequence[str]) -> BoundRemoteScorer:
        """This scorer over a corpus, addressed by position."""
        return BoundRemoteScorer(self, list(items))

    def close(self) -> None:
        """Close the connections."""
        run_async(self.transport.close())

    def __enter__(self) -> RemoteScorer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.identity().items() if value not in (None, {}))
        return f"{type(self).__name__}({told})"


class BoundRemoteScorer:
    """A remote scorer that knows its corpus; items are positions 0 … n − 1."""

    def __init__(self, model: RemoteScorer, items: list[str], seconds: float | None = None) -> None:
        self.model = model
        self.items = items
        self.seconds = seconds

    @property
    def fingerprint(self) -> str:
        return self.model.fingerprint

    @property
    def n_items(self) -> int:
        """The size of the corpus, for whoever searches it."""
        return len(self.items)

    @property
    def pairs_at_once(self) -> int:
        """Pairs that fill every connection: smaller batches would leave some idle."""
        return self.model.batch_size * self.model.transport.concurrency

    def within(self, seconds: float) -> BoundRemoteScorer:
        """The same, with requests that end, or are not retried, `seconds` after they begin."""
        return BoundRemoteScorer(self.model, self.items, seconds)

    def score(self, query: Any, positions: Positions) -> Floats:
        """Scores of one query with the items at `positions`, in that order."""
        (answer,) = self.score_many([(query, positions)])
        if isinstance(answer, ScorerError):
            raise answer
        return answer

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        """The scores of every request; an error, or None, stands where there are none (see the meter)."""
        asked = []
        for query, positions in requests:
            positions = np.asarray(positions, np.int64)
            if positions.size and not (positions.min() >= 0 and positions.max() < len(self.items)):
                raise InputError(
                    f"positions {positions.min()} … {positions.max()} do not fit a corpus of {len(self.items)} items"
                )
            asked.append((str(query), [self.items[position] for position in positions.tolist()]))
        answers: list[Any] = self.model.score_texts(asked, seconds=self.seconds)
        return answers


def _joined(parts: Sequence[Floats | ScorerError | None], sizes: Sequence[int]) -> Floats | ScorerError | None:
    """One answer from the answers to its batches."""
    if parts and all(part is None for part in parts):
        return None
    scores = [
        part if isinstance(part, np.ndarray) else np.full(size, np.nan) for part, size in zip(parts, sizes, strict=True)
    ]
    together = np.concatenate(scores) if scores else np.empty(0, np.float64)
    error = next((part for part in parts if isinstance(part, ScorerError)), None)
    if error is None and any(part is None for part in parts):
        error = ScorerAnswerError("the request was called off, because another one of the same round had failed")
    if error is None:
        return together
    error.scores = together
    return error
