"""Any Python callable as a scorer, sync or async."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import numpy as np

from crosscut.errors import InputError
from crosscut.scorers.base import BoundScorer, Floats, Positions, Request
from crosscut.scorers.threads import in_thread

T = TypeVar("T")


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
        return self.score_many([(query, positions)])[0]

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        answers = [self.fn(query, positions) for query, positions in requests]
        if any(inspect.isawaitable(answer) for answer in answers):
            answers = _run(_gather(answers))
        return [_as_floats(answer) for answer in answers]


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
    """What a scorer returned as a flat float64 array: a list, an array, a tensor on the CPU, one number."""
    if hasattr(answer, "detach"):
        answer = answer.detach().cpu().numpy()
    return np.asarray(answer, dtype=np.float64).reshape(-1)


async def _gather(answers: Sequence[Any]) -> list[Any]:
    async def value(answer: Any) -> Any:
        return await answer if inspect.isawaitable(answer) else answer

    return list(await asyncio.gather(*(value(answer) for answer in answers)))


def _resolve(answer: Any) -> Any:
    return _run(_gather([answer]))[0] if inspect.isawaitable(answer) else answer


def _run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, also when this thread already runs an event loop (a notebook, a server)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    result: T = in_thread(lambda: asyncio.run(coroutine))
    return result
