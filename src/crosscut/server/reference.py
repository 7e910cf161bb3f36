"""/docs: the API as a page, made here from the schema; nothing is loaded from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any

STYLE = "/page/style.css"


def page(schema: dict[str, Any]) -> str:
    """The OpenAPI schema as HTML."""
    parts = [part for path, kinds in schema["paths"].items() for part in _path(path, kinds, schema)]
    head = f"<title>crosscut {escape(schema['info']['version'])}: the API</title><link rel=stylesheet href={STYLE}>"
    about = (
        f"<p>{escape(schema['info']['description'])} The same for programs: <a href=/openapi.json>openapi.json</a>.</p>"
    )
    body = f"<main><h1>The API</h1>{about}{''.join(parts)}</main>"
    return f"<!doctype html><html lang=en><meta charset=utf-8>{head}{body}</html>"


def _path(path: str, kinds: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    for kind, told in kinds.items():
        yield f"<section><h2>{kind.upper()} {escape(path)}</h2>"
        body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
        if body is not None:
            yield from _fields("It takes", body, schema)
        asked = [(one["name"], one["schema"], one.get("required", False)) for one in told.get("parameters", ())]
        if asked:
            yield _table("It takes", asked)
        answer = told["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
        if answer is not None:
            yield from _fields("It answers", answer, schema)
        problems = {code: one["description"] for code, one in told["responses"].items() if code != "200"}
        if problems:
            lines = "".join(f"<tr><td>{escape(code)}<td>{escape(text)}" for code, text in sorted(problems.items()))
            yield f"<h3>Or</h3><table>{lines}</table>"
        yield "</section>"


def _fields(title: str, shape: dict[str, Any], schema: dict[str, Any]) -> Iterator[str]:
    found = _named(shape, schema)
    if found is None:
        yield f"<h3>{title}</h3><p>{escape(_kind(shape))}</p>"
        return
    needed = found.get("required", ())
    yield _table(title, [(name, one, name in needed) for name, one in found.get("properties", {}).items()])


def _named(shape: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any] | None:
    name = shape.get("$ref", shape.get("items", {}).get("$ref", "")).rpartition("/")[2]
    found: dict[str, Any] | None = schema.get("components", {}).get("schemas", {}).get(name)
    return found


def _table(title: str, fields: list[tuple[str, dict[str, Any], bool]]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(name)}</code><td>{escape(_kind(one))}{' (needed)' if needed else ''}"
        f"<td>{escape(one.get('description', ''))}"
        for name, one, needed in fields
    )
    return f"<h3>{title}</h3><table>{rows}</table>"


def _kind(shape: dict[str, Any]) -> str:
    """A type in words, with its limits and its default."""
    if "$ref" in shape:
        return str(shape["$ref"]).rpartition("/")[2]
    options = shape.get("anyOf")
    kind = " or ".join(map(_kind, options)) if options else str(shape.get("type", "anything"))
    if "items" in shape:
        kind = f"array of {_kind(shape['items'])}"
    limits = {"minimum": "≥", "maximum": "≤", "exclusiveMinimum": ">", "exclusiveMaximum": "<"}
    told = [f"{sign} {shape[name]}" for name, sign in limits.items() if name in shape]
    told += [
        f"{shape[name]} at {end}" for name, end in (("minLength", "least"), ("maxLength", "most")) if name in shape
    ]
    told += [f"default {shape['default']}"] if shape.get("default") is not None else []
    return f"{kind} ({', '.join(told)})" if told else kind
