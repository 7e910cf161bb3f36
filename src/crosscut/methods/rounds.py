"""What methods with many rounds have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from crosscut.ann.base import TopK
from crosscut.errors import InputError
from crosscut.methods.base import First, Method, Parts
from crosscut.retrievers.first import FirstStage
from crosscut.search.estimators import Estimator
from crosscut.search.loop import Offset, Plan
from crosscut.search.selection import Selection, as_selection
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Space

Select: TypeAlias = Literal["top", "softmax", "random"] | Selection


@dataclass(frozen=True, repr=False)
class InRounds(Method):
    """R rounds of equal size (`first_share` gives the first its own), in which `select` picks from the predictions.

    `epsilon` is a share picked at random; with `shortlist` all rounds stay within the first stage's top S, as AXN and
    ADACUR do with 10,000 of HotpotQA's 5 million items (AXN app. A.4).
    """

    draws: ClassVar[bool] = False  # whether round one is drawn, where no first stage is named

    rounds: int = 5
    first: First = "auto"
    select: Select = "top"
    epsilon: float = 0.0
    first_share: float | None = None
    shortlist: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise InputError(f"a search needs at least 1 round; got {self.rounds}")

    @property
    def drawn(self) -> bool:
        """Whether round one is left to chance."""
        return self.first == "random" or (self.first == "auto" and self.draws)

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        stages = ["dense"] * (parts.encoder is not None) + ["lexical"] * (parts.words is not None)
        return {"rounds": (10, 20), "first": tuple(stages)}

    def rounds_of(self, budget: int) -> int:
        return min(self.rounds, budget)

    def schedule(self) -> Schedule:
        return Schedule(self.rounds, self.first_share)

    def selection(self) -> Selection:
        return as_selection(self.select, self.epsilon)

    def in_rounds(
        self,
        parts: Parts,
        first: FirstStage,
        space: Space | None,
        estimator: Estimator,
        offset: Offset | None = None,
        *,
        corrects: bool = False,
        topk: TopK | None = None,
        scarce: TopK | None = None,
    ) -> Plan:
        """The plan of these rounds over a space; the rest is as in `Plan`."""
        return Plan(
            parts.pool,
            first,
            self.schedule(),
            space,
            estimator,
            self.selection(),
            offset or Offset(),
            self.shortlist,
            corrects,
            topk,
            scarce,
        )
