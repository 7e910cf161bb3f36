"""The parts of an index as files of one generation (the layout is told in `folder.py`), and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError
from crosscut.index.state import State
from crosscut.retrievers.bm25 import BM25
from crosscut.scorers.base import Scorer
from crosscut.scorers.callable import as_bound
from crosscut.scorers.meter import ScoreCache
from crosscut.scorers.named import check_saved
from crosscut.spaces.factorization.factors import Factors

ARRAYS = ("alive", "vectors", "centroids", "home", "anchors", "measured")
MAPPED = ("vectors", "anchors")


def write_state(state: State, queries: Sequence[str], home: Path) -> None:
    """Every part of a state, and the anchor queries, into a directory."""
    with (home / "items.jsonl").open("w", encoding="utf-8") as file:
        for item in state.items:
            record = {"id": item.id, "title": item.title, "text": item.text, "metadata": dict(item.metadata)}
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    with (home / "queries.jsonl").open("w", encoding="utf-8") as file:
        file.writelines(json.dumps(query, ensure_ascii=False) + "\n" for query in queries)
    for name in ARRAYS:
        array = getattr(state, name)
        if array is not None:
            np.save(home / f"{name}.npy", np.ascontiguousarray(array))
    if state.bm25 is not None:
        state.bm25.save(home)
    if state.factors is not None:
        state.factors.save(home / "factors")


def read_state(
    home: Path, manifest: dict[str, Any], scorer: Scorer | None, cache: ScoreCache | None
) -> tuple[State, list[str]]:
    """What `write_state` wrote; large arrays are memory-mapped."""
    arrays = {
        name: np.load(home / f"{name}.npy", mmap_mode="r" if name in MAPPED else None, allow_pickle=False)
        for name in ARRAYS
        if f"{name}.npy" in manifest["files"]
    }
    with (home / "items.jsonl").open(encoding="utf-8") as file:
        items = ItemList(Item(**json.loads(line)) for line in file)
    with (home / "queries.jsonl").open(encoding="utf-8") as file:
        queries = [json.loads(line) for line in file]
    state = State(
        items,
        scorer=None if scorer is None else as_bound(scorer.bind(items.growing)),
        bm25=BM25.load(home) if "bm25.json" in manifest["files"] else None,
        factors=Factors.load(home / "factors") if "factors/factors.json" in manifest["files"] else None,
        cache=cache,
        seed=manifest["seed"],
        **arrays,
    )
    return state, queries


def same_model(
    what: str,
    given: Any,
    saved: dict[str, Any] | None,
    load: Callable[[Any], Any],
    path: Path,
    any_fingerprint: bool,
    trust_remote: bool = False,
) -> Any:
    """The scorer or encoder of a saved index, checked against what the index was built with."""
    if saved is None:
        return None if given is None else load(given)
    if given is None and saved["name"] is None:
        if what == "scorer":
            raise InputError(
                f"the index at {str(path)!r} was built with a scorer that has no name: pass it, Index.load(…, scorer=…)"
            )
        return None  # searches go without query vectors, or with the caller's
    if given is None:
        check_saved(str(saved["name"]), f"the index at {str(path)!r}", trust_remote)
    model = load(saved["name"] if given is None else given)
    if model.fingerprint != saved["fingerprint"] and not any_fingerprint:
        way = "; pass any_scorer=True to use it all the same" if what == "scorer" else ""
        raise InputError(
            f"the index at {str(path)!r} was built with {what} {saved['fingerprint']}, and this one is "
            f"{model.fingerprint}{way}"
        )
    return model
