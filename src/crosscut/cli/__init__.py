"""The command line: one file a subject."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from crosscut.cli import demo, encode, evaluate, index, replay, score, search, serve
from crosscut.cli.output import say
from crosscut.errors import CrosscutError

app = typer.Typer(
    name="crosscut",
    help="k-nearest-neighbour search when the similarity is expensive.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
state: dict[str, bool] = {"debug": False}


def _version(value: bool) -> None:
    if value:
        from crosscut import __version__

        typer.echo(f"crosscut {__version__}")
        raise typer.Exit


@app.callback()
def root(
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    state["debug"] = debug


SEARCH, MEASURE, LAB = "Search your texts", "Does it pay?", "Scores and replays"

app.command(rich_help_panel=SEARCH)(demo.demo)
app.add_typer(index.app, name="index", rich_help_panel=SEARCH)
app.command(rich_help_panel=SEARCH)(index.fill)
app.command(rich_help_panel=SEARCH)(search.search)
app.command(rich_help_panel=SEARCH, context_settings={"auto_envvar_prefix": "CROSSCUT_SERVE"})(serve.serve)
app.command(rich_help_panel=SEARCH)(serve.mcp)
app.command(rich_help_panel=MEASURE)(evaluate.evaluate)
app.command(rich_help_panel=MEASURE)(evaluate.calibrate)
app.command(rich_help_panel=LAB)(score.score)
app.command(rich_help_panel=LAB)(encode.encode)
app.command(rich_help_panel=LAB)(score.export)
app.command(rich_help_panel=LAB)(replay.replay)


def main() -> None:
    """Run the command line: errors are one sentence and exit code 2, tracebacks only with --debug."""
    try:
        app()
    except CrosscutError as error:
        if state["debug"]:
            raise
        say(f"error: {error}", "red")
        sys.exit(2)
