"""What `crosscut search` costs beside its models: a command, from its start to its hits, on a saved index.

Every search is a process of its own. What the encoder and the scorer take, their loading and that of onnxruntime
included, is taken off; the rest is imports, the index, round one, the loop and the table. The figure is CPU time, user
and system, of all threads: the lowest of the runs, which go in turns over the indexes. Modules come as bytecode and
compiled loops out of their cache, as from the second search of an installed package on.

    python benchmarks/startup.py [--items 50000] [--known 50000] [--runs 5] [--out benchmarks/results/startup.json]

Indexes: `planted`, whose scorer and encoder are functions of a text's words; `box`, with the models of the box, which
keeps the vectors of every token, and whose texts come ten times each to be encoded once. All are short, of drawn words.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import numpy as np

DIMENSIONS = 64
WORDS = 5000
DISTINCT = 5000  # texts of the box's index: each is encoded once
QUERY = "w17 w203 w1044 w8"
spent = 0.0
inside = 0


def text(rng: np.random.Generator) -> str:
    """Six to twelve words, some common and most rare."""
    ranks = np.minimum(rng.zipf(1.3, rng.integers(6, 13)), WORDS) if rng.random() < 0.5 else rng.integers(0, WORDS, 9)
    return " ".join(f"w{rank}" for rank in ranks)


def texts(n: int, distinct: int) -> list[str]:
    """n texts; after so many distinct ones they come again."""
    rng = np.random.default_rng(0)
    made = [text(rng) for _ in range(min(n, distinct))]
    return [made[place % len(made)] for place in range(n)]


def encode(given: Sequence[str]) -> np.ndarray:
    """A sum of fixed vectors of the words."""
    rows = []
    for one in given:
        row = np.zeros(DIMENSIONS, np.float32)
        for word in one.split():
            number = zlib.crc32(word.encode())
            row[number % DIMENSIONS] += 1.0
            row[number // DIMENSIONS % DIMENSIONS] -= 0.5
        rows.append(row / max(float(np.linalg.norm(row)), 1e-6))
    return np.asarray(rows)


def score(query: str, given: Sequence[str]) -> list[float]:
    """Twice the words shared, less a little for every letter that differs in number."""
    asked = set(query.split())
    return [2.0 * len(asked & set(one.split())) - 0.01 * abs(len(one) - len(query)) for one in given]


def counted(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same, its CPU time taken off; what is called within is counted once."""

    @wraps(work)
    def run(*given: Any, **named: Any) -> Any:
        global spent, inside
        began = time.process_time()
        inside += 1
        try:
            return work(*given, **named)
        finally:
            inside -= 1
            if not inside:
                spent += time.process_time() - began

    return run


def search(kind: str, path: str) -> None:
    """In a process of its own: the command itself, with a clock around the models."""
    from crosscut.cli import main
    from crosscut.index import Index, keeping

    if kind == "planted":
        load = Index.load
        models = {"scorer": counted(score), "encoder": counted(encode)}
        Index.load = lambda where, **how: load(where, **{**how, **models})  # type: ignore[method-assign]
    else:
        from crosscut.scorers.onnx import BoundBaseScorer

        from crosscut.bundled.encoder import BundledEncoder

        for name in ("load_scorer", "load_encoder"):
            setattr(keeping, name, counted(getattr(keeping, name)))
        for home, name in (
            (BundledEncoder, "encode_queries"),
            (BundledEncoder, "read_queries"),
            (BoundBaseScorer, "costly_many"),
        ):
            setattr(home, name, counted(getattr(home, name)))
    sys.argv = ["crosscut", "search", path, QUERY, "-k", "10", "--budget", "100"]
    with contextlib.suppress(SystemExit):
        main()
    used = time.process_time()
    print(json.dumps({"cpu": used, "models": spent, "outside": used - spent}), file=sys.stderr)


def build(kind: str, n: int, path: Path) -> None:
    from crosscut import Index

    if kind == "planted":
        Index.build(texts(n, n), scorer=score, encoder=encode).save(path)
        return
    from crosscut.bundled.encoder import BundledEncoder

    read = BundledEncoder.read_items

    def read_once(self: Any, items: Sequence[Any], **how: Any) -> Any:
        places = np.arange(len(items)) % DISTINCT
        vectors, tokens = read(self, items[:DISTINCT], **how)
        return vectors[places], tokens.taken(places)

    BundledEncoder.read_items = read_once  # type: ignore[method-assign]
    try:
        Index.build(texts(n, DISTINCT)).save(path)
    finally:
        BundledEncoder.read_items = read  # type: ignore[method-assign]


def timed(kind: str, path: Path) -> dict[str, float]:
    command = [sys.executable, __file__, "--search", kind, str(path)]
    world = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    world |= {"COLUMNS": "120", "PYTHONPYCACHEPREFIX": str(path.parent / "bytecode")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=world)
    figures: dict[str, float] = json.loads(done.stderr.strip().splitlines()[-1])
    return figures


def size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def run() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=50_000, help="of the planted index")
    parser.add_argument("--known", type=int, default=50_000, help="of the index with the models of the box")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="where the indexes are, or are made and stay")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/startup.json"))
    parser.add_argument("--search", nargs=2, metavar=("KIND", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.search:
        search(*options.search)
        return
    with tempfile.TemporaryDirectory() as temporary:
        home = options.folder or Path(temporary)
        sizes = {"planted": options.items, "box": options.known}
        sizes = {kind: n for kind, n in sizes.items() if n}
        for kind, n in sizes.items():
            if not (home / kind).exists():
                build(kind, n, home / kind)
        for kind in sizes:
            timed(kind, home / kind)  # compiled loops and files are in their caches
        runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in sizes}
        for _ in range(options.runs):
            for kind in sizes:
                runs[kind].append(timed(kind, home / kind))
        found = {
            kind: {
                "items": n,
                "bytes": size(home / kind),
                **{name: round(min(one[name] for one in runs[kind]), 3) for name in ("cpu", "models", "outside")},
                "outside_each": [round(one["outside"], 3) for one in runs[kind]],
            }
            for kind, n in sizes.items()
        }
    report = {"timing": "CPU seconds of a process, the lowest of the runs, in turns", "runs": options.runs, **found}
    options.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    run()
