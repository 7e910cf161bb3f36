"""`crosscut search`."""

from __future__ import annotations

import json
import math
import textwrap
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import conditions, console, counted, piped
from crosscut.cli.options import IndexFolder, LoadOptions, PriceOptions, with_groups
from crosscut.errors import InputError

EXCERPT = 30  # words of a text that are shown, about
LONGEST = 280  # characters of them
FEW = 4  # up to this many queries are answered sooner than compiled loops are loaded

if TYPE_CHECKING:
    from rich.console import Console

    from crosscut.search.hits import Hits


@with_groups
def search(
    index: IndexFolder,
    loading: LoadOptions,
    prices: PriceOptions,
    query: Annotated[list[str] | None, typer.Argument(help="Queries; without any, one a line from a pipe.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many hits.")] = 10,
    budget: Annotated[
        int | None, typer.Option(help="Calls of the scorer per query, at most; 100, or every item for exact.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Another method than the index's own, with settings: axn@rounds=10,mix=0.8.")
    ] = None,
    candidates: Annotated[
        list[str] | None, typer.Option(help="An item for round one, by its id; may be repeated, best first.")
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
        float | None,
        typer.Option(help="Only hits that are relevant with this probability (of an index that is calibrated)."),
    ] = None,
    log: Annotated[
        Path | None, typer.Option(help="Keep what is scored in this file, for `crosscut index learn`.")
    ] = None,
    trace: Annotated[bool, typer.Option("--trace", help="Tell every round: what was scored, and predicted.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a query.")] = False,
) -> None:
    """Search an index: the best items by exact score, with at most --budget calls a query.

    Examples:

        crosscut search my.index "how do vaccines work" -k 5 --budget 100

        cat queries.txt | crosscut search my.index --json --filter language=en --filter 'year>=2000'
    """
    from crosscut.linalg.products import few

    asked = list(query or ()) or piped()
    if not asked:
        raise InputError("there is no query: give one, or pipe queries in, one a line")
    chosen = conditions(filter)
    errors = console(stderr=True)
    with errors.status("loading the index"):
        loaded = loading.index(index)
    loaded.price = prices.price
    loaded.keep_log(log)
    with few() if len(asked) <= FEW else nullcontext(), errors.status(f"searching {len(loaded):,} items"):
        found = loaded.search_many(
            asked,
            k,
            budget,
            method=method,
            filter=chosen,
            stop=stop,
            target_recall=target_recall,
            deadline=deadline,
            threshold=threshold,
            order=order,
            candidates=[candidates] * len(asked) if candidates else None,
        )
    for hits in found:
        rounds = _rounds(hits) if trace else []
        if as_json:
            told = _record(hits) | ({"trace": rounds} if trace else {})
            typer.echo(json.dumps(told, ensure_ascii=False))
        else:
            _show(hits, rounds)


def _record(hits: Hits) -> dict[str, Any]:
    return {
        "query": hits.query,
        "hits": [hit.to_json() for hit in hits],
        "calls": hits.calls,
        "cached": hits.cached,
        **({} if hits.cost is None else {"cost": hits.cost}),
        "rounds": hits.rounds,
        "stop_reason": hits.stop_reason,
        "seconds": asdict(hits.seconds),
    }


def _rounds(hits: Hits) -> list[dict[str, Any]]:
    """Round by round what was scored: ids, scores, and what had been predicted (None: nothing had)."""
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


def _show(hits: Hits, rounds: list[dict[str, Any]]) -> None:
    """A paragraph a hit: what it is called, how well it fits, and the words in it that fit."""
    out = console()
    out.print(hits.query, style="bold underline", soft_wrap=True)
    for place, hit in enumerate(hits, 1):
        title, text = ("", hit.text or "") if hit.item is None else (hit.item.title, hit.item.text)
        chance = "" if hit.probability is None else f" · probability {hit.probability:.2f}"
        facts = f"score {hit.score:.2f}{chance} · round {hit.round}"
        _indented(out, f"{place:>2}  ", f"{title or hit.id}", "bold")
        _indented(out, "    ", f"{hit.id} · {facts}" if title else facts, "dim")
        if text.strip():
            _indented(out, "    ", excerpt(text, hits.query))
    for one in rounds:
        best, id = max(zip(one["scores"], one["ids"], strict=True), default=(math.nan, "nothing"))
        _indented(out, "    ", f"round {one['round']}: {counted(one['calls'], 'call')}, best {best:.2f} ({id})", "dim")
    seconds = hits.seconds
    told = f"{seconds.total:.2f} s ({seconds.scorer:.2f} s in the scorer)"
    why = hits.why if hits else "nothing passes the filter or the threshold"
    money = "" if hits.cost is None else f"; {hits.cost:.6g} in money"
    _indented(out, "", f"{counted(hits.calls, 'call')} in {counted(hits.rounds, 'round')}, {told}; {why}{money}", "dim")
    out.print()


def _indented(out: Console, before: str, text: str, style: str | None = None) -> None:
    """A text between its margin and the edge of the screen; in a pipe, 80 columns."""
    for line in textwrap.wrap(text, max(out.width - len(before), 20)) or [""]:
        out.print(f"{before}{line}", style=style, soft_wrap=True)
        before = " " * len(before)


def excerpt(text: str, query: str) -> str:
    """The sentences of a text that share most words with a query; its beginning, if none shares any."""
    from crosscut.index.passages import Passages
    from crosscut.retrieval.bm25 import query_stems, stems

    wanted = set(query_stems(query))

    def shared(span: tuple[int, int]) -> int:
        return len(wanted & set(stems(text[slice(*span)])))

    start, end = max(Passages(EXCERPT, overlap=1).windows(text), key=shared)
    told = " ".join(text[start:end].split())
    short = textwrap.shorten(told, LONGEST, placeholder="") or told[:LONGEST]
    return f"{'… ' if text[:start].strip() else ''}{short}{' …' if text[end:].strip() or short != told else ''}"
