"""Engines score tasks for `crosscut.scores.buy`: here, in other processes, on other machines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from crosscut.errors import InputError
from crosscut.scores.engines.local import LocalEngine
from crosscut.scores.engines.ray import RayEngine
from crosscut.scores.engines.tasks import Task
from crosscut.scores.engines.worker import Loader, Order, TaskReport

__all__ = ["Engine", "EngineChoice", "Loader", "LocalEngine", "RayEngine", "make_engine"]


@runtime_checkable
class Engine(Protocol):
    """Does tasks somewhere; `LocalEngine` and `RayEngine` are two."""

    @property
    def workers(self) -> int: ...

    @property
    def threads(self) -> int: ...

    def speedup(self, order: Order) -> int: ...

    def run(self, order: Order, tasks: Iterator[Task], report: TaskReport) -> None: ...


EngineChoice: TypeAlias = Engine | Literal["local", "ray"]
"""An engine, or the name of one with its default number of workers."""


def make_engine(engine: Engine | str = "local", *, workers: int | None = None, address: str | None = None) -> Engine:
    """An engine by name; an engine, itself."""
    if not isinstance(engine, str):
        return engine
    if engine == "local":
        if address is not None:
            raise InputError(f"the local engine has no address, and {address!r} was given; use the engine 'ray'")
        return LocalEngine(1 if workers is None else workers)
    if engine == "ray":
        return RayEngine(2 if workers is None else workers, address)
    raise InputError(f"there is no engine {engine!r}; there are 'local' and 'ray'")
