"""The papers' recipes on tiny BERTs: what is trained, what is saved, and that it loads as it was trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import WORDS, beir, bert, sentences
from typer.testing import CliRunner

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch.nn import functional  # noqa: E402

from crosscut.datasets.records import Collection, Item, Query  # noqa: E402
from crosscut.errors import InputError  # noqa: E402
from crosscut.spaces.sparse import SparseScores  # noqa: E402
from crosscut_lab.cli import app  # noqa: E402
from crosscut_lab.papers import training  # noqa: E402
from crosscut_lab.papers.models import Marked, PaperCross, Towers, load_encoder, load_scorer, open_tokenizer  # noqa: E402
from crosscut_lab.papers.training import Case, Recipe, distil, match, pair, schedule, squared, teach  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
TOKENS = 24


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return bert(tmp_path_factory.mktemp("model") / "bert", spread=0.3)


def collection(name: str, count: int = 12, seed: int = 0) -> Collection:
    """Entities named after two words; a mention of one is its name in a sentence."""
    rng = np.random.default_rng(seed)
    names = [f"{a} {b}" for a in WORDS[:10] for b in WORDS[10:]]
    rng.shuffle(names)
    items = [Item(f"{name}{n}", names[n], f"{names[n]} {text}") for n, text in enumerate(sentences(count, seed=seed))]
    queries = [Query(f"{name}q{n}", f"cat sea [START] {items[n].title} [END] in the moon") for n in range(count)]
    return Collection(name, items, queries, {f"{name}q{n}": {f"{name}{n}": 1.0} for n in range(count)})


def recipe(**more: Any) -> Recipe:
    given = {"learning_rate": 3e-3, "epochs": 2, "candidates": 4, "validations": 2, "tokens": TOKENS, "seed": 1}
    return Recipe(**{**given, **more})


def test_towers_learn_and_load_as_they_were_saved(start: Path, tmp_path: Path) -> None:
    sets = [collection("a"), collection("b", 6, seed=1)]
    how = recipe(epochs=8, batch=4, candidates=8, learning_rate=1e-3)
    outcome = training.train_towers(sets, start, tmp_path, how, dev=sets)
    assert outcome.best >= outcome.history[0]["validation"]
    assert outcome.best > 0.3
    loaded = load_encoder(str(tmp_path / "model"))
    items, texts = sets[0].items[:5], [query.text for query in sets[0].queries[:3]]
    assert loaded.encode_items(items).shape == (5, 32)
    trained = Towers.start(tmp_path / "model", tokens=TOKENS)
    np.testing.assert_allclose(loaded.encode_queries(texts), trained.encode_queries(texts), atol=1e-5)
    as_items = trained.embed([trained.form.query(text) for text in texts], 1)
    assert not np.allclose(trained.encode_queries(texts), as_items)  # two sets of weights


@pytest.mark.parametrize("head", ["emb", "cls"])
def test_cross_encoders_learn_and_load_as_they_were_saved(head: Any, start: Path, tmp_path: Path) -> None:
    sets = [collection("a")]
    how = recipe(epochs=8, learning_rate=1e-3)
    outcome = training.train_cross(sets, start, tmp_path, how, miner="tfidf", head=head, dev=sets)
    assert outcome.best > outcome.history[0]["validation"] - 0.01
    assert outcome.best > 0.3  # of four candidates
    model = PaperCross.load(tmp_path / "model")
    scorer = load_scorer(str(tmp_path / "model"))
    query, texts = sets[0].queries[0].text, [f"{item.title}\n{item.text}" for item in sets[0].items]
    bound = scorer.bind(sets[0].items).score(query, np.arange(len(texts)))
    np.testing.assert_allclose(bound, model.score(query, texts), atol=1e-5)
    alone = [model.score(query, [text])[0] for text in texts]
    np.testing.assert_allclose(bound, alone, atol=1e-4)
    again = PaperCross.start(start, head, tokens=TOKENS)
    assert again.fingerprint != model.fingerprint


def test_marked_texts_have_the_form_of_the_paper(start: Path) -> None:
    form = Marked(open_tokenizer(start), 16)
    ids = form.tokenizer.token_to_id
    query = form.query("cat sea [START] gold moon [END] rain")
    assert [form.tokenizer.id_to_token(one) for one in query.ids] == [
        "[CLS]", "cat", "sea", "[unused0]", "gold", "moon", "[unused1]", "rain", "[SEP]",
    ]  # fmt: skip
    item = form.item(Item("x", "king", "of the sea"))
    row = form.join(query, item)
    assert [row.ids[place] for place in row.reads] == [ids("[unused0]"), ids("[unused1]"), ids("[unused2]")]
    assert row.positions[len(query.ids)] == 16  # behind the room of the query
    long = form.query(" ".join(WORDS) + " [START] moon [END] " + " ".join(WORDS))
    assert len(long.ids) == 16
    assert long.ids[long.marks[0]] == ids("[unused0]")


def test_losses_are_those_of_the_paper() -> None:
    ours = [torch.tensor([1.0, 2.0, 0.5, -1.0]), torch.tensor([0.0, 1.0, 3.0, 1.0])]
    cases = [Case(0, 0, (1, 2, 3, 4), (3.0, 1.0, 0.0, -2.0)), Case(0, 1, (1, 2, 3, 4), (0.0, 0.0, 1.0, 2.0))]
    expected = []
    for one, case in zip(ours, cases, strict=True):
        p, q = (np.exp(v - v.max()) / np.exp(v - v.max()).sum() for v in (np.asarray(case.scores), one.numpy()))
        expected.append(-(p * np.log(q)).sum())
    assert float(match(ours, cases)) == pytest.approx(np.mean(expected), abs=1e-6)
    pairs = [
        functional.cross_entropy(torch.stack([one[2 + j], one[j]])[None], torch.tensor([1])).item()
        for one in ours
        for j in range(2)
    ]
    assert float(pair(ours, cases)) == pytest.approx(np.mean(pairs), abs=1e-6)
    entropies = [functional.cross_entropy(one[None], torch.tensor([0])).item() for one in ours]
    assert float(training.entropy(ours)) == pytest.approx(np.mean(entropies), abs=1e-6)
    errors = [(one.numpy() - np.asarray(case.scores)) ** 2 for one, case in zip(ours, cases, strict=True)]
    assert float(squared(ours, cases)) == pytest.approx(np.mean(errors), abs=1e-6)


def test_negatives_are_the_best_that_are_not_right() -> None:
    found = training.negatives(np.arange(80), frozenset({0, 5}), 63)
    assert found == [n for n in range(80) if n not in (0, 5)][:63]
    assert Recipe().candidates - 1 == 63
    assert schedule(0.005, 0.01) == 0.5
    assert schedule(1.0, 0.01) == 0


@pytest.mark.parametrize("loss", ["match", "pair"])
def test_distillation(loss: Any, start: Path, tmp_path: Path) -> None:
    target = collection("a", 20)
    rng = np.random.default_rng(0)
    scores = SparseScores.from_dense(rng.normal(size=(12, 20)) + 4 * np.eye(12, 20))
    texts = [query.text for query in target.queries[:12]]
    how = recipe(epochs=6, candidates=6, batch=1, accumulate=4, learning_rate=1e-3)
    outcome = distil(target.items, texts, scores, start, tmp_path, how, loss=loss)
    losses = [one["loss"] for one in outcome.history]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    assert load_encoder(str(tmp_path / "model")).encode_queries(texts[:1]).shape == (1, 32)


def test_a_student_learns_the_mean_of_its_teachers(start: Path, tmp_path: Path) -> None:
    target = collection("a", 16)
    seen: list[int] = []

    def teachers(rows: Any, columns: Any) -> list[Any]:
        seen.append(len(rows))
        base = (rows * 7 + columns) % 5 / 5
        return [base + 0.5, base - 1.5]

    ranked = np.stack([np.random.default_rng(n).permutation(16) for n in range(16)])
    how = recipe(epochs=4, candidates=3, tokens=2 * TOKENS)
    outcome = teach(target, start, tmp_path, how, teachers, ranked=ranked)
    assert seen == [16 * 3]
    assert outcome.history[-1]["loss"] < outcome.history[0]["loss"]
    model = PaperCross.load(tmp_path / "model")
    assert np.isfinite(model.score("river", ["bank", "cat"])).all()


def test_recipes_refuse_what_cannot_be_trained(start: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="leave no negative"):
        recipe(candidates=1)
    with pytest.raises(InputError, match="epochs must be above 0"):
        recipe(epochs=0)
    with pytest.raises(InputError, match="at least 2 queries"):
        training.train_towers([collection("a", 1)], start, tmp_path, recipe())


@pytest.mark.parametrize(
    "command",
    [
        ["dual-encoder", "BEIR", "--start", "BERT", "--candidates", "3"],
        ["cross-encoder", "BEIR", "--start", "BERT", "--miner", "random", "--candidates", "3"],
        ["distill", "BEIR", "--start", "BERT", "--scorer", "CE", "--queries", "6", "--candidates", "3", "--k-d", "5"],
        ["student", "BEIR", "--start", "BERT", "--teacher", "CE", "--batch", "4"],
    ],
)
def test_every_command_runs(command: list[str], start: Path, tmp_path: Path) -> None:
    PaperCross.start(start, tokens=TOKENS).save(tmp_path / "ce")
    folder = beir(tmp_path / "beir", items=20, queries=8)
    names = {"BEIR": str(folder), "BERT": str(start), "CE": str(tmp_path / "ce")}
    words = [names.get(word, word) for word in command]
    tokens = "48" if command[0] == "student" else "24"
    found = CliRunner().invoke(
        app, ["train", *words, "--output", str(tmp_path / "out"), "--epochs", "1", "--tokens", tokens]
    )
    assert found.exit_code == 0, f"{found.output} {found.exception!r}"
    assert (tmp_path / "out" / "model" / "model.torch").is_file()


def test_distillation_of_a_sentence_transformers_model(start: Path, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    pytest.importorskip("accelerate")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Pooling, Transformer

    source = SentenceTransformer(modules=[Transformer(str(start), max_seq_length=TOKENS), Pooling(32, "mean")])
    source.save(str(tmp_path / "src"))
    target = collection("a", 12)
    rng = np.random.default_rng(0)
    scores = SparseScores.from_dense(rng.normal(size=(8, 12)))
    how = recipe(epochs=1, batch=4, candidates=4)
    texts = [query.text for query in target.queries[:8]]
    outcome = training.distil_sentences(target.items, texts, scores, tmp_path / "src", tmp_path / "out", how)
    assert outcome.steps == 2
    before, after = source.encode(texts), SentenceTransformer(str(tmp_path / "out" / "model")).encode(texts)
    assert not np.allclose(before, after, atol=1e-4)
