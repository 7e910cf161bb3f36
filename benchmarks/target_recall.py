"""`target_recall` on held-out queries: is the recall that was asked for reached, and what does it save?

    python benchmarks/target_recall.py --data wordnet-cognition.npz --name wordnet-cognition --json target_recall.json

An index over a known score matrix (arrays test, train, vectors, query_vectors, anchor_query_vectors): the train queries
are its anchors, `tune` chooses and calibrates on them alone, the test queries are searched with each target. Beside it:
the smallest fixed budget whose mean recall on the test queries is the same, read off searches of every size.
"""

from __future__ import annotations

import argparse
import json
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut import Index
from crosscut.datasets.records import Item
from crosscut.measures import interval
from crosscut.scorers.adapters import TextScorer
from crosscut.types import Progress

TARGETS = (0.8, 0.9, 0.95, 0.98)


class Replayed:
    """A dual encoder whose vectors are known: texts are `item 12`, `test 3`, `train 7`."""

    fingerprint = "replayed"

    def __init__(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self.arrays = arrays
        self.dimension = int(arrays["item"].shape[1])

    def encode_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.array([self.arrays[kind][int(row)] for kind, row in map(str.split, texts)], np.float32)

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> npt.NDArray[np.float32]:
        return self.encode_queries([item if isinstance(item, str) else item.text for item in items])


def replayed_index(data: dict[str, npt.NDArray[Any]], seed: int) -> Index:
    """An index that replays the matrix."""
    matrices = {"test": data["test"], "train": data["train"]}

    def score(query: str, texts: Sequence[str]) -> npt.NDArray[np.float64]:
        kind, row = query.split()
        return np.asarray(matrices[kind][int(row), [int(text.split()[1]) for text in texts]], np.float64)

    vectors = {"item": data["vectors"], "test": data["query_vectors"], "train": data["anchor_query_vectors"]}
    return Index.build(
        [f"item {j}" for j in range(data["test"].shape[1])],
        scorer=TextScorer(score, fingerprint="replayed"),
        encoder=Replayed(vectors),
        queries=[f"train {j}" for j in range(len(data["train"]))],
        anchors=len(data["train"]),
        bm25=False,
        dtype=np.float32,
        seed=seed,
    )


def study(data: dict[str, npt.NDArray[Any]], k: int, budget: int, seed: int) -> dict[str, Any]:
    """One world, one k."""
    index = replayed_index(data, seed)
    tuning = index.tune(None, k, budget)
    assert tuning.model is not None
    queries = [f"test {j}" for j in range(len(data["test"]))]
    truth = [set(np.argsort(-row, kind="stable")[:k].tolist()) for row in data["test"].astype(np.float64)]

    def recalls(found: Sequence[Any]) -> npt.NDArray[np.float64]:
        return np.array([len(best & set(hits.scored.tolist())) / k for best, hits in zip(truth, found, strict=True)])

    sizes = list(range(tuning.model.step, budget + 1, tuning.model.step))
    never = 1 << 20
    whole = index.search_many(
        queries, k, budget, method=index.method.with_settings({"rounds": len(sizes)}), stop=_patient(never)
    )
    curve = []
    for size in sizes:
        scored = [hits.scored[:size] for hits in whole]
        share = [len(best & set(s.tolist())) / k for best, s in zip(truth, scored, strict=True)]
        curve.append((size, float(np.mean(share))))
    rows = []
    for target in TARGETS:
        found = index.search_many(queries, k, budget, target_recall=target)
        shares = recalls(found)
        low, high = interval(shares)
        calls = np.array([hits.calls for hits in found])
        same = next((size for size, share in curve if share >= shares.mean()), None)
        rows.append(
            {
                "k": k,
                "target": target,
                "recall": float(shares.mean()),
                "low": low,
                "high": high,
                "covered": bool(low <= target <= high),
                "calls": float(calls.mean()),
                "calls_10_90": np.quantile(calls, [0.1, 0.9]).tolist(),
                "fixed_calls": same,
                "saved": None if same is None else 1 - float(calls.mean()) / same,
            }
        )
        print(
            f"k={k} target {target}: recall {shares.mean():.3f} [{low:.3f}, {high:.3f}], {calls.mean():.1f} calls, "
            f"fixed {same}, saved {rows[-1]['saved'] if same else float('nan'):.0%}",
            flush=True,
        )
    return {"k": k, "budget": budget, "chosen": str(tuning.chosen.method), "patience": tuning.patience, "targets": rows}


def _patient(rounds: int) -> Any:
    from crosscut import Patience

    return Patience(rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        data = {name: archive[name] for name in archive.files}
    n = data["test"].shape[1]
    result = {
        "command": f"python benchmarks/target_recall.py --data {options.data.name} --name {options.name}",
        "python": platform.python_version(),
        "items": n,
        "train_queries": len(data["train"]),
        "test_queries": len(data["test"]),
        "studies": [study(data, k, min(budget, n // 2), options.seed) for k, budget in ((1, 300), (10, 500))],
    }
    if options.json is not None:
        known = json.loads(options.json.read_text()) if options.json.exists() else {}
        options.json.write_text(json.dumps({**known, options.name: result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
