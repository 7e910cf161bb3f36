"""BEIR folders: `corpus.jsonl`, `queries.jsonl`, `qrels.tsv` or `qrels/<split>.tsv`; plain or gzipped."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.files import Unique, find, lines, records, text_of
from crosscut.datasets.plain import read_jsonl
from crosscut.datasets.records import Collection, Item, Judgement, Query
from crosscut.errors import InputError
from crosscut.types import Progress


def read_items(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of a corpus file, streamed; a missing title is empty."""
    return read_jsonl(path, progress=progress, **columns)


def read_queries(path: str | Path) -> Iterator[Query]:
    """Queries of a query file, streamed."""
    unique = Unique(path)
    for number, record in records(path):
        id = unique.check(text_of(record, ("_id", "id"), path, number), number)
        yield Query(id, text_of(record, ("text",), path, number))
    unique.close()


def read_judgements(path: str | Path) -> Iterator[Judgement]:
    """Read a qrels file: query id, item id and score between tabs; a header line is skipped."""
    for number, line in lines(path):
        fields = line.split("\t")
        if number == 1 and fields[0] in ("query-id", "query_id", "qid"):
            continue
        if len(fields) == 4:  # TREC: query, 0, item, score
            fields = [fields[0], fields[2], fields[3]]
        if len(fields) != 3:
            raise InputError(
                f"{path} line {number} has {len(fields)} fields between tabs; expected query id, item id and score"
            )
        try:
            score = float(fields[2])
        except ValueError:
            score = math.nan
        if not math.isfinite(score):
            raise InputError(f"{path} line {number}: the score {fields[2]!r} is not a number")
        yield Judgement(fields[0], fields[1], score)


def read_beir(folder: str | Path, *, split: str = "test", name: str | None = None) -> Collection:
    """A BEIR folder as a collection.

    Qrels come from `qrels/<split>.tsv` or, where a folder has no splits, from `qrels.tsv`. Those
    that name an unknown query or item are refused; queries without judgements are kept.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"there is no folder {str(folder)!r}; a BEIR folder holds corpus.jsonl and queries.jsonl")
    items = list(read_items(find(folder, "corpus.jsonl")))
    queries = list(read_queries(find(folder, "queries.jsonl")))
    path = find(folder, f"qrels/{split}.tsv", "qrels.tsv")
    collection = Collection(
        name=name or folder.name,
        items=items,
        queries=queries,
        empty_items=[item.id for item in items if not (item.title + item.text).strip()],
        empty_queries=[query.id for query in queries if not query.text.strip()],
    )
    known_items, known_queries = collection.positions, {query.id for query in queries}
    for judgement in read_judgements(path):
        if judgement.item_id not in known_items or judgement.query_id not in known_queries:
            raise InputError(
                f"{path} judges query {judgement.query_id!r} with item {judgement.item_id!r}, "
                "but one of them is not in the collection; files of one folder must belong together"
            )
        collection.qrels.setdefault(judgement.query_id, {})[judgement.item_id] = judgement.score
    return collection


def is_test(query_id: str) -> bool:
    """A fixed fifth of the queries of a set without splits: SHA-1 of the id, modulo five, is zero."""
    return int(hashlib.sha1(query_id.encode()).hexdigest(), 16) % 5 == 0
