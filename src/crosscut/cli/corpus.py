"""The corpus that `crosscut index build` is given: read into memory, or item after item."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from crosscut.cli.common import counted, progress_bar, say

if TYPE_CHECKING:
    from crosscut.datasets.columns import ColumnNames
    from crosscut.datasets.records import Item
    from crosscut.index import Index
    from crosscut.index.passages import Passages

LARGE = 10**9  # bytes of a file that is not read into memory
LOOKED_AT = 1000  # items of one that is not
LONG = 200  # words; most scorers read fewer than a text with more of them has


def is_streamed(corpus: Path, told: bool | None) -> bool:
    """Whether an index is built in its folder, item after item."""
    return corpus.is_file() and corpus.stat().st_size > LARGE if told is None else told


def read_corpus(corpus: Path, columns: ColumnNames, *, whole: bool) -> list[Item]:
    """The items of a corpus, in memory; what is odd about them is said. `whole`: they are not cut into passages."""
    from crosscut.index.items import as_items

    with progress_bar() as progress:
        items = as_items(corpus, progress=progress, **columns)
    _remark(items, f"{len(items):,}", whole=whole)
    return items


def look_at(corpus: Path, columns: ColumnNames, *, whole: bool) -> Path:
    """The corpus itself, not read into memory; what is odd about its first items is said."""
    from crosscut.index.items import stream

    items = list(itertools.islice(stream(corpus, **columns), LOOKED_AT))
    _remark(items, f"the first {len(items):,}", whole=whole)
    return corpus


def announce(queries: list[str] | None, source: Path | list[Item], cut: Passages | None, most: int | None) -> None:
    """What train queries cost, `most` items or passages each at most, where the number of those is known."""
    if queries and isinstance(source, list):
        n = len(source) if cut is None else sum(1 for _ in cut.cut(source))
        each = n if most is None else min(most, n)
        what = "items" if cut is None else "passages"
        say(f"{len(queries):,} train queries × {each:,} {what}: {len(queries) * each:,} calls to make at most")


def what_was_built(source: Path | list[Item], index: Index) -> tuple[str, str]:
    """Items, or documents and their passages; and what train queries taught."""
    learnt = "" if index.taught is None else f"; {index.build_calls:,} calls on train queries, {index.taught.why}"
    if index.passages is None:
        return counted(len(index), "item"), learnt
    passages = f"{len(index):,} passages"
    return f"{counted(len(source), 'document')} ({passages})" if isinstance(source, list) else passages, learnt


def _remark(items: list[Item], these: str, *, whole: bool) -> None:
    """Say what is odd about items: no text, or more than a scorer reads."""
    empty = [item.id for item in items if not (item.title + item.text).strip()]
    if empty:
        say(f"without a text: {counted(len(empty), 'item')} of {these}, the first is {empty[0]!r}")
    long = sum(item.text.count(" ") > LONG for item in items) if whole else 0
    if long:
        say(
            f"longer than {LONG} words: {counted(long, 'item')} of {these}; most scorers read only the "
            "beginning of such texts (--passages 120 cuts them into passages)"
        )
