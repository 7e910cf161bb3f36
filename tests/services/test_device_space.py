"""Item vectors that live on a device: the same hits as from an array, whatever the method."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import crosscut
from crosscut.errors import InputError
from crosscut.spaces.base import Vectors, as_space
from crosscut.spaces.device import OnDevice
from tests.worlds import planted

METHODS = ("rerank", "axn", "axn@rounds=3,mix=0.4", "adacur@first=dense", "crosscut")


@pytest.mark.parametrize("method", METHODS)
def test_the_same_hits_as_from_an_array(method: str) -> None:
    world = planted(n=160, queries=6, anchors=20)
    array = world.vectors.astype(np.float32)

    def found(vectors: object) -> list[list[object]]:
        searcher = crosscut.Searcher(
            crosscut.MatrixScorer(world.test),
            vectors=vectors,  # type: ignore[arg-type]
            space=crosscut.CUR(world.anchors) if method.startswith(("adacur", "crosscut")) else None,
            method=method,
        )
        hits = searcher.search_many(range(6), 5, 40, query_vectors=world.query_vectors)
        return [[hit.id for hit in some] for some in hits]

    assert found(OnDevice(torch.tensor(array))) == found(array)


def test_products_are_those_of_the_array() -> None:
    rng = np.random.default_rng(0)
    array, queries = rng.normal(size=(90_000, 6)), rng.normal(size=(3, 6))
    for kind in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        space = OnDevice(torch.tensor(array).to(kind))
        exact = space.rows(np.arange(len(array)))
        assert (space.n, space.d, exact.dtype.name) == (90_000, 6, "float64")
        np.testing.assert_allclose(space.predict(queries), queries @ exact.T, atol=1e-5)  # sums are not in 16 bits
        np.testing.assert_array_equal(space.rows(np.array([7, 3])), exact[[7, 3]])


def test_products_are_made_where_the_vectors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device without numbers: what would be brought back has its shape, and was never on the CPU."""
    seen: list[tuple[str, tuple[int, ...]]] = []

    def brought(tensor: torch.Tensor) -> torch.Tensor:
        seen.append((tensor.device.type, tuple(tensor.shape)))
        return torch.zeros(tensor.shape)

    monkeypatch.setattr(torch.Tensor, "cpu", brought)
    space = as_space(torch.zeros(50, 4, device="meta"))
    assert isinstance(space, OnDevice)
    assert space.predict(np.ones((3, 4))).shape == (3, 50)
    assert space.rows(np.array([1, 2])).shape == (2, 4)
    assert seen == [("meta", (3, 50)), ("meta", (2, 4))]


def test_tensors_of_the_cpu_are_arrays_and_others_are_not() -> None:
    tensor = torch.ones(5, 3)
    space = as_space(tensor)
    assert isinstance(space, Vectors)
    assert np.shares_memory(space.array, tensor.numpy())
    for wrong in (torch.ones(5), torch.ones(5, 3, dtype=torch.int64)):
        with pytest.raises(InputError, match="floats of two dimensions"):
            OnDevice(wrong)
    broken = torch.ones(5, 3)
    broken[4, 1] = torch.nan
    with pytest.raises(InputError, match="the vector of item 4 contains NaN"):
        OnDevice(broken).rows(np.array([1, 4]))
