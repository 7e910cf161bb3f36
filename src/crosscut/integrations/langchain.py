"""LangChain: a retriever over an index, and a compressor that reranks under a budget.

>>> retriever = CrosscutRetriever(index=index, k=5, budget=100)
>>> retriever.invoke("how do vaccines work")
>>> retriever.invoke("how do vaccines work", budget=50, filter={"language": "en"})
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from crosscut.integrations import metadata_of, needing, opened
from crosscut.score_store.rerank import Reranker
from crosscut.search.hits import Hits

with needing("crosscut.integrations.langchain needs {}", "langchain"):
    from langchain_core.documents import BaseDocumentCompressor, Document
    from langchain_core.retrievers import BaseRetriever
    from pydantic import ConfigDict, Field


class CrosscutRetriever(BaseRetriever):
    """Searches an index: the documents that its scorer would rank first, with at most `budget` calls."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    index: Any
    """An `Index`, or the folder of one."""
    k: int = 10
    budget: int | None = None
    search_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further keywords of `Index.search`: method, filter, stop, deadline, …; `invoke` takes them too."""
    on_hits: Callable[[Hits], None] | None = None
    """Called with the hits of every search, which know what they cost."""

    def model_post_init(self, context: Any) -> None:
        self.index = opened(self.index)

    def _asked(self, given: dict[str, Any]) -> dict[str, Any]:
        return {"k": self.k, "budget": self.budget, **self.search_kwargs, **given}

    def _told(self, hits: Hits) -> list[Document]:
        if self.on_hits is not None:
            self.on_hits(hits)
        return [Document(page_content=hit.text or "", metadata=metadata_of(hit), id=str(hit.id)) for hit in hits]

    def _get_relevant_documents(self, query: str, *, run_manager: Any = None, **given: Any) -> list[Document]:
        return self._told(self.index.search(query, **self._asked(given)))

    async def _aget_relevant_documents(self, query: str, *, run_manager: Any = None, **given: Any) -> list[Document]:
        return self._told(await self.index.search_async(query, **self._asked(given)))


class CrosscutCompressor(BaseDocumentCompressor):
    """Reranks the documents of another retriever; it cannot find what that did not. Scores are in the metadata."""

    model_config = ConfigDict(arbitrary_types_allowed=True, extra="forbid")

    reranker: Any = "default"
    """A scorer as `Index.build` takes it, or a `Reranker` with a budget and a cache of its own."""
    top_n: int | None = 10
    threshold: float | None = None
    """Leaves out documents of less relevance than that, 0 … 1."""

    def model_post_init(self, context: Any) -> None:
        self.reranker = self.reranker if isinstance(self.reranker, Reranker) else Reranker(self.reranker)

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        ranking = self.reranker.rank(query, [one.page_content for one in documents], threshold=self.threshold)
        made = []
        for place in ranking.order[: self.top_n].tolist():
            told = {"score": float(ranking.scores[place]), "probability": float(ranking.relevance[place])}
            metadata = {**documents[place].metadata, **told}
            made.append(documents[place].model_copy(update={"metadata": metadata}))
        return made
