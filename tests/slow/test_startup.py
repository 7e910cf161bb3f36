"""What a search from the command line loads, and what that costs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from benchmarks import startup

from crosscut.datasets import columnar
from crosscut.datasets.bytes import hash_each
from crosscut.linalg import products

FIGURES = Path(__file__).parents[2] / "benchmarks" / "results" / "startup.json"


@pytest.mark.parametrize("kind", ["planted", "box"])
def test_the_command_costs_less_than_a_second_and_a_half_beside_its_models(kind: str) -> None:
    found = json.loads(FIGURES.read_text("utf-8"))[kind]
    assert found["items"] >= 50_000
    assert found["outside"] == min(found["outside_each"])
    assert max(found["outside_each"]) < 1.5


def test_a_search_of_the_command_line_loads_no_compiler(tmp_path: Path) -> None:
    startup.build("planted", 300, tmp_path / "index")
    script = (
        "import sys; from benchmarks import startup\n"
        f"startup.search('planted', {str(tmp_path / 'index')!r})\n"
        "print(*(name for name in ('numba', 'sklearn', 'httpx', 'torch', 'onnxruntime') if name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert "the budget is spent" in done.stdout
    assert done.stdout.splitlines()[-1] == ""
    figures = json.loads(done.stderr.splitlines()[-1])
    assert figures["cpu"] == pytest.approx(figures["outside"] + figures["models"])


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


def test_the_hash_of_one_id_is_that_of_many() -> None:
    rng = np.random.default_rng(0)
    for size in (0, 1, 7, 40, 300):
        data = rng.integers(0, 256, size).astype(np.uint8)
        out = np.empty(1, np.uint64)
        hash_each(data, np.zeros(1, np.int64), np.array([size], np.uint32), out)
        assert columnar._hash(data) == out[0]
