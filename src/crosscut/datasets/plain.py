"""JSONL and TSV files of items or queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from crosscut.datasets.files import Unique, lines, metadata_of, records, text_of
from crosscut.datasets.records import Item, Query
from crosscut.errors import InputError


def read_jsonl(path: str | Path) -> Iterator[Item]:
    """Items of a JSONL file: objects with "text", and "id" (or "_id") and "title" if they have them.

    What else a record holds is metadata. An item without an id is called by its line number.
    """
    unique = Unique(path)
    for number, record in records(path):
        named = "_id" in record or "id" in record
        id = text_of(record, ("_id", "id"), path, number) if named else str(number)
        title = text_of({"title": "", **record}, ("title",), path, number)
        text = text_of(record, ("text", "contents"), path, number)
        metadata = metadata_of(record, ("_id", "id", "title", "text", "contents"))
        yield Item(unique.check(id, number), title, text, metadata)


def read_tsv(path: str | Path) -> Iterator[Item]:
    """Items of a TSV file: `id<tab>text` or `id<tab>title<tab>text`, no header, no quoting."""
    unique = Unique(path)
    for number, line in lines(path):
        fields = line.split("\t")
        if len(fields) not in (2, 3):
            raise InputError(
                f"{path} line {number} has {len(fields)} fields between tabs; "
                "expected id and text, or id, title and text"
            )
        title = fields[1] if len(fields) == 3 else ""
        yield Item(unique.check(fields[0], number), title, fields[-1])


def read_items(path: str | Path) -> list[Item]:
    """Items of a JSONL, TSV or text file, by its ending (`.gz` may follow); `.txt` has one item a line."""
    path = Path(path)
    ending = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if ending in (".jsonl", ".ndjson", ".json"):
        return list(read_jsonl(path))
    if ending == ".tsv":
        return list(read_tsv(path))
    if ending == ".txt":
        return [Item(str(number), "", line) for number, line in lines(path)]
    raise InputError(f"{str(path)!r} ends in {ending!r}; items are read from .jsonl, .tsv and .txt, plain or gzipped")


def read_queries(path: str | Path) -> list[Query]:
    """Queries of the same kinds of file; a title, if any, is put before the text."""
    return [Query(item.id, f"{item.title} {item.text}".strip()) for item in read_items(path)]
