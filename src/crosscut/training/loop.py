"""The training loop: cross-entropy over one right item and its negatives, AdamW, one cycle, best
checkpoint kept.

Everything that the next step depends on (weights, optimiser, step, best so far) is in
`checkpoint.safetensors` and `state.json`, written to a temporary sibling and renamed: a run that was killed
resumes where it last validated and sees the batches it would have seen.
"""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import functional

from crosscut.errors import InputError
from crosscut.storage import write_file, write_json
from crosscut.training.examples import Example, Examples, TrainingBatch, batches, collate
from crosscut.training.hardware import Hardware
from crosscut.training.models import CrossModel, DualModel, Split, pack_texts

Report = Callable[[dict[str, Any]], None]
Objective = Callable[[Split, TrainingBatch], tuple[Tensor, int]]
Judge = Callable[[Split, Examples], dict[str, float]]


@dataclass(frozen=True)
class TrainingSettings:
    """How to train. The defaults are those of the model in the box."""

    learning_rate: float = 2e-4
    weight_decay: float = 0.01
    warm_up: float = 0.05
    epochs: int = 1
    candidates: int = 8
    tokens_per_batch: int = 4096
    validations: int = 8
    minutes: float | None = None  # of wall clock: the cycle is hurried to end by then
    seed: int = 0

    def check(self) -> None:
        if self.learning_rate <= 0:
            raise InputError(f"the learning rate must be positive, not {self.learning_rate}")
        if self.minutes is not None and self.minutes <= 0:
            raise InputError(
                f"training cannot end after {self.minutes} minutes; give more than 0, or None for no limit"
            )
        if self.epochs < 1 or self.validations < 1:
            raise InputError(f"{self.epochs} epochs and {self.validations} validations; both must be at least 1")

    def hurried(self, seconds: float) -> float:
        """The share of the minutes that has passed; 0 without a limit."""
        return seconds / (60 * self.minutes) if self.minutes else 0.0


@dataclass
class Outcome:
    """What a training run did; `history` holds one record per validation."""

    best: float
    best_step: int
    steps: int
    seconds: float
    history: list[dict[str, Any]]


def one_cycle(progress: float, warm_up: float) -> float:
    """Share of the peak learning rate at `progress` in 0 … 1: linear up, cosine down to 1 %."""
    if progress < warm_up:
        return max(0.04, progress / warm_up)
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * (progress - warm_up) / (1 - warm_up)))


def scores_of(model: Split, batch: TrainingBatch) -> Tensor:
    """Scores of the pairs of a batch: (examples × candidates)."""
    texts = pack_texts(batch.texts)
    if isinstance(model, CrossModel):
        return model(texts, batch.queries, batch.items).view(batch.examples, batch.candidates)  # type: ignore[no-any-return]
    if isinstance(model, DualModel):
        vectors = model(texts)  # (texts, D)
        scores = (vectors[batch.queries] * vectors[batch.items]).sum(1) * model.temperature
        table: Tensor = scores.view(batch.examples, batch.candidates)
        return table
    raise InputError(f"cannot train a {type(model).__name__}; pass a CrossModel or a DualModel")


def loss_of(model: Split, batch: TrainingBatch) -> tuple[Tensor, int]:
    """Mean cross-entropy of a batch and the number of queries whose right item came first.

    A dual encoder sees all items of the batch as negatives of every query: they cost it nothing.
    """
    if isinstance(model, DualModel):
        vectors = model(pack_texts(batch.texts))
        own = torch.tensor(batch.items).view(batch.examples, batch.candidates)
        everything = vectors[: batch.examples] @ vectors[batch.examples :].T * model.temperature
        target = (own[:, 0] - batch.examples).to(everything.device)
        # two queries of a batch may have the same right item; it is no negative of either
        same = target[:, None] == target[None, :]
        columns = torch.zeros_like(everything, dtype=torch.bool)
        for row in range(batch.examples):
            columns[row, target[same[row]]] = True
            columns[row, target[row]] = False
        everything = everything.masked_fill(columns, -1e4)
        return functional.cross_entropy(everything, target), int((everything.argmax(1) == target).sum())
    scores = scores_of(model, batch)
    right = torch.zeros(batch.examples, dtype=torch.long, device=scores.device)
    return functional.cross_entropy(scores, right), int((scores.argmax(1) == 0).sum())


@torch.no_grad()
def validate(model: Split, examples: Examples, settings: TrainingSettings) -> dict[str, float]:
    """Accuracy@1 among each validation example's own candidates, per source and their mean."""
    model.eval()
    rng = random.Random(0)
    hits: dict[str, list[int]] = {}
    group: list[Example] = []
    ordered = sorted(examples.validation, key=lambda e: (e.source, len(e.items), examples.cost(e)))
    for position, example in enumerate(ordered):
        group.append(example)
        following = ordered[position + 1] if position + 1 < len(ordered) else None
        full = sum(examples.cost(e) for e in group) > settings.tokens_per_batch
        if (
            full
            or following is None
            or (following.source, len(following.items)) != (example.source, len(example.items))
        ):
            scores = scores_of(model, collate(examples, group, len(example.items), rng))
            hits.setdefault(example.source, []).extend((scores.argmax(1) == 0).int().tolist())
            group = []
    model.train()
    accuracy = {source: sum(found) / len(found) for source, found in hits.items()}
    return {**accuracy, "mean": sum(accuracy.values()) / len(accuracy)} if accuracy else {"mean": 0.0}


def train(
    model: Split,
    examples: Examples,
    settings: TrainingSettings,
    folder: str | Path,
    *,
    report: Report | None = None,
    before_epoch: Callable[[int, Examples], None] | None = None,
    objective: Objective | None = None,
    judge: Judge | None = None,
    hardware: Hardware | None = None,
) -> Outcome:
    """Train `model` on `examples`; the best weights end up in the model and in `folder`/best.safetensors.

    `before_epoch(number, examples)` may replace the training examples, as re-mining negatives with the
    latest dual encoder does (ANNCUR A.1). `report` gets one record per step and per validation. `objective` gives the
    loss of a batch and `judge` the validation's figures ("mean" decides), where they are not the usual ones.
    A run that was killed passes through the same steps again, up to the one it had reached.
    """
    settings.check()
    if not examples.train:
        raise InputError("there are no training examples; give queries with judgements")
    judging = judge or partial(validate, settings=settings)
    how = hardware or Hardware()
    how.one_device()
    model.to(how.first)
    run = Run(model, settings, Path(folder), report)
    for seen, total, group in _steps(examples, settings, before_epoch):
        if seen <= run.step:
            continue
        rng = random.Random(settings.seed * 1_000_003 + seen)
        batch = collate(examples, group, settings.candidates, rng)
        hurried = settings.hurried(run.seconds)
        with how.arithmetic():
            loss, correct = (objective or loss_of)(model, batch)
        model.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        value = float(loss.detach())
        run.descend(seen, value, one_cycle(min(1.0, max(seen / total, hurried)), settings.warm_up))
        run.tell(
            {
                "step": seen,
                "steps": total,
                "source": group[0].source,
                "loss": value,
                "accuracy": correct / batch.examples,
                "pairs": len(batch.items),
                "seconds": run.seconds,
            }
        )
        if seen % max(1, total // settings.validations) == 0 or seen == total or hurried >= 1:
            accuracy = judging(model, examples)
            better = accuracy["mean"] >= run.best
            run.judged({"step": seen, "validation": accuracy, "seconds": run.seconds}, better=better)
        if hurried >= 1:
            break
    return run.outcome()


def _steps(
    examples: Examples, settings: TrainingSettings, before_epoch: Callable[[int, Examples], None] | None
) -> Iterator[tuple[int, int, list[Example]]]:
    """Number, number of all, and examples of every step; an epoch's are drawn when it begins."""
    seen = 0
    for epoch in range(settings.epochs):
        if before_epoch is not None:
            before_epoch(epoch, examples)
        seed, tokens = settings.seed + epoch, settings.tokens_per_batch
        order = batches(examples, tokens=tokens, candidates=settings.candidates, seed=seed)
        for group in order:
            seen += 1
            yield seen, len(order) * settings.epochs, group


def make_optimizer(trained: dict[str, nn.Parameter], rate: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW; no decay for vectors, five times the rate for the role embeddings, which start from nothing."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in trained.items():
        decay = weight_decay if parameter.ndim > 1 and not name.startswith("roles") else 0.0
        peak = rate * (5.0 if name.startswith("roles") else 1.0)
        groups.setdefault((peak, decay), []).append(parameter)
    return torch.optim.AdamW(
        [
            {"params": parameters, "lr": peak, "peak": peak, "weight_decay": decay}
            for (peak, decay), parameters in groups.items()
        ]
    )


def write_tensors(path: Path, tensors: dict[str, Any], notes: dict[str, str] | None = None) -> None:
    """Write a safetensors file whole or not at all."""
    write_file(path, [save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, notes)])


class Run:
    """A training in its folder: how far it is, its best weights so far, and what the next step depends on.

    A folder that holds a run of the same settings is gone on with.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: TrainingSettings,
        folder: Path,
        report: Report | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        self.settings, self.folder = settings, folder
        self.tell = report or (lambda record: None)
        self.trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.optimizer = make_optimizer(self.trained, settings.learning_rate, settings.weight_decay)
        self.scaler = scaler or torch.amp.GradScaler("cuda", enabled=False)
        self.begun = time.monotonic()
        self.step, self.best, self.best_step, self.history = 0, -1.0, 0, list[dict[str, Any]]()
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / "state.json").is_file():
            self._resume()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def descend(self, step: int, loss: float, rate: float, most_norm: float = 1.0) -> None:
        """One step down the gradients that are there, at this share of the peak learning rates."""
        if not math.isfinite(loss):
            raise InputError(
                f"the loss is {loss} at step {step}; lower the learning rate ({self.settings.learning_rate}) and start "
                f"again in an empty folder, not in {str(self.folder)!r}"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * rate
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(list(self.trained.values()), most_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step = step

    def judged(self, record: dict[str, Any], *, better: bool) -> None:
        """Tell of a validation, and keep a checkpoint."""
        self.history.append(record)
        self.tell(record)
        if better:
            self.best, self.best_step = record["validation"]["mean"], self.step
            write_tensors(self.folder / "best.safetensors", dict(self.trained))
        self._keep()

    def outcome(self) -> Outcome:
        """What was done; the model has its best weights."""
        if (self.folder / "best.safetensors").is_file():
            load_into(self.trained, load_file(self.folder / "best.safetensors"), self.folder)
        return Outcome(self.best, self.best_step, self.step, self.seconds, self.history)

    def _keep(self) -> None:
        """Write a checkpoint from which `_resume` continues exactly."""
        tensors: dict[str, Any] = {f"weight/{name}": parameter for name, parameter in self.trained.items()}
        for name, parameter in self.trained.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                tensors[f"optimizer/{key}/{name}"] = torch.as_tensor(value)
        state = {
            "step": self.step,
            "best": self.best,
            "best_step": self.best_step,
            "history": self.history,
            "settings": asdict(self.settings),
        }
        # one file, so that weights and step always fit; state.json is for people
        write_tensors(self.folder / "checkpoint.safetensors", tensors, {"state": json.dumps(state)})
        write_json(self.folder / "state.json", state)

    def _resume(self) -> None:
        """Load the last checkpoint; it must come from the same settings."""
        with safe_open(self.folder / "checkpoint.safetensors", "pt") as file:
            notes = file.metadata()
        state = json.loads(notes["state"] if notes else (self.folder / "state.json").read_text("utf-8"))
        then, now = state["settings"], asdict(self.settings)
        if then != now:
            changed = {name: (value, now.get(name)) for name, value in then.items() if now.get(name) != value}
            raise InputError(
                f"{str(self.folder)!r} holds a run with other settings (then, now: {changed}); "
                "use another folder or delete its state.json"
            )
        saved = load_file(self.folder / "checkpoint.safetensors")
        weights = {name.removeprefix("weight/"): t for name, t in saved.items() if name.startswith("weight/")}
        load_into(self.trained, weights, self.folder)
        for name, tensor in saved.items():
            if name.startswith("optimizer/"):
                _, key, owner = name.split("/", 2)
                parameter = self.trained[owner]
                self.optimizer.state[parameter][key] = tensor if key == "step" else tensor.to(parameter.device)
        self.step, self.best, self.best_step = state["step"], state["best"], state["best_step"]
        self.history = state["history"]


def load_into(trained: dict[str, nn.Parameter], weights: dict[str, Tensor], folder: Path) -> None:
    """Copy saved weights into parameters of the same names and shapes."""
    if set(weights) != set(trained):
        odd = sorted(set(weights) ^ set(trained))
        raise InputError(
            f"{str(folder)!r} was trained with other parameters, for example {odd[0]!r}; use another folder"
        )
    with torch.no_grad():
        for name, parameter in trained.items():
            parameter.copy_(weights[name])
