"""Pseudo-queries without qrels: titles of items, hidden from the items that they are queries for."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crosscut.datasets.judged import JudgedQueries
from crosscut.errors import InputError
from crosscut.index import Index

MOST = 1000
LEAST = 20


def title_queries(index: Index, *, most: int = MOST, seed: int = 0) -> tuple[Index, JudgedQueries]:
    """Return an index of some items without their titles, and the titles as its judged queries.

    The right item of a title is the one that it was removed from. That says how items are found by the words that
    people use for them, and nothing about other kinds of questions. The items are encoded again: their text changed.
    """
    if index.scorer is None:
        raise InputError("this index has no scorer: load it with scorer=…")
    corpus = index.local_corpus("titles")
    there = np.flatnonzero(corpus.alive)
    drawn = np.sort(np.random.default_rng(seed).permutation(there)[:most])
    items = corpus.items.get(drawn)
    titled = [item for item in items if item.title.strip() and item.text.strip()]
    if len(titled) < LEAST:
        raise InputError(
            f"{len(titled)} of {len(items)} items have a title and a text, and {LEAST} are needed to measure anything: "
            "give qrels or clicks"
        )
    plain = Index.build(
        [item._replace(title="") for item in items],
        scorer=index.scorer,
        encoder=index.encoder,
        bm25=corpus.bm25 is not None,
        method="crosscut" if index.method.missing(replace(corpus, anchors=None, factors=None).parts) else index.method,
        seed=corpus.seed,
    )
    right: dict[str, dict[str, float]] = {}
    for item in titled:
        right.setdefault(item.title, {})[item.id] = 1.0
    queries = {title: title for title in right}
    note = f"titles of {len(titled)} items as queries, hidden from {len(items)} of {len(there)} items"
    return plain, JudgedQueries(queries, right, note)
