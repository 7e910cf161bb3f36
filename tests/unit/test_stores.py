"""Vector stores without a database: filters, sessions over a store in memory, items and errors."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.ann.topk import Ask
from crosscut.datasets.records import Item
from crosscut.errors import InputError, MissingDependency, StoreUnavailable
from crosscut.index.log import SearchLog
from crosscut.stores.base import Fields, integer_id
from crosscut.stores.filters import Condition, conditions, request_filter, within
from tests.fake_store import MemoryStore
from tests.unit.test_prior import N, planted
from tests.worlds import Planted

ITEMS = [Item(str(j), "", f"text {j}", {"year": 2000 + j}) for j in range(20)]
VECTORS = np.random.default_rng(0).normal(size=(20, 4))


def test_only_stores_are_listed() -> None:
    assert dir(crosscut.stores) == ["LanceDB", "PgVector", "Qdrant", "Store", "open_store"]
    with pytest.raises(AttributeError, match="it has LanceDB, PgVector, Qdrant"):
        _ = crosscut.stores.Pinecone


def test_a_filter_is_conditions_that_all_hold() -> None:
    found = conditions({"lang": "en", "topic": ["law", np.str_("tax")], "year": {"gte": 2000, "lt": np.int64(2010)}})
    assert found == (
        Condition("lang", ("en",), {}),
        Condition("topic", ("law", "tax"), {}),
        Condition("year", None, {"gte": 2000, "lt": 2010}),
    )
    assert found[2].given == (2000, 2010)
    assert conditions(None) == ()
    assert within(2005, found[2].bounds)
    assert not within(2010, found[2].bounds)
    assert not within("2005", found[2].bounds)


@pytest.mark.parametrize(
    "filter",
    [
        lambda item: True,
        "lang",
        {7: "en"},
        {"year": {"above": 3}},
        {"year": {}},
        {"year": None},
        {"year": float("nan")},
        {"year": {"gt": float("inf")}},
        {"a\0b": 1},
        {"lang": "\ud800"},
    ],
)
def test_what_is_no_filter_is_refused(filter: Any) -> None:
    with pytest.raises(InputError, match="filter"):
        conditions(filter)


@pytest.mark.parametrize(
    "filter",
    [
        [],
        {"year": None},
        {"year": {"above": 3}},
        {"year": {}},
        {"year": [[1]]},
        {"year": float("nan")},
        {"y" * 1001: 1},
        dict.fromkeys(map(str, range(65)), 1),
    ],
)
def test_filters_of_requests_are_bounded(filter: Any) -> None:
    with pytest.raises(ValueError, match=r"filter|condition|bounds"):
        request_filter(filter)
    good = {"year": {"gte": 2000}, "lang": ["en", "de"], "draft": False}
    assert request_filter(good) == good


def test_ids_of_a_store_that_counts_are_whole_numbers() -> None:
    assert [integer_id(name, "it", "bigint", -9, 9) for name in (3, "-7", np.int64(9))] == [3, -7, 9]
    for name in ("x", "3.0", 10, True, None, "²", "9" * 40, ""):
        with pytest.raises(InputError, match="ids of it are of type bigint"):
            integer_id(name, "it", "bigint", -9, 9)


def test_an_item_is_made_of_the_fields_of_a_payload() -> None:
    payload = {"body": "a text", "head": "a title", "year": 2000, "weight": float("nan"), "key": "k"}
    assert Fields("body", "head", None, "key").item("k", payload) == Item("k", "a title", "a text", {"year": 2000})
    assert Fields("body", metadata="meta").item(7, {"meta": {"a": 1}}) == Item("7", "", "", {"a": 1})
    item = Item("k", "a title", "a text", {"year": 2000})
    assert Fields("body", "head").record(item) == {"year": 2000, "body": "a text", "head": "a title"}
    assert Fields("body", "head", "meta").record(item)["meta"] == {"year": 2000}
    with pytest.raises(InputError, match="no place for titles"):
        Fields("body").record(item)
    with pytest.raises(InputError, match="'weight' of item 'k' is NaN"):
        Fields("body").record(Item("k", "", "", {"weight": float("nan")}))


def test_a_session_numbers_items_in_order_of_appearance() -> None:
    store = MemoryStore(ITEMS, VECTORS)
    session = store.session()
    u = VECTORS[3]
    (found,) = session.top([Ask(u, 5)])
    order = np.argsort(-(VECTORS @ u))
    assert [session.name(handle) for handle in found.handles.tolist()] == [str(j) for j in order[:5]]
    assert np.allclose(session.rows(found.handles), VECTORS[order[:5]])
    (rest,) = session.top([Ask(u, 50, exclude=found.handles)])
    assert [item.id for item in session.get(rest.handles)] == [str(j) for j in order[5:]]
    assert session.trips == 2
    assert session.handles(["7", "2", "7"]).tolist() == session.handles(["7", "2"]).tolist()
    with pytest.raises(InputError, match="1 of 2 ids are not in the store in memory, as 'x'"):
        session.handles(["7", "x"])


def test_ties_go_by_id_and_a_zero_vector_finds_any() -> None:
    store = MemoryStore(ITEMS, np.ones((20, 4)))
    session = store.session()
    names = [session.name(handle) for handle in session.top([Ask(np.ones(4), 20)])[0].handles.tolist()]
    assert names == sorted(names)
    assert len(session.top([Ask(np.zeros(4), 3)])[0].handles) == 3


def test_a_failed_trip_shows_no_secret() -> None:
    def fail() -> None:
        raise OSError("no route to me:canary 5150@host")

    store = MemoryStore(ITEMS, VECTORS, fail)
    store.secrets = ("canary 5150",)
    with pytest.raises(StoreUnavailable, match="the store in memory failed: OSError: no route to me:…@host") as raised:
        store.count()
    assert raised.value.__cause__ is None  # it would show the secret


def test_what_a_store_refuses_in_a_round_is_no_failure_of_it() -> None:
    class Picky(MemoryStore):
        def refused(self, error: Exception) -> InputError | None:
            return InputError("no such type") if isinstance(error, TypeError) else None

    def fail() -> None:
        raise TypeError

    with pytest.raises(InputError, match="no such type"):
        Picky(ITEMS, VECTORS, fail).session().top([Ask(VECTORS[0], 3)])


def test_rounds_over_a_store_have_items_and_no_predictions() -> None:
    index = crosscut.Index.over(
        MemoryStore(ITEMS, VECTORS),
        scorer=lambda query, texts: [float(text.split()[1]) for text in texts],
        encoder=None,
    )
    hits = index.search("a query", 3, 12, query_vector=VECTORS[3], trace=True)
    assert hits.rounds == len(hits.trace) > 1
    assert hits.items_at is not None
    scored = [item.id for one in hits.trace for item in hits.items_at(one.positions)]
    assert len(set(scored)) == len(scored) == 12
    assert {hit.id for hit in hits} <= set(scored)


class Encoder:
    """Queries by the numbers in their texts."""

    fingerprint = "test"

    def __init__(self, queries: np.ndarray) -> None:
        self.queries, self.dimension = queries, queries.shape[1]

    def encode_queries(self, texts: Any) -> np.ndarray:
        return np.array([self.queries[int(text.split()[-1])] for text in texts], np.float32)

    def encode_items(self, items: Any, *, progress: Any = None) -> np.ndarray:
        raise NotImplementedError


def over(world: Planted, paid: list[tuple[str, str]]) -> Any:
    def score(query: str, texts: list[str]) -> Any:
        paid.extend((query, text) for text in texts)
        return world.test[int(query.split()[-1]), [int(text.split()[-1]) for text in texts]]

    items = [Item(str(j), "", f"text {j}", {}) for j in range(world.n)]
    return crosscut.Index.over(MemoryStore(items, world.vectors), scorer=score, encoder=Encoder(world.query_vectors))


def test_tuning_over_a_store_takes_deep_searches_for_the_truth(world: Planted) -> None:
    paid: list[tuple[str, str]] = []
    index = over(world, paid)
    queries = [f"query {j}" for j in range(4)]
    report = index.tune(queries, k=3, budget=15, methods=["crosscut", "rerank"])
    assert report.calls == len(paid) == len(set(paid)) <= index.tuning_calls(queries, 15)
    assert any("two searches of 75 calls" in note and "not of all its items" in note for note in report.notes)
    assert index.method == report.chosen.method
    with pytest.raises(InputError, match="may make 10"):
        index.tune(queries, max_calls=10)


def test_evaluating_over_a_store_takes_deep_searches_for_the_truth(world: Planted) -> None:
    from crosscut.evaluation.evaluate import evaluate, exhaustive_scores, records_of

    index = over(world, [])
    queries = {str(j): f"query {j}" for j in range(4)}
    truth, calls = exhaustive_scores(index, list(queries.values()))
    assert calls == 4 * world.n  # 500 calls reach every item of a world this small
    measured = evaluate(index, queries, {}, methods=["crosscut"], budgets=[20, 150], k=[5], exhaustive=truth)
    small, large = records_of(measured)
    expected = [
        len({*index.search(query, 5, 20).ids} & {str(j) for j in np.argsort(-world.test[row])[:5]}) / 5
        for row, query in enumerate(queries.values())
    ]
    assert small.value == pytest.approx(np.mean(expected))
    assert small.value <= large.value == 1.0


def test_an_index_over_a_store_learns_from_its_searches(tmp_path: Path) -> None:
    past = planted(queries=90)  # 400 items; a fifth has a level of its own
    own = np.where(np.arange(N) % 5 == 0, np.random.default_rng(2).normal(size=N), 0.0)
    scores = past.scores + own * past.scores.std()
    items = [Item(str(j), "", f"text {j}", {"year": 2000 + j % 10}) for j in range(N)]

    def score(query: str, texts: list[str]) -> Any:
        return scores[int(query.split()[-1]), [int(text.split()[-1]) for text in texts]]

    scorer = crosscut.TextScorer(score, fingerprint="planted")
    index = crosscut.Index.over(MemoryStore(items, past.vectors), scorer=scorer, encoder=Encoder(past.queries))
    with pytest.raises(InputError, match="keep_log"):
        index.learn()
    log = tmp_path / "searches.log"
    index.keep_log(log)
    index.search_many([f"query {j}" for j in range(60)], 10, 60)
    index.keep_log(None)
    later = [f"query {j}" for j in range(60, 90)]

    def quality() -> float:
        best = [{str(j) for j in np.argsort(-scores[int(query.split()[-1])])[:10]} for query in later]
        found = index.search_many(later, 10, 30)
        assert {hits.calls for hits in found} == {30}
        return float(np.mean([len(top & {*hits.ids}) / 10 for top, hits in zip(best, found, strict=True)]))

    before = quality()
    index.keep_log(log)
    got = index.learn()
    index.keep_log(None)
    assert (got.searches, got.prior is None) == (60, False)
    assert 1 - quality() < 0.8 * (1 - before)
    only = index.search(later[0], 30, 40, filter={"year": [2003, 2004]})
    assert {hit.item.metadata["year"] for hit in only if hit.item is not None} == {2003, 2004}
    gone = [index.search(later[0], 1, 30)[0].id]
    index.keep_log(log)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(index.store), "erase", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            index.forget(gone)  # and then once more: what was begun can be finished
    assert index.forget(gone).items == 1
    assert not any(str(gone[0]) in search.ids for search in SearchLog(log).read())
    assert gone[0] not in index.search(later[0], 10, 60).ids
    assert index.forget_queries([f"query {j}" for j in range(60)]) == 60  # the one of just now is left: too few
    index.keep_log(None)
    assert quality() == pytest.approx(before, abs=0.02)  # but for the item that is gone


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, open_it, extra in (
        ("qdrant_client", lambda: crosscut.stores.Qdrant("p", url="http://localhost:1"), "qdrant"),
        ("psycopg", lambda: crosscut.stores.PgVector("postgresql://", "p"), "pgvector"),
        ("lancedb", lambda: crosscut.stores.LanceDB("folder", "p"), "lancedb"),
    ):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MissingDependency, match=f"pip install '.*{extra}"):
            open_it()
