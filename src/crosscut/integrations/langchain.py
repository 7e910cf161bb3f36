"""LangChain: a retriever over an index, and a compressor that reranks under a budget.

>>> retriever = CrosscutRetriever(index=index, k=5, budget=100)
>>> retriever.invoke("how do vaccines work")
>>> retriever.invoke("how do vaccines work", budget=50, filter={"language": "en"})
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crosscut.integrations import check_options, metadata_of, needing, opened, reranker_of
from crosscut.search.hits import Hits

with needing("crosscut.integrations.langchain needs {}", "langchain"):
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field


class CrosscutRetriever(BaseRetriever):
    """Search an index: the documents that its scorer would rank first, with at most `budget` calls."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    index: Any
    """An `Index`, or the folder of one."""
    k: int = 10
    budget: int | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further keywords of `Index.search`: method, filter, stop, deadline, …; `invoke` takes them too."""
    on_hits: Callable[[Hits], None] | None = None
    """Called with the hits of every search, with their cost."""

    def model_post_init(self, context: Any) -> None:
        check_options(self, self.search_kwargs)
        self.index = opened(self.index)

    def _options(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "budget": self.budget, **self.search_kwargs, **given}

    def _documents(self, hits: Hits) -> list[Document]:
        if self.on_hits is not None:
            self.on_hits(hits)
        return [Document(page_content=hit.text or "", metadata=metadata_of(hit), id=str(hit.id)) for hit in hits]

    def _get_relevant_documents(self, query: str, *, run_manager: Any = None, **given: Any) -> list[Document]:
        return self._documents(self.index.search(query, **self._options(given)))

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any = None, **given: Any) -> list[Document]:
        return self._documents(await self.index.search_async(query, **self._options(given)))


class CrosscutCompressor(BaseDocumentCompressor):
    """Rerank the documents of another retriever; it cannot find what that did not. Scores are in the metadata."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    reranker: Any = "default"
    """A scorer as `Index.build` takes it, or a `Reranker` with a budget and a cache of its own."""
    top_n: int | None = 10
    threshold: float | None = None
    """Leave out documents of less relevance than that, 0 … 1."""

    def model_post_init(self, context: Any) -> None:
        self.reranker = reranker_of(self.reranker)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        ranking = self.reranker.rank(query, [one.page_content for one in documents], threshold=self.threshold)
        ordered = []
        for place in ranking.order[: self.top_n].tolist():
            scored = {"score": float(ranking.scores[place]), "probability": float(ranking.relevance[place])}
            metadata = {**documents[place].metadata, **scored}
            ordered.append(documents[place].model_copy(update={"metadata": metadata}))
        return ordered
