"""The embedded index at one to ten million items: build, save, load, search, filter, add 1,000, remove 1,000.

    python benchmarks/scale.py --data DATA --work WORK --items 1000000 10000000 --json …

    python benchmarks/scale.py … --items 10000000 --stages vectors build        # the long part, and then
    python benchmarks/scale.py … --items 10000000 --stages load search filter add remove    # the timed part

Items are the texts of the BEIR folders in DATA, repeated with small changes (a word left out, a number added); vectors
(d = 384, float16) are planted: one for each real text, around 4,000 centres, and a jittered copy for each repetition.
The scorer is a cheap function of the text, planted so that it agrees with the vectors in part.

Every stage is a process of its own. `peak` is the most memory it had resident, files that it maps included (ru_maxrss,
which the system counts); `private` the most of it that is not of files (looked at ten times a second). The benchmark's
own texts and vectors are part of both. Time outside the scorer is that of `index.search` without the
scorer's own. A search is *fresh* when what it reads was not compared with its checksums before, and *warm* later. With
and without a filter, and before and after a change, the same queries are warm; `first` is the first after the change.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.ann import clustered
from crosscut.datasets import Item, read_items
from crosscut.index import Index
from crosscut.methods import parse
from crosscut.threads import cores

D, HIDDEN = 384, 24
CENTRES = 4000
JITTER = 0.3
SETS = ("hotpotqa_sub", "wordnet_wsd", "medquad", "dclaw", "acl", "bible", "squad_sentences", "stackexchange")
STAGES = ("vectors", "build", "load", "search", "filter", "anchors", "add", "remove")
QUERIES = 64  # anchor queries, in the stage of that name
K, BUDGET, ROUNDS = 10, 100, 10
LONGEST = 400  # characters of a text


def texts(data: Path) -> list[tuple[str, str]]:
    """Real texts, and the set that each is of."""
    found = []
    for name in SETS:
        for item in read_items(data / name):
            found.append((name, f"{item.title} {item.text}".strip()[:LONGEST]))
    return found


def corpus(data: Path, n: int, start: int = 0) -> Iterator[Item]:
    """n items from `start` on."""
    real = texts(data)
    for row in range(start, start + n):
        name, text = real[row % len(real)]
        words = text.split()
        turn = row // len(real)
        if turn and len(words) > 3:
            del words[(row * 7919 + turn) % len(words)]
        yield Item(
            f"d{row}", "", f"{' '.join(words)} copy {turn} {row}", {"source": name, "year": 1950 + row * 31 % 75}
        )


def anchors(count: int) -> npt.NDArray[np.float32]:
    """(count × D) unit vectors of the real texts."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((CENTRES, D), np.float32)
    made = rng.standard_normal((count, D), np.float32)
    made *= 0.8
    for start in range(0, count, 1 << 14):  # in pieces: this memory is no part of the index
        some = made[start : start + (1 << 14)]
        some += centres[rng.integers(CENTRES, size=len(some))]
        some /= np.linalg.norm(some, axis=1, keepdims=True)
    return made


def jittered(base: npt.NDArray[np.float32], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float16]:
    """The vectors of some rows: those of their texts, moved a little."""
    rng = np.random.default_rng(int(rows[0]) + 1)
    made = base[rows % len(base)] + JITTER / D**0.5 * rng.normal(size=(len(rows), D)).astype(np.float32)
    return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float16)


class Scorer:
    """A planted scorer: what the vectors say, seen through a projection, and noise that is fixed for each item."""

    def __init__(self, count: int) -> None:
        self.base = anchors(count)
        self.hidden = np.random.default_rng(5).normal(size=(D, HIDDEN)).astype(np.float32) / HIDDEN**0.5
        self.projected = self.base @ self.hidden  # (count × HIDDEN)
        self.seconds = 0.0

    def __call__(self, query: str, given: list[str]) -> list[float]:
        started = time.perf_counter()
        rows = np.array([int(text.rsplit(" ", 1)[1]) for text in given])
        asked = self.projected[int(query.rsplit(" ", 1)[1])]
        noise = ((rows * 2654435761) % 1000) / 1000 * 0.2
        scores = self.projected[rows % len(self.base)] @ asked + noise
        self.seconds += time.perf_counter() - started
        return [float(score) for score in scores]


def vectors(path: Path, n: int, count: int) -> None:
    """Write (n × D) to a .npy file."""
    base = anchors(count)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(n, D))
    for start in range(0, n, 1 << 15):
        rows = np.arange(start, min(start + (1 << 15), n))
        out[rows[0] : rows[-1] + 1] = jittered(base, rows)
    out.flush()


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    got = action()
    return time.perf_counter() - started, got


def searches(index: Index, scorer: Scorer, count: int, start: int, **options: Any) -> list[float]:
    """Milliseconds outside the scorer of some searches."""
    times = []
    for number in range(start, start + count):
        row = (number * 104729) % len(scorer.base)
        vector = jittered(scorer.base, np.array([row + 10**9])).astype(np.float32)[0]
        words = " ".join(ALL[row][1].split()[:6])
        scorer.seconds = 0.0
        started = time.perf_counter()
        hits = index.search(
            f"{words} {row}", K, BUDGET, method=f"crosscut@rounds={ROUNDS}", query_vector=vector, **options
        )
        seconds = time.perf_counter() - started
        assert len(hits) == K
        assert hits.calls == BUDGET
        times.append(1000 * (seconds - scorer.seconds))
        LAST[:] = [hits]
    return times


def told(times: list[float]) -> dict[str, float]:
    return {"median": float(np.median(times)), "p90": float(np.quantile(times, 0.9)), "first": times[0]}


def stage(name: str, data: Path, work: Path, n: int) -> dict[str, Any]:
    """One stage, in this process."""
    folder, file = work / "scale.index", work / "vectors.npy"
    count = len(ALL)
    if name == "vectors":
        seconds, _ = timed(lambda: vectors(file, n, count))
        return {"seconds": seconds, "bytes": file.stat().st_size}
    scorer = Scorer(count)
    if name == "build":
        seconds, index = timed(
            lambda: Index.build(corpus(data, n), scorer=scorer, vectors=file, path=folder, progress=_progress())
        )
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        return {"seconds": seconds, "items": len(index), "bytes": size, "per_item_us": 1e6 * seconds / n}
    seconds, index = timed(lambda: Index.load(folder, scorer=scorer))
    got: dict[str, Any] = {"load_seconds": seconds}
    if name == "load":
        return {"seconds": seconds}
    if name == "search":
        searches(index, scorer, 2, 10**6)  # compiles
        got["fresh_ms"] = told(searches(index, scorer, 10, 0))
        searches(index, scorer, 100, 10)
        got["warm_ms"] = told(searches(index, scorer, 50, 60))
    if name == "filter":
        searches(index, scorer, 100, 10)
        chosen = {"year": {"gte": 2000}}
        got["first_ms"] = searches(index, scorer, 1, 5, filter=chosen)[0]
        got["fresh_ms"] = told(searches(index, scorer, 50, 10, filter=chosen))  # its lists are other ones
        pairs = [
            (searches(index, scorer, 1, j)[0], searches(index, scorer, 1, j, filter=chosen)[0]) for j in range(10, 60)
        ]
        got["plain_ms"], got["filtered_ms"] = (told(list(each)) for each in zip(*pairs, strict=True))
        got["ratio"] = got["filtered_ms"]["median"] / got["plain_ms"]["median"]
    if name == "anchors":
        got |= with_anchors(index, scorer)
    if name == "add":
        rows = np.arange(n, n + 1000)
        more, items = jittered(scorer.base, rows), list(corpus(data, 1000, n))
        searches(index, scorer, 50, 10)
        got["add_seconds"], _ = timed(lambda: index.add(items, vectors=more))
        got["search_ms"] = told(searches(index, scorer, 50, 10))
        got["save_seconds"], _ = timed(index.save)
    if name == "remove":
        ids = [f"d{row}" for row in range(0, n, max(1, n // 1000))][:1000]
        searches(index, scorer, 50, 10)
        got["remove_seconds"], _ = timed(lambda: index.remove(ids))
        got["search_ms"] = told(searches(index, scorer, 50, 10))
        got["save_seconds"], _ = timed(index.save)
    return got


def with_anchors(index: Index, scorer: Scorer) -> dict[str, Any]:
    """Searches beside anchor scores, by lists and reading everything, in turn: milliseconds, and the share of the best
    k, of all items, that is found."""
    state = index.corpus
    assert state.arrival is not None
    rows = state.arrival.whole() % len(scorer.base)
    noise = ((state.arrival.whole() * 2654435761) % 1000) / 1000 * 0.2

    def scores(query: int) -> npt.NDArray[np.float32]:
        return np.asarray((scorer.projected @ scorer.projected[query])[rows] + noise, np.float32)

    asked = [(number * 7919 + 13) % len(scorer.base) for number in range(QUERIES)]
    known = np.stack([scores(query).astype(np.float16) for query in asked])
    made = replace(state, anchors=known, measured=np.ones(len(rows), np.bool_))
    small = clustered.SMALL
    times: dict[str, list[float]] = {}
    found: dict[str, list[float]] = {}
    states = {}
    for how, least in (("lists", small), ("flat", len(rows) + 1)):
        clustered.SMALL = least
        states[how] = replace(made)
        started = time.perf_counter()
        states[how].searcher(parse(f"crosscut@rounds={ROUNDS}"))
        index.corpus = states[how]
        searches(index, scorer, 10, 10)
        times[how], found[how] = [], []
        print(f"{how} {time.perf_counter() - started:.1f} s to prepare", file=sys.stderr)
    clustered.SMALL = small
    for number in range(10, 30):
        best = {
            f"d{state.arrival.array[place]}" for place in np.argsort(-scores((number * 104729) % len(scorer.base)))[:K]
        }
        for how, one in states.items():
            index.corpus = one
            times[how].append(searches(index, scorer, 1, number)[0])
            found[how].append(len(best & {*LAST[0].ids}) / K)
    return {
        how: {
            **told(times[how]),
            "recall": float(np.mean(found[how])),
            "topk": type(states[how].searcher(parse(f"crosscut@rounds={ROUNDS}")).plan.topk).__name__,
        }
        for how in states
    }


def _progress() -> Callable[[str, int, int], None]:
    last: dict[str, float] = {}

    def show(what: str, done: int, total: int) -> None:
        if time.monotonic() - last.get(what, 0) > 20 or done in (0, total):
            last[what] = time.monotonic()
            print(f"{time.strftime('%X')} {what} {done:,}/{total:,}", file=sys.stderr)

    return show


class Memory:
    """The most memory that this process had, in gigabytes."""

    def __init__(self) -> None:
        self._private = 0.0
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while True:
            self._look()
            time.sleep(0.1)

    def _look(self) -> None:
        lines = Path("/proc/self/status").read_text().splitlines()
        now = next(line for line in lines if line.startswith("RssAnon"))
        self._private = max(self._private, int(now.split()[1]) / 1e6)

    def told(self) -> dict[str, float]:
        self._look()
        return {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, "private": self._private}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--items", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    parser.add_argument("--inside", action="store_true", help="run the one stage in this process")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    if arguments.inside:
        global ALL
        memory = Memory()
        ALL = texts(arguments.data)
        got = stage(arguments.stages[0], arguments.data, arguments.work, arguments.items[0])
        print(json.dumps({**got, "memory_gb": memory.told()}))
        return
    for n in arguments.items:
        work = arguments.work / str(n)
        if STAGES[0] in arguments.stages:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        for name in arguments.stages:
            command = [sys.executable, __file__, "--data", arguments.data, "--work", work, "--inside"]
            done = subprocess.run([*command, "--items", str(n), "--stages", name], stdout=subprocess.PIPE, check=True)
            print(n, name, done.stdout.decode().strip(), flush=True)
            if name == "build":
                (work / "vectors.npy").unlink()
            if arguments.json is not None:
                keep(arguments.json, n, name, json.loads(done.stdout))
        if STAGES[-1] in arguments.stages:
            shutil.rmtree(work)


def keep(path: Path, n: int, name: str, got: dict[str, Any]) -> None:
    """Write a stage beside those that are there."""
    facts = {
        "machine": platform.processor() or platform.machine(),
        "cores": cores(),
        "python": platform.python_version(),
    }
    about = {"d": D, "dtype": "float16", "k": K, "budget": BUDGET, "rounds": ROUNDS, **facts}
    before = json.loads(path.read_text()) if path.exists() else {"items": {}}
    runs = before["items"]
    about |= {"note": before["note"]} if "note" in before else {}
    runs.setdefault(str(n), {})[name] = got
    grown = {}
    if len(runs) > 1:
        least, most = min(runs, key=int), max(runs, key=int)
        grown = {"from": int(least), "to": int(most), **growth(runs[least], runs[most])}
    path.write_text(json.dumps({**about, "items": runs, "growth": grown}, indent=1) + "\n")


GROWING = {
    "build": "seconds",
    "load": "seconds",
    "search": "warm_ms",
    "filter": "filtered_ms",
    "add": "add_seconds",
    "remove": "remove_seconds",
}


def growth(small: dict[str, Any], large: dict[str, Any]) -> dict[str, float]:
    """How many times as long each takes at the larger size."""

    def number(run: dict[str, Any], name: str) -> float:
        value = run[name][GROWING[name]]
        return float(value["median"] if isinstance(value, dict) else value)

    return {name: number(large, name) / number(small, name) for name in GROWING if name in small and name in large}


ALL: list[tuple[str, str]] = []
LAST: list[Any] = []  # the hits of the last search

if __name__ == "__main__":
    main()
