"""Haystack: a retriever over an index, and a ranker under a budget, as components of a pipeline.

>>> pipeline.add_component("retriever", CrosscutRetriever("my.index", top_k=5, budget=100))
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Unpack

from crosscut.index import Index
from crosscut.integrations import Options, metadata_of, needing, opened
from crosscut.integrations.conditions import conditions_of
from crosscut.score_store.rerank import Reranker
from crosscut.search.hits import Hits

with needing("crosscut.integrations.haystack needs {}", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict


@component
class CrosscutRetriever:
    """Searches an index, or the folder of one (which a saved pipeline needs).

    `options` are further keywords of `Index.search`. The output `calls` tells what the search cost.
    """

    def __init__(
        self, index: Index | str | Path, top_k: int = 10, budget: int | None = None, **options: Unpack[Options]
    ) -> None:
        self.folder = str(index) if isinstance(index, str | Path) else None
        self.index, self.top_k, self.budget, self.options = opened(index), top_k, budget, options

    def to_dict(self) -> dict[str, Any]:
        if self.folder is None:
            raise ValueError("a pipeline is saved with the folder of its index: CrosscutRetriever('my.index')")
        return dict(default_to_dict(self, index=self.folder, top_k=self.top_k, budget=self.budget, **self.options))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CrosscutRetriever:
        made: CrosscutRetriever = default_from_dict(cls, data)
        return made

    def _asked(self, filters: dict[str, Any] | None, top_k: int | None) -> dict[str, Any]:
        told = {} if filters is None else {"filter": conditions_of(filters)}
        return {"k": self.top_k if top_k is None else top_k, "budget": self.budget, **self.options, **told}

    @component.output_types(documents=list[Document], calls=int)
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, Any]:
        return _told(self.index.search(query, **self._asked(filters, top_k)))

    @component.output_types(documents=list[Document], calls=int)
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        return _told(await self.index.search_async(query, **self._asked(filters, top_k)))


def _told(hits: Hits) -> dict[str, Any]:
    found = [
        Document(id=str(hit.id), content=hit.text or "", meta=metadata_of(hit), score=float(hit.score)) for hit in hits
    ]
    return {"documents": found, "calls": hits.calls}


@component
class CrosscutRanker:
    """Reranks the documents of another retriever; it cannot find what that did not. `threshold`: of relevance."""

    def __init__(self, reranker: Any = "default", top_k: int | None = 10, threshold: float | None = None) -> None:
        self.reranker = reranker if isinstance(reranker, Reranker) else Reranker(reranker)
        self.top_k, self.threshold = top_k, threshold

    @component.output_types(documents=list[Document], calls=int)
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        ranking = self.reranker.rank(query, [one.content or "" for one in documents], threshold=self.threshold)
        places = ranking.order[: top_k or self.top_k].tolist()
        ordered = [(documents[place], float(ranking.scores[place])) for place in places]
        made = [Document(id=one.id, content=one.content, meta=one.meta, score=score) for one, score in ordered]
        return {"documents": made, "calls": ranking.calls}
