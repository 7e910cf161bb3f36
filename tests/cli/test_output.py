"""Output of commands: nothing is read as markup, everything is readable at 80 columns and in pipes."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from crosscut import cli
from crosscut.cli import output
from crosscut.cli.options import filter_of, with_groups
from crosscut.errors import InputError, MissingDependency

COLUMNS = ("method", "calls", "measure a", "measure b")
ROWS = [("axn@rounds=10,mix=0.8", 100, "0.123 ±0.01", "0.523 ±0.05"), ("crosscut", 97, "–", "–")]


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Prints to a terminal of so many columns; what was printed is read from it."""

    def made(width: int) -> io.StringIO:
        file = io.StringIO()

        def console(**options: Any) -> Console:
            options.pop("stderr", None)
            return Console(file=file, width=width, force_terminal=True, color_system=None, **options)

        plain = {"highlight": False, "markup": False, "emoji": False}
        monkeypatch.setattr(output, "console", lambda **options: console(**plain, **options))
        return file

    return made


def test_a_table_in_a_pipe_has_one_line_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    output.table("a [title]", COLUMNS, ROWS, note="a [note] :smile:")
    title, head, first, second, note = capsys.readouterr().out.splitlines()
    assert (title, note) == ("a [title]", "a [note] :smile:")
    assert head.split("  ")[0] == "method"
    assert first.split() == [word for cell in ROWS[0] for word in str(cell).split()]
    assert second.split() == ["crosscut", "97", "–", "–"]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_a_table_fits_the_terminal_and_loses_nothing(screen: Any, width: int) -> None:
    file = screen(width)
    output.table("title", COLUMNS, [*ROWS, ("word " * 60 + "end", 1, "–", "–")])
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert file.getvalue().split().count("word") == 60
    assert "end" in file.getvalue()
    assert "…" not in file.getvalue()


def test_a_bar_fits_80_columns(screen: Any) -> None:
    file = screen(80)
    with output.progress_bar() as progress:
        progress("scoring train queries with every item", 500_000, 1_000_000)
        progress("a [bracket]", 1, 2)
    lines = file.getvalue().replace("\r", "\n").splitlines()
    assert any("scoring train queries with every item" in line and "500000/1000000" in line for line in lines)
    assert any("a [bracket]" in line for line in lines)


def test_progress_in_a_pipe_is_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("crosscut.cli.output.time.monotonic", lambda: now)
    with output.progress_bar() as progress:
        for done in range(1, 31):
            now += 1.0
            progress("scoring [pairs]", done, 30)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.splitlines() == [
        *(f"scoring [pairs]: {done} of 30, about {30 - done} s left" for done in (2, 12, 22)),
        "scoring [pairs]: 30 of 30",
    ]
    with output.progress_bar(quiet=True) as progress:
        progress("scoring", 1, 1)
    assert capsys.readouterr().err == ""


def test_progress_without_a_total_prints_what_is_done(
    screen: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("crosscut.cli.output.time.monotonic", lambda: now)
    with output.progress_bar() as progress:
        for done in range(1, 15):
            now += 1.0
            progress("adding items", 1000 * done, 0)
    assert capsys.readouterr().err.splitlines() == ["adding items: 2,000", "adding items: 12,000"]
    monkeypatch.undo()
    file = screen(80)
    with output.progress_bar() as progress:
        progress("adding items", 512, 0)
    assert "512/?" in file.getvalue()


def test_a_hint_in_brackets_is_printed_as_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = "training needs torch: pip install 'crosscut[torch]' :smile:"

    def lacking() -> None:
        raise MissingDependency(hint)

    monkeypatch.setattr(cli, "app", lacking)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    assert capsys.readouterr().err.strip() == f"error: {hint}"


def test_a_sentence_for_people_breaks_between_words_on_a_screen_only(
    screen: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = "a sentence that is longer than one line of a narrow screen, and has a way out"
    output.say(printed)
    assert capsys.readouterr().err == f"{printed}\n"
    file = screen(30)
    output.say(printed)
    assert [line.strip() for line in file.getvalue().splitlines()] == [
        "a sentence that is longer than",
        "one line of a narrow screen,",
        "and has a way out",
    ]


@dataclass(frozen=True)
class Sizes:
    """A group of options."""

    wide: Annotated[int, typer.Option(help="How wide.")] = 1
    high: Annotated[int, typer.Option(help="How high.")] = 2


def test_a_group_of_options_is_one_parameter() -> None:
    made = typer.Typer()
    seen: list[Any] = []

    @made.command()
    @with_groups
    def draw(name: str, sizes: Annotated[Sizes, {"high": 3}], thick: bool = False) -> None:
        seen.append((name, sizes, thick))

    assert CliRunner().invoke(made, ["line"]).exit_code == 0
    assert CliRunner().invoke(made, ["line", "--wide", "7", "--thick"]).exit_code == 0
    draw("line")
    assert seen == [("line", Sizes(1, 3), False), ("line", Sizes(7, 3), True), ("line", Sizes(1, 3), False)]
    shown = CliRunner().invoke(made, ["--help"]).output
    assert "How high." in shown
    assert shown.index("--thick") < shown.index("--wide")


def test_filters_are_read() -> None:
    assert filter_of(["language=en", "year>=2000", "year<2010", "topic=law", "topic=tax"]) == {
        "language": ["en"],
        "year": {"gte": 2000, "lt": 2010},
        "topic": ["law", "tax"],
    }
    assert filter_of(["year=2005"]) == {"year": [2005, "2005"]}  # a number in JSON and a text in CSV
    for wrong in ("year", "=3", "year>="):
        with pytest.raises(InputError, match="--filter takes key=value"):
            filter_of([wrong])
