"""Training on a few sentences: it learns, keeps its best, resumes, and refuses what it cannot use."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from crosscut.datasets.records import Collection, Item, Query
from crosscut.errors import InputError
from tests.tiny_models import WORDS, write_encoder

torch = pytest.importorskip("torch")

from crosscut.encoders.dual import OnnxDualEncoder  # noqa: E402
from crosscut.encoders.quantize import rounded  # noqa: E402
from crosscut.scorers.onnx import OnnxCrossEncoder  # noqa: E402
from crosscut.training.bert import pack, read_encoder  # noqa: E402
from crosscut.training.examples import Examples, batches, collate  # noqa: E402
from crosscut.training.jobs import Job, train_cross_encoder, train_dual_encoder  # noqa: E402
from crosscut.training.loop import TrainingSettings, one_cycle, train  # noqa: E402
from crosscut.training.models import CrossModel, DualModel, pack_texts, pair_up  # noqa: E402
from crosscut.training.negatives import draw, rank_dense, top  # noqa: E402

SETTINGS = TrainingSettings(epochs=2, learning_rate=3e-3, candidates=4, tokens_per_batch=512, validations=4)


def collection() -> Collection:
    """Twenty items; those about the river are right for every query: a taste that a tiny model can learn."""
    items = [Item(f"r{n}", WORDS[n], f"a river of {WORDS[n + 5]}") for n in range(10)]
    items += [Item(f"m{n}", WORDS[n], f"a money of {WORDS[n + 5]}") for n in range(10)]
    queries = [Query(f"q{n}", f"{'the ' * (n % 3)}[START] {word} [END] in") for n, word in enumerate(WORDS[:12])]
    right = {f"r{n}": 1.0 for n in range(10)}
    return Collection("words", items, queries, {query.id: right for query in queries})


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.mark.parametrize("head", ["emb", "cls"])
@pytest.mark.parametrize("negatives", ["random", "tfidf", "dual"])
def test_cross_encoder_learns(encoder: Path, tmp_path: Path, head: Any, negatives: Any) -> None:
    records: list[dict[str, Any]] = []
    job = Job(encoder, tmp_path, negatives=negatives, layers=2, settings=SETTINGS, report=records.append)
    outcome = train_cross_encoder(collection(), job, head=head)
    assert outcome.best > 0.6  # one in four by chance
    assert outcome.steps == records[0]["steps"]
    assert {"loss", "accuracy", "pairs"} <= set(records[0])
    scorer = OnnxCrossEncoder.load(tmp_path / "model")
    scores = scorer.score("the [START] cat [END] in", collection().items)
    assert scores[:10].mean() > scores[10:].mean()


def test_dual_encoder_learns_with_negatives_mined_anew(encoder: Path, tmp_path: Path) -> None:
    job = Job(encoder, tmp_path, negatives="dual", independent=1, frozen=True, settings=SETTINGS)
    outcome = train_dual_encoder(collection(), job)
    assert outcome.best > 0.4
    vectors = OnnxDualEncoder.load(tmp_path / "model").encode_items(["bank [ENT] a bank"])
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)


def test_a_killed_run_resumes_and_ends_the_same(encoder: Path, tmp_path: Path) -> None:
    def run(folder: Path, stop: int | None = None) -> dict[str, Any]:
        def report(record: dict[str, object]) -> None:
            if stop is not None and record.get("step") == stop and "validation" not in record:
                raise KeyboardInterrupt

        train_cross_encoder(collection(), Job(encoder, folder, settings=SETTINGS, report=report))
        return json.loads((folder / "checkpoints" / "state.json").read_text())

    whole = run(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed", stop=int(whole["step"]) // 2 + 3)
    again = run(tmp_path / "killed")
    assert again["best"] == whole["best"]
    for name in ("lower.onnx", "cross.onnx"):
        assert (tmp_path / "whole/model" / name).read_bytes() == (tmp_path / "killed/model" / name).read_bytes()
    other = TrainingSettings(**{**SETTINGS.__dict__, "learning_rate": 1e-3})
    with pytest.raises(InputError, match="other settings"):
        train_cross_encoder(collection(), Job(encoder, tmp_path / "whole", settings=other))


def test_training_ends_when_its_minutes_are_over(encoder: Path, tmp_path: Path) -> None:
    records: list[dict[str, object]] = []
    settings = TrainingSettings(**{**SETTINGS.__dict__, "minutes": 1e-9})
    job = Job(encoder, tmp_path, layers=2, settings=settings, report=records.append)
    outcome = train_cross_encoder(collection(), job)
    assert outcome.steps == 1
    assert [record for record in records if "validation" in record]  # what there is was validated and kept
    with pytest.raises(InputError, match="cannot end after 0 minutes"):
        TrainingSettings(minutes=0).check()


def test_packed_equals_transformers(encoder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    shape, weights = read_encoder(encoder)
    model = DualModel(shape, 1)
    model.start_from(weights)
    reference = transformers.BertModel.from_pretrained(encoder).eval()
    from crosscut.encoders.tokens import Tokenizer

    tokens = Tokenizer(encoder / "tokenizer.json").items(["the cat sat", "bank of the river and fish", ""])
    with torch.no_grad():
        ours = model(pack_texts(tokens))
        for row, text in enumerate(tokens):
            states = reference(torch.from_numpy(text.ids)[None]).last_hidden_state[0]
            theirs = torch.nn.functional.normalize(states.mean(0), dim=0)
            torch.testing.assert_close(ours[row], theirs, atol=1e-5, rtol=1e-4)


def test_a_frozen_lower_part_reads_a_text_once(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crosscut.encoders.tokens import Tokenizer
    from crosscut.training import models

    shape, weights = read_encoder(encoder)
    model = DualModel(shape, 1)
    model.start_from(weights)
    texts = Tokenizer(encoder / "tokenizer.json").items(["the cat sat", "river", "bank of the river and fish", "river"])
    with torch.no_grad():
        plain = model.states(pack_texts(texts))
    read: list[int] = []
    model.lower.register_forward_pre_hook(lambda _, inputs: read.append(len(inputs[0])))
    model.freeze_lower()
    lengths = [len(text.ids) for text in texts]
    some = model.states(pack_texts(texts[:2]))
    torch.testing.assert_close(some, plain[: sum(lengths[:2])], atol=2e-3, rtol=2e-3)  # half precision
    everything = model.states(pack_texts(texts))
    torch.testing.assert_close(everything, plain, atol=2e-3, rtol=2e-3)
    assert torch.equal(everything[: len(some)], some)
    assert read == [sum(lengths[:2]), lengths[2]]
    monkeypatch.setattr(models, "REMEMBERED", sum(lengths[:3]) + 1)
    others = Tokenizer(encoder / "tokenizer.json").items(["money", "the cat sat"])
    model.states(pack_texts(others))  # too many to remember all: what was remembered is dropped
    assert read[2:] == [sum(len(text.ids) for text in others)]
    assert len(model.remembered) == 2


def test_pairs_do_not_see_each_other(encoder: Path) -> None:
    shape, weights = read_encoder(encoder)
    model = CrossModel(shape, 0)
    model.start_from(weights)
    from crosscut.encoders.tokens import Tokenizer

    tokens = Tokenizer(encoder / "tokenizer.json").items(["the cat", "river", "a big red dog sat on the land"])
    texts = pack_texts(tokens)
    with torch.no_grad():
        together = model(texts, [0, 0, 1], [1, 2, 2])
        alone = torch.cat([model(texts, [q], [i]) for q, i in ((0, 1), (0, 2), (1, 2))])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    pairs = pair_up(texts, [1], [0])
    lengths = [len(text.ids) for text in tokens]
    expected = [*range(lengths[0], lengths[0] + lengths[1]), *range(lengths[0])]
    assert pairs.gather.tolist() == expected


def test_negatives() -> None:
    vectors = np.eye(3, dtype=np.float32)
    assert rank_dense(vectors, vectors[[2]], 1).tolist() == [[2]]
    assert top(np.asarray([[1.0, 3.0, 3.0, 2.0]]), 3).tolist() == [[1, 2, 3]]
    drawn = draw([4, 3, 2, 1, 0], {4, 2}, 2, random.Random(0), among=2)
    assert sorted(drawn) == [1, 3]


def test_batches_and_fillers(encoder: Path) -> None:
    from crosscut.encoders.tokens import Tokenizer
    from crosscut.training.examples import Example

    tokenizer = Tokenizer(encoder / "tokenizer.json")
    pool = tokenizer.items(["the cat", "a dog", "river", "money"])
    examples = Examples(pool=pool)
    examples.train = [Example("x", tokenizer.query("cat"), (n % 4,), frozenset({n % 4})) for n in range(10)]
    groups = list(batches(examples, tokens=60, candidates=3, seed=0))
    assert sum(len(group) for group in groups) == 10
    for group in groups:
        batch = collate(examples, group, 3, random.Random(0))
        rows = np.asarray(batch.items).reshape(-1, 3)
        assert all(len(set(row)) == 3 or len(group) == 1 for row in rows.tolist())
        assert len(batch.queries) == 3 * len(group)
    with pytest.raises(InputError, match="leave no negative"):
        list(batches(examples, tokens=60, candidates=1, seed=0))


def test_one_cycle_rises_and_falls() -> None:
    rates = [one_cycle(p / 100, 0.1) for p in range(101)]
    assert max(rates) == pytest.approx(1)
    assert rates[10] == max(rates)
    assert rates[-1] == pytest.approx(0.01)


def test_rounding_is_idempotent_and_close() -> None:
    weight = np.random.default_rng(0).standard_normal((5, 64)).astype(np.float32)
    once = rounded(weight)
    np.testing.assert_allclose(rounded(once), once, atol=1e-7)
    assert np.abs(once - weight).max() <= np.abs(weight).max() / 127
    assert np.isfinite(rounded(np.zeros((2, 4), np.float32))).all()


def test_packing() -> None:
    packing = pack([2, 0, 3])
    assert packing.places.tolist() == [0, 1, 6, 7, 8]
    assert packing.starts.tolist() == [0, 2, 2]


def test_refusals(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"config\.json is missing"):
        read_encoder(tmp_path)
    shape, _ = read_encoder(encoder)
    with pytest.raises(InputError, match="leave none"):
        CrossModel(shape, 3)
    with pytest.raises(InputError, match="not 'max'"):
        CrossModel(shape, 0, "max")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no training examples"):
        train(CrossModel(shape), Examples(), SETTINGS, tmp_path)
    with pytest.raises(InputError, match="not 'bm25'"):
        train_cross_encoder(collection(), Job(encoder, tmp_path, negatives="bm25"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="3 layers; 9 of them"):
        train_cross_encoder(collection(), Job(encoder, tmp_path, layers=9))
    empty = Collection("empty", collection().items, [])
    with pytest.raises(InputError, match="0 queries of 'empty'"):
        train_cross_encoder(empty, Job(encoder, tmp_path))


def test_command_line(encoder: Path, tmp_path: Path) -> None:
    from crosscut.cli.train import app

    data = tmp_path / "data"
    data.mkdir()
    words = collection()
    (data / "corpus.jsonl").write_text(
        "\n".join(json.dumps({"_id": i.id, "title": i.title, "text": i.text}) for i in words.items)
    )
    (data / "queries.jsonl").write_text("\n".join(json.dumps({"_id": q.id, "text": q.text}) for q in words.queries))
    (data / "qrels.tsv").write_text("\n".join(f"{q}\t{i}\t1" for q, g in words.judgements.items() for i in g))
    options = ["--encoder", str(encoder), "--output", str(tmp_path / "out"), "--candidates", "3"]
    result = CliRunner().invoke(app, ["cross-encoder", str(data), *options, "--json"])
    assert result.exit_code == 0, result.output
    outcome = json.loads(result.stdout)
    assert OnnxCrossEncoder.load(outcome["model"]).folder.config["head"] == "emb"
    result = CliRunner().invoke(app, ["dual-encoder", str(data), *options[:3], str(tmp_path / "dual"), "--json"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(app, ["cross-encoder", str(tmp_path), *options])
    assert isinstance(result.exception, InputError)  # a sentence and exit code 2, by crosscut.cli.main


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_encoders_of_other_architectures(kind: str, tmp_path: Path) -> None:
    """States of a text are those of transformers, whatever the encoder is saved as."""

    import transformers

    from crosscut.encoders.tokens import Tokenizer
    from crosscut.training.models import DualModel, pack_texts
    from tests.hub_models import write_model

    library: Any = transformers
    folder = write_model(tmp_path / kind, kind, head=False)
    shape, weights = read_encoder(folder)
    model = DualModel(shape, shape.num_hidden_layers - 1)
    model.start_from(weights)
    tokens = Tokenizer(folder / "tokenizer.json", query_tokens=32, item_tokens=32).items(["the river bank", "a cat"])
    theirs = (
        library.AutoModel.from_pretrained(folder, add_pooling_layer=False)
        if kind != "distilbert"
        else (library.AutoModel.from_pretrained(folder))
    )
    theirs.eval()
    texts = pack_texts(tokens)
    with torch.no_grad():
        states = model.states(texts)
        for layer in model.upper:
            states = layer(states, texts.packing)
        start = 0
        for text in tokens:
            expected = theirs(torch.from_numpy(text.ids)[None]).last_hidden_state[0]
            torch.testing.assert_close(states[start : start + len(text.ids)], expected, atol=2e-4, rtol=1e-3)
            start += len(text.ids)


def test_a_modern_encoder_is_refused_in_a_sentence(tmp_path: Path) -> None:
    from tests.hub_models import write_model

    with pytest.raises(InputError, match="is a modernbert; training starts from"):
        read_encoder(write_model(tmp_path / "modern", "modernbert", head=False))


def test_hard_negatives_of_a_trained_dual_encoder(
    encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ANNCUR A.1: the top 63 of a trained dual encoder; here its two best that are not right."""
    from crosscut.training import jobs
    from crosscut.training.examples import Examples

    class Planted:
        fingerprint, dimension = "planted", 3

        def encode_items(self, items: object, *, progress: object = None) -> np.ndarray:
            return np.asarray([[1, 0, 0], [0.9, 0, 0], [0.8, 0, 0], [0, 1, 0]], np.float32)

        def encode_queries(self, texts: list[str]) -> np.ndarray:
            return np.tile(np.asarray([[1, 0, 0]], np.float32), (len(texts), 1))

    items = [Item(str(n), "", f"river {n}") for n in range(4)]
    collection = Collection("small", items, [Query("a", "river"), Query("b", "bank")], {"a": {"0": 1}, "b": {"0": 1}})
    three = TrainingSettings(candidates=3)
    monkeypatch.setattr(jobs, "load_encoder", {"planted": Planted()}.get)
    job = Job(encoder, tmp_path, negatives="dual", miner="planted", hardest=True, settings=three)
    examples = Examples()
    jobs._fill(examples, [collection], job, jobs.tokenizer_of(job), None)
    for example in (*examples.train, *examples.validation):
        assert sorted(example.items) == [0, 1, 2]
    with pytest.raises(InputError, match="needs negatives='dual'"):
        Job(encoder, tmp_path, miner="somebody").check()
    assert Job(encoder, tmp_path, settings=TrainingSettings(candidates=64)).mined == 74


def test_weights_of_the_second_edition_are_read_from_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its graphs have an order of their own: others would be read as if they had it."""
    from crosscut.encoders.folder import default_folder

    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    from default_weights import upper_weights

    for part in ("cross", "dual"):
        with pytest.raises(SystemExit, match="is of format 4; the second edition is of format 3"):
            upper_weights(default_folder() / f"{part}.onnx")
