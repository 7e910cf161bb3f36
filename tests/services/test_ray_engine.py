"""The Ray engine on a cluster of two workers, started here."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest

from crosscut.errors import InputError, ScorerError
from crosscut.index import Index
from crosscut.score_store import ScoreStore
from crosscut.score_store.engines import LocalEngine, RayEngine, _connect
from crosscut.score_store.jobs import score_matrix
from crosscut.scorers import MatrixScorer, MemoryCache, TextScorer
from tests import hash_scorer

ray = pytest.importorskip("ray", reason="Ray is not installed")

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

QUERIES = [f"query {number}" for number in range(9)]
ITEMS = [f"item {number}" for number in range(200)]
TRUTH = hash_scorer.expected(QUERIES, ITEMS)


def _with_lock(lock: threading.Lock, query: str, items: list[str]) -> list[float]:
    with lock:
        return [0.0] * len(items)


QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_DEDUP_LOGS": "0"}


def start(attempts: int = 4) -> None:
    """Ray gives a node 30 seconds to start, which a busy machine may not have."""
    options = {"include_dashboard": False, "log_to_driver": False, "logging_level": "ERROR"}
    try:
        ray.init(num_cpus=2, object_store_memory=80 << 20, **options)
    except Exception:
        ray.shutdown()
        if attempts == 1:
            raise
        start(attempts - 1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    root = str(Path(__file__).parents[2])
    before = {name: os.environ.get(name) for name in (*QUIET, "PYTHONPATH")}
    os.environ.update(QUIET)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        start()
        yield ray
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def test_two_workers_agree_with_the_local_engine(cluster: Any, tmp_path: Path) -> None:
    scorer = hash_scorer.make()
    engine = RayEngine(workers=2)
    for name, chosen in (("ray", engine), ("local", LocalEngine())):
        outcome = score_matrix(
            scorer, QUERIES, ITEMS, store=tmp_path / name, engine=chosen, load=hash_scorer.make, block_pairs=100
        )
        assert outcome.calls == TRUTH.size
    matrices = [ScoreStore.open(tmp_path / name).matrix(QUERIES, ITEMS) for name in ("ray", "local")]
    np.testing.assert_array_equal(matrices[0], matrices[1])
    np.testing.assert_array_equal(matrices[0], TRUTH)
    assert score_matrix(scorer, QUERIES, ITEMS, store=tmp_path / "ray", engine=engine).calls == 0  # nothing to start


def test_a_worker_that_is_killed_is_replaced_and_its_block_done_again(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "mark").mkdir()
    load = partial(hash_scorer.make_mortal, str(tmp_path / "mark"))
    outcome = score_matrix(
        hash_scorer.make(),
        QUERIES,
        ITEMS,
        store=tmp_path / "store",
        engine=RayEngine(workers=2),
        load=load,
        block_pairs=100,
        probe=False,
    )
    assert (tmp_path / "mark" / "died").exists()
    assert (outcome.calls, outcome.lost) == (TRUTH.size + 100, 100)  # what the dead may have been paid for counts
    np.testing.assert_array_equal(ScoreStore.open(tmp_path / "store").matrix(QUERIES, ITEMS), TRUTH)


def test_an_index_is_built_and_tuned_on_ray_though_a_worker_is_killed(cluster: Any, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    calls.mkdir()
    mark = tmp_path / "died"

    def score(query: str, items: list[str]) -> list[float]:
        """Goes to the workers as it is; kills one of them, once."""
        if query == "query 5" and os.environ.get("RAY_RAYLET_PID") and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        (calls / uuid4().hex).write_text(str(len(items)))
        return [hash_scorer.score_of(query, item) for item in items]

    def paid() -> int:
        return sum(int(path.read_text()) for path in calls.iterdir())

    steps: list[tuple[str, int, int]] = []
    cache = MemoryCache()
    index = Index.build(
        ITEMS,
        scorer=score,
        encoder=None,
        queries=QUERIES,
        cache=cache,
        engine=RayEngine(workers=2),
        progress=lambda *step: steps.append(step),
    )
    assert mark.exists()
    spent = paid()
    assert TRUTH.size < spent <= index.build_calls < 2 * TRUTH.size  # what the dead had scored was paid for, too
    assert steps[-1] == ("scoring queries with every item", TRUTH.size, TRUTH.size)
    np.testing.assert_array_equal(index.corpus.anchors, TRUTH)
    more = [f"another query {number}" for number in range(8)]
    tuning = index.tune(more, 5, 40, methods=["crosscut", "adacur"], engine="ray")
    assert tuning.calls == 8 * len(ITEMS)
    assert paid() == spent + 8 * len(ITEMS)
    assert index.tune(more, 5, 40, methods=["crosscut", "adacur"], engine="ray").calls == 0  # all of it is known by now


def test_an_address_where_nobody_answers_is_a_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(InputError, match="nobody answers at"):
            _connect(ray, address)


def test_a_failing_worker_is_a_sentence(cluster: Any, tmp_path: Path) -> None:
    scorer, engine = hash_scorer.make(), RayEngine(workers=1)
    with pytest.raises(ScorerError, match="every worker must load the same model"):
        score_matrix(scorer, QUERIES, ITEMS, store=tmp_path, engine=engine, load=partial(hash_scorer.make, "other"))
    with pytest.raises(ScorerError, match=r"a Ray worker died 4 times .* what was committed is safe"):
        score_matrix(scorer, QUERIES, ITEMS, store=tmp_path, engine=engine, load=hash_scorer.make_doomed)
    with pytest.raises(InputError, match="load the scorer themselves"):
        score_matrix(MatrixScorer(TRUTH), range(9), engine=engine)
    locked = TextScorer(partial(_with_lock, threading.Lock()), fingerprint="locked")
    with pytest.raises(InputError, match="cannot be sent to them"):
        score_matrix(locked, QUERIES, ITEMS, engine=engine)
    assert not ScoreStore.open(tmp_path).verify()
