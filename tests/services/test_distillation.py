"""Distillation on a few words: the encoder learns a scorer's taste, resumes, and refuses what it cannot use."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.errors import InputError
from crosscut.scorers.adapters import TextScorer
from crosscut.spaces.sparse import SparseScores, items_per_query
from tests.tiny_models import WORDS, write_encoder

torch = pytest.importorskip("torch")

from crosscut.encoders.dual import OnnxDualEncoder  # noqa: E402
from crosscut.encoders.graph import lower_graph  # noqa: E402
from crosscut.training.distill import bought_scores, distill, match_loss, pair_loss  # noqa: E402
from crosscut.training.examples import TrainingBatch  # noqa: E402
from crosscut.training.export import export  # noqa: E402
from crosscut.training.jobs import Job, embed, start_model, tokenizer_of  # noqa: E402
from crosscut.training.loop import TrainingSettings  # noqa: E402
from crosscut.training.models import CrossModel, DualModel  # noqa: E402
from crosscut.training.saved import read_exported  # noqa: E402

SETTINGS = TrainingSettings(epochs=3, learning_rate=3e-3, candidates=8, tokens_per_batch=512, validations=3)
ITEMS = [f"{word} [ENT] a river of {WORDS[n]}" for n, word in enumerate(WORDS[:10])]
ITEMS += [f"{word} [ENT] a money of {WORDS[n]}" for n, word in enumerate(WORDS[:10])]
QUERIES = [f"{'the ' * (n % 3)}[START] {word} [END] in" for n, word in enumerate(WORDS[:14])]

NOBODY: Any = None  # a model that is not asked


def taste(query: str, texts: Sequence[str]) -> list[float]:
    """A scorer that likes rivers, and more so the later letters."""
    return [3.0 * ("river" in text) + 0.1 * (ord(text[0]) - ord("a")) / 25 for text in texts]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"))


def some_scores(k_d: int = 16) -> SparseScores:
    matrix = np.array([taste(query, ITEMS) for query in QUERIES])
    return SparseScores.from_dense(matrix, items_per_query(k_d, matrix.shape, seed=1))


@pytest.mark.parametrize("loss", ["match", "pair"])
def test_the_encoder_learns_what_the_scorer_likes(encoder: Path, tmp_path: Path, loss: Any) -> None:
    outcome = distill(ITEMS, QUERIES, some_scores(), Job(encoder, tmp_path, settings=SETTINGS), loss=loss)
    assert outcome.best > 0.75
    model = OnnxDualEncoder.load(tmp_path / "model")
    scores = model.encode_queries(QUERIES[:3]) @ model.encode_items(ITEMS).T
    assert np.mean(np.argsort(-scores, axis=1)[:, :10] < 10) > 0.7  # rivers first; a half by chance


def test_a_killed_run_resumes_and_ends_the_same(encoder: Path, tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None = None) -> None:
        def report(record: dict[str, object]) -> None:
            if stop is not None and record.get("step") == stop and "validation" not in record:
                raise KeyboardInterrupt

        distill(ITEMS, QUERIES, some_scores(), Job(encoder, folder, settings=SETTINGS, report=report))

    run(tmp_path / "whole")
    steps = json.loads((tmp_path / "whole/checkpoints/state.json").read_text())["step"]
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", stop=steps - 1)
    run(tmp_path / "killed")
    assert (tmp_path / "whole/model/dual.onnx").read_bytes() == (tmp_path / "killed/model/dual.onnx").read_bytes()


def test_the_losses_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = torch.tensor([[0.3, -1.0, 2.0, 0.1]])
    theirs = (1.0, 0.5, -0.2, 0.0)
    monkeypatch.setattr("crosscut.training.distill.scores_of", lambda model, batch: ours)
    batch = TrainingBatch([], [], [], 1, 4, theirs)
    p, q = torch.softmax(torch.tensor(theirs), 0), torch.softmax(ours[0], 0)
    assert float(match_loss(NOBODY, batch)[0]) == pytest.approx(float(-(p * q.log()).sum()), rel=1e-5)
    wanted = np.mean([np.log1p(np.exp(2.0 - 0.3)), np.log1p(np.exp(0.1 + 1.0))])
    assert float(pair_loss(NOBODY, batch)[0]) == pytest.approx(wanted, rel=1e-5)
    assert match_loss(NOBODY, batch)[1] == pair_loss(NOBODY, batch)[1] == 0


def test_scores_are_bought_once(encoder: Path, tmp_path: Path) -> None:
    calls: list[int] = []

    def score(query: str, texts: Sequence[str]) -> list[float]:
        calls.append(len(texts))
        return taste(query, texts)

    scorer = TextScorer(score, fingerprint="taste")
    job = Job(encoder, tmp_path, settings=SETTINGS)
    first = bought_scores(ITEMS, QUERIES, scorer, job, 6)
    assert first.calls == sum(calls) == 6 * len(QUERIES)
    again = bought_scores(ITEMS, QUERIES, scorer, job, 6)
    assert sum(calls) == first.calls == again.cached
    assert again.calls == 0
    np.testing.assert_array_equal(again.scores, first.scores)
    bought_scores(ITEMS, QUERIES, TextScorer(score, fingerprint="another"), job, 6)
    assert sum(calls) == 2 * first.calls
    for block in (tmp_path / "scores" / "taste").rglob("*.scores"):
        block.write_bytes(block.read_bytes()[:-1])
    bought_scores(ITEMS, QUERIES, scorer, job, 6)
    assert sum(calls) == 3 * first.calls


def test_refusals(encoder: Path, tmp_path: Path) -> None:
    job = Job(encoder, tmp_path, settings=SETTINGS)
    with pytest.raises(InputError, match="not 'kl'"):
        distill(ITEMS, QUERIES, some_scores(), job, loss="kl")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="for 14 queries, 3 items"):
        distill(ITEMS[:3], QUERIES, some_scores(), job)
    with pytest.raises(InputError, match="cannot be distilled"):
        distill(ITEMS, QUERIES, some_scores(1), replace(job, settings=SETTINGS))


def test_command_line(encoder: Path, tmp_path: Path) -> None:
    from crosscut.cli.train import app

    data = tmp_path / "data"
    data.mkdir()
    (data / "corpus.jsonl").write_text("\n".join(json.dumps({"_id": f"i{n}", "text": t}) for n, t in enumerate(ITEMS)))
    (data / "queries.jsonl").write_text(
        "\n".join(json.dumps({"_id": f"q{n}", "text": t}) for n, t in enumerate(QUERIES))
    )
    options = ["--encoder", str(encoder), "--output", str(tmp_path / "out"), "--k-d", "6", "--epochs", "1"]
    result = CliRunner().invoke(app, ["distill", str(data), *options, "--queries", "8", "--json"])
    assert result.exit_code == 0, result.output
    outcome = json.loads(result.stdout)
    assert outcome["calls"] == 48
    assert OnnxDualEncoder.load(outcome["model"]).encode_items(ITEMS[:2]).shape == (2, 16)
    again = ["--encoder", outcome["model"], "--output", str(tmp_path / "again"), "--k-d", "6", "--epochs", "1"]
    result = CliRunner().invoke(app, ["distill", str(data), *again, "--queries", "8", "--json"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["distill", str(tmp_path), *options])
    assert isinstance(result.exception, InputError)  # a sentence and exit code 2, by crosscut.cli.main


def test_training_goes_on_from_the_model_in_the_box(tmp_path: Path) -> None:
    """Its weights are read from its graphs: written anew they are the same, and so are its vectors."""
    from crosscut.encoders.folder import default_folder

    shape, independent, weights = read_exported(default_folder())
    named = {name.removeprefix("lower."): tensor.numpy() for name, tensor in weights.items() if "lower." in name}
    made = lower_graph(named, independent, shape.num_attention_heads, shape.layer_norm_eps, "integer")
    ours, theirs = constants(made), constants((default_folder() / "lower.onnx").read_bytes())
    assert len(ours) == len(theirs) > 100
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)  # a bias takes up a shift and gives it back
    job = Job(default_folder(), tmp_path, query_tokens=64, item_tokens=256)
    vectors = embed(start_model(DualModel, job), tokenizer_of(job).items(["mind [ENT] that which thinks", "a river"]))
    box = OnnxDualEncoder.load().encode_items(["mind [ENT] that which thinks", "a river"])
    assert np.einsum("nd,nd->n", vectors, box).min() > 0.99  # in the box activations are rounded, too
    with pytest.raises(InputError, match="3 layers and 0 independent ones were asked for"):
        start_model(DualModel, replace(job, layers=3))
    with pytest.raises(InputError, match="is an exported model, from which a dual encoder may go on"):
        start_model(CrossModel, job)


def constants(graph: bytes) -> list[Any]:
    import onnx

    found = (onnx.numpy_helper.to_array(one) for one in onnx.load_from_string(graph).graph.initializer)
    return [array for array in found if array.dtype != np.int64]


@pytest.mark.parametrize("precision", ["float32", "float16", "int8", "integer"])
def test_an_exported_model_is_read_again(encoder: Path, tmp_path: Path, precision: Any) -> None:
    model = start_model(DualModel, Job(encoder, tmp_path, independent=1))
    with torch.no_grad():
        model.roles.weight.normal_()
    export(
        tmp_path / "out", encoder / "tokenizer.json", dual=model, lower_precision=precision, upper_precision=precision
    )
    shape, independent, weights = read_exported(tmp_path / "out")
    assert (shape, independent) == (model.shape, 1)
    own = {name: tensor for name, tensor in model.state_dict().items() if name != "temperature"}
    assert {*weights} == {*own}
    for name, tensor in own.items():
        torch.testing.assert_close(weights[name], tensor, atol=0 if precision == "float32" else 0.02, rtol=0.02)
    (tmp_path / "out" / "dual.onnx").write_bytes((tmp_path / "out" / "lower.onnx").read_bytes())
    with pytest.raises((InputError, ValueError)):
        read_exported(tmp_path / "out")
