"""`crosscut-lab speed`, `soak` and `wire`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosscut.errors import InputError
from crosscut_lab.report import machine, markdown, say, write

Output = Annotated[Path | None, typer.Option("--json", help="Write the result here.")]
Seed = Annotated[int, typer.Option(help="Of everything that is drawn.")]


def speed(
    name: Annotated[str, typer.Argument(help="`list` prints the programs.")] = "list",
    n: Annotated[int | None, typer.Option("-n", min=1, help="Items, or pairs.")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Runs of each; medians count.")] = 3,
    model: Annotated[str | None, typer.Option(help="Of cross-encoder: a folder or a hub id.")] = None,
    output: Output = None,
) -> None:
    """Time crosscut against other libraries and itself.

    Example: crosscut-lab speed ivf -n 100000 --json lab/results/ivf.json
    """
    from crosscut_lab.speed import programs

    if name == "list":
        typer.echo(str(programs.__doc__).partition("\n\n")[2])
        return
    if name not in programs.PROGRAMS:
        raise InputError(f"there is no timing {name!r}; there are {', '.join(programs.PROGRAMS)}")
    how: dict[str, Any] = {} if n is None else {"n": n}
    if model is not None:
        how["model"] = model
    records = programs.PROGRAMS[name](repeats=repeats, **how)
    columns = list(dict.fromkeys(key for one in records for key in one))
    typer.echo(markdown(columns, ([one.get(key) for key in columns] for one in records)))
    if output is not None:
        write(output, {"program": name, "repeats": repeats, "machine": machine(), "records": records})


def soak(
    stops: Annotated[int, typer.Option(min=0, help="Commands to kill.")] = 1000,
    damages: Annotated[int, typer.Option(min=0, help="Files to damage.")] = 1000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Kill commands at random moments and damage files: what is lost, unreadable, or found after forgetting?

    Exit code 1 if anything is.

    Example: crosscut-lab soak --stops 1000 --json lab/results/soak.json
    """
    from crosscut_lab.speed.soak import run

    facts = run(stops, damages, seed, output, say)
    counts = {**facts["stops"], **facts["damages"]}
    if any(
        counts.get(name) for name in ("unreadable", "lost", "found", "forget refused", "crash", "not noticed by verify")
    ):
        raise typer.Exit(1)


def wire(
    searches: Annotated[int, typer.Option(min=1, help="Searches to make.")] = 10_000,
    seed: Seed = 0,
    output: Output = None,
) -> None:
    """Count pairs on the wire of HTTP scorers: reported = sent, never over budget, nothing afterwards.

    Exit code 1 otherwise.

    Example: crosscut-lab wire --searches 200000 --json lab/results/wire.json
    """
    from crosscut_lab.speed.wire import run

    outcomes = run(searches, seed, say)
    typer.echo(markdown(("what", "count"), outcomes.items()))
    if output is not None:
        write(output, {"seed": seed, "machine": machine(), "outcomes": outcomes})
    if any(outcomes.get(name) for name in ("over budget", "reported wrongly", "sent afterwards")):
        raise typer.Exit(1)
