"""The local engine: this process, threads, or processes.

One process is the default, because a model already uses every core; threads suit scorers that wait for an answer (HTTP
APIs, awaitables), processes suit models that do not use the cores by themselves. A process that dies, say for want of
memory, is replaced and its tasks are done again.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.callable import as_bound
from crosscut.scores.engines.tasks import Task
from crosscut.scores.engines.work import Answer, Job, Loader, Worker, commit, score_task
from crosscut.threads import cores

Mode = Literal["auto", "threads", "processes"]
Done = Callable[[int], None]
DEATHS = 3
"""Workers that may die one after the other before any of them finishes a task."""


@dataclass(frozen=True)
class LocalEngine:
    """`workers` threads or processes; "auto" takes threads for addresses and unnamed scorers, processes otherwise."""

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

    def speedup(self, job: Job) -> int:
        """How many calls go on at once; a model uses every core already."""
        return self.workers if self._mode(job) == "threads" else 1

    def _mode(self, job: Job) -> Mode:
        if self.mode != "auto":
            return self.mode
        return "threads" if job.remote or job.load is None or self.workers == 1 else "processes"

    def run(self, job: Job, tasks: Iterator[Task], done: Done) -> None:
        """Do every task and commit it; `done(pairs)` is called here, in this thread, after each commit."""
        if self._mode(job) == "processes":
            _in_processes(job, tasks, done, self.workers)
        else:
            _in_threads(job, tasks, done, self.workers)


def _in_threads(job: Job, tasks: Iterator[Task], done: Done, workers: int) -> None:
    bound = as_bound(job.scorer.bind(ItemList(job.items)))

    def work(task: Task) -> Answer:
        scored = score_task(bound, job.queries, task)
        if scored.pairs:
            commit(job.store, job.query_keys, job.item_keys, scored)
        return scored.pairs, scored.error

    if workers == 1:
        for task in tasks:
            _settle(work(task), done)
        return
    pool = ThreadPoolExecutor(workers)
    try:
        _hand_out(pool, work, tasks, done, workers)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)  # what is running still commits


def _in_processes(job: Job, tasks: Iterator[Task], done: Done, workers: int) -> None:
    if job.load is None:
        raise InputError(
            "worker processes load the scorer themselves: pass its name or folder, or `load=`, a function that makes it"
        )
    start = (str(job.store.path), job.load, job.store.scorer_fingerprint, job.queries, job.items)
    deaths = 0
    while True:
        pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_process, start)

        def finished(pairs: int) -> None:
            nonlocal deaths
            deaths = 0
            done(pairs)

        try:
            lost = _hand_out(pool, _work_in_process, tasks, finished, workers)
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
        tasks = chain(lost, tasks)


def _hand_out(
    pool: Executor, work: Callable[[Task], Answer], tasks: Iterator[Task], done: Done, workers: int
) -> list[Task]:
    """Keep every worker busy; returns the tasks that were lost with a worker that died."""
    pending: dict[Future[Answer], Task] = {}
    lost: list[Task] = []
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
                answer = future.result()
            except BrokenProcessPool:
                lost.append(task)
            else:
                _settle(answer, done)


def _settle(answer: Answer, done: Done) -> None:
    pairs, error = answer
    if pairs:
        done(pairs)
    if error is not None:
        raise error


_mine: list[tuple[str, Worker]] = []
"""In a worker process: the path of the store, and its worker."""


def _start_process(path: str, load: Loader, fingerprint: str, queries: list[str], items: list[Item | str]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent; a block that is begun is finished
    _mine.append((path, Worker(load, fingerprint, queries, items)))


def _work_in_process(task: Task) -> Answer:
    path, worker = _mine[0]
    return worker.score_into(path, task)
