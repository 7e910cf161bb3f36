"""Values with names: the repr of a method or a stopping rule is its name in Python, shell, JSON and HTTP.

    AXN(rounds=10, mix=0.8)  ⇄  "axn@rounds=10,mix=0.8"

A `Named` is a frozen dataclass with a `name`; its repr lists only settings that differ from their defaults. A
`Registry` knows the classes of one kind: those that its decorator registers, those of installed packages (entry
points), and those that a module of `CROSSCUT_PLUGINS` registers.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import importlib
import os
import types
import typing
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from math import isfinite
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, Self, TypeVar

from crosscut.errors import InputError

N = TypeVar("N", bound="Named")
C = TypeVar("C")


@dataclass(frozen=True, repr=False)
class Named:
    """A value whose repr is its name. Settings are checked against their types."""

    name: ClassVar[str]

    def __post_init__(self) -> None:
        kinds = kinds_of(type(self))
        for setting in dataclasses.fields(self):
            _check(self.name, setting.name, getattr(self, setting.name), kinds[setting.name])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that differ from their defaults."""
        values = {s.name: (getattr(self, s.name), s.default) for s in dataclasses.fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}

    def with_settings(self, settings: Mapping[str, Any]) -> Self:
        """Return a copy with some settings changed."""
        known = [setting.name for setting in dataclasses.fields(self)]
        unknown = ", ".join(repr(name) for name in settings if name not in known)
        if unknown:
            raise InputError(f"{self.name} has no setting {unknown}: it takes {', '.join(known) or 'none'}")
        return dataclasses.replace(self, **settings)

    def __repr__(self) -> str:
        settings = ",".join(f"{name}={_text(value)}" for name, value in self.settings.items())
        return f"{self.name}@{settings}" if settings else self.name


class Registry(Generic[N]):
    """The classes of one kind, by name.

    `synonyms` are other names of classes, `elsewhere` maps names of classes to the packages that bring them.
    """

    def __init__(
        self,
        kind: str,
        example: str,
        synonyms: Mapping[str, str] = MappingProxyType({}),
        elsewhere: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.kind, self.example, self.synonyms, self.elsewhere = kind, example, synonyms, elsewhere
        self._known: dict[str, type[N]] = {}
        self._broken: dict[str, str] = {}  # plug-ins that cannot be used, and why

    def register(self, added: type[C]) -> type[C]:
        """Add a class; a decorator."""
        if not (isinstance(added, type) and issubclass(added, Named) and added.__dict__.get("name")):
            name = getattr(added, "__name__", repr(added))
            raise InputError(f"{name} is not a frozen dataclass with a `name`, which a {self.kind} must be")
        self._known[added.name] = added  # type: ignore[assignment]
        return added

    def known(self) -> dict[str, type[N]]:
        """Return every class by name, those of plug-ins included."""
        self._load_plugins()
        return dict(sorted(self._known.items()))

    @functools.cache  # noqa: B019  (registries live as long as the process)
    def _load_plugins(self) -> None:
        for entry in _entry_points().select(group=f"crosscut.{self.kind}s".replace(" ", "_")):
            try:
                added = entry.load()
                if self._known.get(getattr(added, "name", ""), added) is not added:
                    raise InputError(f"there is a {self.kind} called {added.name!r} already")
                self.register(added)
            except (Exception, SystemExit) as error:  # another package must not break this one
                self._broken[entry.name] = f"{entry.value} failed ({type(error).__name__}: {error})"
                warnings.warn(f"the {self.kind} {entry.name!r} is left out: {self._broken[entry.name]}", stacklevel=2)
        for module in filter(None, os.environ.get("CROSSCUT_PLUGINS", "").split(",")):
            try:
                importlib.import_module(module.strip())
            except (Exception, SystemExit) as error:
                raise InputError(
                    f"CROSSCUT_PLUGINS names {module.strip()!r}, which cannot be imported ({type(error).__name__}: "
                    f"{error}): correct the module, or remove it from the variable"
                ) from error

    def parse(self, text: str | N) -> N:
        """Return the value of a name; a value is returned as it is."""
        if isinstance(text, Named):
            return text
        if not isinstance(text, str):
            raise InputError(f"a {self.kind} is a name such as {self.example!r}, or a value; got {text!r}")
        name, _, rest = text.partition("@")
        name = self.synonyms.get(name, name)
        known = self.known()
        if name not in known:
            why = f" ({self._broken[name]})" if name in self._broken else ""
            if name in self.elsewhere and not why:
                package = self.elsewhere[name]
                raise InputError(f"{name} is a {self.kind} of {package}: pip install {package}")
            raise InputError(f"unknown {self.kind} {name!r}{why}: choose one of {', '.join(known)}")
        kinds = kinds_of(known[name])
        settings: dict[str, Any] = {}
        for part in filter(None, rest.split(",")):
            setting, equals, value = part.partition("=")
            if not equals:
                raise InputError(f"{text!r}: settings are written name=value, and {part!r} has no '='")
            settings[setting] = _value(value, kinds.get(setting, ()))
        return known[name]().with_settings(settings)

    def parse_all(self, text: str) -> list[N]:
        """Return several values, separated by commas; a part `setting=value` belongs to the one before it."""
        labels: list[str] = []
        for part in filter(None, text.replace(" ", ",").split(",")):
            if labels and "=" in part and "@" not in part:
                labels[-1] += f"{',' if '@' in labels[-1] else '@'}{part}"
            else:
                labels.append(part)
        return [self.parse(label) for label in labels]


@functools.cache
def _entry_points() -> Any:
    return entry_points()


_KINDS: dict[Any, dict[str, tuple[Any, ...]]] = {}


def kinds_of(named: Any) -> dict[str, tuple[Any, ...]]:
    """Return the types that each setting may have; of a Literal, its values."""

    def parts(hint: Any) -> Iterator[Any]:
        if typing.get_origin(hint) in (types.UnionType, typing.Union, Literal):
            for one in typing.get_args(hint):
                yield from parts(one)
        else:
            yield hint

    if named not in _KINDS:
        hints = typing.get_type_hints(named)
        _KINDS[named] = {setting.name: tuple(parts(hints[setting.name])) for setting in dataclasses.fields(named)}
    return _KINDS[named]


def _check(owner: str, name: str, value: Any, kinds: tuple[Any, ...]) -> None:
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
    raise InputError(f"{name} of {owner} is {wanted}; got {value!r}")


def _value(text: str, kinds: tuple[Any, ...]) -> Any:
    """Return the value of a setting that is written as text."""
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


SYNONYMS = {**dict.fromkeys(("top_k", "topk", "limit", "n", "size", "num_results"), "k"), "max_calls": "budget"}
"""Names that other libraries have for arguments of a search."""


def check_keywords(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse keyword arguments that a function does not have, with the name that was probably meant."""
    names = ["k", "budget", *known]
    for name in given:
        if name not in names:
            close = [SYNONYMS[name]] if name in SYNONYMS else difflib.get_close_matches(name, names, 1)
            raise TypeError(f"{function}() has no argument {name!r}{f': did you mean {close[0]}?' if close else ''}")
