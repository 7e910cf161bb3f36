"""The Ray engine: actors that load the model once, on this machine or on a cluster.

Tasks are handed out one at a time, so a slow machine takes fewer. An actor that dies is replaced and its task done
again. Actors send scores back and this process commits them; where all machines see the store's folder, `shared` lets
the actors commit by themselves.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crosscut.errors import InputError, MissingDependency, ScorerError
from crosscut.scores.engines.local import DEATHS, Done
from crosscut.scores.engines.tasks import Task
from crosscut.scores.engines.work import Job, Worker, commit


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

    def speedup(self, job: Job) -> int:
        """How many calls go on at once."""
        return self.workers

    def run(self, job: Job, tasks: Iterator[Task], done: Done) -> None:
        """Do every task and commit it; `done(pairs)` is called here after each commit."""
        ray = _ray()
        if job.load is None:
            raise InputError(
                "Ray workers load the scorer themselves: pass its name or folder, or `load=`, a function that makes it"
            )
        ours = not ray.is_initialized()
        if ours:
            _connect(ray, self.address)
        try:
            _Run(ray, self, job, done).finish(tasks)
        finally:
            if ours:
                ray.shutdown()


class _Run:
    """The actors of one run and what each of them is doing."""

    def __init__(self, ray: Any, engine: RayEngine, job: Job, done: Done) -> None:
        self.ray, self.engine, self.job, self.done = ray, engine, job, done
        self.actor = ray.remote(num_cpus=engine.cpus, num_gpus=engine.gpus, max_restarts=0)(Worker)
        self.texts = ray.put(job.queries), ray.put(job.items)  # once for the cluster, not once an actor
        self.actors = [self.start() for _ in range(engine.workers)]
        self.pending: dict[Any, tuple[Any, Task]] = {}
        self.deaths = 0

    def start(self) -> Any:
        return self.actor.remote(self.job.load, self.job.store.scorer_fingerprint, *self.texts)

    def finish(self, tasks: Iterator[Task]) -> None:
        again: deque[Task] = deque()
        idle = list(self.actors)
        try:
            while True:
                while idle:
                    task = again.popleft() if again else next(tasks, None)
                    if task is None:
                        break
                    actor = idle.pop()
                    self.pending[self.hand(actor, task)] = (actor, task)
                if not self.pending:
                    return
                ready, _ = self.ray.wait(list(self.pending), num_returns=1)
                actor, task = self.pending.pop(ready[0])
                if self.settle(ready[0]):
                    idle.append(actor)
                else:
                    again.append(task)
                    self.actors.remove(actor)
                    self.actors.append(self.start())
                    idle.append(self.actors[-1])
        finally:
            for actor in self.actors:
                self.ray.kill(actor)

    def hand(self, actor: Any, task: Task) -> Any:
        if self.engine.shared:
            return actor.score_into.remote(os.path.abspath(self.job.store.path), task)
        return actor.score.remote(task)

    def settle(self, reference: Any) -> bool:
        """Take one answer; False if the actor died over it."""
        try:
            answer = self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:  # raised by the scorer or the store, not by Ray
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, ScorerError):
                raise cause from error
            raise ScorerError(f"a Ray worker failed: {type(cause).__name__}: {cause}") from error
        except (self.ray.exceptions.RayActorError, self.ray.exceptions.WorkerCrashedError) as error:
            self.deaths += 1
            if self.deaths >= DEATHS + self.engine.workers:
                raise ScorerError(
                    f"Ray workers died {self.deaths} times without finishing a block ({str(error).splitlines()[0]}); "
                    "what was committed is safe: run the same again with fewer workers, or look at Ray's logs"
                ) from error
            return False
        if self.engine.shared:
            pairs, failed = answer
        else:
            pairs, failed = answer.pairs, answer.error
            if pairs:
                commit(self.job.store, self.job.query_keys, self.job.item_keys, answer)
        self.deaths = 0
        if pairs:
            self.done(pairs)
        if failed is not None:
            raise failed
        return True


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingDependency("the Ray engine needs Ray: pip install 'crosscut[ray]'") from error
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
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = f"at {address!r}" if address else "on this machine"
        raise InputError(f"no Ray cluster can be used {where} ({str(error).splitlines()[0]})") from error
