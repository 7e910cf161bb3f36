"""Items that already live in a vector database: nothing is copied, nothing of size n is held.

| | where | exact | needs |
|---|---|---|---|
| `Qdrant` | a server, a cluster, the cloud, qdrant-client's local mode | if asked | `crosscut[qdrant]` |
| `PgVector` | PostgreSQL with pgvector | without an index on the vectors, or if asked | `crosscut[pgvector]` |
| `LanceDB` | a folder or an address of LanceDB | without an index on the vectors, or if asked | `crosscut[lancedb]` |

A store is opened once; every search over it has a `Session` of its own (`base.py`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosscut.stores.base import Store
    from crosscut.stores.lancedb import LanceDB
    from crosscut.stores.opening import open_store
    from crosscut.stores.pgvector import PgVector
    from crosscut.stores.qdrant import Qdrant

__all__ = ["LanceDB", "PgVector", "Qdrant", "Store", "open_store"]

_MODULES = {"LanceDB": "lancedb", "PgVector": "pgvector", "Qdrant": "qdrant", "Store": "base", "open_store": "opening"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'crosscut.stores' has no attribute {name!r}; it has {', '.join(__all__)}")
    return getattr(import_module(f"crosscut.stores.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
