"""What several commands share: lines, progress bars, tables; filters, lists of numbers, queries from files and pipes.

Nothing that is printed here is read as markup: a hint such as `pip install 'crosscut[torch]'` comes out as it is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.progress import TextColumn as Words
from rich.table import Table
from rich.text import Text

from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.types import Progress

OPERATORS = {">=": "gte", "<=": "lte", "!=": "ne", ">": "gt", "<": "lt", "=": ""}
INTERRUPTED = 130
"""The exit code of a command that was stopped from the keyboard."""
SECONDS_BETWEEN_LINES = 10.0
SECONDS_TO_THE_FIRST = 1.0
WRAPPED = 30
"""Cells wider than this are wrapped rather than moved to a part of the table that stands below."""


def counted(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


console = partial(Console, highlight=False, markup=False, emoji=False)
"""A console that prints what it is given."""


def say(text: str, style: str | None = None) -> None:
    """A line for people, on stderr: between words on a screen, one line in a pipe; never read as markup."""
    out = console(stderr=True)
    out.print(text, style=style, soft_wrap=not out.is_terminal)


def result(sentence: str, record: dict[str, Any], as_json: bool) -> None:
    """What came of a command, on stdout: for people, or for programs."""
    typer.echo(json.dumps(record) if as_json else sentence)


def lasting(seconds: float) -> str:
    """A time to wait, in the unit that fits: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Progress]:
    """One bar a thing that is done, gone when all is; where stderr is no terminal, a plain line now and then."""
    screen = console(stderr=True)
    begun: dict[str, tuple[float, int]] = {}
    told: dict[str, float] = {}
    bars: dict[str, Any] = {}

    def line(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        first, before = begun.setdefault(what, (now, done))
        late = now - told.get(what, first + SECONDS_TO_THE_FIRST - SECONDS_BETWEEN_LINES) >= SECONDS_BETWEEN_LINES
        soon = now - first < SECONDS_TO_THE_FIRST and what not in told  # done before anybody wonders
        if quiet or (not late and (soon or done < total or not total)):
            return
        told[what] = now
        left = (now - first) / (done - before) * (total - done) if done > before else 0.0
        share = f"{done:,} of {total:,}" if total else f"{done:,}"
        say(f"{what}: {share}{f', about {lasting(left)} left' if left >= 1 else ''}")

    if quiet or not screen.is_terminal:
        yield line
        return
    columns = (Words("{task.description}", markup=False), BarColumn(None), MofNCompleteColumn())
    with Bars(*columns, TimeRemainingColumn(), console=screen, transient=True, expand=True) as shown:

        def draw(what: str, done: int, total: int) -> None:
            if what not in bars:
                bars[what] = shown.add_task(what, total=total or None)
            shown.update(bars[what], completed=done, total=total or None)

        yield draw


def table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    keys: int = 1,
    bold: Container[tuple[int, int]] = (),
    note: str = "",
) -> None:
    """Print a table on stdout that stays readable at 80 columns and in pipes.

    In a pipe it is as wide as it needs to be. On a terminal that is too narrow, the columns that do not fit stand below
    in a part of their own, which begins with the first `keys` columns again. `bold` holds cells (row, column).
    """
    cells = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    out = console()
    if not out.is_terminal:
        out = console(width=sum(widths) + 2 * len(widths))
    out.print(title, style="bold", soft_wrap=True)
    for part in _parts([min(one, WRAPPED) if out.is_terminal else one for one in widths], out.width, keys):
        made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
        for place in part:
            numeric = all(row[place][:1] in "0123456789.+-−±–" for row in cells)
            made.add_column(columns[place], justify="right" if numeric else "left", overflow="fold")
        for number, row in enumerate(cells):
            made.add_row(*(Text(row[place], "bold" if (number, place) in bold else "") for place in part))
        out.print(made)
    if note:
        out.print(note, style="dim", soft_wrap=True)


def _parts(widths: Sequence[int], width: int, keys: int) -> list[list[int]]:
    """The columns of each part of a table; each has the keys, and as many others as fit."""
    parts: list[list[int]] = []
    room = 0
    for place in range(keys, len(widths)):
        room -= widths[place] + 2
        if not parts or room < 0:
            parts.append(list(range(keys)))
            room = width - sum(widths[:keys]) - 2 * keys - widths[place]
        parts[-1].append(place)
    return parts or [list(range(len(widths)))]


def loaded_array(path: Path, *, mapped: bool = False) -> Any:
    """The content of a .npy or .npz file."""
    import zipfile

    import numpy as np

    try:
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a readable numpy file: {error}") from None


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
        else:  # 2005 is a number in JSON and a text in CSV
            either = [bound] if isinstance(bound, str) else [bound, value.strip()]
            made[key.strip()] = [*made.get(key.strip(), []), *either]
    return made


def _value(text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, int | float | bool | str) else text


def read_texts(path: Path) -> list[str]:
    """Queries of a file, each once; none is a mistake."""
    from crosscut.datasets import read_queries

    found = list(dict.fromkeys(query.text for query in read_queries(path)))
    if not found:
        raise InputError(f"{str(path)!r} has no queries")
    return found


def piped() -> list[str]:
    """Queries from standard input, one a line; none when nothing is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        return []
    return [line.strip() for line in sys.stdin if line.strip()]
