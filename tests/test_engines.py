"""The engines: whatever is killed, cut or repeated, the matrix is the one that was asked for."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosscut.errors import InputError, ScorerError, ScoreValueError, StoreError
from crosscut.scorers import TextScorer
from crosscut.scores import ScoreStore
from crosscut.scores.engines import LocalEngine, Plan, Progress, RayEngine, make_engine, score_dense, score_pairs
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
    outcome = score_dense(store, counting.scorer, QUERIES, ITEMS, engine=engine, block_pairs=block_pairs)
    assert counting.calls == outcome.calls == TRUTH.size
    assert (outcome.known, outcome.missing) == (0, 0)
    np.testing.assert_array_equal(matrix(store), TRUTH)
    assert isinstance(store.matrix(QUERIES, ITEMS), np.memmap)
    again = score_dense(store, counting.scorer, QUERIES, ITEMS, engine=engine)
    assert (again.calls, again.known, counting.calls) == (0, TRUTH.size, TRUTH.size)


def test_repeated_texts_are_scored_once(store: ScoreStore) -> None:
    counting = Counting()
    queries, items = [*QUERIES[:2], QUERIES[0]], [*ITEMS[:3], *ITEMS[:3]]
    score_dense(store, counting.scorer, queries, items)
    assert counting.calls == 6
    np.testing.assert_array_equal(store.matrix(queries, items), TRUTH[np.ix_([0, 1, 0], [0, 1, 2, 0, 1, 2])])
    assert isinstance(store.matrix(queries, items), np.memmap)


def test_a_limit_is_kept_and_the_next_run_goes_on(store: ScoreStore) -> None:
    counting = Counting()
    total = 0
    for limit in (1, 30, 100, 333, 1000):
        outcome = score_dense(store, counting.scorer, QUERIES, ITEMS, limit=limit, block_pairs=64)
        assert outcome.calls == limit
        total += limit
        assert (counting.calls, outcome.missing) == (total, TRUTH.size - total)
        assert store.coverage(QUERIES, ITEMS).known == total
    score_dense(store, counting.scorer, QUERIES, ITEMS)
    assert counting.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_more_items_and_queries_cost_only_themselves(store: ScoreStore) -> None:
    counting = Counting()
    score_dense(store, counting.scorer, QUERIES[:5], ITEMS[50:])
    score_dense(store, counting.scorer, QUERIES, ITEMS)
    assert counting.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)
    assert len(list((store.folder / "matrices").glob("*.npy"))) == 1


def test_pairs(store: ScoreStore) -> None:
    counting = Counting()
    rng = np.random.default_rng(0)
    rows, columns = rng.integers(0, 9, 300), rng.integers(0, 200, 300)
    distinct = len({*zip(rows.tolist(), columns.tolist(), strict=True)})
    plans: list[Plan] = []
    outcome = score_pairs(
        store, counting.scorer, QUERIES, ITEMS, rows, columns, block_pairs=50, plan=plans.append, engine=LocalEngine(2)
    )
    assert counting.calls == outcome.calls == plans[0].calls == plans[0].pairs == distinct
    found = ScoreStore.open(store.path).pairs(QUERIES, ITEMS)
    assert len(found.scores) == distinct
    np.testing.assert_array_equal(found.scores, TRUTH[found.rows, found.columns])
    assert score_pairs(store, counting.scorer, QUERIES, ITEMS, rows, columns).calls == 0
    with pytest.raises(InputError, match="do not fit a list of 200"):
        score_pairs(store, counting.scorer, QUERIES, ITEMS, [0], [200])


def test_the_plan_comes_first_and_the_progress_ends_at_the_total(store: ScoreStore) -> None:
    plans: list[Plan] = []
    steps: list[Progress] = []

    def plan(one: Plan) -> None:
        assert not steps
        plans.append(one)

    counting = Counting()
    score_dense(store, counting.scorer, QUERIES[:2], ITEMS)
    options = {"plan": plan, "progress": steps.append, "price_per_thousand": 2.0, "block_pairs": 100}
    score_dense(store, counting.scorer, QUERIES, ITEMS, **options)
    (one,) = plans
    assert (one.pairs, one.known, one.calls, one.cost) == (1800, 400, 1400, 2.8)
    assert one.seconds is not None
    assert one.seconds > 0
    assert [step.done for step in steps] == sorted(step.done for step in steps)
    assert (steps[-1].done, steps[-1].total, steps[-1].seconds_left) == (1400, 1400, 0.0)
    score_dense(store, counting.scorer, QUERIES, ITEMS, plan=plans.append, price_per_thousand=2.0)
    assert (plans[-1].calls, plans[-1].cost) == (0, 0.0)


def test_a_damaged_block_is_scored_again_and_reported(store: ScoreStore) -> None:
    counting = Counting()
    score_dense(store, counting.scorer, QUERIES, ITEMS, block_pairs=100, probe=False, consolidate=False)
    victim = sorted((store.folder / "blocks").glob("*.scores"))[3]
    data = bytearray(victim.read_bytes())
    data[-9] ^= 1
    victim.write_bytes(bytes(data))
    outcome = score_dense(store.path, counting.scorer, QUERIES, ITEMS)
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
        score_dense(store, failing, QUERIES[4:], ITEMS, block_pairs=5000, probe=False)
    assert store.coverage(QUERIES, ITEMS).known == 400  # queries 4 and 5 of the same batch
    with pytest.raises(ScorerError, match="quota"):
        score_dense(store, failing, ["query 6"], ITEMS)
    outcome = score_dense(store, hash_scorer.make(), QUERIES, ITEMS)
    assert outcome.known == 400
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_not_a_number_is_never_stored(store: ScoreStore) -> None:
    scorer = TextScorer(lambda query, items: [float("nan")] * len(items), fingerprint="hash")
    with pytest.raises(ScoreValueError):
        score_dense(store, scorer, QUERIES, ITEMS)
    assert store.coverage().scores == 0


def test_an_interrupt_loses_nothing_that_was_committed(store: ScoreStore) -> None:
    seen: list[Progress] = []

    def progress(step: Progress) -> None:
        seen.append(step)
        if len(seen) == 3:
            raise KeyboardInterrupt

    for engine in (LocalEngine(1), LocalEngine(3)):
        seen.clear()
        with pytest.raises(KeyboardInterrupt):
            score_dense(
                store, hash_scorer.make(), QUERIES, ITEMS, engine=engine, block_pairs=40, progress=progress, probe=False
            )
        assert store.coverage(QUERIES, ITEMS).known >= seen[-1].done
    score_dense(store, hash_scorer.make(), QUERIES, ITEMS)
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_two_runs_share_the_work(store: ScoreStore) -> None:
    counting = Counting()
    stores = [ScoreStore(store.path, scorer_fingerprint="hash") for _ in range(2)]
    options = {"block_pairs": 20, "probe": False}
    threads = [
        threading.Thread(target=score_dense, args=(one, counting.scorer, QUERIES, ITEMS), kwargs=options)
        for one in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert TRUTH.size <= counting.calls <= 2 * TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_processes(store: ScoreStore) -> None:
    engine = LocalEngine(2, "processes")
    outcome = score_dense(
        store, hash_scorer.make(), QUERIES, ITEMS, engine=engine, load=hash_scorer.make, block_pairs=100
    )
    assert outcome.calls == TRUTH.size
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_a_process_that_dies_is_replaced(store: ScoreStore, tmp_path: Path) -> None:
    load = partial(hash_scorer.make_mortal, str(tmp_path))
    engine = LocalEngine(2, "processes")
    score_dense(store, hash_scorer.make(), QUERIES, ITEMS, engine=engine, load=load, block_pairs=100, probe=False)
    assert (tmp_path / "died").exists()
    np.testing.assert_array_equal(matrix(store), TRUTH)


def test_processes_that_always_die_are_an_error(store: ScoreStore) -> None:
    engine = LocalEngine(1, "processes")
    with pytest.raises(ScorerError, match="died 3 times without finishing a block"):
        score_dense(store, hash_scorer.make(), QUERIES, ITEMS, engine=engine, load=hash_scorer.make_doomed)
    assert not store.verify()


def test_engines_that_cannot_work_say_so(store: ScoreStore) -> None:
    scorer = hash_scorer.make()
    with pytest.raises(InputError, match="load the scorer themselves"):
        score_dense(store, scorer, QUERIES, ITEMS, engine=LocalEngine(2, "processes"))
    engine = LocalEngine(1, "processes")
    with pytest.raises(ScorerError, match="every worker must load the same model"):
        score_dense(store, scorer, QUERIES, ITEMS, engine=engine, load=partial(hash_scorer.make, "other"))
    with pytest.raises(StoreError, match="never mixed"):
        score_dense(store, hash_scorer.make("other"), QUERIES, ITEMS)
    for wrong in (lambda: LocalEngine(0), lambda: RayEngine(0), lambda: make_engine("slurm")):
        with pytest.raises(InputError):
            wrong()
    with pytest.raises(InputError, match="no address"):
        make_engine("local", address="auto")
    with pytest.raises(InputError, match="limit is 0"):
        score_dense(store, scorer, QUERIES, ITEMS, limit=0)


def test_nothing_to_score(store: ScoreStore) -> None:
    assert score_dense(store, hash_scorer.make(), [], ITEMS).calls == 0
    assert score_dense(store, hash_scorer.make(), QUERIES, []).calls == 0
    assert score_pairs(store, hash_scorer.make(), QUERIES, ITEMS, [], []).calls == 0


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
            assert task.head(room).pairs == min(room, task.pairs) or task.dense
            assert 0 < task.head(room).pairs <= room
