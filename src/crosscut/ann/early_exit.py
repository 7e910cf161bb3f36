"""Exit rules: when a query has seen enough lists of a clustered index.

Busolin et al. 2024, §2; REG is Li et al. 2020. All are asked list by list, and none goes past N lists.

| rule | stops |
|---|---|
| `Fixed(N)` | after N lists |
| `Patience(Δ, 1 − Φ)` | when Φ·k members of the result stayed, Δ lists in a row |
| `Regression` | after as many lists as a forest predicts from what τ lists showed: REG; with stability, REG+int |
| `Classifier` | after τ lists, if a forest says Exit |
| `Cascade` | as the classifier; queries told to continue go on under patience or a regression |
| `Chance` | when the chance that the next lists improve on the best result, per list, falls below a rate: ours |

A rule is a value: it has a name (`repr`), it turns into JSON and back, and `program` makes it what the compiled search
understands. Rules with forests or coefficients are learned by `learned.py`, chosen by `tuning.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from crosscut.ann.patience import Patience
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.ann.probing import Forest, Program

TAU = 10


class Rule(Protocol):
    """When to stop probing."""

    @property
    def lists(self) -> int | None:
        """N, the most lists a query may probe; None leaves it to the index."""
        ...

    def program(self, k: int, cap: int) -> Program:
        """The rule for the compiled search, for results of k, in an index that probes `cap` lists at most."""
        ...

    def json(self) -> dict[str, Any]:
        """The rule as JSON."""
        ...


@dataclass(frozen=True)
class Fixed:
    """The same number of lists for every query: A-kNN."""

    lists: int

    def __post_init__(self) -> None:
        if not isinstance(self.lists, int | np.integer) or self.lists < 1:
            raise InputError(f"an index probes at least 1 list, a whole number; got {self.lists!r}")

    def program(self, k: int, cap: int) -> Program:
        from crosscut.ann.probing import Program

        return Program.fixed(min(int(self.lists), cap))

    def json(self) -> dict[str, Any]:
        return {"rule": "fixed", "lists": int(self.lists)}


@dataclass(frozen=True)
class Trees:
    """A forest, as nested lists: hashable by identity, comparable, JSON-ready."""

    roots: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]

    def forest(self) -> Forest:
        from crosscut.ann.probing import Forest

        whole = [np.array(part, dtype=np.int64) for part in (self.roots, self.feature, self.left, self.right)]
        return Forest(whole[0], whole[1], np.array(self.threshold), whole[2], whole[3], np.array(self.value))

    def json(self) -> dict[str, Any]:
        return {name: list(getattr(self, name)) for name in self.__dataclass_fields__}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Trees:
        return cls(**{name: tuple(record[name]) for name in cls.__dataclass_fields__})


@dataclass(frozen=True)
class Regression:
    """REG: after τ lists a forest predicts how many the query needs; `stability` makes it REG+int.

    `factor` times the prediction are visited: a forest predicts the mean, and the mean is too few for half of them.
    """

    trees: Trees = field(repr=False)
    stability: bool = False
    factor: float = 1.0
    tau: int = TAU
    lists: int | None = None

    def program(self, k: int, cap: int) -> Program:
        from crosscut.ann.probing import Program

        most = min(self.lists or cap, cap)
        forest = self.trees.forest()
        return Program.fixed(most)._replace(tau=self.tau, regression=forest._replace(value=self.factor * forest.value))

    def json(self) -> dict[str, Any]:
        mine = {"stability": self.stability, "factor": self.factor, "tau": self.tau, "lists": self.lists}
        return {"rule": "regression", **mine, "trees": self.trees.json()}


@dataclass(frozen=True)
class Classifier:
    """Exit after τ lists, or continue to N; trained with a weight w on queries that must continue."""

    trees: Trees = field(repr=False)
    weight: float = 1.0
    tau: int = TAU
    lists: int | None = None

    def program(self, k: int, cap: int) -> Program:
        from crosscut.ann.probing import Program

        most = min(self.lists or cap, cap)
        return Program.fixed(most)._replace(tau=self.tau, classifier=self.trees.forest())

    def json(self) -> dict[str, Any]:
        mine = {"weight": self.weight, "tau": self.tau, "lists": self.lists}
        return {"rule": "classifier", **mine, "trees": self.trees.json()}


@dataclass(frozen=True)
class Cascade:
    """A classifier, then patience or a regression for the queries it lets continue.

    Patience counts from the first list on; it may stop a query from τ on.
    """

    first: Classifier
    then: Patience | Regression

    def __post_init__(self) -> None:
        if isinstance(self.then, Regression) and self.then.tau != self.first.tau:
            raise InputError(
                f"both stages of a cascade look after the same number of lists; got τ = {self.first.tau} and "
                f"{self.then.tau}"
            )

    @property
    def lists(self) -> int | None:
        return self.then.lists or self.first.lists

    def program(self, k: int, cap: int) -> Program:
        first = self.first.program(k, cap)
        then = self.then.program(k, cap)
        return then._replace(tau=first.tau, lists=min(first.lists, then.lists), classifier=first.classifier)

    def json(self) -> dict[str, Any]:
        return {"rule": "cascade", "first": self.first.json(), "then": self.then.json()}


@dataclass(frozen=True)
class Chance:
    """Stop when looking further is not worth it.

    A logistic model estimates, from the best score so far and the centroids still to come, the chance that one of the
    next lists (a quarter as many as were probed) improves on the best result. The query stops when that chance, per
    list, falls below `rate`. Spending lists where each of them is most likely to pay is what minimises the mean number
    of lists at a given R*@1; a bound on the *remaining* chance would instead spend most on hopeless queries.
    """

    coefficients: tuple[float, ...] = field(repr=False)
    rate: float = 0.002
    lists: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise InputError(f"the rate of improvement per list lies in 0 … 1; got {self.rate}")

    def program(self, k: int, cap: int) -> Program:
        from crosscut.ann.probing import Program

        most = min(self.lists or cap, cap)
        return Program.fixed(most)._replace(rate=self.rate, chance=np.array(self.coefficients))

    def json(self) -> dict[str, Any]:
        mine = {"rate": self.rate, "lists": self.lists}
        return {"rule": "chance", **mine, "coefficients": list(self.coefficients)}


USUAL: Rule = Patience(10, 0.05)
"""For those who tune nothing: Δ and Φ in the middle of the paper's, N all lists. It knows no queries, so it can only
watch the result; and it watches all k of it, which is what rounds of a search ask for."""


def as_rule(rule: Rule | int) -> Rule:
    """A rule; a number is `Fixed`."""
    if isinstance(rule, int | np.integer):
        return Fixed(int(rule))
    if not hasattr(rule, "program"):
        raise InputError(f"an exit rule is Fixed(N), Patience(Δ, 1 − Φ) or a learned one; got {rule!r}")
    return rule


def from_json(record: Mapping[str, Any]) -> Rule:
    """The rule that `json` told."""
    rest = {name: value for name, value in record.items() if name not in ("rule", "trees")}
    name = record.get("rule")
    if name == "fixed":
        return Fixed(**rest)
    if name == "patience":
        return Patience(**rest)
    if name in ("regression", "classifier"):
        kind = Regression if name == "regression" else Classifier
        return kind(trees=Trees.from_json(record["trees"]), **rest)
    if name == "cascade":
        first, then = from_json(record["first"]), from_json(record["then"])
        return Cascade(cast(Classifier, first), cast("Patience | Regression", then))
    if name == "chance":
        return Chance(**{**rest, "coefficients": tuple(record["coefficients"])})
    raise InputError(f"unknown exit rule {name!r}: this index was written by another version of crosscut")


def patience_stops(kept: npt.NDArray[Any], rounds: int, needed: int) -> npt.NDArray[np.int64]:
    """After how many lists patience stops, from kept[h] (q × N) of a trace; N where it does not."""
    settled = kept >= needed
    settled[:, 0] = False
    h = np.arange(1, kept.shape[1] + 1)
    since = h - np.maximum.accumulate(np.where(settled, 0, h), axis=1)  # settled lists in a row
    return first_true(since >= rounds)


def first_true(stop: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """1-based place of the first True of every row; the row's length where there is none."""
    return np.asarray(np.where(stop.any(axis=1), stop.argmax(axis=1) + 1, stop.shape[1]))
