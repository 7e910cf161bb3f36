"""mteb: a model that is searched with, for its retrieval and reranking tasks.

>>> mteb.evaluate(CrosscutSearch(scorer="default", budget=100), tasks=mteb.get_tasks(["SciFact"]))
"""

from __future__ import annotations

from typing import Any, Unpack

from crosscut.index import Index
from crosscut.integrations import Building, check_options, needing

with needing("crosscut.integrations.mteb needs {}", "mteb"):
    from mteb.models import ModelMeta


class CrosscutSearch:
    """mteb's `SearchProtocol`: an index of each task's corpus, and `budget` calls a query.

    `options` are those of `Index.build`: scorer, encoder, method, store, …
    """

    def __init__(self, *, budget: int = 100, name: str = "crosscut/crosscut", **options: Unpack[Building]) -> None:
        check_options(self, options, Building)
        self.budget, self.name, self.options = budget, name, options
        self.calls = 0
        self._index: Index | None = None

    @property
    def mteb_model_meta(self) -> ModelMeta:
        unknown = dict.fromkeys(
            (
                *("n_parameters", "memory_usage_mb", "max_tokens", "embed_dim", "license", "release_date", "languages"),
                *("open_weights", "public_training_code", "public_training_data", "similarity_fn_name"),
                *("use_instructions", "training_datasets"),
            )
        )
        fields: dict[str, Any] = {
            "name": self.name,
            "revision": f"budget-{self.budget}",
            "loader": None,
            "framework": [],
        }
        return ModelMeta(**fields, model_type=["cross-encoder"], **unknown)

    def index(self, corpus: Any, **how: Any) -> None:
        """Build an index of a corpus: a dataset with id, text, and title if there is one."""
        rows = ({"id": str(row["id"]), "title": row.get("title") or "", "text": row["text"]} for row in corpus)
        self._index = Index.build(rows, **self.options)

    def search(
        self, queries: Any, *, top_k: int, top_ranked: dict[str, list[str]] | None = None, **how: Any
    ) -> dict[str, dict[str, float]]:
        """Query id → item id → score; of a reranking task, among the candidates of each query only."""
        if self._index is None:
            raise RuntimeError("mteb asks for an index of the corpus before it searches")
        asked = [(str(row["id"]), row["text"]) for row in queries]
        if top_ranked is None:
            found = self._index.search_many([text for _, text in asked], top_k, self.budget)
        else:
            found = [self._among(text, top_k, top_ranked[id]) for id, text in asked]
        self.calls += sum(hits.calls for hits in found)
        return {
            id: dict(zip(map(str, hits.ids), hits.scores.tolist(), strict=True))
            for (id, _), hits in zip(asked, found, strict=True)
        }

    def _among(self, query: str, k: int, ids: list[str]) -> Any:
        assert self._index is not None
        wanted = {str(id) for id in ids}
        return self._index.search(
            query, k, self.budget, filter=lambda item: item.id in wanted, candidates=[id for id in ids if id in wanted]
        )
