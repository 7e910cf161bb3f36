"""Exit rules: when a query has seen enough lists of a clustered index.

Busolin et al. 2024, §2; REG is Li et al. 2020. All are asked list by list, and none goes past N lists.

| rule | stops |
|---|---|
| `Fixed(N)` | after N lists |
| `Patience(Δ, 1 − Φ)` | when Φ·k members of the result stayed, Δ lists in a row |
| `PredictedLists` | after as many lists as a forest predicts from what τ lists showed: REG; with stability, REG+int |
| `Classifier` | after τ lists, if a forest says Exit |
| `Cascade` | as the classifier; those that continue go on under patience or a prediction |
| `Chance` | when the chance that the next lists improve on the best result, per list, falls below a rate: ours |

A rule is a value, defined here and nowhere else: its parameters, the `Conditions` they set for the compiled search
(`kernels.py`, which also replays a rule on what was recorded), and the values that tuning tries. Its JSON follows from
its fields. Rules with forests or coefficients are learned by `learning.py`, chosen by `tuning.py`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, cast

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.names import Named

if TYPE_CHECKING:
    from crosscut.search.stopping import SoFar

TAU = 10
ROUNDS = (1, 2, 3, 4, 5, 7, 10, 12, 14, 18, 24, 32)  # Δ
FACTORS = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)  # of REG's prediction
RATES = tuple(float(rate) for rate in np.geomspace(1e-5, 0.2, 60))
CLUES = 7  # what `Chance` sees after a list; its model has a constant, these, and all products of two
COEFFICIENTS = 1 + CLUES + CLUES * (CLUES + 1) // 2


class TreeArrays(NamedTuple):
    """A forest for the compiled search; a node with feature −1 is a leaf. No roots: no forest."""

    roots: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int64]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int64]
    right: npt.NDArray[np.int64]
    value: npt.NDArray[np.float64]


_WHOLE, _REAL = np.zeros(0, dtype=np.int64), np.zeros(0)
NO_TREES = TreeArrays(_WHOLE, _WHOLE, _REAL, _WHOLE, _WHOLE, _REAL)


class Conditions(NamedTuple):
    """When the compiled search stops; what is 0 or empty is not asked.

    After τ lists the classifier may end the search and the regression may lower N; from then on patience and the
    chance of improvement are asked after every list.
    """

    lists: int  # N
    tau: int = 1
    rounds: int = 0  # Δ of patience
    needed: int = 0  # Φ·k, members that must stay
    classifier: TreeArrays = NO_TREES
    regression: TreeArrays = NO_TREES
    rate: float = 0.0  # chance of improvement per list at which to stop
    chance: npt.NDArray[np.float64] = _REAL  # coefficients of the chance's log-odds

    @property
    def learned(self) -> bool:
        """Whether a forest is asked."""
        return bool(len(self.classifier.roots) or len(self.regression.roots))


class Rule(ABC):
    """When to stop probing. Every kind of rule is a frozen dataclass."""

    kind: ClassVar[str]  # its name in JSON
    kinds: ClassVar[dict[str, type[Rule]]] = {}
    tried: ClassVar[tuple[str, Sequence[Any]]] = ("", ())
    """The parameter that is tuned, and its values."""
    lists: int | None  # N, the most lists a query may probe; None leaves it to the index

    def __init_subclass__(cls, kind: str) -> None:
        cls.kind = kind
        Rule.kinds[kind] = cls

    def __post_init__(self) -> None:
        for number in (self.lists, getattr(self, "tau", 1)):
            if number is not None and (not isinstance(number, int | np.integer) or number < 1):
                raise InputError(f"an index probes at least 1 list, a whole number; got {number!r}")

    def conditions(self, k: int, most: int) -> Conditions:
        """Return the rule for the compiled search, for results of k, in an index of `most` lists."""
        return self.added_to(Conditions(min(int(self.lists or most), most)), k)

    @abstractmethod
    def added_to(self, others: Conditions, k: int) -> Conditions:
        """Return other conditions, and those of this rule."""

    def variants(self) -> list[Self]:
        """Return the rules that differ from this one in the parameter that is tuned."""
        name, values = self.tried
        return [replace(cast(Any, self), **{name: value}) for value in values] if name else [self]

    def json(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        return cast("dict[str, Any]", _plain(self))


@dataclass(frozen=True)
class Fixed(Rule, kind="fixed"):
    """The same number of lists for every query: A-kNN."""

    lists: int

    def added_to(self, others: Conditions, k: int) -> Conditions:
        return others

    def variants(self) -> list[Self]:
        most = self.lists
        return [replace(self, lists=h) for h in sorted({*range(1, min(33, most)), *range(32, most, 8), most})]


@dataclass(frozen=True, repr=False)
class Patience(Named, Rule, kind="patience"):
    """Stop when the result is stable: its members stayed for `rounds` rounds in a row.

    Of the k members, a share `tolerance` may change without starting the count again:
    |RS_h ∩ RS_{h−1}| ≥ (1 − tolerance) · k. The same rule stops rounds of calls and, in a clustered index, the
    probing of lists; there the paper's Δ is `rounds`, and Φ is 1 − tolerance. `lists` is N, the most lists an index
    may probe; None leaves it to the index.
    """

    name: ClassVar[str] = "patience"
    reason: ClassVar[str] = "patience"
    tried: ClassVar[tuple[str, Sequence[Any]]] = ("rounds", ROUNDS)

    rounds: int = 2
    tolerance: float = 0.0
    lists: int | None = None

    def __post_init__(self) -> None:
        Named.__post_init__(self)
        Rule.__post_init__(self)
        if self.rounds < 1:
            raise InputError(f"patience needs at least 1 round, a whole number; got {self.rounds}")
        if not 0 <= self.tolerance < 1:
            raise InputError(f"the tolerance of patience must lie in 0 … 1 (1 excluded); got {self.tolerance}")

    def needed(self, k: int) -> int:
        """Return how many of k members must stay."""
        return math.ceil((1 - self.tolerance) * k - 1e-9)

    def watch(self, k: int) -> PatienceWatch:
        """A fresh count for one query."""
        return PatienceWatch(self, k)

    def added_to(self, others: Conditions, k: int) -> Conditions:
        return others._replace(rounds=self.rounds, needed=self.needed(k))


@dataclass
class PatienceWatch:
    """The running count of one query."""

    rule: Patience
    k: int
    stable: int = 0
    last: frozenset[int] = field(default_factory=frozenset)

    def enough(self, so_far: SoFar) -> bool:
        """Whether the best k of a search are stable."""
        return len(so_far.handles) >= self.k and self.stable_after(so_far.handles.tolist())

    def stable_after(self, members: Collection[int]) -> bool:
        """Whether the result is stable, now that its members are these."""
        now = frozenset(members)
        self.stable = self.stable + 1 if len(now & self.last) >= self.rule.needed(self.k) else 0
        self.last = now
        return self.stable >= self.rule.rounds


@dataclass(frozen=True)
class Trees:
    """A forest as a value: comparable, hashable, JSON-ready. A node comes before its children."""

    roots: tuple[int, ...]
    feature: tuple[int, ...]
    threshold: tuple[float, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]

    def __post_init__(self) -> None:
        # compiled code follows these numbers without a check
        roots, feature, threshold, left, right, value = self.arrays
        nodes, inner = np.arange(len(value)), feature >= 0
        sizes = {len(part) for part in (feature, threshold, left, right, value)}
        if len(sizes) > 1 or not ((roots >= 0) & (roots < len(nodes))).all():
            raise InputError(f"a damaged forest: parts of {sorted(sizes)} nodes, roots {roots[:5].tolist()} …")
        for child in (left[inner], right[inner]):
            if not ((child > nodes[inner]) & (child < len(nodes))).all():
                raise InputError("a damaged forest: a child does not come after its node")

    @cached_property
    def arrays(self) -> TreeArrays:
        """The forest for the compiled search."""
        roots, feature, left, right = (
            np.array(part, dtype=np.int64) for part in (self.roots, self.feature, self.left, self.right)
        )
        return TreeArrays(roots, feature, np.array(self.threshold, float), left, right, np.array(self.value, float))


@dataclass(frozen=True)
class PredictedLists(Rule, kind="regression"):
    """REG: after τ lists a forest predicts how many the query needs; `stability` makes it REG+int.

    `factor` times the prediction are visited: a forest predicts the mean, and the mean is too few for half of them.
    """

    tried: ClassVar[tuple[str, Sequence[Any]]] = ("factor", FACTORS)

    trees: Trees = field(repr=False)
    stability: bool = False
    factor: float = 1.0
    tau: int = TAU
    lists: int | None = None

    def added_to(self, others: Conditions, k: int) -> Conditions:
        trees = self.trees.arrays
        return others._replace(tau=self.tau, regression=trees._replace(value=self.factor * trees.value))


@dataclass(frozen=True)
class Classifier(Rule, kind="classifier"):
    """Exit after τ lists, or continue to N; trained with a weight w on queries that must continue."""

    trees: Trees = field(repr=False)
    weight: float = 1.0
    tau: int = TAU
    lists: int | None = None

    def added_to(self, others: Conditions, k: int) -> Conditions:
        return others._replace(tau=self.tau, classifier=self.trees.arrays)


@dataclass(frozen=True)
class Cascade(Rule, kind="cascade"):
    """A classifier, then patience or a prediction for the queries it lets continue.

    Patience counts from the first list on; it may stop a query from τ on.
    """

    first: Classifier
    then: Patience | PredictedLists
    lists: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.then, PredictedLists) and self.then.tau != self.first.tau:
            raise InputError(
                f"both stages of a cascade look after the same number of lists; got τ = {self.first.tau} and "
                f"{self.then.tau}"
            )
        object.__setattr__(self, "lists", min((n for n in (self.first.lists, self.then.lists) if n), default=None))

    def added_to(self, others: Conditions, k: int) -> Conditions:
        return self.then.added_to(self.first.added_to(others, k), k)

    def variants(self) -> list[Self]:
        return [replace(self, then=then) for then in self.then.variants()]


@dataclass(frozen=True)
class Chance(Rule, kind="chance"):
    """Stop when looking further is not worth it.

    A logistic model estimates, from the best score so far and the centroids still to come, the chance that one of the
    next lists (a quarter as many as were probed) improves on the best result. The query stops when that chance, per
    list, falls below `rate`. Spending lists where each of them is most likely to pay is what minimises the mean number
    of lists at a given R*@1; a bound on the *remaining* chance would instead spend most on hopeless queries.
    """

    tried: ClassVar[tuple[str, Sequence[Any]]] = ("rate", RATES)

    coefficients: tuple[float, ...] = field(repr=False)
    rate: float = 0.002
    lists: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.rate <= 1:
            raise InputError(f"the rate of improvement per list lies in 0 … 1; got {self.rate}")
        if len(self.coefficients) != COEFFICIENTS:
            raise InputError(f"the chance of improvement has {COEFFICIENTS} coefficients; got {len(self.coefficients)}")

    def added_to(self, others: Conditions, k: int) -> Conditions:
        return others._replace(rate=self.rate, chance=np.array(self.coefficients, dtype=np.float64))


USUAL: Rule = Patience(10, 0.05)
"""For indexes that were not tuned: Δ and Φ in the middle of the paper's, N all lists."""


def as_rule(rule: Rule | int) -> Rule:
    """Return a rule; a number is `Fixed`."""
    if isinstance(rule, int | np.integer):
        return Fixed(int(rule))
    if not isinstance(rule, Rule):
        raise InputError(f"an exit rule is Fixed(N), Patience(Δ, 1 − Φ) or a learned one; got {rule!r}")
    return rule


def from_json(record: Mapping[str, Any]) -> Rule:
    """Return the rule that `json` wrote."""
    name = record.get("rule")
    if name not in Rule.kinds:
        raise InputError(f"unknown exit rule {name!r}: this index was written by another version of crosscut")
    try:
        return Rule.kinds[name](**{key: _parsed(value) for key, value in record.items() if key != "rule"})
    except (TypeError, ValueError, AttributeError) as error:
        raise InputError(f"the exit rule {name!r} of this index is damaged: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Rule | Trees):
        parts = [part.name for part in fields(cast(Any, value)) if part.init]
        kind = {"rule": value.kind} if isinstance(value, Rule) else {}
        return kind | {part: _plain(getattr(value, part)) for part in parts}
    return list(value) if isinstance(value, tuple) else value.item() if isinstance(value, np.generic) else value


def _parsed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return from_json(value) if "rule" in value else Trees(**{name: _parsed(part) for name, part in value.items()})
    return tuple(value) if isinstance(value, list) else value
