"""Buying scores: whatever is killed, cut or repeated, the matrix is the one that was asked for, and paid for once."""

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
from crosscut.scorers import MatrixScorer, MemoryCache, TextScorer
from crosscut.scores import ScoreStore
from crosscut.scores.buy import buy_matrix, buy_pairs
from crosscut.scores.engines import LocalEngine, RayEngine, make_engine
from crosscut.scores.engines.pace import Estimate
from crosscut.scores.engines.tasks import cut, gap
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


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("block_pairs", [None, 7, 70, 500])
def test_each_pair_is_scored_once(store: ScoreStore, workers: int, block_pairs: int | None) -> None:
    counting = Counting()
    engine = LocalEngine(workers)
    outcome = buy_matrix(counting.scorer, QUERIES, ITEMS, store=store, engine=engine, block_pairs=block_pairs)
    assert counting.calls == outcome.calls == TRUTH.size
    assert (outcome.known, outcome.missing) == (0, 0)
    np.testing.assert_array_equal(matrix(store), TRUTH)
    assert isinstance(store.matrix(QUERIES, ITEMS), np.memmap)
    again = buy_matrix(counting.scorer, QUERIES, ITEMS, store=store, engine=engine)
    assert (again.calls, again.known, counting.calls) == (0, TRUTH.size, TRUTH.size)


def test_repeated_texts_are_scored_once(store: ScoreStore) -> None:
    counting = Counting()
    queries, items = [*QUERIES[:2], QUERIES[0]], [*ITEMS[:3], *ITEMS[:3]]
    buy_matrix(counting.scorer, queries, items, store=store)
    assert counting.calls == 6
    np.testing.assert_array_equal(store.matrix(queries, items), TRUTH[np.ix_([0, 1, 0], [0, 1, 2, 0, 1, 2])])
    assert isinstance(store.matrix(queries, items), np.memmap)


def test_a_limit_is_kept_and_the_next_run_goes_on(store: ScoreStore) -> None:
    counting = Counting()
    total = 0
    for limit in (1, 30, 100, 333, 1000):
        outcome = buy_matrix(counting.scorer, QUERIES, ITEMS, store=store, limit=limit, block_pairs=64)
        assert outcome.calls == limit
        total += limit
        assert (counting.calls, outcome.missing) == (total, TRUTH.size - total)
        assert store.coverage(QUERIES, ITEMS).known == total
    buy_matrix(counting.scorer, QUERIES, ITEMS, store=store)
    assert counting.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_more_items_and_queries_cost_only_themselves(store: ScoreStore) -> None:
    counting = Counting()
    buy_matrix(counting.scorer, QUERIES[:5], ITEMS[50:], store=store)
    buy_matrix(counting.scorer, QUERIES, ITEMS, store=store)
    assert counting.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)
    assert len(list((store.folder / "matrices").glob("*.npy"))) == 1


def test_pairs(store: ScoreStore) -> None:
    counting = Counting()
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 9, 300), rng.integers(0, 200, 300)
    distinct = len({*zip(rows.tolist(), columns.tolist(), strict=True)})
    estimates: list[Estimate] = []
    outcome = buy_pairs(
        counting.scorer,
        QUERIES,
        ITEMS,
        rows,
        columns,
        store=store,
        block_pairs=50,
        estimate=estimates.append,
        engine=LocalEngine(2),
    )
    assert counting.calls == outcome.calls == estimates[0].calls == estimates[0].pairs == distinct
    np.testing.assert_array_equal(outcome.scores, TRUTH[rows, columns])
    found = ScoreStore.open(store.path).pairs(QUERIES, ITEMS)
    assert len(found.scores) == distinct
    np.testing.assert_array_equal(found.scores, TRUTH[found.rows, found.columns])
    assert buy_pairs(counting.scorer, QUERIES, ITEMS, rows, columns, store=store).calls == 0
    with pytest.raises(InputError, match="do not fit a list of 200"):
        buy_pairs(counting.scorer, QUERIES, ITEMS, [0], [200], store=store)


def test_the_estimate_comes_first_and_the_progress_ends_at_the_total(store: ScoreStore) -> None:
    estimates: list[Estimate] = []
    steps: list[tuple[str, int, int]] = []

    def estimate(one: Estimate) -> None:
        assert not steps
        estimates.append(one)

    counting = Counting()
    buy_matrix(counting.scorer, QUERIES[:2], ITEMS, store=store)
    buy_matrix(
        counting.scorer,
        QUERIES,
        ITEMS,
        store=store,
        estimate=estimate,
        progress=lambda *step: steps.append(step),
        price_per_thousand=2.0,
        block_pairs=100,
    )
    (one,) = estimates
    assert (one.pairs, one.known, one.calls, one.cost) == (1800, 400, 1400, 2.8)
    assert one.seconds is not None
    assert one.seconds > 0
    assert [done for _, done, _ in steps] == sorted(done for _, done, _ in steps)
    assert steps[-1] == ("scoring", 1400, 1400)
    buy_matrix(counting.scorer, QUERIES, ITEMS, store=store, estimate=estimates.append, price_per_thousand=2.0)
    assert (estimates[-1].calls, estimates[-1].cost) == (0, 0.0)


def test_a_damaged_block_is_scored_again_and_reported(store: ScoreStore) -> None:
    counting = Counting()
    buy_matrix(counting.scorer, QUERIES, ITEMS, store=store, block_pairs=100, probe=False, consolidate=False)
    victim = sorted((store.folder / "blocks").glob("*.scores"))[3]
    data = bytearray(victim.read_bytes())
    data[-9] ^= 1
    victim.write_bytes(bytes(data))
    outcome = buy_matrix(counting.scorer, QUERIES, ITEMS, store=store.path)
    assert outcome.calls == 100
    assert [damage.path.name for damage in outcome.damaged] == [victim.name]
    np.testing.assert_array_equal(matrix(store), TRUTH)
    assert not ScoreStore.open(store.path).verify()


def test_a_scorer_that_fails_keeps_what_was_paid_for(store: ScoreStore) -> None:
    def fn(query: str, items: Sequence[str]) -> list[float]:
        if query == "query 6":
            raise RuntimeError("quota")
        return [hash_scorer.score_of(query, item) for item in items]

    failing = TextScorer(fn, fingerprint="hash")
    with pytest.raises(ScorerError, match="quota"):
        buy_matrix(failing, QUERIES[4:], ITEMS, store=store, block_pairs=5000, probe=False)
    assert store.coverage(QUERIES, ITEMS).known == 400  # queries 4 and 5 of the same batch
    with pytest.raises(ScorerError, match="quota"):
        buy_matrix(failing, ["query 6"], ITEMS, store=store)
    outcome = buy_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store)
    assert outcome.known == 400
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_not_a_number_is_never_stored(store: ScoreStore) -> None:
    scorer = TextScorer(lambda query, items: [float("nan")] * len(items), fingerprint="hash")
    with pytest.raises(ScoreValueError):
        buy_matrix(scorer, QUERIES, ITEMS, store=store)
    assert store.coverage().scores == 0


def test_an_interrupt_loses_nothing_that_was_committed(store: ScoreStore) -> None:
    seen: list[int] = []

    def progress(what: str, done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    for engine in (LocalEngine(1), LocalEngine(3)):
        seen.clear()
        with pytest.raises(KeyboardInterrupt):
            buy_matrix(
                hash_scorer.make(),
                QUERIES,
                ITEMS,
                store=store,
                engine=engine,
                block_pairs=40,
                progress=progress,
                probe=False,
            )
        assert (store.coverage(QUERIES, ITEMS).known or 0) >= seen[-1]
    buy_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store)
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_two_runs_share_the_work(store: ScoreStore) -> None:
    counting = Counting()
    stores = [ScoreStore(store.path, scorer_fingerprint="hash") for _ in range(2)]
    options = {"block_pairs": 20, "probe": False}
    threads = [
        threading.Thread(target=buy_matrix, args=(counting.scorer, QUERIES, ITEMS), kwargs={**options, "store": one})
        for one in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert TRUTH.size <= counting.calls <= 2 * TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def bound(query: int, positions: np.ndarray) -> np.ndarray:
    return TRUTH[query, positions]


@pytest.mark.parametrize("engine", [LocalEngine(), LocalEngine(3)])
def test_without_a_store_scores_are_bought_into_memory(engine: LocalEngine) -> None:
    bought = buy_matrix(MatrixScorer(TRUTH), range(9), engine=engine, block_pairs=130)
    assert (bought.calls, bought.known, bought.missing) == (TRUTH.size, 0, 0)
    assert bought.scores.dtype == np.float32
    np.testing.assert_array_equal(bought.scores, TRUTH)
    some = np.array([3, 5, *range(50, 120)])
    part = buy_matrix(bound, range(9), positions=some, engine=engine)
    np.testing.assert_array_equal(part.scores, TRUTH[:, some])
    rows, columns = np.array([5, 0, 5, 5]), np.array([7, 199, 7, 3])
    pairs = buy_pairs(bound, range(9), None, rows, columns, engine=engine)
    assert pairs.calls == 3
    np.testing.assert_array_equal(pairs.scores, TRUTH[rows, columns].astype(np.float64))


def test_a_cache_makes_pairs_free_and_keeps_what_is_bought() -> None:
    seen: list[tuple[int, int]] = []

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        seen.extend((query, int(position)) for position in positions)
        return TRUTH[query, positions]

    cache = MemoryCache()
    cache.put(4, np.arange(200), TRUTH[4].astype(np.float64))
    first = buy_matrix(score, [*range(9), 0], positions=np.arange(200), cache=cache, limit=1000)
    assert (first.calls, first.known, first.missing) == (1000, 200, 600)
    assert int(np.isnan(first.scores[:9]).sum()) == 600
    second = buy_matrix(score, [*range(9), 0], positions=np.arange(200), cache=cache)
    assert (second.calls, second.known) == (600, 1200)
    assert len(seen) == len(set(seen)) == 1600  # the query that stands twice was scored once
    np.testing.assert_array_equal(second.scores, TRUTH[[*range(9), 0]])


def test_what_is_being_scored_when_a_run_ends_is_paid_for_and_kept() -> None:
    """One query fails while the others are with the scorer: their answers come later and are not thrown away."""
    failed = threading.Event()

    def score(query: int, positions: np.ndarray) -> np.ndarray:
        if query == 2:
            failed.set()
            raise RuntimeError("quota")
        failed.wait(10)
        time.sleep(0.2)
        return TRUTH[query, positions]

    cache = MemoryCache()
    with pytest.raises(ScorerError, match="quota"):
        buy_matrix(
            score, range(3), positions=np.arange(200), cache=cache, engine=LocalEngine(3), block_pairs=200, probe=False
        )
    for query in (0, 1):
        np.testing.assert_array_equal(cache.get(query, np.arange(200)), TRUTH[query])


def test_what_cannot_be_bought_is_a_sentence(store: ScoreStore) -> None:
    with pytest.raises(InputError, match="'default' reads texts"):
        buy_matrix("default", QUERIES)
    with pytest.raises(InputError, match="pass positions"):
        buy_matrix(bound, range(9))
    with pytest.raises(InputError, match="keeps scores of texts"):
        buy_matrix(MatrixScorer(TRUTH), range(9), store=store)
    with pytest.raises(InputError, match="bound to its items"):
        buy_matrix(MatrixScorer(TRUTH), range(9), engine=LocalEngine(1, "processes"))


@pytest.mark.parametrize("cached", [False, True])
def test_processes_without_a_store(cached: bool) -> None:
    cache = MemoryCache() if cached else None
    bought = buy_matrix(
        hash_scorer.make(),
        QUERIES,
        ITEMS,
        cache=cache,
        engine=LocalEngine(2, "processes"),
        load=hash_scorer.make,
        block_pairs=300,
    )
    np.testing.assert_array_equal(bought.scores, TRUTH)
    assert cache is None or buy_matrix(hash_scorer.make(), QUERIES, ITEMS, cache=cache).calls == 0


def test_processes(store: ScoreStore) -> None:
    engine = LocalEngine(2, "processes")
    outcome = buy_matrix(
        hash_scorer.make(), QUERIES, ITEMS, store=store, engine=engine, load=hash_scorer.make, block_pairs=100
    )
    assert outcome.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_a_process_that_dies_is_replaced(store: ScoreStore, tmp_path: Path) -> None:
    load = partial(hash_scorer.make_mortal, str(tmp_path))
    engine = LocalEngine(2, "processes")
    bought = buy_matrix(
        hash_scorer.make(), QUERIES, ITEMS, store=store, engine=engine, load=load, block_pairs=100, probe=False
    )
    assert (tmp_path / "died").exists()
    assert 100 <= bought.lost <= 200  # the block of the process that died, perhaps that of its neighbour
    assert bought.calls == TRUTH.size + bought.lost
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_processes_that_always_die_are_an_error(store: ScoreStore) -> None:
    engine = LocalEngine(1, "processes")
    with pytest.raises(ScorerError, match="died 3 times without finishing a block"):
        buy_matrix(hash_scorer.make(), QUERIES, ITEMS, store=store, engine=engine, load=hash_scorer.make_doomed)
    assert not store.verify()


def test_engines_that_cannot_work_say_so(store: ScoreStore) -> None:
    scorer = hash_scorer.make()
    with pytest.raises(InputError, match="load the scorer themselves"):
        buy_matrix(scorer, QUERIES, ITEMS, store=store, engine=LocalEngine(2, "processes"))
    engine = LocalEngine(1, "processes")
    with pytest.raises(ScorerError, match="every worker must load the same model"):
        buy_matrix(scorer, QUERIES, ITEMS, store=store, engine=engine, load=partial(hash_scorer.make, "other"))
    with pytest.raises(StoreError, match="never mixed"):
        buy_matrix(hash_scorer.make("other"), QUERIES, ITEMS, store=store)
    for wrong in (lambda: LocalEngine(0), lambda: RayEngine(0), lambda: make_engine("slurm")):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="no address"):
        make_engine("local", address="auto")
    with pytest.raises(InputError, match="limit is 0"):
        buy_matrix(scorer, QUERIES, ITEMS, store=store, limit=0)


def test_nothing_to_score(store: ScoreStore) -> None:
    assert buy_matrix(hash_scorer.make(), [], ITEMS, store=store).calls == 0
    assert buy_matrix(hash_scorer.make(), QUERIES, [], store=store).calls == 0
    assert buy_pairs(hash_scorer.make(), QUERIES, ITEMS, [], [], store=store).calls == 0


@given(st.lists(st.sets(st.integers(0, 300)), max_size=6), st.integers(1, 400))
def test_tasks_cover_what_is_missing_exactly(missing: list[set[int]], block_pairs: int) -> None:
    gaps = [gap(row, np.array(sorted(lacking), np.int64)) for row, lacking in enumerate(missing) if lacking]
    tasks = cut(gaps, block_pairs)
    covered = [
        (row, position)
        for task in tasks
        for place, row in enumerate(task.rows)
        for position in task.positions(place).tolist()
    ]
    assert sorted(covered) == [(row, position) for row, lacking in enumerate(missing) for position in sorted(lacking)]
    assert all(0 < task.pairs <= block_pairs for task in tasks)
    for task in tasks:
        for room in (1, 2, 5):
            assert task.head(room).pairs == min(room, task.pairs) or isinstance(task.columns, range)
            assert 0 < task.head(room).pairs <= room
