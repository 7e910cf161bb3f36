"""Reranking in the shapes of existing clients, which need another address only.

| address | whose | documents | answer |
|---|---|---|---|
| /v2/rerank | Cohere v2 | texts | {id, results: [{index, relevance_score}], meta} |
| /v1/rerank | Cohere v1, Jina | texts, or objects with `text` or `rank_fields` | the same, and `model`, `usage` |
| /rerank | text-embeddings-inference (TEI) | `texts` | [{index, score}] |

Scores are relevance, 0 … 1, so that thresholds keep their meaning; `raw_scores: true` returns the scorer's own.
`threshold` leaves out what is below it. Other fields that a client sends are ignored.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Self

import numpy as np
from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, model_validator

from crosscut.score_store.rerank import Ranking
from crosscut.server.errors import responses
from crosscut.server.routes import Gone, bearer
from crosscut.server.schemas import MOST_VALUES, at_most, few_fields
from crosscut.server.service import Service
from crosscut.server.settings import Settings

IGNORED = Field(None, description="Accepted for compatibility; the index's scorer is what runs.")
Documents = Annotated[list[str], Field(min_length=1, max_length=MOST_VALUES)]


class AnyRequest(BaseModel):
    """Common fields of all request shapes."""

    model_config = ConfigDict(strict=True, extra="ignore")

    query: str = Field(min_length=1)
    index: str | None = Field(None, max_length=200, description="Whose scorer; that of the first index by default.")
    raw_scores: bool = Field(False, description="The scorer's own scores instead of relevance, 0 … 1.")
    threshold: float | None = Field(None, ge=0, le=1, description="Only results of at least this relevance, 0 … 1.")

    few = model_validator(mode="before")(few_fields)

    @model_validator(mode="after")
    def encodable(self) -> Self:
        """Refuse lone surrogates: JSON can hold them, and UTF-8 cannot send them back."""
        try:
            self.model_dump_json()
        except ValueError:
            raise ValueError("a text holds a lone surrogate (half a character): send valid Unicode") from None
        return self

    def check(self, texts: Sequence[str], settings: Settings) -> None:
        at_most("the number of documents", len(texts), settings.max_budget)
        at_most("the length of query", len(self.query), settings.max_query)


class CohereRequest(AnyRequest):
    """Documents to be ordered by the scorer, in the shape of Cohere's v2/rerank."""

    documents: Documents
    top_n: int | None = Field(None, ge=1, description="How many results; all by default.")
    model: str | None = IGNORED
    return_documents: bool = False


class FieldsRequest(AnyRequest):
    """Documents to be ordered by the scorer, in the shape of Cohere's v1/rerank and of Jina's."""

    documents: list[str | dict[str, Any]] = Field(min_length=1, max_length=MOST_VALUES)
    rank_fields: list[str] | None = Field(None, max_length=32, description="The fields of documents that are read.")
    top_n: int | None = Field(None, ge=1, description="How many results; all by default.")
    model: str | None = IGNORED
    return_documents: bool = False

    def texts(self) -> list[str]:
        """Return the documents as the scorer reads them."""
        names = list(dict.fromkeys(self.rank_fields or ["text"]))  # each once
        return [one if isinstance(one, str) else _joined(one, names) for one in self.documents]

    @model_validator(mode="after")
    def readable(self) -> Self:
        self.texts()
        return self


def _joined(document: dict[str, Any], names: list[str]) -> str:
    if not any(isinstance(document.get(name), str) for name in names):
        raise ValueError(f"a document is a text, or an object with a text under {' or '.join(names)[:100]}")
    return "\n".join(str(document[name]) for name in names if document.get(name) is not None)


class TeiRequest(AnyRequest):
    """Texts to be ordered by the scorer, in the shape of text-embeddings-inference."""

    texts: Documents
    return_text: bool = False


class RerankResult(BaseModel):
    index: int
    relevance_score: float
    document: dict[str, str] | None = None


class RerankResponse(BaseModel):
    id: str
    results: list[RerankResult]
    meta: dict[str, Any] = Field(
        description="`calls`, `calibrated` (relevance is a probability), `cost` with a price, Cohere's fields."
    )
    model: str | None = None
    usage: dict[str, int] | None = None


class TeiResult(BaseModel):
    index: int
    score: float
    text: str | None = None


def chosen(request: AnyRequest, ranking: Ranking, count: int | None = None) -> list[tuple[int, float]]:
    """Return the places of the best documents over the threshold, best first, with the score that is wanted."""
    shown = ranking.scores if request.raw_scores else ranking.relevance
    least = -np.inf if request.threshold is None else request.threshold
    return [(j, float(shown[j])) for j in ranking.order[:count].tolist() if ranking.relevance[j] >= least]


def router(service: Service) -> APIRouter:
    """Return the three routes."""
    statuses = responses(400, 401, 408, 413, 422, 429, 502, 503, 504)
    made = APIRouter(tags=["rerank"], dependencies=[bearer], responses=statuses)

    async def cohere(
        request: CohereRequest | FieldsRequest, texts: list[str], http: Request, gone: Gone
    ) -> dict[str, Any]:
        request.check(texts, service.settings)
        ranking, cost = await service.rerank(request.index, request.query, texts, http, gone)
        results: list[dict[str, Any]] = [
            {"index": j, "relevance_score": score} for j, score in chosen(request, ranking, request.top_n)
        ]
        if request.return_documents:
            results = [one | {"document": {"text": texts[one["index"]]}} for one in results]
        meta = {"billed_units": {"search_units": 1}, "calls": ranking.calls, "calibrated": ranking.calibrated} | (
            {} if cost is None else {"cost": cost}
        )
        return {"id": str(uuid.uuid4()), "results": results, "meta": meta}

    @made.post("/v2/rerank", response_model=RerankResponse)
    async def rerank_cohere_v2(request: CohereRequest, http: Request, gone: Gone) -> Any:
        answer = await cohere(request, request.documents, http, gone)
        answer["meta"]["api_version"] = {"version": "2"}
        return JSONResponse(answer)

    @made.post("/v1/rerank", response_model=RerankResponse)
    async def rerank_cohere_v1(request: FieldsRequest, http: Request, gone: Gone) -> Any:
        texts = request.texts()
        answer = await cohere(request, texts, http, gone)
        answer["meta"]["api_version"] = {"version": "1"}
        tokens = sum(len(request.query) + len(text) for text in texts) // 4  # about
        return JSONResponse(answer | {"model": "crosscut", "usage": {"total_tokens": tokens}})

    @made.post("/rerank", response_model=list[TeiResult])
    async def rerank_tei(request: TeiRequest, http: Request, gone: Gone) -> Any:
        request.check(request.texts, service.settings)
        ranking, _ = await service.rerank(request.index, request.query, request.texts, http, gone)
        results: list[dict[str, Any]] = [{"index": j, "score": score} for j, score in chosen(request, ranking)]
        if request.return_text:
            results = [one | {"text": request.texts[one["index"]]} for one in results]
        return JSONResponse(results)

    return made
