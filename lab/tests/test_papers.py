"""The papers' experiments at toy size: every figure runs, and what they say of known matrices is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import archive, arrays, beir, bert
from typer.testing import CliRunner

from crosscut.errors import InputError
from crosscut_lab.cli import app
from crosscut_lab.papers import command, experiments
from crosscut_lab.papers.data import Purchase, bm25_scores, data_of, load_arrays, read_texts, tfidf_scores
from crosscut_lab.papers.experiments import EXPERIMENTS, VECTOR_EXPERIMENTS, Setting
from crosscut_lab.papers.inventory import INVENTORY, PAPERS, find
from crosscut_lab.papers.oracle import approximate, oracle_anchors, retrieved, spectrum

pytestmark = pytest.mark.filterwarnings("ignore")


def setting(**more: Any) -> Setting:
    given = {"ks": (1, 5), "budgets": (10, 20), "seeds": 1, "depths": (6, 12), "per_item": (2,), **more}
    return Setting(data_of(arrays())[0], gold=[[n] for n in range(10)], **given)


def run(*arguments: str) -> Any:
    found = CliRunner().invoke(app, [*arguments])
    assert found.exit_code == 0, f"{found.output} {found.exception!r}"
    return found


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
def test_every_experiment_runs(name: str) -> None:
    from crosscut_lab.papers.data import views_of

    records = EXPERIMENTS[name](setting(views=views_of(arrays())))
    assert records
    assert all({"method", "k", "x", "recall"} <= set(one) for one in records)


@pytest.mark.parametrize("name", sorted(VECTOR_EXPERIMENTS))
def test_exit_experiments_run(name: str) -> None:
    data = data_of(arrays(items=600, train=120, test=40))[0]
    assert VECTOR_EXPERIMENTS[name](data, 10)


def test_every_figure_has_an_experiment_or_a_reason() -> None:
    assert {one.paper for one in INVENTORY} == set(PAPERS)
    for one in INVENTORY:
        assert one.experiment in {*EXPERIMENTS, *VECTOR_EXPERIMENTS} or one.why
    assert find("anncur", "Fig. 10a").experiment == "recall-of-retrieved"
    with pytest.raises(InputError, match="there are fig1a"):
        find("anncur", "fig99")


def test_a_figure_from_an_archive(tmp_path: Path) -> None:
    found = run(
        "reproduce", "adacur", "fig6", "--data", str(archive(tmp_path)), "--output", str(tmp_path), "-k", "5",
        "--budgets", "20", "--seeds", "1", "--train", "8", "--test", "5",
    )  # fmt: skip
    assert "adacur@select=softmax" in found.output
    facts = json.loads((tmp_path / "adacur-fig6.json").read_text())
    assert (facts["queries"], facts["train"], facts["items"]) == (5, 8, 120)
    assert (tmp_path / "adacur-fig6.png").is_file()
    run("macro", str(tmp_path / "adacur-fig6.json"), str(tmp_path / "adacur-fig6.json"))


class Counting:
    """A scorer of texts that counts the pairs it scores."""

    def __init__(self) -> None:
        self.pairs: set[tuple[str, str]] = set()
        self.calls = 0

    def __call__(self, query: str, texts: list[str]) -> list[float]:
        self.calls += len(texts)
        self.pairs |= {(query, text) for text in texts}
        return [len(set(query.split()) & set(text.split())) + len(text) / 100 for text in texts]


class Encoder:
    fingerprint = "toy"

    def encode_queries(self, texts: list[str]) -> Any:
        return np.stack([[text.count(letter) for letter in "aeioustrn"] for text in texts]).astype(np.float32)

    def encode_items(self, items: Any) -> Any:
        return self.encode_queries([f"{item.title} {item.text}" for item in items])


def test_indexing_buys_the_sparse_matrix_and_the_test_matrix_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls = |Q| × k_d + test × n (issue 35)."""
    from crosscut.scorers.adapters import TextScorer

    counting = Counting()
    monkeypatch.setattr("crosscut_lab.papers.models.load_scorer", lambda *_: TextScorer(counting, fingerprint="c"))
    monkeypatch.setattr("crosscut_lab.papers.models.load_encoder", lambda *_: Encoder())
    folder = beir(tmp_path / "beir")
    arguments = [
        "reproduce", "axn", "fig1", "--data", str(folder), "--train", "8", "--test", "5", "--depths", "6",
        "-k", "1,5", "--budgets", "10", "--seeds", "1", "--output", str(tmp_path / "out"),
    ]  # fmt: skip
    found = run(*arguments)
    assert "5 test and 0 train queries × 40 items, 8 train queries × 6 items: at most 248 calls" in found.stderr
    assert counting.calls == 8 * 6 + 5 * 40
    records = json.loads((tmp_path / "out" / "axn-fig1.json").read_text())["records"]
    assert {one["x"] for one in records} == {0, 48}
    assert "axn, α β, no factors" in {one["arm"] for one in records}
    run(*arguments)
    assert counting.calls == 248  # from the store


def test_folders_of_texts_are_cut_and_kept(tmp_path: Path) -> None:
    folder = beir(tmp_path / "beir")
    texts = read_texts(folder, None, "small", train=6, test=4)
    assert (len(texts.train), len(texts.test), len(texts.items)) == (6, 4, 40)
    assert [texts.items[right[0]].text for right in texts.gold] != []
    counting = Counting()
    from crosscut.scorers.adapters import TextScorer

    scorer = TextScorer(counting, fingerprint="c")
    first = Purchase(texts, scorer, Encoder(), tmp_path / "out").arrays(item_anchors=3)
    calls = counting.calls
    assert first["item_scores"].shape == (3, 40)
    again = Purchase(texts, scorer, Encoder(), tmp_path / "out").arrays(item_anchors=3)
    assert counting.calls == calls
    assert all(np.array_equal(first[name], again[name]) for name in first)
    other = Purchase(replace(texts, test=["another river"]), scorer, Encoder(), tmp_path / "out").arrays()
    assert other["query_vectors"].shape[0] == 1


def test_archives_that_cannot_be_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", test=np.full((2, 3), np.nan))
    with pytest.raises(InputError, match=r"test of .* is not made of finite numbers"):
        load_arrays(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", train=np.ones((2, 3)))
    with pytest.raises(InputError, match="no array called test"):
        load_arrays(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a readable archive"):
        load_arrays(tmp_path / "c.npz")


def test_lexical_scores_by_hand() -> None:
    items, queries = ["river bank river", "cat", "river cat sea"], ["river", "cat"]
    scores = bm25_scores(items, queries)
    idf, mean = np.log(1 + (3 - 2 + 0.5) / 2.5), 7 / 3
    assert scores[0, 0] == pytest.approx(idf * 2 * 1.9 / (2 + 0.9 * (0.6 + 0.4 * 3 / mean)), rel=1e-6)
    assert scores[1, 0] == 0
    assert np.argmax(tfidf_scores(items, queries)[1]) == 1


def test_a_published_checkpoint_scores_in_a_figure(tmp_path: Path) -> None:
    from crosscut_lab.papers.models import PaperCross, Towers

    start = bert(tmp_path / "bert")
    PaperCross.start(start, tokens=24).save(tmp_path / "ce")
    Towers.start(start, tokens=24).save(tmp_path / "de")
    run(
        "reproduce", "anncur", "fig7", "--data", str(beir(tmp_path / "beir", items=30, queries=8)), "--scorer",
        str(tmp_path / "ce"), "--encoder", str(tmp_path / "de"), "-k", "1", "--budgets", "10", "--seeds", "1",
        "--output", str(tmp_path / "out"), "--no-plot",
    )  # fmt: skip
    assert json.loads((tmp_path / "out" / "anncur-fig7.json").read_text())["records"]


def test_exit_rules_of_ones_own_vectors(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(30, 12))
    for name, count in (("items", 1500), ("train", 150), ("test", 40)):
        rows = centres[rng.integers(0, 30, count)] + 0.3 * rng.normal(size=(count, 12))
        np.save(tmp_path / f"{name}.npy", rows.astype(np.float32))
    (tmp_path / "gold.json").write_text(json.dumps([[j, j + 1] if j % 2 else [] for j in range(40)]))
    found = run(
        "ivf", "--vectors", str(tmp_path / "items.npy"), "--queries", str(tmp_path / "train.npy"), "--test-queries",
        str(tmp_path / "test.npy"), "--qrels", str(tmp_path / "gold.json"), "--clusters", "40", "-k", "10",
        "--repeats", "1", "--json", str(tmp_path / "out.json"), "--save", str(tmp_path / "ivf"),
    )  # fmt: skip
    assert "patience" in found.output
    facts = json.loads((tmp_path / "out.json").read_text())
    rows = {row["name"]: row for row in facts["records"]}
    assert rows["fixed"]["lists"] == facts["N"]
    assert rows["fixed"]["p"] == 1.0
    assert facts["limits"]["oracle_lists"] <= rows["fixed"]["lists"]


def test_what_cannot_be_run_is_a_sentence(tmp_path: Path) -> None:
    path = str(archive(tmp_path))
    for arguments, message in (
        (["axn", "fig8"], "name the data"),
        (["anncur", "fig1a"], "is no experiment"),
        (["axn", "fig3", "--data", path], "needs qrels"),
    ):
        found = CliRunner().invoke(app, ["reproduce", *arguments])
        assert message in str(found.exception)


def test_factors_are_compared_with_the_normalisation_alone() -> None:
    records = experiments.indexing(setting())
    arms = {one["arm"] for one in records}
    assert {"axn, raw, no index", "axn, α β, no factors", "axn on factors", "axn on factors, dense first"} <= arms
    gained = [one for one in records if "gain" in one]
    assert {one["arm"] for one in gained} >= {"axn on factors", "rerank on factors"}
    control = {(c["index"], c["k"], c["budget"]): c["recall"] for c in records if c["arm"] == "axn, α β, no factors"}
    for one in gained:
        same = control[one["index"], one["k"], one["budget"]]
        assert one["gain"] == pytest.approx(one["recall"] - same)
    calls = {one["index"]: one["x"] for one in records}
    assert calls["6 items a query"] == 12 * 6
    assert calls["CUR, 12"] == 12 * 120
    assert calls["none"] == 0


def test_lambda_mixes_the_embedded_query_of_inductive_factors() -> None:
    records = experiments.indexing(setting(solver="inductive", per_item=(), mix=0.5))
    mixed = [one for one in records if one["arm"] == "axn on factors, dense first, λ = 0.5"]
    assert mixed
    assert all("mix=0.5" in one["run"] for one in mixed)


def test_lambda_is_chosen_on_train_queries() -> None:
    records = experiments.mixing(setting())
    chosen = {(one["k"], one["budget"]): one["x"] for one in records if one["chosen"]}
    train = [one for one in records if one["of"] == "train"]
    for (k, budget), x in chosen.items():
        best = max(one["recall"] for one in train if (one["k"], one["budget"]) == (k, budget))
        assert next(o["recall"] for o in train if (o["k"], o["budget"], o["x"]) == (k, budget, x)) == best


def test_spectrum_of_a_known_rank() -> None:
    rng = np.random.default_rng(0)
    found = spectrum(rng.normal(size=(30, 5)) @ rng.normal(size=(5, 80)))
    assert found.rank == 5
    assert found.directions["99%"] <= 5


def test_oracle_anchors_by_definition() -> None:
    scores = np.array([5.0, 4.0, 3.0, 2.0, 1.0, 0.0])
    rng = np.random.default_rng(0)
    assert oracle_anchors(scores, 2, "top", 0, 0.0, rng).tolist() == [0, 1]
    assert oracle_anchors(scores, 2, "top", 1, 0.0, rng).tolist() == [1, 2]
    assert 0 not in oracle_anchors(scores, 5, "random", 1, 0.0, rng)
    half = oracle_anchors(scores, 4, "top", 0, 0.5, rng)
    assert half[:2].tolist() == [0, 1]
    assert len(set(half.tolist())) == 4
    with pytest.raises(InputError, match=r"0 … 1"):
        oracle_anchors(scores, 2, "top", 0, 2.0, rng)


def test_retrieved_counts_new_items_alone() -> None:
    predicted = np.array([9.0, 8.0, 7.0, 6.0, 5.0])
    assert retrieved(predicted, np.array([0, 2]), 2).tolist() == [0, 1, 2, 3]
    assert retrieved(predicted, np.array([0]), 0).tolist() == []


def test_approximate_scores_are_exact_on_a_matrix_of_low_rank() -> None:
    rng = np.random.default_rng(0)
    items = rng.normal(size=(4, 60))
    anchors, query = rng.normal(size=(10, 4)) @ items, rng.normal(size=4) @ items
    np.testing.assert_allclose(approximate(query, anchors, np.arange(8)), query, atol=1e-8)


def test_command_of_an_inventory_entry_names_the_lab() -> None:
    assert find("axn", "fig6").command == "crosscut-lab reproduce axn fig6 --data DIR"
    assert command.DENSE_FREE == ("indexing",)


def test_a_rule_is_compared_with_the_fixed_number_of_its_recall() -> None:
    from crosscut.ann.ivf.learning import Observations
    from crosscut_lab.papers.exits import earned

    needed = np.random.default_rng(0).geometric(0.1, 4000)  # the cluster that holds the neighbour
    observed = Observations.__new__(Observations)
    object.__setattr__(observed, "ranks", needed[:, None])
    fixed = earned(observed, np.full(4000, 20))  # N′ is the rule itself
    assert 0.95 <= fixed[0] <= 1.0 <= fixed[1] <= 1.06
    stopped = earned(observed, np.where(needed <= 20, needed, 1))  # finds as much, and stops where it should
    assert stopped[1] < 0.5
