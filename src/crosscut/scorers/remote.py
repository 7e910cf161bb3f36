"""Scorers that live behind HTTP: what rerank endpoints and chat judges share.

A request of the meter, one query with many items, is cut into batches; the batches of all requests of a round are
in flight together, as many as `concurrency` allows. What fails does so in its place: the scores that came back are
kept, and batches that had not left when another failed are not sent.

A pair that is sent again is another call: the budget of a search holds on the wire, and a request that cannot be sent
again within it fails as it is (`ScorerError.spent`). `sent` counts what went over the wire.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from crosscut.datasets.records import Item, Items, items_of
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.answers import checked
from crosscut.scorers.base import Answer, BoundScorer, Scorer, Spare
from crosscut.scorers.texts import BoundTexts, TextRequest
from crosscut.scorers.transport import Limits, Sent, Transport
from crosscut.threads import run_async
from crosscut.types import Floats


class RemoteScorer(Scorer):
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
    async def ask(self, query: str, texts: Sequence[str], limits: Limits) -> Floats:
        """The scores of one batch."""

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """This scorer over items, whose texts are title, newline, text."""
        return BoundRemoteScorer(self, items_of(items))

    def answer(
        self, requests: Sequence[TextRequest], *, seconds: float | None = None, spares: Sequence[Spare] | None = None
    ) -> list[Answer]:
        """An answer to every request; batches that had not left when another failed are not paid for."""
        end = None if seconds is None else time.monotonic() + seconds
        limits = [Limits(end, spares[place] if spares else None) for place in range(len(requests))]
        return run_async(self._gather(requests, limits))

    async def _gather(self, requests: Sequence[TextRequest], limits: Sequence[Limits]) -> list[Answer]:
        failed = False

        async def batch(query: str, texts: list[str], limits: Limits) -> Answer:
            nonlocal failed
            async with room:  # as many at a time as the transport lets out: the rest can still be called off
                if failed:
                    return Answer.nothing(len(texts))
                try:
                    return checked(await self.ask(query, texts, limits), query, np.arange(len(texts)))
                except Exception as error:  # in its place: what the others bring is kept
                    # the budget of one search is no fault of the others
                    failed = failed or not (isinstance(error, ScorerError) and error.spent)
                    return checked(error, query, np.arange(len(texts)))

        async def whole(query: str, texts: list[str], limits: Limits) -> Answer:
            size = self.batch_size
            cut = [texts[start : start + size] for start in range(0, len(texts), size)]
            parts = await asyncio.gather(*(batch(query, some, limits) for some in cut))
            if not parts:
                return Answer.nothing(0)
            error = next((part.error for part in parts if part.error is not None), None)
            scores, paid = [part.scores for part in parts], [part.paid for part in parts]
            return Answer(np.concatenate(scores), np.concatenate(paid), error)

        room = asyncio.Semaphore(self.transport.concurrency)
        return list(await asyncio.gather(*(whole(*asked, own) for asked, own in zip(requests, limits, strict=True))))

    def close(self) -> None:
        """Close the connections."""
        run_async(self.transport.close())

    def __enter__(self) -> RemoteScorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.identity().items() if value not in (None, {}))
        return f"{type(self).__name__}({told})"


class BoundRemoteScorer(BoundTexts):
    """A remote scorer that knows its items."""

    def __init__(
        self,
        model: RemoteScorer,
        items: Items,
        seconds: float | None = None,
        spares: Sequence[Spare] | None = None,
    ) -> None:
        super().__init__(items, partial(model.answer, seconds=seconds, spares=spares))
        self.model, self.seconds, self.spares = model, seconds, spares
        self.pairs_at_once = model.batch_size * model.transport.concurrency  # fewer would leave connections idle
        self.in_flight = model.transport.concurrency

    def within(self, seconds: float) -> BoundScorer:
        """The same, with requests that end, or are not retried, `seconds` after they begin."""
        return BoundRemoteScorer(self.model, self.items, seconds, self.spares)

    def sparing(self, spares: Sequence[Spare]) -> BoundScorer:
        """The same, whose requests are sent again as far as these go."""
        return BoundRemoteScorer(self.model, self.items, self.seconds, spares)
