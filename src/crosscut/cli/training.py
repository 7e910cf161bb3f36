"""What the training commands share: options, data, progress, the outcome."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import say, table

if TYPE_CHECKING:
    from crosscut.datasets.records import Collection
    from crosscut.scores.engines import Engine
    from crosscut.training.hardware import Hardware
    from crosscut.training.loop import Outcome, Report
    from crosscut.types import Progress

Output = Annotated[Path, typer.Option(help="Folder for checkpoints and the finished model; a killed run resumes here")]
Epochs = Annotated[int, typer.Option(help="Passes over the training queries")]
Candidates = Annotated[int, typer.Option(help="Items per query: the right one and its negatives")]
Seed = Annotated[int, typer.Option(help="Seed of every draw")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON and nothing else")]
Tokens = Annotated[int, typer.Option(help="Most tokens a side")]
TrainingDtype = Annotated[
    str | None, typer.Option(help="fp32 or bf16; fp16 on a GPU, for the papers' recipes", show_default="fp32")
]


def scored_by(scorer: str, engine: str, hardware: Hardware) -> tuple[str, Engine]:
    """A scorer on the devices of the training, if it can use them and names none itself, and an engine for it.

    There is a worker for every GPU; on the CPU, which a model uses whole, there is one.
    """
    from crosscut.encoders.running import placed
    from crosscut.scores.engines import make_engine

    named = placed(scorer, hardware.devices)
    return named, make_engine(engine, workers=len(hardware.devices) if named != scorer else None)


def read_collections(data: Path, split: str) -> list[Collection]:
    """The judged queries of a split: every world of a ZESHEL folder that has some, or a BEIR folder."""
    from crosscut.datasets import read_beir, read_worlds

    if (data / "documents").is_dir():
        return read_worlds(data, split=split)
    return [read_beir(data, split=split)]


def reporting(progress: Progress, *, quiet: bool) -> Report:
    """Steps to the progress bar, validations to the terminal."""

    def report(record: dict[str, Any]) -> None:
        if "validation" not in record:
            progress("training", record["step"], record["steps"])
        elif not quiet:
            say(f"step {record['step']}: {record['validation']['mean']:.3f} on validation")

    return report


def show_outcome(
    outcome: Outcome, model: Path, *, as_json: bool, more: dict[str, Any] | None = None, measure: str = "accuracy@1"
) -> None:
    """What a training did."""
    if as_json:
        told = {
            "model": str(model),
            "accuracy": outcome.best,
            "best_step": outcome.best_step,
            "steps": outcome.steps,
            "seconds": outcome.seconds,
            "history": outcome.history,
            **(more or {}),
        }
        typer.echo(json.dumps(told))
        return
    rows = [(one["step"], f"{one['validation']['mean']:.3f}", f"{one['seconds']:.0f}") for one in outcome.history]
    table("validation", ("step", measure, "seconds"), rows)
    say(f"the best, of step {outcome.best_step}, is in {model}")
