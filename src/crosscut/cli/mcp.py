"""`crosscut mcp`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import TrustRemote


def mcp(
    index: Annotated[Path, typer.Argument(help="An index folder, made by `crosscut index build`.")],
    budget: Annotated[
        int | None, typer.Option(help="Calls of searches that do not say; by default what it was tuned to, or 100.")
    ] = None,
    max_budget: Annotated[int, typer.Option(help="Most calls one search may ask for.")] = 1000,
    deadline: Annotated[float, typer.Option(help="Seconds after which a search makes no further calls.")] = 60.0,
    scorer: Annotated[str | None, typer.Option(help="The scorer, if the index does not name it.")] = None,
    trust_remote: TrustRemote = False,
) -> None:
    """Give agents an index to search, by the Model Context Protocol over standard input and output.

    Example:

        crosscut mcp my.index --max-budget 200
    """
    from crosscut.index import Index
    from crosscut.integrations.mcp import make_server

    loaded = Index.load(index, scorer=scorer, trust_remote=trust_remote)
    make_server(loaded, budget=budget, max_budget=max_budget, deadline=deadline).run()
