"""The Ray engine on a cluster of two workers, started here."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.errors import InputError, ScorerError
from crosscut.scores import ScoreStore
from crosscut.scores.engines import LocalEngine, RayEngine, score_dense, score_pairs
from crosscut.scores.engines.ray import _connect
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
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0", "RAY_DEDUP_LOGS": "0"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    root = str(Path(__file__).parent.parent)
    before = {name: os.environ.get(name) for name in (*QUIET, "PYTHONPATH")}
    os.environ.update(QUIET)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    try:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="ERROR",
            object_store_memory=80 << 20,
        )
        yield ray
    finally:
        ray.shutdown()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.mark.parametrize("shared", [False, True])
def test_two_workers_agree_with_the_local_engine(cluster: Any, tmp_path: Path, shared: bool) -> None:
    scorer = hash_scorer.make()
    engine = RayEngine(workers=2, shared=shared)
    for name, chosen in (("ray", engine), ("local", LocalEngine())):
        outcome = score_dense(
            tmp_path / name, scorer, QUERIES, ITEMS, engine=chosen, load=hash_scorer.make, block_pairs=100
        )
        assert outcome.calls == TRUTH.size
    matrices = [ScoreStore.open(tmp_path / name).matrix(QUERIES, ITEMS) for name in ("ray", "local")]
    np.testing.assert_array_equal(matrices[0], matrices[1])
    np.testing.assert_array_equal(matrices[0], TRUTH)
    assert score_dense(tmp_path / "ray", scorer, QUERIES, ITEMS, engine=engine).calls == 0  # nothing to start


def test_a_worker_that_is_killed_is_replaced_and_its_block_done_again(cluster: Any, tmp_path: Path) -> None:
    (tmp_path / "mark").mkdir()
    load = partial(hash_scorer.make_mortal, str(tmp_path / "mark"))
    outcome = score_dense(
        tmp_path / "store",
        hash_scorer.make(),
        QUERIES,
        ITEMS,
        engine=RayEngine(workers=2),
        load=load,
        block_pairs=100,
        probe=False,
    )
    assert (tmp_path / "mark" / "died").exists()
    assert outcome.calls == TRUTH.size
    np.testing.assert_array_equal(ScoreStore.open(tmp_path / "store").matrix(QUERIES, ITEMS), TRUTH)


def test_the_model_in_the_box_scores_the_same_on_ray(cluster: Any, tmp_path: Path) -> None:
    queries, items = ["a thought of mine", "the bank of a river"], [f"a sloping land {n}" for n in range(12)]
    rows, columns = np.divmod(np.arange(24), 12)
    score_pairs(tmp_path / "ray", "default", queries, items, rows, columns, engine=RayEngine(workers=1), block_pairs=8)
    score_dense(tmp_path / "local", "default", queries, items)
    matrices = [ScoreStore.open(tmp_path / name).matrix(queries, items) for name in ("ray", "local")]
    np.testing.assert_allclose(matrices[0], matrices[1], rtol=0, atol=1e-5)


def test_an_address_where_nobody_answers_is_a_sentence() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(InputError, match="nobody answers at"):
            _connect(ray, address)


def test_a_failing_worker_is_a_sentence(cluster: Any, tmp_path: Path) -> None:
    scorer, engine = hash_scorer.make(), RayEngine(workers=1)
    with pytest.raises(ScorerError, match="every worker must load the same model"):
        score_dense(tmp_path, scorer, QUERIES, ITEMS, engine=engine, load=partial(hash_scorer.make, "other"))
    with pytest.raises(ScorerError, match="died 4 times without finishing a block"):
        score_dense(tmp_path, scorer, QUERIES, ITEMS, engine=engine, load=hash_scorer.make_doomed)
    with pytest.raises(InputError, match="load the scorer themselves"):
        score_dense(tmp_path, scorer, QUERIES, ITEMS, engine=engine)
    assert not ScoreStore.open(tmp_path).verify()
