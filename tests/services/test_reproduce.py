"""Every command of `crosscut reproduce` at toy size; the whole way from a ZESHEL folder and a hub cross-encoder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.cli.reproduce import _models
from crosscut.encoders.running import WORKER
from crosscut.errors import InputError
from crosscut.evaluation.papers.experiments import EXPERIMENTS
from crosscut.evaluation.papers.inventory import INVENTORY, PAPERS, Entry, find
from crosscut.evaluation.papers.setting import Setting
from crosscut.evaluation.papers.world_files import Models, load_arrays, make_arrays, plan, read_texts
from crosscut.evaluation.world import make_world
from tests.hub_models import write_model
from tests.tiny_models import sentences
from tests.worlds import planted

pytestmark = pytest.mark.filterwarnings("default")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small world with every part there is."""
    world = planted(n=160, queries=8, anchors=36)
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("world") / "scores.npz"
    lift = np.linalg.lstsq(world.vectors, world.anchors.T, rcond=None)[0].T
    arrays: dict[str, Any] = views(world.vectors, rng)
    np.savez(
        path,
        test=world.test.astype(np.float32),
        train=world.anchors.astype(np.float32),
        vectors=world.vectors.astype(np.float32),
        query_vectors=world.query_vectors.astype(np.float32),
        anchor_query_vectors=lift.astype(np.float32),
        words=(world.test + rng.normal(size=world.test.shape)).astype(np.float32),
        item_scores=world.item_scores.astype(np.float32),
        item_anchors=world.item_anchors,
        **arrays,
    )
    return path


def views(vectors: np.ndarray, rng: np.random.Generator) -> dict[str, Any]:
    """Two views an item, and three with a merged one."""
    made: dict[str, Any] = {}
    for name, count in (("view", 2), ("merged", 3)):
        jitter = 0.2 * rng.normal(size=(len(vectors), count, vectors.shape[1]))
        some = (vectors[:, None] + jitter).reshape(-1, vectors.shape[1]).astype(np.float32)
        made |= {"views" if name == "view" else name: some, f"{name}_counts": np.full(len(vectors), count)}
    return made


def run(*arguments: str) -> Any:
    told = CliRunner().invoke(app, list(arguments))
    assert told.exit_code == 0, f"{arguments}\n{told.output}\n{told.exception!r}"
    return told


@pytest.mark.parametrize(
    "entry",
    [entry for entry in INVENTORY if entry.experiment],
    ids=lambda entry: f"{entry.paper}-{entry.names[0]}",
)
def test_every_figure_runs(
    entry: Entry, archive: Path, cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command of the page, typed as it stands there."""
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    output, data, more = tmp_path / "out", archive, ["--seeds", "1"]
    if entry.experiment == "downstream":  # needs judgements, which no archive has
        data, more = write_beir(tmp_path / "beir"), ["--scorer", str(cross_encoder), "--encoder", "none", *more]
    command = entry.command.removeprefix("crosscut ").replace("DIR", str(data)).split()
    run(*command, "--output", str(output), *more)
    made = json.loads((output / f"{entry.paper}-{entry.names[0]}.json").read_text())
    assert made["records"]
    assert all(np.isfinite(record["recall"]) for record in made["records"])
    assert {"method", "k", "x", "recall"} <= set(made["records"][0])
    assert (output / f"{entry.paper}-{entry.names[0]}.png").stat().st_size > 2000


def test_every_table_and_figure_is_an_experiment_or_says_why_not() -> None:
    for entry in INVENTORY:
        assert entry.paper in PAPERS
        assert entry.experiment in EXPERIMENTS if entry.experiment else entry.note
        assert all(find(entry.paper, name) is entry for name in entry.names)
    assert {entry.experiment for entry in INVENTORY} - {None} == set(EXPERIMENTS)
    there = {paper: [name for one in INVENTORY if one.paper == paper for name in one.names] for paper in PAPERS}
    assert all(len(names) == len(set(names)) for names in there.values())
    for paper, figures, tables in (("anncur", 24, 3), ("adacur", 15, 1), ("axn", 16, 3), ("early-exit", 1, 2)):
        wanted = [f"fig{n}" for n in range(1, figures + 1)] + [f"table{n}" for n in range(1, tables + 1)]
        assert not [name for name in wanted if not {name, f"{name}a", f"{name}b"} & set(there[paper])], paper
    assert find("anncur", "Fig. 17b").experiment == "recall-against-cost"
    for wrong, said in (
        (("nobody", "fig1"), "no paper"),
        (("axn", "fig99"), "there are fig1"),
    ):
        with pytest.raises(InputError, match=said):
            find(*wrong)


def test_every_entry_has_its_line_on_the_papers_page() -> None:
    for paper in PAPERS:
        page = (ROOT / "docs" / "papers" / f"{paper}.md").read_text("utf-8")
        for entry in INVENTORY:
            if entry.paper == paper:
                assert f"\n| {entry.names[0]}" in page, f"{paper} {entry.names[0]}"
                assert entry.command in page


def test_the_pages_are_made_of_the_results() -> None:
    """Every figure there is looked up in benchmarks/results/papers.json: python benchmarks/papers.py --pages"""
    import importlib.util

    spec = importlib.util.spec_from_file_location("papers_pages", ROOT / "benchmarks" / "papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for paper in PAPERS:
        assert (ROOT / "docs" / "papers" / f"{paper}.md").read_text("utf-8") == module.page(paper)


def test_planted_answers() -> None:
    """On a matrix of known rank, with enough anchors, CUR finds everything and the encoder does not."""
    world = planted(n=200, queries=6, anchors=40, rank=6)
    setting = Setting(make_world(world.test, world.anchors, world.vectors, world.query_vectors), ks=(10,), seeds=1)
    grid = EXPERIMENTS["grid"](setting)
    best = [r for r in grid if r["method"] == "pseudo-inverse, k_q = 40" and r["x"] == 25]
    assert best[0]["recall"] > 0.95
    assert best[0]["error"] < 0.05
    assert [r["x"] for r in EXPERIMENTS["rank"](setting)] == list(range(1, 7))
    equal = EXPERIMENTS["recall-of-retrieved"](replace(setting, budgets=(12,)))
    found = {r["method"]: r["recall"] for r in equal}
    assert found["anncur, k_i = 50"] > found["dual encoder"]
    spread = EXPERIMENTS["histogram"](setting)
    assert {r["method"] for r in spread} == {"scorer", "dual encoder"}
    width = spread[1]["x"] - spread[0]["x"]
    assert sum(r["recall"] for r in spread if r["method"] == "scorer") * width == pytest.approx(1, abs=1e-6)


def test_recall_error_against_reranking() -> None:
    """ADACUR's headline: by how much 1 − recall falls."""
    world = planted(n=200, queries=8, anchors=40)
    made = make_world(world.test, world.anchors, world.vectors, world.query_vectors)
    records = EXPERIMENTS["recall-against-cost"](Setting(made, ks=(10,), budgets=(14, 20), seeds=1))
    base = {(r["k"], r["x"]): r["recall"] for r in records if r["method"] == "rerank"}
    told = [r for r in records if "error_reduction" in r]
    assert {"rerank", "adacur"} <= {r["method"] for r in told}
    for record in told:
        error = 1 - base[record["k"], record["x"]]
        assert record["error_reduction"] == pytest.approx((error - (1 - record["recall"])) / error)
    assert all(r["error_reduction"] == 0 for r in told if r["method"] == "rerank")


def test_settings_reach_the_methods(archive: Path, tmp_path: Path) -> None:
    """Rounds and shortlist of searches, solver of factors, k and budgets."""
    given = ["--data", str(archive), "--output", str(tmp_path), "--seeds", "1", "-k", "5", "--budgets", "20"]

    def made(figure: str, *more: str) -> list[dict[str, Any]]:
        run("reproduce", *figure.split(), *given, *more)
        return list(json.loads((tmp_path / f"{figure.replace(' ', '-')}.json").read_text())["records"])

    plain, once = made("adacur fig2"), made("adacur fig2", "--rounds", "1")
    assert {(one["k"], one["budget"]) for one in plain} == {(5, 20)}
    assert {one["method"] for one in plain} >= {"rerank", "rerank@first=lexical", "anncur@first=lexical", "adacur"}
    found = [{one["method"]: one["recall"] for one in some} for some in (plain, once)]
    assert found[1]["adacur@first=dense"] == found[1]["rerank"] != found[0]["adacur@first=dense"]
    short = made("adacur fig2", "--shortlist", "20")
    assert {one["method"]: one["recall"] for one in short}["adacur@first=dense,shortlist=20"] == found[0]["rerank"]
    by = {
        solver: {one["x"]: one["recall"] for one in made("axn fig10", "--solver", solver) if "axn on" in one["method"]}
        for solver in ("als", "transductive", "inductive")
    }
    assert by["als"].keys() == by["inductive"].keys()
    assert by["als"] != by["transductive"] != by["inductive"]


def test_downstream_measures_are_those_of_ir_measures() -> None:
    import ir_measures

    rng = np.random.default_rng(0)
    world = planted(n=150, queries=12, anchors=20)
    gold = [sorted(rng.choice(150, rng.integers(1, 4), replace=False).tolist()) for _ in range(12)]
    made = make_world(world.test, world.anchors, world.vectors, world.query_vectors)
    records = EXPERIMENTS["downstream"](Setting(made, gold, budgets=(50,), seeds=1))
    found = {one["method"]: one["recall"] for one in records}
    qrels = {str(q): {str(item): 1 for item in some} for q, some in enumerate(gold)}
    run = {str(q): {str(item): float(score) for item, score in enumerate(row)} for q, row in enumerate(world.test)}
    wanted = ir_measures.calc_aggregate([ir_measures.parse_measure(one) for one in ("nDCG@10", "R@100")], qrels, run)
    for measure, value in wanted.items():
        assert found[f"exact, {measure}"] == pytest.approx(value)
    best = world.test.argmax(axis=1)
    assert found["exact"] == np.mean([int(one) in some for one, some in zip(best, gold, strict=True)])


def test_exit_rules_are_at_equal_recall(archive: Path, tmp_path: Path) -> None:
    run("reproduce", "early-exit", "table2", "--data", str(archive), "--output", str(tmp_path), "--seeds", "1")
    records = json.loads((tmp_path / "early-exit-table2.json").read_text())["records"]
    names = {record["method"] for record in records}
    assert {"fixed", "patience", "reg", "oracle"} <= names


# ----------------------------------------------------------------- from texts

WORLD = "yugioh"


def write_zeshel(folder: Path, documents: int = 60, mentions: int = 24) -> Path:
    """A ZESHEL folder of the exact format, with texts of our own."""
    (folder / "documents").mkdir(parents=True)
    (folder / "mentions").mkdir()
    texts = sentences(documents, longest=30)
    with (folder / "documents" / f"{WORLD}.json").open("w") as file:
        for number, text in enumerate(texts):
            title = f"card {number}"
            record = {"document_id": f"d{number}", "title": title, "text": f"{title} {text}"}
            file.write(json.dumps(record) + "\n")
    rng = np.random.default_rng(0)
    for name, places in (("train", range(mentions // 2)), ("test", range(mentions // 2, mentions))):
        with (folder / "mentions" / f"{name}.json").open("w") as file:
            for number in places:
                context = int(rng.integers(documents))
                mention: dict[str, Any] = {
                    "mention_id": f"m{number}",
                    "corpus": WORLD,
                    "context_document_id": f"d{context}",
                    "label_document_id": f"d{int(rng.integers(documents))}",
                    "start_index": 0,
                    "end_index": 1,
                    "text": "card",
                    "category": "LOW_OVERLAP",
                }
                file.write(json.dumps(mention) + "\n")
    return folder


def write_beir(folder: Path) -> Path:
    folder.mkdir()
    items = [{"_id": f"i{n}", "title": "", "text": text} for n, text in enumerate(sentences(40, longest=20))]
    queries = [{"_id": f"q{n}", "text": text} for n, text in enumerate(sentences(10, seed=4))]
    pseudo = [{"_id": f"p{n}", "text": text} for n, text in enumerate(sentences(12, seed=9))]
    for name, records in (("corpus", items), ("queries", queries), ("qgen-queries", pseudo)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (folder / "qrels").mkdir()
    judged = "".join(f"q{n}\ti{n}\t1\n" for n in range(8))
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + judged)
    return folder


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("hub") / "ce", "bert", layers=2)


def test_a_user_with_a_hub_cross_encoder_and_zeshel(
    cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """score → index → replay → figures in five commands, without a GPU."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    write_zeshel(Path("zeshel"))
    ce = str(cross_encoder)
    told = run("reproduce", "adacur", "fig3", "--data", "zeshel", "--world", WORLD, "--scorer", ce, "--plan")
    assert "12 train and 12 test queries × 60 items: 1,440 calls" in told.output + told.stderr
    assert not Path("reproduced").exists()
    arguments = ["--data", "zeshel", "--world", WORLD, "--scorer", ce, "--seeds", "1"]
    run("reproduce", "adacur", "fig3", *arguments)  # scores, vectors, figure
    home = Path("reproduced/zeshel-yugioh-small/12")
    arrays = load_arrays(home / "world.npz")
    assert arrays["test"].shape == (12, 60)
    again = run("reproduce", "axn", "fig3", *arguments)  # the same scores: accuracy against budget
    assert "made already" in again.output + again.stderr
    shown = json.loads(Path("reproduced/axn-fig3.json").read_text())
    assert {"exact", "rerank", "adacur", "axn"} <= {record["method"] for record in shown["records"]}
    run("replay", "--data", str(home / "world.npz"), "--methods", "rerank,adacur", "--budgets", "20", "-k", "5")
    run("index", "build", "zeshel/documents/yugioh.json", "my.index", "--scorer", ce, "--id", "document_id")
    run("search", "my.index", "a card")


def test_item_item_scores_are_bought_where_a_figure_needs_them(
    cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    write_beir(Path("beir"))
    run(
        "reproduce",
        "anncur",
        "fig7",
        "--data",
        "beir",
        "--scorer",
        str(cross_encoder),
        "--encoder",
        "none",
        "--seeds",
        "1",
    )
    arrays = load_arrays(Path("reproduced/beir-small/12/world.npz"))
    assert arrays["item_scores"].shape == (10, 40)
    assert arrays["item_anchors"].shape == (10,)
    made = json.loads(Path("reproduced/anncur-fig7.json").read_text())
    assert {record["method"] for record in made["records"]} == {"fixed-item", "item-cur", "anncur"}


def test_beir_takes_pseudo_queries_for_training(tmp_path: Path) -> None:
    texts = read_texts(write_beir(tmp_path / "beir"), None, "small")
    assert (len(texts.train), len(texts.test), texts.words) == (12, 8, "bm25")
    assert plan(texts).calls == 20 * 40
    with pytest.raises(InputError, match="--world is for ZESHEL"):
        read_texts(tmp_path / "beir", "yugioh", "small")
    with pytest.raises(InputError, match="name the world"):
        read_texts(write_zeshel(tmp_path / "zeshel"), None, "small")


def write_msmarco(folder: Path) -> Path:
    folder.mkdir()
    passages = "".join(f"{100 + n}\t{text}\n" for n, text in enumerate(sentences(60, longest=20)))
    (folder / "collection.tsv").write_text(passages)
    for name, seed, count in (("train", 5, 30), ("dev.small", 6, 12)):
        some = "".join(f"{seed}{n}\t{text}\n" for n, text in enumerate(sentences(count, seed=seed)))
        (folder / f"queries.{name}.tsv").write_text(some)
    (folder / "qrels.dev.small.tsv").write_text("".join(f"6{n}\t0\t{100 + n}\t1\n" for n in range(10)))
    return folder


def test_ms_marco(cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crosscut.datasets import read_msmarco

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    folder = write_msmarco(Path("msmarco"))
    texts = read_texts(folder, None, "small")
    assert (len(texts.items), len(texts.train), len(texts.test), texts.words) == (60, 30, 10, "bm25")
    assert [texts.items[some[0]].id for some in texts.gold] == [f"{100 + n}" for n in range(10)]
    few = read_msmarco(folder, train=4, test=3, items=20, seed=1)
    assert (len(few.collection.items), len(few.train), len(few.collection.queries)) == (20, 4, 3)
    for query in few.collection.queries:
        assert [few.collection.items[few.collection.positions[id]].id for id in few.collection.gold(query.id)]
    drawn = [{item.id for item in read_msmarco(folder, test=3, items=20, seed=s).collection.items} for s in range(40)]
    counts = [sum(f"{100 + n}" in some for some in drawn) for n in range(20, 60)]  # never right: drawn alike
    assert 5 < np.mean(counts[:20]) < 20
    assert abs(np.mean(counts[:20]) - np.mean(counts[20:])) < 4
    given = ["--data", str(folder), "--scorer", str(cross_encoder), "--train", "8", "--seeds", "1"]
    run("reproduce", "adacur", "fig2", *given)
    run("reproduce", "adacur", "fig10", *given)
    made = json.loads(Path("reproduced/adacur-fig10.json").read_text())
    assert {"rerank, sentences", "rerank, merged sentences", "rerank"} <= {
        record["method"] for record in made["records"]
    }
    (folder / "qrels.dev.small.tsv").write_text("60\t0\t999\t1\n")
    with pytest.raises(InputError, match="names passage '999'"):
        read_msmarco(folder)
    (folder / "queries.dev.small.tsv").unlink()
    with pytest.raises(InputError, match="no queries to test on"):
        read_msmarco(folder)


def test_errors_are_sentences(archive: Path) -> None:
    for arguments, said in (
        (["axn", "table2", "--data", str(archive)], "is no experiment"),
        (["axn", "fig8"], "name the data"),
        (["axn", "fig8", "--data", str(archive), "--size", "huge"], "small or full"),
        (["axn", "fig8", "--data", "beir", "--gpus", "1"], "use it with --engine ray"),
        (["axn", "fig8", "--data", "beir", "--engine", "ray", "--gpus", "1"], "run on the CPU: name --device cuda too"),
        (["axn", "fig3", "--data", str(archive)], "needs judgements"),
    ):
        told = CliRunner().invoke(app, ["reproduce", *arguments])
        assert told.exit_code != 0
        assert said in str(told.exception), told.exception
    assert "recall against rounds" in run("reproduce", "list").output


def test_archives_may_hold_more_than_an_experiment_reads(archive: Path, tmp_path: Path) -> None:
    """`scripts/score_world.py` writes ids beside the scores; only what is read has to be numbers."""
    with np.load(archive) as whole:
        arrays = {name: whole[name] for name in whole.files}
    ids = np.array([f"q{j}" for j in range(len(arrays["train"]))])
    np.savez(tmp_path / "ids.npz", **{**arrays, "train_ids": ids, "fingerprint": np.array("f")})
    assert set(load_arrays(tmp_path / "ids.npz")) == set(load_arrays(archive))
    np.savez(tmp_path / "bad.npz", **{**arrays, "train": np.full_like(arrays["train"], np.nan)})
    with pytest.raises(InputError, match=r"array train .* holds what is no finite number"):
        load_arrays(tmp_path / "bad.npz")


def test_encode_and_export(cross_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    Path("items.txt").write_text("\n".join(sentences(12)))
    Path("test.txt").write_text("river\ncat\n")
    run("encode", "items.txt", "items.npy")
    run("encode", "test.txt", "test.npy", "--queries")
    assert np.load("items.npy").shape[0] == 12
    assert np.load("test.npy").shape == (2, np.load("items.npy").shape[1])
    ce = str(cross_encoder)
    run("score", "items.txt", "--queries", "test.txt", "--store", "scores", "--scorer", ce)
    run("export", "scores", "out.npz", "--corpus", "items.txt", "--test", "test.txt", "--scorer", ce)
    assert load_arrays(Path("out.npz"))["test"].shape == (2, 12)
    Path("more.txt").write_text("dog\n")
    told = CliRunner().invoke(
        app, ["export", "scores", "out.npz", "--corpus", "items.txt", "--test", "more.txt", "--scorer", ce]
    )
    assert "12 of 12 scores of the test queries are not in" in str(told.exception)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path / "cache"))
    return tmp_path


def test_scores_of_the_box_are_exported(here: Path) -> None:
    """`crosscut score` keeps the scores that an index of these items would have; the archive holds the same."""
    Path("items.txt").write_text("\n".join(sentences(6)))
    Path("test.txt").write_text("river\ncat\n")
    run("score", "items.txt", "--queries", "test.txt", "--store", "scores")
    run("export", "scores", "out.npz", "--corpus", "items.txt", "--test", "test.txt")
    assert load_arrays(Path("out.npz"))["test"].shape == (2, 6)


def test_worker_processes_are_numbered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes a number, and with it a device of its own."""
    from queue import SimpleQueue

    from crosscut.scores.engines import local

    numbers: SimpleQueue[int] = SimpleQueue()
    numbers.put(3)
    monkeypatch.setattr(local, "_mine", [])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setenv(WORKER, "0")
    local._start_process(numbers, lambda: None, None, [], [])
    import os

    assert os.environ[WORKER] == "3"


# ----------------------------------------------------------------- what a world is made of


def test_another_model_or_another_text_makes_the_world_anew(cross_encoder: Path, here: Path) -> None:
    write_beir(Path("beir"))
    other = write_model(here / "other", "distilbert", layers=1)
    body = write_model(here / "body", "bert", layers=1, head=False)
    home = Path("reproduced/beir-small/12/world.npz")

    def made(*more: str) -> tuple[Any, dict[str, Any]]:
        told = run("reproduce", "adacur", "fig6", "--data", "beir", "--seeds", "1", *more)
        assert "made already" not in told.output + told.stderr
        assert "made already" in run("reproduce", "adacur", "fig6", "--data", "beir", *more, "--plan").stderr
        return load_arrays(home), json.loads(Path("reproduced/adacur-fig6.json").read_text())

    first, told = made("--scorer", str(cross_encoder), "--encoder", "none")
    assert (told["scorer"], told["encoder"], told["data"]) == (str(cross_encoder), None, "beir")
    second, told = made("--scorer", str(other), "--encoder", "none")
    assert told["scorer"] == str(other)
    assert abs(first["test"] - second["test"]).max() > 0.01
    third, _ = made("--scorer", str(other), "--encoder", str(body))
    assert np.array_equal(third["test"], second["test"])  # from the store
    assert third["vectors"].shape == (40, 32)
    lines = Path("beir/corpus.jsonl").read_text().splitlines()
    Path("beir/corpus.jsonl").write_text("\n".join([json.dumps({"_id": "i0", "text": "another river"}), *lines[1:]]))
    fourth, _ = made("--scorer", str(other), "--encoder", str(body))
    assert np.array_equal(fourth["test"][:, 1:], third["test"][:, 1:])
    assert not np.array_equal(fourth["test"][:, 0], third["test"][:, 0])
    home.write_bytes(home.read_bytes()[:500])  # as if it had been cut short
    fifth, _ = made("--scorer", str(other), "--encoder", str(body))
    assert np.array_equal(fifth["test"], fourth["test"])


def test_a_stopped_run_says_how_to_go_on_and_its_plan_what_is_left(
    cross_encoder: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from crosscut.scores import buy

    folder, ce = write_beir(Path("beir")), str(cross_encoder)
    texts, models = read_texts(folder, None, "small"), Models(ce, None)
    with pytest.raises(InputError, match="650 scores are still missing"):
        make_arrays(texts, models, Path("reproduced/beir-small/12"), limit=150, block_pairs=50)
    asked = ["reproduce", "adacur", "fig6", "--data", "beir", "--scorer", ce, "--encoder", "none"]
    told = run(*asked, "--plan").stderr.replace("\n", " ")
    assert "20 × 40" not in told
    assert "800 calls" in told
    assert "150 of them bought before, about" in told

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(buy, "buy_matrix", stopped)
        result = CliRunner().invoke(app, asked)
    assert result.exit_code == 130
    assert "the same command goes on" in result.stderr
    run(*asked, "--seeds", "1")
    Path("reproduced/beir-small/12/world.npz").unlink()
    assert "all of them bought before" in run(*asked, "--plan").stderr.replace("\n", " ")


def test_settings_reach_what_can_take_them(archive: Path, here: Path) -> None:
    given = {"device": "cpu", "dtype": "int8", "batch_size": 4, "max_length": 64}
    models, trained = _models("a/scorer", "an/encoder", "inductive", given)
    assert models.scorer == "a/scorer#device=cpu&dtype=int8&batch_size=4&max_length=64"
    assert models.encoder == "an/encoder#device=cpu&batch_size=4"
    assert trained == {"device": "cpu"}
    models, trained = _models("default", "default", "inductive", {"device": "cuda", "dtype": "bf16"})
    assert (models.scorer, models.encoder, trained) == ("default", "default", {"device": "cuda", "dtype": "bf16"})
    assert _models("default", None, "transductive", {"device": "cuda"})[1] == {"device": "cuda"}
    for arguments, said in (
        (["axn", "fig9", "--data", str(archive), "--device", "cuda"], "--device would change nothing here"),
        (["axn", "fig9", "--data", str(archive), "--scorer", "a/b", "--size", "full"], "--scorer, --size is for"),
        (["axn", "fig9", "--data", str(archive), "--solver", "inductive", "--device", "cuda:9"], "torch sees 0 GPUs"),
    ):
        told = CliRunner().invoke(app, ["reproduce", *arguments])
        assert said in str(told.exception), told.exception
    run("reproduce", "anncur", "fig8", "--data", str(archive), "--train", "7", "--output", str(here))
    assert json.loads((here / "anncur-fig8.json").read_text())["train"] == 7


def test_scores_that_say_nothing_are_noted(here: Path) -> None:
    np.savez("flat.npz", test=np.ones((5, 60), np.float32), train=np.ones((6, 60), np.float32))
    told = run("reproduce", "adacur", "fig6", "--data", "flat.npz", "--seeds", "1")
    assert "at least half of the 60 items tie at place 10" in told.stderr.replace("\n", " ")
    assert len(json.loads(Path("reproduced/adacur-fig6.json").read_text())["notes"]) == 2
    assert (
        "Invalid value for '--train'"
        in CliRunner().invoke(app, ["reproduce", "adacur", "fig6", "--train", "-3"]).output
    )


def test_folders_as_they_are_published(cross_encoder: Path, here: Path) -> None:
    """MS MARCO's and ZESHEL's, through score, encode and export."""
    ce = str(cross_encoder)
    folder = str(write_msmarco(here / "msmarco"))
    run("encode", folder, "items.npy")
    assert len(np.load("items.npy")) == 60
    run("score", folder, "--store", "marco", "--scorer", ce)
    queries = f"{folder}/queries.dev.small.tsv"
    run("export", "marco", "marco.npz", "--corpus", folder, "--test", queries, "--scorer", ce)
    assert load_arrays(Path("marco.npz"))["test"].shape == (12, 60)
    zeshel = str(write_zeshel(here / "zeshel"))
    run("encode", zeshel, "mentions.npy", "--world", WORLD, "--queries")
    assert len(np.load("mentions.npy")) == 24
    run("score", zeshel, "--world", WORLD, "--store", "cards", "--scorer", ce)
    run("export", "cards", "cards.npz", "--corpus", zeshel, "--world", WORLD, "--scorer", ce)
    assert load_arrays(Path("cards.npz"))["test"].shape == (24, 60)
    told = CliRunner().invoke(app, ["export", "cards", "cards.npz", "--corpus", zeshel, "--scorer", ce])
    assert "name the test queries with --test" in str(told.exception)
