"""`vectors=`: an index over vectors that the user has."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut import Index
from crosscut.errors import InputError

TEXTS = [f"text {place}" for place in range(60)]
VECTORS = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)


def scorer(query: str, texts: list[str]) -> list[float]:
    return [-abs(int(text.split()[1]) - int(query)) for text in texts]


def by_function(texts: list[str]) -> np.ndarray:
    return VECTORS[[int(text.split()[1]) for text in texts]]


@pytest.mark.parametrize("kind", ["array", "list", "map", "path", "function"])
def test_vectors_of_any_kind(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "v.npy"
    np.save(path, VECTORS)
    given: Any = {
        "array": VECTORS,
        "list": VECTORS.tolist(),
        "map": np.load(path, mmap_mode="r"),
        "path": path,
        "function": by_function,
    }[kind]
    index = Index.build(TEXTS, scorer=scorer, vectors=given, dtype=np.float32)
    assert index.encoder is None
    hits = index.search("7", k=3, budget=20, query_vector=VECTORS[7])
    assert hits[0].id == "7"
    expected = Index.build(TEXTS, scorer=scorer, vectors=VECTORS, dtype=np.float32)
    assert [hit.id for hit in hits] == [hit.id for hit in expected.search("7", k=3, budget=20, query_vector=VECTORS[7])]
    index.save(tmp_path / "my.index")
    again = Index.load(tmp_path / "my.index", scorer=scorer)
    assert [hit.id for hit in again.search("7", k=3, budget=20, query_vector=VECTORS[7])] == [hit.id for hit in hits]


def test_a_mapped_file_is_not_copied(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS.astype(np.float16))
    index = Index.build(TEXTS, scorer=scorer, vectors=tmp_path / "v.npy")
    assert isinstance(index.corpus.vectors, np.ndarray)
    base: Any = index.corpus.vectors
    while getattr(base, "base", None) is not None:
        base = base.base
    assert isinstance(base, mmap.mmap)


def test_adding_with_vectors() -> None:
    index = Index.build(TEXTS[:50], scorer=scorer, vectors=VECTORS[:50])
    index.add([{"id": f"new {j}", "text": TEXTS[j]} for j in range(50, 60)], vectors=VECTORS[50:])
    assert index.search("55", k=1, budget=20, query_vector=VECTORS[55])[0].id == "new 55"
    with pytest.raises(InputError, match="no encoder: load it with encoder=…, or add with vectors=…"):
        index.add(["text 7"])
    with pytest.raises(InputError, match="the index has 8 dimensions, these vectors 7"):
        index.add(["text 7"], vectors=VECTORS[:1, :7])
    assert len(index) == 60


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (VECTORS[:59], "59 vectors for 60 items: give one for each"),
        (VECTORS[0], "vectors of shape"),
        (np.where(np.arange(8) == 3, np.nan, VECTORS), "row 0 of the vectors contains NaN"),
        (VECTORS * 1e6, "takes up to 65504"),
        (np.array([["a"] * 8] * 60), "vectors are numbers; got <U1"),
        ("nowhere.npy", "no vectors can be read from 'nowhere.npy'"),
        (lambda texts: VECTORS[:3], "the function gave 3 vectors for 60 texts"),
    ],
)
def test_what_is_wrong_is_said(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Index.build(TEXTS, scorer=scorer, vectors=given)


def test_the_encoder_must_fit() -> None:
    with pytest.raises(InputError, match="the vectors have 8 dimensions and the encoder makes 384"):
        Index.build(TEXTS, scorer=scorer, vectors=VECTORS, encoder="default")


def test_columns_of_records() -> None:
    rows = [{"pk": place, "body": text, "year": place} for place, text in enumerate(TEXTS)]
    index = Index.build(rows, scorer=scorer, vectors=VECTORS, text="body", id="pk")
    assert index["7"].text == "text 7"
    assert index["7"].metadata == {"year": 7}
    with pytest.raises(InputError, match="item 0 is a text, which has no columns to name"):
        Index.build(TEXTS, scorer=scorer, vectors=VECTORS, text="body")
