"""JSONL, JSON, CSV, TSV and text files of items: one after another, never a whole file in memory."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Any, Unpack

from crosscut.datasets.columns import ColumnNames, Columns
from crosscut.datasets.files import LONGEST, Opened, Unique, lines, records
from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.types import Progress

PIECE = 1 << 16
USUAL = {2: ["id", "text"], 3: ["id", "title", "text"]}  # columns of a TSV file that does not name them


def read_jsonl(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of a JSONL file, one object a line; see `Columns` for what is text, title, id and metadata.

    An item without an id is called by its line number.
    """
    return unique_items(path, records(path, progress), Columns(**columns))


def read_json(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of a JSON file that holds one array of objects; a file that does not begin with `[` is read as JSONL."""
    opened = Opened(path, progress)
    with opened.text() as file:
        start = file.read(PIECE).lstrip()
    if not start.startswith("["):
        yield from read_jsonl(path, progress=progress, **columns)
        return
    yield from unique_items(path, _elements(opened), Columns(**columns))


def read_csv(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of a CSV file; its first row names the columns. Empty fields are no metadata. Where that row has no comma,
    semicolons or tabs stand between columns.

    An item without an id is called by the number of its row, the first one below the names being 1.
    """
    chosen, opened = Columns(**columns), Opened(path, progress)

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        csv.field_size_limit(max(csv.field_size_limit(), LONGEST))
        with opened.text(newline="") as file:
            rest = opened.bounded(file)
            first = next(rest, "")
            sign = next((sign for sign in ",;\t" if sign in first), ",")
            reader = csv.reader(chain([first], rest), strict=True, delimiter=sign)
            try:
                names = _header(next(reader, []), path)
                chosen.check(names, str(path))
                for number, fields in enumerate(filter(None, reader), 1):
                    opened.number = reader.line_num
                    opened.report()
                    if len(fields) != len(names):
                        raise InputError(
                            f"{path} line {reader.line_num} has {len(fields)} fields for {len(names)} columns"
                        )
                    yield number, _filled(names, fields, chosen)
            except csv.Error as error:
                hint = ": is a quotation mark not closed?" if "end of data" in str(error) else ""
                raise InputError(f"{path} line {reader.line_num} is broken CSV ({error}{hint})") from error
            opened.report(end=True)

    return unique_items(path, rows(), chosen)


def read_tsv(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of a TSV file, without quoting: `id<tab>text` or `id<tab>title<tab>text`, as MS MARCO's collections are.

    A first line that has the names `id` (or `_id`) and `text`, or every name that is given, names the columns. Without
    such a line they are called by their numbers: text="4", id="1". A "\\r" within a line counts as a space.
    """
    chosen = Columns(**columns)
    numbered = bool(chosen.given) and all(name.isdigit() for name in chosen.given)

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        names: list[str] | None = None
        for number, line in lines(path, progress):
            fields = line.replace("\r", " ").split("\t")
            named = "text" in fields and not {"id", "_id"}.isdisjoint(fields)
            if number == 1 and not numbered and (chosen.given or named):
                names = _header(fields, path)
                chosen.check(names, str(path))
                continue
            places = [str(place) for place in range(1, len(fields) + 1)] if numbered else USUAL.get(len(fields))
            here = names or places
            if here is None or len(here) != len(fields):
                expected = f"{len(names)} as in its first line" if names else "id and text, or id, title and text"
                raise InputError(
                    f"{path} line {number} has {len(fields)} fields between tabs; expected {expected}"
                    + ("" if names else " (or name columns by number: text=…, --text 4)")
                )
            yield number, _filled(here, fields, chosen)

    return unique_items(path, rows(), chosen)


def read_lines(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """A text file: one item a line, called by the number of the line."""
    if Columns(**columns).given:
        raise InputError(f"{str(path)!r} is a file of texts, one a line: it has no columns to name")
    return (Item(str(number), "", line) for number, line in lines(path, progress))


def unique_items(path: str | Path, rows: Iterator[tuple[int, dict[str, Any]]], columns: Columns) -> Iterator[Item]:
    """Numbered records as items, no id twice."""
    unique, where = Unique(path), f"{path} line"
    for number, record in rows:
        item = columns.item(record, where, number)
        unique.check(item.id, number)
        yield item
    unique.close()


def _header(names: list[str], path: str | Path) -> list[str]:
    if len(set(names)) < len(names) or not all(map(str.strip, names)):
        raise InputError(f"{path}: the first row names the columns, each once; got {', '.join(map(repr, names))}")
    if not names:
        raise InputError(f"{path} is empty; its first row names the columns")
    return names


def _filled(names: list[str], fields: list[str], columns: Columns) -> dict[str, Any]:
    """A row by name; an empty field is left out, unless it is the text, the title or the id."""
    kept = {columns.text, columns.title, columns.id, "text", "contents", "title", "id", "_id"}
    return {name: field for name, field in zip(names, fields, strict=True) if field or name in kept}


def _elements(opened: Opened) -> Iterator[tuple[int, dict[str, Any]]]:
    """Numbered objects of a JSON array, of which a piece is in memory."""
    decoder = json.JSONDecoder()
    with opened.text() as file:
        text = _after(file, "", "[")
        while not text.startswith("]"):
            value, text = _value(decoder, file, text, opened)
            opened.number += 1
            opened.report()
            if not isinstance(value, dict):
                raise InputError(
                    f"{opened.path} element {opened.number} is a JSON {type(value).__name__}; expected an object"
                )
            yield opened.number, value
            text = _after(file, text, ",", "]")
            if text.startswith(",") and (text := _stripped(file, text[1:])).startswith("]"):
                raise InputError(f"{opened.path} is broken JSON: a comma before the end of the array")
            if not text:
                raise InputError(f"{opened.path} is broken JSON after element {opened.number}: the array is not closed")
        opened.report(end=True)


def _stripped(file: IO[str], text: str) -> str:
    """Text without white space before it; more of the file if nothing is left."""
    while not (text := text.lstrip()):
        more = file.read(PIECE)
        if not more:
            return ""
        text = more
    return text


def _after(file: IO[str], text: str, *marks: str) -> str:
    """Text from one of these marks on; from behind it if it opens the array."""
    text = _stripped(file, text)
    if text and not text.startswith(marks):
        raise InputError(f"{file.name} is broken JSON: expected {' or '.join(marks)}, found {text[:20]!r}")
    return _stripped(file, text[1:]) if marks == ("[",) else text


def _value(decoder: json.JSONDecoder, file: IO[str], text: str, opened: Opened) -> tuple[Any, str]:
    """One value from the beginning of a text, of which more is read while it is not whole."""
    piece = PIECE
    while True:
        try:
            value, end = decoder.raw_decode(text)
            return value, text[end:]
        except (ValueError, RecursionError) as error:
            unfinished = isinstance(error, json.JSONDecodeError) and len(text) < LONGEST
            more = file.read(piece) if unfinished else ""
            if not more:
                raise InputError(f"{opened.path} is broken JSON after element {opened.number} ({error})") from error
            text += more
            piece *= 2  # an element of any size in few attempts
