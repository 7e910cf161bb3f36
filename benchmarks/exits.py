"""Early exit at the paper's rule: 16,384 lists over a million real vectors (16 √n, the next power of two).

    python benchmarks/vectors.py --data ../shared/data --out vectors --collections passages --encoders static
    python benchmarks/exits.py --vectors vectors --work work

φ_h, the distribution of C(q), and every rule at equal R*@1, τ ∈ {2 … 15} and hyper-parameters of the forests searched.
Numbers of lists do not depend on the machine; milliseconds do. Writes benchmarks/results/exits.json, part by part.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.clustered import as_records, as_table, table_2
from crosscut.evaluation.report import machine

from crosscut.ann.ivf import IVF
from crosscut.ann.ivf.kernels import STAYED
from crosscut.ann.ivf.learning import observe
from crosscut.ann.ivf.rules import TAU
from crosscut.ann.ivf.tuning import TAUS, tune
from crosscut.cli.common import table
from crosscut.storage import write_json
from ivf import console, load

RESULTS = Path(__file__).parent / "results" / "exits.json"
LISTS, K = 16_384, 100
PLACES = (2, 3, 5, 10, 20, 30, 50, 75, 100)
NEEDED = (1, 2, 5, 10, 20, 50, 100, 200)


def curves(index: IVF, queries: Any) -> dict[str, Any]:
    """φ_h of all queries, of those that need few lists and of the others; how many lists queries need."""
    seen = observe(index, queries, k=K, lists=max(PLACES))
    kept = seen.traces[:, :, STAYED] / K
    needed = seen.ranks[:, 0]
    groups = {"all": needed > 0, f"C(q) ≤ {TAU}": needed <= TAU, f"C(q) > {TAU}": needed > TAU}
    return {
        "queries": len(queries),
        "phi": {
            name: {str(place): float(kept[chosen, place - 1].mean()) for place in PLACES}
            for name, chosen in groups.items()
        },
        "spread": {
            str(place): [float(value) for value in np.quantile(kept[:, place - 1], [0.05, 0.95])] for place in PLACES
        },
        "needs_at_most": {str(lists): float((needed <= lists).mean()) for lists in NEEDED},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps the index")
    parser.add_argument("--set", default="passages-static")
    parser.add_argument("--train", type=int, default=2400)
    parser.add_argument("--test", type=int, default=1500)
    parser.add_argument("--parts", nargs="+", default=["curves", "tau10", "searched"])
    parser.add_argument("--trials", type=int, default=8)
    parser.add_argument("--loss", type=float, default=0.02)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    items, train, test, gold = load(options.vectors, options.set)
    train, test, gold = train[: options.train], test[: options.test], gold[: options.test]
    folder = options.work / f"{options.set}-{LISTS}"
    if folder.is_dir():
        index = IVF.load(folder)
    else:
        started = time.process_time()
        index = IVF.build(items, lists=LISTS)
        console.print(f"built in {time.process_time() - started:.0f} s of CPU time")
        index.save(folder)
    sizes = np.diff(index.starts)
    report: dict[str, Any] = {
        "command": "python benchmarks/exits.py --vectors vectors --work work "
        f"--train {len(train)} --test {len(test)} --parts {' '.join(options.parts)} --repeats {options.repeats}",
        "machine": machine(),
        "set": options.set,
        "items": index.n,
        "d": index.d,
        "dtype": str(index.vectors.dtype),
        "lists": len(index.centroids),
        "sizes": {"mean": float(sizes.mean()), "median": float(np.median(sizes)), "largest": int(sizes.max())},
        "train_queries": len(train),
        "test_queries": len(test),
        "k": K,
    }
    if RESULTS.is_file():
        report = {**json.loads(RESULTS.read_text("utf-8")), **report}
    if "curves" in options.parts:
        report["curves"] = curves(index, test)
        write_json(RESULTS, report)
        console.print(report["curves"])
    for name, how in (("tau10", {}), ("searched", {"taus": TAUS, "trials": options.trials})):
        if name not in options.parts:
            continue
        tuned = tune(index, train, target=0.95, loss=options.loss, k=K, **how)
        rows, limit = table_2(index, tuned, test, k=K, gold=gold, repeats=options.repeats)
        title = f"{name}: {index.n:,} items, {len(index.centroids)} lists, N = {tuned.lists}"
        table(title, *as_table(rows, limit, K))
        report[name] = {
            "N": tuned.lists,
            "loss": options.loss,
            "rows": as_records(rows),
            "limits": {key: value for key, value in limit.items() if key != "frontier"},
            "load_average": round(os.getloadavg()[0], 1),
        }
        write_json(RESULTS, report)


if __name__ == "__main__":
    main()
