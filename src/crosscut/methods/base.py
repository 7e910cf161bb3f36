"""A method is a value: typed settings, what it needs, what of it can be tuned, and its plan for given parts.

A method of one's own is a frozen dataclass that inherits from `Method` and joins by `@register`, by an entry point of
the group `crosscut.methods`, or in a module of `CROSSCUT_PLUGINS`; from then on it works by name wherever a method is
asked for (`crosscut.names`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias

from crosscut.ann.baseline import NOTHING, Baseline
from crosscut.ann.flat import Flat
from crosscut.ann.linear import topk_of
from crosscut.ann.topk import Everything, Pool, TopK
from crosscut.errors import InputError
from crosscut.names import Named, Registry
from crosscut.search.loop import Picker, Plan
from crosscut.search.pickers import Explore, Linear, Sampling, Shortlist
from crosscut.search.prior import Prior
from crosscut.search.stages import Dense, Filled, FirstRound, Lexical, Random, Retriever, Union
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR

First: TypeAlias = Literal["auto", "dense", "lexical", "union", "random"] | Picker
"""Round one: by query vector, by words, by both in turn, by chance; `auto` is the method's own choice."""

WAYS = {
    "encoder": "pass vectors=, item vectors of a dual encoder",
    "anchors": "pass space=CUR(anchor_scores)",
    "factors": "pass space=factorize(…)",
    "words": "pass words=BM25(texts)",
    "n": "the items must be countable",
}
"""Advice on missing parts, for a `Searcher`."""

NAMES = {
    "encoder": "item vectors",
    "anchors": "scores of anchor queries",
    "factors": "factors",
    "words": "words of the items",
    "n": "number of items",
}


@dataclass(frozen=True)
class Parts:
    """The inputs of a method. Every field may be empty; `missing` of a method says which required ones are."""

    encoder: Space | None = None  # vectors in the space of the query vectors
    anchors: CUR | None = None  # scores of anchor queries
    factors: Space | None = None  # of a sparse score matrix
    words: Retriever | None = None  # BM25, TF-IDF
    prior: Prior | None = None  # of query vectors, learned from past searches
    residuals: Baseline | None = None  # of items that those have seen, where the prior does not know their handles
    n: int | None = None  # None: not known
    seed: int = 0
    own: Mapping[str, Any] = field(default_factory=dict)  # what methods of one's own bring along
    ways: Mapping[str, str] = field(default_factory=lambda: WAYS)  # how the caller would provide a slot
    topk: Callable[[Space, Baseline], TopK] = topk_of  # what finds the top of a space

    @property
    def pool(self) -> Pool:
        """The pool of items for random draws."""
        if self.n is not None:
            return Everything(self.n)
        spaces = (self.encoder, self.factors)
        return next(space.topk for space in spaces if space is not None and space.topk is not None)

    @property
    def size(self) -> int:
        """n, for methods that need it; `missing` has said so if it is not known."""
        assert self.n is not None
        return self.n

    def lacks(self, *slots: str) -> str | None:
        """Return a message if none of these slots is filled, else None."""
        if any(getattr(self, slot) is not None for slot in slots):
            return None
        what = " or ".join(NAMES[slot] for slot in slots)
        return f"needs {what} and has none: {', or '.join(self.ways[slot] for slot in slots)}"

    def stage(self, first: First, default: Picker | None = None) -> Picker:
        """Return a first stage by name; `default` is what `auto` means to a method (None: by query vector, else by
        chance)."""
        if not isinstance(first, str):
            ranks = getattr(first, "ranks", None)
            if ranks is not None and self.n is not None and ranks != self.n:
                raise InputError(f"the first stage ranks {ranks} items and the search has {self.n}")
            return first
        if first == "auto" and default is not None:
            return default
        slot = {"dense": "encoder", "lexical": "words"}.get(first, "")
        if slot and (lacking := self.lacks(slot)) is not None:
            raise InputError(f"first={first!r} {lacking}")
        drawn = Random(self.pool)
        stages: dict[str, Picker] = {"random": drawn}
        if self.encoder is not None:
            stages["dense"] = Dense(self.topk(self.encoder, NOTHING), None if first == "dense" else drawn)
        if self.words is not None:
            stages["lexical"] = Filled(Lexical(self.words), drawn)
        if first == "union":
            return Filled(Union(tuple(stages[name] for name in ("dense", "lexical") if name in stages)), drawn)
        return stages.get("dense" if first == "auto" else first, drawn)

    def one_round(self, stage: Picker) -> Plan:
        """Return the plan of a single round."""
        return Plan(FirstRound(stage, self.pool), Schedule(1))


@dataclass(frozen=True, repr=False)
class Method(Named, ABC):
    """A method and its settings. `name` is what it is called; `needs` the parts it cannot do without."""

    needs: ClassVar[tuple[str, ...]] = ()
    tried: ClassVar[bool] = True  # by `tune`, when no methods are passed
    prepares: ClassVar[bool] = False  # whether it makes something of every item before it searches: no request may
    prepared: ClassVar[tuple[str, ...]] = ()  # settings with each of which it would make something else of every item
    takes_base: ClassVar[bool] = False  # whether it begins with what a scorer knows without a call

    @abstractmethod
    def plan(self, parts: Parts) -> Plan:
        """The parts of the loop. Called only if nothing is `missing`."""

    def missing(self, parts: Parts) -> str | None:
        """Return the missing parts, as the end of a sentence that begins with the method's name; None: nothing is."""
        return next((lack for lack in map(parts.lacks, self.needs) if lack is not None), None)

    def unaided(self, parts: Parts) -> bool:
        """Whether it can begin without the caller's `candidates`."""
        return True

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        """Values that `tune` tries, one setting after another, in addition to the present ones."""
        return {}

    def budget(self, asked: int | None, size: int | None) -> int:
        """The calls of a query that may score `size` items (None: not known) and named this many, or none."""
        return 100 if asked is None else asked

    def rounds_of(self, budget: int) -> int:
        """Return the maximum number of rounds of a search with so many calls."""
        return 1

    def made(self, parts: Parts) -> Plan:
        """The plan, or an error that says what is missing."""
        if (lack := self.missing(parts)) is not None:
            raise InputError(f"{self.name} {lack}")
        if parts.n == 0:  # all were removed, say: nothing is found, and little can be made of nothing
            return parts.one_round(Random(parts.pool))
        return self.plan(parts)


@dataclass(frozen=True, repr=False)
class InRounds(Method):
    """R rounds of equal size (`first_share` gives the first its own), in which `select` picks from the predictions.

    `explore` is a share of the later calls that goes to items drawn at random (ε of ADACUR C.2); with `shortlist` all
    rounds stay within the first stage's top S, as AXN and ADACUR do with 10,000 of HotpotQA's 5 million items (AXN app.
    A.4).
    """

    draws: ClassVar[bool] = False  # whether round one is drawn, where no first stage is named

    rounds: int = 5
    first: First = "auto"
    select: Literal["top", "softmax", "random"] = "top"
    explore: float = 0.0
    first_share: float | None = None
    shortlist: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rounds < 1:
            raise InputError(f"a search needs at least 1 round; got {self.rounds}")
        if not 0 <= self.explore < 1:
            raise InputError(f"explore is a share of the calls, 0 … 1 and less than all; got {self.explore}")
        if self.shortlist is not None and self.shortlist < 1:
            raise InputError(f"a shortlist holds at least 1 item; got {self.shortlist}")

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

    def in_rounds(self, parts: Parts, stage: Picker, then: Linear) -> Plan:
        """Return the plan of these rounds: a first stage, then the best predictions."""
        first: Picker = FirstRound(stage, parts.pool)
        if self.shortlist is not None:
            first = Shortlist(first, stage, self.shortlist)
            then = replace(then, topk=Flat(then.space)) if then.space.readable else then
        later: Picker = then if self.select == "top" else Sampling(then, self.select == "softmax")
        if self.explore:
            later = Explore(later, parts.pool, self.explore)
        return Plan(first, self.schedule(), later)


IN_LAB = ("fixed-item", "gar", "gp", "item-cur", "qdrant-feedback", "rgs", "tour")
_METHODS: Registry[Method] = Registry(
    "method", "axn@rounds=10", synonyms={"rnr": "rerank"}, elsewhere=dict.fromkeys(IN_LAB, "crosscut-lab")
)
register = _METHODS.register
"""Class decorator: give a method its name."""
methods = _METHODS.known
parse = _METHODS.parse
parse_all = _METHODS.parse_all
