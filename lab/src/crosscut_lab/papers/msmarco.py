"""MS MARCO's passages: `collection.tsv`, `queries.<split>.tsv`, `qrels.<split>.tsv`; plain or gzipped.

The collection has 8.8 million lines. It is read once, line by line; what is kept are the right passages of the drawn
test queries and a fair draw of the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from crosscut.datasets.beir import read_judgements
from crosscut.datasets.files import find
from crosscut.datasets.plain import read_tsv
from crosscut.datasets.records import Collection, Item, Query
from crosscut.errors import InputError

TEST = ("dev.small", "dev")
"""Splits to test on, the first that is there."""


class MsMarco(NamedTuple):
    """Passages with judged test queries, and the texts of train queries."""

    collection: Collection
    train: list[str]


def read_msmarco(
    folder: str | Path, *, train: int = 500, test: int = 1000, items: int | None = None, seed: int = 0
) -> MsMarco:
    """So many train and test queries, drawn, and passages: all, or `items` of them, right ones among them."""
    folder = Path(folder)
    rng = np.random.default_rng(seed)
    split = next((name for name in TEST if any(folder.glob(f"queries.{name}.tsv*"))), None)
    if split is None:
        raise InputError(f"{str(folder)!r} has no queries to test on: queries.dev.small.tsv or queries.dev.tsv")
    queries = {one.id: one.text for one in read_tsv(find(folder, f"queries.{split}.tsv"))}
    judged: dict[str, dict[str, float]] = {}
    for one in read_judgements(find(folder, f"qrels.{split}.tsv")):
        if one.query_id in queries and one.score > 0:
            judged.setdefault(one.query_id, {})[one.item_id] = one.score
    ids = sorted(judged)
    chosen = [ids[place] for place in np.sort(rng.permutation(len(ids))[:test]).tolist()]
    learned = [one.text for one in read_tsv(find(folder, "queries.train.tsv"))]
    drawn = [learned[place] for place in rng.permutation(len(learned))[:train].tolist()]
    right = {item for id in chosen for item in judged[id]}
    kept = _drawn(folder, right, items, rng)
    known = {item.id for item in kept}
    missing = sorted(right - known)
    if missing:
        raise InputError(f"qrels.{split}.tsv names passage {missing[0]!r}, which collection.tsv does not have")
    collection = Collection(
        name=folder.name,
        items=kept,
        queries=[Query(id, queries[id]) for id in chosen],
        qrels={id: judged[id] for id in chosen},
    )
    return MsMarco(collection, drawn)


def _drawn(folder: Path, right: set[str], most: int | None, rng: np.random.Generator) -> list[Item]:
    """The right passages and a draw of the others, each equally likely, in the order of the file."""
    kept: list[tuple[int, Item]] = []
    others: list[tuple[int, Item]] = []
    room = None if most is None else max(0, most - len(right))
    seen = 0
    for number, item in enumerate(read_tsv(find(folder, "collection.tsv"))):
        if item.id in right:
            kept.append((number, item))
            continue
        seen += 1
        if room is None or len(others) < room:
            others.append((number, item))
        elif room and (place := int(rng.integers(seen))) < room:
            others[place] = (number, item)
    return [item for _, item in sorted([*kept, *others], key=lambda one: one[0])]
