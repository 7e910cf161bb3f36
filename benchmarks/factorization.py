"""Ridge ALS against AdamW on one sparse matrix: 25K items, 1K queries, 100 observed items a query, d = 384.

    python benchmarks/factorization.py --json benchmarks/results/factorization.json

The scores are planted: a matrix of rank 16 and noise, seen by an "encoder" of 384 dimensions that blurs its factors;
observed pairs are half the encoder's top, half drawn. Both solvers start at the encoder's vectors, hold the same tenth
of the pairs out and report the root mean squared error on it. Times are wall clock in one process on two cores, the
losses measured after every epoch and, for ALS, the trial of every ridge included.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.report import machine

from crosscut.ann.flat import top_items
from crosscut.datasets.planted import planted
from crosscut.spaces.factorization import Factors, Solver, factorize
from crosscut.spaces.sparse import SparseScores, items_per_query
from crosscut.storage import write_json

RUNS: tuple[tuple[Solver, dict[str, Any]], ...] = (
    ("als", {}),
    ("als", {"ridge": 1.0}),
    ("transductive", {"rate": 0.005, "epochs": 20}),
    ("transductive", {"rate": 0.001, "epochs": 20}),
)


def reached(factors: Factors, loss: float) -> float | None:
    """Seconds until the held-out loss is as low as this."""
    times = [t for t, value in zip(factors.fitting.elapsed, factors.fitting.held_out, strict=True) if value <= loss]
    return times[0] if times else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=25_000)
    parser.add_argument("--queries", type=int, default=1_000)
    parser.add_argument("--k-d", type=int, default=100)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--noise", type=float, default=0.3)
    parser.add_argument("--blur", type=float, default=2.0)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--note", default="", help="what else the machine was doing")
    options = parser.parse_args()
    world = planted(
        options.queries, options.items, rank=16, noise=options.noise, dimension=options.dimension, blur=options.blur
    )
    vectors, queries = world.vectors.astype(np.float32), world.query_vectors.astype(np.float32)
    ranked = top_items(options.k_d, vectors, queries)
    pairs = items_per_query(options.k_d, world.scores.shape, ranked=ranked, random=0.5)
    scores = SparseScores.from_dense(world.scores, pairs)
    del world
    runs: list[dict[str, Any]] = []
    made: list[Factors] = []
    for solver, settings in RUNS:
        started = time.process_time()
        factors = factorize(scores, vectors, queries, solver=solver, **settings)
        cpu = time.process_time() - started
        made.append(factors)
        fitting = factors.fitting
        best = fitting.held_out[fitting.best]
        runs.append({**asdict(fitting), "best_held_out": best, "given": settings, "cpu_seconds": cpu})
        print(
            f"{solver} {settings}: held-out {fitting.held_out[0]:.4f} → {best:.4f} at epoch {fitting.best}, "
            f"{fitting.training_seconds:.1f} s of wall clock, {cpu:.1f} s of CPU",
            flush=True,
        )
        target = min((min(f.fitting.held_out) for f in made if f.fitting.solver != "als"), default=None)
        for run, each in zip(runs, made, strict=True):
            run["seconds_to_adamws_best"] = None if target is None else reached(each, target)
        if options.json is not None:
            import torch

            write_json(
                options.json,
                {
                    "command": "python benchmarks/factorization.py --json benchmarks/results/factorization.json",
                    "machine": {**machine(), "torch": torch.__version__, "cores": os.cpu_count()},
                    "timing": f"the whole fit: split, every epoch with its losses, ALS with its refit. {options.note}",
                    "sizes": {name: getattr(options, name) for name in ("items", "queries", "k_d", "dimension")},
                    "planted": {"rank": 16, "noise": options.noise, "blur": options.blur},
                    "adamws_best_held_out": target,
                    "runs": runs,
                },
            )


if __name__ == "__main__":
    main()
