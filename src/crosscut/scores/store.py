"""The score store: (query × item) scores on disk, kept under the content of scorer, query and item.

    STORE/<fingerprint of the scorer>/
        store.json      {"format": 1, "scorer": fingerprint}
        items/          one item list a corpus: 16 bytes a text
        blocks/         what was committed: one file a batch, under a name of its own, never changed
        matrices/       consolidated: a .npy to be memory-mapped, and its checksums
        forgotten.json  marks of what was forgotten, for writers that still have it in memory (`storage/forgotten.py`)

A writer adds files and touches no other's, so any number of threads, processes and machines write at once without a
lock. Readers look at the folder again when they miss something. Only `consolidate` and `forget`, which delete, take a
lock, against others of their kind. docs/scores.md has the format to the byte.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError, StoreError, WriteError
from crosscut.scores.cache import StoreCache
from crosscut.scores.catalogue import Catalogue
from crosscut.scores.consolidate import consolidate, forget
from crosscut.scores.coverage import Coverage, bytes_of, pace
from crosscut.scores.keys import Contents, Keys, split_hashes
from crosscut.scores.records import FORMAT, Check, Damage
from crosscut.scores.sources import Matrix, Scores
from crosscut.storage import Since, make_folder, regular, write_json, writing
from crosscut.types import Positions

Texts = Contents


class ScoredPairs(NamedTuple):
    """Known pairs: row of the query list, column of the item list, score; all of shape (p,)."""

    rows: Positions
    columns: Positions
    scores: Scores


class ScoreStore:
    """Scores of one scorer. Opening reads headers only; the first write makes the folder.

    >>> store = ScoreStore("scores/", scorer_fingerprint=scorer.fingerprint)
    >>> store.put_block(queries[:2], items, block)          # (2 × items), one atomic write
    >>> matrix = store.matrix(queries[:2], items)           # float32; a memory map once consolidated
    """

    def __init__(self, path: str | Path, *, scorer_fingerprint: str) -> None:
        self.path = Path(path)
        self.scorer_fingerprint = scorer_fingerprint
        self.folder = self.path / folder_name(scorer_fingerprint)
        self._catalogue = Catalogue(self.folder, scorer_fingerprint)
        if self.path.exists() and not self.path.is_dir():
            raise StoreError(f"{str(self.path)!r} is a file; a score store is a folder")
        if (self.folder / "store.json").exists():
            scorer_of(self.folder / "store.json")
        self.refresh()

    @classmethod
    def create(cls, path: str | Path, scorer_fingerprint: str) -> ScoreStore:
        """A store for a scorer, made now: an unwritable folder is found before the first score is paid for."""
        store = cls(path, scorer_fingerprint=scorer_fingerprint)
        store._prepare()
        return store

    @classmethod
    def open(cls, path: str | Path, scorer_fingerprint: str | None = None) -> ScoreStore:
        """The store in a folder; the scorer may be left out when the folder has scores of one only."""
        held = scorers(path)
        if scorer_fingerprint is None:
            if len(held) != 1:
                raise StoreError(
                    f"{str(path)!r} holds scores of {len(held)} scorers ({', '.join(held) or 'none'}); "
                    "name one by its fingerprint"
                )
            scorer_fingerprint = held[0]
        elif scorer_fingerprint not in held:
            raise StoreError(
                f"{str(path)!r} holds no scores of the scorer {scorer_fingerprint!r}, only of "
                f"{', '.join(held) or 'none'}; scores of another model are never reused"
            )
        return cls(path, scorer_fingerprint=scorer_fingerprint)

    # -- writing ---------------------------------------------------------------------------------------------------

    def put_block(
        self, queries: Texts, items: Texts, scores: npt.ArrayLike, *, start: int = 0, seconds: float = 0.0
    ) -> None:
        """Commit scores (q × m) of queries with the items `start` … `start + m − 1`; durable when this returns.

        `seconds` is what they took to compute, for estimates of the time left.
        """
        queries, items = Keys.of(queries), Keys.of(items)
        block = checked(scores)
        if block.ndim != 2 or len(block) != len(queries):
            raise InputError(f"a block for {len(queries)} queries needs as many rows of scores, not {block.shape}")
        stop = start + block.shape[1]
        if not 0 <= start <= stop <= len(items):
            raise InputError(f"items {start} … {stop - 1} are not all among the {len(items)} of the corpus")
        if not block.size:
            return
        self._prepare()
        catalogue = self._catalogue

        def write(now: Since | None, check: Check) -> None:
            stay = catalogue.staying(items, catalogue.since, now)
            left, kept, first = items, block, start
            if stay is not None:
                left, kept, first = items.only(stay), block[:, stay[start:stop]], int(stay[:start].sum())
            if kept.size:
                catalogue.keep_list(left, check)
                header = {"kind": "dense", "items": left.digest, "start": first, "stop": first + kept.shape[1]}
                catalogue.commit(header, {"queries": queries.hashes, "scores": kept}, kept.size, seconds, check)

        catalogue.lasting(write)

    def put_pairs(
        self,
        queries: Texts,
        items: Texts,
        rows: npt.ArrayLike,
        columns: npt.ArrayLike,
        scores: npt.ArrayLike,
        *,
        seconds: float = 0.0,
        since: Since | None = None,
    ) -> None:
        """Commit the scores of pairs (queries[rows[j]], items[columns[j]]); durable when this returns.

        `since` (`store.since`) is when the items were read, if that was before this store was opened or last forgot
        some: those that were forgotten after it are left out.
        """
        queries, items = Keys.of(queries), Keys.of(items)
        rows, columns = np.asarray(rows, np.int64).ravel(), np.asarray(columns, np.int64).ravel()
        values = checked(scores).ravel()
        if not len(rows) == len(columns) == len(values):
            raise InputError(f"{len(rows)} rows, {len(columns)} columns and {len(values)} scores do not make pairs")
        for name, places, size in (("query", rows, len(queries)), ("item", columns, len(items))):
            if len(places) and not (places.min() >= 0 and places.max() < size):
                raise InputError(f"{name} numbers {places.min()} … {places.max()} do not fit a list of {size}")
        if len(values):
            self._prepare()
            used, columns = np.unique(columns, return_inverse=True)
            catalogue, hashes = self._catalogue, items.hashes[used]
            names = split_hashes(hashes)

            def write(now: Since | None, check: Check) -> None:
                gone = catalogue.forgotten.among(names, since or catalogue.since)
                stay = np.array([name not in gone for name in names], np.bool_)
                kept, new = stay[columns], np.cumsum(stay) - 1
                if kept.any():
                    left = rows[kept], new[columns[kept]], values[kept]
                    catalogue.commit_pairs(queries.hashes, hashes[stay], *left, seconds, check)

            catalogue.lasting(write)

    def _prepare(self) -> None:
        if not (self.folder / "store.json").exists():
            write_json(self.folder / "store.json", {"format": FORMAT, "scorer": self.scorer_fingerprint})
        with writing(self.folder):
            for name in ("items", "blocks", "matrices"):
                make_folder(self.folder / name)
        self._catalogue.begin()

    @property
    def since(self) -> Since | None:
        """When this store was opened, or forgot something last: what others forget later is not written by it."""
        return self._catalogue.since

    @property
    def damaged(self) -> list[Damage]:
        """What was found damaged since this store was opened."""
        return self._catalogue.damaged

    # -- reading ---------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """See what other writers have committed since."""
        self._catalogue.refresh()

    def get(self, query: str | bytes, items: Texts, positions: npt.ArrayLike | None = None) -> Scores:
        """Known scores of one query with the items at `positions` (all, if left out); NaN where there is none."""
        name = query if isinstance(query, bytes) else Keys.of([query]).names[0]
        row = self._catalogue.row(name, Keys.of(items))
        return row if positions is None else row[np.asarray(positions, np.int64)]

    def missing(self, queries: Texts, items: Texts) -> Iterator[tuple[int, Positions]]:
        """Each query that has not been scored with every item: its number and the positions that are missing.

        Everything that counts as known has been read and its checksum compared.
        """
        queries, items = Keys.of(queries), Keys.of(items)
        for number, name in enumerate(queries.names):
            lacking = np.flatnonzero(np.isnan(self._catalogue.row(name, items)))
            if len(lacking):
                yield number, lacking

    def pairs(self, queries: Texts, items: Texts) -> ScoredPairs:
        """Every known pair of these queries and items, query by query: the sparse matrix G."""
        queries, items = Keys.of(queries), Keys.of(items)
        rows: list[Positions] = []
        columns: list[Positions] = []
        scores: list[Scores] = []
        for number, name in enumerate(queries.names):
            row = self._catalogue.row(name, items)
            known = np.flatnonzero(~np.isnan(row))
            rows.append(np.full(len(known), number, np.int64))
            columns.append(known)
            scores.append(row[known])
        if not rows:
            return ScoredPairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))
        return ScoredPairs(np.concatenate(rows), np.concatenate(columns), np.concatenate(scores))

    def matrix(self, queries: Texts, items: Texts, *, partial: bool = False) -> Scores:
        """The dense scores (queries × items), float32.

        A read-only memory map if these queries stand together in a consolidated matrix of these items, an array in
        memory otherwise. Missing pairs are an error, or with `partial` NaN.
        """
        queries, items = Keys.of(queries), Keys.of(items)
        mapped = self._catalogue.mapped(queries, items)
        if mapped is not None:
            return mapped
        scores = np.empty((len(queries), len(items)), np.float32)
        for number, name in enumerate(queries.names):
            scores[number] = self._catalogue.row(name, items)
        lacking = int(np.isnan(scores).sum())
        if lacking and not partial:
            raise InputError(
                f"{lacking} of {scores.size} scores are not in {str(self.path)!r}: "
                "score them first with `crosscut score`, or ask for partial=True to have NaN there"
            )
        return scores

    def cache(self, items: Texts, *, flush_pairs: int = 4096, flush_seconds: float = 10.0) -> StoreCache:
        """This store as the cache of a search over `items`: known scores are free, bought ones are kept."""
        with suppress(WriteError):  # one that can only be read
            self._prepare()
        return StoreCache(self, Keys.of(items), flush_pairs=flush_pairs, flush_seconds=flush_seconds)

    # -- upkeep ----------------------------------------------------------------------------------------------------

    def verify(self) -> list[Damage]:
        """Read everything and compare every checksum; what is damaged is taken out of use and returned."""
        self._catalogue.verify()
        return self.damaged

    def set_aside_damaged(self) -> int:
        """Move damaged files to `damaged/`, so that they are reported once; returns their number."""
        return self._catalogue.set_aside_damaged()

    def coverage(self, queries: Texts | None = None, items: Texts | None = None) -> Coverage:
        """What the store holds and, given queries and items, how many of their pairs."""
        self.refresh()
        pairs = known = None
        if queries is not None and items is not None:
            queries, items = Keys.of(queries), Keys.of(items)
            pairs = len(queries) * len(items)
            known = pairs - sum(len(positions) for _, positions in self.missing(queries, items))
        with self._catalogue.lock:
            sources = list(self._catalogue.sources.values())
            return Coverage(
                scorer=self.scorer_fingerprint,
                scores=sum(source.pairs for source in sources),
                queries=len(self._catalogue.by_query),
                blocks=sum(not isinstance(source, Matrix) for source in sources),
                matrices=sum(isinstance(source, Matrix) for source in sources),
                bytes=bytes_of(self.folder),
                damaged=list(self.damaged),
                pairs=pairs,
                known=known,
                pairs_per_second=pace(sources),
            )

    def consolidate(self, queries: Texts | None = None, items: Texts | None = None) -> Scores | None:
        """Put scores that lie in many blocks into one matrix to be memory-mapped, and delete those blocks.

        With queries and items: exactly that matrix, which must be complete; it is returned. Without: every item list
        gets a matrix of the queries that are complete for it, and scattered pairs are merged into one block.
        """
        if queries is None and items is None:
            self._prepare()
            consolidate(self._catalogue, None, None)
            return None
        if queries is None or items is None:
            raise InputError("consolidate takes queries and items, or neither")
        queries, items = Keys.of(queries), Keys.of(items)
        if self._catalogue.mapped(queries, items) is None:
            self._prepare()
            consolidate(self._catalogue, queries, items)
        return self.matrix(queries, items)

    def forget(self, items: Texts) -> None:
        """Delete every score of these items by any scorer, their names (hashes) and what was set aside as damaged.

        Files that know one of them are written anew without it. Others may write meanwhile: what they have in memory of
        these items, and what they score of them as long as they run, is not written any more.
        """
        keys = Keys.of(items)
        for scorer in scorers(self.path) if self.path.exists() else ():
            own = scorer == self.scorer_fingerprint
            forget((self if own else ScoreStore(self.path, scorer_fingerprint=scorer))._catalogue, keys)

    def __repr__(self) -> str:
        return f"ScoreStore({str(self.path)!r}, scorer_fingerprint={self.scorer_fingerprint!r})"


def folder_name(fingerprint: str) -> str:
    """A fingerprint as the name of a folder: itself where that is safe, a hash of it otherwise."""
    if not fingerprint:
        raise InputError("a scorer without a fingerprint has no place in a score store; give it one")
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}", fingerprint):
        return fingerprint
    return blake2b(fingerprint.encode(), digest_size=16).hexdigest()


def scorers(path: str | Path) -> list[str]:
    """The fingerprints of the scorers that a folder has scores of."""
    if not Path(path).is_dir():
        raise StoreError(f"there is no score store at {str(path)!r}; `crosscut score` makes one")
    return [scorer_of(facts) for facts in sorted(Path(path).glob("*/store.json"))]


def scorer_of(path: Path) -> str:
    """The scorer that a store.json names, which its folder is named after."""
    try:
        facts = json.loads(regular(path).read_bytes())
        scorer, version = str(facts["scorer"]), facts["format"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{str(path)!r} cannot be read ({error}); restore it from a copy") from error
    if version != FORMAT:
        raise StoreError(f"{str(path)!r} has format {version}, this version reads {FORMAT}; update crosscut")
    if not scorer or folder_name(scorer) != path.parent.name:
        raise StoreError(f"{str(path)!r} names the scorer {scorer!r}, whose folder this is not; restore it from a copy")
    return scorer


def checked(scores: npt.ArrayLike) -> Scores:
    """Scores as float32, all finite."""
    with np.errstate(over="ignore"):
        array = np.asarray(scores).astype("<f4", copy=False)
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise InputError(f"{bad} of {array.size} scores are not finite as float32; only real scores are stored")
    return array
