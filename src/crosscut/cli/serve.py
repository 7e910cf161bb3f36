"""`crosscut serve`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosscut.cli.common import counted, say
from crosscut.cli.options import LoadOptions, PriceOptions, with_groups
from crosscut.server.settings import TOKEN_ENV, WRITE_TOKEN_ENV

if TYPE_CHECKING:
    from crosscut.index import Index

quiet_option = partial(typer.Option, show_envvar=False)  # the help names the rule once


@with_groups
def serve(
    index: Annotated[
        list[Path],
        typer.Argument(
            help="Index folders, made by `crosscut index`; name=folder gives one another name than its own."
        ),
    ],
    loading: LoadOptions,
    prices: PriceOptions,
    host: Annotated[str, quiet_option(help="Address to listen on; 0.0.0.0 for every network.")] = "127.0.0.1",
    port: Annotated[int, quiet_option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")] = 8000,
    max_budget: Annotated[int, quiet_option(help="Most calls one request may ask for.")] = 1000,
    budget: Annotated[
        int | None, quiet_option(help="Calls of requests that do not say; what an index was tuned to, or 100.")
    ] = None,
    max_deadline: Annotated[float, quiet_option(help="Longest deadline a request may ask for, in seconds.")] = 60.0,
    deadline: Annotated[
        float | None, quiet_option(help="Deadline of requests that do not say, in seconds; the longest by default.")
    ] = None,
    max_body: Annotated[int, quiet_option(help="Largest body of a request, in bytes.")] = 4 << 20,
    connections: Annotated[int, quiet_option(help="Open connections, at most.")] = 500,
    per_client: Annotated[
        int | None, quiet_option(help="Requests that one client may have under way; one more is answered 429.")
    ] = None,
    queue: Annotated[int, quiet_option(help="Requests that may wait; one more is answered 429.")] = 128,
    batch: Annotated[int, quiet_option(help="Searches that share their scorer calls, at most.")] = 16,
    token_env: Annotated[
        str, quiet_option(help="Environment variable with the bearer token that requests must carry.")
    ] = TOKEN_ENV,
    write_token_env: Annotated[
        str, quiet_option(help="Environment variable with the token of those who may add and remove items.")
    ] = WRITE_TOKEN_ENV,
    allow_origin: Annotated[
        list[str] | None,
        quiet_option(help="A web address whose pages may ask from a browser (CORS); may be repeated."),
    ] = None,
    reload: Annotated[
        float,
        quiet_option(help="Seconds between looks at the folders, which are loaded again when they change; 0: never."),
    ] = 2.0,
    allow_host: Annotated[
        list[str] | None,
        quiet_option(help="A name by which a server without a token may be asked, beside localhost; may be repeated."),
    ] = None,
    preload: Annotated[
        bool, quiet_option("--preload", help="Encode every item before listening, not when it is first scored.")
    ] = False,
    example: Annotated[list[str] | None, quiet_option(help="A query that the page offers; may be repeated.")] = None,
    evaluation: Annotated[
        Path | None, quiet_option(help="What `crosscut evaluate --json` wrote: the page draws it.")
    ] = None,
    log: Annotated[
        Path | None,
        quiet_option(help="Keep what searches score in this file, for `crosscut index learn`; of one index only."),
    ] = None,
    no_page: Annotated[bool, quiet_option("--no-page", help="Serve the API only.")] = False,
    log_level: Annotated[str, quiet_option(help="debug, info, warning or error.")] = "info",
) -> None:
    """Serve indexes over HTTP, with a web page; options may come from the environment, as CROSSCUT_SERVE_MAX_BUDGET.

    Examples:

        crosscut serve my.index

        CROSSCUT_WRITE_TOKEN=… crosscut serve laws=law.index news=2024/news.index --allow-origin https://shop.example

        crosscut serve my.index --log searches.log

        CROSSCUT_TOKEN=… crosscut serve my.index --host 0.0.0.0 --port 80 --max-budget 500

        curl localhost:8000/search -H 'content-type: application/json' -d '{"query": "how do vaccines work"}'
    """
    from crosscut.server import Settings, listen, make_app
    from crosscut.server.logs import configure
    from crosscut.server.settings import LOCAL, read_evaluation

    settings = Settings(
        max_budget=max_budget,
        default_budget=None if budget is None else min(budget, max_budget),
        max_deadline=max_deadline,
        default_deadline=deadline,
        max_body=max_body,
        max_connections=connections,
        queue=queue,
        batch=batch,
        hosts=(*LOCAL, *(allow_host or ())) if host in LOCAL or allow_host else (),
        token_env=token_env,
        write_token_env=write_token_env,
        origins=tuple(allow_origin or ()),
        reload_seconds=reload or None,
        per_client=per_client,
        page=not no_page,
        examples=tuple(example or ()),
        evaluation=() if evaluation is None else read_evaluation(evaluation),
    )
    configure(log_level)
    folders = named(index, log)
    loaded = {name: loading.index(path) for name, path in folders.items()}
    for one in loaded.values():
        one.price = prices.price
        one.keep_log(log)
        if preload:
            one.preload()
    app = make_app(loaded, settings)
    _announce(loaded, host, port)
    listen(app, settings, host, port)


def _announce(indexes: dict[str, Index], host: str, port: int) -> None:
    """Say to people where the page is; programs read the lines of JSON."""
    if sys.stderr.isatty():
        served = ", ".join(f"{name} ({counted(len(one), 'item')})" for name, one in indexes.items())
        place = "127.0.0.1" if host == "0.0.0.0" else host
        say(f"serving {served} at http://{place}:{port} (Ctrl-C stops)", "bold")


def named(folders: list[Path], log: Path | None = None) -> dict[str, Path]:
    """Index folders by name: `laws=2024/law.index`, or the name of the folder without its ending."""
    from crosscut.errors import InputError

    if log is not None and len(folders) > 1:
        raise InputError(f"--log keeps the searches of one index, and {len(folders)} are served: serve each by itself")
    made: dict[str, Path] = {}
    for folder in folders:
        name, equals, path = str(folder).partition("=")
        name, place = (name, Path(path)) if equals and not folder.exists() else (folder.stem, folder)
        if name in made:
            raise InputError(f"{str(made[name])!r} and {str(place)!r} are both called {name!r}: say name=folder")
        made[name] = place
    return made
