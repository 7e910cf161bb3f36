"""The Ray engine: actors that load the model once, on this machine or on a cluster.

Tasks are handed out one at a time, so a slow machine takes fewer. An actor that dies is replaced and its task done
again. Actors send scores back and this process writes them down; where all machines see the store's folder, `shared`
lets the actors commit by themselves.
"""

from __future__ import annotations

import os
import pickle
import socket
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from crosscut.errors import CrosscutError, InputError, ScorerError, needing
from crosscut.scores.engines.local import DEATHS, NOT_PORTABLE
from crosscut.scores.engines.tasks import Task
from crosscut.scores.engines.worker import Order, TaskReport, Worker

T = TypeVar("T")
PATIENCE = 30.0
"""Seconds that blocks in the making have when a run ends early."""


@dataclass(frozen=True)
class RayEngine:
    """`workers` actors of `cpus` cores (and `gpus`) each, on the cluster at `address`, or on a local one."""

    workers: int = 2
    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0
    shared: bool = False

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"{self.workers} workers cannot score anything; use 1 or more")

    @property
    def threads(self) -> int:
        """Cores for the model of one worker."""
        return max(1, int(self.cpus))

    def speedup(self, order: Order) -> int:
        """How many calls go on at once."""
        return self.workers

    def run(self, order: Order, tasks: Iterator[Task], report: TaskReport) -> None:
        """Do every task and commit it; `report` is called here after each commit."""
        ray = _ray()
        if order.load is None or order.items is None:
            raise InputError(NOT_PORTABLE.format("Ray workers", "it is bound to its items"))
        with connected(self.address):
            _Scoring(ray, self, order, report).finish(tasks)


class Crew(Generic[T]):
    """The actors of one run and what each of them is doing; one that dies is replaced, and its task done again."""

    actor: type[Any]
    method: str  # of an actor, which does a task
    unsent: str  # when something that an actor needs cannot be sent to it
    own: type[CrosscutError]  # what actors raise on purpose
    failure: type[CrosscutError]  # in place of all else that goes wrong

    def __init__(self, ray: Any, engine: RayEngine, *given: Any) -> None:
        self.ray, self.engine = ray, engine
        kind = ray.remote(num_cpus=engine.cpus, num_gpus=engine.gpus, max_restarts=0)(self.actor)
        try:  # once for the cluster, not once an actor
            self.start = partial(kind.remote, *[ray.put(one) for one in given])
        except (TypeError, pickle.PicklingError) as error:
            raise InputError(self.unsent.format("Ray workers", str(error).splitlines()[0])) from error
        self.pending: dict[Any, tuple[Any, T]] = {}
        self.again: deque[T] = deque()
        self.deaths = 0

    def next(self, tasks: Iterator[T]) -> T | None:
        """What is to be done now: first of all what was lost with an actor."""
        return self.again.popleft() if self.again else next(tasks, None)

    @abstractmethod
    def done(self, task: T, answer: Any) -> None:
        """Take an answer."""

    @abstractmethod
    def lost(self, task: T) -> str:
        """An actor died over a task; what is safe, and what to do if they go on dying."""

    def ending(self) -> None:
        """The run ends early."""

    def finish(self, tasks: Iterator[T]) -> None:
        """Do every task."""
        actors = [self.start() for _ in range(self.engine.workers)]
        idle = list(actors)
        try:
            while True:
                while idle and (task := self.next(tasks)) is not None:
                    actor = idle.pop()
                    self.pending[getattr(actor, self.method).remote(task)] = (actor, task)
                if not self.pending:
                    return
                (ready, *_), _ = self.ray.wait(list(self.pending), num_returns=1)
                actor, task = self.pending.pop(ready)
                if not self._settled(ready, task):
                    self.again.append(task)
                    actors.remove(actor)
                    actors.append(actor := self.start())
                idle.append(actor)
        except BaseException:
            self.ending()
            raise
        finally:
            for actor in actors:
                self.ray.kill(actor)

    def _settled(self, reference: Any, task: T) -> bool:
        """Take one answer; False if the actor died over it."""
        try:
            answer = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # raised by what the actor does, not by Ray
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, self.own):
                raise cause from error
            raise self.failure(f"a Ray worker failed: {type(cause).__name__}: {cause}") from error
        except (self.ray.exceptions.RayActorError, self.ray.exceptions.WorkerCrashedError) as error:
            told = self.lost(task)
            self.deaths += 1
            if self.deaths >= DEATHS + self.engine.workers:
                said = str(error).splitlines()[0]
                raise self.failure(
                    f"Ray workers died {self.deaths} times without finishing a block ({said}); {told}"
                ) from error
            return False
        self.deaths = 0
        self.done(task, answer)
        return True


class _Scoring(Crew[Task]):
    """A crew that scores."""

    actor, method, unsent = Worker, "score", NOT_PORTABLE
    own = failure = ScorerError

    def __init__(self, ray: Any, engine: RayEngine, order: Order, report: TaskReport) -> None:
        folder = order.ledger.folder
        own = os.path.abspath(folder) if engine.shared and folder is not None else None
        super().__init__(ray, engine, order.load, order.fingerprint, [*order.queries], [*(order.items or ())], own)
        self.order, self.report = order, report

    def done(self, task: Task, answer: Any) -> None:
        self.order.settle(answer, self.report)

    def lost(self, task: Task) -> str:
        self.report(0, task.pairs)
        return "what was committed is safe: run the same again with fewer workers, or look at Ray's logs"

    def ending(self) -> None:
        """What other actors are still scoring when a run ends early has been paid for: wait a while for it."""
        if not self.pending:
            return
        ready, _ = self.ray.wait(list(self.pending), num_returns=len(self.pending), timeout=PATIENCE)
        for reference in ready:
            try:
                scored = self.ray.get(reference)
            except self.ray.exceptions.RayError:
                continue
            if scored.scores and scored.pairs:
                self.order.ledger.record(scored)


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, on the cluster at an address or a local one; who is connected already stays so."""
    ray = _ray()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _ray() -> Any:
    with needing("the Ray engine needs Ray", "ray"):
        import ray
    return ray


def _connect(ray: Any, address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if host and port.isdigit():  # Ray itself tries for many minutes
        try:
            socket.create_connection((host, int(port)), timeout=10).close()
        except OSError as error:
            raise InputError(
                f"nobody answers at {address!r} ({error}); give the address that `ray start --head` printed, or 'auto'"
            ) from error
    try:
        options: dict[str, Any] = {} if address else {"include_dashboard": False}
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # Ray raises this very class when a node is slow to start
        where = f"at {address!r}" if address else "on this machine"
        raise InputError(f"no Ray cluster can be used {where} ({str(error).splitlines()[0]})") from error
