"""An index of random vectors in files: what each verb takes at a given size.

python -m crosscut_lab.speed.scale 1000000 --json lab/results/speed_index.json
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import crosscut
from crosscut_lab.report import Records, machine, write


def lengths(query: str, texts: Any) -> list[float]:
    return [float(len(text)) for text in texts]


def measure(n: int, d: int = 32) -> Records:
    """Return wall and processor milliseconds of each verb."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n, d)).astype(np.float16)
    items = ((f"i{j}", f"text number {j} of the corpus") for j in range(n))
    new = [(f"n{j}", f"new text {j}") for j in range(100)]
    query = rng.standard_normal(d)
    records: Records = []

    def timed(verb: str, work: Callable[[], Any]) -> Any:
        wall, processor = time.perf_counter(), time.process_time()
        result = work()
        spent = {
            "ms": 1000 * (time.perf_counter() - wall),
            "cpu ms": 1000 * (time.process_time() - processor),
        }
        records.append({"verb": verb, "n": n, "d": d, **{name: round(value, 1) for name, value in spent.items()}})
        return result

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "my.index"
        build: Any = {"path": path, "scorer": lengths, "encoder": None, "vectors": vectors, "bm25": False}
        timed("build, without words", lambda: crosscut.Index.build(items, **build))
        index = timed("load", lambda: crosscut.Index.load(path, scorer=lengths))
        more = rng.standard_normal((100, d)).astype(np.float16)
        timed("add 100", lambda: index.add(new, vectors=more))
        timed("save", index.save)
        for verb in ("search, 100 calls, first", "search, 100 calls"):
            timed(verb, lambda: index.search("query", 10, 100, query_vector=query))
        timed("remove 100", lambda: index.remove([f"i{7 * j}" for j in range(100)]))
        timed("forget 1", lambda: index.forget(["i5"]))
    return records


def main(
    sizes: Annotated[list[int], typer.Argument(min=200)],
    output: Annotated[Path | None, typer.Option("--json", help="Write the result here.")] = None,
) -> None:
    records = [record for n in sizes for record in measure(n)]
    for record in records:
        typer.echo(str(record))
    if output is not None:
        write(output, {"program": "scale", "machine": machine(), "records": records})


if __name__ == "__main__":
    typer.run(main)
