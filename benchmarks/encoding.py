"""What it costs to read long texts for both encoders: this version against an earlier one, in turns.

    python benchmarks/encoding.py DATA [--before 06db54a] [--items 300] [--runs 3]

DATA is a folder with corpus.jsonl.gz, such as ../shared/data/medquad: its answers are long. Every run is a process of
its own: `Index.build` with the models in the box, then `preload`, after which no item has to be read again. The figure
is CPU time, user and system, of all threads, a text. The earlier version is taken from this repository's history; it
has its own models, of the same shape.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.turns import FIRST_VERSION, checked_out, spread


def texts(data: Path, count: int) -> list[dict[str, str]]:
    with gzip.open(data / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for _, line in zip(range(count), lines, strict=False)]


def read(data: Path, count: int) -> dict[str, float]:
    """In a process of its own: CPU seconds and seconds by the clock, until every item was read for both encoders."""
    from crosscut import Index

    items = texts(data, count)
    Index.build(items[:8]).preload()  # models are loaded
    clocks = time.process_time, time.perf_counter
    began = [clock() for clock in clocks]
    index = Index.build(items)
    built = [clock() for clock in clocks]
    index.preload()
    ended = [clock() for clock in clocks]
    return {
        "vectors_cpu_ms": 1000 * (built[0] - began[0]) / len(items),
        "cpu_ms": 1000 * (ended[0] - began[0]) / len(items),
        "ms": 1000 * (ended[1] - began[1]) / len(items),
    }


def timed(source: Path, data: Path, count: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.encoding", str(data), "--items", str(count), "--once"]
    here = Path(__file__).parent.parent
    world = os.environ | {"PYTHONPATH": os.pathsep.join([str(source), str(here)])}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=world, cwd=here)
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def run() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--before", default=FIRST_VERSION, help="a revision of this repository")
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/encoding.json"))
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = options.data.resolve()
    if options.once:
        print(json.dumps(read(data, options.items)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        sources = {"before": checked_out(options.before, Path(temporary)), "now": Path(__file__).parent.parent / "src"}
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        for _ in range(options.runs):
            for name, source in sources.items():
                runs[name].append(timed(source, data, options.items))
    names = list(runs["now"][0])
    ratios = {
        name: [before[name] / now[name] for before, now in zip(runs["before"], runs["now"], strict=True)]
        for name in names
    }
    report = {
        "timing": "milliseconds a text, in turns, each run a process of its own",
        "data": data.name,
        "items": options.items,
        "characters": sum(len(item["text"]) for item in texts(data, options.items)) // options.items,
        "revision_before": options.before,
        **{name: {part: spread([one[part] for one in runs[name]]) for part in names} for name in runs},
        "times_as_fast": {name: spread(ratios[name]) for name in names},
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    run()
