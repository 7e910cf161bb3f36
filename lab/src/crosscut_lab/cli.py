"""The command line of the lab."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from crosscut.errors import CrosscutError
from crosscut_lab.papers import command
from crosscut_lab.papers.inventory import INVENTORY
from crosscut_lab.speed import command as speed
from crosscut_lab.studies import command as studies

app = typer.Typer(
    name="crosscut-lab",
    help="Research on crosscut: the papers' experiments, rival methods, studies and load tests.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root() -> None:
    """Research on crosscut."""


@app.command("list")
def list_all() -> None:
    """List the methods, those of plug-ins included, and the papers' experiments."""
    from crosscut.methods import methods

    for name, made in methods().items():
        typer.echo(f"{name:<20} {made.__module__}")
    typer.echo("\nexperiments: " + ", ".join(sorted({one.experiment for one in INVENTORY if one.experiment})))


@app.command()
def wordnet(
    name: Annotated[str, typer.Argument(help="A lexicographer file, such as noun.cognition.")],
    output: Annotated[Path, typer.Argument(help="The BEIR folder to write.")],
    source: Annotated[Path, typer.Option(help="Folder of WordNet's data files.")] = Path("/usr/share/wordnet"),
) -> None:
    """Write a part of WordNet as an entity-linking data set.

    Example: crosscut-lab wordnet noun.cognition wordnet-cognition/
    """
    from crosscut_lab.wordnet import write

    found = write(name, output, source)
    typer.echo(f"{output}: {len(found.items)} items, {len(found.queries)} queries")


app.command()(command.reproduce)
app.command()(command.papers)
app.command()(command.macro)
app.command()(command.transcriptions)
app.command()(command.ivf)
app.add_typer(command.train_app, name="train")
app.command()(studies.study)
app.command()(studies.pages)
app.command()(speed.speed)
app.command()(speed.soak)
app.command()(speed.wire)


def main() -> None:
    """Run the command line; an error is one sentence and exit code 2."""
    try:
        app()
    except CrosscutError as error:
        typer.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
