"""A server while it changes, and what it needs: the bars of operation, measured.

    python benchmarks/operations.py [--only mixed,reload,add,sizes] [--json benchmarks/results/operations.json]

- `mixed`: eight searches at once whose scorer lies behind HTTP (50 ms a request), equal ones and such as differ in k,
  in turns. The bar: in the median, those that differ take at most 1.3 × as long.
- `reload`: 16 clients search without a pause, over two indexes, while the folder of one is replaced ten times.
- `add`: 1,000 items are added over HTTP, a hundred at a time, while four clients search.
- `sizes`: memory and latency of indexes of 10,000 and 100,000 items (vectors of 256 numbers, texts of 40 words), with a
  scorer that costs nothing: what the server needs beside its models.

What is in --json and not asked for stays as it is.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
from tests.fake_endpoint import served
from tests.served import running, score_words, small_index

import crosscut
from crosscut.scorers.rerank_api import RerankEndpoint
from crosscut.server import Settings, make_app

TURNS, CLIENTS, RELOADS, SIZES = 9, 16, 10, (10_000, 100_000)
SCORER = crosscut.TextScorer(score_words, fingerprint="words")


def mixed() -> dict[str, Any]:
    """Equal and different searches in turns."""

    def answer(body: dict[str, Any]) -> Any:
        time.sleep(0.05)
        scores = score_words(body["query"], body["documents"])
        return {"results": [{"index": j, "relevance_score": score} for j, score in enumerate(scores)]}

    seconds: dict[str, list[float]] = {"equal": [], "mixed": []}
    with (
        served(answer) as endpoint,
        RerankEndpoint(endpoint.url, concurrency=8) as scorer,
        running(make_app(small_index(scorer))) as url,
        httpx.Client(timeout=60) as client,
        ThreadPoolExecutor(8) as pool,
    ):

        def taken(ks: list[int]) -> float:
            bodies = [{"query": f"cat dog {k}", "k": k, "budget": 50} for k in ks]
            began = time.perf_counter()
            answers = list(pool.map(lambda body: client.post(f"{url}/search", json=body), bodies))
            if any(one.status_code != 200 for one in answers):
                raise RuntimeError(str([one.text for one in answers]))
            return time.perf_counter() - began

        for turn in range(TURNS + 1):
            for name, ks in (("equal", [5] * 8), ("mixed", list(range(3, 11)))):
                spent = taken(ks)
                if turn:  # the first is for warming up
                    seconds[name].append(spent)
    ratios = [one / other for one, other in zip(seconds["mixed"], seconds["equal"], strict=True)]
    return {
        "turns": TURNS,
        "seconds": {name: median(all_of) for name, all_of in seconds.items()},
        "ratio": median(ratios),
    }


class Asking:
    """Clients that search until they are told to stop."""

    def __init__(self, url: str, clients: int, indexes: list[str]) -> None:
        self.url, self.indexes = url, indexes
        self.stop = threading.Event()
        self.errors: list[str] = []
        self.milliseconds: list[float] = []
        self.threads = [threading.Thread(target=self._ask, args=(place,)) for place in range(clients)]

    def _ask(self, place: int) -> None:
        body = {"query": "cat sea", "k": 3, "budget": 20, "index": self.indexes[place % len(self.indexes)]}
        with httpx.Client(timeout=60) as client:
            while not self.stop.is_set():
                began = time.perf_counter()
                answer = client.post(f"{self.url}/search", json=body)
                self.milliseconds.append(1000 * (time.perf_counter() - began))
                if answer.status_code != 200:
                    self.errors.append(answer.text[:200])

    def __enter__(self) -> Asking:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()

    def told(self) -> dict[str, Any]:
        p50, p95 = np.percentile(self.milliseconds, [50, 95])
        return {"searches": len(self.milliseconds), "errors": len(self.errors), "p50_ms": p50, "p95_ms": p95}


def reload(folder: Path) -> dict[str, Any]:
    """A folder is replaced while 16 clients search two indexes."""
    for name in ("law", "news"):
        built({f"{name}{j}": f"cat {j} dog" for j in range(2000)}).save(folder / name)
    indexes = {name: crosscut.Index.load(folder / name, scorer=SCORER) for name in ("law", "news")}
    waits = []
    with running(make_app(indexes, Settings(reload_seconds=0.1))) as url, Asking(url, CLIENTS, list(indexes)) as asking:
        for number in range(RELOADS):
            index = crosscut.Index.load(folder / "news", scorer=SCORER)
            index.add({f"new{number}": "sea " * (number + 5)})
            index.save()
            began = time.perf_counter()
            while httpx.get(f"{url}/info", params={"index": "news"}, timeout=60).json()["items"] != 2001 + number:
                time.sleep(0.02)
            waits.append(time.perf_counter() - began)
    return {
        "clients": CLIENTS,
        "indexes": 2,
        "reloads": RELOADS,
        "seconds_until_served": median(waits),
        **asking.told(),
    }


def add(folder: Path) -> dict[str, Any]:
    """1,000 items over HTTP while four clients search."""
    os.environ["CROSSCUT_WRITE_TOKEN"] = "may-write"
    built({f"i{j}": f"cat {j}" for j in range(2000)}).save(folder / "adding")
    index = crosscut.Index.load(folder / "adding", scorer=SCORER)
    with running(make_app({"adding": index}, Settings())) as url, Asking(url, 4, ["adding"]) as asking:
        began = time.perf_counter()
        for start in range(0, 1000, 100):
            items = [{"id": f"n{j}", "text": f"stone {j}"} for j in range(start, start + 100)]
            headers = {"authorization": "Bearer may-write"}
            httpx.post(f"{url}/items", json={"items": items}, headers=headers, timeout=60).raise_for_status()
        seconds = time.perf_counter() - began
        found = httpx.get(f"{url}/info", timeout=60).json()["items"]
    saved = len(crosscut.Index.load(folder / "adding", scorer=SCORER))
    return {"added": 1000, "seconds": seconds, "items_served": found, "items_saved": saved, **asking.told()}


def built(texts: dict[str, str]) -> crosscut.Index:
    return crosscut.Index.build(texts, scorer=SCORER, encoder=None, method="hybrid")


def sizes(folder: Path) -> dict[str, Any]:
    """Memory and latency, each size in a process of its own."""
    made = {}
    for n in SIZES:
        rng = np.random.default_rng(0)
        words = np.array([f"word{j}" for j in range(20_000)])
        drawn = words[np.minimum(rng.zipf(1.3, (n, 40)) - 1, len(words) - 1)]
        texts = [" ".join(row) for row in drawn]
        vectors = rng.normal(size=(n, 256)).astype(np.float16)
        index = crosscut.Index.build(texts, vectors=vectors, scorer=SCORER)
        index.save(folder / str(n))
        del index
        command = [sys.executable, __file__, "--size", str(folder / str(n))]
        made[str(n)] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return made


def size(folder: Path) -> dict[str, float]:
    """One index: memory before, after loading and after searches; milliseconds of a search with 100 calls."""
    before = resident()
    index = crosscut.Index.load(
        folder, scorer=crosscut.TextScorer(lambda query, texts: [0.0] * len(texts), fingerprint="none"), any_scorer=True
    )
    loaded = resident()
    rng = np.random.default_rng(1)
    taken = []
    for number in range(40):
        began = time.perf_counter()
        index.search(f"word{number} word{2 * number}", 10, 100, query_vector=rng.normal(size=256))
        taken.append(1000 * (time.perf_counter() - began))
    on_disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    p50, p95 = np.percentile(taken[5:], [50, 95])
    told = {"before": before, "loaded": loaded, "after_searches": resident(), "on_disk": on_disk}
    return {**{f"mb_{name}": value / 1e6 for name, value in told.items()}, "p50_ms": p50, "p95_ms": p95}


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="mixed,reload,add,sizes")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--size", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.size is not None:
        print(json.dumps(size(given.size)))
        return
    known = json.loads(given.json.read_text()) if given.json is not None and given.json.exists() else {}
    known["machine"] = {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "mixed": mixed,
            "reload": lambda: reload(folder),
            "add": lambda: add(folder),
            "sizes": lambda: sizes(folder),
        }
        for part in given.only.split(","):
            known[part] = parts[part]()
            print(part, json.dumps(known[part]), flush=True)
            if given.json is not None:
                given.json.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
