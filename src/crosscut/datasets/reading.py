"""Items and queries of a file or a folder, by what it is called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Unpack

from crosscut.datasets import arrow, plain
from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.files import find
from crosscut.datasets.folder import read_folder, text_files
from crosscut.datasets.records import Item, Query
from crosscut.errors import InputError
from crosscut.types import Progress

Reader = Callable[..., Iterator[Item]]
READERS: dict[str, Reader] = {
    ".jsonl": plain.read_jsonl,
    ".ndjson": plain.read_jsonl,
    ".json": plain.read_json,
    ".csv": plain.read_csv,
    ".tsv": plain.read_tsv,
    ".txt": plain.read_lines,
    ".parquet": arrow.read_parquet,
    ".arrow": arrow.read_arrow,
    ".feather": arrow.read_arrow,
    ".ipc": arrow.read_arrow,
}
COLUMNAR = (".parquet", ".arrow", ".feather", ".ipc")
KINDS = f"{', '.join(READERS)}, all but {', '.join(COLUMNAR)} also with .gz behind it"
FOLDERS = "folders of .txt, .md and .html files, of .parquet, or of BEIR (corpus.jsonl) and MS MARCO (collection.tsv)"


def holds_texts(path: Path) -> bool:
    """Whether this is a folder of text files: of documents rather than of records."""
    records = (one for pattern in ("*.parquet", "corpus.jsonl*") for one in path.glob(pattern))
    return path.is_dir() and not any(records) and bool(text_files(path))


def read_items(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of a file by its ending, of a BEIR or MS MARCO folder, or of a folder of Parquet or text files; streamed.

    A folder of .txt, .md and .html files is one item a file, and the path inside the folder is its id.

    Parameters
    ----------
    text, title, id
        Names of columns (of keys, in JSON). By default `text` or `contents`, `title`, `_id` or `id`; an item without an
        id is called by its number.
    metadata
        The columns to keep as metadata; all others by default.
    numbers
        Columns of CSV and TSV files that are numbers. All others are texts there, because 01234 may be a code.
    progress
        Called as `progress(what, done, total)`.
    """
    path = Path(path)
    if path.is_dir():
        if any(path.glob("*.parquet")):
            return arrow.read_parquet(path, progress=progress, **columns)
        if holds_texts(path):
            if any(columns.values()):
                raise InputError(f"{str(path)!r} holds text files, which have no columns to name; got {columns}")
            return read_folder(path, progress=progress)
        if not any(path.iterdir()):
            raise InputError(f"the folder {str(path)!r} is empty: items are read from {FOLDERS}")
        return read_items(find(path, "corpus.jsonl", "collection.tsv"), progress=progress, **columns)  # BEIR, MS MARCO
    packed = path.suffix == ".gz"
    ending = (path.with_suffix("") if packed else path).suffix.lower()
    if not path.exists():
        meant = "" if ending in READERS else f"; items are read from {KINDS}, or from {FOLDERS}; texts come in a list"
        raise InputError(f"there is no file or folder {str(path)!r:.100}{meant}")
    if ending not in READERS or (packed and ending in COLUMNAR):
        raise InputError(f"{str(path)!r} ends in {''.join(path.suffixes[-2:])!r}; items are read from {KINDS}")
    return READERS[ending](path, progress=progress, **columns)


def read_queries(path: str | Path, **columns: Unpack[ColumnNames]) -> list[Query]:
    """Queries of the same kinds of file; a title, if any, is put before the text."""
    return [query_of(item) for item in read_items(path, **columns)]


def query_of(item: Item) -> Query:
    """A record read as a query."""
    return Query(item.id, f"{item.title} {item.text}".strip())
