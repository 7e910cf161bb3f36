"""No regular expression of src takes more than linear time: each is tried with 64 kB of whatever may repeat."""

from __future__ import annotations

import ast
import re
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

import crosscut
from crosscut.datasets.folder import read_folder

SOURCE = Path(__file__).parents[2] / "src" / "crosscut"
SIZE = 64_000
LIMIT = 1.0  # seconds; usual are 10 milliseconds and less
METHODS = ("match", "fullmatch", "search", "findall", "finditer", "split", "sub")
PIECES = [".", "!", "…", " ", "\t", "\n", "#", "# ", "-", "---\n", "a", "ab ", "Z", "é", "9", "1.", "/", "\\", '"', "'"]
PIECES += [
    "(",
    ")",
    "()",
    "( ",
    "[",
    "[START]",
    "]",
    "{",
    "{query",
    ",",
    ";",
    ":",
    "@",
    ":@",
    "=",
    "_",
    "a.",
    "<",
    '")',
]
PIECES += [". ", "' ", "password=", "://", "b:c", "aeiou", "bcd"]


def expressions() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], set[str]]]:
    """Every expression whose pattern is a constant, with where it stands and the methods that are called on it."""
    files = {path: path.read_text("utf-8") for path in sorted(SOURCE.rglob("*.py"))}
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args):
                continue
            owner, method = node.func.value, node.func.attr
            if not (isinstance(owner, ast.Name) and owner.id == "re" and method in (*METHODS, "compile")):
                continue
            if not isinstance(node.args[0], ast.Constant):
                continue
            flags = 0
            for flag in [*node.args[1:], *(keyword.value for keyword in node.keywords)]:
                if isinstance(flag, ast.Attribute) and isinstance(flag.value, ast.Name) and flag.value.id == "re":
                    flags |= getattr(re, flag.attr)
            used = {method} if method != "compile" else called_on(text, node.lineno)
            where = f"{path.relative_to(SOURCE)}:{node.lineno}"
            yield where, re.compile(node.args[0].value, flags), used or {"search", "fullmatch"}


def called_on(text: str, line: int) -> set[str]:
    """The methods that a module calls on the expression that is compiled in this line."""
    name = text.splitlines()[line - 1].partition("=")[0].strip().partition(":")[0]
    return {found for found in re.findall(rf"\b{re.escape(name)}\.(\w+)\(", text) if found in METHODS}


FOUND = list(expressions())


def test_expressions_are_found() -> None:
    assert len(FOUND) >= 5


@pytest.mark.parametrize(("expression", "used"), [one[1:] for one in FOUND], ids=[one[0] for one in FOUND])
def test_an_expression_takes_linear_time(expression: re.Pattern[str] | re.Pattern[bytes], used: set[str]) -> None:
    for piece in PIECES:
        for before, after in (("", ""), ("7", "x"), ("# a", "\n"), ("---\n", "")):
            text = before + piece * (SIZE // len(piece)) + after
            given = text.encode() if isinstance(expression.pattern, bytes) else text
            for method in used:
                started = time.process_time()
                if method == "sub":
                    expression.sub(given[:0], given)  # type: ignore[type-var]
                else:
                    result = getattr(expression, method)(given)
                    deque(result if method == "finditer" else (), maxlen=0)
                seconds = time.process_time() - started
                assert seconds < 3 * LIMIT, f"{method} of {piece!r} after {before!r} took {seconds:.2f} s"


def test_documents_are_read_in_linear_time(tmp_path: Path) -> None:
    for piece in PIECES:
        text = piece * (SIZE // len(piece))
        (tmp_path / "a.md").write_text(f"# a{text}b", "utf-8")
        started = time.process_time()
        index = crosscut.Index.build(
            [{"id": "a", "title": text, "text": text}], scorer=len, encoder=None, method="exact", passages=100
        )
        (item,) = read_folder(tmp_path)
        assert time.process_time() - started < 10 * LIMIT, piece
        assert len(index) >= 1
        assert item.title.startswith("a") or "\n" in piece
