"""Write docs/cli.md from the commands themselves: `python scripts/cli_reference.py`; a test compares."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

from crosscut.cli import app

FIRST = ("demo", "index", "build")
TARGET = Path(__file__).parent.parent / "docs/cli.md"
START = """# Commands

Made from the commands by `python scripts/cli_reference.py`; a test keeps it up to date. `crosscut COMMAND --help` says
the same. Errors are one sentence and exit code 2; `crosscut --debug COMMAND …` shows tracebacks.
"""


def commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every command that can be run, groups taken apart."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word in sorted(inner, key=lambda word: word not in FIRST):
        yield from commands(inner[word], f"{name} {word}")


def lines_of(name: str, command: Any) -> Iterator[str]:
    words, _, examples = (command.help or "").partition("Example")
    shown = [one.name.upper() if one.required else f"[{one.name.upper()}]" for one in arguments(command)]
    yield f"## {name}\n"
    yield " ".join(words.split()) + "\n"
    yield "    " + " ".join([name, *shown, "[OPTIONS]" if options(command) else ""]).rstrip() + "\n"
    if examples:
        yield "For example:\n"
        yield "\n".join(f"    {line.strip()}" for line in examples.splitlines()[1:] if line.strip()) + "\n"
    rows = [(cell(one), told(one)) for one in [*arguments(command), *options(command)]]
    if rows:
        yield "| | |\n|---|---|"
        yield "\n".join(f"| {first} | {second} |" for first, second in rows) + "\n"


def arguments(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "argument"]


def options(command: Any) -> list[Any]:
    return [one for one in command.params if one.param_type_name == "option" and one.name != "help"]


def cell(parameter: Any) -> str:
    names = [parameter.name] if parameter.param_type_name == "argument" else parameter.opts
    return ", ".join(f"`{name}`" for name in names)


def told(parameter: Any) -> str:
    """What it is for, and what it is when it is not given."""
    text = " ".join((parameter.help or "").split())
    default, shown = parameter.default, getattr(parameter, "show_default", None)
    if isinstance(shown, str):
        text += f" Default: {shown}."
    elif isinstance(default, str | int | float) and not isinstance(default, bool) and default not in ("", 0.0):
        text += f" Default: `{default}`."
    return text.replace("|", "\\|")


def page() -> str:
    parts = [START]
    for name, command in commands(get_command(app), "crosscut"):
        parts += lines_of(name, command)
    return "\n".join(parts).rstrip() + "\n"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
    print(f"wrote {TARGET}")
