"""How the papers fit their models: AdamW, a short linear warm-up, linear decay, the best checkpoint kept.

ANNCUR app. A.1: learning rate 1e-5, warm-up 1 %, 4 epochs, the dev set looked at five times an epoch. AXN app. A.2.1:
10 epochs, gradients added up over 4 steps. A run that was killed goes on where it last looked at the dev set, with the
examples that it had mined.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from crosscut.errors import InputError
from crosscut.storage import write_json
from crosscut.training.hardware import Hardware, Replicas
from crosscut.training.loop import Outcome, Report, Run
from crosscut.training.published.models import Savable

M = TypeVar("M", bound=Savable)


class Case(NamedTuple):
    """A query of a world with some of its items, and what they ought to score where that is known."""

    world: int
    query: int
    items: tuple[int, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """The numbers of a recipe; those of ANNCUR's cross-encoder are the defaults.

    A step sees `batch` × `accumulate` queries, `batch` at a time.
    """

    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    warm_up: float = 0.01
    epochs: int = 4
    batch: int = 4
    accumulate: int = 1
    candidates: int = 64
    validations: int = 5  # an epoch
    most_norm: float = 1.0
    seed: int = 0

    def check(self) -> None:
        if not self.learning_rate > 0:
            raise InputError(f"the learning rate must be positive, not {self.learning_rate}")
        for name in ("epochs", "batch", "accumulate", "validations"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 1, not {getattr(self, name)}")
        if self.candidates < 2:
            raise InputError(f"{self.candidates} candidates a query leave no negative; use at least 2")


@dataclass(frozen=True)
class PaperJob:
    """A recipe with what it starts from (a folder or a hub id), where its model goes, and what it runs on.

    `tokens` are the most of a side; of two plain texts, those of the pair.
    """

    start: str | Path
    output: Path
    recipe: Recipe
    tokens: int = 128
    hardware: Hardware = field(default_factory=Hardware)
    report: Report | None = None


def warmed(progress: float, warm_up: float) -> float:
    """Share of the learning rate at `progress` in 0 … 1: linear up, linear down."""
    if progress < warm_up:
        return progress / warm_up
    return max(0.0, (1 - progress) / max(1 - warm_up, 1e-9))


def fit(
    model: M,
    mine: Callable[[int], list[Case]],
    loss: Callable[[M, Sequence[Case]], Tensor],
    judge: Callable[[M], float],
    job: PaperJob,
) -> Outcome:
    """Train; the best weights end up in the model and in `output`/model. `mine(epoch)` gives an epoch's examples."""
    recipe, how = job.recipe, job.hardware
    recipe.check()
    folder = job.output / "checkpoints"
    replicas = Replicas(model, how)
    run = Run(model, recipe, folder, job.report, replicas.scaler)
    seen = 0
    model.train()
    for epoch in range(recipe.epochs):
        cases = list(_examples(folder, epoch, mine))
        random.Random(recipe.seed + epoch).shuffle(cases)
        size = recipe.batch * recipe.accumulate
        steps = -(-len(cases) // size)
        every = max(1, steps // recipe.validations)
        for number in range(steps):
            seen += 1
            if seen <= run.step:
                continue
            torch.manual_seed(recipe.seed * 1_000_003 + seen)  # of dropout: a run that goes on draws the same
            group = cases[number * size : (number + 1) * size]
            parts = [group[at : at + recipe.batch] for at in range(0, len(group), recipe.batch)]
            value = replicas.gradient(parts, loss)
            run.descend(seen, value, warmed(seen / (steps * recipe.epochs), recipe.warm_up), recipe.most_norm)
            done = {"step": seen, "steps": steps * recipe.epochs, "loss": value, "seconds": run.seconds}
            run.tell(done)
            if (number + 1) % every == 0 or number + 1 == steps:
                model.eval()
                with torch.no_grad(), how.arithmetic():
                    found = judge(model)
                model.train()
                run.judged({**done, "validation": {"mean": found}}, better=found > run.best)
    outcome = run.outcome()
    model.eval()
    model.save(job.output / "model")
    return outcome


def _examples(folder: Path, epoch: int, mine: Callable[[int], list[Case]]) -> list[Case]:
    """What an epoch is trained on; mined once, so that a run that goes on sees the same."""
    path = folder / f"examples-{epoch}.json"
    if path.is_file():
        kept = json.loads(path.read_text("utf-8"))
        return [Case(world, query, tuple(items), tuple(scores)) for world, query, items, scores in kept]
    made = mine(epoch)
    if not made:
        raise InputError("there are no training examples; give queries with right items")
    write_json(path, made)
    return made
