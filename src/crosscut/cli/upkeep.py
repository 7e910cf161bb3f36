"""`crosscut index compact` and `crosscut index complete`: what an index that has changed may want."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import counted, progress_bar, result, say
from crosscut.cli.options import EngineName, Folder, Json, LoadOptions, with_groups


@with_groups
def compact(folder: Folder, loading: LoadOptions, as_json: Json = False) -> None:
    """Write the files of an index without what was removed; of a large one they keep up to an eighth of it.

    Example:

        crosscut index compact my.index
    """
    index = loading.index(folder)
    count = index.compact()
    if count:
        index.save()
    told = f"{counted(count, 'removed item')} left the files" if count else "no removed item was left in the files"
    record = {"compacted": count, "items": len(index)}
    result(f"{told}; {len(index):,} in {folder}", record, as_json)


@with_groups
def complete(
    folder: Folder,
    loading: LoadOptions,
    store: Annotated[
        Path | None, typer.Option(help="A score store: known scores are free, one that was stopped goes on.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Refuse to spend more than this.")] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Score the train queries with items that were added since: until then their scores are estimates.

    Example:

        crosscut index complete my.index --store scores/
    """
    index = loading.index(folder, store)
    most = index.completing_calls
    if most and not as_json:
        say(f"the scores of train queries with items that were added since take up to {most:,} calls")
    with progress_bar(quiet=as_json) as progress:
        calls = index.complete(max_calls=max_calls, engine=engine, progress=progress)  # type: ignore[arg-type]
        if most:
            index.save()
    told = f"every item has its scores, after {counted(calls, 'call')}" if most else "every item had its scores"
    result(f"{told}; {len(index):,} in {folder}", {"calls": calls, "items": len(index)}, as_json)
