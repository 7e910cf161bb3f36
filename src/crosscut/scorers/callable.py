"""Any Python callable as a scorer, sync or async."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.scorers.base import BoundScorer, Request
from crosscut.threads import run_async
from crosscut.types import Floats, Positions


class CallableScorer:
    """A bound scorer made of `fn(query, positions) -> scores`.

    `fn` may be a plain function, an `async def`, or anything that returns an awaitable; the requests of one
    round of an async scorer run concurrently.
    """

    def __init__(self, fn: Callable[[Any, Positions], Any]) -> None:
        if not callable(fn):
            raise InputError(f"a scorer must be callable as f(query, positions), and {fn!r} is not")
        self.fn = fn

    def score(self, query: Any, positions: Positions) -> Floats:
        return _as_floats(_resolve(self.fn(query, positions)))

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        """The scores of every request.

        What fails does so in its place: an exception stands where its scores would, None where a request was not
        made because an earlier one failed. The meter tells them apart, and keeps what was paid for.
        """
        answers: list[Any] = []
        for query, positions in requests:
            try:
                answers.append(self.fn(query, positions))
            except Exception as error:
                answers.append(error)
                break
        if any(inspect.isawaitable(answer) for answer in answers):
            answers = run_async(_gather(answers))
        answers += [None] * (len(requests) - len(answers))
        return [_converted(answer) for answer in answers]


class TextScorer:
    """An unbound scorer made of `fn(query, texts) -> scores`, sync or async.

    `fingerprint` names what the scores depend on; by default the function's own name, which is right as long
    as the function does not change behind it.
    """

    def __init__(self, fn: Callable[[Any, Sequence[str]], Any], *, fingerprint: str | None = None) -> None:
        name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        self._fingerprint = fingerprint or hashlib.sha256(name.encode()).hexdigest()[:16]
        self.fn = fn

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def score(self, query: str, items: Sequence[str]) -> Floats:
        return _as_floats(_resolve(self.fn(query, items)))

    def bind(self, items: Sequence[str]) -> BoundScorer:
        texts = list(items)

        def score_positions(query: Any, positions: Positions) -> Any:
            return self.fn(query, [texts[position] for position in positions])

        return CallableScorer(score_positions)


def as_bound(scorer: BoundScorer | Callable[[Any, Positions], Any]) -> BoundScorer:
    """A bound scorer from what the user brought: an object with `score_many`, or a callable."""
    if isinstance(scorer, BoundScorer):
        return scorer
    if hasattr(scorer, "bind"):
        raise InputError(
            f"{type(scorer).__name__} scores texts and has not been bound to a corpus: pass scorer.bind(items)"
        )
    return CallableScorer(scorer)


def _as_floats(answer: Any) -> Floats:
    """What a scorer returned as a flat float64 array: a list, an array, a tensor, one number."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().numpy()
    return np.asarray(answer, dtype=np.float64).reshape(-1)


def _converted(answer: Any) -> Any:
    if answer is None or isinstance(answer, Exception):
        return answer
    try:
        return _as_floats(answer)
    except (TypeError, ValueError) as error:
        return error


async def _gather(answers: Sequence[Any]) -> list[Any]:
    async def value(answer: Any) -> Any:
        return await answer if inspect.isawaitable(answer) else answer

    return list(await asyncio.gather(*(value(answer) for answer in answers), return_exceptions=True))


def _resolve(answer: Any) -> Any:
    if not inspect.isawaitable(answer):
        return answer
    (result,) = run_async(_gather([answer]))
    if isinstance(result, Exception):
        raise result
    return result
