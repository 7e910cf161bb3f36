"""A store by its address, for those who have no Python to open it with: the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crosscut.errors import InputError
from crosscut.stores.base import Store


def open_store(
    where: str,
    name: str,
    *,
    api_key: str | None = None,
    id: str | None = None,
    vector: str | None = None,
    text: str | None = None,
    title: str | None = None,
    metadata: str | None = None,
) -> Store:
    """The table or collection `name` at an address; fields that are None are left to the store's own defaults.

    `postgresql://…` is PostgreSQL, `http://…` and `https://…` Qdrant (with `api_key`), a folder LanceDB. Which fields
    hold an item's id, vector, text, title and metadata is as those stores say.
    """
    fields = {"id": id, "vector": vector, "text": text, "title": title, "metadata": metadata}
    given: dict[str, Any] = {key: value for key, value in fields.items() if value is not None}
    if where.startswith(("postgresql://", "postgres://")):
        from crosscut.stores.pgvector import PgVector

        return PgVector(where, name, **given)
    if where.startswith(("http://", "https://")):
        from crosscut.stores.qdrant import Qdrant

        return Qdrant(name, url=where, api_key=api_key, **given)
    if not Path(where).is_dir():
        raise InputError(
            f"{where!r} is no store: give postgresql://… (PostgreSQL), http://… or https://… (Qdrant), or a folder of "
            "LanceDB"
        )
    from crosscut.stores.lancedb import LanceDB

    return LanceDB(where, name, **given)
