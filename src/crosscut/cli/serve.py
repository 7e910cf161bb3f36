"""`crosscut serve` and `crosscut mcp`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.options import Folder, LoadOptions, PriceOptions, with_groups
from crosscut.cli.output import counted, say
from crosscut.errors import InputError
from crosscut.server.settings import Settings

option = partial(typer.Option, show_envvar=False)  # the help states the rule once


@with_groups
def serve(
    index: Annotated[
        list[Path],
        typer.Argument(help="Index folders, made by `crosscut index`; name=folder gives one another name."),
    ],
    settings: Settings,
    loading: LoadOptions,
    prices: PriceOptions,
    host: Annotated[str, option(help="Address to listen on; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    preload: Annotated[
        bool, option("--preload", help="Encode every item before listening, not when it is first scored.")
    ] = False,
    log: Annotated[
        Path | None, option(help="Keep what searches score in this file, for `crosscut index learn`; one index only.")
    ] = None,
    log_level: Annotated[str, option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve indexes over HTTP, with a web page; options may come from the environment, as CROSSCUT_SERVE_MAX_BUDGET.

    Examples:

        crosscut serve my.index

        CROSSCUT_WRITE_TOKEN=… crosscut serve laws=law.index news=2024/news.index --allow-origin https://shop.example

        CROSSCUT_TOKEN=… crosscut serve my.index --host 0.0.0.0 --port 80 --max-budget 500

        curl localhost:8000/search -H 'content-type: application/json' -d '{"query": "how do vaccines work"}'
    """
    from crosscut.server import serve as run

    indexes = {name: loading.index(folder, log=log) for name, folder in named(index, log).items()}
    for one in indexes.values():
        one.price = prices.price
        if preload:
            one.preload()
    if sys.stderr.isatty():  # programs read the lines of JSON
        served = ", ".join(f"{name} ({counted(len(one), 'item')})" for name, one in indexes.items())
        say(f"serving {served} at http://{'127.0.0.1' if host == '0.0.0.0' else host}:{port} (Ctrl-C stops)", "bold")
    run(indexes, settings, host=host, port=port, log_level=log_level)


def named(folders: list[Path], log: Path | None = None) -> dict[str, Path]:
    """Return index folders by name: `laws=2024/law.index`, or the name of the folder without its ending."""
    if log is not None and len(folders) > 1:
        raise InputError(f"--log keeps the searches of one index, and {len(folders)} are served: serve each by itself")
    result: dict[str, Path] = {}
    for folder in folders:
        name, equals, path = str(folder).partition("=")
        name, place = (name, Path(path)) if equals and not folder.exists() else (folder.stem, folder)
        if name in result:
            raise InputError(f"{str(result[name])!r} and {str(place)!r} are both called {name!r}: say name=folder")
        result[name] = place
    return result


@with_groups
def mcp(
    index: Folder,
    loading: LoadOptions,
    budget: Annotated[
        int | None, option(help="Calls of searches that give no budget; by default the index's own, or 100.")
    ] = None,
    max_budget: Annotated[int, option(help="Most calls of one search.")] = 1000,
    deadline: Annotated[float, option(help="Seconds after which a search makes no further calls.")] = 60.0,
) -> None:
    """Give agents an index to search, by the Model Context Protocol over standard input and output.

    Example:

        crosscut mcp my.index --max-budget 200
    """
    from crosscut.integrations.mcp import make_server

    make_server(loading.index(index), budget=budget, max_budget=max_budget, deadline=deadline).run()
