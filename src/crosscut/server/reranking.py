"""Reranking in the shapes that clients speak already: they need another address only.

| address | whose | documents | answer |
|---|---|---|---|
| /v2/rerank | Cohere v2 | texts | {id, results: [{index, relevance_score}], meta} |
| /v1/rerank | Cohere v1, Jina | texts, or objects with `text` or `rank_fields` | the same, and `model`, `usage` |
| /rerank | text-embeddings-inference (TEI) | `texts` | [{index, score}] |

Scores are relevance, 0 … 1, so that thresholds keep their meaning; `raw_scores: true` asks for the scorer's own.
`threshold` leaves out what is below it. What else a client sends is passed over.
"""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from crosscut.index import Index
from crosscut.score_store.rerank import Ranking
from crosscut.scorers.calibration import relevance
from crosscut.server.settings import Settings

RAW = Field(False, description="The scorer's own scores instead of relevance, 0 … 1.")
FIELDS = 32  # of a document that are read, at most
IGNORED = Field(None, description="Accepted for compatibility; the index's scorer is what runs.")


class AnyRequest(BaseModel, ABC):
    """What all shapes have in common."""

    model_config = ConfigDict(strict=True, extra="ignore")

    query: str
    index: str | None = Field(None, max_length=200, description="Whose scorer; that of the first index by default.")
    raw_scores: bool = RAW
    threshold: float | None = Field(None, ge=0, le=1, description="Only results of at least this relevance, 0 … 1.")

    @abstractmethod
    def texts_of(self) -> list[str]:
        """The documents, as the scorer reads them."""

    @property
    def wanted(self) -> int | None:
        """How many results; None: all."""
        return None

    @model_validator(mode="after")
    def whole_characters(self) -> Self:
        """Half a character (a lone surrogate) can be written in JSON and cannot be sent back."""
        try:
            self.model_dump_json()
        except ValueError:
            raise ValueError("a document holds half a character, a lone surrogate: send whole ones") from None
        return self


class OfDocumentsRequest(AnyRequest):
    """What Cohere's shapes have in common."""

    top_n: int | None = Field(None, ge=1, description="How many results; all by default.")
    model: str | None = IGNORED
    return_documents: bool = False

    @property
    def wanted(self) -> int | None:
        return self.top_n


class RerankRequest(OfDocumentsRequest):
    """Documents to be ordered by the scorer, in the shape of Cohere's v2/rerank."""

    documents: list[str]
    max_tokens_per_doc: int | None = Field(None, ge=1, description="Accepted for compatibility; ignored.")

    def texts_of(self) -> list[str]:
        return self.documents


class FirstRerankRequest(OfDocumentsRequest):
    """Documents to be ordered by the scorer, in the shape of Cohere's v1/rerank and of Jina's."""

    documents: list[str | dict[str, Any]]
    rank_fields: list[str] | None = Field(
        None, max_length=FIELDS, description="Of documents that are objects: what is read, in order, each once."
    )

    def texts_of(self) -> list[str]:
        return [one if isinstance(one, str) else self._joined(one) for one in self.documents]

    @model_validator(mode="after")
    def readable(self) -> Self:
        if any(
            not isinstance(one, str) and not any(isinstance(one.get(name), str) for name in self._read)
            for one in self.documents
        ):
            raise ValueError(f"a document is a text, or an object with a text under {' or '.join(self._read)[:100]}")
        return self

    def _joined(self, document: dict[str, Any]) -> str:
        return "\n".join(str(document[name]) for name in self._read if document.get(name) is not None)

    @property
    def _read(self) -> list[str]:
        """Each field once: a field that is named a thousand times would make a thousand texts of one."""
        return list(dict.fromkeys(self.rank_fields or ["text"]))


class PlainRerankRequest(AnyRequest):
    """Texts to be ordered by the scorer, in the shape of text-embeddings-inference."""

    texts: list[str]
    return_text: bool = False

    def texts_of(self) -> list[str]:
        return self.texts


class RerankDocument(BaseModel):
    text: str


class RerankResult(BaseModel):
    index: int
    relevance_score: float
    document: RerankDocument | None = None


class BilledUnits(BaseModel):
    search_units: int = 1


class Version(BaseModel):
    version: str


class RerankMeta(BaseModel):
    api_version: Version
    billed_units: BilledUnits = BilledUnits()
    calls: int
    cost: float | None = Field(None, description="In money, where the scorer has a price.")


class Usage(BaseModel):
    total_tokens: int = Field(description="About: four characters are a token.")


class RerankResponse(BaseModel):
    id: str
    results: list[RerankResult]
    meta: RerankMeta


class FirstRerankResponse(RerankResponse):
    model: str
    usage: Usage


class PlainRerankResult(BaseModel):
    index: int
    score: float
    text: str | None = None


SHAPES: dict[str, tuple[type[AnyRequest], Any]] = {
    "/v2/rerank": (RerankRequest, RerankResponse),
    "/v1/rerank": (FirstRerankRequest, FirstRerankResponse),
    "/rerank": (PlainRerankRequest, list[PlainRerankResult]),
}
"""What each address takes, and what it answers."""


def limited(shape: type[AnyRequest], settings: Settings) -> type[AnyRequest]:
    """A request under the limits of a server."""
    name = "texts" if shape is PlainRerankRequest else "documents"
    kind = shape.model_fields[name].annotation
    fields: dict[str, Any] = {
        "query": (str, Field(min_length=1, max_length=settings.max_query)),
        name: (kind, Field(min_length=1, max_length=min(settings.max_documents, settings.max_budget))),
    }
    made: type[AnyRequest] = create_model(shape.__name__, __base__=shape, __doc__=shape.__doc__, **fields)
    return made


def answered(request: AnyRequest, texts: list[str], ranking: Ranking, index: Index, cost: float | None) -> Any:
    """The answer in the shape of the request."""
    chances = relevance(index.scorer, ranking.scores, index.calibration)
    told = ranking.scores if request.raw_scores else chances
    least = -np.inf if request.threshold is None else request.threshold
    places = [j for j in ranking.order[: request.wanted].tolist() if chances[j] >= least]
    if isinstance(request, PlainRerankRequest):
        return [
            PlainRerankResult(index=j, score=float(told[j]), text=texts[j] if request.return_text else None)
            for j in places
        ]
    shown = isinstance(request, OfDocumentsRequest) and request.return_documents
    results = [
        RerankResult(index=j, relevance_score=float(told[j]), document=RerankDocument(text=texts[j]) if shown else None)
        for j in places
    ]
    first = isinstance(request, FirstRerankRequest)
    meta = RerankMeta(api_version=Version(version="1" if first else "2"), calls=ranking.calls, cost=cost)
    id = str(uuid.uuid4())
    if not first:
        return RerankResponse(id=id, results=results, meta=meta)
    usage = Usage(total_tokens=sum(len(request.query) + len(text) for text in texts) // 4)
    return FirstRerankResponse(id=id, results=results, meta=meta, model="crosscut", usage=usage)
