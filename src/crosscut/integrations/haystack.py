"""Haystack: a retriever over an index, and a ranker under a budget, as components of a pipeline.

>>> pipeline.add_component("retriever", CrosscutRetriever("my.index", top_k=5, budget=100))
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.integrations import Options, check_options, metadata_of, needing, opened, reranker_of
from crosscut.search.hits import Hits

with needing("crosscut.integrations.haystack needs {}", "haystack"):
    from haystack import Document, component, default_from_dict, default_to_dict


OPERATORS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "!=": "ne"}


@component
class CrosscutRetriever:
    """Search an index, or the folder of one (which a saved pipeline needs).

    `options` are further keywords of `Index.search`. The output `calls` is what the search cost.
    """

    def __init__(
        self, index: Index | str | Path, top_k: int = 10, budget: int | None = None, **options: Unpack[Options]
    ) -> None:
        check_options(self, options)
        self.folder = str(index) if isinstance(index, str | Path) else None
        self.index, self.top_k, self.budget, self.options = opened(index), top_k, budget, options

    def to_dict(self) -> dict[str, Any]:
        if self.folder is None:
            raise ValueError("a pipeline is saved with the folder of its index: CrosscutRetriever('my.index')")
        return dict(default_to_dict(self, index=self.folder, top_k=self.top_k, budget=self.budget, **self.options))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> CrosscutRetriever:
        retriever: CrosscutRetriever = default_from_dict(cls, data)
        return retriever

    def _options(self, filters: dict[str, Any] | None, top_k: int | None) -> dict[str, Any]:
        more = {} if filters is None else {"filter": conditions_of(filters)}
        return {"k": self.top_k if top_k is None else top_k, "budget": self.budget, **self.options, **more}

    @component.output_types(documents=list[Document], calls=int)
    def run(self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None) -> dict[str, Any]:
        return _output(self.index.search(query, **self._options(filters, top_k)))

    @component.output_types(documents=list[Document], calls=int)
    async def run_async(
        self, query: str, filters: dict[str, Any] | None = None, top_k: int | None = None
    ) -> dict[str, Any]:
        return _output(await self.index.search_async(query, **self._options(filters, top_k)))


def _output(hits: Hits) -> dict[str, Any]:
    found = [
        Document(id=str(hit.id), content=hit.text or "", meta=metadata_of(hit), score=float(hit.score)) for hit in hits
    ]
    return {"documents": found, "calls": hits.calls}


@component
class CrosscutRanker:
    """Rerank the documents of another retriever; leave out those of less relevance than `threshold`, 0 … 1."""

    def __init__(self, reranker: Any = "default", top_k: int | None = 10, threshold: float | None = None) -> None:
        self.reranker = reranker_of(reranker)
        self.top_k, self.threshold = top_k, threshold

    @component.output_types(documents=list[Document], calls=int)
    def run(self, query: str, documents: list[Document], top_k: int | None = None) -> dict[str, Any]:
        ranking = self.reranker.rank(query, [one.content or "" for one in documents], threshold=self.threshold)
        places = ranking.order[: top_k or self.top_k].tolist()
        chosen = [(documents[place], float(ranking.scores[place])) for place in places]
        ordered = [Document(id=one.id, content=one.content, meta=one.meta, score=score) for one, score in chosen]
        return {"documents": ordered, "calls": ranking.calls}


def conditions_of(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return a filter of Haystack ({"field": "meta.year", "operator": ">=", "value": 2000}, joined by AND) as ours."""
    if "operator" not in filters or not filters.keys() & {"field", "conditions"}:
        return dict(filters)
    conditions: dict[str, Any] = {}
    for condition in _leaves(filters):
        key = str(condition["field"]).removeprefix("meta.")
        sign, value = condition["operator"], condition["value"]
        if sign == "in" and not isinstance(value, list | tuple | set | frozenset):
            raise InputError(f"'in' takes a list of values; got {value!r} on {key!r}: put it into a list, or use '=='")
        if sign in ("==", "in"):
            _check_single(key, conditions)
            conditions[key] = list(value) if sign == "in" else value
        elif sign in OPERATORS:
            if not isinstance(conditions.setdefault(key, {}), dict) or OPERATORS[sign] in conditions[key]:
                _check_single(key, conditions)
            conditions[key][OPERATORS[sign]] = value
        else:
            raise InputError(f"a filter compares by ==, in, {', '.join(OPERATORS)}; got {sign!r} on {key!r}")
    return conditions


def _leaves(filters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the comparisons of a filter, all of which must hold."""
    wanted = {"field", "operator", "value"} if "field" in filters else {"operator", "conditions"}
    if lacking := sorted(wanted - filters.keys()):
        raise InputError(
            f"a part of the filter has no {' and no '.join(map(repr, lacking))}; got {dict(filters)!r}: a comparison "
            "has a field, an operator and a value, several have the operator 'AND' and a list of conditions"
        )
    if "field" in filters:
        return [filters]
    if filters["operator"] != "AND":
        raise InputError(f"the conditions of a filter are joined by AND; an index has no {filters['operator']!r}")
    return [leaf for inner in filters["conditions"] for leaf in _leaves(inner)]


def _check_single(key: str, conditions: Mapping[str, Any]) -> None:
    if key in conditions:
        raise InputError(f"two conditions on {key!r} cannot be joined: give one, or bounds")
