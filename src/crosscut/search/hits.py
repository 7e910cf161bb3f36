"""Results of a search: hits and cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import isfinite
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, plain_text
from crosscut.errors import InputError
from crosscut.scorers.calibration import Calibration
from crosscut.types import NO_HANDLES, NO_SCORES, Floats, Positions

REASONS = {
    "budget": "the budget is spent",
    "exhausted": "everything was scored",
    "patience": "the hits had settled",
    "confident": "more calls would hardly change the hits",
    "target recall": "enough is expected to be found",
    "deadline": "the deadline had come",
    "rounds": "all rounds were made",
    "base scores": "the scores of all items are known without a call",
}
"""Why a search stopped, in words."""
WIDTH = 80  # characters of a text in a printed hit


@dataclass(frozen=True, slots=True)
class Hit:
    """One item found: its exact score, the round that found it, and what was predicted before it was scored.

    An item that no call was left for, because the deadline had come, is of round 0: its score is what is known of it
    without a call, or NaN.
    """

    id: Any
    score: float
    round: int
    estimate: float  # NaN when it was picked without a prediction
    position: int
    text: str | None = None
    item: Item | None = field(default=None, repr=False)  # with its title and metadata, where they are known
    probability: float | None = None  # that it is relevant, where the scorer is calibrated

    @property
    def scored(self) -> bool:
        """Whether the scorer was called for it."""
        return self.round > 0

    def to_json(self) -> dict[str, Any]:
        """Return the hit as the command line and the server print it."""
        title, text, metadata = ("", self.text or "", {}) if self.item is None else self.item[1:]
        return {
            "id": str(self.id),
            "title": title,
            "text": text,
            "score": self.score if isfinite(self.score) else None,
            "scored": self.scored,
            "probability": self.probability,
            "round": self.round,
            "estimate": self.estimate if isfinite(self.estimate) else None,
            "metadata": dict(metadata),
        }


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds of a query by stage; in a batch, the share of one query."""

    scorer: float = 0.0
    fit: float = 0.0
    select: float = 0.0

    @property
    def total(self) -> float:
        return self.scorer + self.fit + self.select

    def __add__(self, other: Seconds) -> Seconds:
        return Seconds(self.scorer + other.scorer, self.fit + other.fit, self.select + other.select)


@dataclass(slots=True)
class Round:
    """One round of one query: what was picked, what had been predicted, what came out."""

    positions: Positions
    scores: Floats
    estimates: Floats
    calls: int
    cached: int
    seconds: Seconds
    predictions: npt.NDArray[np.float32] | None = None  # of every item, when the search was asked to keep them
    chances: Floats | None = None  # with which each was picked, where some were drawn at random to explore; None: 1


class Scored(NamedTuple):
    """Everything that some rounds scored, in the order of buying (m of each)."""

    positions: Positions
    scores: Floats
    rounds: Positions  # in which, from 1
    estimates: Floats

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Scored:
        """Collect the scores of rounds."""
        return cls(
            np.concatenate([NO_HANDLES, *(one.positions for one in rounds)]),
            np.concatenate([NO_SCORES, *(one.scores for one in rounds)]),
            np.repeat(np.arange(1, len(rounds) + 1), [len(one.positions) for one in rounds]),
            np.concatenate([NO_SCORES, *(one.estimates for one in rounds)]),
        )

    def hits(self, places: Positions) -> list[Hit]:
        """The items at some places, each called by its position."""
        columns = (self.positions, self.scores, self.rounds, self.estimates)
        found = zip(*(one[places].tolist() for one in columns), strict=True)
        return [Hit(position, score, number, estimate, position) for position, score, number, estimate in found]


def chances_of(rounds: Sequence[Round]) -> Floats:
    """With which each of all that these rounds scored was picked."""
    return np.concatenate([NO_SCORES, *(np.ones(len(r.scores)) if r.chances is None else r.chances for r in rounds)])


def _line(place: int, hit: Hit) -> str:
    """A hit on one line of about a hundred characters."""
    chance = "" if hit.probability is None else f"  {hit.probability:.2f}"
    text = " ".join(
        f"{hit.item.title}: {hit.text}".split() if hit.item and hit.item.title else (hit.text or "").split()
    )
    shown = text if len(text) <= WIDTH else text[:WIDTH].rsplit(" ", 1)[0] + " …"
    return f"{place:>2}  {hit.score:8.3f}{chance}  {hit.id}  {shown}".rstrip()


@dataclass(frozen=True, eq=False)
class Hits(Sequence[Hit]):
    """The best k of what was scored, by exact score, best first; the cost is part of the result."""

    query: Any
    items: tuple[Hit, ...]
    calls: int
    cached: int
    budget: int
    stop_reason: str
    trace: tuple[Round, ...] = field(default=(), repr=False)
    cost: float | None = None  # in money, where the index has a price
    note: str | None = None  # what its reader should know
    ranking: Floats | None = field(default=None, repr=False)  # what all that was scored is ordered by, if not by score
    groups: Mapping[int, float] | None = field(default=None, repr=False)  # of documents: best passage → their order
    items_at: Callable[[Positions], list[Item]] | None = field(default=None, repr=False)
    """The items at some positions, as the search saw them."""

    def to_json(self) -> dict[str, Any]:
        """Return the hits and their cost as JSON, for programs."""
        return {
            "hits": [hit.to_json() for hit in self],
            "calls": self.calls,
            "cached": self.cached,
            "budget": self.budget,
            "rounds": self.rounds,
            "stop_reason": self.stop_reason,
            "calibrated": any(hit.probability is not None for hit in self),
            "seconds": asdict(self.seconds),
            "cost": self.cost,
        }

    def __str__(self) -> str:
        """A line a hit, and what it cost: for people."""
        lines = [_line(place, hit) for place, hit in enumerate(self.items, 1)]
        rounds = f"{self.rounds} round{'' if self.rounds == 1 else 's'}"
        cost = f"{self.calls} call{'' if self.calls == 1 else 's'} in {rounds}; {self.why}"
        return "\n".join([*lines, cost, *([] if self.note is None else [self.note])])

    @overload
    def __getitem__(self, index: int) -> Hit: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Hit, ...]: ...
    def __getitem__(self, index: int | slice) -> Hit | tuple[Hit, ...]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.items)

    @property
    def why(self) -> str:
        """Why the search stopped, in words."""
        return REASONS.get(self.stop_reason, f"stopped by {self.stop_reason}")

    @property
    def ids(self) -> list[Any]:
        return [hit.id for hit in self.items]

    @property
    def scores(self) -> Floats:
        return np.array([hit.score for hit in self.items])

    @property
    def values(self) -> Floats:
        """Values that the hits are ordered by: their scores, unless another order was chosen."""
        if self.groups is not None:
            return np.array([self.groups[hit.position] for hit in self.items])
        if self.ranking is None:
            return self.scores
        own = dict(zip(self.scored.tolist(), self.ranking.tolist(), strict=True))
        return np.array([own[hit.position] for hit in self.items])

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.trace)

    @property
    def seconds(self) -> Seconds:
        return sum((round.seconds for round in self.trace), Seconds())

    def calibrated(self, calibration: Calibration, threshold: float | None = None) -> Hits:
        """Return the same hits with probabilities; with a threshold, only those of at least that probability."""
        if not len(self.scored):  # the deadline had come before the first call
            return self
        chances = calibration.probabilities(self.scores).tolist()
        hits = [replace(hit, probability=chance) for hit, chance in zip(self.items, chances, strict=True)]
        least = -np.inf if threshold is None else threshold
        return replace(self, items=tuple(hit for hit, chance in zip(hits, chances, strict=True) if chance >= least))

    def grouped(self, group: Callable[[int], Any], k: int, score: str = "best") -> Hits:
        """The k best groups of all that was scored (documents, of passages), each represented by its best item.

        A group scores as its `best` item, or as the `mean` of those of its items that were scored. Where hits are
        ranked otherwise than by score, so are groups.
        """
        if not len(self.scored):
            named = {group(hit.position): hit for hit in reversed(self.items)}
            return replace(self, items=tuple(replace(hit, id=name) for name, hit in reversed(named.items()))[:k])
        groups: dict[Any, list[tuple[float, Hit]]] = {}
        scored = Scored.of(self.trace)
        values = scored.scores if self.ranking is None else self.ranking
        for value, hit in zip(values.tolist(), scored.hits(np.arange(len(values))), strict=True):
            name = group(hit.position)
            groups.setdefault(name, []).append((value, replace(hit, id=name)))
        tops = []
        for hits in groups.values():
            value, top = min(hits, key=lambda pair: (-pair[0], pair[1].position))
            if score != "best":
                value = float(np.mean([one for one, _ in hits]))
                top = replace(top, score=float(np.mean([hit.score for _, hit in hits])))
            tops.append((value, top))
        best = sorted(tops, key=lambda pair: (-pair[0], pair[1].position))[:k]
        found = {top.position: value for value, top in tops}
        return replace(self, items=tuple(hit for _, hit in best), groups=found)

    @property
    def scored(self) -> Positions:
        """Positions of all that was scored, in order."""
        return np.concatenate([NO_HANDLES, *(round.positions for round in self.trace)])


CHARACTERS = 4
"""Of a token, about: what a provider counts is on its bill."""


@dataclass(frozen=True)
class Price:
    """Price of a scorer by calls, by tokens, or by both. Tokens are estimated, four characters each.

    >>> index.price = crosscut.Price(per_thousand_calls=2.0)
    >>> index.search("how do vaccines work").cost
    """

    per_thousand_calls: float = 0.0
    per_million_tokens: float = 0.0
    currency: str = "USD"

    def __post_init__(self) -> None:
        for name in ("per_thousand_calls", "per_million_tokens"):
            if not (isfinite(getattr(self, name)) and getattr(self, name) >= 0):
                raise InputError(f"{name} is a price of 0 or more; got {getattr(self, name)}")

    def of(self, query: str, items: Sequence[Item | str], calls: int) -> float:
        """Of `calls` pairs of a query with items like these."""
        length = sum(len(query) + len(plain_text(item)) for item in items) / CHARACTERS / max(len(items), 1)
        return calls * (self.per_thousand_calls / 1e3 + length * self.per_million_tokens / 1e6)

    def on(self, hits: Hits, items: Sequence[Item | str]) -> Hits:
        """Hits with their cost; `items` are all that were scored."""
        return replace(hits, cost=self.of(str(hits.query), items, hits.calls))
