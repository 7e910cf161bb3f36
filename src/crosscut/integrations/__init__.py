"""crosscut inside the frameworks people use: one file a framework, each behind an extra of its own.

    langchain     a retriever, and a compressor            pyterrier   a transformer, and an artifact
    llama_index   a retriever, and a node postprocessor    mteb        a model that is searched with
    haystack      a retriever, and a ranker                mcp         a server of tools for agents

A retriever changes what is found: it searches the index. A compressor, postprocessor or ranker orders what another
retriever has found, under a budget of calls and with a cache. Cross-encoders of LangChain and models of `rerankers` are
scorers as they are: `Index.build(texts, scorer=model)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from crosscut.errors import needing
from crosscut.index import Index
from crosscut.index.options import Building, Loading, Options
from crosscut.names import check_keywords
from crosscut.score_store.rerank import Reranker
from crosscut.search.hits import Hit

__all__ = ["Building", "Loading", "Options", "check_options", "metadata_of", "needing", "opened", "reranker_of"]


def opened(index: Index | str | Path, **options: Unpack[Loading]) -> Index:
    """Return an index; a folder is loaded."""
    return Index.load(index, **options) if isinstance(index, str | Path) else index


def reranker_of(scorer: Any) -> Reranker:
    """Return a reranker; a scorer is made one."""
    return scorer if isinstance(scorer, Reranker) else Reranker(scorer)


def check_options(owner: object, options: Mapping[str, Any], known: type = Options) -> None:
    """Refuse options that the index would refuse, when an adapter is made rather than when it is first used."""
    check_keywords(type(owner).__name__, options, known.__annotations__)


def metadata_of(hit: Hit) -> dict[str, Any]:
    """Return the metadata of a document of another library: title, metadata, exact score and, if known, probability."""
    scored = {"score": hit.score} | ({} if hit.probability is None else {"probability": hit.probability})
    if hit.item is None:
        return scored
    return {**({"title": hit.item.title} if hit.item.title else {}), **hit.item.metadata, **scored}
