"""Requests and answers, as the OpenAPI schema states them. Types are strict: "10" is no number."""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    create_model,
    model_validator,
)

from crosscut.server.settings import Settings
from crosscut.stores.filters import MOST, SIGNS, request_filter

SCALAR = {"type": ["string", "boolean", "number"]}
CONDITIONS: dict[str, Any] = {
    "type": "object",
    "maxProperties": MOST,
    "additionalProperties": {
        "anyOf": [
            SCALAR,
            {"type": "array", "items": SCALAR},
            {
                "type": "object",
                "properties": dict.fromkeys(SIGNS, SCALAR),
                "additionalProperties": False,
                "minProperties": 1,
            },
        ]
    },
}


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class SearchRequest(Strict):
    """A search for the items that the scorer would rank first."""

    query: str
    index: str | None = Field(None, max_length=200, description="Which index; the first by default.")
    k: int = Field(10, description="How many hits.")
    budget: int | None = Field(
        None, description="Calls of the scorer, at most. null: what the server says, or the index was tuned to, or 100."
    )
    method: str | None = Field(
        None,
        max_length=300,
        description="How to search, with settings if wanted: `axn@rounds=10,mix=0.8`; by default as the index does.",
    )
    candidates: list[str] | None = Field(None, description="Items for round one, best first.")
    filter: Annotated[dict[str, Any], PlainValidator(request_filter), WithJsonSchema(CONDITIONS)] | None = Field(
        None, description="Conditions on metadata, all of which must hold: a value, a list of values, or bounds."
    )
    stop: str | None = Field(
        None,
        max_length=300,
        description="When to stop: `patience@rounds=2` once the top k has not changed for two rounds.",
    )
    target_recall: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = Field(
        None, description="Stop once this share of the top k is expected to be found; needs a tuned index."
    )
    order: str | None = Field(
        None,
        max_length=300,
        description="The order of hits: `scorer`, or `fused`: scorer, vectors and words together.",
    )
    threshold: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = Field(
        None,
        description="Only hits that are relevant with this probability; needs a calibrated index, or the box's scorer.",
    )
    deadline: float | None = Field(
        None, description="Seconds, waiting included; what is found by then is the answer. null: the longest allowed."
    )
    trace: bool = Field(False, description="Return every round: what was picked, predicted and scored.")
    compare: bool = Field(
        False,
        description="Also retrieve and rerank at the same budget (which costs as many calls again), and say "
        "what that missed.",
    )

    @model_validator(mode="after")
    def one_rule(self) -> Self:
        if self.stop is not None and self.target_recall is not None:
            raise ValueError("stop and target_recall are two stopping rules: give one")
        return self


def search_request(settings: Settings) -> type[SearchRequest]:
    """A search request under these limits."""
    said = {name: field.description for name, field in SearchRequest.model_fields.items()}
    budget = Field(settings.default_budget, ge=1, le=settings.max_budget, description=said["budget"])
    seconds = Annotated[float, Field(gt=0, le=settings.max_deadline, allow_inf_nan=False)]
    fields: dict[str, Any] = {
        "query": (str, Field(min_length=1, max_length=settings.max_query)),
        "k": (int, Field(min(10, settings.max_k), ge=1, le=settings.max_k, description=said["k"])),
        "budget": (int | None, budget),
        "candidates": (list[str] | None, Field(None, max_length=settings.max_budget, description=said["candidates"])),
        "deadline": (seconds | None, Field(settings.default_deadline, description=said["deadline"])),
    }
    model: type[SearchRequest] = create_model(
        "SearchRequest", __base__=SearchRequest, __doc__=SearchRequest.__doc__, **fields
    )
    return model


class HitModel(BaseModel):
    id: str
    title: str
    text: str
    score: float
    probability: float | None = Field(None, description="That it is relevant; null without a calibration.")
    round: int = Field(description="The round that found it, counted from 1.")
    estimate: float | None = Field(description="What was predicted before it was scored; null without a prediction.")
    metadata: dict[str, Any] = {}


class SecondsModel(BaseModel):
    """Where the time went; in a batch of searches, one search's share."""

    scorer: float
    fit: float
    select: float
    waiting: float = Field(description="In the queue, before the search began.")


class ScoredItem(BaseModel):
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
    scored: list[ScoredItem]
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
    cost: float | None = Field(None, description="In money, where the scorer has a price; that of `compare` included.")
    trace: TraceModel | None = None
    comparison: Comparison | None = None


class ItemModel(BaseModel):
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Measured(BaseModel):
    """One measure of one method at one budget, as `crosscut evaluate --json` writes it."""

    method: str
    measure: str
    value: float
    low: float
    high: float
    calls: float = Field(description="Mean per query.")
    queries: int


def _finite(metadata: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity: an item that held one could not be sent back."""
    try:
        json.dumps(metadata, allow_nan=False)
    except ValueError:
        raise ValueError("metadata holds a number that is not finite: leave it out, or send null") from None
    return metadata


class NewItem(Strict):
    """An item to add."""

    id: str = Field(min_length=1)
    title: str = ""
    text: str
    metadata: Annotated[dict[str, Any], AfterValidator(_finite)] = {}


class AddRequest(Strict):
    """Items to add; they are embedded, and can be found at once."""

    items: list[NewItem] = Field(min_length=1)
    index: str | None = Field(None, max_length=200, description="Which index; the first by default.")


class Changed(BaseModel):
    """What came of a change."""

    changed: int
    items: int = Field(description="Items in the index now.")


class Info(BaseModel):
    """What the page needs to know."""

    version: str
    indexes: list[str]
    items: int
    passages: bool = Field(description="Whether the items are passages of documents.")
    method: str
    methods: list[str]
    rival: str = Field(description="The method that `compare` compares with.")
    max_k: int
    max_budget: int
    default_budget: int
    max_deadline: float
    call_price: float | None = Field(description="Of one call of the scorer, where it has a price by calls.")
    currency: str | None
    examples: list[str]
    target_recall: int | None = Field(description="The k that `target_recall` is calibrated for, if it is.")
    evaluation: list[Measured] = Field(description="What `crosscut evaluate` has measured of this index.")


class Status(BaseModel):
    status: str
    items: int


class ProblemDetails(BaseModel):
    """What went wrong. When the scorer failed, what had been found until then."""

    error: str = Field(description="The kind of error.")
    message: str
    hits: list[HitModel] | None = None
    calls: int | None = None
