"""Language models as scorers, on a tiny one made on the spot."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crosscut.bundled import judged
from crosscut.bundled.base_scores import UNREADABLE, BaseScorer
from crosscut.bundled.judged import JudgedScorer
from crosscut.errors import InputError
from crosscut.index import Index
from crosscut.models import likelihood
from crosscut.models.gguf import GGUF
from crosscut.models.likelihood import QueryLikelihood, passage_tokens, unmarked
from crosscut.scorers.loading import load_scorer

pytest.importorskip("onnx")
LAYERS, WIDTH, INNER, HEADS, SHARED = 2, 64, 128, 4, 2
ITEMS = ["the red dog sat", "a big cat in the river. it sat on land. " * 8, "", "money in the bank", "the red dog sat"]


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(path: Path) -> Path:
    """A random Llama in Q4_1, with a byte-level vocabulary."""
    from tokenizers.pre_tokenizers import ByteLevel

    words = sorted(ByteLevel.alphabet())
    settings: dict[str, Any] = {
        "llama.block_count": LAYERS,
        "llama.embedding_length": WIDTH,
        "llama.feed_forward_length": INNER,
        "llama.attention.head_count": HEADS,
        "llama.attention.head_count_kv": SHARED,
    }
    head = WIDTH // HEADS
    shapes = {"token_embd.weight": (len(words), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        for name, rows, columns in (
            ("attn_q", WIDTH, WIDTH),
            ("attn_k", SHARED * head, WIDTH),
            ("attn_v", SHARED * head, WIDTH),
            ("attn_output", WIDTH, WIDTH),
            ("ffn_gate", INNER, WIDTH),
            ("ffn_up", INNER, WIDTH),
            ("ffn_down", WIDTH, INNER),
        ):
            shapes[f"blk.{layer}.{name}.weight"] = rows, columns
        shapes |= {f"blk.{layer}.{name}.weight": (WIDTH,) for name in ("attn_norm", "ffn_norm")}
    rng = np.random.default_rng(0)
    header, data = b"", b""
    for name, shape in shapes.items():
        count = int(np.prod(shape))
        if len(shape) == 1:
            kind, raw = 0, (1 + 0.1 * rng.standard_normal(count)).astype(np.float32).tobytes()
        else:
            kind = 3
            halves = rng.integers(0, 256, (count // 32, 16), np.uint8)
            levels = np.tile(np.array([[0.05, -0.37]], np.float16), (count // 32, 1))
            raw = np.concatenate([levels.view(np.uint8), halves], 1).tobytes()
        header += text(name) + struct.pack("<I", len(shape))
        header += b"".join(struct.pack("<Q", size) for size in reversed(shape)) + struct.pack("<IQ", kind, len(data))
        data += raw + b"\0" * (-len(raw) % 32)
    meta = b"".join(text(name) + struct.pack("<II", 4, value) for name, value in settings.items())
    for name, number in (("llama.rope.freq_base", 10000.0), ("llama.attention.layer_norm_rms_epsilon", 1e-5)):
        meta += text(name) + struct.pack("<If", 6, number)
    for name, values in (("tokenizer.ggml.tokens", words), ("tokenizer.ggml.merges", [])):
        meta += text(name) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))
    start = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(settings) + 4) + meta + header
    path.write_bytes(start + b"\0" * (-len(start) % 32) + data)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("judge")
    gguf = GGUF(write_gguf(place / "tiny.gguf"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(Path(__file__).parents[2] / "scripts"), *sys.path])
        import judge_graph

        graph = judge_graph.llama(gguf.settings, len(gguf.tensor("token_embd.weight")))
    (place / "graph.onnx").write_bytes(graph.SerializeToString())
    return place


@pytest.fixture(scope="module")
def scorer(folder: Path) -> QueryLikelihood:
    return QueryLikelihood.load(folder, threads=2)


def reference(gguf: GGUF, tokens: list[int]) -> np.ndarray:
    """log p of every token but the first, in plain numpy."""
    head = WIDTH // HEADS
    embedding = gguf.tensor("token_embd.weight").astype(np.float64)
    x, n = embedding[tokens], len(tokens)

    def norm(rows: np.ndarray, name: str) -> np.ndarray:
        return rows / np.sqrt((rows**2).mean(-1, keepdims=True) + 1e-5) * gguf.tensor(name)

    angles = np.arange(n)[:, None] * 10000.0 ** -(np.arange(0, head, 2) / head)

    def turn(rows: np.ndarray) -> np.ndarray:
        one, two = rows[..., 0::2], rows[..., 1::2]
        cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]
        return np.stack([one * cos - two * sin, one * sin + two * cos], -1).reshape(rows.shape)

    for layer in range(LAYERS):
        w = {name: gguf.tensor(f"blk.{layer}.{saved}.weight") for name, saved in (
            ("q", "attn_q"), ("k", "attn_k"), ("v", "attn_v"), ("o", "attn_output"),
            ("gate", "ffn_gate"), ("up", "ffn_up"), ("down", "ffn_down"))}  # fmt: skip
        h = norm(x, f"blk.{layer}.attn_norm.weight")
        q = turn((h @ w["q"].T).reshape(n, HEADS, head))
        k = np.repeat(turn((h @ w["k"].T).reshape(n, SHARED, head)), HEADS // SHARED, 1)
        v = np.repeat((h @ w["v"].T).reshape(n, SHARED, head), HEADS // SHARED, 1)
        seen = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(head) + np.where(np.tri(n), 0, -1e9)
        share = np.exp(seen - seen.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + np.einsum("hij,jhd->ihd", share, v).reshape(n, WIDTH) @ w["o"].T
        h = norm(x, f"blk.{layer}.ffn_norm.weight")
        gate = h @ w["gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["up"].T)) @ w["down"].T
    logits = norm(x, "output_norm.weight") @ embedding.T
    logs = logits - logits.max(-1, keepdims=True)
    logs -= np.log(np.exp(logs).sum(-1, keepdims=True))
    return logs[np.arange(n - 1), tokens[1:]]


def test_values_are_those_of_the_model(folder: Path, scorer: QueryLikelihood) -> None:
    prefix, suffix = scorer.model.encode("Passage: a dog"), scorer.model.encode("red dog?")
    (found,) = scorer.model.log_probs([prefix], [suffix])
    expected = reference(GGUF(folder / "tiny.gguf"), [*prefix, *suffix])[len(prefix) - 1 :]
    assert np.corrcoef(found, expected)[0, 1] > 0.98
    np.testing.assert_allclose(found, expected, atol=0.35)  # products of whole numbers


def test_a_score_ignores_batch_mates_and_what_was_read_before(folder: Path, scorer: QueryLikelihood) -> None:
    fresh = QueryLikelihood.load(folder, threads=1)
    together = scorer.bind(ITEMS).score("red dog", np.arange(5))
    assert together[0] == together[4]
    alone = [fresh.bind(ITEMS).score("red dog", np.array([place]))[0] for place in range(5)]
    assert together.tolist() == alone
    many = scorer.bind(ITEMS).score_many(
        [("red dog", np.arange(5)), ("a cat", np.array([1])), ("x", np.array([], int))]
    )
    assert many[0].scores.tolist() == alone
    assert (np.asarray(alone) < 0).all()


def test_what_is_kept_of_passages_is_bounded(folder: Path, scorer: QueryLikelihood) -> None:
    from crosscut.models.causal_lm import OnnxLM

    small = OnnxLM(folder, threads=1, state_bytes=1)
    wide = scorer.model
    assert isinstance(wide, OnnxLM)
    rows = [wide.encode("a dog"), wide.encode("the cat sat")]
    for one, other in zip(small.log_probs(rows, rows), wide.log_probs(rows, rows), strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(small._states) == 0
    assert len(wide._states) >= 2


def test_settings_are_part_of_the_fingerprint_and_mistakes_are_sentences(folder: Path, tmp_path: Path) -> None:
    plain = QueryLikelihood.load(folder)
    other = QueryLikelihood.load(folder, instruction="Ask something.")
    asked = QueryLikelihood.load(folder, reading="yes-no")
    assert len({plain.fingerprint, other.fingerprint, asked.fingerprint}) == 3
    assert plain.fingerprint == load_scorer(f"likelihood:{folder}").fingerprint
    assert np.isfinite(asked.score("dog", ITEMS)).all()
    for settings, match in (
        ({"reading": "maybe"}, "not as 'maybe'"),
        ({"max_tokens": 3}, "no room for a passage"),
        ({"template": "no place"}, "say where the passage goes"),
    ):
        with pytest.raises(InputError, match=match):
            QueryLikelihood.load(folder, **settings)  # type: ignore[arg-type]
    (tmp_path / "a.gguf").write_bytes(b"GGUF")
    (tmp_path / "graph.onnx").write_bytes(b"")
    with pytest.raises(InputError, match="not a readable GGUF"):
        QueryLikelihood.load(tmp_path)


def test_long_passages_end_with_a_sentence(scorer: QueryLikelihood) -> None:
    sentence = "it sat on land. "
    tokens = passage_tokens(scorer.model, sentence * 10, 100)
    assert 50 < len(tokens) <= 100
    assert tokens == scorer.model.encode((sentence * 10)[: len(tokens)])
    assert (sentence * 10)[len(tokens) - 1] == "."
    assert len(passage_tokens(scorer.model, "x" * 500, 100)) == 100
    assert unmarked("on the [START] bank [END] of it") == "on the bank of it"


def test_the_default_scorer_with_a_judge(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(likelihood, "judge_folder", lambda: folder)
    scorer = load_scorer("default")
    assert isinstance(scorer, JudgedScorer)
    index = Index.build([f"{text} {number}" for number, text in enumerate(ITEMS * 6)])
    hits = index.search("red dog", k=3, stop="never")
    assert hits.calls == judged.BUDGET
    assert hits.note is None
    assert index.search("a [START] dog [END]", k=3, budget=5).note is None
    base = BaseScorer.load().bind(ITEMS)
    bound = scorer.bind(ITEMS)
    opinion = scorer.judge.bind(ITEMS).score("red dog", np.arange(5))
    expected = base.base_scores("red dog", np.arange(5)) + scorer.weight * opinion
    np.testing.assert_allclose(bound.score("red dog", np.arange(5)), expected, atol=1e-9)
    marked = "the [START] dog [END] sat"
    np.testing.assert_array_equal(bound.score(marked, np.arange(5)), base.base_scores(marked, np.arange(5)))
    index.save(tmp_path / "i")
    assert (
        Index.load(tmp_path / "i").search("red dog", k=3, budget=30, stop="never").ids
        == index.search("red dog", k=3, budget=30, stop="never").ids
    )


def test_a_script_that_cannot_be_read_is_noticed() -> None:
    index = Index.build(
        ["عاصمة فرنسا هي باريس", "القطط حيوانات أليفة", "bread is baked from flour", "the sea is salty"]
    )
    arabic = index.search("ما هي عاصمة فرنسا", k=2)
    assert arabic.note == UNREADABLE
    assert arabic.ids[0] == index.search("ما هي عاصمة فرنسا", k=2, method="exact").ids[0]
    assert arabic[0].text == "عاصمة فرنسا هي باريس"
    assert "باريس" in str(arabic)
    english = index.search("how is bread baked", k=1)
    assert english.note is not None
    assert english.note != UNREADABLE
    assert english[0].text == "bread is baked from flour"
