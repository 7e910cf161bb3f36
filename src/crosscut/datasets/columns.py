"""Which columns of a record are an item's text, title and id: named by the user, or by their usual names.

| | when not named | and when that is not there |
|---|---|---|
| text | `text` or `contents` | asked for |
| id | `_id` or `id` | the number of the record |
| title | `title` | none |

Two values under the usual names of one thing are never chosen between: the record is refused with a sentence that
asks. What is left over is metadata; an object under `metadata` is taken apart.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from crosscut.datasets.files import as_text
from crosscut.datasets.records import Item
from crosscut.errors import InputError

TEXT, TITLE, ID = ("text", "contents"), ("title",), ("_id", "id")


class ColumnNames(TypedDict, total=False):
    """The keywords of everything that reads items: names of columns, of keys, of a JSON record's entries."""

    text: str | None
    title: str | None
    id: str | None
    metadata: Sequence[str] | None
    numbers: Sequence[str]


@dataclass(frozen=True)
class Columns:
    """Names of columns. `metadata` None is every other column; `numbers` are those to be read as numbers in files that
    hold only texts (CSV, TSV), where 01234 may be a code."""

    text: str | None = None
    title: str | None = None
    id: str | None = None
    metadata: Sequence[str] | None = None
    numbers: Sequence[str] = ()

    def __post_init__(self) -> None:
        named = [name for name in (self.text, self.title, self.id) if name is not None]
        if len(set(named)) < len(named):
            fields = f"text={self.text!r}, title={self.title!r}, id={self.id!r}"
            raise InputError(f"text, title and id are three columns; got {fields}")
        if isinstance(self.metadata, str) or isinstance(self.numbers, str):
            raise InputError(f"metadata and numbers are lists of names; got {self.metadata!r} and {self.numbers!r}")

    @property
    def given(self) -> list[str]:
        """The names that the user gave, which must be there."""
        return [name for name in (self.text, self.title, self.id, *(self.metadata or ()), *self.numbers) if name]

    def check(self, names: Sequence[str], where: str) -> None:
        """Refuse a table that lacks a column that was named, and one whose text is not known."""
        missing = [name for name in self.given if name not in names]
        if missing:
            raise InputError(
                f"{where} has no column {missing[0]!r}{_meant(missing[0], names)}; its columns are {', '.join(names)}"
            )
        if self.text is None and not set(TEXT) & set(names):
            raise self._untold(where, names)

    def item(self, record: Mapping[str, Any], where: str, number: int) -> Item:
        """One record as an item; `where` says of what it is the record of this number."""
        place = f"{where} {number}"
        rest = dict(record)
        text = self._taken(rest, self.text, TEXT, place)
        if text is None:
            raise self._untold(place, list(record))
        id, title = self._taken(rest, self.id, ID, place), self._taken(rest, self.title, TITLE, place, optional=True)
        return Item(str(number) if id is None else id, title or "", text, self._metadata(rest, place))

    def _taken(
        self, rest: dict[str, Any], name: str | None, usual: tuple[str, ...], place: str, *, optional: bool = False
    ) -> str | None:
        """The text of a column, which is then no metadata."""
        if name is None:
            there = [key for key in usual if key in rest]
            if len(there) > 1 and rest[there[0]] == rest[there[1]]:
                del rest[there.pop()]  # one thing under two names
            if len(there) > 1:
                what = "text" if usual is TEXT else "id"
                raise InputError(f"{place} has {there[0]!r} and {there[1]!r}: say which is the {what}, {what}=…")
            if not there:
                return None
            name = there[0]
        elif name not in rest:
            raise InputError(f"{place} has no {name!r}; its keys are {sorted(rest)}")
        value = rest.pop(name)
        return None if optional and value is None else as_text(value, name, place)

    def _metadata(self, rest: dict[str, Any], place: str) -> dict[str, Any]:
        inner = rest.pop("metadata", None)
        if isinstance(inner, Mapping):
            rest.update(inner)
        elif inner is not None:
            rest["metadata"] = inner
        if self.metadata is not None:
            rest = {name: rest[name] for name in self.metadata if name in rest}
        for name in self.numbers:
            if isinstance(rest.get(name), str):
                rest[name] = _number(rest[name], name, place)
        return rest

    def _untold(self, where: str, names: Sequence[str]) -> InputError:
        return InputError(
            f"{where} has no 'text' or 'contents'; it has {', '.join(map(repr, names))}: "
            "name the one to search, text=… (--text on the command line)"
        )


def _meant(name: str, names: Sequence[str]) -> str:
    """A column that is nearly called so."""
    usual = {one.casefold(): one for one in names}
    close = difflib.get_close_matches(name.casefold(), usual, 1)
    return f" (did you mean {usual[close[0]]!r}?)" if close else ""


def _number(text: str, name: str, place: str) -> int | float:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    raise InputError(f"{place}: {name!r} is {text!r:.40}, which is no number; leave it out of numbers=")
