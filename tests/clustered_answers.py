"""Answers of an index that is searched by clusters, recorded before items kept their order of arrival.

python -m tests.clustered_answers tests/clustered_answers.json      # record
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

import crosscut
from crosscut.ann import clustered

N, D, QUERIES = 12_000, 24, 12


def answers() -> dict[str, list[Any]]:
    """Return ids, calls and stop reason of every search, by case."""
    rng = np.random.default_rng(7)
    centres = rng.standard_normal((60, D))
    vectors = (centres[rng.integers(0, 60, N)] + 0.6 * rng.standard_normal((N, D))).astype(np.float32)
    queries = (centres[rng.integers(0, 60, QUERIES + 24)] + 0.6 * rng.standard_normal((QUERIES + 24, D))).astype(
        np.float32
    )
    offset = rng.standard_normal(D)
    scores = (queries + offset) @ vectors.T.astype(np.float64) + rng.standard_normal((QUERIES + 24, N))

    def score(query: str, texts: list[str]) -> list[float]:
        row = scores[int(query.split()[1])]
        return [float(row[int(text.split()[1])]) for text in texts]

    def encode(texts: list[str]) -> Any:
        rows = {"item": vectors, "query": queries}
        return np.stack([rows[text.split()[0]][int(text.split()[1])] for text in texts])

    items = [{"id": f"i{j}", "text": f"item {j}", "kind": "abc"[j % 3]} for j in range(N)]
    train = [f"query {j}" for j in range(QUERIES, QUERIES + 24)]
    found: dict[str, list[Any]] = {}
    kept, clustered.SMALL = clustered.SMALL, 5_000
    try:
        plain = crosscut.Index.build(items, scorer=score, encoder=encode)
        anchored = crosscut.Index.build(items, scorer=score, encoder=encode, queries=train)
        for name, index, how in (
            ("plain", plain, {}),
            ("filter", plain, {"filter": {"kind": "a"}}),
            ("axn", plain, {"method": "axn"}),
            ("rerank", plain, {"method": "rerank"}),
            ("patience", plain, {"stop": "patience@rounds=2"}),
            ("anchored", anchored, {}),
            ("adacur", anchored, {"method": "adacur@first=dense"}),
        ):
            hits = [index.search(f"query {j}", k=10, budget=100, **how) for j in range(QUERIES)]
            found[name] = [[one.ids, one.calls, one.stop_reason] for one in hits]
    finally:
        clustered.SMALL = kept
    return found


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(answers()) + "\n")
