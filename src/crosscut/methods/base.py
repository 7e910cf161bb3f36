"""A method is a value: typed settings, what it needs, what of it can be tuned, and its plan for given parts.

Its `repr` is its name everywhere, in Python, on the command line, in JSON and over HTTP:

    AXN(rounds=10, mix=0.8)  ⇄  "axn@rounds=10,mix=0.8"

A method of one's own is a frozen dataclass that inherits from `Method` and joins by `@register`, or by an entry point
of the group `crosscut.methods`; from then on it works by name wherever a method is asked for.
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from math import isfinite
from typing import Any, ClassVar, Literal, Self, TypeAlias, TypeVar

from crosscut.ann.base import Everything, Pool
from crosscut.ann.linear import topk_of
from crosscut.errors import InputError
from crosscut.retrievers.first import Dense, Drawn, Filled, FirstStage, Lexical, Retriever, Union
from crosscut.search.loop import Plan
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR
from crosscut.spaces.items import ItemScores

First: TypeAlias = Literal["auto", "dense", "lexical", "union", "random"] | FirstStage
"""Round one: by query vector, by words, by both in turn, by chance; `auto` is the method's own choice."""

WAYS = {
    "encoder": "pass vectors=, item vectors of a dual encoder",
    "anchors": "pass space=CUR(anchor_scores)",
    "factors": "pass space=factorize(…)",
    "item_scores": "pass space=ItemScores(scores, anchors)",
    "words": "pass words=BM25(texts)",
    "n": "the items must be countable",
}
"""How somebody with a `Searcher` provides each part."""

NAMES = {
    "encoder": "item vectors",
    "anchors": "scores of anchor queries",
    "factors": "factors",
    "item_scores": "item–item scores",
    "words": "words of the items",
    "n": "number of items",
}


@dataclass(frozen=True)
class Parts:
    """What methods are made from. Every slot may be empty; `missing` of a method says what it cannot do without."""

    encoder: Space | None = None  # vectors in the space of the query vectors
    anchors: CUR | None = None  # scores of anchor queries
    factors: Space | None = None  # of a sparse score matrix
    item_scores: ItemScores | None = None
    words: Retriever | None = None  # BM25, TF-IDF
    n: int | None = None  # None: not known
    seed: int = 0
    own: Mapping[str, Any] = field(default_factory=dict)  # what methods of one's own bring along
    ways: Mapping[str, str] = field(default_factory=lambda: WAYS)  # how the caller would provide a slot

    @property
    def pool(self) -> Pool:
        """What chance draws from."""
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
        """What to say if none of these slots is filled."""
        if any(getattr(self, slot) is not None for slot in slots):
            return None
        what = " or ".join(NAMES[slot] for slot in slots)
        return f"needs {what} and has none: {', or '.join(self.ways[slot] for slot in slots)}"

    def stage(self, first: First, own: FirstStage | None = None) -> FirstStage:
        """Round one by name; `own` is what `auto` means to a method (if not: by query vector, else by chance)."""
        if not isinstance(first, str):
            if first.ranks is not None and self.n is not None and first.ranks != self.n:
                raise InputError(f"the first stage ranks {first.ranks} items and the search has {self.n}")
            return first
        if first == "auto" and own is not None:
            return own
        slot = {"dense": "encoder", "lexical": "words"}.get(first, "")
        if slot and (told := self.lacks(slot)) is not None:
            raise InputError(f"first={first!r} {told}")
        drawn = Drawn(self.pool)
        stages: dict[str, FirstStage] = {"random": drawn}
        if self.encoder is not None:
            stages["dense"] = Dense(topk_of(self.encoder), None if first == "dense" else drawn)
        if self.words is not None:
            stages["lexical"] = Filled(Lexical(self.words), drawn)
        if first == "union":
            several = tuple(stages[name] for name in ("dense", "lexical") if name in stages)
            return Filled(Union(several), drawn)
        return stages.get("dense" if first == "auto" else first, drawn)


M = TypeVar("M", bound="Method")
_METHODS: dict[str, type[Method]] = {}


@dataclass(frozen=True, repr=False)
class Method(ABC):
    """A method and its settings. `name` is what it is called; `needs` the parts it cannot do without."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    tried: ClassVar[bool] = True  # by `tune`, when it is not told what to try

    def __post_init__(self) -> None:
        for setting in dataclasses.fields(self):
            _check(self.name, setting.name, getattr(self, setting.name), _kinds(type(self))[setting.name])

    @abstractmethod
    def plan(self, parts: Parts) -> Plan:
        """The parts of the loop. Called only if nothing is `missing`."""

    def missing(self, parts: Parts) -> str | None:
        """What is lacking, as the end of a sentence that begins with the method's name; None: nothing is."""
        return next((told for told in map(parts.lacks, self.needs) if told is not None), None)

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        """What `tune` tries, one setting after another, beside the values that it has."""
        return {}

    def budget(self, asked: int | None, size: int | None) -> int:
        """The calls of a query that may score `size` items (None: not known) and named this many, or none."""
        return 100 if asked is None else asked

    def made(self, parts: Parts) -> Plan:
        """The plan, or an error that says what is missing."""
        if (told := self.missing(parts)) is not None:
            raise InputError(f"{self.name} {told}")
        return self.plan(parts)

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """The same method with some settings changed."""
        known = [setting.name for setting in dataclasses.fields(self)]
        unknown = [name for name in settings if name not in known]
        if unknown:
            told = ", ".join(map(repr, unknown))
            raise InputError(f"{self.name} has no setting {told}: it takes {', '.join(known) or 'none'}")
        return dataclasses.replace(self, **settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that are not as usual."""
        values = {s.name: (getattr(self, s.name), s.default) for s in dataclasses.fields(self)}
        return {name: value for name, (value, usual) in values.items() if value != usual}

    def __repr__(self) -> str:
        told = ",".join(f"{name}={_text(value)}" for name, value in self.settings.items())
        return f"{self.name}@{told}" if told else self.name

    __str__ = __repr__


def register(method: type[M]) -> type[M]:
    """Add a method to those that are known by name; a class decorator."""
    if not dataclasses.is_dataclass(method) or not getattr(method, "name", ""):
        raise InputError(f"{method.__name__} is not a frozen dataclass with a `name`, which a method must be")
    _METHODS[method.name] = method
    return method


@functools.cache
def _plugins() -> None:
    """Methods that installed packages bring: classes named by entry points of the group `crosscut.methods`."""
    for entry in entry_points(group="crosscut.methods"):
        register(entry.load())


def methods() -> dict[str, type[Method]]:
    """Every method by name, those of installed packages included."""
    _plugins()
    return dict(sorted(_METHODS.items()))


def parse(method: str | Method) -> Method:
    """The method of a name: `"axn@rounds=10,mix=0.8"`. A method is itself."""
    if isinstance(method, Method):
        return method
    if not isinstance(method, str):
        raise InputError(f"a method is a name such as 'axn@rounds=10', or a Method; got {method!r}")
    name, _, rest = method.partition("@")
    known = methods()
    if name not in known:
        raise InputError(f"unknown method {name!r}: choose one of {', '.join(known)}")
    kind = known[name]
    settings: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        setting, equals, text = part.partition("=")
        if not equals:
            raise InputError(f"{method!r}: settings are written name=value, and {part!r} has no '='")
        settings[setting] = _value(text, _kinds(kind).get(setting, ()))
    return kind().with_settings(settings)


def parse_all(text: str) -> list[Method]:
    """Several methods, separated by commas; a part `setting=value` belongs to the method before it."""
    labels: list[str] = []
    for part in filter(None, text.replace(" ", ",").split(",")):
        if labels and "=" in part and "@" not in part:
            labels[-1] += f",{part}"
        else:
            labels.append(part)
    return [parse(label) for label in labels]


@functools.cache
def _kinds(method: type[Method]) -> dict[str, tuple[Any, ...]]:
    """The types that each setting may have; of a Literal, its values."""

    def parts(hint: Any) -> Iterable[Any]:
        origin = typing.get_origin(hint)
        if origin in (types.UnionType, typing.Union, Literal):
            for one in typing.get_args(hint):
                yield from parts(one)
        else:
            yield hint

    hints = typing.get_type_hints(method)
    return {setting.name: tuple(parts(hints[setting.name])) for setting in dataclasses.fields(method)}


def _check(method: str, name: str, value: Any, kinds: tuple[Any, ...]) -> None:
    """Refuse a value that a setting cannot have."""
    names = [kind for kind in kinds if isinstance(kind, str)]
    if value in names or (value is None and type(None) in kinds):
        return
    classes = tuple(kind for kind in kinds if isinstance(kind, type) and kind is not type(None))
    if float in classes:
        classes += (int,)
    real = not isinstance(value, float) or isfinite(value)
    if isinstance(value, classes) and real and (bool in classes or not isinstance(value, bool)):
        return
    wanted = f"one of {', '.join(names)}" if names else "a number" if float in classes else "a whole number"
    raise InputError(f"{name} of {method} is {wanted}; got {value!r}")


def _value(text: str, kinds: tuple[Any, ...]) -> Any:
    """A setting as it was written."""
    if text == "none" and type(None) in kinds:
        return None
    if text in ("true", "false") and bool in kinds:
        return text == "true"
    for kind in (int, float):
        if kind in kinds or kind is int:
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
