"""Kills, interrupts and damage: does everything on disk survive, and is everything that does not survive told?

    python benchmarks/soak.py [--seed 0] [--kills 1000] [--damages 3000] [--json benchmarks/results/soak.json]

**Kills.** Every command that writes is run in a process of its own, on a copy of the same folder, and stopped: by
SIGKILL or by SIGINT at a random one of the system calls that change something, before or after it, or by SIGKILL after
a random time. Several processes fill, merge and forget one score store and are killed together. Afterwards:

    lost          neither the old nor the new content is there, or not the new one though the command had returned
    unreadable    a file does not match its checksum
    locked        the lock is not free
    stuck         the same command, run again, fails or leaves more than one generation

**Damage.** A random file of every kind of folder gets flipped bits, is cut, extended, zeroed or shuffled, and is read
by a process of its own:

    told          refused with a sentence that names the place
    harmless      the same answers as before
    silent        other answers, and no word
    traceback     an exception that is not ours
    crashed       the process died
"""

from __future__ import annotations

import os

os.environ |= {"CROSSCUT_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # processes are forked: no threads

import argparse
import hashlib
import json
import logging
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.ann.files import KIND as CLUSTERED
from crosscut.ann.ivf import IVF
from crosscut.errors import CrosscutError
from crosscut.evaluation.report import machine
from crosscut.index import Index
from crosscut.index.folder import KIND as INDEX
from crosscut.scorers import TextScorer
from crosscut.scores import ScoreStore
from crosscut.spaces.factorization.factors import KIND as FACTORS
from crosscut.spaces.factorization.factors import Factors, Fitting
from crosscut.spaces.sparse import Normalisation
from crosscut.storage import Folder, Kind, write_json

CALLS = ("open", "mkdir", "fsync", "replace", "unlink", "rmdir")
TEXTS = [f"item {j} of the soak" for j in range(40)]
ITEMS = [{"id": f"i{j}", "text": text, "year": 1900 + j} for j, text in enumerate(TEXTS)]
QUERIES = [f"query {j}" for j in range(12)]


class Planted:
    """An encoder and a scorer made of hashes."""

    fingerprint = "soak"
    dimension = 8

    def encode_items(self, texts: Sequence[Any], *, progress: Any = None) -> Any:
        return np.array([_hashed(str(getattr(text, "text", text)), 8) for text in texts], np.float32).reshape(-1, 8)

    def encode_queries(self, texts: Sequence[str]) -> Any:
        return self.encode_items(texts)

    def score(self, query: str, texts: Sequence[str]) -> Any:
        return [float(_hashed(f"{query}\0{text}", 1)[0]) for text in texts]


def _hashed(text: str, size: int) -> Any:
    return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=4 * size).digest(), "<u4") / 2.0**31 - 1


WORLD = Planted()
SCORER = TextScorer(WORLD.score, fingerprint="soak")
TRUTH = np.array([WORLD.score(query, TEXTS) for query in QUERIES], np.float32)


def loaded(path: Path) -> Index:
    return Index.load(path, scorer=SCORER, encoder=WORLD)


def made(stop: int = 30, **how: Any) -> Index:
    return Index.build(ITEMS[:stop], scorer=SCORER, encoder=WORLD, queries=QUERIES, dtype=np.float32, **how)


def ivf(n: int) -> IVF:
    return IVF.build(WORLD.encode_items([f"vector {j}" for j in range(n)]), lists=8)


def factors(n: int) -> Factors:
    vectors = WORLD.encode_items([f"factor {j}" for j in range(n)])
    return Factors(vectors, vectors[:5], Normalisation(0.5, 2.0), Fitting("als", 1, 0, 1, 1, 5, [1], [1], [1], 0))


def index_content(path: Path) -> Any:
    index = loaded(path)
    return [list(item) for item in index.items], index.tuned is not None


# -- kills ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Command:
    """Something that writes: what it starts from, what it does, and how to see what is there."""

    name: str
    kind: Kind
    start: Callable[[Path], object]
    run: Callable[[Path], object]
    content: Callable[[Path], Any]


def _changed(change: Callable[[Index], object]) -> Callable[[Path], object]:
    def run(path: Path) -> None:
        index = loaded(path)
        change(index)
        index.save()

    return run


COMMANDS = [
    Command("index build", INDEX, lambda path: None, lambda path: made(20).save(path), index_content),
    Command("index add", INDEX, lambda path: made().save(path), _changed(lambda i: i.add(ITEMS[30:])), index_content),
    Command("index remove", INDEX, lambda path: made().save(path), _changed(lambda i: i.remove(["i3"])), index_content),
    Command(
        "index tune", INDEX, lambda path: made().save(path), _changed(lambda i: i.tune(None, 3, 20)), index_content
    ),
    Command("index save", INDEX, lambda path: made(20).save(path), lambda path: made().save(path), index_content),
    Command(
        "IVF.save",
        CLUSTERED,
        lambda path: ivf(200).save(path),
        lambda path: ivf(300).save(path),
        lambda path: np.asarray(IVF.load(path).vectors).tolist(),
    ),
    Command(
        "Factors.save",
        FACTORS,
        lambda path: factors(50).save(path),
        lambda path: factors(80).save(path),
        lambda path: Factors.load(path).array.tolist(),
    ),
]


def armed(at: int, sign: int, after: bool) -> list[int]:
    """Send this process a signal at the n-th system call that changes something; the count goes on in the result."""
    count = [0]

    def counted(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **how: Any) -> Any:
            count[0] += 1
            mine = count[0] == at
            if mine and not after:
                os.kill(os.getpid(), sign)
            result = real(*args, **how)
            if mine and after:
                os.kill(os.getpid(), sign)
            return result

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    return count


def forked(work: Callable[[], object]) -> int:
    """The process id of a child that does this: exit code 0, 1 for an error of ours, 3 for any other."""
    child = os.fork()
    if child:
        return child
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        work()
        os._exit(0)
    except (CrosscutError, KeyboardInterrupt):
        os._exit(1)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        os._exit(3)


def ended(child: int) -> int:
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status)


class Kills:
    """One command, stopped again and again."""

    def __init__(self, command: Command, folder: Path, rng: random.Random) -> None:
        self.command, self.rng = command, rng
        self.path, self.template, after = (folder / command.name.replace(" ", "-") / name for name in "abc")
        self.template.parent.mkdir()
        command.start(self.template)
        self.old = command.content(self.template) if self.template.exists() else None
        self._fresh(after)
        started = time.monotonic()
        assert not ended(forked(lambda: command.run(after)))
        self.seconds = time.monotonic() - started
        self.new = command.content(after)
        self._fresh(after)
        pipe = os.pipe()

        def measured() -> None:
            count = armed(0, 0, False)
            command.run(after)
            os.write(pipe[1], str(count[0]).encode())

        assert not ended(forked(measured))
        self.steps = int(os.read(pipe[0], 32))
        self.counts: Counter[str] = Counter()

    def _fresh(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        if self.template.exists():
            shutil.copytree(self.template, path)

    def once(self) -> None:
        self._fresh(self.path)
        how = self.rng.choice(["kill", "interrupt", "kill in time"])
        at, after = self.rng.randint(1, self.steps), self.rng.random() < 0.5
        sign = signal.SIGINT if how == "interrupt" else signal.SIGKILL

        def work() -> None:
            if how != "kill in time":
                armed(at, sign, after)
            self.command.run(self.path)

        child = forked(work)
        if how == "kill in time":
            time.sleep(self.rng.uniform(0, self.seconds))
            os.kill(child, signal.SIGKILL)
        code = ended(child)
        self.counts[how] += 1
        self.counts["returned before"] += code == 0
        self.counts["tracebacks"] += code == 3
        self._look(code)

    def _look(self, code: int) -> None:
        folder = Folder(self.path, self.command.kind)
        try:
            there = self.command.content(self.path) if (self.path / folder.kind.record).exists() else None
            self.counts["lost"] += there != self.new if code == 0 else there not in (self.old, self.new)
            self.counts["new content"] += there == self.new
            self.counts["unreadable"] += bool(there is not None and folder.verify())
        except CrosscutError:
            self.counts["unreadable"] += 1
        try:
            folder.lock().release()
        except CrosscutError:
            self.counts["locked"] += 1
        try:
            index = self.command.name.startswith("index ") and self.command.name not in ("index build", "index save")
            (self.command.run if not index else lambda path: loaded(path).save())(self.path)
            homes = [path for path in self.path.iterdir() if path.is_dir()]
            self.counts["stuck"] += len(homes) != 1 or bool(folder.verify())
        except CrosscutError:
            self.counts["stuck"] += 1


def fill_store(path: Path, log: Path, seed: int) -> None:
    """Writes blocks and pairs for ever and notes what the store has acknowledged; now and then it consolidates."""
    rng = random.Random(seed)
    store = ScoreStore(path, scorer_fingerprint="soak")
    with log.open("a") as notes:
        while True:
            row, start = rng.randrange(len(QUERIES)), rng.randrange(0, len(TEXTS), 8)
            block = TRUTH[row : row + 1, start : start + 8]
            if rng.random() < 0.7:
                store.put_block([QUERIES[row]], TEXTS, block, start=start)
            else:
                columns = np.arange(start, start + 8)
                store.put_pairs([QUERIES[row]], TEXTS, np.zeros(8, np.int64), columns, block[0])
            notes.write(f"{row} {start}\n")
            notes.flush()
            if rng.random() < 0.05:
                store.consolidate()


def kill_store(kills: int, folder: Path, rng: random.Random) -> dict[str, int]:
    counts: Counter[str] = Counter(dict.fromkeys(("lost", "wrong", "unreadable", "locked"), 0))
    path = folder / "store"
    logs = [folder / f"log{j}" for j in range(3)]
    for number in range(kills):
        if number % 10 == 0:
            shutil.rmtree(path, ignore_errors=True)
            for log in logs:
                log.unlink(missing_ok=True)
        seeds = [rng.randrange(1 << 30) for _ in logs]
        running = [
            forked(lambda log=log, seed=seed: fill_store(path, log, seed))  # type: ignore[misc]
            for log, seed in zip(logs, seeds, strict=True)
        ]
        time.sleep(rng.uniform(0.02, 0.3))
        for child in running:
            os.kill(child, rng.choice([signal.SIGKILL, signal.SIGINT]))
        for child in running:
            ended(child)
        counts["kills of three writers"] += 1
        store = ScoreStore(path, scorer_fingerprint="soak")
        counts["unreadable"] += len(store.verify())
        found = store.matrix(QUERIES, TEXTS, partial=True)
        known = ~np.isnan(found)
        counts["wrong"] += int((found[known] != TRUTH[known]).sum())
        for log in logs:
            for line in log.read_text().splitlines() if log.exists() else ():
                row, start = map(int, line.split())
                counts["acknowledged"] += 1
                counts["lost"] += int((~known[row, start : start + 8]).sum())
        store.consolidate()  # waits for the lock; a watchdog would find a store that never lets go
    return dict(counts)


# -- damage --------------------------------------------------------------------------------------------------------


def store_look(path: Path) -> Any:
    """Scores, with what was reported damaged taken for right: it is scored again."""
    logging.getLogger("crosscut.scores").setLevel(logging.CRITICAL)
    store = ScoreStore.open(path)
    found = np.asarray(store.matrix(QUERIES, TEXTS, partial=True))
    extra = store.pairs(["another query"], TEXTS).scores.tolist()
    if store.damaged:
        found, extra = np.where(np.isnan(found), TRUTH, found), extra or [0.5, 0.25]
    return found.tolist(), extra


def make_store(path: Path) -> None:
    store = ScoreStore(path, scorer_fingerprint="soak")
    store.put_block(QUERIES[:6], TEXTS, TRUTH[:6])
    store.consolidate(QUERIES[:6], TEXTS)
    store.put_block(QUERIES[6:], TEXTS, TRUTH[6:])
    store.put_pairs(["another query"], TEXTS, [0, 0], [3, 4], [0.5, 0.25])


def index_look(path: Path) -> Any:
    index = loaded(path)
    hits = index.search("query 50 of the soak", 5, 20)
    return index_content(path), hits.ids, index.method, index.anchor_queries


def ivf_look(path: Path) -> Any:
    index = IVF.load(path)
    found = index.search(WORLD.encode_queries(["a query"])[0], 5, rule=8)
    return found.ids.tolist(), found.scores.tolist(), index.metric, index.rule


def factors_look(path: Path) -> Any:
    again = Factors.load(path)
    return again.array.tolist(), again.query_factors.tolist(), again.normalisation, again.fitting


KINDS: dict[str, tuple[Callable[[Path], object], Callable[[Path], Any]]] = {
    "index with anchors": (lambda path: made().save(path), index_look),
    "index with factors": (lambda path: made(space="als", per_query=10).save(path), index_look),
    "IVF": (lambda path: ivf(300).save(path), ivf_look),
    "factors": (lambda path: factors(50).save(path), factors_look),
    "score store": (make_store, store_look),
}


def harmed(good: bytes, rng: random.Random) -> bytes:
    """The bytes of a file after an accident."""
    data = bytearray(good)
    how = rng.choice(["flip", "cut", "extend", "zero", "shuffle"])
    place, other = (rng.randrange(max(len(data), 1)) for _ in "ab")
    if how == "flip" and data:
        for _ in range(rng.choice([1, 1, 4])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == "cut":
        del data[place:]
    elif how == "extend":
        data += rng.randbytes(rng.randrange(1, 100))
    elif how == "zero":
        data[place : place + 64] = bytes(len(data[place : place + 64]))
    else:
        data[place : place + 16], data[other : other + 16] = data[other : other + 16], data[place : place + 16]
    return bytes(data)


def damage(kind: str, damages: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    make, look = KINDS[kind]
    path = folder / f"damaged {kind}"
    make(path)
    right = look(path)
    files = sorted(file for file in path.rglob("*") if file.is_file() and not file.name.endswith("lock"))
    counts: Counter[str] = Counter(dict.fromkeys(("told", "harmless", "silent", "traceback", "crashed"), 0))
    words = ["told", "harmless", "silent", "traceback"]
    for number in range(damages):
        victim = files[number % len(files)]
        good = victim.read_bytes()
        victim.write_bytes(harmed(good, rng))

        def read() -> None:
            try:
                found = look(path)
            except CrosscutError as error:
                os._exit(10 if str(path) in str(error) else 13)
            os._exit(11 if found == right else 12)

        code = ended(forked(read))
        word = words[code - 10] if 10 <= code < 14 else "traceback" if code == 3 else "crashed"
        counts[word] += 1
        if word in ("silent", "traceback", "crashed"):
            print(f"{kind}: {victim.relative_to(path)} {word}", file=sys.stderr)
        victim.write_bytes(good)
    return {"files": len(files), **counts}


def data_half(seed: int, kills: int, damages: int) -> dict[str, Any]:
    """Everything that is kept on disk."""
    started = time.perf_counter()
    report: dict[str, Any] = {"kills": {}, "damages": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = random.Random(seed)
        share = -(-kills // (len(COMMANDS) + 1))
        for command in COMMANDS:
            stopped = Kills(command, folder, rng)
            for _ in range(share):
                stopped.once()
            report["kills"][command.name] = {"system calls": stopped.steps, **stopped.counts}
            print(command.name, report["kills"][command.name], file=sys.stderr)
        report["kills"]["score store"] = kill_store(share, folder, rng)
        print("score store", report["kills"]["score store"], file=sys.stderr)
        for kind in KINDS:
            report["damages"][kind] = damage(kind, -(-damages // len(KINDS)), folder, rng)
            print(kind, report["damages"][kind], file=sys.stderr)
    bad = ("lost", "unreadable", "locked", "stuck", "tracebacks", "wrong", "silent", "traceback", "crashed")
    found = [*report["kills"].values(), *report["damages"].values()]
    report["bad"] = {word: sum(counts.get(word, 0) for counts in found) for word in bad}
    report["stopped"] = share * (len(COMMANDS) + 1)
    report["damaged"] = -(-damages // len(KINDS)) * len(KINDS)
    report["seconds"] = time.perf_counter() - started
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--damages", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    data = data_half(arguments.seed, arguments.kills, arguments.damages)
    passed = not any(data["bad"].values())
    report = {"benchmark": "soak", "machine": machine(), "seed": arguments.seed, "passed": passed, "data": data}
    print(json.dumps(report, indent=1))
    if arguments.json:
        write_json(arguments.json, report)
    sys.exit(not passed)


if __name__ == "__main__":
    main()
