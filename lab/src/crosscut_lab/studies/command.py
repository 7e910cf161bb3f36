"""`crosscut-lab study` and `crosscut-lab pages`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosscut.errors import InputError
from crosscut_lab.report import machine, markdown, say, write

RESULTS = Path("lab/results")


def study(
    name: Annotated[str, typer.Argument(help="`list` prints the studies.")] = "list",
    data: Annotated[list[str] | None, typer.Argument(help="Matrices of benchmarks/matrices, or .npz files.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Draws of what is drawn.")] = 3,
    output: Annotated[Path, typer.Option(help="Folder of the results.")] = RESULTS,
) -> None:
    """Run a study on score matrices and write one JSON file.

    Example: crosscut-lab study rivals wordnet-time squad-sentences
    """
    from crosscut_lab.matrices import FOLDER, NAMES, load
    from crosscut_lab.studies import studies
    from crosscut_lab.studies.calibration import calibration

    if name == "list":
        typer.echo(str(studies.__doc__).partition("\n\n")[2] + "| calibration | do probabilities hold? |")
        return
    facts = {"study": name, "seeds": seeds, "machine": machine()}
    if name == "calibration":
        records = calibration(Path(data[0]) if data else FOLDER / "evidence.npz")
        write(output / "calibration.json", {**facts, "records": records})
    else:
        records = []
        for one in data or NAMES:
            try:
                records += studies.run(name, load(one), seeds)
            except InputError as error:
                if name not in studies.STUDIES:
                    raise
                say(f"{one}: left out ({error})")
            if records:
                write(output / f"{name}.json", {**facts, "records": records})
                say(f"{one}: done")
    if not records:
        raise InputError(f"the study {name!r} has no data: name a matrix that has what it needs")
    shown = [key for key in records[0] if isinstance(records[0][key], str | int | float)]
    typer.echo(markdown(shown, ([one.get(key) for key in shown] for one in records)))


def pages(
    results: Annotated[Path, typer.Option(help="Folder of the results.")] = RESULTS,
    output: Annotated[Path, typer.Option(help="Folder of the pages.")] = Path("docs/research"),
) -> None:
    """Generate the research pages from the results, whole."""
    from crosscut_lab import pages as made

    for path in made.write_pages(results, output):
        say(f"wrote {path}")
    readme = Path("README.md")
    if readme.is_file() and (results / "readme.json").is_file():
        made.front_page(results, readme, Path("docs/images/recall.svg"))
        say(f"wrote the table of {readme}")
