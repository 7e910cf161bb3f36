"""The words of qdrant-client and of qdrant-edge, which mean the same."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from crosscut.errors import InputError
from crosscut.stores.base import needed


class QdrantClientWords:
    """qdrant-client: local, server, cluster, cloud."""

    def __init__(self, client: Any, collection: str, vector: str) -> None:
        self.m = needed("qdrant_client.models", "qdrant", "crosscut.stores.Qdrant")
        self.client, self.collection, self.vector = client, collection, vector
        self.partial = bool(vector)
        self.shown: Any = [vector] if vector else True

    def vectors(self) -> dict[str, tuple[int, str]]:
        given = self.client.get_collection(self.collection).config.params.vectors or {}
        named = given if isinstance(given, dict) else {"": given}
        return {name: (one.size, one.distance.value) for name, one in named.items()}

    def query(self, requests: Sequence[Mapping[str, Any]]) -> Sequence[Sequence[Any]]:
        asked = [
            self.m.QueryRequest(
                query=one["vector"],
                using=self.vector or None,
                filter=one["filter"],
                params=self.m.SearchParams(exact=one["exact"], hnsw_ef=one["width"]),
                limit=one["limit"],
                with_vector=self.shown,
                with_payload=True,
            )
            for one in requests
        ]
        return [answer.points for answer in self.client.query_batch_points(self.collection, requests=asked)]

    def vector_of(self, point: Any) -> list[float] | None:
        """Of a point that was found."""
        given = point.vector
        return given.get(self.vector) if isinstance(given, dict) else given

    def sample(self, count: int, filter: Any) -> Sequence[Any]:
        drawn = self.m.SampleQuery(sample=self.m.Sample.RANDOM)
        return self.client.query_points(  # type: ignore[no-any-return]
            self.collection, drawn, query_filter=filter, limit=count, with_vectors=self.shown, with_payload=True
        ).points

    def scroll(self, filter: Any, limit: int) -> Sequence[Any]:
        return self.client.scroll(  # type: ignore[no-any-return]
            self.collection, scroll_filter=filter, limit=max(limit, 1), with_vectors=self.shown, with_payload=True
        )[0]

    def count(self, filter: Any) -> int:
        return int(self.client.count(self.collection, count_filter=filter, exact=True).count)

    def write(self, points: Sequence[tuple[Any, list[float], dict[str, Any]]]) -> None:
        made = [
            self.m.PointStruct(id=key, vector={self.vector: vector} if self.vector else vector, payload=payload)
            for key, vector, payload in points
        ]
        self.client.upsert(self.collection, made, wait=True)

    def erase(self, keys: list[Any]) -> None:
        self.client.delete(self.collection, self.m.PointIdsList(points=keys), wait=True)

    def close(self) -> None:
        self.client.close()

    def all_of(self, must: list[Any], must_not: list[Any]) -> Any:
        return self.m.Filter(must=must or None, must_not=must_not or None)

    def any_of(self, ways: list[Any]) -> Any:
        return self.m.Filter(should=ways)

    def has_id(self, keys: list[Any]) -> Any:
        return self.m.HasIdCondition(has_id=keys)

    def has_vector(self, name: str) -> Any:
        return self.m.HasVectorCondition(has_vector=name)

    def some(self, key: str, values: list[Any]) -> Any:
        return self.m.FieldCondition(key=key, match=self.m.MatchAny(any=values))

    def equal(self, key: str, value: Any) -> Any:
        return self.m.FieldCondition(key=key, match=self.m.MatchValue(value=value))

    def other(self, key: str, value: Any) -> Any:
        return self.m.FieldCondition(key=key, match=self.m.MatchExcept(**{"except": [value]}))

    def bounded(self, key: str, bounds: dict[str, float]) -> Any:
        return self.m.FieldCondition(key=key, range=self.m.Range(**bounds))

    def dated(self, key: str, bounds: dict[str, datetime]) -> Any:
        return self.m.FieldCondition(key=key, range=self.m.DatetimeRange(**bounds))


class Edge(QdrantClientWords):
    """qdrant-edge: a shard in this process."""

    def __init__(self, shard: Any, vector: str) -> None:
        self.m = needed("qdrant_edge", "qdrant", "a Qdrant shard in this process")
        self.folder = Path(shard) if isinstance(shard, str | Path) else None
        if self.folder is not None:
            if not (self.folder / "edge_config.json").is_file():
                raise InputError(f"there is no shard of qdrant-edge in {str(shard)!r}: create it with EdgeShard.create")
            shard = self.m.EdgeShard.load(str(self.folder))
        self.shard, self.vector, self.partial = shard, vector, bool(vector)
        self.shown = [vector] if vector else True

    def vectors(self) -> dict[str, tuple[int, str]]:
        if self.folder is not None:
            told = json.loads((self.folder / "edge_config.json").read_text("utf-8"))["vectors"]
            return {name: (one["size"], one["distance"]) for name, one in told.items()}
        points = self.sample(1, None)  # a shard that is open does not tell its settings
        given = points[0].vector if points else None
        if given is None:
            raise InputError(f"the shard has no point with a vector {self.vector!r}: pass its folder, or add one")
        named = given if isinstance(given, dict) else {"": given}
        return {name: (len(one), "Dot") for name, one in named.items()}

    def query(self, requests: Sequence[Mapping[str, Any]]) -> Sequence[Sequence[Any]]:
        asked = [
            self.m.QueryRequest(
                limit=one["limit"],
                query=self.m.Query.Nearest(one["vector"], self.vector or None),
                with_vector=self.shown,
                with_payload=True,
                filter=one["filter"],
                params=self.m.SearchParams(exact=one["exact"], hnsw_ef=one["width"]),
            )
            for one in requests
        ]
        return self.shard.query_batch(self.m.QueryBatchRequest(asked))  # type: ignore[no-any-return]

    def sample(self, count: int, filter: Any) -> Sequence[Any]:
        asked = self.m.QueryRequest(
            limit=count, query=self.m.Sample.Random, with_vector=self.shown, with_payload=True, filter=filter
        )
        return self.shard.query(asked)  # type: ignore[no-any-return]

    def scroll(self, filter: Any, limit: int) -> Sequence[Any]:
        asked = self.m.ScrollRequest(limit=max(limit, 1), filter=filter, with_payload=True, with_vector=self.shown)
        return self.shard.scroll(asked)[0]  # type: ignore[no-any-return]

    def count(self, filter: Any) -> int:
        return int(self.shard.count(self.m.CountRequest(exact=True, filter=filter)))

    def write(self, points: Sequence[tuple[Any, list[float], dict[str, Any]]]) -> None:
        made = [
            self.m.Point(_point(key), {self.vector: vector} if self.vector else vector, payload)
            for key, vector, payload in points
        ]
        self.shard.update(self.m.UpdateOperation.upsert_points(made))

    def erase(self, keys: list[Any]) -> None:
        self.shard.update(self.m.UpdateOperation.delete_points([_point(key) for key in keys]))

    def close(self) -> None:
        self.shard.close()

    def has_id(self, keys: list[Any]) -> Any:
        return self.m.HasIdCondition({key if type(key) is int else _point(key) for key in keys})

    def has_vector(self, name: str) -> Any:
        return self.m.HasVectorCondition(name)

    def equal(self, key: str, value: Any) -> Any:
        match = self.m.MatchValue(value)
        if isinstance(value, bool) and match.value is not value:  # qdrant-edge-py 0.9
            raise InputError(
                f"this qdrant-edge reads {value} as the number {match.value}, and cannot filter {key!r} by it: "
                "keep a word in its place, or use qdrant-client"
            )
        return self.m.FieldCondition(key=key, match=match)

    def other(self, key: str, value: Any) -> Any:
        return self.m.FieldCondition(key=key, match=self.m.MatchExcept([value]))

    def bounded(self, key: str, bounds: dict[str, float]) -> Any:
        return self.m.FieldCondition(key=key, range=self.m.RangeFloat(**bounds))

    def dated(self, key: str, bounds: dict[str, datetime]) -> Any:
        told = {name: moment.isoformat() for name, moment in bounds.items()}
        return self.m.FieldCondition(key=key, range=self.m.RangeDateTime(**told))


def _point(key: Any) -> Any:
    return key if isinstance(key, int) else uuid.UUID(str(key))
