"""Inputs in memory, read as texts, items and records, one after another.

| | becomes |
|---|---|
| a mapping of ids to texts, or of ids to records | items with these ids |
| a frame of pandas or polars, a table of pyarrow, a `Dataset` | a record a row; columns are named as in files |
| tuples (id, text) or (id, title, text) | items |
| documents of LangChain, LlamaIndex and Haystack | items with their id, text and metadata, and the title in it |

Libraries are known by what their objects can do: none of them is imported. In a frame of pandas that has no column for
ids the index is the id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from crosscut.datasets.records import Item
from crosscut.errors import InputError


def entries_of(source: Any, *, id: str | None = None) -> Iterable[Any]:
    """The entries of a source; what is no text, record or document is left for the caller to refuse."""
    library = type(source).__module__.split(".")[0]
    if isinstance(source, Mapping):
        return _of_mapping(source)
    if library == "pandas" and hasattr(source, "itertuples"):
        return _of_pandas(source, id)
    if library == "pandas" and hasattr(source, "to_frame"):
        return _of_pandas(source.to_frame("text"), id)
    if library == "polars" and hasattr(source, "collect"):
        source = source.collect()
    if library == "polars" and hasattr(source, "iter_rows"):
        rows: Iterator[dict[str, Any]] = source.iter_rows(named=True)
        return rows
    if library == "pyarrow" and hasattr(source, "to_pylist") and hasattr(source, "column_names"):
        return (row for batch in source.to_batches() for row in batch.to_pylist())
    if isinstance(source, Iterable):
        return source
    raise InputError(
        f"items do not come from a {type(source).__name__}: pass a file, a folder, a frame, a dataset, a mapping of "
        "ids to texts, or a list of texts, records, tuples or documents"
    )


def item_of(entry: Any) -> Item | None:
    """An item of a tuple or of another library's document; None of what is neither."""
    if isinstance(entry, Item):
        return entry
    if isinstance(entry, tuple):
        if len(entry) not in (2, 3):
            raise InputError(f"a tuple is (id, text) or (id, title, text); got one of {len(entry)} values")
        return Item(str(entry[0]), entry[1] if len(entry) == 3 else "", entry[-1])
    if hasattr(entry, "page_content") and hasattr(entry, "metadata"):  # LangChain
        return _document(getattr(entry, "id", None), entry.page_content, entry.metadata)
    if hasattr(entry, "get_content") and hasattr(entry, "node_id"):  # LlamaIndex
        return _document(entry.node_id, entry.get_content(), entry.metadata)
    if hasattr(entry, "content") and hasattr(entry, "meta"):  # Haystack
        if entry.content is None:
            raise InputError(f"document {entry.id!r} has no text; leave it out")
        return _document(entry.id, entry.content, entry.meta)
    return None


def _document(id: Any, text: str, metadata: Mapping[str, Any] | None) -> Item:
    rest = dict(metadata or {})
    title = rest.pop("title") if isinstance(rest.get("title"), str) else ""
    return Item("" if id is None else str(id), title, text, rest)


def _of_mapping(source: Mapping[Any, Any]) -> Iterator[Item | dict[str, Any]]:
    if "text" in source and {"id", "_id", "title"} & {*source}:
        raise InputError(
            f"this is one record ({', '.join(map(str, source))}): put it into a list, or pass {{id: text}}"
        )
    for id, value in source.items():
        if isinstance(value, str):
            yield Item(str(id), "", value)
        elif isinstance(value, Mapping):
            yield {**value, "id": str(id)}
        elif hasattr(value, "column_names") and hasattr(source, "column_names"):  # a DatasetDict
            raise InputError(f"this is a dataset of splits ({', '.join(map(str, source))}): pass one of them")
        else:
            raise InputError(
                f"a mapping is of ids to texts or to records, and {id!r} leads to a {type(value).__name__}; "
                "of columns, make a frame or a list of records"
            )


def _of_pandas(frame: Any, id: str | None) -> Iterator[dict[str, Any]]:
    names = [str(name) for name in frame.columns]
    rows = frame.astype(object).where(frame.notna(), None)
    counted = type(frame.index).__name__ == "RangeIndex" and frame.index.start == 0 and frame.index.step == 1
    labelled = not counted and id not in names and not {"id", "_id"} & {*names}
    labelled = labelled or (id is not None and frame.index.name == id)
    key = id or "id"
    for label, row in zip(frame.index, rows.itertuples(index=False, name=None), strict=True):
        record = dict(zip(names, row, strict=True))
        yield {**record, key: str(label)} if labelled else record
