"""`crosscut demo`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from crosscut.cli.common import console, progress_bar, table

if TYPE_CHECKING:
    from crosscut.demo import DemoResult

MARKED = re.compile(r"\[START\] ([^\[]+) \[END\]")
NAMES = {"rerank": "retrieve and rerank", "anncur": "ANNCUR", "adacur": "ADACUR", "axn": "AXN"}


def demo(
    query: Annotated[
        str,
        typer.Option(help="Your own sentence; mark the word that is meant: 'a [START] thought [END] of mine'."),
    ] = "she could not follow his [START] reasoning [END]",
    k: Annotated[int, typer.Option("-k", help="How many hits.")] = 10,
    queries: Annotated[int, typer.Option(help="Recorded queries that are searched.")] = 20,
) -> None:
    """Compare methods on the recorded scores of a cross-encoder, and search one query: no hub, no GPU, no key.

    Examples:

        crosscut demo

        crosscut demo --query "a strange [START] idea [END]"
    """
    from crosscut.demo import run

    with progress_bar() as progress:
        result = run(query, k=k, queries=queries, progress=progress)
    show(result)


def show(result: DemoResult) -> None:
    """Print what was found, and how much of the scorer's own top k the methods find."""
    rows = []
    for place, (position, score) in enumerate(result.found, 1):
        item = result.world.items[position]
        rows.append((place, f"{score:.1f}", f"{item.title}: {item.text}"))
    asked = MARKED.sub(r"\1", result.query)
    title = f"{asked}: the best of {len(result.world.items):,} meanings by base scores, no call"
    table(title, ("", "score", "meaning"), rows)
    cells = [
        (NAMES.get(method, method), *(f"{share:.2f}" for share in by_budget.values()))
        for method, by_budget in result.recalls.items()
    ]
    note = (
        f"{result.queries} queries, {result.anchors} anchor queries scored beforehand, recorded scores of a "
        f"cross-encoder; {result.seconds:.0f} s in all"
    )
    header = ("method", *(f"{budget} calls" for budget in result.recalls["rerank"]))
    bold = {(len(cells) - 1, column) for column in range(len(header))}
    table(f"share of the scorer's own top {result.k} found", header, cells, bold=bold, note=note)
    console().print("your own texts: crosscut index build notes/ my.index, then crosscut serve my.index", style="dim")
