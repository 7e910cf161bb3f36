"""Real vector stores with known contents: qdrant-edge and qdrant-client, PostgreSQL, LanceDB on disk."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.stores.base import Store

TEXT, LONG = "text", "bigint"


@dataclass
class Corpus:
    """Items of every kind of metadata, in an order of their own."""

    vectors: np.ndarray  # (n × d) float32
    ids: list[Any]

    @property
    def records(self) -> list[dict[str, Any]]:
        return [
            {
                "body": f"text {j}",
                "lang": "en" if j % 2 else "it's",
                "year": 2000 + j % 10,
                "weight": j / 4,
                "tags": ["a", "b"] if j % 3 else ["c"],
                "marks": [j, j + 10],
                "draft": j % 5 == 0,
            }
            for j in range(len(self.ids))
        ]


def corpus(n: int = 300, d: int = 12, *, ids: str = "int", vectors: Any = None) -> Corpus:
    rng = np.random.default_rng(1)
    rows = np.asarray(rng.normal(size=(n, d)) if vectors is None else vectors, np.float32)
    kinds: dict[str, Callable[[int], Any]] = {
        "int": lambda j: 7 * j + 3,
        "str": lambda j: f"doc '{j}\" %s",
        "uuid": lambda j: uuid.UUID(int=(j + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)),
    }
    return Corpus(rows, [kinds[ids](j) for j in range(len(rows))])


def edge(made: Corpus, folder: Path, *, hnsw: bool = False, **options: Any) -> Store:
    import qdrant_edge as q

    from crosscut.stores import Qdrant
    from tests.edge_client import EdgeClient

    settings = q.EdgeOptimizersConfig(indexing_threshold=1 if hnsw else 1 << 30, default_segment_number=1)
    params = q.EdgeVectorParams(size=made.vectors.shape[1], distance=q.Distance.Dot)
    shard = q.EdgeShard.create(str(folder), q.EdgeConfig(vectors={"e": params}, optimizers=settings))
    points = [q.Point(*point) for point in _points(made)]
    for start in range(0, len(points), 1000):
        shard.update(q.UpdateOperation.upsert_points(points[start : start + 1000]))
    if hnsw:
        shard.optimize()
        assert shard.info().indexed_vectors_count == len(points)
    shard.close()
    return Qdrant("papers", client=EdgeClient(folder), vector="e", **_named(made, {"text": "body"} | options))


def client(made: Corpus, folder: Path, *, hnsw: bool = False, **options: Any) -> Store:
    import qdrant_client as q
    from qdrant_client import models as m

    from crosscut.stores import Qdrant

    local = q.QdrantClient(":memory:")
    params = m.VectorParams(size=made.vectors.shape[1], distance=m.Distance.DOT)
    local.create_collection("papers", vectors_config={"e": params})
    points = [m.PointStruct(id=_plain(id), vector=vector, payload=payload) for id, vector, payload in _points(made)]
    if points:
        local.upsert("papers", points)
    return Qdrant("papers", client=local, vector="e", **_named(made, {"text": "body"} | options))


def _points(made: Corpus) -> list[tuple[Any, Any, Any]]:
    found = []
    for id, vector, record in zip(made.ids, made.vectors.tolist(), made.records, strict=True):
        name = {"name": id} if isinstance(id, str) else {}
        key = uuid.uuid5(uuid.NAMESPACE_URL, id) if isinstance(id, str) else id
        found.append((key, {"e": vector}, record | name))
    return found


def _plain(id: Any) -> Any:
    return id if isinstance(id, int) else str(id)


def _named(made: Corpus, options: dict[str, Any]) -> dict[str, Any]:
    return ({"id": "name"} if made.ids and isinstance(made.ids[0], str) else {}) | options


def postgres(made: Corpus, dsn: str, *, hnsw: bool = False, json: bool = False, **options: Any) -> Store:
    import psycopg
    from pgvector import Vector
    from pgvector.psycopg import register_vector
    from psycopg.types.json import Jsonb

    from crosscut.stores import PgVector

    table = f'odd "table" {uuid.uuid4().hex}'
    quoted = '"' + table.replace('"', '""') + '"'
    kind = {int: "bigint", str: "text", uuid.UUID: "uuid"}[type(made.ids[0]) if made.ids else int]
    others = "meta jsonb" if json else "lang text, year int, weight float8, tags text[], marks int[], draft bool"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(connection)
        d = made.vectors.shape[1]
        connection.execute(f'CREATE TABLE {quoted} ("the id" {kind} PRIMARY KEY, e vector({d}), body text, {others})')
        rows = []
        for id, vector, record in zip(made.ids, made.vectors, made.records, strict=True):
            body = record.pop("body")
            rows.append([id, Vector(vector), body, *([Jsonb(record)] if json else record.values())])
        marks = ", ".join(["%s"] * (4 if json else 9))
        with connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {quoted} VALUES ({marks})", rows)
        if hnsw:
            connection.execute(f"CREATE INDEX ON {quoted} USING hnsw (e vector_ip_ops)")
        connection.execute(f"ANALYZE {quoted}")
    return PgVector(
        dsn, table, id="the id", vector="e", text="body", **({"metadata": "meta"} if json else {}) | options
    )


def lance(made: Corpus, folder: Path, *, hnsw: bool = False, **options: Any) -> Store:
    import lancedb
    import pyarrow as pa

    from crosscut.stores import LanceDB

    d = made.vectors.shape[1]
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(made.vectors.ravel()), d)
    ids = pa.array([_plain(id) for id in made.ids])
    columns = {name: [record[name] for record in made.records] for name in (made.records or [{"body": ""}])[0]}
    table = lancedb.connect(str(folder)).create_table("papers", pa.table({"id": ids, "e": vectors, **columns}))
    if hnsw:
        table.create_index("dot", 64, d // 2, vector_column_name="e", index_type="IVF_PQ")
    return LanceDB(str(folder), "papers", vector="e", text="body", **options)


def names(store: Store, ids: Sequence[Any]) -> list[Any]:
    return [store.named(id) for id in ids]
