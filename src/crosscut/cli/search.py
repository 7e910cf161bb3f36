"""`crosscut search`."""

from __future__ import annotations

import json
import math
import textwrap
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.options import Folder, LoadOptions, PriceOptions, filter_of, piped, with_groups
from crosscut.cli.output import console, counted
from crosscut.errors import InputError

EXCERPT = 30  # words of a text that are shown, about
LONGEST = 280  # characters of them
FEW = 4  # up to this many queries are answered sooner than compiled loops are loaded

if TYPE_CHECKING:
    from rich.console import Console

    from crosscut.search.hits import Hits


@with_groups
def search(
    index: Folder,
    loading: LoadOptions,
    prices: PriceOptions,
    query: Annotated[list[str] | None, typer.Argument(help="Queries; without any, one a line from a pipe.")] = None,
    k: Annotated[int, typer.Option("-k", help="Number of hits.")] = 10,
    budget: Annotated[
        int | None, typer.Option(help="Most scorer calls per query; 100, or every item for exact.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Another method than the index's own: axn@rounds=10,mix=0.8.")
    ] = None,
    candidates: Annotated[
        list[str] | None, typer.Option(help="The id of an item for round one; may be repeated, best first.")
    ] = None,
    stop: Annotated[str | None, typer.Option(help="A stopping rule: patience@rounds=2.")] = None,
    filter: Annotated[
        list[str] | None, typer.Option(help="A condition on metadata: key=value, key>=value, …; may be repeated.")
    ] = None,
    target_recall: Annotated[float | None, typer.Option(help="Stop at this expected recall (after a tune).")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds after which no more calls are made.")] = None,
    order: Annotated[
        str | None, typer.Option(help="The order of hits: scorer, or fused (scorer, vectors and words together).")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Only hits that are relevant with this probability (calibrated scorers).")
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Keep what is scored in this file, for `crosscut index learn`.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Show every round: what was scored, and predicted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object a query.")] = False,
) -> None:
    """Search an index: the best items by exact score, with at most --budget calls a query.

    Examples:

        crosscut search my.index "how do vaccines work" -k 5 --budget 100

        cat queries.txt | crosscut search my.index --json --filter language=en --filter 'year>=2000'
    """
    from crosscut.linalg.products import few

    queries = list(query or ()) or piped()
    if not queries:
        raise InputError("there is no query: give one, or pipe queries in, one a line")
    conditions = filter_of(filter)
    loaded = loading.index(index, log=log)
    loaded.price = prices.price
    with (
        few() if len(queries) <= FEW else nullcontext(),
        console(stderr=True).status(f"searching {len(loaded):,} items"),
    ):
        found = loaded.search_many(
            queries,
            k,
            budget,
            method=method,
            filter=conditions,
            stop=stop,
            target_recall=target_recall,
            deadline=deadline,
            threshold=threshold,
            order=order,
            candidates=[candidates] * len(queries) if candidates else None,
        )
    for hits in found:
        rounds = rounds_of(hits) if trace else []
        if as_json:
            record = {"query": hits.query, **hits.to_json()} | ({"trace": rounds} if trace else {})
            typer.echo(json.dumps(record, ensure_ascii=False))
        else:
            show(hits, rounds)


def rounds_of(hits: Hits) -> list[dict[str, Any]]:
    """Return what every round scored: ids, scores, and predictions (None where there was none)."""
    return [
        {
            "round": number,
            "calls": one.calls,
            "cached": one.cached,
            "ids": [item.id for item in ([] if hits.items_at is None else hits.items_at(one.positions))],
            "scores": one.scores.tolist(),
            "estimates": [value if math.isfinite(value) else None for value in one.estimates.tolist()],
        }
        for number, one in enumerate(hits.trace, 1)
    ]


def show(hits: Hits, rounds: list[dict[str, Any]]) -> None:
    """Print a paragraph for each hit: its title, its score, and the words in it that match."""
    out = console()
    out.print(hits.query, style="bold underline", soft_wrap=True)
    for place, hit in enumerate(hits, 1):
        title, text = ("", hit.text or "") if hit.item is None else (hit.item.title, hit.item.text)
        probability = "" if hit.probability is None else f" · probability {hit.probability:.2f}"
        facts = f"score {hit.score:.2f}{probability} · round {hit.round}"
        _print_wrapped(out, f"{place:>2}  ", f"{title or hit.id}", "bold")
        _print_wrapped(out, "    ", f"{hit.id} · {facts}" if title else facts, "dim")
        if text.strip():
            _print_wrapped(out, "    ", excerpt(text, hits.query))
    for one in rounds:
        best, id = max(zip(one["scores"], one["ids"], strict=True), default=(math.nan, "nothing"))
        _print_wrapped(
            out, "    ", f"round {one['round']}: {counted(one['calls'], 'call')}, best {best:.2f} ({id})", "dim"
        )
    seconds = hits.seconds
    cost = f"{counted(hits.calls, 'call')} in {counted(hits.rounds, 'round')}, {seconds.total:.2f} s"
    cost += f" ({seconds.scorer:.2f} s in the scorer); "
    cost += hits.why if hits else "nothing passes the filter or the threshold"
    _print_wrapped(out, "", cost + ("" if hits.cost is None else f"; cost {hits.cost:.6g}"), "dim")
    out.print()


def _print_wrapped(out: Console, margin: str, text: str, style: str | None = None) -> None:
    """Print a text between its margin and the edge of the screen; in a pipe, 80 columns."""
    for line in textwrap.wrap(text, max(out.width - len(margin), 20)) or [""]:
        out.print(f"{margin}{line}", style=style, soft_wrap=True)
        margin = " " * len(margin)


def excerpt(text: str, query: str) -> str:
    """Return the part of a text that shares most words with a query; its beginning, if none does."""
    from crosscut.index.passages import Passages
    from crosscut.retrieval.bm25 import query_stems, stems

    wanted = set(query_stems(query))
    windows = Passages(EXCERPT, overlap=1).windows(text)
    start, end = max(windows, key=lambda span: len(wanted & set(stems(text[slice(*span)]))))
    whole = " ".join(text[start:end].split())
    short = textwrap.shorten(whole, LONGEST, placeholder="") or whole[:LONGEST]
    return f"{'… ' if text[:start].strip() else ''}{short}{' …' if text[end:].strip() or short != whole else ''}"
