"""Mistakes that are easily made, and what is said of them."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path

import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.index import Index


def overlap(query: str, texts: list[str]) -> list[float]:
    return [float(len(set(query.split()) & set(text.split()))) for text in texts]


@pytest.fixture
def index() -> Index:
    items = [{"id": "a", "text": "a bank", "weight": math.nan}, {"id": "b", "text": "a river", "weight": 2.0}]
    return Index.build(items, scorer=overlap, encoder=None, method="exact")


@pytest.mark.parametrize(
    ("name", "meant"), [("top_k", "k"), ("limit", "k"), ("n", "k"), ("budgt", "budget"), ("filters", "filter")]
)
def test_a_misspelt_argument_of_a_search_names_the_right_one(index: Index, name: str, meant: str) -> None:
    with pytest.raises(TypeError, match=rf"search\(\) has no argument '{name}': did you mean {meant}\?"):
        index.search("bank", **{name: 5})
    with pytest.raises(TypeError, match=f"did you mean {meant}"):
        asyncio.run(index.search_async("bank", **{name: 5}))


def test_a_missing_number_in_metadata_is_none_everywhere(index: Index, tmp_path: Path) -> None:
    assert index.search("bank", 1)[0].item.metadata == {"weight": None}
    index.save(tmp_path / "my.index")
    loaded = Index.load(tmp_path / "my.index", scorer=overlap)
    assert loaded.search("bank", 1)[0].item.metadata == {"weight": None}
    with pytest.raises(InputError, match="holds inf"):
        crosscut.Index.build(
            [{"id": "a", "text": "x", "weight": math.inf}], scorer=overlap, encoder=None, method="exact"
        )
