"""LanceDB: a table on disk, or at an address that LanceDB reads.

Without an index on the vectors every round is exact. With one, lists are probed after exclusions and filters were
applied, more of them the more is excluded; a round that is short is asked again without the index.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.stores.base import Fields, Rows, Store, Want, check_columns, integer_id, needed, unit
from crosscut.stores.filters import LARGEST, SIGNS, Condition, check_text, integers, is_number
from crosscut.types import Floats

METRICS = ("dot", "cosine")


class LanceDB(Store):
    """A table of LanceDB.

    Parameters
    ----------
    where
        A folder, an address, or a connection (`lancedb.connect(…)`).
    table
        Its name.
    id, vector, text, title
        Columns.
    metadata
        A struct column; None: every other column is metadata.
    metric
        `dot`, or `cosine` for vectors that are compared by their direction alone: they are then scaled to length 1.
    exact
        Whether every round reads every vector; None: if the vectors have no index.
    probes
        Lists of an index that are looked at, at least; more the more is excluded.
    """

    def __init__(
        self,
        where: Any,
        table: str,
        *,
        id: str = "id",
        vector: str = "vector",
        text: str = "text",
        title: str | None = None,
        metadata: str | None = None,
        metric: str = "dot",
        exact: bool | None = None,
        probes: int = 20,
    ) -> None:
        package = needed("lancedb", "lancedb", "crosscut.stores.LanceDB")
        self._arrow = needed("pyarrow", "lancedb", "crosscut.stores.LanceDB")
        if metric not in METRICS:
            raise InputError(f"metric is one of {', '.join(METRICS)}; got {metric!r}")
        self.id, self.vector, self.metric, self.probes = id, vector, metric, probes
        self.fields = Fields(text, title, metadata)
        self._name = table
        with self.reaching():
            base = package.connect(where) if isinstance(where, str | Path) else where
            self._table = base.open_table(table)
            self._schema = self._table.schema
            indexed = any(vector in index.columns for index in self._table.list_indices())
        check_columns(self.place, self._schema.names, id, vector, self.fields)
        kind = self._schema.field(vector).type
        if not self._arrow.types.is_fixed_size_list(kind):
            raise InputError(f"the column {vector!r} of {self.place} is {kind}; vectors are lists of a fixed size")
        self.d = int(kind.list_size)
        self.exact = not indexed if exact is None else exact
        shown = [text, title, metadata] if metadata is not None else [n for n in self._schema.names if n != vector]
        self._names = [name for name in dict.fromkeys(shown) if name is not None and name != id]

    @property
    def place(self) -> str:
        return f"the LanceDB table {self._name!r}"

    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        return [self._rows(self._nearest(want, exact)) for want in wants]

    def _nearest(self, want: Want, exact: bool) -> Any:
        """One trip: what LanceDB finds, as a table of Arrow."""
        search = self._table.search(want.vector.astype(np.float32), vector_column_name=self.vector)
        search = search.distance_type(self.metric).limit(want.count)
        search = search.select([self.id, self.vector, *self._names, "_distance"])
        if where := self._where(want.where, want.exclude):
            search = search.where(where, prefilter=True)
        if exact:
            return search.bypass_vector_index().to_arrow()
        probes = self.probes * (1 + (want.count + len(want.exclude)) // 50)
        return search.nprobes(probes).refine_factor(10).to_arrow()  # quantised: the best are compared again as they are

    def sample(self, count: int, seed: int, exclude: Sequence[Any], where: tuple[Condition, ...]) -> Rows:
        """Drawn by a pass over the ids, a few at a time: the same draw for the same table."""
        rng = np.random.default_rng(seed)
        search = self._table.search().select([self.id]).limit(None)
        if inside := self._where(where, exclude):
            search = search.where(inside)
        keys: list[Any] = []
        marks = np.empty(0)
        for batch in search.to_batches():
            keys += batch.column(self.id).to_pylist()
            marks = np.append(marks, rng.random(batch.num_rows))
            least = np.argsort(marks, kind="stable")[:count]
            keys, marks = [keys[j] for j in least], marks[least]
        return self.fetch(keys) if keys else self._rows(None)

    def fetch(self, names: Sequence[Any], where: tuple[Condition, ...] = ()) -> Rows:
        asked = (
            self._table.search()
            .where(self._where(where, (), only=names))
            .select([self.id, self.vector, *self._names])
            .limit(len(names))
        )
        return self._rows(asked.to_arrow())

    def count(self, where: tuple[Condition, ...] = ()) -> int:
        with self.reaching():
            return int(self._table.count_rows(self._where(where, ()) or None))

    def write(self, items: Sequence[Item], vectors: Floats) -> None:
        records = []
        for item, vector in zip(items, vectors.astype(np.float32), strict=True):
            record = self.fields.record(item)
            if unknown := [name for name in record if name not in self._schema.names]:
                raise InputError(
                    f"{self.place} has no column {unknown[0]!r} for what item {item.id!r} brings; "
                    f"it has {', '.join(self._schema.names)}"
                )
            empty = dict.fromkeys(self._schema.names)
            records.append(empty | record | {self.id: self.named(item.id), self.vector: vector.tolist()})
        table = self._as_table(records)
        with self.reaching():
            self._table.add(table)

    def _as_table(self, records: Sequence[Mapping[str, Any]]) -> Any:
        """The records as a table of Arrow; values that a column would not hold as they are are refused."""
        columns = {}
        for field in self._schema:
            values = [record[field.name] for record in records]
            try:
                columns[field.name] = self._arrow.array(values, field.type)
            except (self._arrow.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise InputError(
                    f"the column {field.name!r} of {self.place} holds {field.type} and does not take what the items "
                    f"bring ({str(error)[:200]}); give what it holds"
                ) from error
            if field.name != self.vector:
                for value, stored in zip(values, columns[field.name].to_pylist(), strict=True):
                    if not _same(value, stored):
                        raise InputError(
                            f"the column {field.name!r} of {self.place} holds {field.type} and would store "
                            f"{value!r:.60} as {stored!r:.60}; give what it holds"
                        )
        return self._arrow.table(columns, schema=self._schema)

    def erase(self, keys: Sequence[Any]) -> None:
        with self.reaching():
            self._table.delete(f"{_q(self.id)} IN ({', '.join(map(_literal, keys))})")

    def named(self, name: Any) -> Any:
        kind = self._schema.field(self.id).type
        if not self._arrow.types.is_integer(kind):
            return check_text(str(name), "the id")
        return integer_id(name, self.place, str(kind), -LARGEST, LARGEST - 1)

    def _rows(self, table: Any) -> Rows:
        if table is None or not table.num_rows:
            return Rows([], lambda places: np.empty((0, self.d)), lambda place: {})
        shown = np.asarray(table.column(self.vector).combine_chunks().flatten()).reshape(-1, self.d)

        def vectors_at(places: Sequence[int]) -> Floats:
            vectors = shown[np.asarray(places)].astype(np.float64)
            return vectors if self.metric == "dot" else unit(vectors)

        payloads: list[Mapping[str, Any]] = []

        def payload_at(place: int) -> Mapping[str, Any]:
            if not payloads:  # one pass over a column costs little more than one value of it
                payloads.extend(table.select(self._names).to_pylist())
            return payloads[place]

        return Rows(table.column(self.id).to_pylist(), vectors_at, payload_at)

    # -- filters -------------------------------------------------------------------------------------------------

    def _where(self, where: tuple[Condition, ...], exclude: Sequence[Any], *, only: Sequence[Any] | None = None) -> str:
        """In LanceDB's SQL, which takes no parameters: values are written as literals."""
        tests = [self._condition(condition) for condition in where]
        if len(exclude):
            tests.append(f"{_q(self.id)} NOT IN ({', '.join(map(_literal, exclude))})")
        if only is not None:
            tests.append(f"{_q(self.id)} IN ({', '.join(map(_literal, only))})")
        return " AND ".join(tests)

    def _condition(self, condition: Condition) -> str:
        own, kind = self._place_of(condition.key)
        types = self._arrow.types
        if several := types.is_list(kind) or types.is_large_list(kind):
            kind = kind.value_type
        unfit = [value for value in condition.given if not self._fits(value, kind)]
        if unfit:
            raise InputError(
                f"the column {condition.key!r} of {self.place} holds {kind}, "
                f"and the filter compares it with {unfit[0]!r}"
            )
        if several and condition.values is None:
            raise InputError(
                f"LanceDB cannot filter {condition.key!r} by {', '.join(condition.bounds)}, because its items have "
                "several values: it can look for values in them"
            )
        plain = float if types.is_floating(kind) else lambda value: value
        if condition.values is None:  # LanceDB compares whole numbers with whole numbers only
            if types.is_integer(kind):
                return " AND ".join(_between(own, name, bound) for name, bound in condition.bounds.items())
            tests = [f"{own} {SIGNS[name]} {_literal(plain(bound))}" for name, bound in condition.bounds.items()]
            return " AND ".join(tests)
        values = integers(condition.values) if types.is_integer(kind) else list(map(plain, condition.values))
        if not values:
            return "false"
        listed = ", ".join(map(_literal, values))
        return f"array_has_any({own}, [{listed}])" if several else f"{own} IN ({listed})"

    def _place_of(self, key: str) -> tuple[str, Any]:
        outer = self.fields.metadata
        if outer is None:
            known = {name: self._schema.field(name).type for name in self._schema.names}
        else:
            kind = self._schema.field(outer).type
            if not self._arrow.types.is_struct(kind):
                raise InputError(f"LanceDB cannot filter inside the column {outer!r}, which is {kind} and not a struct")
            known = {field.name: field.type for field in kind}
        if key not in known:
            raise InputError(f"{self.place} has no column {key!r} to filter by; it has {', '.join(known)}")
        return (_q(key) if outer is None else f"{_q(outer)}.{_q(key)}"), known[key]

    def _fits(self, value: Any, kind: Any) -> bool:
        types = self._arrow.types
        if isinstance(value, bool):
            return bool(types.is_boolean(kind))
        if is_number(value):
            return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind))
        if isinstance(value, date):
            return bool(types.is_timestamp(kind) or types.is_date(kind))
        return isinstance(value, str) and bool(types.is_string(kind) or types.is_large_string(kind))


def _same(given: Any, stored: Any) -> bool:
    """Whether a value was stored as it is: 5 may be 5.0, but neither 5.5 nor True."""
    if isinstance(given, Mapping) and isinstance(stored, Mapping):
        return all(_same(given.get(key), stored.get(key)) for key in {*given, *stored})
    if isinstance(given, list | tuple) and isinstance(stored, list):
        return len(given) == len(stored) and all(map(_same, given, stored))
    return isinstance(given, bool) == isinstance(stored, bool) and bool(given == stored)


def _between(own: str, kind: str, value: float) -> str:
    """A whole number compared with one that may lie between two of them, or beyond all."""
    if integers([value]):
        return f"{own} {SIGNS[kind]} {int(value)}"
    if kind == "ne" or (abs(value) >= LARGEST and (value > 0) == (kind in ("lt", "lte"))):
        return f"{own} IS NOT NULL"
    if abs(value) >= LARGEST:
        return "false"
    return f"{own} > {math.floor(value)}" if kind in ("gt", "gte") else f"{own} < {math.ceil(value)}"


def _q(name: str) -> str:
    if "`" in name:
        raise InputError(f"LanceDB's SQL has no way to write the name {name!r}: rename the column")
    return f"`{name}`"


def _literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_number(value):
        return repr(value)
    if isinstance(value, datetime):
        return f"timestamp '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"date '{value.isoformat()}'"
    if isinstance(value, uuid.UUID | str):
        return "'" + str(value).replace("'", "''") + "'"
    raise InputError(f"LanceDB compares texts, numbers, booleans and dates; got {value!r}")
