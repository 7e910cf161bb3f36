"""crosscut inside the stacks people run: one file a stack, each behind an extra of its own.

    langchain     a retriever, and a compressor            pyterrier   a transformer, and an artifact
    llama_index   a retriever, and a node postprocessor    mteb        a model that is searched with
    haystack      a retriever, and a ranker                mcp         a server of tools for agents

A retriever changes what is found: it searches the index. A compressor, postprocessor or ranker orders what something
else has found, under a budget of calls and with a cache. Cross-encoders of LangChain and models of `rerankers` are
scorers as they are: `Index.build(texts, scorer=model)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from crosscut.errors import needing
from crosscut.index import Index
from crosscut.index.options import Building, Loading, Options
from crosscut.search.hits import Hit

__all__ = ["Building", "Loading", "Options", "metadata_of", "needing", "opened"]


def opened(index: Index | str | Path, **options: Unpack[Loading]) -> Index:
    """An index; a folder is loaded."""
    return Index.load(index, **options) if isinstance(index, str | Path) else index


def metadata_of(hit: Hit) -> dict[str, Any]:
    """What a document of another library carries beside its text: title, metadata, the exact score, and, where it is
    known, the probability that it is relevant."""
    item = hit.item
    scored = {"score": hit.score} | ({} if hit.probability is None else {"probability": hit.probability})
    if item is None:
        return scored
    titled = {"title": item.title} if item.title else {}
    return {**titled, **item.metadata, **scored}
