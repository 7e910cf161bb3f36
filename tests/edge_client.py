"""qdrant-edge behind the interface of qdrant-client: Qdrant's own engine and its graph, in this process."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import qdrant_edge as q
from qdrant_client import models as m

from crosscut.errors import InputError


class EdgeClient:
    """The methods of `QdrantClient` that a store uses, over a shard in a folder."""

    def __init__(self, folder: Path) -> None:
        self._vectors = json.loads((folder / "edge_config.json").read_text("utf-8"))["vectors"]
        self._shard = q.EdgeShard.load(str(folder))

    def get_collection(self, collection: str) -> Any:
        vectors = {
            name: SimpleNamespace(size=one["size"], distance=SimpleNamespace(value=one["distance"]))
            for name, one in self._vectors.items()
        }
        return SimpleNamespace(config=SimpleNamespace(params=SimpleNamespace(vectors=vectors)))

    def query_batch_points(self, collection: str, requests: Sequence[Any]) -> list[Any]:
        asked = [
            q.QueryRequest(
                limit=one.limit,
                query=q.Query.Nearest(one.query, one.using),
                with_vector=one.with_vector,
                with_payload=True,
                filter=translated(one.filter),
                params=q.SearchParams(exact=one.params.exact, hnsw_ef=one.params.hnsw_ef),
            )
            for one in requests
        ]
        return [SimpleNamespace(points=points) for points in self._shard.query_batch(q.QueryBatchRequest(asked))]

    def query_points(
        self, collection: str, query: Any, *, query_filter: Any, limit: int, with_vectors: Any, with_payload: bool
    ) -> Any:
        request = q.QueryRequest(
            limit=limit,
            query=q.Sample.Random,
            with_vector=with_vectors,
            with_payload=True,
            filter=translated(query_filter),
        )
        return SimpleNamespace(points=self._shard.query(request))

    def scroll(
        self, collection: str, *, scroll_filter: Any, limit: int, with_vectors: Any, with_payload: bool
    ) -> tuple[Any, None]:
        request = q.ScrollRequest(
            limit=limit, filter=translated(scroll_filter), with_payload=True, with_vector=with_vectors
        )
        return self._shard.scroll(request)[0], None

    def count(self, collection: str, *, count_filter: Any, exact: bool) -> Any:
        return SimpleNamespace(count=self._shard.count(q.CountRequest(exact=True, filter=translated(count_filter))))

    def upsert(self, collection: str, points: Sequence[Any], *, wait: bool) -> None:
        added = [q.Point(point(one.id), one.vector, one.payload) for one in points]
        self._shard.update(q.UpdateOperation.upsert_points(added))

    def delete(self, collection: str, selector: Any, *, wait: bool) -> None:
        self._shard.update(q.UpdateOperation.delete_points([point(key) for key in selector.points]))

    def close(self) -> None:
        self._shard.close()


def point(key: Any) -> Any:
    return key if isinstance(key, int) else uuid.UUID(str(key))


def translated(one: Any) -> Any:
    """A filter or a condition of qdrant-client in the classes of qdrant-edge."""
    if one is None:
        return None
    if isinstance(one, m.Filter):
        parts: dict[str, Any] = {name: getattr(one, name) for name in ("must", "must_not", "should")}
        inner: dict[str, Any] = {name: part and list(map(translated, part)) for name, part in parts.items()}
        return q.Filter(**inner)
    if isinstance(one, m.HasIdCondition):
        return q.HasIdCondition({point(key) for key in one.has_id})
    if isinstance(one, m.HasVectorCondition):
        return q.HasVectorCondition(one.has_vector)
    if isinstance(one.range, m.Range):
        return q.FieldCondition(key=one.key, range=q.RangeFloat(**one.range.model_dump(exclude_none=True)))
    if isinstance(one.range, m.DatetimeRange):
        bounds = {name: moment.isoformat() for name, moment in one.range.model_dump(exclude_none=True).items()}
        return q.FieldCondition(key=one.key, range=q.RangeDateTime(**bounds))
    if isinstance(one.match, m.MatchAny):
        return q.FieldCondition(key=one.key, match=q.MatchAny(one.match.any))
    if isinstance(one.match, m.MatchExcept):
        return q.FieldCondition(key=one.key, match=q.MatchExcept(one.match.except_))
    match = q.MatchValue(one.match.value)
    if isinstance(one.match.value, bool) and match.value is not one.match.value:  # qdrant-edge-py 0.9
        raise InputError(f"this qdrant-edge reads {one.match.value} as the number {match.value}")
    return q.FieldCondition(key=one.key, match=match)
