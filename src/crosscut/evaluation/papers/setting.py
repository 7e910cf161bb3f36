"""What every experiment is given, and how a record is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from crosscut.errors import InputError
from crosscut.evaluation.replay import replay
from crosscut.evaluation.world import World
from crosscut.measures import interval
from crosscut.methods import Method, parse
from crosscut.methods.rounds import InRounds
from crosscut.retrievers.multiview import MultiView
from crosscut.spaces.factorization import Solver
from crosscut.types import Array, Floats

Records: TypeAlias = list[dict[str, Any]]


@dataclass(frozen=True)
class Setting:
    """A world, what a query is judged right by, and the sizes that are asked for."""

    world: World
    gold: Sequence[Sequence[int]] | None = None  # of every test query, positions of the right items
    ks: tuple[int, ...] = (1, 10, 100)
    budgets: tuple[int, ...] = (50, 100, 200, 500)
    seeds: int = 3
    views: Mapping[str, MultiView] = field(default_factory=dict)  # several vectors an item, by how they were cut
    rounds: int | None = None  # of adaptive methods where the experiment does not vary them; None: their own, 5
    shortlist: int | None = None  # rounds stay within the first stage's top S
    solver: Solver = "als"  # of factors
    device: str | None = None  # where factors are trained, and in what arithmetic
    dtype: str = "fp32"

    @property
    def n(self) -> int:
        return int(self.world.test.shape[1])

    @property
    def fitting(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """k and budgets that such a world has items for."""
        most = max(2, self.n // 2)
        return tuple(k for k in self.ks if k <= most) or (1,), tuple(b for b in self.budgets if b <= most) or (most,)

    def anchors(self) -> Array:
        if self.world.anchors is None:
            raise InputError("this experiment needs anchors: the scores of train queries with every item")
        return self.world.anchors


def replayed(
    setting: Setting, methods: Sequence[str], *, rounds: int | None = None, seeds: int | None = None
) -> Records:
    """What `replay` finds, splits at their best; rounds and seeds are the setting's, if not given."""
    ks, budgets = setting.fitting
    report = replay(
        setting.world,
        methods=[str(shortened(method, setting.shortlist)) for method in methods],
        k=ks,
        budgets=budgets,
        rounds=setting.rounds if rounds is None else rounds,
        seeds=setting.seeds if seeds is None else seeds,
        split="oracle",
    )
    return [{"x": record.budget, **record.json()} for record in report.records]


def shortened(method: str, shortlist: int | None) -> Method:
    """The method with its rounds within the first stage's top S (AXN app. A.4), if it has both."""
    made = parse(method)
    if shortlist is None or not isinstance(made, InRounds) or made.drawn:
        return made
    return made.with_settings({"shortlist": shortlist})


def record_of(method: str, k: int, x: float, values: Floats, **more: float | str) -> dict[str, Any]:
    low, high = interval(values)
    return {"method": method, "k": k, "x": x, "recall": float(values.mean()), "low": low, "high": high, **more}
