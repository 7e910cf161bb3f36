"""Settings of hub models: device, arithmetic, batches, limits; written behind the name.

    organisation/model#device=cuda:0,cuda:1&dtype=bf16&batch_size=128&max_length=256

A name says it all, so that it can be saved, sent to a worker and given on the command line. With several devices every
worker process takes one of its own, in turn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlencode

from crosscut.errors import InputError

Dtype: TypeAlias = Literal["fp32", "fp16", "bf16", "int8"]
Similarity: TypeAlias = Literal["dot", "cosine"]
WORKER = "CROSSCUT_WORKER"
"""Number of this worker process among those of an engine; the engine sets it."""


@dataclass(frozen=True)
class ModelSettings:
    """Settings for running a model.

    device : "cpu", "cuda", "cuda:1", "mps", several between commas, "cuda:*" for all there are; None: the CPU.
    dtype : of the arithmetic; int8 is for the CPU, fp16 and bf16 for other devices.
    batch_size : pairs or texts at a time, by torch; on the CPU pairs are grouped by length instead.
    max_length : most tokens of a pair or a text; None: what the model allows.
    similarity : of a dual encoder's vectors, if not what the model says: "dot" leaves them as they are, "cosine" makes
        them unit length.
    """

    device: str | None = None
    dtype: Dtype = "fp32"
    batch_size: int = 32
    max_length: int | None = None
    similarity: Similarity | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("fp32", "fp16", "bf16", "int8"):
            raise InputError(f"the dtype is fp32, fp16, bf16 or int8; got {self.dtype!r}")
        if self.dtype == "int8" and not self.on_cpu:
            raise InputError(f"int8 runs on the CPU, not on {self.device!r}; use fp16 or bf16 there")
        if self.dtype in ("fp16", "bf16") and self.on_cpu:
            raise InputError(f"{self.dtype} is for a GPU: give a device such as cuda, or use fp32 or int8 on the CPU")
        if self.batch_size < 1:
            raise InputError(f"a batch of {self.batch_size} is not possible; use 1 or more")
        if self.max_length is not None and self.max_length < 8:
            raise InputError(f"{self.max_length} tokens have no room for a text; give 8 or more")
        if self.similarity not in (None, "dot", "cosine"):
            raise InputError(f"the similarity is dot or cosine; got {self.similarity!r}")

    @property
    def on_cpu(self) -> bool:
        return all(one.strip() == "cpu" for one in (self.device or "cpu").split(","))

    def every(self) -> list[str]:
        """Every device of the setting; in a worker of an engine its own alone."""
        return [self.here()] if WORKER in os.environ else devices_of(self.device)

    def here(self, count: Callable[[], int] | None = None) -> str:
        """The device of this process: the worker's own, where there are several. `count()` says how many GPUs are."""
        devices = devices_of(self.device, count)
        return devices[int(os.environ.get(WORKER, "0")) % len(devices)]


def devices_of(device: str | None, count: Callable[[], int] | None = None) -> list[str]:
    """The devices that a setting names: the CPU for None, every GPU for `cuda:*`; `count()` says how many there are."""
    devices = [one.strip() for one in (device or "cpu").split(",")]
    if devices == ["cuda:*"]:
        found = (count or gpus)()
        if not found:
            raise InputError("device=cuda:* asks for every GPU, and torch sees none here; name the device")
        devices = [f"cuda:{number}" for number in range(found)]
    if not all(devices):
        raise InputError(f"the devices {device!r} have an empty name among them; write cuda:0,cuda:1")
    return devices


def workers_on(device: str | None, workers: int | None, count: Callable[[], int] | None = None) -> list[str]:
    """The devices of so many workers, one each: the first of those that are named, `cuda` being every GPU there is; on
    the CPU they share it. None: a worker for every device."""
    several = workers is not None and workers > 1
    devices = devices_of("cuda:*" if several and device == "cuda" else device, count)
    if workers is None:
        return devices
    if several and devices == ["cpu"]:
        devices = devices * workers
    if not 1 <= workers <= len(devices):
        raise InputError(f"{workers} workers need a device each, and there are {len(devices)}: {', '.join(devices)}")
    return devices[:workers]


def gpus() -> int:
    """Return the number of CUDA devices that torch sees."""
    import torch

    return int(torch.cuda.device_count())


def check_device(device: str) -> str:
    """The device, if torch has it here."""
    import torch

    try:
        where = torch.device(device)
    except RuntimeError as error:
        raise InputError(f"there is no device {device!r}; name cpu, cuda, cuda:1 or mps") from error
    if where.type == "cuda" and (where.index or 0) >= (found := gpus()):
        raise InputError(f"there is no device {device!r}: torch sees {found} GPUs here; name another, or leave it out")
    if where.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("there is no device 'mps': torch sees none here; name another, or leave it out")
    return device


def fixed(name: str) -> bool:
    """Whether a model runs as it is, on the CPU: the bundled one, or a copy of it."""
    return name == "default" or (Path(name) / "dual.onnx").is_file()


def placed(name: str, devices: Sequence[str]) -> str:
    """A model's name with devices behind it, where it can take them and names none itself."""
    if fixed(name) or "://" in name or "device=" in name.partition("#")[2] or set(devices) == {"cpu"}:
        return name
    return with_settings(name, device=",".join(devices))


def split_name(name: str) -> tuple[str, ModelSettings]:
    """A model's name and how it is run."""
    bare, _, settings = name.partition("#")
    if settings and fixed(bare):
        raise InputError(f"{settings!r} is for hub models; {bare!r} runs on the CPU as it is")
    given = dict(parse_qsl(settings, keep_blank_values=True))
    known = [one.name for one in fields(ModelSettings)]
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(f"{name!r} sets {unknown[0]!r}, which no model has; settings are {', '.join(known)}")
    values: dict[str, Any] = dict(given)
    for whole in ("batch_size", "max_length"):
        if whole in values:
            if not values[whole].isdecimal():
                raise InputError(f"{whole} is a whole number; got {values[whole]!r}")
            values[whole] = int(values[whole])
    return bare, ModelSettings(**values)


def with_settings(
    name: str,
    *,
    device: str | None = None,
    dtype: str | None = None,
    batch_size: int | None = None,
    max_length: int | None = None,
    similarity: str | None = None,
) -> str:
    """A model's name with settings behind it; those that are None are left out, others replace what was there."""
    settings = {"device": device, "dtype": dtype, "batch_size": batch_size, "max_length": max_length}
    given = {key: str(value) for key, value in (*settings.items(), ("similarity", similarity)) if value is not None}
    if not given:
        return name
    if "://" in name:
        raise InputError(f"{', '.join(given)} are for models that run here, not for the address {name!r}")
    if fixed(name):
        own = "the bundled model" if name == "default" else repr(name)
        raise InputError(f"{', '.join(given)} are for hub models; {own} runs on the CPU as it is")
    bare, _, before = name.partition("#")
    made = f"{bare}#{urlencode({**dict(parse_qsl(before)), **given}, safe=':,*/')}"
    split_name(made)
    return made
