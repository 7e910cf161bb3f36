"""Parquet, Arrow and Feather files of items, a batch of rows at a time. They need pyarrow, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Unpack

from crosscut.datasets.columns import ColumnNames, Columns
from crosscut.datasets.plain import unique_items
from crosscut.datasets.records import Item
from crosscut.errors import InputError, needing
from crosscut.types import Progress

ROWS = 4096  # a batch


def read_parquet(
    path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]
) -> Iterator[Item]:
    """Items of a Parquet file, or of a folder of them in the order of their names."""
    chosen, target = Columns(**columns), Path(path)
    parts = sorted(target.glob("*.parquet")) if target.is_dir() else [target]

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        for part in parts:
            with _reading(part) as pyarrow:
                from pyarrow import parquet

                file = parquet.ParquetFile(pyarrow.OSFile(str(part)), page_checksum_verification=True)
                wanted = _wanted(chosen, file.schema_arrow.names, part)
                total = file.metadata.num_rows
                for done, batch in _counted(file.iter_batches(batch_size=ROWS, columns=wanted)):
                    for record in _records(batch):
                        number += 1
                        yield number, _present(record, chosen)
                    if progress is not None:
                        progress(f"reading {part.name} (rows)", done, total)

    return unique_items(path, rows(), chosen)


def read_arrow(path: str | Path, *, progress: Progress | None = None, **columns: Unpack[ColumnNames]) -> Iterator[Item]:
    """Items of an Arrow file (Feather is one), or of an Arrow stream."""
    chosen = Columns(**columns)

    def rows() -> Iterator[tuple[int, dict[str, Any]]]:
        number = 0
        with _reading(Path(path)) as pyarrow:
            source = pyarrow.memory_map(str(path))
            streamed = source.read(6) != b"ARROW1"
            source.seek(0)
            file = pyarrow.ipc.open_stream(source) if streamed else pyarrow.ipc.open_file(source)
            wanted = _wanted(chosen, file.schema.names, path)
            total = None if streamed else file.num_record_batches
            batches = file if streamed else (file.get_batch(place) for place in range(file.num_record_batches))
            for place, batch in enumerate(batches, 1):
                for start in range(0, batch.num_rows, ROWS):
                    for record in _records(batch.select(wanted), start):
                        number += 1
                        yield number, _present(record, chosen)
                if progress is not None and total is not None:
                    progress(f"reading {Path(path).name} (batches)", place, total)

    return unique_items(path, rows(), chosen)


def _counted(batches: Any) -> Iterator[tuple[int, Any]]:
    done = 0
    for batch in batches:
        done += batch.num_rows
        yield done, batch


def _records(batch: Any, start: int = 0) -> list[dict[str, Any]]:
    """Some rows of a batch. Whatever leads out of it (offsets, lengths, keys of a dictionary) is refused before it is
    followed: pyarrow does not look by itself."""
    if not start:
        batch.validate(full=True)
    records: list[dict[str, Any]] = batch.slice(start, ROWS).to_pylist()
    return records


def _wanted(chosen: Columns, names: list[str], path: str | Path) -> list[str]:
    """The columns that are read: with `metadata` named, no others."""
    chosen.check(names, str(path))
    if chosen.metadata is None:
        return names
    usual = {"text", "contents", "title", "id", "_id"}
    return [name for name in names if name in usual or name in chosen.given]


def _present(record: dict[str, Any], chosen: Columns) -> dict[str, Any]:
    """A row without the columns it has no value for; its text and its id must be there."""
    needed = {chosen.text, chosen.id, "text", "contents", "id", "_id"}
    return {name: value for name, value in record.items() if value is not None or name in needed}


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """pyarrow, and sentences for what it says."""
    with needing(f"{path.suffix} files are read with pyarrow", "arrow"):
        import pyarrow
        import pyarrow.ipc
    try:
        yield pyarrow
    except FileNotFoundError as error:
        raise InputError(f"there is no file {str(path)!r}") from error
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise InputError(f"{str(path)!r} cannot be read ({error})") from error
