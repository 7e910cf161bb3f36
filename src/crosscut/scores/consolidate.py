"""Many blocks into one matrix: the only act that deletes, and the only one that takes a lock.

The order makes a kill harmless at any moment: the .npy is written and synced, then its record is renamed into place
(from here on the matrix counts), and only then are the blocks deleted that it covers.
"""

from __future__ import annotations

import os
import shutil
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import numpy as np

from crosscut.errors import DamagedRecord, InputError
from crosscut.scores.catalogue import Catalogue, alone
from crosscut.scores.keys import Hashes, Keys, split_hashes
from crosscut.scores.records import SUFFIX, ScoreFile, write_record
from crosscut.scores.sources import DenseBlock, Matrix, PairBlock, Scores, Source
from crosscut.storage import TEMPORARY, npy_header, write_file
from crosscut.types import Mask, Positions

MERGED_PAIR_BLOCKS = 8
ROWS = 64
"""Queries in one block of what is left when items are forgotten."""
STALE_SECONDS = 3600.0
"""A temporary file older than this belongs to a writer that was killed."""


def consolidate(catalogue: Catalogue, queries: Keys | None, items: Keys | None) -> None:
    """See `ScoreStore.consolidate`."""
    with alone(catalogue.folder), catalogue.lock:
        catalogue.refresh()
        _sweep(catalogue.folder)
        if queries is not None and items is not None:
            if catalogue.mapped(queries, items) is None:
                _make_matrix(catalogue, queries, items)
            return
        lists = {source.items_id for source in catalogue.sources.values() if isinstance(source, DenseBlock)}
        for digest in sorted(lists):
            _consolidate_list(catalogue, digest)
        _merge_pairs(catalogue)


def forget(catalogue: Catalogue, items: Keys) -> None:
    """See `ScoreStore.forget`. What is left of a source is written before the source is deleted.

    The order keeps other writers from bringing it back. First they are told. Then what they are writing at this moment
    is deleted: they begin again, and look again. What they have written before is found here, with all the rest.
    """
    gone = set(items.names)
    catalogue.begin()
    with alone(catalogue.folder), catalogue.lock:
        time = catalogue.forgotten.add(gone)
        _sweep(catalogue.folder, 0.0)
        catalogue.refresh()
        for source in list(catalogue.sources.values()):
            try:
                hashes = catalogue.list_of(source)
                stay = np.array([name not in gone for name in split_hashes(hashes)], np.bool_)
                if stay.all():
                    continue
                _write_rest(catalogue, source, hashes, stay)
            except DamagedRecord as error:  # it cannot be told what it holds
                catalogue.distrust(source, 0, error)
            _delete(source)
        for path in (catalogue.folder / "items").glob(f"*{SUFFIX}"):
            with suppress(DamagedRecord):
                if gone.isdisjoint(split_hashes(ScoreFile.open(path).read("items"))):
                    continue
            path.unlink()
        shutil.rmtree(catalogue.folder / "damaged", ignore_errors=True)
        catalogue.forget_lists()
        catalogue.refresh()
        catalogue.since = None if catalogue.since is None else catalogue.since.after(time)


def _write_rest(catalogue: Catalogue, source: Source, hashes: Hashes, stay: Mask) -> None:
    """The scores of a source with the items that stay."""
    if isinstance(source, PairBlock):
        loaded = source.load()
        kept = stay[loaded["columns"]]
        rows = np.repeat(np.arange(len(source.queries)), np.diff(loaded["ends"], prepend=0))[kept]
        columns = (np.cumsum(stay) - 1)[loaded["columns"][kept]]
        if len(rows):
            catalogue.commit_pairs(_stacked(source.queries), hashes[stay], rows, columns, loaded["scores"][kept], 0.0)
        return
    rest = Keys("", len(hashes), hashes=hashes).only(stay)
    catalogue.keep_list(rest)
    span = source.span if isinstance(source, DenseBlock) else slice(0, len(hashes))
    start, kept = int(stay[: span.start].sum()), stay[span]
    header = {"kind": "dense", "items": rest.digest, "start": start, "stop": start + int(kept.sum())}
    spoilt = source.spoilt if isinstance(source, Matrix) else set()
    fine = [row for row in range(len(source.queries)) if row not in spoilt]
    loaded = source.load()
    for some in (fine[at : at + ROWS] for at in range(0, len(fine) if kept.any() else 0, ROWS)):
        scores = np.stack([source.row(row, loaded)[1][kept] for row in some])
        queries = _stacked([source.queries[row] for row in some])
        catalogue.commit(dict(header), {"queries": queries, "scores": scores}, scores.size, 0.0)


def _consolidate_list(catalogue: Catalogue, digest: str) -> None:
    """A matrix of all queries that have been scored with every item of one list."""
    sources = [source for source in catalogue.sources.values() if source.items_id == digest]
    try:
        hashes = catalogue.list_of(sources[0])
    except DamagedRecord as error:
        catalogue.distrust(sources[0], 0, error)
        return
    items = Keys(digest, len(hashes), hashes=hashes)
    asked = dict.fromkeys(query for source in sources for query in source.queries)
    whole = [query for query in asked if not np.isnan(catalogue.row(query, items)).any()]
    held = [source for source in sources if isinstance(source, Matrix) and not source.spoilt]
    if whole and not any(set(source.queries).issuperset(whole) for source in held):
        _make_matrix(catalogue, Keys("", len(whole), hashes=_stacked(whole)), items)


def _make_matrix(catalogue: Catalogue, queries: Keys, items: Keys) -> None:
    """Write and commit a matrix, then delete the sources that it covers."""
    before = list(catalogue.sources.values())
    catalogue.keep_list(items)
    name = f"{time.time_ns():020d}-{uuid4().hex[:12]}"
    path = catalogue.folder / "matrices" / f"{name}.npy"
    heading = npy_header(np.dtype("<f4"), (len(queries), len(items)))
    checksums: list[int] = []

    def chunks() -> Iterator[bytes]:
        yield heading
        for number, query in enumerate(queries.names):
            row = catalogue.row(query, items)
            if np.isnan(row).any():
                raise InputError(
                    f"query {number} has {int(np.isnan(row).sum())} of {len(items)} scores missing in "
                    f"{str(catalogue.folder)!r}; score them first, then consolidate"
                )
            data = row.tobytes()
            checksums.append(zlib.crc32(data))
            yield data

    write_file(path, chunks())
    status = os.stat(path)
    header = {
        "kind": "matrix",
        "items": items.digest,
        "columns": len(items),
        "offset": len(heading),
        "stamp": [status.st_size, status.st_mtime_ns],
        "scorer": catalogue.scorer,
        "pairs": len(queries) * len(items),
        "written": time.time(),
    }
    rows = set(queries.names)
    covered = [source for source in before if rows.issuperset(source.queries) and _covers(catalogue, items, source)]
    header["seconds"] = sum(source.seconds for source in covered)
    arrays = {"queries": queries.hashes, "checksums": np.asarray(checksums, "<u4")}
    write_record(path.with_suffix(SUFFIX), header, arrays)
    for source in covered:
        _delete(source)
    catalogue.refresh()


def _covers(catalogue: Catalogue, items: Keys, source: Source) -> bool:
    """Whether every item that a source has scores of is among `items`."""
    if source.items_id == items.digest:
        return True
    try:
        target = catalogue.target(source, items)
    except DamagedRecord:
        return False
    return bool((target[source.span if isinstance(source, DenseBlock) else slice(None)] >= 0).all())


def _merge_pairs(catalogue: Catalogue) -> None:
    """All blocks of scattered pairs as one; a text that many blocks name is then named once."""
    blocks = [source for source in catalogue.sources.values() if isinstance(source, PairBlock)]
    if len(blocks) < MERGED_PAIR_BLOCKS:
        return
    queries: dict[bytes, int] = {}
    items: dict[bytes, int] = {}
    parts: list[tuple[Positions, Positions, Scores]] = []
    merged = []
    for block in blocks:
        try:
            loaded, names = block.load(), split_hashes(block.hashes())
        except DamagedRecord as error:
            catalogue.distrust(block, 0, error)
            continue
        rows = np.asarray([queries.setdefault(query, len(queries)) for query in block.queries], np.int64)
        columns = np.asarray([items.setdefault(name, len(items)) for name in names], np.int64)
        counts = np.diff(loaded["ends"], prepend=0)
        parts.append((np.repeat(rows, counts), columns[loaded["columns"]], loaded["scores"]))
        merged.append(block)
    rows, columns, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
    _, last = np.unique((rows * len(items) + columns)[::-1], return_index=True)  # the latest of each pair
    last = len(rows) - 1 - last
    hashes = _stacked(list(queries)), _stacked(list(items))
    catalogue.commit_pairs(*hashes, rows[last], columns[last], scores[last], 0.0)
    for block in merged:
        _delete(block)
    catalogue.refresh()


def _stacked(names: list[bytes]) -> Hashes:
    return np.frombuffer(b"".join(names), np.uint8).reshape(len(names), -1)


def _delete(source: Source) -> None:
    for path in source.files:
        with suppress(FileNotFoundError):
            path.unlink()


def _sweep(folder: Path, older: float = STALE_SECONDS) -> None:
    """Delete what killed writers left: old temporary files, and matrices without a record."""
    records = {path.stem for path in (folder / "matrices").glob(f"*{SUFFIX}")}
    left = [path for path in (folder / "matrices").glob("*.npy") if path.stem not in records]
    for path in folder.rglob(f"*{TEMPORARY}"):
        with suppress(FileNotFoundError):  # its writer has just finished
            if time.time() - path.stat().st_mtime > older:
                left.append(path)
    for path in left:
        with suppress(OSError):
            path.unlink()
