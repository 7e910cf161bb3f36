"""The contract of vector stores, on real ones: qdrant-edge, qdrant-client (local), PostgreSQL, LanceDB."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import traceback
import uuid
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
import crosscut.server
from crosscut.ann.topk import Ask, TopK
from crosscut.datasets.records import Item, Items
from crosscut.datasets.tables import ItemsInMemory
from crosscut.errors import InputError, StoreUnavailable
from crosscut.index.metadata import Columns, Metadata
from crosscut.stores.base import Session, Store
from crosscut.stores.filters import conditions
from tests import real_stores
from tests.real_stores import Corpus, corpus
from tests.worlds import Planted

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::ResourceWarning")
Make = Callable[..., Store]


@pytest.fixture(scope="module")
def dsn() -> Iterator[str]:
    """A PostgreSQL server of our own, stopped at the end.

    Its folder is not in pytest's, which any other run of pytest closes to the user that the server runs as.
    """
    pgserver = pytest.importorskip("pgserver")
    with tempfile.TemporaryDirectory(prefix="pg", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            server = pgserver.get_server(folder, cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(params=["edge", "client", "postgres", "json", "lance"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Make]:
    """`make(corpus, …)` opens a store that holds it."""
    kind = request.param
    pytest.importorskip({"edge": "qdrant_edge", "client": "qdrant_client", "lance": "lancedb"}.get(kind, "pgvector"))
    opened: list[Store] = []

    def made(contents: Corpus, **options: Any) -> Store:
        if kind in ("postgres", "json"):
            options |= {"json": True} if kind == "json" else {}
            store = real_stores.postgres(contents, request.getfixturevalue("dsn"), **options)
        else:
            store = getattr(real_stores, kind)(contents, tmp_path / f"store {uuid.uuid4().hex}", **options)
        opened.append(store)
        return store

    made.kind = kind  # type: ignore[attr-defined]
    yield made
    for store in opened:
        store.close()


def named(session: Session, handles: np.ndarray) -> list[Any]:
    return [session.name(handle) for handle in handles.tolist()]


def best(contents: Corpus, store: Store, u: np.ndarray, count: int, without: int = 0) -> list[Any]:
    order = np.argsort(-(contents.vectors.astype(np.float64) @ u), kind="stable")
    return [store.named(contents.ids[j]) for j in order[without : without + count]]


def direction(seed: int = 0, d: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=d)


@pytest.mark.parametrize("ids", ["int", "str", "uuid"])
def test_top_without_what_was_scored_and_ids_round_trip(make: Make, ids: str) -> None:
    contents = corpus(ids=ids)
    store = make(contents)
    session = store.session()
    assert isinstance(session, TopK)
    assert isinstance(session, Items)
    assert (session.d, store.count(), session.count()) == (12, 300, None)
    for seed in range(3):
        u = direction(seed)
        gone = np.empty(0, np.int64)
        for turn in range(3):
            (found,) = session.top([Ask(1e-3 * u, 9, gone)])
            assert named(session, found.handles) == best(contents, store, u, 9, without=9 * turn)
            rows = session.rows(found.handles)
            assert np.allclose(found.expected, 1e-3 * rows @ u)
            assert not np.isin(found.handles, gone).any()
            gone = np.concatenate([gone, found.handles])
        place = {store.named(id): j for j, id in enumerate(contents.ids)}
        places = [place[name] for name in named(session, gone)]
        assert np.array_equal(session.rows(gone), contents.vectors[places].astype(np.float64))
        shown = session.get(gone)
        assert [item.text for item in shown] == [f"text {j}" for j in places]
        assert [item.metadata["year"] for item in shown] == [2000 + j % 10 for j in places]
        assert [item.id for item in shown] == [str(store.named(contents.ids[j])) for j in places]
    again = store.session()
    wanted = [str(contents.ids[5]), contents.ids[2], contents.ids[9]]
    assert named(again, again.handles(wanted)) == [store.named(name) for name in wanted]


FILTERS: list[dict[str, Any]] = [
    {"lang": "it's"},
    {"lang": ["it's", "fr"], "year": {"gte": 2003, "lt": 2007}},
    {"year": [2001, 2002]},
    {"tags": "c"},
    {"tags": ["c", "x"], "draft": False},
    {"weight": {"gt": 3.5, "lte": 20}},
    {"year": {"gt": 2004.5}},
    {"lang": {"ne": "en"}},
    {"year": {"ne": 2001}},
    {"draft": True},
    {"lang": "nobody"},
    {"lang": []},
]


@pytest.mark.parametrize("filter", FILTERS, ids=str)
def test_filters_in_every_round(make: Make, filter: dict[str, Any]) -> None:
    contents = corpus()
    store = make(contents)
    if make.kind == "edge" and "draft" in filter:  # type: ignore[attr-defined]
        with pytest.raises(InputError, match=r"reads (True|False) as the number"):
            store.session().top([Ask(direction(), 3, allowed=filter)])
        return
    items = [Item(str(j), "", "", record) for j, record in enumerate(contents.records)]
    allowed = np.flatnonzero(Metadata([Columns(ItemsInMemory(items))]).passing(filter))
    session = store.session()
    u = direction()
    order = allowed[np.argsort(-(contents.vectors[allowed].astype(np.float64) @ u))]
    gone = np.empty(0, np.int64)
    for _ in range(3):
        (found,) = session.top([Ask(u, 20, gone, filter)])
        gone = np.concatenate([gone, found.handles])
    assert named(session, gone) == [contents.ids[j] for j in order[:60]]
    drawn = session.sample(10, np.random.default_rng(0), gone, filter)
    assert len(drawn) == min(10, max(0, len(allowed) - 60)) == len(set(drawn.tolist()))
    assert {*named(session, drawn)} <= {contents.ids[j] for j in order[60:]}
    assert store.count(conditions(filter)) == len(allowed)


def test_filters_that_cannot_be(make: Make) -> None:
    store = make(corpus(20))
    wrong: Any
    for wrong, message in (
        (lambda item: True, "mapping"),
        ({"year": {"above": 3}}, "known are"),
        ({"year": {}}, "bounds"),
        ({"lang": object()}, "object"),
    ):
        with pytest.raises(InputError, match=message):
            store.session().top([Ask(direction(), 3, allowed=wrong)])
    if make.kind in ("postgres", "lance"):  # type: ignore[attr-defined]
        for wrong, message in (
            ({"colour": "red"}, "no column 'colour'"),
            ({"year": {"gt": "x"}}, "compares it with 'x'"),
        ):
            with pytest.raises(InputError, match=message):
                store.session().top([Ask(direction(), 3, allowed=wrong)])
    else:  # no schema: what is not there does not pass
        (found,) = store.session().top([Ask(direction(), 3, allowed={"colour": "red"})])
        assert not len(found.handles)
    if make.kind in ("edge", "client"):  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="numbers and dates"):
            store.session().top([Ask(direction(), 3, allowed={"lang": {"gt": "en"}})])
    evil = "'; DROP TABLE papers; --"
    (found,) = store.session().top([Ask(direction(), 3, allowed={"lang": [evil, "it's"]})])
    assert len(found.handles) == 3


WORDS: list[Any] = [None, [None, "en"], [], [[]], [["en"]], b"en", 7, {"gte": "en"}, {"ne": None}]
HOSTILE: list[Any] = [
    *(
        {"lang": text}
        for text in ("it''s", "\\'", "' OR 1=1 --", "%s", "%(a)s", "{}", "$1", "a\0b", "\ud800", "\n", "")
    ),
    *({"lang": value} for value in WORDS),
    *({"year": value} for value in (10**20, -(10**400), [2001, 10**20], 2000.4, [2001, 2002.5], float("nan"), "2001")),
    *({"year": {"gt": value}} for value in (10**30, -(10**400), float("inf"), float("-inf"), float("nan"), None, [1])),
    *({"year": value} for value in (True, {"gte": {"gte": 1}}, {"gte": 2001, "$ne": 1}, {"lt": True}, {1: 2})),
    *({"weight": value} for value in ({"gt": 0.1 + 0.2}, [0.25, 1], 10**400, {"lte": 0.1 + 0.2}, {"ne": 10**400})),
    *({"draft": value} for value in ("true", {"gt": False})),
    *({"tags": value} for value in ({"ne": "a"}, {"gt": "b"}, ["c'", "c"], [["c"]], {"gt": "a", "lt": "b"})),
    *(
        {"marks": value}
        for value in (17, {"gte": 15, "lt": 18}, {"gt": 12, "lt": 15, "ne": 13}, {"gt": 12.5, "lt": 14})
    ),
    *(
        {key: 2001}
        for key in ("", "a.b", 'year" = 1 OR "year', "year`", "year'", "year%s", "year[]", "year\0", "\ud800")
    ),
    {"lang": ["en", *(f"x'{j}" for j in range(20_000))]},
    {"year": [*range(20_000)]},
    {7: 2001},
    {"lang": "en", "year": {"gte": 2001}, "weight": {"lt": 10**400}},
]


def test_hostile_filters_mean_the_same_or_are_refused(make: Make) -> None:
    """Filters pass the same items as in an index in memory, or are refused; no error of the store, which is retried."""
    contents = corpus(60)
    contents.vectors[:, 0] += 1
    store = make(contents)
    items = [Item(str(j), "", "", record) for j, record in enumerate(contents.records)]
    for filter in HOSTILE:
        try:
            (found,) = store.session().top([Ask(direction(), 60, allowed=filter)])
            count = store.count(conditions(filter))
        except InputError:
            continue
        try:
            allowed = int(np.count_nonzero(Metadata([Columns(ItemsInMemory(items))]).passing(filter)))
        except (
            InputError
        ):  # in memory, of a key or a kind that no item has; a store without a schema lets nothing through
            allowed = 0
        assert len(found.handles) == count == allowed, filter


@pytest.mark.parametrize("ids", ["int", "str", "uuid"])
def test_hostile_names_are_not_there_or_refused(make: Make, ids: str) -> None:
    store = make(corpus(20, ids=ids))
    index = crosscut.Index.over(store, scorer=lambda query, texts: [0.0] * len(texts), encoder=None)
    evil = (
        "' OR 1=1 --",
        '"',
        "\\",
        "%s",
        "a\0b",
        "\ud800",
        "",
        "\u00b2",
        "1e3",
        "9" * 40,
        "-1",
        "{}",
        "`",
        "x" * 100_000,
    )
    names: tuple[Any, ...] = (*evil, None, 3.5, True, 10**40, -1, b"a", ("a",))
    for name in names:
        with pytest.raises(InputError):
            index.search("q", 1, 5, query_vector=direction(), candidates=[name])
        with pytest.raises(InputError):
            index.remove([name])
    assert store.count() == 20


def test_draws_are_distinct_and_not_excluded(make: Make) -> None:
    contents = corpus(40)
    session = make(contents).session()
    (found,) = session.top([Ask(direction(), 15)])
    drawn = session.sample(100, np.random.default_rng(0), found.handles)
    assert len(drawn) == 25 == len(set(drawn.tolist()))
    assert not np.isin(drawn, found.handles).any()
    assert not len(session.sample(0, np.random.default_rng(0)))
    few = [frozenset(named(session, session.sample(5, np.random.default_rng(seed)))) for seed in range(8)]
    assert len(set(few)) > 1
    within = np.sort(drawn[:9])
    assert np.isin(session.sample(5, np.random.default_rng(0), drawn[:2], within), drawn[2:9]).all()
    assert np.isin(session.top([Ask(direction(), 20, drawn[:2], within)])[0].handles, drawn[2:9]).all()


@pytest.mark.parametrize("kind", ["edge", "postgres", "lance"])
def test_a_round_of_an_approximate_index_with_500_excluded(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """HNSW and IVF look at exclusions after their candidates; the round is full and nearly exact all the same."""
    pytest.importorskip({"edge": "qdrant_edge", "lance": "lancedb"}.get(kind, "pgvector"))
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 16))
    contents = corpus(vectors=centres[rng.integers(40, size=4000)] + 0.7 * rng.normal(size=(4000, 16)))
    where = request.getfixturevalue("dsn") if kind == "postgres" else tmp_path / "store"
    store = getattr(real_stores, kind)(contents, where, hnsw=True)
    assert not store.exact
    shares = []
    for seed in range(8):
        u = contents.vectors[seed].astype(np.float64)
        session = store.session()
        gone = session.handles(best(contents, store, u, 500))
        (found,) = session.top([Ask(u, 30, gone)])
        assert len(found.handles) == 30
        assert not np.isin(found.handles, gone).any()
        shares.append(len({*named(session, found.handles)} & {*best(contents, store, u, 30, without=500)}) / 30)
    assert np.mean(shares) >= 0.97, shares
    store.close()


@pytest.mark.parametrize("method", ["crosscut", "axn", "rerank", "axn@select=softmax"])
def test_methods_over_a_store_equal_the_flat_array(make: Make, world: Planted, method: str) -> None:
    contents = corpus(vectors=world.vectors)
    rows = contents.vectors.astype(np.float64)
    flat = crosscut.Searcher(crosscut.MatrixScorer(world.test), vectors=rows, method=method)
    store = make(contents)
    place = {id: j for j, id in enumerate(contents.ids)}
    for query in range(3):
        session = store.session()

        def score(number: int, handles: np.ndarray, session: Session = session) -> np.ndarray:
            return world.test[number, [place[name] for name in named(session, handles)]]

        vector = world.query_vectors[query]
        mine = crosscut.Searcher(score, vectors=session, method=method).search(query, 10, 60, query_vector=vector)
        if "softmax" in method:  # drawn: only the cost is the same
            assert mine.calls == 60 == len(set(mine.scored.tolist()))
            continue
        theirs = flat.search(query, 10, 60, query_vector=vector)
        assert [place[name] for name in named(session, mine.scored)] == theirs.scored.tolist()
        assert mine.scores.tolist() == theirs.scores.tolist()
        assert session.trips == mine.rounds


def last(text: str) -> int:
    """The number at the end of a text; the server warms up with a query that has none."""
    word = text.split()[-1]
    return int(word) if word.isdigit() else 0


class Encoder:
    """Queries and items by the numbers in their texts."""

    fingerprint = "test"

    def __init__(self, queries: np.ndarray, items: np.ndarray) -> None:
        self.queries, self.items, self.dimension = queries, items, items.shape[1]

    def encode_queries(self, texts: Any) -> np.ndarray:
        return np.array([self.queries[last(text)] for text in texts], np.float32)

    def encode_items(self, items: Any, *, progress: Any = None) -> np.ndarray:
        return np.array([self.items[last(item.text)] for item in items], np.float32)


def over(
    make: Make, world: Planted, *, method: str = "crosscut", fail: Any = None, size: int | None = None, **where: Any
) -> Any:
    def score(query: str, texts: list[str]) -> Any:
        if fail is not None:
            fail()
        return world.test[last(query), [last(text) for text in texts]]

    store = make(corpus(vectors=world.vectors[:size]), **where)
    return crosscut.Index.over(store, scorer=score, encoder=Encoder(world.query_vectors, world.vectors), method=method)


def test_an_index_over_a_store(make: Make, world: Planted) -> None:
    index = over(make, world)
    contents = corpus(vectors=world.vectors)
    hits = index.search("query 0", k=5, budget=60)
    assert (len(index), hits.calls, len(hits)) == (world.n, 60, 5)
    truth = {contents.ids[j]: score for j, score in enumerate(world.test[0])}
    assert [truth[hit.id] for hit in hits] == hits.scores.tolist() == sorted(hits.scores.tolist(), reverse=True)
    assert hits.scores[0] == world.test[0].max()
    for hit in hits:
        assert hit.item.text == hit.text == f"text {contents.ids.index(hit.id)}"
        assert hit.item.metadata["lang"] in ("en", "it's")
        assert index[hit.id] == hit.item
    many = index.search_many(["query 0", "query 1"], 5, 60)
    assert many[0].ids == hits.ids
    assert many[1].ids == index.search("query 1", 5, 60).ids
    assert asyncio.run(index.search_async("query 0", 5, 60)).ids == hits.ids
    only = index.search("query 0", 50, 60, filter={"year": [2003, 2004]}, candidates=contents.ids[:6])
    assert {hit.item.metadata["year"] for hit in only} == {2003, 2004}
    assert [hit.id for hit in only if hit.round == 1 and hit.id in contents.ids[:6]]
    given = index.search("query 0", 3, 3, candidates=contents.ids[:3], method="rerank")
    assert {*given.ids} == {*contents.ids[:3]}
    with pytest.raises(InputError, match="are not in"):
        index.search("query 0", candidates=[99999999])
    for name, message in (("exact", "does not count"), ("adacur", "anchor"), ("crosscut@first=lexical", "full-text")):
        with pytest.raises(InputError, match=message):
            index.search("query 0", method=name)
    for wrong in (index.save, lambda: index.items, index.complete):
        with pytest.raises(InputError, match="stay in"):
            wrong()
    assert "crosscut" in index.methods
    assert "exact" not in index.methods


def test_adding_and_removing_are_seen_at_once(make: Make, world: Planted) -> None:
    index = over(make, world, size=150)
    new = [{"id": str(100_000 + j), "text": f"text {j}"} for j in range(150, world.n)]
    assert index.add(new) == len(new)
    assert len(index) == world.n
    with pytest.raises(InputError, match="already"):
        index.add(new[:1])
    hits = index.search("query 2", 5, 80)
    assert hits.scores[0] == world.test[2].max()
    gone = [hits[0].id, str(hits[1].id)]
    assert index.remove(gone) == 2
    with pytest.raises(InputError, match="not in"):
        index.remove([hits[2].id, gone[0]])
    assert gone[0] not in index
    assert hits[2].id in index
    assert len(index) == world.n - 2
    left = index.search("query 2", 5, 80)
    assert not {*left.ids} & {hits[0].id, hits[1].id}
    assert left.scores[0] == hits.scores[2]


def test_a_store_that_dies_keeps_what_was_found(make: Make, world: Planted) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        if len(calls) == 3:
            index.store.close()
            broken(index.store)

    index = over(make, world, fail=fail)
    with pytest.raises(StoreUnavailable, match="failed") as caught:
        index.search("query 0", 5, 60)
    assert isinstance(caught.value, crosscut.StoreError)
    assert caught.value.calls == 18
    (hits,) = caught.value.hits
    assert len(hits) == 5
    assert hits.stop_reason == "store failed"
    assert all(hit.item is not None and hit.item.text.startswith("text") for hit in hits)


def broken(store: Any) -> None:
    """A store whose server or files are gone."""
    if hasattr(store, "_dsn"):
        store._dsn = "postgresql://nobody@127.0.0.1:1/none"
        store._timeout = 2
    if hasattr(store, "_table"):
        shutil.rmtree(store._table.uri)


def test_a_server_that_is_not_there() -> None:
    pytest.importorskip("qdrant_client")
    pytest.importorskip("pgvector")
    with pytest.raises(StoreUnavailable, match=r"at http://127\.0\.0\.1:9 failed"):
        crosscut.stores.Qdrant("papers", url="http://127.0.0.1:9")
    with pytest.raises(StoreUnavailable, match="'papers' failed"):
        crosscut.stores.PgVector("postgresql://nobody@127.0.0.1:1/none?connect_timeout=2", "papers")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql//me:canary-5150@127.0.0.1:1/none",
        "postgresql://me:canary%2D5150@127.0.0.1:1/none?connect_timeout=2&nonsense=1",
        "postgresql://me:canary 5150@127.0.0.1:1/none",
        "postgresql://me:canary%205150@127.0.0.1:1/none?connect_timeout=2",
        "host=127.0.0.1 port=1 connect_timeout=2 password=canary-5150 nonsense=1",
        "host=127.0.0.1 port=1 connect_timeout=2 password=can canary",
        "host=127.0.0.1 port=1 password='canary 5150' user",
        "host=127.0.0.1 port=1 connect_timeout=2 password='canary 5150'",
        "postgresql://me:canary-5150@127.0.0.1:x/none",
        "postgresql://me:canary-5150@127.0.0.1:1/none?connect_timeout=2",
    ],
)
def test_an_error_shows_no_password(dsn: str) -> None:
    """A client quotes a connection string that it cannot read."""
    pytest.importorskip("pgvector")
    with pytest.raises((InputError, StoreUnavailable), match="'papers'") as raised:
        crosscut.stores.PgVector(dsn, "papers")
    shown = "".join(traceback.format_exception(raised.value))
    assert "canary" not in shown.replace(repr(dsn), "").replace(dsn, "") + str(raised.value)
    assert "5150" not in str(raised.value)


def test_messages_for_clients_show_no_address() -> None:
    """`place` is part of sentences that a server passes on; who opened the store sees its address."""
    pytest.importorskip("qdrant_client")
    with pytest.raises(StoreUnavailable, match=r"'papers' at http://127\.0\.0\.1:9 failed") as raised:
        crosscut.stores.Qdrant("papers", url="http://me:canary 5150@127.0.0.1:9", api_key="canary-key")
    assert not any(word in str(raised.value) for word in ("canary", "5150"))


def test_columns_vectors_and_ids_that_do_not_fit(make: Make) -> None:
    contents = corpus(5)
    if make.kind in ("postgres", "lance"):  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="no column 'headline' for title="):
            make(contents, title="headline")
    store = make(contents)
    if make.kind in ("edge", "client"):  # type: ignore[attr-defined]
        with pytest.raises(InputError, match="neither: keep such names in the payload"):
            store.named("doc 5")
        assert store.named(str(uuid.UUID(int=5))) == str(uuid.UUID(int=5))
    else:
        with pytest.raises(InputError, match="and 'doc 5' is not"):
            store.named("doc 5")
    wrong = Encoder(np.ones((1, 3)), np.ones((1, 3)))
    with pytest.raises(InputError, match=r"3 dimensions, and those of .* have 12"):
        crosscut.Index.over(store, scorer=lambda query, texts: [0.0] * len(texts), encoder=wrong)
    with pytest.raises(InputError, match="is no store"):
        crosscut.Index.over(contents, scorer=lambda query, texts: [0.0] * len(texts))  # type: ignore[arg-type]


TYPES: dict[str, list[Any]] = {
    "smallint": [10**6, "abc", True, {"a": 1}],
    "integer": [10**12, "abc", [1], 2.5j],
    "bigint": [10**30, "1x", True],
    "real": ["abc", {"a": 1}, True],
    "numeric": ["abc", [1], True],
    "boolean": ["perhaps", 7, 1.5],
    "text": ["a\0b", "\ud800"],
    "date": ["2020-13-01", 7, True],
    "timestamptz": ["yesterday noon at five", 7, {"a": 1}],
    "uuid": ["abc", 7, True],
    "text[]": ["abc", 7, {"a": 1}],
    "jsonb": ["{abc", object()],
}


def test_values_that_a_column_does_not_take_are_refused(dsn: str) -> None:
    """Of every type: an InputError (422), since trying again would not help; nothing is written."""
    pytest.importorskip("pgvector")
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        columns = ", ".join(f'"c{j}" {kind}' for j, kind in enumerate(TYPES))
        connection.execute(
            f"CREATE TABLE every_type (id bigint PRIMARY KEY, embedding vector(2), text text, {columns})"
        )
    store = crosscut.stores.PgVector(dsn, "every_type")
    for j, (kind, values) in enumerate(TYPES.items()):
        for value in values:
            with pytest.raises(InputError, match="does not take this"):
                store.write([Item("1", "", "new", {f"c{j}": value})], np.ones((1, 2)))
            assert store.count() == 0, (kind, value)
    store.write([Item("1", "", "new", {"c0": 3, "c6": "a", "c11": {"a": 1}})], np.ones((1, 2)))
    assert store.count() == 1
    store.close()


def test_values_of_another_kind_than_a_lancedb_column_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("lancedb")
    store = real_stores.lance(corpus(5), tmp_path / "store")
    for key, value in (
        *(("year", value) for value in ("2001", 2001.5, True, [1], 10**30)),
        *(("lang", value) for value in (7, True, {"a": 1}, b"en", "\ud800")),
        *(("draft", value) for value in (1, "true")),
        *(("weight", value) for value in (True, "1", float("nan"))),
        *(("tags", value) for value in ("a", [1])),
    ):
        with pytest.raises(InputError, match=f"{key}"):
            store.write([Item("900", "", "new", {key: value})], np.ones((1, 12)))
    store.write([Item("900", "", "new", {"year": 2001.0, "weight": 1, "tags": ["a"]})], np.ones((1, 12)))
    assert store.count() == 6


@pytest.mark.parametrize("kind", ["edge", "client"])
def test_texts_under_another_name_are_an_error_when_a_collection_is_opened(kind: str, tmp_path: Path) -> None:
    pytest.importorskip(f"qdrant_{kind}")
    made = getattr(real_stores, kind)
    with pytest.raises(
        InputError, match="no field 'text' for text= in the payloads of its first 20 points; they have body, lang, "
    ):
        made(real_stores.corpus(30), tmp_path / "a", text="text")
    made(real_stores.corpus(30), tmp_path / "b", text="text", title="body").close()  # a title is a text
    made(real_stores.corpus(0), tmp_path / "c", text="text").close()  # nothing is there yet
