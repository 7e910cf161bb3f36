"""Kills at random moments and damaged files: is anything lost, unreadable, or found again after it was forgotten?

Each trial copies a workspace (an index folder, a search log, a score store), forks a child that runs one command, and
kills it with SIGKILL after a random share of the time that the command takes. Then:

    unreadable   the index does not load, or the log or the store cannot be read
    lost         an item is missing that no command removed, or one is there that was removed before
    refused      `forget` cannot be repeated
    found        after `forget` has been repeated to its end, a word or an id of the item is in some file

Damage: a byte of a file is changed, or the file is cut short. What loads must answer as before or raise an error of the
library; `crash` counts anything else.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import crosscut
from crosscut.errors import CrosscutError
from crosscut_lab.report import machine, write

ITEMS = 60
WORDS = ("river", "bank", "tree", "house", "king", "ship", "iron", "gold", "moon", "star")
QUERIES = ["river bank", "gold moon", "iron ship king", "house tree", "star river"]


def canary(number: int) -> str:
    """Return a word that occurs in one item only."""
    return f"zq{zlib.crc32(str(number).encode()):08x}qz"


def item(number: int) -> dict[str, Any]:
    rng = random.Random(number)
    text = f"{' '.join(rng.choices(WORDS, k=8))} {canary(number)}"
    return {"id": f"id-{canary(number)[2:-2]}", "title": f"title {number}", "text": text, "metadata": {"n": number}}


def items(first: int, last: int) -> list[Any]:
    from crosscut.datasets.records import Item

    return [Item(one["id"], one["title"], one["text"], one["metadata"]) for one in map(item, range(first, last))]


def score(query: str, texts: Sequence[str]) -> list[float]:
    asked = set(query.split())
    return [len(asked & set(text.split())) + (zlib.crc32(text.encode()) % 1000) / 1000 for text in texts]


def encode(texts: Sequence[str]) -> Any:
    return np.asarray([[text.count(word) + 0.1 for word in WORDS] for text in texts], np.float32)


@dataclass(frozen=True)
class Workspace:
    """Files on disk, and the items of the index."""

    folder: Path

    @property
    def index(self) -> Path:
        return self.folder / "my.index"

    @property
    def log(self) -> Path:
        return self.folder / "searches.log"

    @property
    def store(self) -> Path:
        return self.folder / "scores"

    def load(self) -> crosscut.Index:
        index = crosscut.Index.load(self.index, scorer=score, encoder=encode, store=self.store)
        index.keep_log(self.log)
        return index

    def numbers(self) -> set[int]:
        """Return the numbers of the items in the index."""
        index = self.load()
        hits = index.search("river", k=10 * ITEMS, method="exact")
        return {int(hit.item.metadata["n"]) for hit in hits if hit.item is not None}

    def bytes_of(self, word: str) -> list[str]:
        """Return the files that hold a word."""
        wanted = word.encode()
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        return [str(path.relative_to(self.folder)) for path in paths if wanted in path.read_bytes()]


def build(space: Workspace) -> None:
    index = crosscut.Index.build(items(0, ITEMS), scorer=score, encoder=encode, queries=QUERIES, store=space.store)
    index.save(space.index)


def add(space: Workspace) -> None:
    index = space.load()
    index.add(items(ITEMS, ITEMS + 10))
    index.save()


def remove(space: Workspace) -> None:
    index = space.load()
    index.remove([item(number)["id"] for number in (3, 4)])
    index.save()


def forget(space: Workspace) -> None:
    index = space.load()
    index.forget([item(7)["id"]])
    index.save()


def search(space: Workspace) -> None:
    space.load().search_many([*QUERIES, *(" ".join(WORDS[n : n + 3]) for n in range(8))], k=10, budget=30)


def learn(space: Workspace) -> None:
    index = space.load()
    index.learn()
    index.save()


def compact(space: Workspace) -> None:
    index = space.load()
    index.compact()
    index.save()


COMMANDS: dict[str, tuple[Callable[[Workspace], None], set[int], set[int]]] = {
    "build": (build, set(), set()),
    "add": (add, set(range(ITEMS, ITEMS + 10)), set()),
    "remove": (remove, set(), {3, 4}),
    "forget": (forget, set(), {7}),
    "search": (search, set(), set()),
    "learn": (learn, set(), set()),
    "compact": (compact, set(), set()),
}
"""A command, the items that it adds and those that it takes away."""


def in_child(work: Callable[[], None], delay: float | None) -> bool:
    """Run in a forked child, killed after `delay` seconds; return whether it came to its end."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    if delay is not None:
        time.sleep(delay)
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0


def prepare(folder: Path) -> Workspace:
    """Return a workspace with an index, a log of searches and a score store."""
    space = Workspace(folder)
    build(space)
    for _ in range(4):
        search(space)
    return space


def check(space: Workspace, name: str, outcomes: Counter[str], notes: list[str]) -> None:
    """Count what a stopped command has left behind."""
    _, added, taken = COMMANDS[name]
    before = set(range(ITEMS))
    try:
        if name == "build" and not space.index.exists():
            build(space)  # nothing was there before, and nothing is half there now
        there = space.numbers()
        space.load().search_many(QUERIES, k=5, budget=20)
    except CrosscutError:
        if name == "build":  # a build that was stopped is repeated
            try:
                build(space)
                there = space.numbers()
            except CrosscutError as again:
                error, there = again, set()
        else:
            there = set()
        if not there:
            outcomes["unreadable"] += 1
            notes.append(f"{name}: {error}")
            return
    if not (before - taken <= there <= before | added):
        outcomes["lost"] += 1
        notes.append(f"{name}: {sorted(before ^ there)[:5]}")
    if name == "forget":
        try:
            forget(space)
        except CrosscutError as error:
            outcomes["forget refused"] += 1
            notes.append(f"forget: {error}")
        for word in (canary(7), item(7)["id"]):
            if places := space.bytes_of(word):
                outcomes["found"] += 1
                notes.append(f"{word} in {', '.join(places)}")


def stops(count: int, seed: int, report: Callable[[Counter[str]], None]) -> tuple[Counter[str], list[str]]:
    """Kill every command in turn at random moments; return what was seen and notes on it."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        start = prepare(Path(place) / "start")
        times = {}
        for name, (command, _, _) in COMMANDS.items():  # also warms what children inherit
            space = copied(start, Path(place) / "warm", name)
            began = time.perf_counter()
            if not in_child(lambda command=command, space=space: command(space), None):  # type: ignore[misc]
                raise SystemExit(f"{name} fails without being stopped")
            times[name] = time.perf_counter() - began
        for number in range(count):
            name = list(COMMANDS)[number % len(COMMANDS)]
            space = copied(start, Path(place) / "trial", name)
            command = COMMANDS[name][0]
            ended = in_child(lambda command=command, space=space: command(space), rng.uniform(0, 1.1 * times[name]))  # type: ignore[misc]
            outcomes["stops"] += 1
            outcomes["came to its end"] += int(ended)
            check(space, name, outcomes, notes)
            if number % 50 == 49:
                report(outcomes)
    return outcomes, notes


def copied(start: Workspace, target: Path, name: str) -> Workspace:
    """Return a copy of the workspace; without its index where that is to be built."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(start.folder, target)
    if name == "build":
        shutil.rmtree(target / "my.index")
    return Workspace(target)


def damages(count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Change or cut a file of the workspace; return what came of it."""
    rng = random.Random(seed)
    outcomes: Counter[str] = Counter()
    notes: list[str] = []
    with tempfile.TemporaryDirectory() as place:
        start = prepare(Path(place) / "start")
        expected = [hits.ids for hits in start.load().search_many(QUERIES, k=5, budget=20)]
        for _ in range(count):
            space = copied(start, Path(place) / "trial", "search")
            files = sorted(path for path in space.folder.rglob("*") if path.is_file() and path.stat().st_size)
            path = rng.choice(files)
            data = bytearray(path.read_bytes())
            if rng.random() < 0.3:
                data = data[: rng.randrange(len(data))]
            else:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            path.write_bytes(bytes(data))
            outcomes["damages"] += 1
            try:
                found = [hits.ids for hits in space.load().search_many(QUERIES, k=5, budget=20)]
                same = found == expected
                outcomes["answered as before" if same else "answered differently"] += 1
                if not same and not crosscut.Index.verify(space.index):
                    outcomes["not noticed by verify"] += 1
                    notes.append(f"{path.name}: other answers, and verify finds nothing")
            except CrosscutError:
                outcomes["refused"] += 1
            except Exception as error:  # a crash is what this program looks for
                outcomes["crash"] += 1
                notes.append(f"{path.name}: {type(error).__name__}: {error}")
    return outcomes, notes


def run(count: int, damaged: int, seed: int, output: Path | None, report: Callable[[str], None]) -> dict[str, Any]:
    """Run stops and damages; write the counts as they come."""
    facts: dict[str, Any] = {"machine": machine(), "seed": seed}

    def keep(name: str, outcomes: Counter[str], notes: list[str]) -> None:
        facts[name] = dict(outcomes)
        facts[f"{name}_notes"] = notes[:20]
        report(f"{name}: {dict(outcomes)}")
        if output is not None:
            write(output, facts)

    keep("stops", *stops(count, seed, lambda outcomes: report(str(dict(outcomes)))))
    keep("damages", *damages(damaged, seed))
    return facts
