"""Scoring jobs: whatever is killed, limited or repeated, the matrix is the one asked for, and paid for once."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosscut.errors import InputError, ScorerError, ScoreValueError, StoreError
from crosscut.score_store import Estimate, ScoreStore, score_matrix, score_pairs
from crosscut.score_store.engines import LocalEngine, RayEngine, make_engine
from crosscut.score_store.jobs import cut
from crosscut.scorers import MatrixScorer, MemoryCache, TextScorer
from tests import hash_scorer

pytestmark = pytest.mark.usefixtures("unsynced")
QUERIES = [f"query {number}" for number in range(9)]
ITEMS = [f"item {number}" for number in range(200)]
TRUTH = hash_scorer.expected(QUERIES, ITEMS)


class Counting:
    """A scorer that counts its calls."""

    def __init__(self, fingerprint: str = "hash") -> None:
        self.calls = 0
        self.lock = threading.Lock()
        self.scorer = TextScorer(self.fn, fingerprint=fingerprint)

    def fn(self, query: str, items: Sequence[str]) -> list[float]:
        with self.lock:
            self.calls += len(items)
        return [hash_scorer.score_of(query, item) for item in items]


@pytest.fixture
def store(tmp_path: Path) -> ScoreStore:
    return ScoreStore(tmp_path / "store", scorer_fingerprint="hash")


def matrix(store: ScoreStore) -> np.ndarray:
    return ScoreStore.open(store.path).matrix(QUERIES, ITEMS)


def known(store: ScoreStore) -> int:
    return int(np.isfinite(store.matrix(QUERIES, ITEMS, partial=True)).sum())


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("block_pairs", [None, 7, 500])
def test_each_pair_is_scored_once(store: ScoreStore, workers: int, block_pairs: int | None) -> None:
    counting = Counting()
    engine = LocalEngine(workers)
    result = score_matrix(counting.scorer, QUERIES, ITEMS, store=store, engine=engine, block_pairs=block_pairs)
    assert counting.calls == result.calls == TRUTH.size
    assert (result.known, result.missing, result.lost) == (0, 0, 0)
    np.testing.assert_array_equal(result.scores, TRUTH)
    np.testing.assert_array_equal(matrix(store), TRUTH)
    again = score_matrix(counting.scorer, QUERIES, ITEMS, store=store, engine=engine)
    assert (again.calls, again.known, counting.calls) == (0, TRUTH.size, TRUTH.size)


def test_repeated_texts_are_scored_once(store: ScoreStore) -> None:
    counting = Counting()
    queries, items = [*QUERIES[:2], QUERIES[0]], [*ITEMS[:3], *ITEMS[:3]]
    result = score_matrix(counting.scorer, queries, items, store=store)
    assert counting.calls == 6
    np.testing.assert_array_equal(result.scores, TRUTH[np.ix_([0, 1, 0], [0, 1, 2, 0, 1, 2])])


def test_a_limit_holds_and_the_next_run_goes_on(store: ScoreStore) -> None:
    counting = Counting()
    total = 0
    for limit in (1, 30, 100, 333, 1000):
        result = score_matrix(counting.scorer, QUERIES, ITEMS, store=store, limit=limit, block_pairs=64)
        total += limit
        assert (result.calls, counting.calls, result.missing) == (limit, total, TRUTH.size - total)
        assert known(store) == total
    score_matrix(counting.scorer, QUERIES, ITEMS, store=store)
    assert counting.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_pairs(store: ScoreStore) -> None:
    counting = Counting()
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 9, 300), rng.integers(0, 200, 300)
    distinct = len({*zip(rows.tolist(), columns.tolist(), strict=True)})
    estimates: list[Estimate] = []
    options = {"store": store, "block_pairs": 50, "estimate": estimates.append, "engine": LocalEngine(2)}
    result = score_pairs(counting.scorer, QUERIES, ITEMS, rows, columns, **options)
    assert counting.calls == result.calls == estimates[0].calls == estimates[0].pairs == distinct
    np.testing.assert_array_equal(result.scores, TRUTH[rows, columns])
    assert len(ScoreStore.open(store.path).pairs(QUERIES, ITEMS).scores) == distinct
    assert score_pairs(counting.scorer, QUERIES, ITEMS, rows, columns, store=store).calls == 0
    with pytest.raises(InputError, match="do not fit a list of 200"):
        score_pairs(counting.scorer, QUERIES, ITEMS, [0], [200], store=store)
    with pytest.raises(InputError, match="do not make pairs"):
        score_pairs(counting.scorer, QUERIES, ITEMS, [0], [2, 3], store=store)


def test_the_estimate_comes_first_and_the_progress_ends_at_the_total(store: ScoreStore) -> None:
    estimates: list[Estimate] = []
    steps: list[tuple[str, int, int]] = []

    def estimate(one: Estimate) -> None:
        assert not steps
        estimates.append(one)

    scorer = Counting().scorer
    score_matrix(scorer, QUERIES[:2], ITEMS, store=store)
    options = {"store": store, "estimate": estimate, "price_per_thousand": 2.0}
    score_matrix(scorer, QUERIES, ITEMS, progress=lambda *step: steps.append(step), block_pairs=100, **options)
    (one,) = estimates
    assert (one.pairs, one.known, one.calls, one.cost) == (1800, 400, 1400, 2.8)
    assert one.seconds is not None
    assert one.seconds > 0
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert steps[-1] == ("scoring", 1400, 1400)
    steps.clear()
    score_matrix(scorer, QUERIES, ITEMS, **options)
    assert (estimates[-1].calls, estimates[-1].cost) == (0, 0.0)


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_scorer_that_fails_keeps_what_was_paid_for_and_the_error_says_how_much(store: ScoreStore) -> None:
    failing_from = ["query 6"]

    def fn(query: str, items: Sequence[str]) -> list[float]:
        if query in failing_from:
            raise RuntimeError("quota")
        return [hash_scorer.score_of(query, item) for item in items]

    failing = TextScorer(fn, fingerprint="hash")
    with pytest.raises(ScorerError, match="quota") as caught:
        score_matrix(failing, QUERIES[4:], ITEMS, store=store, block_pairs=5000, probe=False)
    stored = known(store)
    assert stored <= caught.value.calls <= 5 * 200
    with pytest.raises(ScorerError, match="quota") as caught:
        score_matrix(failing, ["query 6"], ITEMS, store=store)
    assert caught.value.calls == 8  # of the probe
    result = score_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store)
    assert result.known == stored
    np.testing.assert_array_equal(matrix(store), TRUTH)


@pytest.mark.parametrize("workers", [1, 3])
def test_calls_of_an_error_are_those_that_were_made(workers: int) -> None:
    made = Counting()

    def fn(query: str, items: Sequence[str]) -> list[float]:
        scores = made.fn(query, items)
        if made.calls > 700:
            raise RuntimeError("quota")
        return scores

    engine = LocalEngine(workers, "threads")
    with pytest.raises(ScorerError, match="quota") as caught:
        score_matrix(TextScorer(fn, fingerprint="hash"), QUERIES, ITEMS, engine=engine, block_pairs=50, probe=False)
    assert caught.value.calls == made.calls > 700


def test_an_interrupt_loses_nothing_that_was_committed(store: ScoreStore) -> None:
    seen: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    for engine in (LocalEngine(1), LocalEngine(3)):
        counting = Counting()
        seen.clear()
        with pytest.raises(KeyboardInterrupt) as caught:
            score_matrix(
                counting.scorer,
                QUERIES,
                ITEMS,
                store=store,
                engine=engine,
                block_pairs=40,
                progress=progress,
                probe=False,
            )
        assert known(store) >= seen[-1]
        assert caught.value.calls == counting.calls  # type: ignore[attr-defined]
    score_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store)
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_not_a_number_is_never_stored(store: ScoreStore) -> None:
    scorer = TextScorer(lambda query, items: [float("nan")] * len(items), fingerprint="hash")
    with pytest.raises(ScoreValueError):
        score_matrix(scorer, QUERIES, ITEMS, store=store)
    assert store.summary().scores == 0


def test_a_score_that_float32_cannot_hold_is_stored_as_its_largest(store: ScoreStore) -> None:
    scorer = TextScorer(
        lambda query, items: [-1e100 if item == "item 7" else 1.0 for item in items], fingerprint="hash"
    )
    for options in ({"store": store}, {}):
        result = score_matrix(scorer, QUERIES, ITEMS, **options)  # type: ignore[arg-type]
        assert result.calls == TRUTH.size
        assert np.isfinite(result.scores).all()
        assert (result.scores.argmin(axis=1) == 7).all()
    assert score_matrix(scorer, QUERIES, ITEMS, store=store).calls == 0


def test_damaged_scores_are_computed_again(store: ScoreStore) -> None:
    counting = Counting()
    score_matrix(counting.scorer, QUERIES, ITEMS, store=store, block_pairs=100, probe=False)
    store.database.write(lambda connection: connection.execute("UPDATE record SET crc = crc + 1 WHERE id = 4"))
    result = score_matrix(counting.scorer, QUERIES, ITEMS, store=store.path)
    assert result.calls == 100
    np.testing.assert_array_equal(matrix(store), TRUTH)
    assert len(store.verify()) == 1
    assert not store.verify()


def test_a_job_stops_when_items_are_forgotten_meanwhile(store: ScoreStore) -> None:
    def progress(what: str, done: int, total: int) -> None:
        if done == 400:
            ScoreStore(store.path, scorer_fingerprint="hash").forget(ITEMS[3:4])

    with pytest.raises(StoreError, match="items were forgotten") as caught:
        score_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store, block_pairs=200, probe=False, progress=progress)
    assert caught.value.calls == 600  # type: ignore[attr-defined]
    assert known(store) == 2 * 199


def test_two_jobs_share_the_work(store: ScoreStore) -> None:
    counting = Counting()
    options = {"block_pairs": 20, "probe": False, "store": store.path}
    threads = [
        threading.Thread(target=score_matrix, args=(counting.scorer, QUERIES, ITEMS), kwargs=options) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert TRUTH.size <= counting.calls <= 2 * TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


# -- in memory ---------------------------------------------------------------------------------------------------------


def bound(query: int, positions: np.ndarray) -> np.ndarray:
    return TRUTH[query, positions]


@pytest.mark.parametrize("engine", [LocalEngine(), LocalEngine(3)])
def test_without_a_store_scores_are_in_memory(engine: LocalEngine) -> None:
    result = score_matrix(MatrixScorer(TRUTH), range(9), engine=engine, block_pairs=130)
    assert (result.calls, result.known, result.missing) == (TRUTH.size, 0, 0)
    assert result.scores.dtype == np.float32
    np.testing.assert_array_equal(result.scores, TRUTH)
    some = np.array([3, 5, *range(50, 120)])
    part = score_matrix(bound, range(9), positions=some, engine=engine)
    np.testing.assert_array_equal(part.scores, TRUTH[:, some])
    rows, columns = np.array([5, 0, 5, 5]), np.array([7, 199, 7, 3])
    pairs = score_pairs(bound, range(9), None, rows, columns, engine=engine)
    assert pairs.calls == 3
    np.testing.assert_array_equal(pairs.scores, TRUTH[rows, columns].astype(np.float64))


def test_a_cache_makes_pairs_free_and_gets_new_scores() -> None:
    seen: list[tuple[int, int]] = []

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        seen.extend((query, int(position)) for position in positions)
        return TRUTH[query, positions]

    cache = MemoryCache()
    cache.put(4, np.arange(200), TRUTH[4].astype(np.float64))
    first = score_matrix(score, [*range(9), 0], positions=np.arange(200), cache=cache, limit=1000)
    assert (first.calls, first.known, first.missing) == (1000, 200, 600)
    assert int(np.isnan(first.scores[:9]).sum()) == 600
    second = score_matrix(score, [*range(9), 0], positions=np.arange(200), cache=cache)
    assert (second.calls, second.known) == (600, 1200)
    assert len(seen) == len(set(seen)) == 1600  # the query that is there twice was scored once
    np.testing.assert_array_equal(second.scores, TRUTH[[*range(9), 0]])


def test_what_is_being_scored_when_a_job_ends_early_is_waited_for() -> None:
    failed = threading.Event()

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        if query == 2:
            failed.set()
            raise RuntimeError("quota")
        failed.wait(10)
        time.sleep(0.2)
        return TRUTH[query, positions]

    cache, engine = MemoryCache(), LocalEngine(3)
    with pytest.raises(ScorerError, match="quota"):
        score_matrix(
            score, range(3), positions=np.arange(200), cache=cache, engine=engine, block_pairs=200, probe=False
        )
    for query in (0, 1):
        np.testing.assert_array_equal(cache.get(query, np.arange(200)), TRUTH[query])


# -- engines -----------------------------------------------------------------------------------------------------------


def test_processes(store: ScoreStore) -> None:
    engine = LocalEngine(2, "processes")
    options = {"engine": engine, "load": hash_scorer.make, "block_pairs": 300}
    result = score_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store, **options)
    assert result.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)
    cache = MemoryCache()
    np.testing.assert_array_equal(
        score_matrix(hash_scorer.make(), QUERIES, ITEMS, cache=cache, **options).scores, TRUTH
    )
    assert score_matrix(hash_scorer.make(), QUERIES, ITEMS, cache=cache).calls == 0


def test_a_process_that_dies_is_an_error_and_the_next_run_goes_on(store: ScoreStore, tmp_path: Path) -> None:
    options = {
        "store": store,
        "engine": LocalEngine(2, "processes"),
        "load": partial(hash_scorer.make_mortal, str(tmp_path)),
        "block_pairs": 100,
        "probe": False,
    }
    with pytest.raises(ScorerError, match="what was committed is safe: use fewer workers") as caught:
        score_matrix(hash_scorer.make(), QUERIES, ITEMS, **options)
    stored = known(store)
    assert stored + 100 <= caught.value.calls <= stored + 200  # its block, perhaps that of its neighbour
    assert score_matrix(hash_scorer.make(), QUERIES, ITEMS, **options).calls == TRUTH.size - stored
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_what_cannot_be_scored_is_refused_before_the_first_call(store: ScoreStore) -> None:
    with pytest.raises(InputError, match="'default' reads texts"):
        score_matrix("default", QUERIES)
    with pytest.raises(InputError, match="pass positions"):
        score_matrix(bound, range(9))
    with pytest.raises(InputError, match="keeps scores of texts"):
        score_matrix(MatrixScorer(TRUTH), range(9), store=store)
    with pytest.raises(InputError, match="bound to its items"):
        score_matrix(MatrixScorer(TRUTH), range(9), engine=LocalEngine(1, "processes"))
    scorer = hash_scorer.make()
    with pytest.raises(InputError, match="load the scorer themselves"):
        score_matrix(scorer, QUERIES, ITEMS, store=store, engine=LocalEngine(2, "processes"))
    other = partial(hash_scorer.make, "other")
    with pytest.raises(ScorerError, match="every worker must load the same model"):
        score_matrix(scorer, QUERIES, ITEMS, store=store, engine=LocalEngine(1, "processes"), load=other, probe=False)
    with pytest.raises(StoreError, match="never mixed"):
        score_matrix(other(), QUERIES, ITEMS, store=store)
    with pytest.raises(InputError, match="limit is 0"):
        score_matrix(scorer, QUERIES, ITEMS, store=store, limit=0)
    for wrong in (lambda: LocalEngine(0), lambda: RayEngine(0), lambda: make_engine("slurm")):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="no address"):
        make_engine("local", address="auto")
    assert store.summary().scores == 0


def test_nothing_to_score(store: ScoreStore) -> None:
    assert score_matrix(hash_scorer.make(), [], ITEMS, store=store).calls == 0
    assert score_matrix(hash_scorer.make(), QUERIES, [], store=store).scores.shape == (9, 0)
    assert score_pairs(hash_scorer.make(), QUERIES, ITEMS, [], [], store=store).calls == 0


@given(st.lists(st.lists(st.integers(1, 300), max_size=3), max_size=6), st.integers(1, 400))
def test_tasks_cover_all_parts_in_blocks(lengths: list[list[int]], block: int) -> None:
    parts = [(row, np.arange(min(length, block))) for row, several in enumerate(lengths) for length in several]
    tasks = [*cut(iter(parts), block)]
    covered = [(row, part.tolist()) for task in tasks for row, part in zip(task.rows, task.positions, strict=True)]
    assert covered == [(row, part.tolist()) for row, part in parts]
    assert all(0 < task.pairs <= block for task in tasks)
    for task in tasks:
        for room in (0, 1, 2, 5, 1000):
            head = task.head(room)
            assert head.pairs == sum(map(len, head.positions)) == min(room, task.pairs)
            assert len(head.rows) == len(head.positions)
