"""The ONNX cross-encoder: equal to torch, blind to batch-mates, sane on odd input."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut import threads
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.folder import REMEMBERED_QUERIES
from crosscut.encoders.session import TOKENS_PER_CALL
from crosscut.encoders.tokens import matched
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.base import BoundScorer, Scorer
from crosscut.scorers.onnx import OnnxCrossEncoder, alike
from crosscut.types import NO_HANDLES
from tests.tiny_models import sentences, write_encoder

torch = pytest.importorskip("torch")

QUERIES = ["he sat on the [START] bank [END] of the river", "big red dog", ""]
ITEMS = [*sentences(40), "bank [ENT] slope of land", "", "river [ENT]"]


def make(folder: Path, head: Any, independent: int, precision: Any = "float32") -> tuple[Any, Any]:
    from crosscut.training.bert import read_encoder
    from crosscut.training.export import export
    from crosscut.training.models import CrossModel, DualModel

    shape, weights = read_encoder(write_encoder(folder / "encoder"))
    torch.manual_seed(1)
    cross, dual = CrossModel(shape, independent, head), DualModel(shape, independent)
    for model in (cross, dual):
        model.start_from(weights)
        torch.nn.init.normal_(model.roles.weight, std=0.3)
    export(
        folder / "model",
        folder / "encoder" / "tokenizer.json",
        cross=cross,
        dual=dual,
        lower_precision=precision,
        upper_precision=precision,
        half_states=precision != "float32",
        query_tokens=24,
        item_tokens=24,
    )
    return cross, dual


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("onnx")
    make(path, "emb", 1)
    return path / "model"


@pytest.mark.parametrize("head", ["emb", "cls"])
@pytest.mark.parametrize("independent", [0, 1, 2])
def test_equals_torch(tmp_path: Path, head: str, independent: int) -> None:
    from crosscut.training.models import pack_texts

    cross, dual = make(tmp_path, head, independent)
    scorer = OnnxCrossEncoder.load(tmp_path / "model", threads=1)
    encoder = OnnxDualEncoder.load(tmp_path / "model", threads=1)
    tokenizer = scorer.folder.tokenizer
    texts = pack_texts([tokenizer.query(query) for query in QUERIES] + tokenizer.items(ITEMS))
    with torch.no_grad():
        vectors = dual(texts).numpy()
        for number, query in enumerate(QUERIES):
            pairs = [number] * len(ITEMS), list(range(len(QUERIES), len(QUERIES) + len(ITEMS)))
            expected = cross(texts, *pairs).numpy()
            np.testing.assert_allclose(scorer.score(query, ITEMS), expected, atol=1e-4)
    np.testing.assert_allclose(encoder.encode_queries(QUERIES), vectors[: len(QUERIES)], atol=1e-4)
    np.testing.assert_allclose(encoder.encode_items(ITEMS), vectors[len(QUERIES) :], atol=1e-4)


@pytest.mark.parametrize("precision", ["float16", "int8", "integer"])
def test_smaller_precisions_run_and_stay_close(tmp_path: Path, precision: str) -> None:
    make(tmp_path / "full", "emb", 1)
    make(tmp_path / "small", "emb", 1, precision)
    full, small = (OnnxCrossEncoder.load(tmp_path / name / "model") for name in ("full", "small"))
    a, b = full.score(QUERIES[0], ITEMS), small.score(QUERIES[0], ITEMS)
    assert np.corrcoef(a, b)[0, 1] > 0.99
    assert full.fingerprint != small.fingerprint
    size = {name: (tmp_path / name / "model" / "lower.onnx").stat().st_size for name in ("full", "small")}
    assert size["small"] < size["full"]


def test_an_integer_product_is_that_of_rows_and_weights_rounded_to_bytes() -> None:
    import onnxruntime

    from crosscut.encoders.graph import FLOAT, Graph

    rng = np.random.default_rng(0)
    weight = rng.normal(size=(24, 16)).astype(np.float32)
    x = (rng.normal(size=(2, 3, 16)) * 10.0 ** rng.integers(-3, 4, (2, 3, 1))).astype(np.float32)
    x[0, 0] = 0.0
    for positive in (False, True):
        graph = Graph("integer", heads=1, epsilon=1e-12)
        made = graph.product("x", weight, positive=positive)
        shape = ["b", "l", 16]
        model = graph.finish("y", {"x": (FLOAT, shape)}, (made, FLOAT, ["b", "l", 24]))
        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        asked = np.abs(x) if positive else x
        scale = np.maximum(np.abs(asked).max(axis=-1, keepdims=True) / (255 if positive else 127), 1e-9)
        outputs = np.abs(weight).max(axis=1, keepdims=True) / 127
        expected = (np.rint(asked / scale) * scale) @ (np.rint(weight / outputs) * outputs).T
        np.testing.assert_allclose(session.run(None, {"x": asked})[0], expected, rtol=1e-4, atol=1e-6)


def test_exact_sums_are_the_same_where_the_processor_saturates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from crosscut.encoders import session

    make(tmp_path, "emb", 1, "integer")
    usual = OnnxCrossEncoder.load(tmp_path / "model").score(QUERIES[0], ITEMS)
    monkeypatch.setattr(session, "sums_saturate", lambda: True)
    exact = OnnxCrossEncoder.load(tmp_path / "model").score(QUERIES[0], ITEMS)
    np.testing.assert_array_equal(exact, usual)


def test_the_graph_that_tells_saturation_is_what_its_script_writes() -> None:
    import importlib.util

    from crosscut.encoders.session import SATURATION

    path = Path(__file__).parents[2] / "scripts" / "saturation_graph.py"
    spec = importlib.util.spec_from_file_location("saturation_graph", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.graph() == SATURATION.read_bytes()


def test_scores_do_not_depend_on_batch_mates_or_order(folder: Path) -> None:
    together = OnnxCrossEncoder.load(folder).bind(ITEMS)
    whole = together.score(QUERIES[0], np.arange(len(ITEMS)))
    alone = OnnxCrossEncoder.load(folder).bind(ITEMS)
    order = np.random.default_rng(3).permutation(len(ITEMS))
    for position in order:
        assert abs(alone.score(QUERIES[0], np.asarray([position]))[0] - whole[position]) <= 1e-4
    np.testing.assert_allclose(together.score(QUERIES[0], order), whole[order], atol=1e-4)


def test_score_many_equals_score_and_protocols_hold(folder: Path) -> None:
    scorer = OnnxCrossEncoder.load(folder)
    bound = scorer.bind(ITEMS)
    assert isinstance(scorer, Scorer)
    assert isinstance(bound, BoundScorer)
    requests = [(query, np.asarray([3, 1, 40, 2])) for query in QUERIES]
    for (query, positions), answer in zip(requests, bound.score_many(requests), strict=True):
        np.testing.assert_allclose(answer.scores, scorer.bind(ITEMS).score(query, positions), atol=1e-4)
    assert bound.score(QUERIES[0], np.asarray([], np.int64)).shape == (0,)


def test_a_full_cache_changes_no_score(folder: Path) -> None:
    scorer = OnnxCrossEncoder.load(folder)
    everything = np.arange(len(ITEMS))
    for cache_bytes in (0, 2000):
        bound = scorer.bind(ITEMS, cache_bytes=cache_bytes)
        assert len(bound.items.states) < len(ITEMS)
        for _ in range(2):
            np.testing.assert_allclose(bound.score(QUERIES[0], everything), scorer.score(QUERIES[0], ITEMS), atol=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x" * 100_000,
        "word " * 20_000,
        "🙂🙃",
        "שלום עולם",
        "مرحبا",
        "\x00\ufffe",
        "[START]",
        "[END] [START]",
    ],
)
def test_odd_texts(folder: Path, text: str) -> None:
    scorer = OnnxCrossEncoder.load(folder)
    assert np.isfinite(scorer.score(text, [text, "river"])).all()
    assert np.isfinite(scorer.score("river", [text, "river"])).all()
    assert np.isfinite(OnnxDualEncoder.load(folder).encode_items([text])).all()


def test_a_far_mention_is_kept(folder: Path) -> None:
    tokenizer = OnnxCrossEncoder.load(folder).folder.tokenizer
    tokens = tokenizer.query("the " * 30_000 + "[START] bank [END]" + " of" * 30_000)
    assert len(tokens.ids) == 24
    assert (tokens.roles == 1).sum() == 1


def test_errors_are_sentences(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no crosscut model at 'nowhere'"):
        OnnxCrossEncoder.load("nowhere")
    for name in folder.iterdir():
        (tmp_path / name.name).write_bytes(name.read_bytes())
    (tmp_path / "cross.onnx").write_bytes(b"not a model")
    with pytest.raises(InputError, match="not a readable ONNX model"):
        OnnxCrossEncoder.load(tmp_path)
    (tmp_path / "cross.onnx").unlink()
    with pytest.raises(InputError, match=r"has no cross\.onnx"):
        OnnxCrossEncoder.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"not a tokenizer\.json"):
        OnnxCrossEncoder.load(tmp_path)
    (tmp_path / "config.json").write_text('{"format": 99}')
    with pytest.raises(InputError, match="has format 99"):
        OnnxCrossEncoder.load(tmp_path)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(InputError, match="not a crosscut model configuration"):
        OnnxCrossEncoder.load(tmp_path)
    bound = OnnxCrossEncoder.load(folder).bind(ITEMS)
    with pytest.raises(ScorerError, match="do not fit a corpus of 43 items"):
        bound.score("river", np.asarray([43]))


def test_groups_cover_every_row_once() -> None:
    sizes = np.random.default_rng(0).integers(11, 210, 500)
    groups = list(alike(sizes))
    assert sorted(np.concatenate(groups).tolist()) == list(range(500))
    for rows in groups:
        assert len(rows) == 1 or sizes[rows].max() * len(rows) <= TOKENS_PER_CALL


def test_padding_is_cheaper_than_a_call() -> None:
    groups = list(alike(np.array([20, 20, 21, 90, 91]), call=12))
    assert [rows.tolist() for rows in groups] == [[0, 1, 2], [3, 4]]
    assert len(list(alike(np.full(100, 50), tokens=500))) == 10


def test_encoders_of_a_folder_share_their_lower_layers_and_queries(folder: Path, tmp_path: Path) -> None:
    cross, dual = OnnxCrossEncoder.load(folder), OnnxDualEncoder.load(folder)
    assert cross.folder is dual.folder
    assert OnnxCrossEncoder.load(folder, threads=1).folder is not cross.folder
    dual.encode_queries(QUERIES)
    read = cross.folder.read_queries(QUERIES)
    assert all(
        again is states for (again, _), (states, _) in zip(cross.folder.read_queries(QUERIES), read, strict=True)
    )
    cross.folder.read_queries([f"dog {number}" for number in range(2 * REMEMBERED_QUERIES)])  # of one round
    cross.folder.read_queries(["dog"])
    assert len(cross.folder._queries) == REMEMBERED_QUERIES
    # what is asked for again and again stays
    hot = cross.folder.read_queries(["hot"])[0][0]
    for number in range(2 * REMEMBERED_QUERIES):
        assert cross.folder.read_queries(["hot", f"cold {number}"])[0][0] is hot
    assert dual.encode_queries(iter(QUERIES)).shape == (3, dual.dimension)  # type: ignore[arg-type]
    # a folder that was written anew is read anew
    other = Path(shutil.copytree(folder, tmp_path / "model"))
    first = OnnxCrossEncoder.load(other)
    os.utime(other / "cross.onnx", ns=(1, 1))
    assert OnnxCrossEncoder.load(other).folder is not first.folder


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_pairs_of_many_queries_share_calls_and_keep_their_scores(
    folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosscut.scorers.onnx.PAIRS_AT_ONCE", 10 if threads > 1 else 8192)
    bound = OnnxCrossEncoder.load(folder, threads=threads).bind(ITEMS)
    rng = np.random.default_rng(threads)
    requests = [
        (QUERIES[number % 3], rng.choice(len(ITEMS), size, replace=False)) for number, size in enumerate((5, 0, 43, 1))
    ]
    alone = OnnxCrossEncoder.load(folder, threads=1).bind(ITEMS)
    for (query, positions), answer in zip(requests, bound.score_many(requests), strict=True):
        expected = [alone.score(query, np.array([position]))[0] for position in positions]
        np.testing.assert_allclose(answer.scores, expected, atol=1e-5)
    assert [len(answer.scores) for answer in bound.score_many([("a", NO_HANDLES), ("b", NO_HANDLES)])] == [0, 0]


def test_words_of_the_query_are_matched_in_the_item(folder: Path) -> None:
    tokenizer = OnnxCrossEncoder.load(folder).folder.tokenizer
    query = tokenizer.query("the [START] bank [END] of")
    item = tokenizer.item("bank [ENT] of a river")
    roles = matched(item.roles, item.keys, query)
    #                       [CLS] bank of a river [SEP]; the bank is the mention
    assert roles.tolist() == [5, 9, 6, 2, 2, 2]
    unmarked = matched(item.roles, item.keys, tokenizer.query("the bank of"))
    assert unmarked.tolist() == [5, 7, 6, 2, 2, 2]


def test_a_child_process_scores_what_another_thread_was_reading_at_the_fork(folder: Path) -> None:
    scorer = OnnxCrossEncoder.load(folder).bind(ITEMS)
    wanted = scorer.score("a query", np.arange(2))
    for lock in (scorer._lock, scorer.items._lock, scorer.model.folder._lock):
        lock.__enter__()  # held by another thread, which the child does not have
    threads._renew_locks()
    np.testing.assert_array_equal(scorer.score("a query", np.arange(2)), wanted)
