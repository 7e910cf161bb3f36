"""Filters of other libraries as crosscut's own: a mapping of metadata to values, lists of values, or bounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from crosscut.errors import InputError

OPERATORS = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte", "!=": "ne"}


def conditions_of(filters: Mapping[str, Any]) -> dict[str, Any]:
    """A filter of Haystack ({"field": "meta.year", "operator": ">=", "value": 2000}, joined by AND), or one of ours."""
    if "operator" not in filters or not filters.keys() & {"field", "conditions"}:
        return dict(filters)
    made: dict[str, Any] = {}
    for condition in _leaves(filters):
        key = str(condition["field"]).removeprefix("meta.")
        sign, value = condition["operator"], condition["value"]
        if sign == "in" and not isinstance(value, list | tuple | set | frozenset):
            raise InputError(f"'in' takes a list of values; got {value!r} on {key!r}: put it into a list, or use '=='")
        if sign in ("==", "in"):
            _alone(key, made)
            made[key] = list(value) if sign == "in" else value
        elif sign in OPERATORS:
            if not isinstance(made.setdefault(key, {}), dict) or OPERATORS[sign] in made[key]:
                _alone(key, made)
            made[key][OPERATORS[sign]] = value
        else:
            raise InputError(f"a filter compares by ==, in, {', '.join(OPERATORS)}; got {sign!r} on {key!r}")
    return made


def _leaves(filters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The comparisons of a filter, all of which must hold."""
    wanted = {"field", "operator", "value"} if "field" in filters else {"operator", "conditions"}
    if lacking := sorted(wanted - filters.keys()):
        raise InputError(
            f"a part of the filter has no {' and no '.join(map(repr, lacking))}; got {dict(filters)!r}: a comparison "
            "has a field, an operator and a value, several have the operator 'AND' and a list of conditions"
        )
    if "field" in filters:
        return [filters]
    if filters["operator"] != "AND":
        told = filters["operator"]
        raise InputError(f"the conditions of a filter hold together (AND); {told!r} cannot be asked of an index")
    return [leaf for inner in filters["conditions"] for leaf in _leaves(inner)]


def _alone(key: str, made: Mapping[str, Any]) -> None:
    if key in made:
        raise InputError(f"two conditions on {key!r} cannot be joined: give one, or bounds")
