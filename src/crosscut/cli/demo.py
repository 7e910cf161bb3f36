"""`crosscut demo`: how much of a scorer's own top k the methods find with equal numbers of calls.

The scores are recorded: a cross-encoder's, of 160 queries with each of 2,964 meanings of WordNet. Some of those queries
are searched; the others are anchor queries, whose calls are in the table. All methods see a black box. Then one query
is searched live, by base scores.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.options import Json
from crosscut.cli.output import console, progress_bar, table
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.types import Progress

BUDGETS = (50, 100, 200)
METHODS = {  # label → method, and whether it has vectors and anchor scores
    "retrieve and rerank": ("rerank", True, False),
    "AXN": ("axn", True, False),
    "crosscut": ("crosscut", True, False),
    "ANNCUR": ("anncur@rcond=0.01", False, True),  # a cut-off: as many anchor items as anchor queries are possible
    "ADACUR": ("adacur", False, True),
    "crosscut, with anchors": ("crosscut", True, True),
}
MARKED = re.compile(r"\[START\] ([^\[]+) \[END\]")


def demo(
    query: Annotated[
        str, typer.Option(help="Your own sentence, with the word that is meant: 'a [START] thought [END] of mine'.")
    ] = "she could not follow his [START] reasoning [END]",
    k: Annotated[int, typer.Option("-k", min=1, help="Number of hits.")] = 10,
    queries: Annotated[int, typer.Option(help="Recorded queries that are searched.")] = 20,
    as_json: Json = False,
) -> None:
    """Compare methods on the recorded scores of a cross-encoder, and search one query: no hub, no GPU, no key.

    Examples:

        crosscut demo

        crosscut demo --query "a strange [START] idea [END]"
    """
    if not query.strip():
        raise InputError("the query is empty; give a sentence")
    with progress_bar(quiet=as_json) as progress:
        recalls, calls_before = compare(k, queries, progress)
    hits = search(query, k)
    if as_json:
        typer.echo(json.dumps({"query": query, "hits": hits, "recall": recalls, "calls_before": calls_before}))
        return
    plain = MARKED.sub(lambda found: found[1], query)
    title = f"{plain}: the best meanings by base scores, without a call"
    rows = [(place, f"{hit['score']:.1f}", f"{hit['title']}: {hit['text']}") for place, hit in enumerate(hits, 1)]
    table(title, ("", "score", "meaning"), rows)
    cells = [
        (method, f"{calls_before[method]:,}", *(f"{recall:.2f}" for recall in row)) for method, row in recalls.items()
    ]
    note = f"{queries} queries, recorded scores of a cross-encoder; calls before: of the anchor queries, once"
    columns = ("method", "calls before", *(f"{budget} calls" for budget in BUDGETS))
    table(f"share of the scorer's own top {k} found", columns, cells, note=note)
    console().print("your own texts: crosscut index build notes/ my.index, then crosscut serve my.index", style="dim")


def compare(k: int, queries: int, progress: Progress) -> tuple[dict[str, list[float]], dict[str, int]]:
    """Return the recall of every method at every budget, and the calls for anchor queries that it needed before."""
    import numpy as np

    from crosscut.bundled.base_scores import BaseScorer
    from crosscut.datasets.bundled import load_scores, load_world
    from crosscut.measures import recall
    from crosscut.scorers.adapters import MatrixScorer
    from crosscut.searcher import Searcher
    from crosscut.spaces.cur import CUR

    scores = load_scores()
    most = len(scores.anchor_ids) - 10
    if not 1 <= queries <= most:
        raise InputError(f"{queries} queries: 1 to {most} of the recorded queries can be searched")
    matrix = scores.anchor_scores.astype(np.float32)
    train, test = matrix[:-queries], matrix[-queries:].astype(np.float64)
    texts = {one.id: one.text for one in load_world().queries}
    query_vectors = BaseScorer.load().encoder.encode_queries([texts[id] for id in scores.anchor_ids[-queries:]])
    recalls: dict[str, list[float]] = {}
    for label, (method, with_vectors, with_anchors) in METHODS.items():
        searcher = Searcher(
            MatrixScorer(test),
            vectors=scores.vectors.astype(np.float32) if with_vectors else None,
            space=CUR(train) if with_anchors else None,
            method=method,
        )
        recalls[label] = []
        for budget in BUDGETS:
            vectors = query_vectors if with_vectors else None
            found = searcher.search_many(range(queries), k, budget, query_vectors=vectors)
            shares = [recall(row, hits.scored, k) for row, hits in zip(test, found, strict=True)]
            recalls[label].append(float(np.mean(shares)))
            progress("comparing methods", sum(map(len, recalls.values())), len(METHODS) * len(BUDGETS))
    return recalls, {label: train.size if anchors else 0 for label, (_, _, anchors) in METHODS.items()}


def search(query: str, k: int) -> list[dict[str, Any]]:
    """Search the meanings of WordNet for one query, by base scores."""
    from crosscut.datasets.bundled import load_world
    from crosscut.index import Index

    hits = Index.build(load_world().items).search(query, k)
    return [hit.to_json() for hit in hits]
