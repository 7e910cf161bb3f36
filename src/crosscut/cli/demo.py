"""`crosscut demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import progress_bar


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

    run(query, k=k, budget=budget, queries=queries, report=None if no_report else report, bars=progress_bar)
