"""Items that already live in a vector database: nothing is copied, nothing of size n is held.

| | where | exact | needs |
|---|---|---|---|
| `Qdrant` | a server, a cluster, the cloud, qdrant-client's local mode, a qdrant-edge shard in this process | if asked | `crosscut[qdrant]` |
| `PgVector` | PostgreSQL with pgvector | without an index on the vectors, or if asked | `crosscut[pgvector]` |
| `LanceDB` | a folder or an address of LanceDB | without an index on the vectors, or if asked | `crosscut[lancedb]` |

A store is opened once and kept; every search over it has a `Session` of its own (`base.py`).
"""  # noqa: E501

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscut.ann.stores.base import Session, Store
    from crosscut.ann.stores.lancedb import LanceDB
    from crosscut.ann.stores.opening import open_store
    from crosscut.ann.stores.pgvector import PgVector
    from crosscut.ann.stores.qdrant import Qdrant

__all__ = ["LanceDB", "PgVector", "Qdrant", "Session", "Store", "open_store"]

_HOME = {
    "Session": "base",
    "Store": "base",
    "Qdrant": "qdrant",
    "PgVector": "pgvector",
    "LanceDB": "lancedb",
    "open_store": "opening",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'crosscut.stores' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"crosscut.ann.stores.{_HOME[name]}"), name)
