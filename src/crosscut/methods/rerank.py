"""`rerank`, `hybrid` and `base`: one round. Retrieve and rerank reorders what a cheaper model happened to find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from crosscut.ann.baseline import NOTHING
from crosscut.methods.base import First, Method, Parts, register
from crosscut.search.loop import Plan
from crosscut.search.stages import Dense, Given, HighestBase


@register
@dataclass(frozen=True, repr=False)
class Rerank(Method):
    """The best B by query vector, or the caller's `candidates`, scored."""

    name: ClassVar[str] = "rerank"

    first: First = "auto"

    def unaided(self, parts: Parts) -> bool:
        return parts.encoder is not None or self.first != "auto"

    def plan(self, parts: Parts) -> Plan:
        given = Given(parts.pool)
        usual = given if parts.encoder is None else Dense(parts.topk(parts.encoder, NOTHING), otherwise=given)
        return parts.one_round(parts.stage(self.first, usual))


@register
@dataclass(frozen=True, repr=False)
class Hybrid(Method):
    """The best B by query vector and by words in turn, scored: what is usually called hybrid search with reranking."""

    name: ClassVar[str] = "hybrid"

    def missing(self, parts: Parts) -> str | None:
        return parts.lacks("words", "encoder")

    def plan(self, parts: Parts) -> Plan:
        return parts.one_round(parts.stage("union"))


@dataclass(frozen=True, repr=False)
class Base(Method):
    """The items of highest base score; of a scorer without base scores, those of `hybrid`."""

    name: ClassVar[str] = "base"
    takes_base: ClassVar[bool] = True

    def plan(self, parts: Parts) -> Plan:
        return parts.one_round(HighestBase(parts.stage("union")))
