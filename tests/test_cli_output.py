"""What the command line prints: nothing is read as markup, everything is readable at 80 columns and in pipes."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from rich.console import Console

from crosscut import cli
from crosscut.cli import common
from crosscut.errors import MissingDependency

COLUMNS = ("method", "calls", *(f"measure {name}" for name in "abcdef"))
ROWS = [("axn@rounds=10,mix=0.8", 100, *(f"0.{j}23 ±0.0{j}" for j in range(6))), ("crosscut", 97, *["–"] * 6)]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prints to a terminal of so many columns; what was printed is read from it."""

    def made(width: int) -> io.StringIO:
        file = io.StringIO()

        def console(**options: Any) -> Console:
            options.pop("stderr", None)
            return Console(file=file, width=width, force_terminal=True, color_system=None, **options)

        plain = {"highlight": False, "markup": False, "emoji": False}
        monkeypatch.setattr(common, "console", lambda **options: console(**plain, **options))
        return file

    return made


def test_a_table_in_a_pipe_has_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    common.table("a [title]", COLUMNS, ROWS, note="a [note] :smile:")
    title, head, first, second, note = capsys.readouterr().out.splitlines()
    assert (title, note) == ("a [title]", "a [note] :smile:")
    assert head.split("  ")[0] == "method"
    assert first.split() == [str(word) for cell in ROWS[0] for word in str(cell).split()]
    assert second.split() == ["crosscut", "97", *["–"] * 6]
    assert head.index("measure f") + len("measure f") == first.rstrip().index("0.523") + len("0.523 ±0.05")


@pytest.mark.parametrize("width", [40, 80, 200])
def test_a_table_on_a_narrow_terminal_is_cut_into_parts(screen: Any, width: int) -> None:
    file = screen(width)
    common.table("title", COLUMNS, ROWS, keys=1)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert "…" not in file.getvalue()
    for column, cell in zip(COLUMNS[1:], ROWS[0][1:], strict=True):
        assert any(column in line for line in lines)
        assert any(str(cell) in line for line in lines)
    parts = sum(line.startswith("method") for line in lines)
    assert sum("axn@rounds=10" in line for line in lines) == parts
    assert parts == 1 if width == 200 else parts > 1


def test_a_long_text_is_wrapped_and_not_cut(screen: Any) -> None:
    file = screen(80)
    common.table("title", ("id", "text"), [("1", "word " * 60 + "end")])
    assert file.getvalue().split().count("word") == 60
    assert file.getvalue().rstrip().endswith("end")


def test_a_bar_fits_80_columns(screen: Any) -> None:
    file = screen(80)
    with common.progress_bar() as progress:
        progress("scoring train queries with every item", 500_000, 1_000_000)
        progress("a [bracket]", 1, 2)
    lines = file.getvalue().replace("\r", "\n").splitlines()
    assert any("scoring train queries with every item" in line and "500000/1000000" in line for line in lines)
    assert any("a [bracket]" in line for line in lines)


def test_progress_in_a_pipe_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("crosscut.cli.common.time.monotonic", lambda: now)
    with common.progress_bar() as progress:
        for done in range(1, 31):
            now += 1.0
            progress("scoring [pairs]", done, 30)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [f"scoring [pairs]: {done} of 30" for done in (11, 21, 30)]
    with common.progress_bar(quiet=True) as progress:
        progress("scoring", 1, 1)
    assert capsys.readouterr().err == ""


def test_a_hint_in_brackets_is_printed_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`crosscut train` used to say: pip install 'crosscut'."""
    hint = "training needs torch: pip install 'crosscut[torch]' :smile:"

    def lacking(values: dict[str, Any]) -> None:
        raise MissingDependency(hint)

    monkeypatch.setattr(cli.train, "_job", lacking)
    options = ["--encoder", "e", "--output", "o"]
    monkeypatch.setattr(sys, "argv", ["crosscut", "train", "dual-encoder", "data", *options])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.strip() == f"error: {hint}"
