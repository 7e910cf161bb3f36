"""Engines run the tasks of a scoring job: threads or processes of this machine, or actors of Ray.

One process is the default, because a model already uses every core; threads suit scorers that wait for an answer (HTTP
APIs, awaitables), processes suit models that do not use the cores by themselves. Workers send scores back and this
process commits them: a run that breaks loses what was being scored at that moment, and no more.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

import numpy as np

from crosscut.datasets.records import Item, items_of
from crosscut.errors import CrosscutError, InputError, ScorerError, needing
from crosscut.models.spec import WORKER
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.threads import cores
from crosscut.types import Floats, Positions

if TYPE_CHECKING:
    from crosscut.score_store.jobs import ScoringJob

T = TypeVar("T")
Mode = Literal["auto", "threads", "processes"]
Loader: TypeAlias = Callable[[], Scorer]
"""Creates the scorer where it is needed: in another process, on another machine."""
PATIENCE = 30.0
"""Seconds that blocks under way on Ray have when a run ends early."""
RESTARTS = 3
"""Times that Ray starts an actor again, and tries a block again."""
NOT_PORTABLE = (
    "{} load the scorer themselves, and this one cannot be sent to them ({}): pass its name or folder, or `load=`, "
    "a function that creates it"
)


@dataclass(frozen=True)
class Task:
    """One batch of calls and one commit: rows of queries, each with the positions of its items."""

    rows: tuple[int, ...]
    positions: tuple[Positions, ...]

    @property
    def pairs(self) -> int:
        return sum(map(len, self.positions))

    def head(self, pairs: int) -> Task:
        """Return at most the first `pairs` pairs."""
        if pairs >= self.pairs:
            return self
        ends = np.cumsum([len(part) for part in self.positions])
        count = int(np.searchsorted(ends, pairs)) + 1 if pairs > 0 else 0
        parts = [*self.positions[:count]]
        if parts:
            parts[-1] = parts[-1][: pairs - int(ends[count - 1] - len(parts[-1]))]
        return Task(self.rows[:count], tuple(parts))


@dataclass(frozen=True)
class Scored:
    """Result of a task: for each query the positions that were scored, and the scores."""

    task: Task
    positions: list[Positions]
    scores: list[Floats]
    calls: int
    seconds: float
    error: BaseException | None = None

    @property
    def pairs(self) -> int:
        return sum(map(len, self.scores))

    def rows(self) -> Iterator[tuple[int, Positions, Floats]]:
        """Yield row, ascending positions and scores of each query that has some."""
        for row, positions, scores in zip(self.task.rows, self.positions, self.scores, strict=True):
            if len(positions):
                order = np.argsort(positions, kind="stable")
                yield row, positions[order], scores[order]


def score_task(bound: BoundScorer, queries: Sequence[Any], task: Task) -> Scored:
    """Score a task; if it fails in the middle, what was paid for comes back beside the error."""
    accounts = [QueryLedger(queries[row], sys.maxsize) for row in task.rows]  # what is asked for, retries and all
    meter = Meter(bound)
    failed: BaseException | None = None
    try:
        meter.score(accounts, task.positions)
    except BaseException as error:
        failed = error
    positions, scores = [one.positions for one in accounts], [one.scores for one in accounts]
    return Scored(task, positions, scores, meter.calls, meter.seconds, failed)


class Worker:
    """A scorer bound to the corpus, in another process or on another machine.

    The model is loaded once, with the first task: there an error can be reported.
    """

    def __init__(
        self,
        threads: int,
        load: Loader,
        fingerprint: str | None,
        queries: Sequence[Any],
        items: Sequence[Item | str],
    ) -> None:
        os.environ["CROSSCUT_THREADS"] = str(threads)
        self.load, self.fingerprint, self.queries, self.items = load, fingerprint, queries, items

    @cached_property
    def bound(self) -> BoundScorer:
        scorer = self.load()
        if self.fingerprint is not None and scorer.fingerprint != self.fingerprint:
            raise ScorerError(
                f"a worker loaded a scorer with fingerprint {scorer.fingerprint!r}, and the run is for "
                f"{self.fingerprint!r}; every worker must load the same model"
            )
        return as_bound(scorer.bind(items_of(self.items)))

    def score(self, task: Task) -> Scored:
        return score_task(self.bound, self.queries, task)


@runtime_checkable
class Engine(Protocol):
    """Runs tasks somewhere; `LocalEngine` and `RayEngine` are two."""

    @property
    def workers(self) -> int: ...

    @property
    def threads(self) -> int:
        """Cores for the model of one worker."""

    def speedup(self, job: ScoringJob) -> int:
        """Return how many calls go on at once."""

    def check(self, job: ScoringJob) -> None:
        """Refuse a job that cannot run here, before its first call."""

    def run(self, job: ScoringJob, tasks: Iterator[Task]) -> None:
        """Score every task, and settle it with the job in this thread."""


EngineChoice: TypeAlias = Engine | Literal["local", "ray"]
"""An engine, or the name of one with its default number of workers."""


def make_engine(engine: Engine | str = "local", *, workers: int | None = None, address: str | None = None) -> Engine:
    """Return an engine by name; an engine, itself."""
    if not isinstance(engine, str):
        return engine
    if engine == "local":
        if address is not None:
            raise InputError(f"the local engine has no address, and {address!r} was given; use the engine 'ray'")
        return LocalEngine(1 if workers is None else workers)
    if engine == "ray":
        return RayEngine(2 if workers is None else workers, address)
    raise InputError(f"there is no engine {engine!r}; there are 'local' and 'ray'")


def _check_workers(workers: int) -> None:
    if workers < 1:
        raise InputError(f"{workers} workers cannot score anything; use 1 or more")


# -- this machine ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalEngine:
    """`workers` threads or processes; "auto" uses processes for models that another process can load by name."""

    workers: int = 1
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        _check_workers(self.workers)
        if self.mode not in ("auto", "threads", "processes"):
            raise InputError(f"the local engine has modes 'auto', 'threads' and 'processes', not {self.mode!r}")

    @property
    def threads(self) -> int:
        return max(1, cores() // self.workers)

    def speedup(self, job: ScoringJob) -> int:
        return self.workers if self._mode(job) == "threads" else 1  # a model uses every core already

    def _mode(self, job: ScoringJob) -> Mode:
        if self.mode != "auto":
            return self.mode
        return "threads" if job.waits or job.load is None or self.workers == 1 else "processes"

    def check(self, job: ScoringJob) -> None:
        if self._mode(job) != "processes":
            return
        try:
            if job.load is None or job.items is None:
                raise TypeError("it is bound to its items")
            pickle.dumps(job.load)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise InputError(NOT_PORTABLE.format("worker processes", error)) from error

    def run(self, job: ScoringJob, tasks: Iterator[Task]) -> None:
        if self._mode(job) == "processes":
            with _processes(job, self.workers) as pool:
                _hand_out(pool, _score_in_process, tasks, job, self.workers)
            return
        bound = job.bound
        if self.workers == 1:
            for task in tasks:
                job.settle(score_task(bound, job.queries, task))
            return
        with ThreadPoolExecutor(self.workers) as threads:
            _hand_out(threads, lambda task: score_task(bound, job.queries, task), tasks, job, self.workers)


def _hand_out(
    pool: Executor, score: Callable[[Task], Scored], tasks: Iterator[Task], job: ScoringJob, workers: int
) -> None:
    """Keep every worker busy. What is under way when a run ends early has been paid for: it is waited for."""
    pending: dict[Future[Scored], Task] = {}
    try:
        while True:
            while len(pending) < workers and (task := next(tasks, None)) is not None:
                pending[pool.submit(score, task)] = task
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                scored = future.result()
                del pending[future]
                job.settle(scored)
    except BrokenProcessPool as error:
        job.lose(sum(task.pairs for task in pending.values()))
        raise ScorerError(
            "a worker process died, perhaps for want of memory; what was committed is safe: use fewer workers and run "
            "the same again"
        ) from error
    except BaseException:
        for future in pending:
            if not future.cancel() and future.exception() is None:
                job.record(future.result())
        raise


@contextmanager
def _processes(job: ScoringJob, workers: int) -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")
    numbers = context.SimpleQueue()  # of the workers: each gets one, and with it a device of its own
    for number in range(workers):
        numbers.put(number)
    given = (numbers, job.engine.threads, job.load, job.fingerprint, list(job.queries), list(job.items or ()))
    with ProcessPoolExecutor(workers, context, _start_process, given) as pool:
        yield pool


_mine: list[Worker] = []
"""In a worker process: its worker."""


def _start_process(numbers: Any, *given: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent; a block that is begun is finished
    os.environ[WORKER] = str(numbers.get())
    _mine.append(Worker(*given))


def _score_in_process(task: Task) -> Scored:
    return _mine[0].score(task)


# -- Ray ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RayEngine:
    """`workers` actors of `cpus` cores (and `gpus`) each, on the cluster at `address`, or on a local one.

    Ray starts an actor that died again, and its block with it.
    """

    workers: int = 2
    address: str | None = None
    cpus: float = 1.0
    gpus: float = 0.0

    def __post_init__(self) -> None:
        _check_workers(self.workers)

    @property
    def threads(self) -> int:
        return max(1, int(self.cpus))

    def speedup(self, job: ScoringJob) -> int:
        return self.workers

    def check(self, job: ScoringJob) -> None:
        _import_ray()
        if job.load is None or job.items is None:
            raise InputError(NOT_PORTABLE.format("Ray workers", "it is bound to its items"))

    def run(self, job: ScoringJob, tasks: Iterator[Task]) -> None:
        given = (self.threads, job.load, job.fingerprint, [*job.queries], [*(job.items or ())])
        with actors(self, RayWorker, *given, unsent=NOT_PORTABLE) as pool:
            try:
                for scored in spread(pool, "score", tasks, ScorerError):
                    job.settle(scored)
            except BaseException:
                with suppress(Exception):  # what is under way has been paid for: it is waited for, for a while
                    while pool.has_next():
                        job.record(pool.get_next_unordered(PATIENCE))
                raise


class RayWorker(Worker):
    """A worker that Ray may start again: the block that it had then is counted twice, for it may have been paid for."""

    def score(self, task: Task) -> Scored:
        import ray

        again = "bound" not in self.__dict__ and ray.get_runtime_context().was_current_actor_reconstructed
        scored = super().score(task)
        return replace(scored, calls=scored.calls + task.pairs) if again else scored


@contextmanager
def actors(engine: RayEngine, kind: type[Any], *given: Any, unsent: str) -> Iterator[Any]:
    """An `ActorPool` of `kind(*given)`; `unsent` is the error if what is given cannot be sent to them."""
    with connected(engine.address) as ray:
        from ray.util import ActorPool

        actor = ray.remote(
            num_cpus=engine.cpus, num_gpus=engine.gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS
        )(kind)
        try:  # once for the cluster, not once an actor
            sent = [ray.put(one) for one in given]
        except (TypeError, pickle.PicklingError) as error:
            raise InputError(unsent.format("Ray workers", str(error).splitlines()[0])) from error
        started = [actor.remote(*sent) for _ in range(engine.workers)]
        try:
            yield ActorPool(started)
        finally:
            for one in started:
                ray.kill(one)


def spread(pool: Any, method: str, tasks: Iterator[T], failure: type[CrosscutError]) -> Iterator[Any]:
    """Yield the answers of actors to tasks, which are handed out one by one, so a slow machine gets fewer."""
    import ray

    def answer(timeout: float | None = None) -> Any:
        try:
            return pool.get_next_unordered(timeout)
        except ray.exceptions.RayTaskError as error:  # raised by what the actor does, not by Ray
            cause = error.cause if isinstance(error.cause, Exception) else error
            if isinstance(cause, CrosscutError):
                raise cause from error
            raise failure(f"a Ray worker failed: {type(cause).__name__}: {cause}") from error
        except ray.exceptions.RayError as error:
            raise failure(
                f"a Ray worker died {RESTARTS + 1} times ({str(error).splitlines()[0]}); what was committed is safe: "
                "run the same again with fewer workers, or look at Ray's logs"
            ) from error

    for task in tasks:
        pool.submit(lambda actor, one: getattr(actor, method).remote(one), task)
        if not pool.has_free():
            yield answer()
    while pool.has_next():
        yield answer()


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Ray, on the cluster at an address or a local one; a process that is connected already stays so."""
    ray = _import_ray()
    ours = not ray.is_initialized()
    if ours:
        _connect(ray, address)
    try:
        yield ray
    finally:
        if ours:
            ray.shutdown()


def _import_ray() -> Any:
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
