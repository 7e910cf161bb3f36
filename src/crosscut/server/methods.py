"""The methods that clients may name: one string, `axn@rounds=10,mix=0.8`.

The one place of the server that knows what such a string means; which methods there are, the index says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from crosscut.errors import CrosscutError, InputError
from crosscut.evaluation.replay import parse_method
from crosscut.index import Index
from crosscut.search.methods import recipes


@dataclass(frozen=True)
class Method:
    """A method as a client named it."""

    text: str
    name: str
    settings: dict[str, Any]

    @property
    def rounds(self) -> int:
        """How many rounds it says it makes; ten, if it does not say."""
        said = self.settings.get("rounds")
        return said if isinstance(said, int) else 10


def check_method(index: Index, known: Sequence[str], text: str | None) -> Method:
    """The method of this text, the index's own for None; an InputError for what is not `available`."""
    if text is None:
        return Method(index.method, index.method, {})
    name, settings = parse_method(text)
    if name not in known:
        raise InputError(f"the method {name!r} is none that this server can search with: {', '.join(known)}")
    for setting, value in settings.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{text!r}: {setting} is no real number")
    return Method(text, name, settings)


def available(index: Index) -> list[str]:
    """The names of the methods that this index can be searched with."""
    return [name for name in recipes() if _possible(index, Method(name, name, {}))]


def keywords(index: Index, method: Method) -> dict[str, Any]:
    """The arguments of `index.search_many` for a method; an InputError if its settings do not fit."""
    settings = dict(method.settings)
    first = settings.pop("first", None)
    if settings or first is not None:
        own = index.settings if method.name == index.method else {}
        try:
            index._state.searcher(method.name, first or "auto", {**own, **settings})
        except CrosscutError:
            raise
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise InputError(f"the settings of {method.text!r} do not fit: {error}") from error
    return {"method": method.name, "first": first, **settings}


def _possible(index: Index, method: Method) -> bool:
    try:
        index._state.searcher(method.name, "auto", method.settings)
    except InputError:
        return False
    return True
