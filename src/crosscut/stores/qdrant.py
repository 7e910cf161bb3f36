"""Qdrant: a server, a cluster, the cloud, or qdrant-client's local mode.

Points are excluded by `must_not has_id`. Qdrant's graph (HNSW) does not walk through points that a filter hides, and
what a search has scored lies where its next answers are; so the width of the walk (`hnsw_ef`) grows with it.
Points are numbers or uuids. Where items have other names, a field of the payload holds them (`id=`).
"""

from __future__ import annotations

import contextlib
import re
import struct
import uuid
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError, StoreUnavailable
from crosscut.stores.base import Fields, Rows, Store, Want, integer_id, needed
from crosscut.stores.filters import LARGEST, Condition, check_text, integers, is_number
from crosscut.types import Floats

WIDTH = 128  # of the walk through the graph, at least
PLAIN = re.compile(r"[\w-]+(\[\d*\])?(\.[\w-]+(\[\d*\])?)*")
FEW = 256  # whole numbers of a condition that are also looked for as fractions
SEEN = 20  # points whose payloads are looked at when a collection is opened
BATCH = 256  # points written at a time
NAMES = uuid.UUID("6b1f4a52-8f0e-5c8a-9a55-0c2f3f1f7c11")  # uuids of items that have a name of their own


class Qdrant(Store):
    """A collection of Qdrant.

    Parameters
    ----------
    collection
        Its name.
    url, api_key
        Of a server or of the cloud.
    client
        A `QdrantClient` instead: your own settings, or qdrant-client's local mode.
    vector
        The name of the vector, where points have several.
    text, title, metadata
        Fields of the payload; `metadata` one that holds a mapping, None: all others are metadata.
    id
        A field of the payload that holds the item's name; None: a point's number or uuid is its name.
    exact
        Whether every round compares every vector instead of walking the graph. Collections that Qdrant has not indexed
        are compared so anyway.
    """

    def __init__(
        self,
        collection: str,
        *,
        url: str | None = None,
        api_key: str | None = None,
        client: Any = None,
        vector: str = "",
        text: str = "text",
        title: str | None = None,
        metadata: str | None = None,
        id: str | None = None,
        exact: bool = False,
        timeout: int = 30,
    ) -> None:
        if (url is None) == (client is None):
            raise InputError("where is the collection? pass one of url= and client=")
        package = needed("qdrant_client", "qdrant", "crosscut.stores.Qdrant")
        self._models = package.models
        self.collection, self.vector, self.id, self.exact = collection, vector, id, exact
        self.fields = Fields(text, title, metadata, id)
        if url is not None:
            fields: dict[str, Any] = {"vector": vector, "text": text, "title": title, "metadata": metadata, "id": id}
            self.recipe = partial(Qdrant, collection, url=url, api_key=api_key, **fields, exact=exact, timeout=timeout)
            client = package.QdrantClient(url=url, api_key=api_key, timeout=timeout, check_compatibility=False)
        self._client = client
        address = urlsplit(url or "")
        self.address = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        self.secrets = api_key or "", address.password or "", quote(address.password or "")
        with self.reaching():
            vectors = client.get_collection(collection).config.params.vectors or {}
        named = vectors if isinstance(vectors, dict) else {"": vectors}
        if vector not in named:
            names = ", ".join(map(repr, named)) or "none"
            raise InputError(f"{self.place} has no vector named {vector!r}; it has {names}: pass vector=")
        self.d, distance = named[vector].size, named[vector].distance.value
        self._packed = struct.Struct(f"={self.d}d").pack
        if distance.lower() not in ("dot", "cosine"):
            raise InputError(
                f"{self.place} compares by {distance}, and a search asks for inner products: "
                "use a collection with the distance Dot or Cosine"
            )
        self._check_texts()

    def _check_texts(self) -> None:
        """Refuse a collection whose texts are under another name: searches would pay for scores of nothing."""
        with self.reaching():
            seen = [point.payload or {} for point in self._scroll(self._filter((), ()), SEEN)]
        named = [name for name in (self.fields.text, self.fields.title) if name is not None]
        if seen and not any(name in payload for payload in seen for name in named):
            there = ", ".join(dict.fromkeys(name for payload in seen for name in payload)) or "nothing"
            raise InputError(
                f"{self.place} has no field {self.fields.text!r} for text= in the payloads of its first {len(seen)} "
                f"points; they have {there}: pass text="
            )

    @property
    def place(self) -> str:
        return f"the Qdrant collection {self.collection!r}"

    @property
    def _shown(self) -> Any:
        return [self.vector] if self.vector else True

    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        m = self._models
        requests = [
            m.QueryRequest(
                query=want.vector.tolist(),
                using=self.vector or None,
                filter=self._filter(want.where, want.exclude),
                params=m.SearchParams(exact=exact, hnsw_ef=max(WIDTH, 2 * (want.count + len(want.exclude)))),
                limit=want.count,
                with_vector=self._shown,
                with_payload=True,
            )
            for want in wants
        ]
        answers = self._client.query_batch_points(self.collection, requests=requests)
        return [self._rows(answer.points) for answer in answers]

    def sample(self, count: int, seed: int, exclude: Sequence[Any], where: tuple[Condition, ...]) -> Rows:
        """Drawn by Qdrant itself, which takes no seed."""
        drawn = self._models.SampleQuery(sample=self._models.Sample.RANDOM)
        filter = self._filter(where, exclude)
        answer = self._client.query_points(
            self.collection, drawn, query_filter=filter, limit=count, with_vectors=self._shown, with_payload=True
        )
        return self._rows(answer.points)

    def fetch(self, names: Sequence[Any], where: tuple[Condition, ...] = ()) -> Rows:
        m = self._models
        own = m.HasIdCondition(has_id=list(names)) if self.id is None else self._match(self.id, list(names))
        return self._rows(self._scroll(self._filter(where, (), own), len(names)))

    def _scroll(self, filter: Any, limit: int) -> Sequence[Any]:
        points: Sequence[Any] = self._client.scroll(
            self.collection, scroll_filter=filter, limit=max(limit, 1), with_vectors=self._shown, with_payload=True
        )[0]
        return points

    def count(self, where: tuple[Condition, ...] = ()) -> int:
        with self.reaching():
            return int(self._client.count(self.collection, count_filter=self._filter(where, ()), exact=True).count)

    def write(self, items: Sequence[Item], vectors: Floats) -> None:
        points = []
        for item, vector in zip(items, vectors.tolist(), strict=True):
            payload = self.fields.record(item) | ({} if self.id is None else {self.id: item.id})
            key = self.named(item.id) if self.id is None else str(uuid.uuid5(NAMES, item.id))
            shown = {self.vector: vector} if self.vector else vector
            points.append(self._models.PointStruct(id=key, vector=shown, payload=payload))
        with self.reaching():
            for start in range(0, len(points), BATCH):
                self._client.upsert(self.collection, points[start : start + BATCH], wait=True)

    def erase(self, keys: Sequence[Any]) -> None:
        with self.reaching():
            self._client.delete(self.collection, self._models.PointIdsList(points=list(keys)), wait=True)

    def named(self, name: Any) -> Any:
        if self.id is not None:
            return check_text(str(name), "the id")
        try:
            return str(uuid.UUID(str(name)))
        except ValueError:
            with contextlib.suppress(InputError):
                return integer_id(name, self.place, "uint64", 0, 2 * LARGEST - 1)
        raise InputError(
            f"a point of Qdrant is a number or a uuid, and {name!r:.60} is neither: keep such names in the payload, "
            "and open the store with id='that field'"
        )

    def name(self, key: Any, payload: Mapping[str, Any]) -> Any:
        return key if self.id is None else payload.get(self.id, key)

    def close(self) -> None:
        self._client.close()

    def _rows(self, points: Sequence[Any]) -> Rows:
        return Rows(
            [key if isinstance(key := point.id, int) else str(key) for point in points],
            lambda places: self._vectors([points[place] for place in places]),
            lambda place: points[place].payload or {},
        )

    def _vectors(self, points: Sequence[Any]) -> Floats:
        """(m × d): lists of Python's floats, which numpy reads half as fast as `struct` does."""
        packed = []
        for point in points:
            given = point.vector.get(self.vector) if isinstance(point.vector, dict) else point.vector
            if given is None:
                raise StoreUnavailable(f"{self.place} gave point {point.id!r} without its vector {self.vector!r}")
            packed.append(self._packed(*given))
        return np.frombuffer(b"".join(packed)).reshape(-1, self.d)

    # -- filters -------------------------------------------------------------------------------------------------

    def _filter(self, where: tuple[Condition, ...], exclude: Sequence[Any], *more: Any) -> Any:
        m = self._models
        must = [*map(self._condition, where), *more]
        if self.vector:  # points that have no such vector are no items
            must.append(m.HasVectorCondition(has_vector=self.vector))
        must_not = [m.HasIdCondition(has_id=list(exclude))] if len(exclude) else None
        return m.Filter(must=must or None, must_not=must_not) if must or must_not else None

    def _match(self, key: str, values: list[Any]) -> Any:
        return self._models.FieldCondition(key=key, match=self._models.MatchAny(any=values))

    def _equal(self, key: str, value: bool) -> Any:
        return self._models.FieldCondition(key=key, match=self._models.MatchValue(value=value))

    def _bounded(self, key: str, bounds: Mapping[str, float]) -> Any:
        return self._models.FieldCondition(key=key, range=self._models.Range(**bounds))

    def _condition(self, condition: Condition) -> Any:
        m, bounds = self._models, dict(condition.bounds)
        key = _path(condition.key) if self.fields.metadata is None else f"{self.fields.metadata}.{_path(condition.key)}"
        if condition.values is not None:
            return self._any_of(key, condition.key, condition.values)
        if bounds.keys() == {"ne"}:
            (value,) = bounds.values()
            if isinstance(value, bool):
                return self._equal(key, not value)
            if isinstance(value, str) or (isinstance(value, int) and integers([value])):
                return m.FieldCondition(key=key, match=m.MatchExcept(**{"except": [value]}))
        if all(map(is_number, bounds.values())):
            inside = {name: float(bound) for name, bound in bounds.items()}
            if (other := inside.pop("ne", None)) is None:
                return self._bounded(key, inside)
            below, above = min(other, inside.get("lt", other)), max(other, inside.get("gt", other))
            sides: tuple[dict[str, float], ...] = ({"lt": below}, {"gt": above})
            return m.Filter(should=[self._bounded(key, inside | side) for side in sides])
        moments: dict[str, datetime] = {}
        for name, bound in bounds.items():
            if name == "ne" or (moment := _moment(bound)) is None:
                raise self._cannot(condition.key, name, bound)
            moments[name] = moment
        return m.FieldCondition(key=key, range=m.DatetimeRange(**moments))

    def _any_of(self, key: str, name: str, values: tuple[Any, ...]) -> Any:
        if unknown := [one for one in values if not isinstance(one, str | int | float)]:
            raise self._cannot(name, "in", unknown[0])
        texts = [one for one in values if isinstance(one, str)]
        counts = integers(one for one in values if isinstance(one, int) and not isinstance(one, bool))
        ways = [self._match(key, same) for same in (texts, counts) if same]
        ways += [self._equal(key, one) for one in values if isinstance(one, bool)]
        exact = [float(one) for one in values if isinstance(one, float)]
        if len(counts) <= FEW:  # a payload may hold 5.0, which is 5, and no whole number to Qdrant
            exact += [float(one) for one in counts]
        ways += [self._bounded(key, {"gte": one, "lte": one}) for one in dict.fromkeys(exact)]
        return self._models.Filter(should=ways) if ways else self._models.HasIdCondition(has_id=[])

    def _cannot(self, key: str, how: str, value: Any) -> InputError:
        return InputError(
            f"Qdrant cannot filter {key!r} by {how} {value!r}: it compares texts, whole numbers "
            "and booleans for equality, and numbers and dates (ISO 8601) by bounds"
        )


def _path(key: str) -> str:
    """A key as Qdrant reads it: dots lead inside, and whatever is no plain name is in quotes."""
    if PLAIN.fullmatch(key):
        return key
    if '"' in key or "\0" in key or not key:
        raise InputError(f"Qdrant has no way to write the key {key!r}: rename it")
    return f'"{key}"'


def _moment(value: Any) -> datetime | None:
    if isinstance(value, datetime):
        return value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    try:
        return datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        return None
