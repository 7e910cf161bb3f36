"""Requests and answers, as the OpenAPI schema states them. Types are strict: "10" is no number."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

from crosscut.server.settings import Settings

Method = Literal["exact", "rnr", "anncur", "adacur", "axn", "tour", "crosscut"]
First = Literal["auto", "dense", "lexical", "union", "random"]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Scalar = str | bool | int | Finite


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class Bounds(Strict):
    """Bounds on one metadata value; all that are given must hold."""

    gt: Scalar | None = None
    gte: Scalar | None = None
    lt: Scalar | None = None
    lte: Scalar | None = None
    ne: Scalar | None = None


Condition = Scalar | list[Scalar] | Bounds


class SearchBase(Strict):
    """The parts of a search request that no setting bounds."""

    method: Method | None = Field(None, description="How to search; the index's own method by default.")
    first: First | None = Field(None, description="Where round one comes from.")
    filter: dict[str, Condition] | None = Field(
        None,
        description="Conditions on metadata, all of which must hold: a value, a list of values, or bounds.",
    )
    patience: int | None = Field(
        None, ge=1, le=1000, description="Stop once the top k has not changed for this many rounds."
    )
    target_recall: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = Field(
        None, description="Stop once this share of the top k is expected to be found; needs a tuned index."
    )
    trace: bool = Field(False, description="Return every round: what was picked, predicted and scored.")
    compare: bool = Field(
        False,
        description="Also retrieve and rerank at the same budget (which costs as many calls again), and say "
        "what that missed.",
    )


class RerankBase(Strict):
    """The parts of a rerank request that no setting bounds."""

    model: str | None = Field(None, description="Accepted for compatibility; the index's scorer is what runs.")
    return_documents: bool = False
    max_tokens_per_doc: int | None = Field(None, ge=1, description="Accepted for compatibility; ignored.")


def search_request(settings: Settings) -> type[SearchBase]:
    """The model of a search request under these limits."""
    deadline = settings.default_deadline
    fields: dict[str, Any] = {
        "query": (str, Field(min_length=1, max_length=settings.max_query)),
        "k": (int, Field(min(10, settings.max_k), ge=1, le=settings.max_k, description="How many hits.")),
        "budget": (
            int,
            Field(settings.default_budget, ge=1, le=settings.max_budget, description="Calls of the scorer, at most."),
        ),
        "deadline": (
            Annotated[float, Field(gt=0, le=settings.max_deadline, allow_inf_nan=False)] | None,
            Field(deadline, description="Seconds, waiting included; what is found by then is the answer."),
        ),
    }
    model: type[SearchBase] = create_model("SearchRequest", __base__=SearchBase, **fields)
    model.__doc__ = "A search for the items that the scorer would rank first."
    return model


def rerank_request(settings: Settings) -> type[RerankBase]:
    """The model of a rerank request under these limits."""
    fields: dict[str, Any] = {
        "query": (str, Field(min_length=1, max_length=settings.max_query)),
        "documents": (list[str], Field(min_length=1, max_length=settings.max_documents)),
        "top_n": (int | None, Field(None, ge=1, description="How many results; all by default.")),
    }
    model: type[RerankBase] = create_model("RerankRequest", __base__=RerankBase, **fields)
    model.__doc__ = "Documents to be ordered by the scorer, in the shape of Cohere's v2/rerank."
    return model


class HitModel(BaseModel):
    id: str
    title: str
    text: str
    score: float
    round: int = Field(description="The round that found it, counted from 1.")
    estimate: float | None = Field(description="What was predicted before it was scored; null without a prediction.")
    metadata: dict[str, Any] = {}


class SecondsModel(BaseModel):
    """Where the time went; in a batch of searches, one search's share."""

    scorer: float
    fit: float
    select: float
    waiting: float = Field(description="In the queue, before the search began.")


class Scored(BaseModel):
    """An item with an exact score, in the picture of a traced search."""

    id: str
    title: str
    score: float
    round: int | None = Field(description="The round that scored it; null when only the comparison did.")
    reranked: bool = Field(description="Whether retrieve-and-rerank scored it.")


class Histogram(BaseModel):
    """How the predictions of all items are spread: counts of equal bins from low to high."""

    low: float
    high: float
    counts: list[int]


class RoundModel(BaseModel):
    round: int
    calls: int
    cached: int
    picks: list[int] = Field(description="Places in `scored`, in the order of picking.")
    estimates: list[float | None] = Field(description="Predictions of the picks, made before they were scored.")
    predictions: list[float] | None = Field(description="Predictions of everything in `scored`, in this round.")
    histogram: Histogram | None


class TraceModel(BaseModel):
    scored: list[Scored]
    rounds: list[RoundModel]


class Comparison(BaseModel):
    """What retrieve-and-rerank returns at the same budget."""

    hits: list[HitModel]
    calls: int
    missed: list[str] = Field(description="Of the best k of both lists together, those that reranking did not find.")
    extra: list[str] = Field(description="Of the best k of both lists together, those that only reranking found.")


class SearchResponse(BaseModel):
    hits: list[HitModel]
    calls: int
    cached: int
    budget: int
    rounds: int
    method: str
    stop_reason: str
    seconds: SecondsModel
    trace: TraceModel | None = None
    comparison: Comparison | None = None


class RerankDocument(BaseModel):
    text: str


class RerankResult(BaseModel):
    index: int
    relevance_score: float
    document: RerankDocument | None = None


class BilledUnits(BaseModel):
    search_units: int = 1


class RerankMeta(BaseModel):
    billed_units: BilledUnits = BilledUnits()
    calls: int


class RerankResponse(BaseModel):
    id: str
    results: list[RerankResult]
    meta: RerankMeta


class ItemModel(BaseModel):
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Info(BaseModel):
    """What the page needs to know."""

    version: str
    items: int
    method: str
    methods: list[str]
    max_k: int
    max_budget: int
    default_budget: int
    examples: list[str]


class Status(BaseModel):
    status: str
    items: int


class Problem(BaseModel):
    """What went wrong. When the scorer failed, what had been found until then."""

    error: str = Field(description="The kind of error.")
    message: str
    hits: list[HitModel] | None = None
    calls: int | None = None
