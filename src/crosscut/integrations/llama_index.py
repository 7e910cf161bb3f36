"""LlamaIndex: a retriever over an index, and a node postprocessor that reranks under a budget.

>>> retriever = CrosscutRetriever(index, k=5, budget=100)
>>> retriever.retrieve("how do vaccines work")
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Unpack

from crosscut.index import Index
from crosscut.integrations import Options, check_options, metadata_of, needing, opened, reranker_of
from crosscut.search.hits import Hits

with needing("crosscut.integrations.llama_index needs {}", "llama-index"):
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode


class CrosscutRetriever(BaseRetriever):
    """Search an index, or the folder of one; `options` are further keywords of `Index.search`."""

    def __init__(
        self,
        index: Index | str | Path,
        k: int = 10,
        budget: int | None = None,
        *,
        on_hits: Callable[[Hits], None] | None = None,
        callback_manager: Any = None,
        **options: Unpack[Options],
    ) -> None:
        check_options(self, options)
        super().__init__(callback_manager=callback_manager)
        self.index, self.k, self.budget = opened(index), k, budget
        self.on_hits, self.options = on_hits, options

    def _nodes(self, hits: Hits) -> list[NodeWithScore]:
        if self.on_hits is not None:
            self.on_hits(hits)
        nodes = [TextNode(id_=str(hit.id), text=hit.text or "", metadata=metadata_of(hit)) for hit in hits]
        return [NodeWithScore(node=node, score=hit.score) for node, hit in zip(nodes, hits, strict=True)]

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes(self.index.search(query_bundle.query_str, self.k, self.budget, **self.options))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes(await self.index.search_async(query_bundle.query_str, self.k, self.budget, **self.options))


class CrosscutPostprocessor(BaseNodePostprocessor):
    """Rerank the nodes of another retriever; it cannot find what that did not."""

    top_n: int | None = 10
    threshold: float | None = None  # leaves out nodes of less relevance than that, 0 … 1
    _reranker: Any = PrivateAttr()

    def __init__(self, reranker: Any = "default", *, top_n: int | None = 10, threshold: float | None = None) -> None:
        super().__init__(top_n=top_n, threshold=threshold)
        self._reranker = reranker_of(reranker)

    @classmethod
    def class_name(cls) -> str:
        return "CrosscutPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None or not nodes:
            return nodes
        texts = [one.node.get_content(metadata_mode=MetadataMode.NONE) for one in nodes]
        ranking = self._reranker.rank(query_bundle.query_str, texts, threshold=self.threshold)
        places = ranking.order[: self.top_n].tolist()
        return [NodeWithScore(node=nodes[place].node, score=float(ranking.scores[place])) for place in places]
