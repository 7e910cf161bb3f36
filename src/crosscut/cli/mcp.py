"""`crosscut mcp`."""

from __future__ import annotations

from typing import Annotated

import typer

from crosscut.cli.options import IndexFolder, LoadOptions, with_groups


@with_groups
def mcp(
    index: IndexFolder,
    loading: LoadOptions,
    budget: Annotated[
        int | None, typer.Option(help="Calls of searches that do not say; by default what it was tuned to, or 100.")
    ] = None,
    max_budget: Annotated[int, typer.Option(help="Most calls one search may ask for.")] = 1000,
    deadline: Annotated[float, typer.Option(help="Seconds after which a search makes no further calls.")] = 60.0,
) -> None:
    """Give agents an index to search, by the Model Context Protocol over standard input and output.

    Example:

        crosscut mcp my.index --max-budget 200
    """
    from crosscut.integrations.mcp import make_server

    make_server(loading.index(index), budget=budget, max_budget=max_budget, deadline=deadline).run()
