"""The house: rooms import earlier rooms, never later ones; files and functions stay small."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "crosscut"
ROOMS = (
    ("types", "errors", "names", "latest"),
    ("storage", "threads", "measures"),
    ("linalg",),
    ("datasets",),
    ("retrieval",),
    ("encoders",),
    ("scorers",),
    ("scores",),
    ("spaces",),
    ("ann", "stores"),
    ("retrievers",),
    ("search",),
    ("methods",),
    ("searcher",),
    ("two_scorers",),
    ("index",),
    ("evaluation", "training"),
    ("integrations", "demo", "demo_report", "demo_states"),
    ("server",),
    ("cli", "__main__"),
)
FLOOR = {room: number for number, rooms in enumerate(ROOMS) for room in rooms}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    """Rooms that a file imports when it runs; what only type checkers see does not count."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body.clear()
    for node in ast.walk(tree):
        names: list[str] = []
        if not isinstance(node, ast.ImportFrom | ast.Import):
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module] if node.module != "crosscut" else [f"crosscut.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "crosscut" and len(parts) > 1 and parts[1] in FLOOR:
                yield node.lineno, parts[1]


def test_every_file_is_in_a_room() -> None:
    assert {room_of(path) for path in FILES} - {"__init__"} <= {*FLOOR}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_to_earlier_rooms(path: Path) -> None:
    if room_of(path) == "__init__":
        return
    own = FLOOR[room_of(path)]
    later = [f"line {line}: {room}" for line, room in imported(path) if FLOOR[room] > own]
    assert not later, f"{room_of(path)} imports from later rooms: {later}"


def test_files_stay_near_a_screen() -> None:
    large = {str(path.relative_to(SOURCE)): len(path.read_text("utf-8").splitlines()) for path in FILES}
    assert {name: size for name, size in large.items() if size > 400} == {}


SAME = {"CrosscutRetriever"}  # as every framework calls it


def test_one_name_is_one_thing() -> None:
    """No class has the name of another: who reads one knows which is meant."""
    homes: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in homes.items() if len(found) > 1 and name not in SAME} == {}


def branches(node: ast.AST) -> int:
    kinds = (ast.If, ast.For, ast.While, ast.IfExp, ast.ExceptHandler, ast.comprehension)
    return sum(
        isinstance(part, kinds) + (len(part.values) - 1 if isinstance(part, ast.BoolOp) else 0)
        for part in ast.walk(node)
    )


def test_functions_stay_simple() -> None:
    """More than fifteen branches need a reason, told in the docstring: "one function, because …"."""
    complex = []
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and branches(node) > 15:
                reason = "because" in (ast.get_docstring(node) or "")
                complex += [] if reason else [f"{path.relative_to(SOURCE)}: {node.name} has {branches(node)}"]
    assert not complex


def test_the_tree_of_errors_stands_in_one_file() -> None:
    """And is drawn at its top, with every branch."""
    drawn = ast.get_docstring(ast.parse((SOURCE / "errors.py").read_text("utf-8"))) or ""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef) and any("Error" in ast.unparse(base) for base in node.bases):
                assert path.name == "errors.py", f"{node.name} stands in {path.relative_to(SOURCE)}"
                assert node.name in drawn
