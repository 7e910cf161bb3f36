"""A misspelt keyword is an error when it is called and in mypy: here an `ignore` that hides no error is one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

from crosscut.datasets.columns import ColumnNames
from crosscut.index import Index
from crosscut.index.options import Building, Loading, ManyQueries, OneQuery
from crosscut.integrations import opened
from crosscut.integrations.haystack import CrosscutRetriever as Haystack
from crosscut.integrations.langchain import CrosscutRetriever as LangChain
from crosscut.integrations.llama_index import CrosscutPostprocessor
from crosscut.integrations.llama_index import CrosscutRetriever as LlamaIndex
from crosscut.integrations.mteb import CrosscutSearch
from crosscut.integrations.pyterrier import CrosscutIndex as PyTerrier
from crosscut.integrations.pyterrier import CrosscutRetriever as PyTerrierRetriever
from crosscut.models.spec import with_settings
from crosscut.score_store import ScoreStore
from crosscut.spaces.factorization import factorize
from tests.served import small_index


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("misspelt") / "my.index"
    small_index(n=40).save(path)
    return path


def test_of_an_index(folder: Path, tmp_path: Path) -> None:
    index = small_index(n=40)
    with pytest.raises(TypeError, match="filterr"):
        index.search("cat", 5, 40, filterr={"number": 3})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="filterr"):
        index.search_many(["cat"], 5, 40, filterr={"number": 3})  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scorrer"):
        Index.load(folder, scorrer="default")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scorrer"):
        Index.build(["a"], scorrer="default")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="flush_pair"):
        ScoreStore(tmp_path, scorer_fingerprint="a").cache(["a"], flush_pair=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="devise"):
        with_settings("a/b", devise="cpu")  # type: ignore[call-arg]
    nothing: Any = None
    with pytest.raises(TypeError, match="rigde"):
        factorize(nothing, np.zeros((1, 1)), np.zeros((1, 1)), rigde=1.0)  # type: ignore[call-arg]


def test_of_adapters(folder: Path) -> None:
    with pytest.raises(TypeError, match="scorrer"):
        opened(folder, scorrer="default")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="treshold"):
        CrosscutPostprocessor(lambda query, texts: [0.0], treshold=0.5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="scorrer"):
        PyTerrier(folder, scorrer="default")  # type: ignore[call-arg]


def test_options_of_searches_are_refused_when_an_adapter_is_made() -> None:
    index = small_index(n=40)
    for make in (
        lambda: Haystack(index, filterr={}),  # type: ignore[call-arg]
        lambda: LlamaIndex(index, filterr={}),  # type: ignore[call-arg]
        lambda: PyTerrierRetriever(index, filterr={}),  # type: ignore[call-arg]
        lambda: LangChain(index=index, search_kwargs={"filterr": {}}),
    ):
        with pytest.raises(TypeError, match="did you mean filter"):
            make()
    with pytest.raises(TypeError, match="did you mean scorer"):
        CrosscutSearch(scorrer="default")  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("names", "call"),
    [
        (Loading, Index.load),
        (Building, Index.build),
        (OneQuery, Index.search),
        (ManyQueries, Index.search_many),
    ],
)
def test_the_lists_are_those_of_the_calls(names: type, call: Callable[..., Any]) -> None:
    parameters = inspect.signature(call).parameters.values()
    wanted = {one.name for one in parameters if one.kind == one.KEYWORD_ONLY} - {"halts"}
    if names is Building:
        wanted |= set(ColumnNames.__annotations__)
    if names is OneQuery:
        wanted |= set(ManyQueries.__annotations__) & set(OneQuery.__annotations__)
    assert set(names.__annotations__) == wanted, get_type_hints
