"""Qdrant: a server, a cluster, the cloud, qdrant-client's local mode, or a qdrant-edge shard in this process.

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
from urllib.parse import urlsplit

import numpy as np

from crosscut.datasets.records import Item
from crosscut.errors import InputError, StoreUnavailable
from crosscut.stores.base import Fields, Rows, Store, Want, needed, numbered
from crosscut.stores.filters import LARGEST, Condition, number, whole, written
from crosscut.stores.qdrant_words import Edge, QdrantClientWords
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
    shard
        A qdrant-edge shard instead, or its folder: in this process, without a server.
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
        shard: Any = None,
        vector: str = "",
        text: str = "text",
        title: str | None = None,
        metadata: str | None = None,
        id: str | None = None,
        exact: bool = False,
        timeout: int = 30,
    ) -> None:
        if sum(way is not None for way in (url, client, shard)) != 1:
            raise InputError("where is the collection? pass one of url=, client= and shard=")
        self.collection, self.vector, self.id, self.exact = collection, vector, id, exact
        self.fields = Fields(text, title, metadata, id)
        if url is not None:
            fields: dict[str, Any] = {"vector": vector, "text": text, "title": title, "metadata": metadata, "id": id}
            self.recipe = partial(Qdrant, collection, url=url, api_key=api_key, **fields, exact=exact, timeout=timeout)
        address = urlsplit(url or "")
        self.address = address._replace(netloc=address.netloc.rpartition("@")[2]).geturl()
        self.secrets = api_key or "", address.password or ""
        if shard is not None:
            self._engine: QdrantClientWords = Edge(shard, vector)
        else:
            if client is None:
                package = needed("qdrant_client", "qdrant", "crosscut.stores.Qdrant")
                client = package.QdrantClient(url=url, api_key=api_key, timeout=timeout, check_compatibility=False)
            self._engine = QdrantClientWords(client, collection, vector)
        with self.reaching():
            sizes = self._engine.vectors()
        if vector not in sizes:
            told = ", ".join(repr(name) for name in sizes) or "none"
            raise InputError(f"{self.place} has no vector named {vector!r}; it has {told}: pass vector=")
        self.d, distance = sizes[vector]
        self._packed = struct.Struct(f"={self.d}d").pack
        if distance.lower() not in ("dot", "cosine"):
            raise InputError(
                f"{self.place} compares by {distance}, and a search asks for inner products: "
                "use a collection with the distance Dot or Cosine"
            )
        self._has_texts()

    def _has_texts(self) -> None:
        """Refuse a collection whose texts are under another name: searches would pay for scores of nothing."""
        with self.reaching():
            seen = [point.payload or {} for point in self._engine.scroll(self._filter((), ()), SEEN)]
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

    def query(self, wants: Sequence[Want], *, exact: bool) -> list[Rows]:
        requests = [
            {
                "vector": want.vector.tolist(),
                "limit": want.count,
                "filter": self._filter(want.where, want.exclude),
                "exact": exact,
                "width": max(WIDTH, 2 * (want.count + len(want.exclude))),
            }
            for want in wants
        ]
        return [self._rows(points) for points in self._engine.query(requests)]

    def sample(self, count: int, seed: int, exclude: Sequence[Any], where: tuple[Condition, ...]) -> Rows:
        """Drawn by Qdrant itself, which takes no seed."""
        return self._rows(self._engine.sample(count, self._filter(where, exclude)))

    def fetch(self, names: Sequence[Any], where: tuple[Condition, ...] = ()) -> Rows:
        if self.id is None:
            found = self._engine.scroll(self._filter(where, (), only=names), len(names))
        else:
            own = self._engine.some(self.id, list(names))
            found = self._engine.scroll(self._filter(where, (), more=[own]), len(names))
        return self._rows(found)

    def count(self, where: tuple[Condition, ...] = ()) -> int:
        with self.reaching():
            return self._engine.count(self._filter(where, ()))

    def write(self, items: Sequence[Item], vectors: Floats) -> None:
        points = []
        for item, vector in zip(items, vectors.tolist(), strict=True):
            payload = self.fields.record(item) | ({} if self.id is None else {self.id: item.id})
            key = self.named(item.id) if self.id is None else str(uuid.uuid5(NAMES, item.id))
            points.append((key, vector, payload))
        with self.reaching():
            for start in range(0, len(points), BATCH):
                self._engine.write(points[start : start + BATCH])

    def erase(self, keys: Sequence[Any]) -> None:
        with self.reaching():
            self._engine.erase(list(keys))

    def named(self, name: Any) -> Any:
        if self.id is not None:
            return written(str(name), "the id")
        try:
            return str(uuid.UUID(str(name)))
        except ValueError:
            with contextlib.suppress(InputError):
                return numbered(name, self.place, "uint64", 0, 2 * LARGEST - 1)
        raise InputError(
            f"a point of Qdrant is a number or a uuid, and {name!r:.60} is neither: keep such names in the payload, "
            "and open the store with id='that field'"
        )

    def name(self, key: Any, payload: Mapping[str, Any]) -> Any:
        return key if self.id is None else payload.get(self.id, key)

    def close(self) -> None:
        self._engine.close()

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
            given = self._engine.vector_of(point)
            if given is None:
                raise StoreUnavailable(f"{self.place} gave point {point.id!r} without its vector {self.vector!r}")
            packed.append(self._packed(*given))
        return np.frombuffer(b"".join(packed)).reshape(-1, self.d)

    # -- filters -------------------------------------------------------------------------------------------------

    def _filter(
        self,
        where: tuple[Condition, ...],
        exclude: Sequence[Any],
        *,
        only: Sequence[Any] | None = None,
        more: Sequence[Any] = (),
    ) -> Any:
        must = [self._condition(one) for one in where] + list(more)
        if only is not None:
            must.append(self._engine.has_id(list(only)))
        if self._engine.partial:  # points that have no such vector are no items
            must.append(self._engine.has_vector(self.vector))
        must_not = [self._engine.has_id(list(exclude))] if len(exclude) else []
        return self._engine.all_of(must, must_not) if must or must_not else None

    def _condition(self, condition: Condition) -> Any:
        engine, bounds = self._engine, dict(condition.bounds)
        key = _path(condition.key) if self.fields.metadata is None else f"{self.fields.metadata}.{_path(condition.key)}"
        if condition.values is not None:
            return self._any_of(key, condition.key, condition.values)
        if bounds.keys() == {"ne"}:
            (value,) = bounds.values()
            if isinstance(value, bool):
                return engine.equal(key, not value)
            if isinstance(value, str) or (isinstance(value, int) and whole([value])):
                return engine.other(key, value)
        if all(map(number, bounds.values())):
            within = {name: float(bound) for name, bound in bounds.items()}
            if (other := within.pop("ne", None)) is None:
                return engine.bounded(key, within)
            below, above = min(other, within.get("lt", other)), max(other, within.get("gt", other))
            return engine.any_of([engine.bounded(key, {**within, **side}) for side in ({"lt": below}, {"gt": above})])
        moments: dict[str, datetime] = {}
        for name, bound in bounds.items():
            if name == "ne" or (moment := _moment(bound)) is None:
                raise self._cannot(condition.key, name, bound)
            moments[name] = moment
        return engine.dated(key, moments)

    def _any_of(self, key: str, name: str, value: tuple[Any, ...]) -> Any:
        engine = self._engine
        words = [one for one in value if isinstance(one, str)]
        counts = whole(one for one in value if isinstance(one, int) and not isinstance(one, bool))
        ways = [engine.some(key, same) for same in (words, counts) if same]
        ways += [engine.equal(key, one) for one in value if isinstance(one, bool)]
        exact = [float(one) for one in value if isinstance(one, float)]
        if len(counts) <= FEW:  # a payload may hold 5.0, which is 5, and no whole number to Qdrant
            exact += [float(one) for one in counts]
        ways += [engine.bounded(key, {"gte": one, "lte": one}) for one in dict.fromkeys(exact)]
        if unknown := [one for one in value if not isinstance(one, str | int | float)]:
            raise self._cannot(name, "in", unknown[0])
        return ways[0] if len(ways) == 1 else engine.any_of(ways) if ways else engine.has_id([])

    def _cannot(self, key: str, how: str, value: Any) -> InputError:
        return InputError(
            f"Qdrant cannot filter {key!r} by {how} {value!r}: it compares texts, whole numbers "
            "and booleans for equality, and numbers and dates (ISO 8601) by bounds"
        )


def _path(key: str) -> str:
    """A key as Qdrant reads it: dots lead inside, and whatever is no plain name stands in quotes."""
    if PLAIN.fullmatch(key):
        return key
    if '"' in key or "\0" in key or not key:
        raise InputError(f"Qdrant has no way to write the key {key!r}: rename it")
    return f'"{key}"'


def _moment(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            return datetime.fromisoformat(value)
    except ValueError:
        return None
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value if isinstance(value, datetime) else None
