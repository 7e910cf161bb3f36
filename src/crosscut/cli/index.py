"""`crosscut index`: build, add, remove, tune, show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from crosscut.cli.common import progress_bar, read_texts
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.index.tune import Tuning

app = typer.Typer(no_args_is_help=True, help="Make an index of your texts, and keep it.")

Folder = Annotated[Path, typer.Argument(help="The folder of the index.")]
Corpus = Annotated[Path, typer.Argument(help="A .jsonl, .tsv or .txt file of items (.gz too), or a BEIR folder.")]
ScorerName = Annotated[str | None, typer.Option("--scorer", help="A model folder, a hub id, or an address.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]


@app.command()
def build(
    corpus: Corpus,
    folder: Folder,
    scorer: Annotated[str, typer.Option(help="'default', a model folder, a hub id, or an address.")] = "default",
    encoder: Annotated[str, typer.Option(help="Dual encoder: 'default', a folder, a hub id, or 'none'.")] = "default",
    queries: Annotated[
        Path | None,
        typer.Option(help="Train queries (.jsonl, .tsv, .txt): scored with every item, they make searches far better."),
    ] = None,
    anchors: Annotated[int, typer.Option(help="How many of them, at most, for --space cur.")] = 200,
    space: Annotated[
        str,
        typer.Option(
            help="cur: scores with every item; als, transductive, inductive: factors of a few; encoder; auto."
        ),
    ] = "auto",
    per_query: Annotated[int, typer.Option(help="Items scored per train query, for factors.")] = 100,
    store: Annotated[
        Path | None, typer.Option(help="A score store: known scores are free, a build that was stopped goes on.")
    ] = None,
    method: Annotated[str, typer.Option(help="What searches use unless told otherwise.")] = "crosscut",
    no_words: Annotated[bool, typer.Option("--no-words", help="No BM25 in round one.")] = False,
    as_json: Json = False,
) -> None:
    """Build an index: items are embedded, their words counted; with --queries, train queries are scored with all.

    Examples:

        crosscut index build corpus.jsonl my.index

        crosscut index build scifact/ my.index --queries train.jsonl --anchors 100 --store scores/

        crosscut index build corpus.jsonl my.index --queries train.jsonl --space inductive --per-query 50
    """
    from crosscut.index import Index
    from crosscut.index.items import as_items

    errors = Console(stderr=True, highlight=False)
    if (folder / "index.json").exists():
        raise InputError(f"there is an index at {str(folder)!r} already: use `crosscut index add`, or another folder")
    items = as_items(corpus)
    dense = space in ("auto", "cur")
    asked = read_texts(queries)[: anchors if dense else None] if queries is not None else None
    empty = [item.id for item in items if not item.full_text.strip()]
    if empty:
        errors.print(f"{len(empty)} of {len(items)} items have no text, the first is {empty[0]!r}")
    if asked:
        each = len(items) if dense else min(per_query, len(items))
        errors.print(f"{len(asked):,} train queries × {each:,} items: {len(asked) * each:,} calls to make at most")
    with progress_bar(errors) as told:
        index = Index.build(
            items,
            scorer=scorer,
            encoder=None if encoder == "none" else encoder,
            queries=asked,
            anchors=anchors,
            space=space,  # type: ignore[arg-type]
            per_query=per_query,
            store=store,
            bm25=not no_words,
            method=method,
            progress=told,
        )
        index.save(folder)
    _told(f"{len(index):,} items in {folder}", {"items": len(index), "calls": index.build_calls}, as_json)


@app.command()
def add(folder: Folder, corpus: Corpus, scorer: ScorerName = None, as_json: Json = False) -> None:
    """Add items: they are embedded, not scored, and can be found at once.

    Example:

        crosscut index add my.index more.jsonl
    """
    from crosscut.index import Index

    with progress_bar(Console(stderr=True)) as told:
        index = Index.load(folder, scorer=scorer)
        count = index.add(corpus, progress=told)
        index.save()
    _told(f"{count:,} items added; {len(index):,} in {folder}", {"added": count, "items": len(index)}, as_json)


@app.command()
def remove(
    folder: Folder, ids: Annotated[list[str], typer.Argument(help="Ids of items.")], as_json: Json = False
) -> None:
    """Remove items.

    Example:

        crosscut index remove my.index 4983 5836
    """
    from crosscut.index import Index

    index = Index.load(folder)
    count = index.remove(ids)
    index.save()
    _told(f"{count:,} items removed; {len(index):,} in {folder}", {"removed": count, "items": len(index)}, as_json)


@app.command()
def tune(
    folder: Folder,
    queries: Annotated[
        Path | None, typer.Option(help="Train queries; without them, the anchor queries of the index, for no calls.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.")] = 10,
    budget: Annotated[int, typer.Option(help="Calls per query.")] = 100,
    max_calls: Annotated[int | None, typer.Option(help="Refuse to spend more than this.")] = None,
    scorer: ScorerName = None,
    as_json: Json = False,
) -> None:
    """Choose method, settings and stopping rules on train queries; calibrate --target-recall.

    Example:

        crosscut index tune my.index -k 10 --budget 200
    """
    from crosscut.index import Index

    errors = Console(stderr=True, highlight=False)
    index = Index.load(folder, scorer=scorer)
    asked = None if queries is None else read_texts(queries)
    errors.print(f"the truth of the train queries takes {index.tuning_calls(asked):,} calls")
    with progress_bar(errors) as told:
        report = index.tune(asked, k, budget, max_calls=max_calls, progress=told)
        index.save()
    if as_json:
        typer.echo(json.dumps(report.json(), indent=1))
        return
    _tuning(report)


def _tuning(report: Tuning) -> None:
    out = Console(highlight=False)
    table = Table("tried", "recall", "95 %", title=f"k = {report.k}, {report.budget} calls, {report.queries} queries")
    for trial in report.trials:
        style = "bold green" if trial == report.chosen else None
        table.add_row(str(trial.method), f"{trial.recall:.3f}", f"{trial.low:.3f} … {trial.high:.3f}", style=style)
    out.print(table)
    out.print(f"chosen: [bold]{report.chosen.method}[/bold]")
    for note in report.notes:
        out.print(note)
    if report.patience is not None:
        out.print(
            f"patience {report.patience}: recall {report.patience_recall:.3f} with {report.patience_calls:.0f} calls"
        )
    if report.targets:
        table = Table("target recall", "reached", "calls", "fixed budget for as much", title="on the train queries")
        for row in report.targets:
            fixed = "–" if row.fixed_calls is None else f"{row.fixed_calls:.0f}"
            table.add_row(f"{row.target:g}", f"{row.recall:.3f}", f"{row.calls:.0f}", fixed)
        out.print(table)


@app.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """Say what is in an index, and check its files.

    Example:

        crosscut index show my.index
    """
    from crosscut.index.folder import read

    manifest, _ = read(folder)
    size = sum(file["bytes"] for file in manifest["files"].values())
    told: dict[str, Any] = {name: value for name, value in manifest.items() if name not in ("files", "tuned", "format")}
    told |= {"bytes": size, "tuned": manifest["tuned"] is not None}
    if as_json:
        typer.echo(json.dumps(told, indent=1))
        return
    table = Table(show_header=False, title=str(folder))
    for name, value in told.items():
        table.add_row(name, f"{value:,}" if type(value) is int else str(value))
    Console(highlight=False).print(table)


def _told(sentence: str, record: dict[str, Any], as_json: bool) -> None:
    typer.echo(json.dumps(record) if as_json else sentence)
