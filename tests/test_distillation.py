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
from crosscut.scorers.callable import TextScorer
from crosscut.spaces.sparse import SparseScores, items_per_query
from tests.tiny_models import WORDS, write_encoder

torch = pytest.importorskip("torch")

from crosscut.encoders.dual import OnnxDualEncoder  # noqa: E402
from crosscut.training.distill import bought_scores, distill, match_loss, pair_loss  # noqa: E402
from crosscut.training.examples import TrainingBatch  # noqa: E402
from crosscut.training.jobs import Job  # noqa: E402
from crosscut.training.loop import TrainingSettings  # noqa: E402

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

        distill(ITEMS, QUERIES, some_scores(), Job(encoder, folder, settings=SETTINGS), report=report)

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
    result = CliRunner().invoke(app, ["distill", str(tmp_path), *options])
    assert isinstance(result.exception, InputError)  # a sentence and exit code 2, by crosscut.cli.main
