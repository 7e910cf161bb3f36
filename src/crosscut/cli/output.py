"""Output of commands: sentences, tables, progress.

Nothing that is printed here is read as markup: a hint such as `pip install 'crosscut[torch]'` comes out as it is.
"""

from __future__ import annotations

import json
import time
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import typer
from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from crosscut.types import Progress

INTERRUPTED = 130
"""The exit code of a command that was stopped from the keyboard."""
SECONDS_BETWEEN_LINES = 10.0
SECONDS_TO_FIRST_LINE = 1.0

console = partial(Console, highlight=False, markup=False, emoji=False)
"""A console that prints what it is given."""


def counted(number: int, noun: str) -> str:
    """Return `1 call`, `2 calls`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a time in the unit that fits: `40 s`, `3 min`, `2.5 h`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def say(text: str, style: str | None = None) -> None:
    """Print a line for people on stderr, wrapped between words on a terminal, one line in a pipe."""
    out = console(stderr=True)
    out.print(text, style=style, soft_wrap=not out.is_terminal)


def result(sentence: str, record: dict[str, Any], as_json: bool) -> None:
    """Print the outcome of a command on stdout: for people, or for programs."""
    typer.echo(json.dumps(record, ensure_ascii=False) if as_json else sentence)


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar for each thing that is done; where stderr is no terminal, a plain line now and then."""
    screen = console(stderr=True)
    begun: dict[str, tuple[float, int]] = {}
    printed: dict[str, float] = {}
    bars: dict[str, Any] = {}

    def line(what: str, done: int, total: int) -> None:
        now = time.monotonic()
        first, before = begun.setdefault(what, (now, done))
        due = now - printed.get(what, first + SECONDS_TO_FIRST_LINE - SECONDS_BETWEEN_LINES) >= SECONDS_BETWEEN_LINES
        short = now - first < SECONDS_TO_FIRST_LINE and what not in printed
        if quiet or (not due and (short or done < total or not total)):
            return
        printed[what] = now
        left = (now - first) / (done - before) * (total - done) if done > before else 0.0
        share = f"{done:,} of {total:,}" if total else f"{done:,}"
        say(f"{what}: {share}{f', about {duration(left)} left' if left >= 1 else ''}")

    if quiet or not screen.is_terminal:
        yield line
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(None), MofNCompleteColumn())
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
    bold: Container[tuple[int, int]] = (),
    note: str = "",
) -> None:
    """Print a table on stdout, in a pipe as wide as it needs to be; `bold` holds cells (row, column)."""
    cells = [[" ".join(str(cell).split()) for cell in row] for row in rows]
    out = console()
    if not out.is_terminal:
        out = console(width=sum(max(map(cell_len, column)) + 2 for column in zip(columns, *cells, strict=True)))
    made = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="underline")
    for place, name in enumerate(columns):
        numeric = all(row[place][:1] in "0123456789.+-−±–" for row in cells)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold", no_wrap=numeric)
    for number, row in enumerate(cells):
        made.add_row(*(Text(cell, "bold" if (number, place) in bold else "") for place, cell in enumerate(row)))
    out.print(title, style="bold", soft_wrap=True)
    out.print(made)
    if note:
        out.print(note, style="dim", soft_wrap=not console().is_terminal)
