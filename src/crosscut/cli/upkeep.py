"""`crosscut index compact` and `crosscut index complete`: what an index that has changed may want."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import EngineName, Folder, Json, ScorerName, TrustRemote, counted, progress_bar, say


def compact(
    folder: Folder, scorer: ScorerName = None, trust_remote: TrustRemote = False, as_json: Json = False
) -> None:
    """Write the files of an index without what was removed; of a large one they keep up to an eighth of it.

    Example:

        crosscut index compact my.index
    """
    from crosscut.index import Index

    index = Index.load(folder, scorer=scorer, trust_remote=trust_remote)
    count = index.compact()
    if count:
        index.save()
    told = f"{counted(count, 'removed item')} left the files" if count else "no removed item was left in the files"
    record = {"compacted": count, "items": len(index)}
    typer.echo(json.dumps(record) if as_json else f"{told}; {len(index):,} in {folder}")


def complete(
    folder: Folder,
    store: Annotated[
        Path | None, typer.Option(help="A score store: known scores are free, one that was stopped goes on.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Refuse to spend more than this.")] = None,
    scorer: ScorerName = None,
    engine: EngineName = "local",
    trust_remote: TrustRemote = False,
    as_json: Json = False,
) -> None:
    """Score the train queries with items that were added since: until then their scores are estimates.

    Example:

        crosscut index complete my.index --store scores/
    """
    from crosscut.index import Index

    index = Index.load(folder, scorer=scorer, trust_remote=trust_remote, store=store)
    most = index.completing_calls
    if most and not as_json:
        say(f"the scores of train queries with items that were added since take up to {most:,} calls")
    with progress_bar(quiet=as_json) as progress:
        calls = index.complete(max_calls=max_calls, engine=engine, progress=progress)  # type: ignore[arg-type]
        if most:
            index.save()
    told = f"every item has its scores, after {counted(calls, 'call')}" if most else "every item had its scores"
    typer.echo(json.dumps({"calls": calls, "items": len(index)}) if as_json else f"{told}; {len(index):,} in {folder}")
