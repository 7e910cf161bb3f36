"""Kills, interrupts and damage: does everything on disk survive, and is everything that does not survive told?

    python benchmarks/soak.py [--seed 0] [--kills 1000] [--damages 3000] [--json benchmarks/results/soak.json]

The JSON is written after every part; a run that was stopped goes on from it. `--again "large index"` repeats a part.
What is attacked stands in `soak_kinds.py`.

**Kills.** Every command that writes is run in a process of its own, on a copy of the same folder, and stopped: by
SIGKILL or by SIGINT at a random one of the system calls that change something, before or after it, or by SIGKILL after
a random time. Several processes fill, merge and forget one score store, or append to one log of searches, and are
killed together. Afterwards:

    lost          neither the old nor the new content is there, or not the new one though the command had returned
    unreadable    a file does not match its checksum
    locked        the lock is not free
    stuck         the same command, run again, fails or leaves more than one generation
    not forgotten what one of several writers had forgotten was brought back by another

**Damage.** A random file of every kind of folder gets flipped bits, is cut, extended, zeroed or shuffled, and is read
by a process of its own:

    told          refused with a sentence that names the place
    harmless      the same answers as before
    silent        other answers, and no word
    traceback     an exception that is not ours
    crashed       the process died

Corpora are files of somebody else's making, in which nothing tells a wrong letter: they are harmless if they are read.
"""

from __future__ import annotations

import os

os.environ |= {"CROSSCUT_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # processes are forked: no threads

import argparse
import hashlib
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.report import machine

from crosscut.errors import CrosscutError
from crosscut.index.log import Logged, SearchLog
from crosscut.index.streaming import BUILDING
from crosscut.score_store import ScoreStore
from crosscut.score_store.keys import text_hash
from crosscut.storage import Folder, write_json
from soak_kinds import COMMANDS, KINDS, QUERIES, TEXTS, TRUTH, Command, logged, warm_up

CALLS = ("open", "mkdir", "fsync", "replace", "unlink", "rmdir")
HOW = ("kill", "interrupt", "kill in time", "kills of three writers")
NOTHING = np.zeros(1, np.float32)
OUTCOMES = ("told", "harmless", "silent", "traceback", "crashed")
BAD = ("lost", "unreadable", "locked", "stuck", "tracebacks", "wrong", "not forgotten", *OUTCOMES[2:])


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
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # one that comes before its handler waits for it
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        return child
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
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


def all_stopped(children: list[int], rng: random.Random) -> None:
    """Kill or interrupt processes that would go on for ever; one that an interrupt does not end is killed."""
    for child in children:
        os.kill(child, rng.choice([signal.SIGKILL, signal.SIGINT]))
    end = time.monotonic() + 10
    while children and time.monotonic() < end:
        children = [child for child in children if not os.waitpid(child, os.WNOHANG)[0]]
        time.sleep(0.01)
    for child in children:
        os.kill(child, signal.SIGKILL)
        ended(child)


def asked(work: Callable[[], object]) -> str:
    """What a process of its own says: a hash of the answer, or what it failed with."""
    pipe = os.pipe()

    def answer() -> None:
        try:
            said = "answer " + hashlib.sha256(repr(work()).encode()).hexdigest()
        except CrosscutError as error:
            said = f"told {error}"
        os.write(pipe[1], said[:4000].encode())

    code = ended(forked(answer))
    os.close(pipe[1])
    with os.fdopen(pipe[0], "rb") as file:
        said = file.read().decode(errors="replace")
    return said if code == 0 else "traceback" if code in (1, 3) else "crashed"


class Kills:
    """One command, stopped again and again."""

    def __init__(self, command: Command, folder: Path, rng: random.Random) -> None:
        self.command, self.rng = command, rng
        self.path, self.template, after = (folder / command.name.replace(" ", "-") / name for name in "abc")
        self.template.parent.mkdir()
        assert not ended(forked(lambda: command.start(self.template)))
        self.before = {asked(lambda: command.content(self.template)) if self.template.exists() else None}
        if command.half is not None:
            half = command.half
            self._fresh(after)
            assert not ended(forked(lambda: half(after)))
            self.before.add(asked(lambda: command.content(after)))
        self._fresh(after)
        started = time.monotonic()
        assert not ended(forked(lambda: command.run(after)))
        self.seconds = time.monotonic() - started
        self.new = asked(lambda: command.content(after))
        assert "answer" in self.new, self.new
        self._fresh(after)
        pipe = os.pipe()

        def measured() -> None:
            count = armed(0, 0, False)
            command.run(after)
            os.write(pipe[1], str(count[0]).encode())

        assert not ended(forked(measured))
        self.steps = int(os.read(pipe[0], 32))
        self.counts: Counter[str] = Counter(dict.fromkeys(("tracebacks", "lost", "unreadable", "locked", "stuck"), 0))

    def _fresh(self, path: Path) -> None:
        shutil.rmtree(path, ignore_errors=True)
        shutil.rmtree(path.with_name(path.name + BUILDING), ignore_errors=True)
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
        before = +self.counts
        self.counts["tracebacks"] += code == 3
        self._look(code)
        for word in ("tracebacks", "lost", "unreadable", "locked", "stuck"):
            if self.counts[word] > before[word]:
                print(f"{self.command.name}: {word} after {how} at {at} of {self.steps}", file=sys.stderr)

    def _look(self, code: int) -> None:
        folder = Folder(self.path, self.command.kind)
        there = None
        if (self.path / folder.kind.record).exists():
            there = asked(lambda: self.command.content(self.path))
        if there is not None and not there.startswith("answer"):
            self.counts["unreadable"] += 1
        else:
            self.counts["lost"] += there != self.new if code == 0 else there not in {*self.before, self.new}
            self.counts["new content"] += there == self.new
            self.counts["unreadable"] += bool(there is not None and folder.verify())
        try:
            folder.lock().release()
        except CrosscutError:
            self.counts["locked"] += 1
        again = asked(lambda: (self.command.again or self.command.run)(self.path))
        homes = [path for path in self.path.iterdir() if path.is_dir()]
        self.counts["stuck"] += not again.startswith("answer") or len(homes) != 1 or bool(folder.verify())


def fill_store(store: ScoreStore, log: Path, seed: int, private: list[str]) -> None:
    """Writes blocks and pairs for ever and notes what the store has acknowledged; now and then it consolidates, or has
    a private text forgotten, which the others go on scoring."""
    rng = random.Random(seed)
    with log.open("a") as notes:
        while True:
            texts = [*TEXTS, *private]
            row, start = rng.randrange(len(QUERIES)), rng.randrange(0, len(TEXTS), 8)
            block = TRUTH[row : row + 1, start : start + 8]
            if rng.random() < 0.7:
                store.put_block([QUERIES[row]], texts, block, start=start)
            else:
                columns = np.append(np.arange(start, start + 8), len(TEXTS) + rng.randrange(len(private)))
                store.put_pairs([QUERIES[row]], texts, np.zeros(9, np.int64), columns, np.append(block[0], 0.0))
            notes.write(f"{row} {start}\n")
            if rng.random() < 0.05:
                store.verify()
            elif rng.random() < 0.05 and len(private) > 1:
                gone = private.pop(rng.randrange(len(private)))  # scored by the others still
                store.forget([gone])
                notes.write(f"forgot {gone}\n")
            notes.flush()


def fill_log(log: SearchLog, notes: Path, number: int) -> None:
    """Appends searches for ever, notes what the log has taken, and now and then has an item forgotten, which the others
    go on scoring."""
    with notes.open("a") as told:
        for turn, start in enumerate(range(number, 1 << 30, 30)):
            private = f"private {turn // 20}"
            log.append([*logged(start, 1), Logged(private, "m", 0.0, [private], NOTHING, NOTHING)])
            told.write(f"{start}\n")
            if turn % 20 == 19:
                log.forget(queries=["a query that was never asked"], ids=[private])
                told.write(f"forgot {private}\n")
            told.flush()


def kill_log(kills: int, folder: Path, rng: random.Random) -> dict[str, int]:
    counts: Counter[str] = Counter(dict.fromkeys(("lost", "wrong", "locked", "not forgotten"), 0))
    path = folder / "searches.log"
    notes = [folder / f"notes{j}" for j in range(3)]
    for _ in range(kills):
        for file in (path, *notes):
            file.unlink(missing_ok=True)
        log = SearchLog(path, limit=1 << 24)  # opened by all before anything is forgotten
        log.begin()
        running = [forked(partial(fill_log, log, file, number)) for number, file in enumerate(notes)]
        time.sleep(rng.uniform(0.02, 0.3))
        all_stopped(running, rng)
        counts["kills of three writers"] += 1
        found = SearchLog(path).read()
        read = {search.query: repr(search) for search in found if not search.query.startswith("private")}
        there = {search.query for search in found}
        counts["wrong"] += sum(repr(logged(int(query[1:]), 1)[0]) != told for query, told in read.items())
        for file in notes:
            for line in file.read_text().splitlines() if file.exists() else ():
                counts["acknowledged"] += 1
                if line.startswith("forgot"):
                    counts["not forgotten"] += line.removeprefix("forgot ") in there
                else:
                    counts["lost"] += f"q{line}" not in read and int(line) % 7 > 0  # one that scored nothing is dropped
        SearchLog(path).append(logged(1, 1))  # waits for the lock
    return dict(counts)


def kill_store(kills: int, folder: Path, rng: random.Random) -> dict[str, int]:
    counts: Counter[str] = Counter(dict.fromkeys(("lost", "wrong", "unreadable", "locked", "not forgotten"), 0))
    path = folder / "store"
    logs = [folder / f"log{j}" for j in range(3)]
    for number in range(kills):
        if number % 10 == 0:
            shutil.rmtree(path, ignore_errors=True)
            for log in logs:
                log.unlink(missing_ok=True)
        seeds = [rng.randrange(1 << 30) for _ in logs]
        private = [f"private text {number} {j}" for j in range(10)]
        store = ScoreStore(path, scorer_fingerprint="soak").create()  # opened by all before anything is forgotten
        running = [
            forked(partial(fill_store, store, log, seed, private)) for log, seed in zip(logs, seeds, strict=True)
        ]
        time.sleep(rng.uniform(0.02, 0.3))
        all_stopped(running, rng)
        counts["kills of three writers"] += 1
        store = ScoreStore(path, scorer_fingerprint="soak")
        counts["unreadable"] += len(store.verify())
        found = store.matrix(QUERIES, TEXTS, partial=True)
        known = ~np.isnan(found)
        counts["wrong"] += int((found[known] != TRUTH[known]).sum())
        held = b"".join(file.read_bytes() for file in path.rglob("*") if file.is_file())
        for log in logs:
            for line in log.read_text().splitlines() if log.exists() else ():
                if line.startswith("forgot"):
                    counts["not forgotten"] += text_hash(line.removeprefix("forgot ")) in held
                    continue
                row, start = map(int, line.split())
                counts["acknowledged"] += 1
                counts["lost"] += int((~known[row, start : start + 8]).sum())
        store.forget(["no text"])
    return dict(counts)


# -- damage --------------------------------------------------------------------------------------------------------


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
    path = folder / kind.replace(" ", "-") / "a"
    path.parent.mkdir()
    assert not ended(forked(lambda: make(path)))
    places = [path, path.with_name(path.name + BUILDING)]
    files = sorted(file for place in places for file in place.rglob("*") if file.is_file() and file.suffix != ".lock")
    good = {file: file.read_bytes() for file in files}
    empty = [file for file in files if file.name in ("lock", ".crosscut")]
    right = asked(lambda: look(path))
    assert right.startswith("answer"), right
    counts: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
    victims = [file for file in files if file not in empty]
    for number in range(damages):
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
        for file, data in good.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        victim = victims[number % len(victims)]
        victim.write_bytes(harmed(good[victim], rng))
        said = asked(lambda: look(path))
        word = said
        if said.startswith("answer"):
            word = "harmless" if said == right else "silent"
        elif said.startswith("told"):
            word = "told" if str(path) in said else "traceback"
        counts[word] += 1
        if word in ("silent", "traceback", "crashed"):
            print(f"{kind}: {victim.relative_to(path.parent)} {word}: {said[:200]}", file=sys.stderr)
    return {"files": len(victims), **counts}


def stopped(command: Command, kills: int, folder: Path, rng: random.Random) -> dict[str, Any]:
    attack = Kills(command, folder, rng)
    for _ in range(kills):
        attack.once()
    return {"system calls": attack.steps, **attack.counts}


Part = Callable[[Path, random.Random], dict[str, Any]]


def parts(kills: int, damages: int) -> dict[tuple[str, str], Part]:
    """What is done to everything that is kept on disk, by ("kills" or "damages", what is attacked)."""
    writers: dict[str, Callable[[int, Path, random.Random], dict[str, Any]]] = {
        **{command.name: partial(stopped, command) for command in COMMANDS},
        "score store": kill_store,
        "log of searches": kill_log,
    }
    share, part = -(-kills // len(writers)), -(-damages // len(KINDS))
    return {
        **{("kills", name): partial(attack, share) for name, attack in writers.items()},
        **{("damages", kind): partial(damage, kind, part) for kind in KINDS},
    }


def begun(path: Path | None, asked_for: dict[str, int]) -> dict[str, Any]:
    """What an earlier run with the same numbers has done, or nothing yet."""
    if path is not None and path.exists():
        report: dict[str, Any] = json.loads(path.read_text())
        if report.get("asked") == asked_for:
            return report
    return {"benchmark": "soak", "machine": machine(), "asked": asked_for, "kills": {}, "damages": {}}


def summed(report: dict[str, Any]) -> None:
    found = [*report["kills"].values(), *report["damages"].values()]
    report["bad"] = {word: sum(counts.get(word, 0) for counts in found) for word in BAD}
    report["stopped"] = sum(sum(counts.get(how, 0) for how in HOW) for counts in report["kills"].values())
    report["damaged"] = sum(sum(counts[word] for word in OUTCOMES) for counts in report["damages"].values())
    report["seconds"] = round(sum(counts["seconds"] for counts in found), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--damages", type=int, default=3000)
    parser.add_argument("--json", type=Path, help="written after every part; a run that was stopped goes on from it")
    parser.add_argument("--again", nargs="*", default=[], help="parts to run again, by the name of what is attacked")
    arguments = parser.parse_args()
    warm_up()
    wanted = {"seed": arguments.seed, "kills": arguments.kills, "damages": arguments.damages}
    report = begun(arguments.json, wanted)
    for (attack, name), work in parts(arguments.kills, arguments.damages).items():
        if name in report[attack] and name not in arguments.again:
            continue
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            counts = work(Path(folder), random.Random(f"{arguments.seed} {attack} {name}"))
        report[attack][name] = {**counts, "seconds": round(time.perf_counter() - started, 1)}
        print(attack, name, report[attack][name], file=sys.stderr, flush=True)
        if arguments.json:
            write_json(arguments.json, report)
    summed(report)
    report["passed"] = not any(report["bad"].values())
    print(json.dumps(report, indent=1))
    if arguments.json:
        write_json(arguments.json, report)
    sys.exit(not report["passed"])


if __name__ == "__main__":
    main()
