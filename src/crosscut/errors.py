"""Exceptions of the library, as a tree.

    CrosscutError
    ├── InputError              an argument or a file that cannot be used (also a ValueError)
    │   └── FolderError         a folder that is damaged, was changed or is no folder of crosscut; the message names it
    ├── LockedError             another process is changing the same folder
    ├── BudgetError             more calls asked for than the budget allows
    ├── DivergedError           a loss became NaN or infinite while vectors or a model were fitted
    ├── MissingDependency       an optional package is not installed (also an ImportError)
    ├── StoreError              a score store, an index or a file that cannot be written or read
    │   ├── WriteError          the disk is full, read-only or failing (also an OSError)
    │   └── StoreUnavailable    a vector store did not answer; carries the hits and the calls so far
    └── ScorerError             the scorer failed; carries the hits and the calls so far
        ├── ScoreCountError     it returned another number of scores than it was given pairs
        ├── ScoreValueError     it returned NaN or an infinity
        ├── ScorerTimeout       it did not answer in time
        ├── ScorerBusy          earlier calls of it have not returned
        ├── ScorerUnavailable   its endpoint is down, or kept failing
        ├── ScorerRateLimited   its endpoint asks for fewer requests than were made
        ├── ScorerRefused       its endpoint refused the request: a wrong key, model or address
        └── ScorerAnswerError   its endpoint answered in another shape than it should

Every message is a sentence: what was wrong, both values, the way out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from crosscut.search.hits import Hits


class CrosscutError(Exception):
    """The root of every error that crosscut raises on purpose."""


class InputError(CrosscutError, ValueError):
    """An argument, an array or a file that cannot be used."""


class FolderError(InputError):
    """A folder that is damaged, was changed from outside, or is no folder of crosscut; the message names it."""


class LockedError(CrosscutError):
    """Another process is changing the same folder."""


class BudgetError(CrosscutError):
    """A search asked for more calls than its budget allows."""


class DivergedError(CrosscutError):
    """A loss became NaN or infinite; the message says what to lower or raise."""


class MissingDependency(CrosscutError, ImportError):
    """An optional package is needed; the message names the command that installs the packages of an `extra`."""

    def __init__(self, message: str, extra: str | None = None) -> None:
        super().__init__(message if extra is None else f"{message}: {install(extra)}")


@contextmanager
def needing(why: str, extra: str) -> Iterator[None]:
    """Turn an ImportError into a `MissingDependency`; `{}` in the reason becomes the name of the missing package."""
    try:
        yield
    except ImportError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "crosscut" or isinstance(error, MissingDependency):
            raise
        raise MissingDependency(why.replace("{}", missing), extra) from error


def install(extra: str) -> str:
    """Return the command that installs the packages of an extra, which works for a wheel and for a checkout."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = [line.partition(";") for line in requires("crosscut") or ()]
    except PackageNotFoundError:
        lines = []
    wanted = re.compile(rf"extra == ['\"]{re.escape(extra)}['\"]")
    packages = [need.strip() for need, _, when in lines if wanted.search(when) and not need.startswith("crosscut")]
    return "pip install " + (" ".join(f"'{need}'" for need in packages) or f"'crosscut[{extra}]'")


class StoreError(CrosscutError):
    """Something on disk cannot be written or read; what it already holds is unharmed."""


class WriteError(StoreError, OSError):
    """The disk is full, read-only or failing; what was there before is still there."""


class StoreUnavailable(StoreError):
    """A vector store is not there, or failed. `hits` and `calls` are those of the search so far (see `ScorerError`)."""

    def __init__(self, message: str, *, hits: list[Hits] | None = None, calls: int = 0) -> None:
        super().__init__(message)
        self.hits: list[Hits] = hits or []
        self.calls = calls


class ScorerError(CrosscutError):
    """The scorer failed. What had been paid for is not lost.

    `hits` holds one `Hits` per query of the search, ranked by the exact scores known when the scorer failed; `calls` is
    the number of pairs handed to the scorer in the whole search; `failures` (of a search) holds the error of each query
    or None. A scorer that fails on part of a request puts the others in `scores`, NaN where there is none; one that
    fails before it hands anything to its model sets `attempted` to False, and nothing is counted. `budget_ended` says
    that it would have tried again, had the budget allowed.
    """

    def __init__(
        self,
        message: str,
        *,
        hits: list[Hits] | None = None,
        calls: int = 0,
        scores: npt.NDArray[np.float64] | None = None,
        attempted: bool = True,
        budget_ended: bool = False,
    ) -> None:
        super().__init__(message)
        self.hits: list[Hits] = hits or []
        self.calls = calls
        self.scores = scores
        self.attempted = attempted
        self.budget_ended = budget_ended


class ScoreCountError(ScorerError):
    """The scorer returned another number of scores than it was given pairs."""


class ScoreValueError(ScorerError):
    """The scorer returned NaN or an infinity."""


class ScorerTimeout(ScorerError):
    """The scorer did not answer in time."""


class ScorerBusy(ScorerError):
    """Earlier calls of the scorer have not returned; it was not called."""


class ScorerUnavailable(ScorerError):
    """The scorer's endpoint is down, or kept failing."""


class ScorerRateLimited(ScorerError):
    """The scorer's endpoint asks for fewer requests than were made."""


class ScorerRefused(ScorerError):
    """The scorer's endpoint refused the request: a wrong key, model or address."""


class ScorerAnswerError(ScorerError):
    """The scorer's endpoint answered in another shape than it should."""
