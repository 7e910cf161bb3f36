"""The papers' recipes on tiny BERTs: what is trained, what is saved, and that it loads as the published models do."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from torch.nn import functional
from typer.testing import CliRunner

from crosscut.cli import app
from crosscut.cli.training import scored_by
from crosscut.datasets.records import Collection, Item, ItemList, Query
from crosscut.datasets.zeshel import read_worlds
from crosscut.encoders.named import TorchDualEncoder, load_encoder
from crosscut.encoders.pairs import Marked
from crosscut.encoders.running import WORKER, Running, devices_of
from crosscut.encoders.towers import OnnxTowers, TorchTowers
from crosscut.errors import InputError
from crosscut.scorers.exported import ExportedCrossEncoder
from crosscut.scorers.loading import load_scorer
from crosscut.scorers.torch import TorchPairs
from crosscut.spaces.sparse import SparseScores
from crosscut.training.hardware import Hardware, Replicas
from crosscut.training.published import recipes
from crosscut.training.published.distillation import distil, match, pair
from crosscut.training.published.fitting import Case, PaperJob, Recipe, fit, warmed
from crosscut.training.published.models import PaperCross, Towers
from tests.hub_models import add_pair_template, write_model
from tests.tiny_models import WORDS, sentences, write_tokenizer

TOKENS = 24


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_CACHE", str(tmp_path_factory.mktemp("cache")))


def marked_tokenizer(path: Path) -> Path:
    """Word pieces with the unused tokens that mark mentions and titles."""
    from tokenizers import Tokenizer

    add_pair_template(write_tokenizer(path))
    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.add_special_tokens(["[unused0]", "[unused1]", "[unused2]"])
    tokenizer.save(str(path))
    return path


def write_bert(folder: Path, spread: float) -> Path:
    tokenizer = marked_tokenizer(folder / "made.json")
    still: dict[str, Any] = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return write_model(folder / "bert", "bert", layers=1, head=False, tokenizer=tokenizer, spread=spread, **still)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bert(tmp_path_factory.mktemp("bert"), 0.15)


def world(name: str, count: int = 30, seed: int = 0) -> Collection:
    """Entities named after two words; a mention of one is its name in a sentence."""
    rng = np.random.default_rng(seed)
    names = [f"{WORDS[a]} {WORDS[b]}" for a in range(10, 20) for b in range(10, 20) if a != b]
    rng.shuffle(names)
    items = [Item(f"{name}{n}", names[n], f"{names[n]} {text}") for n, text in enumerate(sentences(count, seed=seed))]
    queries = [Query(f"{name}q{n}", f"he sat on [START] {items[n].title} [END] in the land") for n in range(count)]
    return Collection(name, items, queries, {f"{name}q{n}": {f"{name}{n}": 1.0} for n in range(count)})


def recipe(**more: Any) -> Recipe:
    return Recipe(**{"learning_rate": 3e-3, "epochs": 2, "candidates": 4, "validations": 2, "seed": 1, **more})


def test_towers_learn_and_load_as_published(bert: Path, tmp_path: Path) -> None:
    worlds = [world("a", 10), world("b", 6, seed=1)]
    how = recipe(epochs=12, batch=2, candidates=10, learning_rate=1e-3)
    outcome = recipes.train_towers(worlds, PaperJob(bert, tmp_path, how, TOKENS), dev=worlds)
    assert outcome.best >= outcome.history[0]["validation"]["mean"] + 0.2
    loaded = load_encoder(str(tmp_path / "model"))
    assert isinstance(loaded, OnnxTowers)
    trained = Towers.start(tmp_path / "model", tokens=TOKENS)
    items = worlds[0].items[:7]
    ours = trained.embed(trained.form.items(items), 1)
    np.testing.assert_allclose(loaded.encode_items(items), ours, atol=2e-4)
    texts = [query.text for query in worlds[0].queries[:3]]
    asked = trained.embed(trained.form.queries(texts), 0)
    np.testing.assert_allclose(loaded.encode_queries(texts), asked, atol=2e-4)
    assert not np.allclose(asked @ asked.T, np.diag(np.ones(3)), atol=0.5)  # lengths are the models' own
    assert not np.allclose(trained.embed(trained.form.queries(texts), 1), asked)  # two sets of weights


@pytest.mark.parametrize("head", ["emb", "cls"])
@pytest.mark.parametrize("kind", ["distilbert", "roberta", "modernbert"])
def test_other_encoders_are_trained_and_load_as_published(kind: str, head: Any, tmp_path: Path) -> None:
    """RoBERTa's words have no marks for mentions and titles: it gets them."""
    still: dict[str, Any] = {"attention_dropout": 0.0} if kind != "roberta" else {"hidden_dropout_prob": 0.0}
    given = None if kind == "roberta" else marked_tokenizer(tmp_path / "made.json")
    start = write_model(tmp_path / kind, kind, layers=2, head=False, tokenizer=given, **still)
    worlds, how = [world("a", 8)], recipe(epochs=1, batch=4)
    recipes.train_towers(worlds, PaperJob(start, tmp_path / "de", how, TOKENS))
    miner = tmp_path / "de" / "model"
    recipes.train_cross(worlds, PaperJob(start, tmp_path / "ce", how, TOKENS), miner, head=head)
    towers, loaded = Towers.start(miner, tokens=TOKENS), load_encoder(str(miner))
    items, texts = worlds[0].items, [query.text for query in worlds[0].queries]
    np.testing.assert_allclose(loaded.encode_items(items), towers.embed(towers.form.items(items), 1), atol=2e-3)
    scorer = load_scorer(str(tmp_path / "ce" / "model"))
    assert isinstance(scorer, ExportedCrossEncoder)  # on onnxruntime
    there = TorchPairs.load(str(tmp_path / "ce" / "model"))
    handles = np.arange(len(items))
    for text in texts[:3]:
        exact = there.bind(items).score(text, handles)
        np.testing.assert_allclose(scorer.bind(items).score(text, handles), exact, atol=2e-3)
        assert np.std(exact) > 0
    assert isinstance(scorer.form, Marked)
    marks = [scorer.form.tokenizer.token_to_id(mark) for mark in ("[unused0]", "[unused1]", "[unused2]")]
    read = scorer.form.join(scorer.form.queries(texts[:1])[0], scorer.form.items(items[:1])[0]).ids
    assert set(marks) <= {*read.tolist()}


def form(bert: Path) -> Any:
    return Towers.start(bert, tokens=TOKENS).form


def test_negatives_are_mined_anew_and_stay_in_their_world(bert: Path, tmp_path: Path) -> None:
    worlds = [world("a"), world("b", 20, seed=1)]
    recipes.train_towers(worlds, PaperJob(bert, tmp_path, recipe(batch=8), TOKENS))
    epochs = [json.loads((tmp_path / "checkpoints" / f"examples-{n}.json").read_text()) for n in range(2)]
    assert epochs[0] != epochs[1]
    for cases in epochs:
        for number, query, items, _ in cases:
            assert len(items) == len(set(items)) == 4
            assert max(items) < len(worlds[number].items)
            assert query < len(worlds[number].queries)


@pytest.mark.parametrize("head", ["emb", "cls"])
def test_cross_encoders_learn_and_load_as_published(head: Any, tmp_path: Path) -> None:
    bert = write_bert(tmp_path, 0.4)
    worlds = [world("a", 10), world("b", 6, seed=1)]
    recipes.train_towers(worlds, PaperJob(bert, tmp_path / "de", recipe(epochs=1, batch=8), TOKENS))
    how = recipe(epochs=10, batch=4, learning_rate=1e-3)
    outcome = recipes.train_cross(
        worlds, PaperJob(bert, tmp_path / "ce", how, TOKENS), tmp_path / "de" / "model", head=head, dev=worlds
    )
    assert outcome.best >= outcome.history[0]["validation"]["mean"] + 0.2  # of four candidates
    fixed = [(tmp_path / "ce" / "checkpoints" / f"examples-{n}.json").read_text() for n in (0, 9)]
    assert fixed[0] == fixed[1]
    scorer = load_scorer(str(tmp_path / "ce" / "model"))
    assert isinstance(scorer, ExportedCrossEncoder)
    target = world("c", 6, seed=2)
    trained = PaperCross.start(bert, head, tokens=TOKENS)
    saved = torch.load(tmp_path / "ce" / "model" / "model.torch", weights_only=True)
    names = {"encoder.bert_model.": "body.", "encoder.additional_linear.": "linear."}
    for old, new in names.items():
        saved = {name.replace(old, new): tensor for name, tensor in saved.items()}
    trained.load_state_dict(saved)
    trained.eval()
    query = target.queries[0].text
    read = trained.form.items(target.items)
    asked = trained.form.queries([query])[0]
    with torch.no_grad():
        ours = trained([trained.form.join(asked, item) for item in read]).numpy()
    theirs = scorer.bind(ItemList(target.items)).score(query, np.arange(6))
    np.testing.assert_allclose(theirs, ours, atol=3e-4)
    # the same model by torch, as on a GPU
    on_device = load_scorer(str(tmp_path / "ce" / "model") + "#device=cpu,cpu").bind(ItemList(target.items))
    np.testing.assert_allclose(on_device.score(query, np.arange(6)), ours, atol=3e-4)


def test_sixty_three_negatives_are_the_best_that_are_not_right() -> None:
    ranked = np.arange(80)
    assert recipes.negatives(ranked, frozenset({0, 5}), 63) == [n for n in range(80) if n not in (0, 5)][:63]
    assert Recipe().candidates - 1 == 63


def test_a_miner_may_be_any_dual_encoder(bert: Path) -> None:
    some = recipes.ReadWorld.read(world("a", 12), form(bert))
    rank = recipes.ranker("default", 5, TOKENS, Hardware())
    assert rank(some).shape == (12, 6)


def scores_of(count: int = 12, items: int = 20) -> tuple[Collection, SparseScores]:
    target = world("a", items)
    rng = np.random.default_rng(0)
    dense = rng.normal(size=(count, items)) + 4 * np.eye(count, items)
    return target, SparseScores.from_dense(dense)


@pytest.mark.parametrize("loss", ["match", "pair"])
def test_distillation(loss: Any, bert: Path, tmp_path: Path) -> None:
    target, scores = scores_of()
    texts = [query.text for query in target.queries[:12]]
    how = recipe(epochs=8, candidates=6, batch=1, accumulate=4, learning_rate=1e-3)
    outcome = distil(target.items, texts, scores, PaperJob(bert, tmp_path, how, TOKENS), loss=loss)
    losses = [one["loss"] for one in outcome.history]
    assert np.mean(losses[-4:]) < np.mean(losses[:4])
    assert load_encoder(str(tmp_path / "model")).encode_queries(texts[:1]).shape == (1, 32)
    first, last = (json.loads((tmp_path / "checkpoints" / f"examples-{n}.json").read_text()) for n in (0, 7))
    assert (sorted(first) == sorted(last)) == (loss == "match")  # L_pair mines its negatives anew
    best = {q: np.argsort(-row)[:6].tolist() for q, row in enumerate(dense_of(scores))}
    for _, query, items, _ in first:
        assert items[:6] == best[query]
        assert len(items) == (6 if loss == "match" else 12)
        assert not set(items[6:]) & set(items[:6])


def dense_of(scores: SparseScores) -> Any:
    made = np.full(scores.shape, np.nan)
    made[scores.pairs.queries, scores.pairs.items] = scores.scores
    return made


def test_losses_are_those_of_the_paper() -> None:
    ours = [torch.tensor([1.0, 2.0, 0.5, -1.0]), torch.tensor([0.0, 1.0, 3.0, 1.0])]
    cases = [Case(0, 0, (1, 2, 3, 4), (3.0, 1.0, 0.0, -2.0)), Case(0, 1, (1, 2, 3, 4), (0.0, 0.0, 1.0, 2.0))]
    expected = []
    for one, case in zip(ours, cases, strict=True):
        p, q = (np.exp(v - v.max()) / np.exp(v - v.max()).sum() for v in (np.asarray(case.scores), one.numpy()))
        expected.append(-(p * np.log(q)).sum())
    assert float(match(ours, cases)) == pytest.approx(np.mean(expected), abs=1e-6)
    # H([0, 1], softmax [s_N, s_T]), pair by pair
    pairs = [
        functional.cross_entropy(torch.stack([one[2 + j], one[j]])[None], torch.tensor([1])).item()
        for one in ours
        for j in range(2)
    ]
    assert float(pair(ours, cases)) == pytest.approx(np.mean(pairs), abs=1e-6)
    assert float(recipes.entropy(ours)) == pytest.approx(
        np.mean([functional.cross_entropy(one[None], torch.tensor([0])).item() for one in ours]), abs=1e-6
    )
    targets = [np.asarray(case.scores) for case in cases]
    errors = [(one.numpy() - two) ** 2 for one, two in zip(ours, targets, strict=True)]
    assert float(recipes.squared(ours, cases)) == pytest.approx(np.mean(errors), abs=1e-6)


def test_distillation_goes_on_from_a_sentence_transformers_model(bert: Path, tmp_path: Path) -> None:
    """DE_SRC of BEIR: one tower, mean pooling; what is saved loads as it did."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    transformer = Transformer(str(bert), max_seq_length=TOKENS)
    source = SentenceTransformer(modules=[transformer, Pooling(32, "mean")], similarity_fn_name="dot", device="cpu")
    source.save(str(tmp_path / "src"))
    model = Towers.start(tmp_path / "src", tokens=TOKENS)
    assert (len(model.bodies), model.mean, model.unit) == (1, True, False)
    target, scores = scores_of()
    texts = [query.text for query in target.queries[:12]]
    np.testing.assert_allclose(
        model.embed(model.form.queries(texts), 0), source.encode(texts, normalize_embeddings=False), atol=1e-4
    )
    distil(target.items, texts, scores, PaperJob(tmp_path / "src", tmp_path / "out", recipe(accumulate=4), TOKENS))
    loaded = load_encoder(str(tmp_path / "out" / "model"))
    again = Towers.start(tmp_path / "out" / "model", tokens=TOKENS)
    np.testing.assert_allclose(loaded.encode_queries(texts), again.embed(again.form.queries(texts), 0), atol=1e-4)
    assert not np.allclose(loaded.encode_queries(texts), model.embed(model.form.queries(texts), 0), atol=1e-2)


def test_a_student_learns_the_mean_of_its_teachers(bert: Path, tmp_path: Path) -> None:
    """ADACUR B.1.2."""
    target = world("a", 16)
    plain = [query._replace(text=query.text.replace("[START] ", "").replace(" [END]", "")) for query in target.queries]
    target = Collection("plain", target.items, plain, target.judgements)
    calls: list[int] = []

    def teacher(sign: float) -> Any:
        def score(query: str, texts: Any) -> list[float]:
            calls.append(len(texts))
            return [sign + len(set(query.split()) & set(text.split())) for text in texts]

        return score

    ranked = np.stack([np.random.default_rng(n).permutation(16) for n in range(16)])
    outcome = recipes.teach(
        target,
        PaperJob(bert, tmp_path, recipe(epochs=4, candidates=3), 2 * TOKENS),
        [teacher(0.5), teacher(-1.5)],
        ranked=ranked,
        store=None,
    )
    assert sum(calls) == 2 * 16 * 3
    kept = json.loads((tmp_path / "checkpoints" / "examples-0.json").read_text())
    for _, query, items, scores in kept:
        for item, score in zip(items, scores, strict=True):
            words = set(plain[query].text.split()) & set(
                f"{target.items[item].title}\n{target.items[item].text}".split()
            )
            assert score == pytest.approx(len(words) - 0.5)
    assert outcome.best > outcome.history[0]["validation"]["mean"]
    scorer = ExportedCrossEncoder.load(f"emb+{tmp_path / 'model'}")
    assert scorer.bind(target.items).score("the river bank", np.arange(3)).shape == (3,)


# ---------------------------------------------------------------- steps and devices


def toy() -> tuple[torch.nn.Linear, list[Case], Any]:
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1)
    points = torch.randn(12, 3)
    cases = [Case(0, n, (0,)) for n in range(12)]

    def loss(layer: torch.nn.Linear, some: Any) -> torch.Tensor:
        x = points[[case.query for case in some]].to(layer.weight.device)
        return (layer(x)[:, 0] - x.sum(1)).square().mean()

    return model, cases, loss


def test_gradients_add_up_over_batches_and_devices() -> None:
    model, cases, loss = toy()
    grads = []
    for hardware, size in (
        (Hardware(), 12),
        (Hardware(), 3),
        (Hardware(("cpu", "cpu")), 3),
        (Hardware(("cpu",) * 3), 5),
    ):
        replicas = Replicas(model, hardware)
        value = replicas.gradient([cases[at : at + size] for at in range(0, 12, size)], loss)
        assert value == pytest.approx(float(loss(model, cases).detach()), abs=1e-6)
        assert model.weight.grad is not None
        grads.append(model.weight.grad.clone())
    for grad in grads[1:]:
        torch.testing.assert_close(grad, grads[0])


def test_a_killed_run_goes_on_and_ends_the_same(bert: Path, tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def run(folder: Path, stop: int | None) -> list[dict[str, Any]]:
        def report(record: dict[str, Any]) -> None:
            if stop is not None and record["step"] == stop and "validation" not in record:
                raise Killed

        how = recipe(epochs=2, batch=8, validations=2)
        return recipes.train_towers([world("a")], PaperJob(bert, folder, how, TOKENS, report=report)).history

    whole = run(tmp_path / "whole", None)
    with pytest.raises(Killed):
        run(tmp_path / "killed", 6)
    again = run(tmp_path / "killed", None)
    assert [one["loss"] for one in again] == pytest.approx([one["loss"] for one in whole], abs=1e-5)
    weights = [torch.load(tmp_path / name / "model" / "model.torch", weights_only=True) for name in ("whole", "killed")]
    for name, tensor in weights[0].items():
        torch.testing.assert_close(weights[1][name], tensor, atol=1e-5, rtol=1e-4)


def test_bf16_trains(bert: Path, tmp_path: Path) -> None:
    outcome = recipes.train_towers(
        [world("a", 12)], PaperJob(bert, tmp_path, recipe(epochs=1, batch=8), TOKENS, Hardware(dtype="bf16"))
    )
    assert np.isfinite(outcome.history[-1]["loss"])


def test_models_run_where_their_weights_are(bert: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device without numbers everything has its shape, and nothing is left behind on the CPU."""
    look = "transformers.masking_utils._ignore_bidirectional_mask_sdpa"  # looks at the numbers of a mask
    monkeypatch.setattr(look, lambda *_, **__: False, raising=False)
    cross, towers = PaperCross.start(bert, tokens=TOKENS).to("meta"), Towers.start(bert, tokens=TOKENS).to("meta")
    target = world("a", 4)
    query, items = cross.form.queries([target.queries[0].text])[0], cross.form.items(target.items)
    scores = cross([cross.form.join(query, item) for item in items])
    assert (scores.device.type, tuple(scores.shape)) == ("meta", (4,))
    vectors = towers(items, 1)
    assert (vectors.device.type, tuple(vectors.shape)) == ("meta", (4, 32))


def test_our_own_models_run_where_their_weights_are(bert: Path, tmp_path: Path) -> None:
    from crosscut.training.examples import Example, Examples, collate
    from crosscut.training.jobs import Job, start_model, tokenizer_of
    from crosscut.training.loop import loss_of
    from crosscut.training.models import CrossModel, DualModel

    job = Job(bert, tmp_path, hardware=Hardware(("meta",)), query_tokens=TOKENS, item_tokens=TOKENS)
    tokenizer = tokenizer_of(job)
    target = world("a", 6)
    examples = Examples(pool=tokenizer.items(target.items))
    group = [Example("train", tokenizer.query(target.queries[n].text), (n, 4, 5), frozenset({n})) for n in range(2)]
    batch = collate(examples, group, 3, random.Random(0))
    for kind in (CrossModel, DualModel):
        model = start_model(kind, job)
        assert {p.device.type for p in model.parameters()} == {"meta"}
        with pytest.raises(RuntimeError, match="meta"):  # only the count of hits, a number, cannot be told
            loss_of(model, batch)


@pytest.mark.parametrize("linear", [False, True])
def test_towers_in_torch_are_those_on_onnxruntime(bert: Path, tmp_path: Path, linear: bool) -> None:
    folder = tmp_path / "de"
    Towers.start(bert, tokens=TOKENS).save(folder)
    if linear:
        saved = torch.load(folder / "model.torch", weights_only=True)
        for tower in ("input_encoder", "label_encoder"):
            saved[f"{tower}.additional_linear.weight"] = torch.randn(8, 32)
        torch.save(saved, folder / "model.torch")
    target = world("a", 9)
    asked = [query.text for query in target.queries]
    exact = OnnxTowers(folder, Running())
    for how in (Running("cpu", batch_size=4), Running("cpu,cpu", batch_size=3)):
        made = TorchTowers(folder, how)
        assert made.dimension == exact.dimension == (8 if linear else 32)
        assert made.fingerprint != exact.fingerprint
        np.testing.assert_allclose(made.encode_items(target.items), exact.encode_items(target.items), atol=1e-4)
        np.testing.assert_allclose(made.encode_queries(asked), exact.encode_queries(asked), atol=1e-4)


def test_settings_of_towers_are_obeyed(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "de"
    Towers.start(bert, tokens=TOKENS).save(folder)
    items = [f"{one.text} " * 4 for one in world("a", 5).items]
    plain, unit, short = (
        load_encoder(f"{folder}{more}") for more in ("", "#similarity=cosine&device=cpu", "#max_length=8")
    )
    assert len({one.fingerprint for one in (plain, unit, short)}) == 3
    rows = plain.encode_items(items)
    np.testing.assert_allclose(unit.encode_items(items), rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6)
    assert not np.allclose(short.encode_items(items), rows, atol=1e-3)
    for more, said in (
        ("#max_length=4000", "has positions for 96 tokens and 4000 are asked for"),
        ("#device=cuda:1", "there is no device 'cuda:1': torch sees 0 GPUs here"),
        ("#dtype=int8", "int8 is for cross-encoders"),
    ):
        with pytest.raises(InputError, match=said):
            load_encoder(f"{folder}{more}")
    seen = []
    monkeypatch.setattr("crosscut.encoders.towers.check_device", lambda device: seen.append(device) or "cpu")
    load_encoder(f"{folder}#device=cuda:0,cuda:1&dtype=bf16").encode_items(items)
    assert seen == ["cuda:0", "cuda:0", "cuda:1", "cuda:1"]  # two towers on each


class FakeSentences:
    """What `SentenceTransformer` is asked for."""

    made: ClassVar[list[str]] = []

    def __init__(self, _: str, device: str | None) -> None:
        self.made.append(str(device))
        self.used = 0

    def state_dict(self) -> dict[str, Any]:
        return {"weight": torch.ones(2)}

    def encode(self, texts: list[str], **_: Any) -> Any:
        self.used += len(texts)
        time.sleep(0.02)
        return np.asarray([[len(text), 1] for text in texts], np.float32)


def test_hub_encoders_run_on_the_cpu_or_on_every_device_that_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sentence_transformers.SentenceTransformer", FakeSentences)
    monkeypatch.setattr("crosscut.encoders.running.gpus", lambda: 2)
    monkeypatch.setattr(FakeSentences, "made", [])
    load_encoder("an/encoder")
    assert FakeSentences.made == ["cpu"]  # even where there are GPUs
    texts = [f"{'a' * (n % 50)}" for n in range(5000)]
    told: list[tuple[str, int, int]] = []
    encoder = load_encoder("an/encoder#device=cuda:*&similarity=dot")
    assert FakeSentences.made[1:] == ["cuda:0", "cuda:1"]
    np.testing.assert_array_equal(
        encoder.encode_items(texts, progress=lambda *one: told.append(one))[:, 0], [len(text) for text in texts]
    )
    assert told == [("encoding items", done, 5000) for done in (1024, 2048, 3072, 4096, 5000)]
    assert isinstance(encoder, TorchDualEncoder)
    free = encoder._models._free
    assert min(free.get().used for _ in range(2)) >= 1024  # both have worked
    monkeypatch.setenv(WORKER, "3")
    load_encoder("an/encoder#device=cuda:*")
    assert FakeSentences.made[3:] == ["cuda:1"]  # a worker takes its own


def test_a_scorer_goes_where_the_training_is() -> None:
    two = Hardware(("cuda:0", "cuda:1"))
    for given, named, workers in (
        ("a/b", "a/b#device=cuda:0,cuda:1", 2),
        ("a/b#dtype=bf16&device=cuda:3", "a/b#dtype=bf16&device=cuda:3", 1),
        ("default", "default", 1),
        ("https://example.com/rerank", "https://example.com/rerank", 1),
    ):
        made, engine = scored_by(given, "local", two)
        assert (made, engine.workers) == (named, workers)
    made, engine = scored_by("a/b", "local", Hardware(("cpu", "cpu")))
    assert (made, engine.workers) == ("a/b", 1)


def test_devices() -> None:
    assert devices_of(None) == ["cpu"]
    assert devices_of("cuda:*", lambda: 3) == ["cuda:0", "cuda:1", "cuda:2"]
    assert Hardware.of("cuda:0, cuda:1", "bf16") == Hardware(("cuda:0", "cuda:1"), "bf16")
    for device, workers, wanted in (
        ("cuda", 2, ("cuda:0", "cuda:1")),  # of four
        ("cuda", 1, ("cuda",)),
        ("cuda:*", 3, ("cuda:0", "cuda:1", "cuda:2")),
        ("cuda:2,cuda:0", 2, ("cuda:2", "cuda:0")),
        ("cuda:2,cuda:0", 1, ("cuda:2",)),
        (None, 3, ("cpu", "cpu", "cpu")),
        (None, None, ("cpu",)),
    ):
        assert Hardware.of(device, None, lambda: 4, workers).devices == wanted
    with pytest.raises(
        InputError, match="5 workers need a device each, and there are 4: cuda:0, cuda:1, cuda:2, cuda:3"
    ):
        Hardware.of("cuda", None, lambda: 4, 5)
    for device, dtype, said in (
        ("cuda:*", None, "sees none"),
        ("cpu", "fp16", "fp16 trains on a GPU"),
        ("cpu", "int8", "computes in"),
        ("nowhere", None, "no device"),
        ("cuda:0,", None, "empty name"),
    ):
        with pytest.raises(InputError, match=said):
            Hardware.of(device, dtype, lambda: 0)
    with pytest.raises(InputError, match="one device"):
        Hardware(("cuda:0", "cuda:1")).one_device()


def test_the_rate_rises_and_falls_in_a_line() -> None:
    rates = [warmed(progress / 100, 0.1) for progress in range(101)]
    assert rates[0] == 0
    assert rates[10] == pytest.approx(1)
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0


def test_refusals(bert: Path, tmp_path: Path) -> None:
    for wrong in ({"learning_rate": 0}, {"epochs": 0}, {"accumulate": 0}, {"candidates": 1}):
        with pytest.raises(InputError):
            Recipe(**wrong).check()
    with pytest.raises(InputError, match="do not fit the 96 positions"):
        PaperCross.start(bert, tokens=128)
    with pytest.raises(InputError, match="'emb' or 'cls'"):
        PaperCross.start(bert, "mean", tokens=TOKENS)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="at least 2"):
        recipes.train_towers([world("a", 1)], PaperJob(bert, tmp_path, recipe(), TOKENS))
    model = PaperCross.start(bert, tokens=TOKENS)
    with pytest.raises(InputError, match="no training examples"):
        fit(model, lambda epoch: [], toy()[2], lambda _: 0.0, PaperJob(bert, tmp_path / "none", recipe()))
    target, scores = scores_of()
    with pytest.raises(InputError, match="'match' or 'pair'"):
        distil(target.items, ["a"], scores, PaperJob(bert, tmp_path, recipe()), loss="other")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="queries × items"):
        distil(target.items, ["a"], scores, PaperJob(bert, tmp_path, recipe()))


def test_negatives_of_words_and_of_chance(bert: Path) -> None:
    """ANNCUR's table 3: TF-IDF ranks as scikit-learn's cosines do; chance is the same for the same seed."""
    made = world("a", 12)
    named = recipes.ReadWorld.read(made, form(bert))
    by_words = recipes.ranker("tfidf", 4, TOKENS, Hardware())(named)
    assert by_words.shape == (12, 5)
    counted = TfidfVectorizer(token_pattern=r"\w+")
    items = counted.fit_transform([f"{item.title} {item.text}" for item in made.items])
    asked = counted.transform([re.sub(r"\[\w+\]", " ", query.text) for query in made.queries])
    cosines = (asked @ items.T).toarray()  # (12 × 12)
    np.testing.assert_allclose(
        np.take_along_axis(cosines, by_words, axis=1), -np.sort(-cosines, axis=1)[:, :5], atol=1e-6
    )
    drawn = [recipes.ranker("random", 4, TOKENS, Hardware(), seed)(named) for seed in (1, 1, 2)]
    assert drawn[0].shape == (12, 5)
    assert (drawn[0] == drawn[1]).all()
    assert (drawn[0] != drawn[2]).any()
    assert all(len(set(row)) == 5 for row in drawn[0].tolist())


# ---------------------------------------------------------------- the command line, on a ZESHEL folder


def write_worlds(folder: Path, learned: tuple[str, ...] = ("forgotten", "lego")) -> Path:
    """Two worlds to learn from and one to be judged by, in ZESHEL's format."""
    (folder / "documents").mkdir(parents=True)
    (folder / "mentions").mkdir()
    for split, names in (("train", learned), ("val", ("coronation",))):
        lines = []
        for seed, name in enumerate(names):
            made = world(name, 12, seed=seed)
            documents = [
                {"document_id": one.id, "title": one.title, "text": f"{one.title} {one.text}"} for one in made.items
            ]
            (folder / "documents" / f"{name}.json").write_text("".join(json.dumps(one) + "\n" for one in documents))
            lines += [
                {
                    "mention_id": f"{name}{n}",
                    "corpus": name,
                    "context_document_id": one.id,
                    "label_document_id": one.id,
                    "start_index": 0,
                    "end_index": 1,
                    "text": one.title,
                    "category": "LOW_OVERLAP",
                }
                for n, one in enumerate(made.items)
            ]
        (folder / "mentions" / f"{split}.json").write_text("".join(json.dumps(one) + "\n" for one in lines))
    return folder


def run(*arguments: object) -> Any:
    told = CliRunner().invoke(app, [str(one) for one in arguments])
    assert told.exit_code == 0, f"{arguments}\n{told.output}\n{told.exception!r}"
    return told


def test_command_line(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    zeshel = write_worlds(Path("zeshel"))
    assert [one.name for one in read_worlds(zeshel)] == ["zeshel/forgotten", "zeshel/lego"]
    small = ("--epochs", 1, "--max-tokens", TOKENS, "--candidates", 3, "--json")
    told = run("train", "paper", "dual-encoder", zeshel, "--start", bert, "--dev", "val", "--output", "de", *small)
    assert 0 <= json.loads(told.stdout)["accuracy"] <= 1
    assert len(json.loads(Path("de/checkpoints/examples-0.json").read_text())) == 24  # nothing is held out: val judges
    run("train", "paper", "cross-encoder", zeshel, "--start", bert, "--miner", "de/model", "--output", "ce", *small)
    run(
        *("train", "paper", "distill", zeshel, "--world", "lego", "--scorer", "ce/model", "--start", "de/model"),
        *("--output", "dstl", "--queries", 6, *small, "--device", "cpu,cpu", "--dtype", "bf16"),
    )
    told = run(
        *("train", "paper", "distill", zeshel, "--world", "lego", "--scorer", "ce/model", "--start", bert),
        *("--workers", 2),
        *("--output", "bert-ce", "--queries", 6, "--k-d", 5, "--loss", "pair", *small),
    )
    assert json.loads(told.stdout)["calls"] == 30
    assert load_encoder("bert-ce/model").dimension == 32
    # ours, on the worlds of a ZESHEL folder
    for kind in ("cross-encoder", "dual-encoder"):
        ours = ("--encoder", bert, "--output", f"ours-{kind}", "--candidates", 3, "--max-tokens", TOKENS, "--json")
        run(
            "train", kind, zeshel, *ours, "--epochs", 1, "--device", "cpu", "--dtype", "bf16", "--tokens-per-batch", 512
        )
        assert (tmp_path / f"ours-{kind}" / "model" / "config.json").is_file()


def test_student_from_the_command_line(bert: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    from tests.services.test_reproduce import write_beir

    beir = write_beir(Path("beir"))
    teacher = write_model(Path("teacher"), "bert", layers=1)
    run(
        *(
            "train",
            "paper",
            "student",
            beir,
            "--split",
            "test",
            "--start",
            bert,
            "--teacher",
            teacher,
            "--teacher",
            teacher,
        ),
        *("--output", "student", "--max-tokens", 48, "--batch-size", 4, "--json"),
    )
    assert Path("student/model/model.safetensors").is_file()
    told = CliRunner().invoke(
        app,
        [
            "train",
            "paper",
            "student",
            str(write_worlds(Path("z"))),
            "--start",
            str(bert),
            "--teacher",
            "x",
            "--output",
            "y",
        ],
    )
    assert "plain queries" in str(told.exception)
