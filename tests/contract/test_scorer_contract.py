"""The contract of every scorer in the package, and how the meter handles each when it fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.datasets import Item, ItemList
from crosscut.errors import ScorerError, ScorerTimeout
from crosscut.score_store import ScoreStore
from crosscut.scorers import (
    BoundScorer,
    CallableScorer,
    MatrixScorer,
    MemoryCache,
    Meter,
    RetryBudget,
    Scorer,
    ScoreResult,
    TextScorer,
)
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.llm_judge import ChatJudge
from crosscut.scorers.meter import QueryLedger
from crosscut.scorers.rerank_api import RerankEndpoint
from tests.fake_endpoint import Endpoint, cohere, length_score, served
from tests.tiny_models import sentences

pytestmark = pytest.mark.filterwarnings("default")

TEXTS = sentences(9)
ITEMS = ItemList([*TEXTS, Item("a", "river", "a bank of money"), Item("b", "", "the fish"), Item("c", "red cat", "")])
QUERY = "he sat on the bank"
KINDS = ["function", "async function", "own class", "matrix", "torch", "http", "chat"]
HANGS = 8.0
FAULTS = ["raises", "none", "nan", "too few", "too many", "hangs"]


@dataclass
class Case:
    """A scorer, what its model was given so far, and a way to spoil the model."""

    scorer: Any
    texts: Callable[[], list[str]]  # pairs that the model saw, as texts of items (or marks in their place)
    spoil: Callable[[str], None]

    def bound(self, items: Any = ITEMS) -> BoundScorer:
        return as_bound(self.scorer.bind(items))


def _faulty(fault: str, scores: list[float]) -> Any:
    """Values that a faulty function returns in place of scores."""
    if fault == "raises":
        raise OSError("line is down")
    if fault == "hangs":
        time.sleep(HANGS)
    made: dict[str, Any] = {
        "none": None,
        "nan": [np.nan, *scores[1:]],
        "too few": scores[1:],
        "too many": [*scores, 0.0],
    }
    return made.get(fault, scores)


class Model:
    """A function of texts that remembers what it saw."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.fault = ""

    def __call__(self, query: str, texts: Sequence[str]) -> Any:
        self.seen += texts
        return _faulty(self.fault, [length_score(query, text) for text in texts])

    async def later(self, query: str, texts: Sequence[str]) -> Any:
        await asyncio.sleep(0)
        if self.fault == "hangs":
            self.seen += texts
            await asyncio.sleep(HANGS)
        return self(query, texts)

    def spoil(self, fault: str) -> None:
        self.fault = fault


class Own:
    """A scorer of a user: bound, it returns plain numbers and knows nothing of answers."""

    fingerprint = "own"

    def __init__(self, model: Model, items: Any = None) -> None:
        self.model, self.items = model, items

    def bind(self, items: Any) -> Own:
        return Own(self.model, items)

    def score_many(self, requests: Any) -> list[Any]:
        asked = [(q, [f"{item.title}\n{item.text}".strip() for item in self.items.get(some)]) for q, some in requests]
        self.model.seen += [text for _, texts in asked for text in texts]  # handed out, whatever becomes of them
        return [_faulty(self.model.fault, [length_score(query, text) for text in texts]) for query, texts in asked]


class Known:
    """A matrix in the place of an unbound scorer: row 0, whatever the query."""

    def __init__(self) -> None:
        self.matrix = np.linspace(0, 1, 40)[None]

    def bind(self, items: Any) -> BoundScorer:
        matrix = MatrixScorer(self.matrix)
        return CallableScorer(lambda query, handles: matrix.score(0, handles))


@pytest.fixture(scope="module")
def torch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("sentence_transformers")
    from tests.tiny_models import write_cross_encoder

    return write_cross_encoder(tmp_path_factory.mktemp("hub"))


def _function() -> Case:
    model = Model()
    return Case(TextScorer(model, fingerprint="f"), lambda: model.seen, model.spoil)


def _async_function() -> Case:
    model = Model()
    return Case(TextScorer(model.later, fingerprint="f"), lambda: model.seen, model.spoil)


def _own_class() -> Case:
    model = Model()
    return Case(Own(model), lambda: model.seen, model.spoil)


def _matrix() -> Case:
    known = Known()
    return Case(known, list, lambda fault: known.matrix.fill(np.nan))


def _torch(folder: Path) -> Case:
    from crosscut.models.cross_encoder import TorchCrossEncoder

    scorer = TorchCrossEncoder.load(folder)
    seen: list[str] = []
    fault = [""]
    predict = scorer.model.predict

    def spy(pairs: Any, **options: Any) -> Any:
        seen.extend(text for _, text in pairs)
        if fault[0] == "raises":
            raise RuntimeError("out of memory")
        return np.asarray(_faulty(fault[0], predict(pairs, **options).tolist()), np.float64)

    scorer.model.predict = spy
    return Case(scorer, lambda: seen, lambda name: fault.__setitem__(0, name))


def _spoil_endpoint(endpoint: Endpoint, answer: Callable[[Any], Any]) -> Callable[[str], None]:
    def spoil(fault: str) -> None:
        if fault == "hangs":
            endpoint.delay = HANGS
            return

        def wrong(body: dict[str, Any]) -> Any:
            if fault == "raises":
                return (400, {}, "bad")
            if fault == "none":
                return (200, {}, None)
            if fault in ("too few", "too many") and "documents" in body:
                body = {**body, "documents": _faulty(fault, body["documents"])}
                body["documents"] = [str(text) for text in body["documents"]]
            made = answer(body)
            if "results" in made:
                made["results"][0]["relevance_score"] = np.nan if fault == "nan" else 0.5
            else:
                made["choices"][0]["message"]["content"] = "nan" if fault == "nan" else "12345"
            return (200, {}, made)

        endpoint.always = wrong

    return spoil


def _chatting(body: dict[str, Any]) -> Any:
    rating = str(len(body["messages"][0]["content"]) % 10)
    return {"choices": [{"message": {"role": "assistant", "content": rating}}]}


def _remote(kind: str, stack: ExitStack) -> Case:
    answer = cohere if kind == "http" else _chatting
    endpoint = stack.enter_context(served(answer, "/v2/rerank" if kind == "http" else "/v1/chat/completions"))
    options: dict[str, Any] = {"retries": 0, "timeout": 30.0, "concurrency": 2}
    scorer: Any
    if kind == "http":
        scorer = RerankEndpoint(endpoint.url, batch_size=3, **options)
    else:
        scorer = ChatJudge(endpoint.url, model="m", logprobs=False, **options)
    stack.enter_context(scorer)

    def texts() -> list[str]:
        if kind == "http":
            return [text for body in endpoint.bodies for text in body["documents"]]
        return [body["messages"][0]["content"] for body in endpoint.bodies]

    return Case(scorer, texts, _spoil_endpoint(endpoint, answer))


NEEDS_TORCH = ("onnx", "corrective onnx", "torch")


@pytest.fixture(
    params=[pytest.param(kind, marks=pytest.mark.services) if kind in NEEDS_TORCH else kind for kind in KINDS]
)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    kind = request.param
    plain = {"function": _function, "async function": _async_function, "own class": _own_class, "matrix": _matrix}
    with ExitStack() as stack:
        if kind in plain:
            yield plain[kind]()
        elif kind == "torch":
            yield _torch(request.getfixturevalue("torch_folder"))
        else:
            yield _remote(kind, stack)


def test_answers_are_whole_and_in_order(case: Case) -> None:
    bound = case.bound()
    requests = [(QUERY, np.array([3, 1, 10])), ("fish", np.array([], np.int64)), ("dog", np.array([7, 7, 0]))]
    for _, handles in requests:
        handles.setflags(write=False)  # as the meter hands them out
    answers = bound.score_many(requests)
    for (query, handles), answer in zip(requests, answers, strict=True):
        assert isinstance(answer, ScoreResult)
        assert answer.error is None
        assert answer.scores.dtype == np.float64
        assert answer.attempted.dtype == np.bool_
        assert answer.attempted.tolist() == [True] * len(handles)
        np.testing.assert_allclose(answer.scores, bound.score(query, handles), atol=1e-4)
    one, other = (answers[0].scores[place] for place in (0, 1))
    np.testing.assert_allclose(bound.score(QUERY, np.array([1, 3])), [other, one], atol=1e-4)
    assert bound.score_many([]) == []


def test_what_a_search_asks_is_declared(case: Case) -> None:
    bound = case.bound()
    assert isinstance(bound, BoundScorer)
    assert bound.n_items in (None, len(ITEMS))
    assert bound.pairs_per_batch is None or bound.pairs_per_batch >= 1
    bound.preload(np.arange(3))
    (timed,) = bound.score_many([(QUERY, np.arange(2))], deadline=time.monotonic() + 10, retries=[RetryBudget()])
    np.testing.assert_allclose(timed.scores, bound.score(QUERY, np.arange(2)), atol=1e-4)


class Watched:
    """Items that record which of them were read."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def get(self, handles: Any) -> list[Item]:
        self.asked += list(map(int, handles))
        return ITEMS.get(handles)


def test_binding_reads_no_item_and_scoring_only_its_own(case: Case) -> None:
    items = Watched()
    bound = case.bound(items)
    assert items.asked == []
    bound.score(QUERY, np.array([5, 2]))
    assert set(items.asked) <= {5, 2}


def test_items_may_be_added_after_binding(case: Case) -> None:
    items = ItemList(ITEMS[:4])
    bound = case.bound(items.shared)
    before = bound.score(QUERY, np.arange(4))
    items.grown(ITEMS[4:])
    np.testing.assert_allclose(bound.score(QUERY, np.arange(12)), case.bound().score(QUERY, np.arange(12)), atol=1e-4)
    np.testing.assert_allclose(bound.score(QUERY, np.arange(4)), before, atol=1e-4)


def test_a_text_is_an_item_without_a_title_and_no_model_sees_our_marks(case: Case) -> None:
    texts = [*TEXTS, "x"]
    plain = case.bound(ItemList(texts)).score(QUERY, np.arange(10))
    same = case.bound(ItemList([Item(str(j), "", text) for j, text in enumerate(texts)])).score(QUERY, np.arange(10))
    np.testing.assert_allclose(plain, same, atol=1e-4)
    if isinstance(case.scorer, Scorer) and not isinstance(case.scorer, Own):
        np.testing.assert_allclose(case.scorer.score(QUERY, texts), plain, atol=1e-4)
    case.bound().score(QUERY, np.array([9, 11]))
    seen = "\0".join(case.texts())
    assert "[ENT]" not in seen
    if "?" not in seen and seen:  # the model saw texts
        assert "river\na bank of money" in seen
        assert "red cat" in seen


@pytest.mark.parametrize("fault", FAULTS)
def test_a_model_that_goes_wrong_is_an_error_and_what_it_saw_is_counted(case: Case, fault: str) -> None:
    """One round is good, the next is not: the good one stays, and the calls are the pairs that the model saw."""
    if isinstance(case.scorer, Known):
        fault = "nan"  # a matrix can only hold what is no number
    account, other = QueryLedger(QUERY, 9), QueryLedger("fish", 9)
    bound, cache = case.bound(), MemoryCache()
    Meter(bound, cache=cache).score([account, other], [np.arange(2), np.arange(3)])
    before = len(case.texts())
    kept = account.scores.tolist()
    case.spoil(fault)
    started = time.perf_counter()
    meter = Meter(bound, cache=cache, deadline=0.5 if fault == "hangs" else None)
    with pytest.raises(ScorerTimeout if fault == "hangs" else ScorerError):
        meter.score([account, other], [np.arange(2, 8), np.arange(3, 6)])
    assert fault != "hangs" or time.perf_counter() - started < HANGS
    assert (account.positions[:2].tolist(), account.scores[:2].tolist()) == ([0, 1], kept)
    for one in (account, other):
        assert np.isfinite(one.scores).all()
        assert one.calls <= one.budget
        assert len(one.positions) <= one.calls
        np.testing.assert_array_equal(cache.get(one.query, one.positions), one.scores)
    assert meter.calls + 5 == account.calls + other.calls
    if not isinstance(case.scorer, Known):
        assert before == 5
        if fault != "hangs":  # of those some may still be on their way when the search has left
            assert meter.calls + 5 == len(case.texts())


def test_items_that_cannot_be_read_are_not_paid_for(case: Case) -> None:
    by_itself = isinstance(case.scorer, Known | Own)  # it reads no items, or reads them by itself
    meter = Meter(case.bound())
    account = QueryLedger(QUERY, 50)
    with pytest.raises(ScorerError, match=None if by_itself else "do not fit a corpus of 12 items"):
        meter.score([account], [np.array([3, 999])])
    assert len(account.positions) == 0
    if not by_itself:
        assert (account.calls, len(case.texts())) == (0, 0)


def test_a_scorer_that_changes_what_it_is_given_changes_nothing() -> None:
    def zeroes(query: Any, handles: Any) -> Any:
        handles[:] = 0
        return np.ones(len(handles))

    class Forces:
        def score_many(self, requests: Any) -> Any:
            for _, handles in requests:
                handles.setflags(write=True)  # the array is its own: nobody else looks at it
                handles[:] = 0
            answers = [np.arange(len(handles), dtype=float) for _, handles in requests]
            requests.clear()
            return answers

    account = QueryLedger("q", 10)
    with pytest.raises(ScorerError, match="read-only"):
        Meter(CallableScorer(zeroes)).score([account], [np.array([4, 2])])
    picks = np.array([4, 2])
    with pytest.raises(ScorerError):  # it has lost its own requests
        Meter(Forces()).score([account], [picks])
    assert (account.calls, picks.tolist(), account.positions.tolist()) == (4, [4, 2], [])


def test_caches_keep_what_is_put_and_nothing_else(tmp_path: Path) -> None:
    """The contract of a score cache, for every one we ship."""
    store = ScoreStore(tmp_path / "store", scorer_fingerprint="f")
    caches: dict[str, ScoreCache] = {"memory": MemoryCache(), "store": store.cache(ITEMS)}
    for name, cache in caches.items():
        everything = np.arange(len(ITEMS))
        assert np.isnan(cache.get("q", everything)).all(), name
        cache.put("q", np.array([5, 9]), np.array([0.5, -2.0]))
        cache.put("q", np.array([], np.int64), np.array([]))
        cache.put("other", np.array([5]), np.array([7.0]))
        cache.put("q", np.array([5]), np.array([0.25]))  # the last one counts
        assert cache.get("q", np.array([9, 5])).tolist() == [-2.0, 0.25], name
        got = cache.get("q", everything)
        assert got.dtype == np.float64, name
        assert got.shape == (len(ITEMS),), name
        assert np.flatnonzero(~np.isnan(got)).tolist() == [5, 9], name
        got[:] = 0  # the caller's own
        assert cache.get("q", np.array([5])).tolist() == [0.25], name
        assert cache.get("q", np.array([], np.int64)).shape == (0,), name


def test_attributes_and_arguments_of_a_user_object_are_passed_on() -> None:
    class Plain:
        def score_many(self, requests: Any) -> Any:
            return [[2.0] * len(handles) for _, handles in requests]

    class Full:
        n_items, pairs_per_batch, has_base_scores = 5, 7, True
        given: dict[str, Any] = {}  # noqa: RUF012

        def score_many(self, requests: Any, *, deadline: float | None = None, retries: Any = ()) -> Any:
            self.given.update(deadline=deadline, retries=retries)
            return [[1.0] * len(handles) for _, handles in requests]

        def base_scores(self, query: Any, handles: Any = None) -> list[float]:
            return [0.5] * (5 if handles is None else len(handles))

        def preload(self, handles: Any) -> None:
            self.given["ready"] = handles.tolist()

    bound = as_bound(Full())
    assert (bound.n_items, bound.pairs_per_batch, bound.has_base_scores) == (5, 7, True)
    assert bound.base_scores("q").tolist() == [0.5] * 5
    budgets = [RetryBudget(3)]
    (result,) = bound.score_many([("q", np.arange(2))], deadline=9.0, retries=budgets)
    assert result.scores.tolist() == [1.0, 1.0]
    bound.preload(np.array([4]))
    assert Full.given == {"deadline": 9.0, "retries": budgets, "ready": [4]}
    plain = as_bound(Plain())
    assert (plain.n_items, plain.pairs_per_batch, plain.has_base_scores) == (None, 32, False)
    assert plain.score_many([("q", np.arange(2))], deadline=9.0)[0].scores.tolist() == [2.0, 2.0]
