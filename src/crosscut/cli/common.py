"""What several commands share: progress bars, filters, lists of numbers, queries from files and pipes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.types import Progress as Told

OPERATORS = {">=": "gte", "<=": "lte", "!=": "ne", ">": "gt", "<": "lt", "=": ""}


@contextmanager
def progress_bar(console: Console) -> Iterator[Told]:
    """A bar per thing that is done; gone when all is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        tasks: dict[str, Any] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)

        yield told


def numbers(option: str, text: str) -> list[int]:
    """`50,100` as whole numbers of at least 1."""
    try:
        values = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option} takes whole numbers separated by commas; got {text!r}") from None
    if not values or min(values) < 1:
        raise InputError(f"{option} takes whole numbers of at least 1; got {text!r}")
    return values


def conditions(texts: list[str] | None) -> dict[str, Any] | None:
    """`language=en`, `year>=2000` as a filter; several on one key hold together."""
    if not texts:
        return None
    made: dict[str, Any] = {}
    for text in texts:
        found = next((sign for sign in OPERATORS if sign in text), None)
        key, _, value = text.partition(found) if found else (text, "", "")
        if not found or not key.strip() or not value.strip():
            raise InputError(f"--filter takes key=value, or key>=value (also <=, <, >, !=); got {text!r}")
        bound = _value(value.strip())
        if OPERATORS[found]:
            made.setdefault(key.strip(), {})[OPERATORS[found]] = bound
        else:
            made[key.strip()] = [*made.get(key.strip(), []), bound]
    return made


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool | str) else text


def read_texts(path: Path) -> list[str]:
    """Queries of a file."""
    from crosscut.datasets import read_queries

    return [query.text for query in read_queries(path)]


def piped() -> list[str]:
    """Queries from standard input, one a line; none when nothing is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        return []
    return [line.strip() for line in sys.stdin if line.strip()]
