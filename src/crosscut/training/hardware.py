"""What a training runs on: devices and arithmetic.

A step is made of small batches whose gradients are added up. With several devices each has a copy of the model and
takes its share of them; the sums meet on the first. So two devices give the gradient of one, up to rounding.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from crosscut.encoders.running import check_device, workers_on
from crosscut.errors import InputError

M = TypeVar("M", bound=nn.Module)
Part = TypeVar("Part")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True)
class Hardware:
    """Devices, and the arithmetic of the products; weights and sums stay in fp32."""

    devices: tuple[str, ...] = ("cpu",)
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise InputError(f"training computes in {', '.join(DTYPES)}, not in {self.dtype!r}")
        if self.dtype == "fp16" and any(not device.startswith("cuda") for device in self.devices):
            raise InputError(f"fp16 trains on a GPU, not on {', '.join(self.devices)}; use bf16 or fp32 there")
        for device in self.devices:
            try:
                torch.device(device)
            except RuntimeError as error:
                raise InputError(f"there is no device {device!r}; name cpu, cuda, cuda:1 or mps") from error

    @classmethod
    def of(
        cls,
        device: str | None,
        dtype: str | None = None,
        count: Callable[[], int] | None = None,
        workers: int | None = None,
    ) -> Hardware:
        """As given on the command line: `cuda:0,cuda:1`, `cuda:*`; None is the CPU in fp32.

        `workers` is how many copies of the model work side by side, one device each: the first so many of the devices,
        `cuda` being all GPUs that there are; on the CPU they share it.
        """
        return cls(tuple(workers_on(device, workers, count)), dtype or "fp32")

    def check(self) -> Hardware:
        """Itself, if torch has the devices here."""
        for device in self.devices:
            check_device(device)
        return self

    def one_device(self) -> None:
        """Refuse what only the papers' recipes can use."""
        if len(self.devices) > 1 or self.dtype == "fp16":
            raise InputError(
                f"this training runs on one device in fp32 or bf16, not on {', '.join(self.devices)} in {self.dtype}; "
                "`crosscut train paper` takes several, and fp16"
            )

    @property
    def first(self) -> str:
        return self.devices[0]

    def arithmetic(self, device: str | None = None) -> AbstractContextManager[object]:
        """Within it products are computed in `dtype`."""
        if self.dtype == "fp32":
            return nullcontext()
        return torch.autocast(torch.device(device or self.first).type, DTYPES[self.dtype])


class Replicas(Generic[M]):
    """A model on every device."""

    def __init__(self, model: M, hardware: Hardware) -> None:
        self.hardware = hardware
        self.model = model.to(hardware.first)
        self.others = [copy.deepcopy(model).to(device) for device in hardware.devices[1:]]
        self.scaler = torch.amp.GradScaler("cuda", enabled=hardware.dtype == "fp16")

    def gradient(self, parts: Sequence[Sequence[Part]], loss: Callable[[M, Sequence[Part]], Tensor]) -> float:
        """Put the gradient of the mean loss over all parts on the first model; returns that loss."""
        total = sum(map(len, parts))
        models = [self.model, *self.others]
        for other in self.others:
            with torch.no_grad():
                for mine, theirs in zip(self.model.parameters(), other.parameters(), strict=True):
                    theirs.copy_(mine)
        for model in models:
            model.zero_grad(set_to_none=True)

        def work(number: int) -> float:
            value = 0.0
            for part in parts[number :: len(models)]:
                with self.hardware.arithmetic(self.hardware.devices[number]):
                    found = loss(models[number], part).float() * (len(part) / total)
                self.scaler.scale(found).backward()  # type: ignore[no-untyped-call]
                value += float(found.detach())
            return value

        if not self.others:
            return work(0)
        with ThreadPoolExecutor(len(models)) as pool:
            value = sum(pool.map(work, range(len(models))))
        for other in self.others:
            for mine, theirs in zip(self.model.parameters(), other.parameters(), strict=True):
                if theirs.grad is not None:
                    moved = theirs.grad.to(mine.device)
                    mine.grad = moved if mine.grad is None else mine.grad + moved
        return value
