"""The local engine: this process, threads, or processes.

One process is the default, because a model already uses every core; threads suit scorers that wait for an answer (HTTP
APIs, awaitables), processes suit models that do not use the cores by themselves. A process that dies, say for want of
memory, is replaced and its tasks are done again.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

from crosscut.encoders.running import WORKER
from crosscut.errors import InputError, ScorerError
from crosscut.scores.engines.tasks import Scored, Task
from crosscut.scores.engines.worker import Order, TaskReport, Worker, score_task
from crosscut.threads import cores

Mode = Literal["auto", "threads", "processes"]
DEATHS = 3
"""Workers that may die one after the other before any of them finishes a task."""
NOT_PORTABLE = (
    "{} load the scorer themselves, and this one cannot be sent to them ({}): pass its name or folder, or `load=`, "
    "a function that makes it"
)


@dataclass(frozen=True)
class LocalEngine:
    """`workers` threads or processes; "auto" takes processes for models that another process can load by name."""

    workers: int = 1
    mode: Mode = "auto"

    def __post_init__(self) -> None:
        if self.workers < 1:
            raise InputError(f"{self.workers} workers cannot score anything; use 1 or more")
        if self.mode not in ("auto", "threads", "processes"):
            raise InputError(f"the local engine has modes 'auto', 'threads' and 'processes', not {self.mode!r}")

    @property
    def threads(self) -> int:
        """Cores for the model of one worker."""
        return max(1, cores() // self.workers)

    def speedup(self, order: Order) -> int:
        """How many calls go on at once; a model uses every core already."""
        return self.workers if self._mode(order) == "threads" else 1

    def _mode(self, order: Order) -> Mode:
        if self.mode != "auto":
            return self.mode
        return "threads" if order.waits or order.load is None or self.workers == 1 else "processes"

    def run(self, order: Order, tasks: Iterator[Task], report: TaskReport) -> None:
        """Do every task and commit it; `report` is called here, in this thread, after each commit."""
        if self._mode(order) == "processes":
            _in_processes(order, tasks, report, self.workers)
        else:
            _in_threads(order, tasks, report, self.workers)


def _in_threads(order: Order, tasks: Iterator[Task], report: TaskReport, workers: int) -> None:
    bound = order.bound

    def work(task: Task) -> Scored:
        return score_task(bound, order.queries, task)

    if workers == 1:
        for task in tasks:
            order.settle(work(task), report)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        _hand_out(pool, work, tasks, order, report, workers)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _in_processes(order: Order, tasks: Iterator[Task], report: TaskReport, workers: int) -> None:
    try:
        if order.load is None or order.items is None:
            raise TypeError("it is bound to its items")
        pickle.dumps(order.load)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InputError(NOT_PORTABLE.format("worker processes", error)) from error
    folder = None if order.ledger.folder is None else str(order.ledger.folder)
    start = (order.load, order.fingerprint, list(order.queries), list(order.items), folder)
    deaths = 0

    def finished(pairs: int, lost: int) -> None:
        nonlocal deaths
        deaths = 0
        report(pairs, lost)

    while True:
        context = multiprocessing.get_context("spawn")
        numbers = context.SimpleQueue()  # of the workers: each takes one, and with it a device of its own
        for number in range(workers):
            numbers.put(number)
        pool = ProcessPoolExecutor(workers, context, _start_process, (numbers, *start))
        try:
            lost = _hand_out(pool, _work_in_process, tasks, order, finished, workers)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
        if not lost:
            return
        deaths += 1
        if deaths >= DEATHS:
            raise ScorerError(
                f"worker processes died {deaths} times without finishing a block, perhaps for want of memory; "
                "what was committed is safe: use fewer workers and run the same again"
            )
        report(0, sum(task.pairs for task in lost))
        tasks = chain(lost, tasks)


def _hand_out(
    pool: Executor,
    work: Callable[[Task], Scored],
    tasks: Iterator[Task],
    order: Order,
    report: TaskReport,
    workers: int,
) -> list[Task]:
    """Keep every worker busy; returns the tasks that were lost with a worker that died."""
    pending: dict[Future[Scored], Task] = {}
    lost: list[Task] = []
    try:
        while True:
            while len(pending) < workers and not lost:
                task = next(tasks, None)
                if task is None:
                    break
                try:
                    pending[pool.submit(work, task)] = task
                except BrokenProcessPool:
                    lost.append(task)
            if not pending:
                return lost
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                task = pending.pop(future)
                try:
                    scored = future.result()
                except BrokenProcessPool:
                    lost.append(task)
                else:
                    order.settle(scored, report)
    except BaseException:
        _keep_the_rest(pending, order)
        raise


def _keep_the_rest(pending: dict[Future[Scored], Task], order: Order) -> None:
    """What is still being scored when a run ends early has been paid for: wait for it and write it down."""
    for future in pending:
        if not future.cancel() and future.exception() is None:
            scored = future.result()
            if scored.scores and scored.pairs:
                order.ledger.record(scored)


_mine: list[Worker] = []
"""In a worker process: its worker."""


def _start_process(numbers: Any, *parts: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent; a block that is begun is finished
    os.environ[WORKER] = str(numbers.get())
    _mine.append(Worker(*parts))


def _work_in_process(task: Task) -> Scored:
    return _mine[0].score(task)
