"""Late interaction."""

from __future__ import annotations

import numpy as np
import pytest

from crosscut.encoders import late
from crosscut.encoders.late import TokenVectors, to_bytes
from crosscut.errors import InputError


def unit(rng: np.random.Generator, count: int, width: int = 16) -> late.Floats:
    vectors = rng.normal(size=(count, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_the_best_cosines_are_those_of_a_plain_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late, "TOKENS_AT_ONCE", 20)
    rng = np.random.default_rng(0)
    items = [unit(rng, count) for count in (3, 0, 7, 40, 1, 0, 12)]
    kept = TokenVectors.of([to_bytes(item) for item in items], 16)
    query = unit(rng, 5)
    expected = np.stack([(item @ query.T).max(0) if len(item) else np.full(5, -1.0) for item in items])
    found = kept.best(to_bytes(query))
    np.testing.assert_allclose(found, expected, atol=0.03)
    for positions in ([3], [6, 0, 3, 3, 1], []):
        # exactly: whole numbers, whoever they are computed with
        np.testing.assert_array_equal(kept.best(to_bytes(query), np.asarray(positions, np.int64)), found[positions])


def test_no_items() -> None:
    kept = TokenVectors.of([], 16)
    assert kept.best(np.zeros((2, 16), np.int8)).shape == (0, 2)


def test_token_vectors_of_another_width_are_refused() -> None:
    """Those of a forged folder, or of another encoder."""
    own = TokenVectors.of([np.ones((3, 8), np.int8), np.ones((2, 8), np.int8)], 8)
    for width in (7, 9):
        with pytest.raises(InputError, match=f"8 dimensions and those of the encoder {width}"):
            own.best(np.ones((2, width), np.int8))
        with pytest.raises(InputError, match=f"8 dimensions and those of the encoder {width}"):
            own.joined(TokenVectors.of([np.ones((2, width), np.int8)], width))
    assert own.joined(TokenVectors.of([], 1)).best(np.ones((2, 8), np.int8)).shape == (2, 2)
