"""Seconds of single searches outside the scorer, by whichever version of crosscut is found: a part of learning_cost.py.

    python benchmarks/plain_searches.py planted.npz

The file has `items` (n × d), `encoded` (q × d) and `scores` (q × n). Printed are the seconds of each query, the fastest
of three runs after a first one.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np

from crosscut import Searcher
from crosscut.scorers.adapters import MatrixScorer

K, CALLS, RUNS = 10, 100, 3


def main(path: str) -> None:
    with np.load(path, allow_pickle=False) as planted:
        items, encoded, scores = (planted[name] for name in ("items", "encoded", "scores"))
    searcher = Searcher(MatrixScorer(scores), vectors=items)
    times = np.empty((RUNS + 1, len(scores)))
    for seconds in times:
        for row, vector in enumerate(encoded):
            started = time.thread_time()
            searcher.search(row, K, CALLS, query_vector=vector)
            seconds[row] = time.thread_time() - started
    print(json.dumps(times[1:].min(axis=0).tolist()))


if __name__ == "__main__":
    main(sys.argv[1])
