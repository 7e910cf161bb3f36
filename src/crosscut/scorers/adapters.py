"""Scorers made of what users have: functions, objects with `score_many`, other libraries' models, known matrices."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, Items, items_of, plain_text
from crosscut.errors import InputError, ScoreCountError, ScorerError, ScorerTimeout
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult, count_of
from crosscut.scorers.validation import validate_scores
from crosscut.threads import in_thread, run_async
from crosscut.types import Floats, Handles

TextRequest: TypeAlias = tuple[str, list[str]]
"""One query and the texts to score it with."""


class ScoresMany(Protocol):
    """A user's bound scorer: numbers for every request, in any form that numpy reads."""

    def score_many(self, requests: Sequence[Request]) -> Sequence[Any]: ...


AnyBound: TypeAlias = BoundScorer | ScoresMany | Callable[[Any, Handles], Any]
"""Types that `as_bound` accepts."""


class CallableScorer(BoundScorer):
    """A bound scorer made of `fn(query, handles) -> scores`, or with `items` of `fn(query, texts) -> scores`.

    `fn` may be a plain function, an `async def`, or anything that returns an awaitable; the requests of one round of
    an async scorer run concurrently. A request that fails leaves the others of its batch alone.
    """

    items: Items | None = None
    keeps_deadline = True
    counts_attempts = True

    def __init__(self, fn: Callable[[Any, Any], Any], items: Items | None = None) -> None:
        if not callable(fn):
            raise InputError(f"a scorer must be callable as f(query, positions), and {fn!r} is not")
        self.fn = fn
        self.items = items
        self.n_items = None if items is None else count_of(items)

    def _call(self, query: Any, given: Any) -> Any:
        return self.fn(query, given)

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        results = [ScoreResult.nothing(len(handles)) for _, handles in requests]
        waiting: dict[int, Awaitable[Any]] = {}
        try:
            for place, (query, handles) in enumerate(requests):
                if (retries and retries[place].halted) or (deadline is not None and time.monotonic() >= deadline):
                    continue
                try:
                    given = handles if self.items is None else texts_of(self.items, handles)
                except ScorerError as error:
                    results[place] = ScoreResult.nothing(len(handles), error)
                    continue
                results[place] = ScoreResult.nothing(len(handles), attempted=True)
                if retries:
                    retries[place].attempted += len(handles)
                try:
                    answer = self._timed(query, given, deadline)
                    if inspect.isawaitable(answer):
                        waiting[place] = answer
                    else:  # copied now: the next request may fill the same array
                        results[place] = validate_scores(answer, query, handles)
                except Exception as error:
                    results[place] = validate_scores(error, query, handles)
            if waiting:
                run_async(_await_all(waiting, requests, results, deadline))
        except BaseException as error:  # Ctrl-C: the meter counts what was handed out
            vars(error)["results"] = results
            raise
        return results

    def _timed(self, query: Any, given: Any, deadline: float | None) -> Any:
        if deadline is None:
            return self._call(query, given)
        left = deadline - time.monotonic()
        try:
            return in_thread(lambda: self._call(query, given), left, owner=self.fn)
        except TimeoutError as error:
            raise ScorerTimeout("the scorer did not return before the deadline of the search") from error


class BoundTexts(BoundScorer):
    """A bound scorer made of a function that scores requests of texts."""

    def __init__(self, items: Items, answer: Callable[[Sequence[TextRequest]], list[ScoreResult]]) -> None:
        self.items = items
        self.answer = answer
        self.n_items = count_of(items)

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        try:
            asked = [(str(query), texts_of(self.items, handles)) for query, handles in requests]
        except ScorerError as error:
            return [ScoreResult.nothing(len(handles), error) for _, handles in requests]
        return self.answer(asked) if asked else []


class TextScorer(Scorer):
    """An unbound scorer made of `fn(query, texts) -> scores`, sync or async; a text is title, newline, text of an item.

    `fingerprint` identifies what the scores depend on; by default the function's own name, which is right as long as
    the function does not change behind it.
    """

    def __init__(self, fn: Callable[[Any, Sequence[str]], Any], *, fingerprint: str | None = None) -> None:
        name = f"{getattr(fn, '__module__', '')}.{getattr(fn, '__qualname__', type(fn).__qualname__)}"
        self._fingerprint = fingerprint or hashlib.sha256(name.encode()).hexdigest()[:16]
        self.fn = fn

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        return CallableScorer(self.fn, items_of(items))


class MatrixScorer(CallableScorer):
    """f(q, i) = M[q, i]: a bound scorer that replays a known matrix, and whose query is a row number.

    Parameters
    ----------
    matrix
        (queries × items) scores of any float type, in memory or memory-mapped; never copied.
    """

    def __init__(self, matrix: npt.ArrayLike) -> None:
        array = matrix if isinstance(matrix, np.ndarray) else np.asarray(matrix, dtype=np.float64)
        if array.ndim != 2:
            raise InputError(f"a score matrix has two dimensions (queries × items); this one has shape {array.shape}")
        super().__init__(self._row)
        self.matrix = array
        self.n_items = int(array.shape[1])

    def _row(self, query: Any, handles: Handles) -> Floats:
        row = int(query)
        if not 0 <= row < len(self.matrix):
            raise InputError(f"query {row} is not a row of this matrix, which has {len(self.matrix)} rows")
        return np.asarray(self.matrix[row, handles], dtype=np.float64)

    def _timed(self, query: Any, given: Any, deadline: float | None) -> Any:
        return self._row(query, given)


class UserScorer(BoundScorer):
    """A user's own object with `score_many`: missing attributes get defaults, results are validated."""

    def __init__(self, scorer: Any) -> None:
        self.scorer = scorer
        self.n_items = getattr(scorer, "n_items", None)
        self.pairs_per_batch = getattr(scorer, "pairs_per_batch", BoundScorer.pairs_per_batch)
        self.concurrency = int(getattr(scorer, "concurrency", BoundScorer.concurrency))
        self.keeps_deadline = bool(getattr(scorer, "keeps_deadline", False))
        self.has_base_scores = bool(getattr(scorer, "has_base_scores", False))
        self.free = bool(getattr(scorer, "free", False))

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        return np.asarray(self.scorer.base_scores(query, handles), np.float64)

    def base_scores_many(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        if hasattr(self.scorer, "base_scores_many"):
            return [np.asarray(known, np.float64) for known in self.scorer.base_scores_many(queries, n)]
        return super().base_scores_many(queries, n)

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        keywords = {"deadline": deadline, "retries": retries}
        accepted = {name: keywords[name] for name in accepted_keywords(self.scorer.__class__)}
        results: list[ScoreResult] = []
        for given in self.scorer.score_many(requests, **accepted):
            if len(results) == len(requests):
                raise ScoreCountError(f"the scorer answered more than {len(requests)} queries in a batch of so many")
            results.append(validate_scores(given, *requests[len(results)]))  # now: results may share an array
        if len(results) < len(requests):
            raise ScoreCountError(f"the scorer answered {len(results)} of {len(requests)} queries in a batch")
        return results

    def preload(self, handles: Handles) -> None:
        if hasattr(self.scorer, "preload"):
            self.scorer.preload(handles)


@cache
def accepted_keywords(kind: type) -> frozenset[str]:
    """Return which of `deadline` and `retries` the `score_many` of a class takes; simple scorers need neither."""
    try:
        parameters = inspect.signature(kind.score_many).parameters  # type: ignore[attr-defined]
    except (AttributeError, TypeError, ValueError):
        return frozenset()
    every = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return frozenset(name for name in ("deadline", "retries") if every or name in parameters)


def as_bound(scorer: AnyBound) -> BoundScorer:
    """Return a bound scorer made of an object with `score_many`, or of a callable."""
    if isinstance(scorer, BoundScorer):
        return scorer
    if hasattr(scorer, "score_many"):
        return UserScorer(scorer)
    if hasattr(scorer, "bind"):
        raise InputError(
            f"{type(scorer).__name__} scores texts and has not been bound to a corpus: pass scorer.bind(items)"
        )
    return CallableScorer(scorer)


def from_library(scorer: Any) -> TextScorer | None:
    """Return a scorer made of an object of another library, which is known by its class and not imported.

    | class | of | called as |
    |---|---|---|
    | `BaseCrossEncoder` | langchain-core, langchain-community | `score([(query, text), …])` |
    | `BaseRanker` | rerankers | `rank(query, texts, doc_ids)` |
    """
    kinds = {(kind.__module__.split(".")[0].split("_")[0], kind.__name__) for kind in type(scorer).__mro__}
    names = (getattr(scorer, name, None) for name in ("model_name", "model_name_or_path", "model"))
    model = next((name for name in names if isinstance(name, str)), "")
    fingerprint = f"{type(scorer).__module__}.{type(scorer).__qualname__}:{model}"
    if ("langchain", "BaseCrossEncoder") in kinds:
        return TextScorer(lambda query, texts: scorer.score([(query, text) for text in texts]), fingerprint=fingerprint)
    if ("rerankers", "BaseRanker") in kinds:
        return TextScorer(lambda query, texts: _ranked(scorer, query, texts), fingerprint=fingerprint)
    return None


def _ranked(ranker: Any, query: str, texts: Sequence[str]) -> Floats:
    """Return the scores of a ranker, in the order of the texts."""
    scores = np.full(len(texts), np.nan)
    for result in ranker.rank(query, list(texts), doc_ids=list(range(len(texts)))):
        if result.score is None:
            raise ScorerError(f"{type(ranker).__name__} ranks documents without scoring them: a scorer must score")
        scores[result.document.doc_id] = result.score
    return scores


def texts_of(items: Items, handles: Handles) -> list[str]:
    """Return the texts of items as title, newline, text; nothing is paid for if they cannot be read."""
    try:
        return [plain_text(item) for item in items.get(handles)]
    except Exception as error:
        raise ScorerError(f"items could not be read: {error}", attempted=False) from error


async def _await_all(
    waiting: dict[int, Awaitable[Any]],
    requests: Sequence[Request],
    results: list[ScoreResult],
    deadline: float | None,
) -> None:
    async def one(place: int, answer: Awaitable[Any]) -> None:
        query, handles = requests[place]
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()) as limit:
                given: Any = await answer
        except Exception as error:
            late = isinstance(error, TimeoutError) and limit.expired()
            given = ScorerTimeout("the scorer did not return before the deadline of the search") if late else error
        results[place] = validate_scores(given, query, handles)

    await asyncio.gather(*(one(place, answer) for place, answer in waiting.items()))
