"""`crosscut demo`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from crosscut.cli.common import console, progress_bar, table

if TYPE_CHECKING:
    from crosscut.demo import DemoResult

MARKED = re.compile(r"\[START\] (.+?) \[END\]")
NAMES = {"rerank": "retrieve and rerank", "anncur": "ANNCUR", "adacur": "ADACUR", "axn": "AXN"}


def demo(
    query: Annotated[
        str | None,
        typer.Option(help="Your own sentence; mark the word that is meant: 'a [START] thought [END] of mine'."),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many hits.")] = 10,
    budget: Annotated[int, typer.Option(help="Calls of the cross-encoder per query in the live search.")] = 100,
    queries: Annotated[int, typer.Option(help="Test queries that are scored with every item, as truth.")] = 4,
    report: Annotated[Path | None, typer.Option(help="Where the HTML report goes.")] = Path("crosscut-demo.html"),
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no report.")] = False,
) -> None:
    """Watch a real cross-encoder being searched: no hub, no GPU, no key.

    Examples:

        crosscut demo

        crosscut demo --query "she could not follow his [START] reasoning [END]"
    """
    from crosscut.demo import run

    with progress_bar() as progress:
        wanted = None if no_report else report
        result = run(query, k=k, budget=budget, queries=queries, report=wanted, progress=progress)
    show(result)


def show(result: DemoResult) -> None:
    """What was found, and how much of the truth that is."""
    out = console()
    for found in result.found:
        word = MARKED.search(found.query)
        shown = Text(MARKED.sub(r"\1", found.query, count=1))
        if word is not None:
            shown.stylize("reverse", word.start(), word.start() + len(word[1]))
        out.print(shown, soft_wrap=True)
        what = f"meanings of “{word[1]}”" if word else "meanings"
        rows = []
        for place, hit in enumerate(found.crosscut, 1):
            item = result.world.items[hit.position]
            right = " ✓" if item.id == found.gold else ""
            rows.append((place, f"{hit.score:.1f}", hit.round, f"{item.title}: {item.text}{right}"))
        liked = (
            f"{what} that the cross-encoder likes best, of {result.items:,}, found with {found.crosscut.calls} calls"
        )
        table(f"{liked}; ✓ is the right one", ("", "score", "round", "meaning"), rows)
        typer.echo(
            f"of the true top {result.k}, crosscut found {found.recall(found.crosscut):.0%} and retrieve-and-rerank "
            f"{found.recall(found.rerank):.0%} with {result.budget} calls each, "
            f"{found.crosscut.seconds.total:.2f} s for crosscut\n"
        )
    budgets = list(result.recalls["rerank"])
    cells = [
        (NAMES.get(method, method), *(f"{sum(one) / len(one):.2f}" for one in by_budget.values()))
        for method, by_budget in result.recalls.items()
    ]
    asked = len(result.recalls["rerank"][budgets[0]])
    note = (
        f"{asked} {'query' if asked == 1 else 'queries'}, {result.anchors} anchor queries scored beforehand; "
        f"{result.pairs_per_second:.0f} pairs/s; {result.seconds['all']:.0f} s in all"
    )
    title = f"share of the true top {result.k} found"
    bold = {(len(cells) - 1, column) for column in range(len(budgets) + 1)}
    table(title, ("method", *(f"{budget} calls" for budget in budgets)), cells, bold=bold, note=note)
    if result.report is not None:
        typer.echo(f"report: {result.report}")
    out.print("your own texts: crosscut index build notes/ my.index, then crosscut serve my.index", style="dim")
