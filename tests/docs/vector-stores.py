"""Setup of the blocks of docs/guides/vector-stores.md: a collection, two tables and models."""

import json
import os
from pathlib import Path
from typing import Any

import lancedb
import psycopg
import qdrant_client
from pgvector.psycopg import register_vector
from qdrant_client import models

from crosscut.models.bi_encoder import load_encoder

my_scorer, my_encoder = "default", load_encoder("default")
records = [json.loads(line) for line in Path("corpus.jsonl").read_text(encoding="utf-8").splitlines()]
vectors = my_encoder.encode_items([record["text"] for record in records])
d = my_encoder.dimension

local: Any = qdrant_client.QdrantClient(":memory:")
local.create_collection("papers", vectors_config=models.VectorParams(size=d, distance=models.Distance.DOT))
local.upsert(
    "papers",
    [
        models.PointStruct(id=j, vector=vectors[j].tolist(), payload={"body": each["text"], "year": each["year"]})
        for j, each in enumerate(records)
    ],
)
qdrant_client.QdrantClient = lambda **_: local  # type: ignore[assignment]

connect: Any = psycopg.connect
psycopg.connect = lambda dsn, **how: connect(os.environ["DATABASE_URL"], **how)
with psycopg.connect("", autocommit=True) as connection:
    connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
    register_vector(connection)
    connection.execute(f"CREATE TABLE papers (id text PRIMARY KEY, body text, year int, embedding vector({d}))")
    for each, vector in zip(records, vectors, strict=True):
        connection.execute(
            "INSERT INTO papers VALUES (%s, %s, %s, %s)", (each["id"], each["text"], each["year"], vector)
        )
lancedb.connect("library.lance").create_table(
    "papers",
    [
        {"id": each["id"], "body": each["text"], "year": each["year"], "vector": vector}
        for each, vector in zip(records, vectors, strict=True)
    ],
)
