"""What the command line prints: nothing is read as markup, everything is readable at 80 columns and in pipes."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import typer
from rich.console import Console
from starlette.testclient import TestClient
from typer.testing import CliRunner

import crosscut
from crosscut import cli
from crosscut.ann import clustered
from crosscut.cli import app, common
from crosscut.cli.options import with_groups
from crosscut.datasets.records import Item
from crosscut.errors import InputError, MissingDependency
from crosscut.scorers.adapters import TextScorer
from crosscut.server import make_app

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
    assert told.err.splitlines() == [
        *(f"scoring [pairs]: {done} of 30, about {30 - done} s left" for done in (2, 12, 22)),
        "scoring [pairs]: 30 of 30",
    ]
    with common.progress_bar(quiet=True) as progress:
        progress("scoring", 1, 1)
    assert capsys.readouterr().err == ""


def test_progress_of_nobody_knows_how_much_says_what_is_done(
    screen: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("crosscut.cli.common.time.monotonic", lambda: now)
    with common.progress_bar() as progress:
        for done in range(1, 15):
            now += 1.0
            progress("adding items", 1000 * done, 0)
    assert capsys.readouterr().err.splitlines() == ["adding items: 2,000", "adding items: 12,000"]
    monkeypatch.undo()
    file = screen(80)
    with common.progress_bar() as progress:
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


def test_progress_in_a_pipe_says_how_long_it_will_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.5, 2.0, 5.0, 13.0, 20.0])
    monkeypatch.setattr("crosscut.cli.common.time.monotonic", lambda: next(clock))
    with common.progress_bar() as progress:
        for done in (0, 10, 40, 100, 260, 400):
            progress("encoding items", done, 400)
    assert capsys.readouterr().err.splitlines() == [
        "encoding items: 40 of 400, about 18 s left",
        "encoding items: 260 of 400, about 7 s left",
        "encoding items: 400 of 400",
    ]
    assert [common.lasting(seconds) for seconds in (5, 89, 90, 7200)] == ["5 s", "89 s", "2 min", "2.0 h"]


def test_searches_and_indexes_are_told_in_words(tmp_path: Path) -> None:
    folder = tmp_path / "my.index"
    crosscut.Index.build({"a": "ice floats", "b": "salt melts"}, encoder=None, method="hybrid").save(folder)
    told = CliRunner().invoke(app, ["search", str(folder), "ice", "--budget", "2"]).output
    assert "2 calls in 1 round, " in told
    assert "; everything was scored" in told
    priced = (
        CliRunner().invoke(app, ["search", str(folder), "ice", "--budget", "2", "--price-per-thousand", "2"]).output
    )
    assert "; 0.004 in money" in " ".join(priced.split())
    shown = CliRunner().invoke(app, ["index", "show", str(folder)]).output
    assert "{" not in shown
    assert "default (fingerprint" in shown
    assert (
        " ".join(next(line for line in shown.splitlines() if "searches know" in line).split()) == "searches know words"
    )


def test_a_hit_is_told_the_same_by_the_command_line_and_over_http(tmp_path: Path) -> None:
    """Of a passage the command line told the metadata of its document, and no estimate."""
    folder = tmp_path / "my.index"
    texts = [f"{word} floats on the sea. " * 12 for word in ("ice", "wood", "salt")]
    items = [Item(f"d{place}", f"title {place}", text, {"year": 2000 + place}) for place, text in enumerate(texts)]
    index = crosscut.Index.build(items, encoder=None, method="hybrid", passages=20)
    index.save(folder)
    (hit, *_) = json.loads(CliRunner().invoke(app, ["search", str(folder), "ice", "--budget", "3", "--json"]).stdout)[
        "hits"
    ]
    with TestClient(make_app(index), base_url="http://localhost") as client:
        (other, *_) = client.post("/search", json={"query": "ice", "budget": 3}).json()["hits"]
    assert hit == other == index.search("ice", budget=3)[0].to_json()


def test_missing_matplotlib_is_said_before_the_replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.save(tmp_path / "test.npy", np.random.default_rng(0).normal(size=(3, 20)))
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    done = CliRunner().invoke(
        app, ["replay", "--test", str(tmp_path / "test.npy"), "--plot", str(tmp_path / "recall.png")]
    )
    assert isinstance(done.exception, MissingDependency)
    assert "matplotlib" in str(done.exception)
    assert "recall" not in done.output


def test_a_search_begins_with_given_items_and_tells_its_rounds(tmp_path: Path) -> None:
    """As `candidates` and `trace` of Python and of a request do."""
    index = crosscut.Index.build([f"ice {word}" for word in ("cream", "age", "berg", "skate", "cube", "floe")])
    index.save(tmp_path / "my.index")
    asked = ["search", str(tmp_path / "my.index"), "cold water", "--budget", "4", "--method", "axn@rounds=2"]
    given = ["--candidates", "4", "--candidates", "1"]
    told = json.loads(CliRunner().invoke(app, [*asked, *given, "--trace", "--json"]).stdout)
    own = index.search("cold water", 10, 4, method="axn@rounds=2", candidates=["4", "1"])
    assert told["trace"][0]["ids"] == ["4", "1"]
    assert [one["scores"] for one in told["trace"]] == [one.scores.tolist() for one in own.trace]
    assert [hit["id"] for hit in told["hits"]] == own.ids
    assert told["trace"][0]["estimates"] == [None, None]
    assert None not in told["trace"][1]["estimates"]
    assert "trace" not in json.loads(CliRunner().invoke(app, [*asked, "--json"]).stdout)
    plain = CliRunner().invoke(app, [*asked, *given, "--trace"]).stdout
    assert "round 1: 2 calls, best" in plain
    wrong = CliRunner().invoke(app, [*asked, "--candidates", "nine"])
    assert "item id 'nine' is not among the 6 items" in str(wrong.exception)


def test_a_search_shows_what_fits_within_80_columns(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "sea.md").write_text(
        "# The sea\n\n" + "Waves come and go. " * 60 + "Tides follow the moon. " + "Sand. " * 60
    )
    (notes / "bread.md").write_text("# Bread\n\nDough rises.")
    folder = str(tmp_path / "my.index")
    built = CliRunner().invoke(app, ["index", "build", str(notes), folder])
    assert "2 documents (" in built.stdout  # a folder of files is cut into passages
    told = CliRunner().invoke(app, ["search", folder, "what do tides follow", "-k", "1"]).stdout
    lines = told.splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[1] == " 1  The sea"
    assert lines[2].startswith("    sea.md · score ")
    assert "Tides follow the moon." in " ".join(told.split())
    none = CliRunner().invoke(app, ["search", folder, "tides", "--threshold", "1"]).stdout
    assert "nothing passes" in " ".join(none.split())


def test_train_queries_of_a_file_count_once_and_none_are_a_mistake(tmp_path: Path) -> None:
    corpus, queries, folder = tmp_path / "corpus.jsonl", tmp_path / "queries.txt", tmp_path / "i"
    corpus.write_text('{"text": "waves and tides"}\n{"text": "bread and dough"}\n')
    queries.write_text("")
    told = CliRunner().invoke(app, ["index", "build", str(corpus), str(folder), "--queries", str(queries)])
    assert "queries.txt' has no queries" in " ".join(str(told.exception).split()) + told.output
    assert not folder.exists()
    queries.write_text("tides\ntides\ntides\nbread\n")
    asked = ["index", "build", str(corpus), str(folder), "--queries", str(queries), "--anchors", "2", "--json"]
    record = json.loads(CliRunner().invoke(app, asked).stdout)
    assert (record["anchors"], record["calls"]) == (2, 4)
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    for place, said in (
        (other, "holds something else (notes.txt …)"),
        (corpus, "is a file, and the index is to be a folder"),
    ):
        told = CliRunner().invoke(app, [*asked[:3], str(place), *asked[4:]])
        assert said in str(told.exception)
        assert "calls to make" not in told.output + told.stderr  # it was built, and paid for, before that was said
    asked[-2] = "0"
    told = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "j"), *asked[4:]])
    assert "anchors=0 uses none of 2 train queries" in str(told.exception)
    asked[-2] = "2"
    told = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "k"), *asked[4:], "--passages", "2"])
    assert "2 train queries × 4 passages: 8 calls to make at most" in " ".join(told.stderr.split())
    assert json.loads(told.stdout)["calls"] == 8


def test_long_texts_that_stay_whole_are_remarked(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"text": "' + "word " * 300 + '"}\n{"text": "short"}\n{"text": ""}\n')
    told = CliRunner().invoke(app, ["index", "build", str(corpus), str(tmp_path / "i")]).stderr
    assert "longer than 200 words: 1 item of 3" in told
    assert "--passages 120" in told
    assert "without a text: 1 item of 3" in told


def test_a_number_is_found_whether_it_was_read_as_a_number_or_as_a_text(tmp_path: Path) -> None:
    items = tmp_path / "items.csv"
    items.write_text("id,text,year\n1,ice,1999\n2,salt,2005\n")
    folder = str(tmp_path / "i")
    CliRunner().invoke(app, ["index", "build", str(items), folder, "--encoder", "none", "--method", "hybrid"])
    found = CliRunner().invoke(app, ["search", folder, "salt", "--filter", "year=2005", "--json"])
    assert '"id": "2"' in found.stdout
    with pytest.raises(
        crosscut.InputError, match=r"number 2000, and every 'year' of this index is a text, such as '1999'"
    ):
        app(["search", folder, "salt", "--filter", "year>2000"], standalone_mode=False)


def test_a_sentence_for_people_breaks_between_words_on_a_screen_only(
    screen: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "a sentence that is longer than one line of a narrow screen, and has a way out"
    common.say(told)
    assert capsys.readouterr().err == f"{told}\n"
    file = screen(30)
    common.say(told)
    assert [line.strip() for line in file.getvalue().splitlines()] == [
        "a sentence that is longer than",
        "one line of a narrow screen,",
        "and has a way out",
    ]


def test_likely_mistakes_are_told_with_the_way_out(tmp_path: Path) -> None:
    corpus, empty = tmp_path / "corpus.jsonl", tmp_path / "empty"
    corpus.write_text('{"text": "ice floats"}\n')
    empty.mkdir()
    for arguments, said in (
        (["search", "none.index", "ice"], "there is no index at 'none.index': make one with `crosscut index build`"),
        (["search", str(corpus), "ice"], "(that is a file, not the folder of one): make one with"),
        (["index", "build", "none.jsonl", "my.index"], "there is no file or folder 'none.jsonl'"),
        (["index", "build", "none", "my.index"], "items are read from .jsonl"),
        (["index", "build", str(empty), "my.index"], "is empty: items are read from folders of .txt, .md and .html"),
        (["index", "learn", "my.index", "--log", "none.log"], "searches write one with --log"),
        (
            ["serve", "a.index", "b.index", "--log", "one.log"],
            "--log keeps the searches of one index, and 2 are served",
        ),
    ):
        told = CliRunner().invoke(app, arguments)
        assert said in str(told.exception), told.exception


def test_searches_are_logged_from_the_command_line_when_asked(tmp_path: Path) -> None:
    from crosscut.index.log import SearchLog
    from crosscut.server.indexes import warm_up

    folder, log = str(tmp_path / "my.index"), tmp_path / "searches.log"
    crosscut.Index.build([f"text {n}" for n in range(30)]).save(folder)
    assert CliRunner().invoke(app, ["search", folder, "text 3"]).exit_code == 0
    assert not log.exists()
    assert CliRunner().invoke(app, ["search", folder, "text 3", "text 4", "--log", str(log)]).exit_code == 0
    assert len(SearchLog(log).read()) == 2
    index = crosscut.Index.load(folder)
    index.keep_log(log)
    warm_up(index)  # nobody learns from a server's own search
    assert len(SearchLog(log).read()) == 2
    index.search("text 5")
    assert len(SearchLog(log).read()) == 3
    told = CliRunner().invoke(app, ["index", "learn", folder, "--log", str(log)])
    assert "40 are needed" in told.output


def test_tuning_by_judgements_tells_the_stopping_rule_that_applies(tmp_path: Path) -> None:
    things = ["ice", "salt", "iron", "gold", "glass", "paper", "water", "sand", "coal", "wood", "wool", "silk"]
    folder, run = tmp_path / "my.index", CliRunner()
    crosscut.Index.build({thing: f"{thing} is a thing of its own" for thing in things}).save(folder)
    (tmp_path / "queries.tsv").write_text("".join(f"q{j}\twhat is {thing}\n" for j, thing in enumerate(things)))
    (tmp_path / "qrels.tsv").write_text("".join(f"q{j}\t{thing}\t1\n" for j, thing in enumerate(things)))
    command = ["index", "tune", str(folder), "--queries", str(tmp_path / "queries.tsv"), "-k", "2", "--budget", "6"]
    told = run.invoke(app, [*command, "--judgements", str(tmp_path / "qrels.tsv")])
    assert told.exit_code == 0, told.output
    chosen = next(line for line in told.output.splitlines() if line.startswith("chosen: "))
    index = crosscut.Index.load(folder)
    rule = index.stop or index.default_stop() or "never"
    assert f", stop {rule}: " in " ".join(told.output.split())
    assert str(rule) == ("confident" if chosen.startswith("chosen: crosscut") else "never")
    rows = [line.split() for line in told.output.splitlines() if line.startswith("crosscut")]
    assert {row[2] for row in rows} <= {"confident", "patience@rounds=1", "patience", "patience@rounds=3"}, told.output
    assert len({tuple(row) for row in rows}) == len(rows)


def test_an_index_that_has_changed_is_completed_and_compacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clustered, "SMALL", 100)  # a large index, whose files keep what was removed
    vectors = np.random.default_rng(0).normal(size=(202, 8)).astype(np.float32)
    items = {f"i{j}": f"thing {j}" for j in range(202)} | {"i7": "a secret"}
    scorer = TextScorer(lambda query, texts: [float(len(text)) for text in texts], fingerprint="length")
    load: Any = crosscut.Index.load
    monkeypatch.setattr(crosscut.Index, "load", lambda path, **told: load(path, **(told | {"scorer": scorer})))
    folder, run = tmp_path / "my.index", CliRunner()
    first = dict(list(items.items())[:200])
    index = crosscut.Index.build(first, scorer=scorer, vectors=vectors[:200], queries=["a", "b"], path=folder)
    index.remove(["i7"])
    index.add(dict(list(items.items())[200:]), vectors=vectors[200:])
    index.save()
    refused = run.invoke(app, ["index", "complete", str(folder), "--max-calls", "3"])
    assert isinstance(refused.exception, InputError)
    assert "would make up to 4 calls and may make 3: allow more" in str(refused.exception)
    told = run.invoke(app, ["index", "complete", str(folder)])
    assert told.exit_code == 0, told.output
    assert "take up to 4 calls" in told.output
    assert f"every item has its scores, after 4 calls; 201 in {folder}" in " ".join(told.output.split())
    again = run.invoke(app, ["index", "complete", str(folder), "--json"])
    assert json.loads(again.stdout) == {"calls": 0, "items": 201}
    assert load(folder, scorer=scorer).completing_calls == 0

    def held() -> bool:
        return any(b"a secret" in file.read_bytes() for file in filter(Path.is_file, folder.rglob("*")))

    assert held()
    told = run.invoke(app, ["index", "compact", str(folder)])
    assert told.exit_code == 0, told.output
    assert f"1 removed item left the files; 201 in {folder}" in " ".join(told.output.split())
    assert not held()
    assert crosscut.Index.verify(folder) == []
    again = run.invoke(app, ["index", "compact", str(folder), "--json"])
    assert json.loads(again.stdout) == {"compacted": 0, "items": 201}
