"""Modules that a search from the command line imports, and the time that takes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crosscut.linalg import products

SEARCH = """
import sys
import numpy as np
from crosscut import Index
from crosscut.cli import main

def score(query, texts):
    return [len(set(query.split()) & set(text.split())) for text in texts]

def encode(texts):
    return np.array([[text.count(letter) + 1 for letter in "abcdefgh"] for text in texts], np.float32)

if sys.argv[1] == "build":
    Index.build([f"w{n % 7} w{n % 11} text {n}" for n in range(300)], scorer=score, encoder=encode).save(sys.argv[2])
else:
    load = Index.load
    Index.load = lambda path, **how: load(path, **{**how, "scorer": score, "encoder": encode})
    sys.argv = ["crosscut", "search", sys.argv[2], "w3 w4", "-k", "10", "--budget", "100"]
    try:
        main()
    except SystemExit:
        pass
    print(*(name for name in ("numba", "sklearn", "httpx", "torch", "onnxruntime") if name in sys.modules))
"""


def test_a_search_of_the_command_line_loads_no_compiler(tmp_path: Path) -> None:
    for step in ("build", "search"):
        command = [sys.executable, "-c", SEARCH, step, str(tmp_path / "index")]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "the budget is spent" in done.stdout
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("queries", [1, 3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_few_products_are_the_same(order: str, queries: int, dtype: type) -> None:
    rng = np.random.default_rng(0)
    array = np.array(rng.standard_normal((40_000, 60)), dtype=dtype, order=order)  # type: ignore[call-overload]
    asked = rng.standard_normal((queries, 60))
    expected = asked @ array.astype(np.float64).T
    with products.few():
        found = products.product(array, asked)
    assert found.dtype == products.product(array, asked).dtype
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_every_finite_half_is_widened_exactly_by_shifting() -> None:
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = halves[np.isfinite(halves)]
    np.testing.assert_array_equal(products._shifted(halves), halves.astype(np.float32))


def test_few_ends_with_its_block() -> None:
    array = np.zeros((10, 4), np.float16)
    with products.few():
        with products.few():
            assert not products._compiled(array)
        assert not products._compiled(array)
    assert products._compiled(array)
