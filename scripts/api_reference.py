"""Write docs/api.md, the API reference, from docstrings: python scripts/api_reference.py"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crosscut
from crosscut import methods
from crosscut.search import stopping

TARGET = Path(__file__).parents[1] / "docs" / "api.md"
HEAD = """# API reference

Made from docstrings by `python scripts/api_reference.py`; a test keeps it up to date. Names are in `crosscut` unless a
heading says otherwise.
"""


def signature(made: Any, name: str) -> str:
    """`name(a, b=1)`, on lines of at most 100 characters."""
    try:
        told = str(inspect.signature(made)).replace("'", "")
    except (TypeError, ValueError):
        return name
    line = f"{name}{told}"
    return line if len(line) <= 100 else line.replace("(", "(\n    ", 1).replace(", ", ",\n    ")


def prose(text: str) -> Iterator[str]:
    """A docstring as Markdown: sections as bold words, parameters as a list, examples and tables as they are."""
    lines, listing = text.splitlines(), False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if set(line) == {"-"}:
            continue
        if following and set(following) == {"-"}:
            listing = line == "Parameters"
            yield f"**{line}**\n"
        elif line.startswith((">>>", "...")):
            yield f"    {line}"
        elif listing and line and not line.startswith(" "):
            yield f"- `{line}`"
        else:
            yield line.replace("    ", "  ", 1) if listing else line


def section(made: Any, name: str, level: int) -> Iterator[str]:
    """A heading, the signature and the docstring of a name; of a class, its public methods too."""
    yield f"\n{'#' * level} {name}\n"
    if callable(made):
        yield f"```text\n{signature(made, name)}\n```\n"
    yield from prose(inspect.cleandoc(made.__doc__ or ""))
    if inspect.isclass(made) and not issubclass(made, Exception):
        for part, value in vars(made).items():
            inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not part.startswith("_") and inspect.isfunction(inner) and inner.__doc__:
                yield from section(inner, f"{name}.{part}", level + 1)


def reference() -> str:
    """The whole page."""
    names = [name for name in sorted(crosscut.__all__) if not inspect.ismodule(getattr(crosscut, name))]
    lines = [HEAD]
    for name in names:
        lines += section(getattr(crosscut, name), name, 2)
    lines.append("\n## Methods\n\nIn `crosscut.methods`; by name, with settings, everywhere.")
    for kind in methods.methods().values():
        lines += section(kind, f"methods.{kind.__name__}", 3)
    lines.append("\n## Stores\n\nIn `crosscut.stores`; each needs a package of its own.")
    for name in crosscut.stores.__all__:
        lines += section(getattr(crosscut.stores, name), f"stores.{name}", 3)
    lines.append("\n## Stopping rules\n\nIn `crosscut.search.stopping`; by name, with settings, everywhere.")
    for rule in stopping.stops().values():
        lines += section(rule, rule.__name__, 3)
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), encoding="utf-8")
