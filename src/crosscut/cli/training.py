"""What the training commands share: options, data, progress, the outcome."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import say, table
from crosscut.cli.options import Device

if TYPE_CHECKING:
    from crosscut.datasets.records import Collection
    from crosscut.scores.engines import Engine
    from crosscut.training.hardware import Hardware
    from crosscut.training.jobs import Job
    from crosscut.training.loop import Outcome, Report
    from crosscut.training.published.fitting import PaperJob
    from crosscut.types import Progress

Output = Annotated[Path, typer.Option(help="Folder for checkpoints and the finished model; a killed run resumes here")]
Loss = Annotated[str, typer.Option(help="match (the scorer's distribution) or pair (top items, negatives)")]
TORCH = "training needs torch", "torch"


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every training."""

    epochs: Annotated[int, typer.Option(help="Passes over the training queries")] = 1
    learning_rate: Annotated[float, typer.Option(help="Learning rate, at its peak")] = 1e-5
    candidates: Annotated[
        int, typer.Option(help="Items per query: the right one and its negatives; of what a scorer scored, its best")
    ] = 8
    max_tokens: Annotated[int, typer.Option(help="Most tokens a side; of two plain texts, of the pair")] = 128
    device: Device = None
    dtype: Annotated[
        str | None, typer.Option(help="fp32 or bf16; fp16 on a GPU, for the papers' recipes", show_default="fp32")
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of every draw")] = 0

    def hardware(self, workers: int | None = None) -> Hardware:
        """The devices, if torch has them here."""
        from crosscut.training.hardware import Hardware

        return Hardware.of(self.device, self.dtype, workers=workers).check()


@dataclass(frozen=True)
class SplitOptions(TrainingOptions):
    """Of our own models, whose first layers may read texts apart."""

    layers: Annotated[int | None, typer.Option(help="Keep only the first layers of the encoder")] = None
    independent: Annotated[
        int, typer.Option(help="Layers that read query and item apart; item states are then kept")
    ] = 0
    frozen: Annotated[bool, typer.Option(help="Do not train the independent layers")] = False
    tokens_per_batch: Annotated[int, typer.Option(help="Tokens of the pairs of a batch")] = 4096

    def job(self, encoder: Path, output: Path, report: Report, **more: Any) -> Job:
        from crosscut.encoders.folder import DEFAULT, default_folder
        from crosscut.training.jobs import Job
        from crosscut.training.loop import TrainingSettings

        shape = {name: getattr(self, name) for name in ("layers", "independent", "frozen")}
        names = ("tokens_per_batch", "learning_rate", "epochs", "candidates", "seed")
        return Job(
            default_folder() if str(encoder) == DEFAULT else encoder,
            output,
            query_tokens=self.max_tokens,
            item_tokens=self.max_tokens,
            hardware=self.hardware(),
            settings=TrainingSettings(**{name: getattr(self, name) for name in names}),
            report=report,
            **shape,
            **more,
        )


@dataclass(frozen=True)
class PaperOptions(TrainingOptions):
    """Of the papers' recipes."""

    warm_up: Annotated[float, typer.Option(help="Share of the steps in which the rate rises")] = 0.01
    batch: Annotated[int, typer.Option("--batch-size", help="Queries at a time on a device")] = 4
    accumulate: Annotated[int, typer.Option(help="Batches whose gradients make a step; devices share them")] = 1
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Copies of the model that work side by side, one device each", show_default="the devices"
        ),
    ] = None

    def job(self, start: str, output: Path, report: Report) -> PaperJob:
        from crosscut.training.published.fitting import PaperJob, Recipe

        names = ("learning_rate", "warm_up", "epochs", "batch", "accumulate", "candidates", "seed")
        recipe = Recipe(**{name: getattr(self, name) for name in names})
        return PaperJob(start, output, recipe, self.max_tokens, self.hardware(self.workers), report)


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


def show_outcome(outcome: Outcome, output: Path, as_json: bool, measure: str = "accuracy@1", **more: Any) -> None:
    """What a training did, and `more` of it."""
    model = output / "model"
    if as_json:
        told = {
            "model": str(model),
            "accuracy": outcome.best,
            "best_step": outcome.best_step,
            "steps": outcome.steps,
            "seconds": outcome.seconds,
            "history": outcome.history,
            **more,
        }
        typer.echo(json.dumps(told))
        return
    rows = [(one["step"], f"{one['validation']['mean']:.3f}", f"{one['seconds']:.0f}") for one in outcome.history]
    table("validation", ("step", measure, "seconds"), rows)
    say(f"the best, of step {outcome.best_step}, is in {model}")
