"""PostgreSQL with pgvector: a table (or a view) with a column of vectors.

Without an index on the vectors every round is exact. HNSW and IVFFlat give candidates first and filter them later, so
that exclusions eat the answer. From pgvector 0.8 on the server goes on until the round is full (iterative scan). Before
that, more candidates are asked for, and a round that is still short is asked again without the index.

Values go to the server as parameters, names of tables and columns are quoted, and the statements of a batch of queries
travel together (pipeline mode): one trip a round.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.stores.base import Fields, Rows, Store, Want, check_columns, integer_id, needed, unit
from crosscut.stores.filters import LARGEST, SIGNS, Condition, check_text, integers, is_number
from crosscut.types import Floats

OPERATORS = {"dot": "<#>", "cosine": "<=>"}
OPCLASSES = {"dot": "ip_ops", "cosine": "cosine_ops"}  # vector_ip_ops, halfvec_cosine_ops, …
MOST_CANDIDATES = 1000  # that pgvector lets a scan of a graph hold (hnsw.ef_search)
INTEGERS = {"smallint": 1 << 15, "integer": 1 << 31, "bigint": LARGEST}
FAMILIES: dict[str, tuple[str, Any]] = {
    "N": ("numbers", int | float),
    "S": ("texts", str),
    "D": ("dates", date | str),
    "B": ("booleans", bool),
}
"""Values of each type of column, in words and in Python; the server checks other types (uuid, enumerations)."""


class Column(NamedTuple):
    """A column as the catalogue describes it."""

    type: str
    family: str  # N number, S text, D date, B boolean, U uuid and others, E enumeration
    several: bool = False  # whether it is an array of that type


class PgVector(Store):
    """A table of PostgreSQL.

    Parameters
    ----------
    dsn
        A connection string, `postgresql://user@host/database`, or a psycopg `Connection` that does nothing else.
    table
        Its name; `schema.table` where it is not on the search path.
    id, vector, text, title
        Columns.
    metadata
        A jsonb column that holds a mapping; None: every other column is metadata.
    metric
        `dot`, or `cosine` for vectors that are compared by their direction alone: they are then scaled to length 1.
    exact
        Whether every round reads every vector; None: if there is no index on the vectors that fits the metric.
    """

    def __init__(
        self,
        dsn: Any,
        table: str,
        *,
        id: str = "id",
        vector: str = "embedding",
        text: str = "text",
        title: str | None = None,
        metadata: str | None = None,
        metric: str = "dot",
        exact: bool | None = None,
        timeout: int = 30,
    ) -> None:
        self._psycopg = needed("psycopg", "pgvector", "crosscut.stores.PgVector")
        needed("pgvector", "pgvector", "crosscut.stores.PgVector")
        if metric not in OPERATORS:
            raise InputError(f"metric is one of {', '.join(OPERATORS)}; got {metric!r}")
        self.table, self.id, self.vector, self.metric = table, id, vector, metric
        self.fields = Fields(text, title, metadata)
        self._dsn, self._timeout = dsn, timeout
        if isinstance(dsn, str):
            self.secrets = self._password(dsn)
            how: dict[str, Any] = {"id": id, "vector": vector, "text": text, "title": title, "metadata": metadata}
            self.recipe = partial(PgVector, dsn, table, **how, metric=metric, exact=exact, timeout=timeout)
        self._connection: Any = None
        self._lock = threading.RLock()
        with self.reaching():
            self._columns = self._read_columns()
        check_columns(self.place, self._columns, id, vector, self.fields)
        kind, _, size = self._columns[vector].type.removesuffix(")").partition("(")
        self._kind = kind.rpartition(".")[2]
        if self._kind not in ("vector", "halfvec"):
            raise InputError(f"the column {vector!r} of {self.place} is of type {kind}; vectors are vector or halfvec")
        with self.reaching():
            version = self._run("SELECT extversion FROM pg_extension WHERE extname = 'vector'", ())[0][0]
            self._iterative = tuple(map(int, version.split(".")[:2])) >= (0, 8)
            self._method = self._index_method()
            shown = self._run(f"SELECT {self._q(vector)}::vector FROM {self._from} LIMIT 1", ()) if not size else []
        self.d = int(size or 0) or (shown[0][0].dimensions() if shown else 0)
        if not self.d:
            raise InputError(f"{self.place} is empty, and its column {vector!r} does not say how long vectors are")
        self.exact = self._method is None if exact is None else exact
        own = [text, title, metadata] if metadata is not None else [n for n in self._columns if n not in (id, vector)]
        self._names = [name for name in dict.fromkeys(own) if name is not None]
        self._shown = ", ".join([self._q(id), f"{self._q(vector)}::vector", *map(self._q, self._names)])

    def _password(self, dsn: str) -> tuple[str, ...]:
        """The password of a connection string, as it is and as a URL has it. A string that cannot be read is refused
        without quoting it, as the client would."""
        try:
            password = self._psycopg.conninfo.conninfo_to_dict(dsn).get("password")
        except self._psycopg.ProgrammingError:
            raise InputError(
                f"the connection string of {self.place} cannot be read (it is not shown: it may hold a password): "
                "write postgresql://user@host/database, with %20 for a blank"
            ) from None
        return () if password is None else (str(password), quote(str(password), safe=""), quote(str(password)))

    @property
    def place(self) -> str:
        return f"the PostgreSQL table {self.table!r}"

    # -- what a search asks --------------------------------------------------------------------------------------

    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        """One trip, under settings that hold for this transaction."""
        order = f"ORDER BY {self._q(self.vector)} {OPERATORS[self.metric]} %s::{self._kind} LIMIT %s"
        statements = []
        for want in wants:
            where, values = self._where(want.where, want.exclude)
            text = f"SELECT {self._shown} FROM {self._from} WHERE {where} {order}"
            statements.append((text, [*values, _vector(want.vector), want.count]))
        settings = self._settings(wants, exact)
        with self._session() as connection, connection.pipeline(), connection.transaction():
            for name, value in settings.items():
                connection.execute("SELECT set_config(%s, %s, true)", [name, value])
            cursors = [connection.execute(text, values, binary=True) for text, values in statements]
            return [self._rows(cursor.fetchall()) for cursor in cursors]

    def _settings(self, wants: Sequence[Want], exact: bool) -> dict[str, str]:
        """Return the settings of a transaction that reads the index."""
        if exact:
            return {"enable_indexscan": "off"}  # pgvector has no other kind of scan
        if self._method is None:
            return {}
        settings = {"enable_seqscan": "off"}
        if self._method == "hnsw":
            candidates = 2 * max(want.count + len(want.exclude) for want in wants)
            settings["hnsw.ef_search"] = str(min(MOST_CANDIDATES, max(100, candidates)))
        if self._iterative:
            settings[f"{self._method}.iterative_scan"] = "relaxed_order"
        return settings

    def sample(self, count: int, seed: int, exclude: Sequence[Any], where: tuple[Condition, ...]) -> Rows:
        """In the order of a hash of id and seed: the same draw every time; it reads every id."""
        inside, values = self._where(where, exclude)
        key = f"hashtextextended({self._q(self.id)}::text, %s)"
        text = f"SELECT {self._shown} FROM {self._from} WHERE {inside} ORDER BY {key}, {self._q(self.id)} LIMIT %s"
        return self._rows(self._run(text, [*values, seed, count]))

    def fetch(self, names: Sequence[Any], where: tuple[Condition, ...] = ()) -> Rows:
        inside, values = self._where(where, ())
        text = f"SELECT {self._shown} FROM {self._from} WHERE {inside} AND {self._q(self.id)} = ANY(%s::{self._key}[])"
        return self._rows(self._run(text, [*values, list(names)]))

    def count(self, where: tuple[Condition, ...] = ()) -> int:
        inside, values = self._where(where, ())
        with self.reaching():
            return int(self._run(f"SELECT count(*) FROM {self._from} WHERE {inside}", values)[0][0])

    # -- changes -------------------------------------------------------------------------------------------------

    def write(self, items: Sequence[Item], vectors: Floats) -> None:
        records = [self.fields.record(item) for item in items]
        columns = list(dict.fromkeys(name for record in records for name in record))
        if unknown := [name for name in columns if name not in self._columns]:
            raise InputError(
                f"{self.place} has no column {unknown[0]!r} for what the items bring; it has "
                f"{', '.join(self._columns)}: leave it out, or open the store with metadata='a jsonb column'"
            )
        listed = ", ".join(map(self._q, [self.id, self.vector, *columns]))
        marks = ", ".join([f"%s::{self._key}", f"%s::{self._kind}", *["%s"] * len(columns)])
        text = f"INSERT INTO {self._from} ({listed}) VALUES ({marks})"
        values = [
            [self.named(item.id), _vector(vector), *(_sent(record.get(name)) for name in columns)]
            for item, vector, record in zip(items, vectors, records, strict=True)
        ]
        with self.reaching(), self._session() as connection, connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(text, values)

    def erase(self, keys: Sequence[Any]) -> None:
        with self.reaching():
            text = f"DELETE FROM {self._from} WHERE {self._q(self.id)} = ANY(%s::{self._key}[]) RETURNING 1"
            self._run(text, [list(keys)])

    def named(self, name: Any) -> Any:
        column = self._columns[self.id]
        if column.family == "N":
            most = INTEGERS.get(column.type, LARGEST)
            return integer_id(name, self.place, column.type, -most, most - 1)
        if column.type != "uuid":
            return check_text(str(name), "the id")
        try:
            return uuid.UUID(str(name))
        except ValueError:
            raise InputError(f"ids of {self.place} are of type uuid, and {name!r:.60} is not") from None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    # -- filters -------------------------------------------------------------------------------------------------

    def _where(self, where: tuple[Condition, ...], exclude: Sequence[Any]) -> tuple[str, list[Any]]:
        """A condition in SQL, and its values; rows without a vector are no items."""
        parts, values = [f"{self._q(self.vector)} IS NOT NULL"], []
        if len(exclude):
            parts.append(f"{self._q(self.id)} <> ALL(%s::{self._key}[])")
            values.append(list(exclude))
        for condition in where:
            text, given = self._inside(condition) if self.fields.metadata is not None else self._column(condition)
            parts.append(text)
            values += given
        return " AND ".join(parts), values

    def _column(self, condition: Condition) -> tuple[str, list[Any]]:
        if condition.key not in self._columns:
            raise InputError(
                f"{self.place} has no column {condition.key!r} to filter by; it has {', '.join(self._columns)}"
            )
        column = self._columns[condition.key]
        held, kinds = FAMILIES.get(column.family, ("", object))
        for value in condition.given:
            if held and not (isinstance(value, kinds) and isinstance(value, bool) == (kinds is bool)):
                raise InputError(
                    f"the column {condition.key!r} of {self.place} holds {held} ({column.type}), "
                    f"and the filter compares it with {value!r}"
                )
        text, given = _compared("v" if column.several else self._q(condition.key), condition, column.type)
        if column.several:
            text = f"EXISTS (SELECT 1 FROM unnest({self._q(condition.key)}) AS v WHERE {text})"
        return text, given

    def _inside(self, condition: Condition) -> tuple[str, list[Any]]:
        """In a jsonb column: a value, or one of several, of the same kind as what it is compared with."""
        if unknown := [one for one in condition.given if not isinstance(one, str | int | float)]:
            raise InputError(
                f"jsonb holds texts, numbers and booleans, and {condition.key!r} is compared with {unknown[0]!r}"
            )
        own = f"({self._q(self.fields.metadata or '')} -> %s::text)"
        several = f"CASE jsonb_typeof({own}) WHEN 'array' THEN {own} ELSE jsonb_build_array({own}) END"
        if condition.values is not None:
            test, values = "v = ANY(%s::jsonb[])", [[_json(one) for one in condition.values]]
        else:
            test, values = "v <> 'null'::jsonb", []
            for name, bound in condition.bounds.items():
                kind = "" if name == "ne" else " AND jsonb_typeof(v) = jsonb_typeof(%s::jsonb)"
                test += f"{kind} AND v {SIGNS[name]} %s::jsonb"
                values += [_json(bound)] * (1 if name == "ne" else 2)
        text = f"{own} IS NOT NULL AND EXISTS (SELECT 1 FROM jsonb_array_elements({several}) AS v WHERE {test})"
        return text, [*[condition.key] * 4, *values]

    # -- the server ----------------------------------------------------------------------------------------------

    def refused(self, error: Exception) -> InputError | None:
        e = self._psycopg.errors
        kinds = (e.DataError, e.IntegrityError, e.DatatypeMismatch, e.UndefinedFunction, e.CannotCoerce, UnicodeError)
        unsendable = isinstance(error, self._psycopg.ProgrammingError) and error.sqlstate is None
        if not isinstance(error, kinds) and not unsendable:
            return None
        reason = str(error).splitlines()[0]
        refusal = InputError(f"{self.place} does not take this: {reason}; give what its columns hold")
        refusal.__cause__ = error
        return refusal

    def _q(self, name: str) -> str:
        """A name, quoted; % would be read as a parameter."""
        return '"' + name.replace('"', '""').replace("%", "%%") + '"'

    @property
    def _from(self) -> str:
        return ".".join(map(self._q, self.table.split(".")))

    @property
    def _key(self) -> str:
        return self._columns[self.id].type

    @contextmanager
    def _session(self) -> Iterator[Any]:
        """The connection, for one thread at a time; opened again if it was lost."""
        with self._lock:
            if self._connection is None or self._connection.closed:
                if isinstance(self._dsn, self._psycopg.Connection):
                    self._connection = self._dsn
                    self._connection.autocommit = True
                else:
                    self._connection = self._psycopg.connect(self._dsn, autocommit=True, connect_timeout=self._timeout)
                try:
                    needed("pgvector.psycopg", "pgvector", "PgVector").register_vector(self._connection)
                except self._psycopg.ProgrammingError as error:
                    raise InputError(
                        f"the database has no extension pgvector ({error}): CREATE EXTENSION vector"
                    ) from error
            yield self._connection

    def _run(self, text: str, values: Sequence[Any]) -> list[Any]:
        with self._session() as connection:
            return list(connection.execute(text, values, binary=True).fetchall())

    def _read_columns(self) -> dict[str, Column]:
        rows = self._run(
            "SELECT a.attname, format_type(a.atttypid, a.atttypmod), t.typcategory::text, format_type(e.oid, NULL), "
            "e.typcategory::text FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid LEFT JOIN pg_type e "
            "ON e.oid = t.typelem AND t.typcategory = 'A' "
            "WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [self._from.replace("%%", "%")],
        )
        if not rows:
            raise InputError(
                f"there is no table {self.table!r} in the database, or it has no columns: name it as PostgreSQL keeps "
                "it, papers or library.papers, in small and capital letters as they are and without quotes"
            )
        return {
            name: Column(own, family) if inner is None else Column(inner, inner_family, True)
            for name, own, family, inner, inner_family in rows
        }

    def _index_method(self) -> str | None:
        """The kind of index on the vectors that fits the metric."""
        rows = self._run(
            "SELECT m.amname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam "
            "JOIN pg_opclass o ON o.oid = i.indclass[0] JOIN pg_attribute a ON a.attrelid = i.indrelid "
            "AND a.attnum = i.indkey[0] WHERE i.indrelid = to_regclass(%s) AND i.indisvalid AND a.attname = %s "
            "AND m.amname IN ('hnsw', 'ivfflat') AND o.opcname LIKE %s ORDER BY m.amname",
            [self._from.replace("%%", "%"), self.vector, f"%{OPCLASSES[self.metric]}"],
        )
        return rows[0][0] if rows else None

    def _rows(self, found: Sequence[Any]) -> Rows:
        def vectors_at(places: Sequence[int]) -> Floats:
            shown = [found[place][1].to_numpy() for place in places]
            vectors = np.array(shown, dtype=np.float64).reshape(-1, self.d)
            return vectors if self.metric == "dot" else unit(vectors)

        return Rows(
            [row[0] for row in found],
            vectors_at,
            lambda place: dict(zip(self._names, found[place][2:], strict=True)),
        )


def _vector(values: Floats) -> Any:
    return needed("pgvector", "pgvector", "PgVector").Vector(np.asarray(values, np.float32))


def _json(value: Any) -> Any:
    return needed("psycopg.types.json", "pgvector", "jsonb").Jsonb(value)


def _sent(value: Any) -> Any:
    return _json(value) if isinstance(value, Mapping) else value


def _compared(own: str, condition: Condition, kind: str) -> tuple[str, list[Any]]:
    """A condition on a column, or an element of one, of this type. Numbers are not rounded to the column's type."""
    floats = kind in ("real", "double precision")
    if condition.values is not None:
        values = list(condition.values)
        if all(map(is_number, values)):
            if kind in INTEGERS:
                return f"{own} = ANY(%s::bigint[])", [integers(values)]
            values = list(map(float if floats else str, values))
        return f"{own} = ANY(%s::{kind}[])", [values]
    tests = []
    for name, value in condition.bounds.items():  # 2000.5 is no integer, and is above 2000 all the same
        wider = kind if not is_number(value) else "float8" if floats else "numeric"
        tests.append(f"{own} {SIGNS[name]} %s::{wider}")
    return " AND ".join(tests), [float(one) if is_number(one) and floats else one for one in condition.bounds.values()]
