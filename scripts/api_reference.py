"""Write docs/api.md and docs/api_rooms.md, the API reference, from docstrings: python scripts/api_reference.py"""

from __future__ import annotations

import inspect
import runpy
from collections.abc import Iterator
from importlib import import_module
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

ROOMS_HEAD = """# API of the rooms

Made from docstrings by `python scripts/api_reference.py`; a test keeps it up to date. What is in `crosscut` itself has
[a page of its own](api.md).
"""
ROOMS: dict[str, tuple[str, ...]] = {  # no names: those of `__all__`
    "crosscut.scorers": (),
    "crosscut.scorers.http": ("RerankEndpoint",),
    "crosscut.scorers.chat": ("ChatJudge",),
    "crosscut.scorers.named": ("load_scorer",),
    "crosscut.encoders.named": ("DualEncoder", "load_encoder"),
    "crosscut.scores": (),
    "crosscut.scores.engines": ("LocalEngine", "RayEngine"),
    "crosscut.datasets": (),
    "crosscut.retrievers": (),
    "crosscut.evaluation.judged": ("points", "truth_of"),
    "crosscut.server": (),
    "crosscut.integrations.langchain": ("CrosscutRetriever", "CrosscutCompressor"),
    "crosscut.integrations.llama_index": ("CrosscutRetriever", "CrosscutPostprocessor"),
    "crosscut.integrations.haystack": ("CrosscutRetriever", "CrosscutRanker"),
    "crosscut.integrations.pyterrier": ("CrosscutIndex",),
    "crosscut.integrations.mteb": ("CrosscutSearch",),
}


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


def section(made: Any, name: str, level: int, *, own: bool = True) -> Iterator[str]:
    """A heading, the signature (where it is our own) and the docstring of a name; of a class, its methods too."""
    yield f"\n{'#' * level} {name}\n"
    if callable(made) and own:
        yield f"```text\n{signature(made, name)}\n```\n"
    yield from prose(inspect.cleandoc(made.__doc__ or ""))
    if own and inspect.isclass(made) and not issubclass(made, Exception):
        for part, value in _members(made).items():
            inner = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            if not part.startswith("_") and inspect.isfunction(inner) and inner.__doc__:
                yield from section(inner, f"{name}.{part}", level + 1)


def _members(made: type) -> dict[str, Any]:
    """What a class says itself, and what it has of the roles that it is made of, which are no names of their own."""
    told = [base for base in made.__mro__[1:] if base.__module__.startswith(("crosscut.index.", "crosscut.ann."))]
    return vars(made) | {name: value for base in told for name, value in vars(base).items() if name not in vars(made)}


def reference() -> str:
    """The page of `crosscut` itself, its methods, stores and stopping rules."""
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
    return _tidy(lines)


def rooms() -> str:
    """The page of the modules that one imports for a purpose: scorers, scores, readers, the server, adapters."""
    lines = [ROOMS_HEAD]
    for module, names in ROOMS.items():
        room = import_module(module)
        lines.append(f"\n## {module}\n\n" + inspect.cleandoc(room.__doc__ or "").split("\n\n")[0])
        for name in names or sorted(room.__all__):
            made = getattr(room, name)
            if inspect.isclass(made) or inspect.isfunction(made):
                own = not module.startswith("crosscut.integrations")  # fields of other packages come and go
                lines += section(made, name if own else f"{module.rsplit('.', 1)[1]}.{name}", 3, own=own)
    return _tidy(lines)


def _tidy(lines: list[str]) -> str:
    return "\n".join(line.rstrip() for line in "\n".join(lines).splitlines()) + "\n"


PAGES = {TARGET: reference, TARGET.with_name("api_rooms.md"): rooms}


if __name__ == "__main__":
    for path, made in PAGES.items():
        path.write_text(made(), encoding="utf-8")
    runpy.run_path(str(Path(__file__).with_name("cli_reference.py")), run_name="__main__")  # docs/cli.md
