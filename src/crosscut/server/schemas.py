"""Requests and answers, as the OpenAPI schema states them. Types are strict: "10" is no number.

Limits that differ from server to server are checked by `check`; `GET /info` lists them.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, model_validator

from crosscut.errors import InputError
from crosscut.server.settings import Settings
from crosscut.stores.filters import MOST, SIGNS, request_filter

MOST_VALUES = 10_000  # in any list of a request
MOST_FIELDS = 64  # in any object of a request: every unknown one costs a message
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
Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


def at_most(name: str, value: float | None, most: float) -> None:
    """Refuse a value over a limit of this server."""
    if value is not None and value > most:
        raise InputError(f"{name} is at most {most:,} on this server; got {value:,}")


def few_fields(value: Any) -> Any:
    """Refuse an object with more fields than any request has use for."""
    if isinstance(value, dict) and len(value) > MOST_FIELDS:
        raise ValueError(f"an object of a request has {MOST_FIELDS} fields at most; got {len(value)}")
    return value


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")
    few = model_validator(mode="before")(few_fields)


class SearchRequest(Strict):
    """A search for the items that the scorer would rank first."""

    query: str = Field(min_length=1)
    index: str | None = Field(None, max_length=200, description="Which index; the first by default.")
    k: int = Field(10, ge=1, description="Number of hits.")
    budget: int | None = Field(
        None, ge=1, description="Most scorer calls. null: the server's default, what the index was tuned to, or 100."
    )
    method: str | None = Field(
        None, max_length=300, description="`axn@rounds=10,mix=0.8`: a name with settings; the index's own by default."
    )
    candidates: list[str] | None = Field(None, max_length=MOST_VALUES, description="Items for round one, best first.")
    filter: Annotated[dict[str, Any], PlainValidator(request_filter), WithJsonSchema(CONDITIONS)] | None = Field(
        None, description="Conditions on metadata, all of which must hold: a value, a list of values, or bounds."
    )
    stop: str | None = Field(
        None, max_length=300, description="`patience@rounds=2`: stop once the top k has not changed for two rounds."
    )
    target_recall: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] | None = Field(
        None, description="Stop once this share of the top k is expected to be found; needs a tuned index."
    )
    order: str | None = Field(
        None, max_length=300, description="The order of hits: `scorer`, or `fused` with vectors and words."
    )
    threshold: Probability | None = Field(
        None, description="Only hits that are relevant with this probability; needs a calibrated scorer."
    )
    deadline: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Seconds, waiting included; what is found by then is the answer. null: the server's default."
    )
    trace: bool = Field(False, description="Return every round: what was scored, and what had been predicted.")
    compare: bool = Field(
        False, description="Also retrieve and rerank with the same budget, which costs as many calls again."
    )

    @model_validator(mode="after")
    def one_rule(self) -> Self:
        if self.stop is not None and self.target_recall is not None:
            raise ValueError("stop and target_recall are two stopping rules: give one")
        return self

    def check(self, settings: Settings) -> None:
        """Refuse what is over the limits of this server."""
        if "k" not in self.model_fields_set:
            self.k = min(self.k, settings.max_k)
        at_most("k", self.k, settings.max_k)
        at_most("budget", self.budget, settings.max_budget)
        at_most("deadline", self.deadline, settings.max_deadline)
        at_most("the length of query", len(self.query), settings.max_query)
        at_most("the number of candidates", len(self.candidates or ()), settings.max_budget)


class HitModel(BaseModel):
    id: str
    title: str
    text: str
    score: float
    probability: float | None = Field(None, description="That it is relevant; null without a calibration.")
    round: int = Field(description="The round that found it, counted from 1.")
    estimate: float | None = Field(description="The prediction before it was scored; null without one.")
    metadata: dict[str, Any] = {}


class SecondsModel(BaseModel):
    """Seconds by stage; in a batch of searches, the share of one search."""

    scorer: float
    fit: float
    select: float
    waiting: float = Field(description="In the queue, before the search began.")


class TracedItem(BaseModel):
    id: str
    title: str
    hit: int | None = Field(description="Its place among the hits, from 1; null for items that are not among them.")
    score: float
    estimate: float | None = Field(description="The prediction before it was scored; null without one.")


class TracedRound(BaseModel):
    round: int
    calls: int
    cached: int
    items: list[TracedItem] = Field(description="What was scored, in the order of picking.")


class Comparison(BaseModel):
    """The hits of retrieve-and-rerank with the same budget."""

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
    calibrated: bool = Field(description="Whether hits have probabilities: the index was calibrated on judged queries.")
    seconds: SecondsModel
    cost: float | None = Field(None, description="In money, where the scorer has a price; that of `compare` included.")
    trace: list[TracedRound] | None = None
    comparison: Comparison | None = None


class ItemModel(BaseModel):
    id: str
    title: str
    text: str
    metadata: dict[str, Any]


class Measurement(BaseModel):
    """One measure of one method at one budget, as `crosscut evaluate --json` writes it."""

    method: str
    measure: str
    value: float
    low: float
    high: float
    calls: float = Field(description="Mean per query.")
    queries: int


def _finite(metadata: dict[str, Any]) -> dict[str, Any]:
    """Refuse NaN and infinities: JSON has none, and an item that held one could not be sent back."""
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
    """Items to add; they are encoded, and can be found at once."""

    items: list[NewItem] = Field(min_length=1, max_length=MOST_VALUES)
    index: str | None = Field(None, max_length=200, description="Which index; the first by default.")


class Changed(BaseModel):
    changed: int = Field(description="Items added or removed.")
    items: int = Field(description="Items in the index now.")


class Info(BaseModel):
    """The indexes and limits of this server."""

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
    evaluation: list[Measurement] = Field(description="What `crosscut evaluate` has measured of this index.")


class Status(BaseModel):
    status: str
    items: int


class Problem(BaseModel):
    """An error. When the scorer failed, with what had been found until then."""

    error: str = Field(description="The kind of error.")
    message: str
    hits: list[HitModel] | None = None
    calls: int | None = None
