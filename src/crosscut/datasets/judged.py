"""Judged queries, without the items: what evaluating, calibrating and tuning read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from crosscut.datasets.beir import is_test, read_judgements
from crosscut.datasets.files import find, records, text_of
from crosscut.datasets.reading import query_of, read_items
from crosscut.errors import InputError

EVERY = "all"


@dataclass(frozen=True)
class JudgedQueries:
    """Queries, id → text, and what is judged of them, query id → item id → relevance; `note` says which they are."""

    queries: dict[str, str]
    qrels: dict[str, dict[str, float]]
    note: str = ""

    def sample(self, size: int | None, seed: int = 0) -> JudgedQueries:
        """So many of the queries, drawn by a seed; all, where there are no more."""
        if size is None or size >= len(self.queries):
            return self
        ids = sorted(self.queries)
        drawn = [ids[place] for place in np.random.default_rng(seed).permutation(len(ids))[:size]]
        note = f"{self.note}, {size} of {len(ids)} drawn with seed {seed}"
        return replace(self, queries={id: self.queries[id] for id in drawn}, note=note)

    @property
    def by_text(self) -> dict[str, dict[str, float]]:
        """Query text → item id → relevance, of the queries that are judged."""
        return {text: self.qrels[id] for id, text in self.queries.items() if self.qrels.get(id)}


def read_judged(source: str | Path, *, qrels: str | Path | None = None, split: str = "test") -> JudgedQueries:
    """Queries of a BEIR folder or a file, with their qrels.

    Parameters
    ----------
    source
        A folder with queries.jsonl and qrels, or a file of queries (.jsonl, .tsv, .txt).
    qrels
        A qrels file, for a file of queries or in place of the folder's own.
    split
        Of a folder: `qrels/<split>.tsv`; where there is one qrels.tsv for all, the queries whose record says
        `"split": "<split>"`; where no record does, a fixed fifth of the queries is test, the others are train. "all"
        is every judged query. Of a file: the queries whose record says so; where no record does, all of them.

    Where there are qrels, queries without any are left out.
    """
    source = Path(source)
    judged = None if qrels is None else _judgements(Path(qrels))
    if not source.is_dir():
        queries, splits = _of_file(source)
        if judged is None:
            return JudgedQueries(queries, {}, f"{_counted(len(queries))} of {source.name}")
        chosen, rule = known, _ = _known(queries, judged, source), ""
        if splits and split != EVERY:
            chosen, rule = _of_split(source, known, splits, split)
        note = f"{_counted(len(chosen))} of {source.name}" + (f": {rule}" if rule else "")
        note += f", the judged ones of {len(queries)}" if len(known) < len(queries) else ""
        return JudgedQueries({id: queries[id] for id in chosen}, judged, note)
    texts, splits = _texts(find(source, "queries.jsonl"))
    own = _own(source, split)
    if judged is None:
        judged = _judgements(*([own] if own is not None else _shared(source, split)))
    known = _known(texts, judged, source)
    if own is not None or split == EVERY:
        chosen, rule = known, "every judged query" if own is None else f"the judged queries of {own.name}"
    else:
        chosen, rule = _of_split(source, known, splits, split)
    return JudgedQueries({id: texts[id] for id in chosen}, judged, f"{_counted(len(chosen))} of {source.name}: {rule}")


def _counted(size: int) -> str:
    return "1 query" if size == 1 else f"{size:,} queries"


def _of_file(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Texts of the queries of a file, and the split of each that has one."""
    queries: dict[str, str] = {}
    splits: dict[str, str] = {}
    for item in read_items(path):
        query = query_of(item)
        queries[query.id] = query.text
        if "split" in item.metadata:
            splits[query.id] = str(item.metadata["split"])
    return queries, splits


def _known(queries: Mapping[str, str], judged: Mapping[str, object], source: Path) -> list[str]:
    """The queries that are judged; none is a mistake."""
    known = [id for id in queries if judged.get(id)]
    if not known and queries:
        first = f"the first of them is {next(iter(judged))!r}, " if judged else ""
        raise InputError(
            f"none of the {len(queries)} queries of {str(source)!r} is among the {len(judged)} that are judged: {first}"
            f"the first query has the id {next(iter(queries))!r}, and ids have to be the same (in .tsv and .jsonl they "
            "can be given)"
        )
    return known


def _texts(path: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Texts of the queries of a BEIR file, and the split of each that has one."""
    texts: dict[str, str] = {}
    splits: dict[str, str] = {}
    for number, record in records(path):
        id = text_of(record, ("_id", "id"), path, number)
        texts[id] = text_of(record, ("text",), path, number)
        if "split" in record:
            splits[id] = str(record["split"])
    return texts, splits


def _of_split(source: Path, known: list[str], splits: dict[str, str], split: str) -> tuple[list[str], str]:
    """The judged queries of a split that has no file of its own, and how they were chosen."""
    if splits:
        chosen = [id for id in known if splits.get(id) == split]
        if chosen:
            return chosen, f"those whose split is {split!r}"
        there = ", ".join(sorted(set(splits.values())))
        raise InputError(f"no judged query of {str(source)!r} is of split {split!r}: there are {there}, and 'all'")
    if split not in ("train", "test"):
        raise InputError(f"{str(source)!r} has no splits: choose 'test', 'train' or 'all', not {split!r}")
    rule = f"a fixed fifth is test, since no splits are given, and these are {split} ('all' takes every one)"
    return [id for id in known if is_test(id) == (split == "test")], rule


def _own(folder: Path, split: str) -> Path | None:
    """The judgements of a split that has a file of its own."""
    for path in (folder / "qrels" / f"{split}.tsv", folder / "qrels" / f"{split}.tsv.gz"):
        if path.is_file():
            return path
    return None


def _shared(folder: Path, split: str) -> list[Path]:
    """The judgements of all splits, in one file or in several."""
    several = sorted({*(folder / "qrels").glob("*.tsv"), *(folder / "qrels").glob("*.tsv.gz")})
    if not several or any((folder / name).is_file() for name in ("qrels.tsv", "qrels.tsv.gz")):
        return [find(folder, "qrels.tsv")]
    if split == EVERY:
        return several
    there = ", ".join(path.name.split(".tsv")[0] for path in several)
    raise InputError(f"{str(folder)!r} has no judgements of split {split!r}: there are {there}, and 'all'")


def _judgements(*paths: Path) -> dict[str, dict[str, float]]:
    judged: dict[str, dict[str, float]] = {}
    for judgement in itertools.chain.from_iterable(map(read_judgements, paths)):
        judged.setdefault(judgement.query_id, {})[judgement.item_id] = judgement.score
    return judged
