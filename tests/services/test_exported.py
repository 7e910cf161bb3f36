"""Hub models and published checkpoints on onnxruntime, against transformers and against formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crosscut
from crosscut.datasets.records import Item
from crosscut.encoders.graph import FLOAT, Graph
from crosscut.encoders.named import DualEncoder, TorchDualEncoder, load_encoder
from crosscut.encoders.pairs import Marked, Plain, as_query, longest_first, open_tokenizer
from crosscut.encoders.rounding import channel_scales
from crosscut.encoders.running import WORKER, Running, split_name, with_settings
from crosscut.encoders.session import OnnxSession
from crosscut.encoders.whole import packed, whole_graph
from crosscut.errors import InputError, MissingDependency
from crosscut.scorers.exported import ExportedCrossEncoder, SavedModel, form_of, together
from crosscut.scorers.loading import load_scorer
from crosscut.scorers.torch import TorchCrossEncoder, TorchPairs
from tests.hub_models import KINDS, write_model
from tests.tiny_models import WORDS, sentences

pytestmark = pytest.mark.filterwarnings("default")
ITEMS = sentences(40, longest=60)
LONG = " ".join(sentences(12, seed=3))


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that the tests of this file share."""
    place = tmp_path_factory.getbasetemp() / "cache"
    monkeypatch.setenv("CROSSCUT_CACHE", str(place))
    return place


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hub")
    return {kind: write_model(root / kind, kind) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_sentence_transformers(models: dict[str, Path], kind: str) -> None:
    ours, theirs = ExportedCrossEncoder.load(models[kind]), TorchCrossEncoder.load(models[kind])
    for query in ("river bank", LONG, ""):  # short, cut, empty
        expected = theirs.score(query, ITEMS)
        assert expected.std() > 0.01
        np.testing.assert_allclose(ours.score(query, ITEMS), expected, atol=2e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_a_score_does_not_depend_on_its_batch(models: dict[str, Path], kind: str) -> None:
    bound = ExportedCrossEncoder.load(models[kind]).bind(ITEMS)
    together = bound.score("river bank", np.arange(len(ITEMS)))
    alone = [bound.score("river bank", np.asarray([place]))[0] for place in range(len(ITEMS))]
    np.testing.assert_allclose(together, alone, atol=2e-6)
    several = bound.score_many(
        [("river bank", np.asarray([3, 1])), ("cat", np.asarray([], np.int64)), (LONG, np.asarray([0]))]
    )
    np.testing.assert_allclose(several[0].scores, together[[3, 1]], atol=2e-6)
    assert several[1].scores.shape == (0,)


def test_eight_bits_have_scales_of_their_own_and_are_judged(
    models: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crosscut.scorers.exported.KEPT_SHARE", 0.9)  # of weights that were never trained
    samples = (["river bank", "the dog sat on the land"], sentences(60, seed=5, longest=40))
    rounded = ExportedCrossEncoder.load(models["bert"], precision="int8", samples=samples)
    exact = ExportedCrossEncoder.load(models["bert"])
    assert 0.9 <= rounded.record["top10_kept"] <= 1
    assert rounded.fingerprint != exact.fingerprint
    bound, every = rounded.bind(ITEMS), np.arange(len(ITEMS))
    scores = bound.score("river bank", every)
    assert 0 < np.abs(scores - exact.score("river bank", ITEMS)).max() < 0.2
    assert np.corrcoef(scores, exact.score("river bank", ITEMS))[0, 1] > 0.99
    alone = [bound.score("river bank", np.asarray([place]))[0] for place in range(len(ITEMS))]
    np.testing.assert_allclose(scores, alone, atol=2e-6)  # batch-mates change nothing


def test_channels_that_are_far_larger_do_not_spoil_the_others() -> None:
    """Trained encoders have a few such channels, in every token; here two were planted."""
    rng = np.random.default_rng(0)
    x, weight = rng.normal(size=(200, 64)).astype(np.float32), rng.normal(size=(32, 64)).astype(np.float32)
    x[:, [3, 20]] *= 30
    scales = np.sqrt(np.abs(x).max(axis=0) / np.abs(weight).max(axis=0))
    errors = []
    for channels in ({}, {"up": scales}):
        graph = Graph("integer", 1, 1e-5, channels)
        made = graph.finish("y", {"x": (FLOAT, ["n", 64])}, (graph.linear("up", "x", weight), FLOAT, ["n", 32]))
        errors.append(np.abs(OnnxSession(made, 1).run({"x": x}) - x @ weight.T).std())
    assert 0 < errors[1] < errors[0] / 2


@pytest.mark.parametrize("kind", ["bert", "modernbert"])
def test_scales_are_of_every_product_that_is_rounded(models: dict[str, Path], kind: str) -> None:
    source = SavedModel(models[kind], emb=False, max_length=None)
    body, head, form = source.read()
    made = form_of(open_tokenizer(source.folder), form)
    query = made.queries(["the dog sat on the river bank"])[0]
    rows = [made.join(query, item) for item in made.items(sentences(60, seed=5, longest=40))]
    scales = channel_scales(body, head, [rows[:20], rows[20:]])
    for name, one in scales.items():
        assert one.shape == body.weights[f"{name}.weight"].shape[1:]
        assert np.exp(np.log(one).mean()) == pytest.approx(1, rel=1e-4)
    given = packed(rows, OnnxSession(whole_graph(body, head), 1).inputs)
    exact, plain, scaled = (
        OnnxSession(graph, 1).run(given)
        for graph in (
            whole_graph(body, head),
            whole_graph(body, head, "integer"),
            whole_graph(body, head, "integer", scales),
        )
    )
    assert 0 < np.abs(scaled - exact).std() < 1.1 * np.abs(plain - exact).std()
    left = whole_graph(body, head, "integer", dict.fromkeys(scales))  # every product in float32 after all
    np.testing.assert_allclose(OnnxSession(left, 1).run(given), exact, atol=2e-5)


def test_a_call_is_given_tokens_that_differ_and_no_padding(models: dict[str, Path]) -> None:
    scorer = ExportedCrossEncoder.load(models["bert"])
    query = scorer.form.queries(["river bank"])[0]
    rows = [scorer.form.join(query, item) for item in scorer.form.items(["a cat", "the dog sat on the land", "cat"])]
    given = packed(rows, scorer.inputs)
    assert len(given["tokens"]) == len(given["places"]) == sum(len(row.ids) for row in rows)
    triples = set(zip(given["ids"].tolist(), given["positions"].tolist(), given["types"].tolist(), strict=True))
    assert len(triples) == len(given["ids"]) < len(given["tokens"])
    for place, row in enumerate(rows):
        tokens = given["tokens"][given["grid"][place, : len(row.ids)]]
        for name in ("ids", "positions", "types"):
            np.testing.assert_array_equal(given[name][tokens], getattr(row, name))
    np.testing.assert_array_equal(given["grid"].ravel()[given["places"]], np.arange(len(given["tokens"])))


def test_groups_hold_every_row_once_and_little_padding() -> None:
    sizes = np.random.default_rng(0).integers(3, 500, 300)
    sizes[:50] = 4
    groups = list(together(sizes, 512))
    np.testing.assert_array_equal(np.sort(np.concatenate(groups)), np.arange(300))
    for group in groups:
        assert len(group) == 1 or sizes[group].sum() <= 512 + sizes[group].max()
        assert len(group) * sizes[group].max() <= 2 * sizes[group].sum()
    assert list(together(np.asarray([], np.int64), 512)) == []


def test_every_thread_gets_as_much() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes, threads = rng.integers(20, 50, rng.integers(10, 300)), int(rng.integers(1, 5))
        groups = list(together(sizes, 512, threads))
        assert len(groups) % threads == 0
        tokens = [int(sizes[group].sum()) for group in groups]
        assert max(tokens) - min(tokens) <= 100  # a row at either end


def test_eight_bits_that_change_the_ranking_are_refused(tmp_path: Path) -> None:
    wild = write_model(tmp_path / "wild", "bert", layers=4, spread=2.0)
    with pytest.raises(InputError, match=r"in eight bits .* of each top 10, not 0.98"):
        ExportedCrossEncoder.load(wild, precision="int8", samples=(sentences(4), sentences(120, seed=2, longest=50)))


def test_layers_stay_in_float32_where_that_keeps_the_ranking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import crosscut.scorers.exported as module

    model = write_model(tmp_path / "four", "bert", layers=4)
    asked: list[dict[str, Any]] = []

    def written(body: Any, head: Any, precision: Any = "float32", channels: Any = None) -> bytes:
        asked.append(channels)
        return whole_graph(body, head, precision, channels)

    monkeypatch.setattr(module, "whole_graph", written)
    shares = iter([0.9, 0.99])
    monkeypatch.setattr(module, "_shared", lambda *_: next(shares))
    samples = (sentences(2), sentences(30, seed=2))
    made = ExportedCrossEncoder.load(model, precision="int8", samples=samples)
    assert made.record["layers_in_float32"] == [0, 2]
    assert made.record["top10_kept"] == 0.99
    exact, every, some = asked
    assert exact is None
    assert all(scale is not None for scale in every.values())
    assert {name.split(".")[1] for name, scale in some.items() if scale is None} == {"0", "2"}
    assert {name.split(".")[1] for name, scale in some.items() if scale is not None} == {"1"}


def test_a_model_is_exported_once(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    first = ExportedCrossEncoder.load(models["bert"], max_length=40)
    import crosscut.scorers.exported as module

    def again(*_: Any, **__: Any) -> bytes:
        raise AssertionError("exported again")

    monkeypatch.setattr(module, "whole_graph", again)
    assert ExportedCrossEncoder.load(models["bert"], max_length=40).fingerprint == first.fingerprint
    with pytest.raises(AssertionError, match="exported again"):
        ExportedCrossEncoder.load(models["bert"], max_length=41)


@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_texts_are_cut_as_the_tokenizer_cuts_them(models: dict[str, Path], kind: str) -> None:
    import transformers

    library: Any = transformers
    theirs = library.AutoTokenizer.from_pretrained(models[kind])
    rng = np.random.default_rng(0)
    for longest in (9, 16, 33):
        form = Plain.of(open_tokenizer(models[kind]), longest)
        for _ in range(40):
            query, item = (" ".join(rng.choice(WORDS, rng.integers(1, 30))) for _ in range(2))
            expected = theirs(query, item, truncation=True, max_length=longest)
            row = form.join(form.queries([query])[0], form.items([item])[0])
            assert row.ids.tolist() == expected["input_ids"]
            if "token_type_ids" in expected:
                assert row.types.tolist() == expected["token_type_ids"]
    assert longest_first(3, 4, 10) == (3, 4)


def test_names_carry_settings() -> None:
    assert split_name("a/b#device=cuda:1&dtype=bf16&batch_size=8") == ("a/b", Running("cuda:1", "bf16", 8))
    assert with_settings("a/b", device=None) == "a/b"
    assert (
        with_settings("a/b#device=cpu", device="cuda:0,cuda:1", dtype="fp16") == "a/b#device=cuda:0,cuda:1&dtype=fp16"
    )
    for wrong, said in {
        "a/b#color=red": "'color', which no model has",
        "a/b#dtype=fp8": "fp32, fp16, bf16 or int8",
        "a/b#dtype=fp16": "is for a GPU",
        "a/b#dtype=int8&device=cuda": "int8 runs on the CPU",
        "a/b#batch_size=0": "a batch of 0",
        "a/b#batch_size=x": "whole number",
        "a/b#max_length=3": "3 tokens have no room",
        "a/b#similarity=l2": "dot or cosine",
    }.items():
        with pytest.raises(InputError, match=said):
            split_name(wrong)
    with pytest.raises(InputError, match="not for the address"):
        with_settings("https://example.com", device="cuda")
    with pytest.raises(InputError, match="runs on the CPU as it is"):
        with_settings("default", device="cuda")


def test_every_worker_has_a_device_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    how = Running("cuda:0,cuda:1,cuda:2")
    for worker, device in (("0", "cuda:0"), ("1", "cuda:1"), ("4", "cuda:1")):
        monkeypatch.setenv(WORKER, worker)
        assert how.here() == device
    assert Running("cuda:*").here(lambda: 8) == "cuda:4"
    with pytest.raises(InputError, match="torch sees none"):
        Running("cuda:*").here(lambda: 0)
    assert Running().here() == "cpu"


def test_a_device_is_passed_on(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """No GPU is needed: the `meta` device has shapes and no numbers."""
    scorer = load_scorer(f"{models['bert']}#device=meta&dtype=bf16&batch_size=4&max_length=20")
    assert isinstance(scorer, TorchCrossEncoder)
    parameter = next(scorer.model.parameters())
    assert str(parameter.device) == "meta"
    assert str(parameter.dtype) == "torch.bfloat16"
    assert scorer.batch_size == 4
    assert isinstance(load_scorer(f"{models['bert']}#dtype=fp32"), ExportedCrossEncoder)


def test_without_onnx_torch_runs_it(models: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> None:
        raise ImportError("no onnx")

    monkeypatch.setattr(ExportedCrossEncoder, "load", absent)
    assert isinstance(load_scorer(str(models["bert"])), TorchCrossEncoder)
    with pytest.raises(MissingDependency, match="exported with onnx"):
        load_scorer(f"{models['bert']}#dtype=int8")


def test_a_hub_cross_encoder_in_an_index(models: dict[str, Path], tmp_path: Path) -> None:
    index = crosscut.Index.build(ITEMS, scorer=str(models["distilbert"]))
    hits = index.search("river bank", k=5, budget=20)
    assert len(hits) == 5
    index.save(tmp_path / "my.index")
    again = crosscut.Index.load(tmp_path / "my.index")
    assert [hit.id for hit in again.search("river bank", k=5, budget=20)] == [hit.id for hit in hits]


# ------------------------------------------------------------------ published checkpoints

MARKS = ["[unused0]", "[unused1]", "[unused2]"]
CONTEXT = "the big cat sat in the [START] river bank [END] to fish in the water"
ENTITIES = [Item("1", "bank", "sloping land " * 30), Item("2", "money", ""), Item("3", "a", "red dog account")]


def vocabulary() -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return ["[PAD]", *MARKS, "[UNK]", "[CLS]", "[SEP]", *WORDS, *letters, *(f"##{letter}" for letter in letters)]


def write_checkpoint(folder: Path, parts: dict[str, str], *, lightning: bool = False, linear: bool = False) -> Any:
    """Towers of BERT as ANNCUR saves them: model.torch, model.config, vocab.txt, wrapper_config.json."""
    import torch
    import transformers

    library: Any = transformers
    folder.mkdir(parents=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary()) + "\n")
    config = library.BertConfig(
        vocab_size=len(vocabulary()),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=64,
    )
    torch.manual_seed(1)
    towers: dict[str, Any] = {}
    saved: dict[str, Any] = {}
    for name in parts:
        tower = library.BertModel(config).eval()
        with torch.no_grad():
            for key, parameter in tower.named_parameters():
                parameter.normal_(1 if "LayerNorm.weight" in key else 0, 0.3)
        towers[name] = tower
        saved |= {f"{name}.bert_model.{key}": value for key, value in tower.state_dict().items()}
        if linear:
            saved[f"{name}.additional_linear.weight"] = torch.randn(1, 24)
            saved[f"{name}.additional_linear.bias"] = torch.randn(1)
    if lightning:
        saved = {"state_dict": {f"model.{key}": value for key, value in saved.items()}}
    torch.save(saved, folder / ("model.ckpt" if lightning else "model.torch"))
    (folder / "model.config").write_text(json.dumps(config.to_dict()))
    told = {"max_input_len": 20, "max_label_len": 24, "pooling_type": "cls_w_lin"}
    (folder / "wrapper_config.json").write_text(json.dumps(told))
    return towers, saved


def as_published(left: str, mention: str, right: str, item: Item, tokenizer: Any) -> tuple[list[int], list[int]]:
    """ANNCUR's rows, padded as its authors padded them: a second reading of app. A.1."""
    ids = {token: n for n, token in enumerate(vocabulary())}

    def pieces(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    marked = [ids["[unused0]"], *pieces(mention), ids["[unused1]"]]
    before, after = pieces(left), pieces(right)
    quota = (20 - len(marked)) // 2 - 1
    rest = 20 - len(marked) - quota - 2
    if len(before) <= quota:
        if len(after) > rest:
            rest += quota - len(before)
    elif len(after) <= rest:
        quota += rest - len(after)
    query = [ids["[CLS]"], *before[-quota:], *marked, *after[:rest], ids["[SEP]"]]
    label = [*pieces(item.title), ids["[unused2]"], *pieces(item.text)][:22]
    label = [*label, ids["[SEP]"]]
    pad = [0] * (20 - len(query))
    return [*query, *pad, *label, *[0] * (23 - len(label))], [*[0] * 20, *[1] * 23]


@pytest.mark.parametrize("lightning", [False, True])
def test_emb_cross_encoder_as_published(tmp_path: Path, lightning: bool) -> None:
    import torch

    towers, _ = write_checkpoint(tmp_path / "ce", {"encoder": ""}, lightning=lightning)
    scorer = load_scorer(str(tmp_path / "ce"))
    assert isinstance(scorer, ExportedCrossEncoder)
    expected = []
    for entity in ENTITIES:
        left, mention, right = "the big cat sat in the", "river bank", "to fish in the water"
        ids, types = as_published(left, mention, right, entity, scorer.form.tokenizer)  # type: ignore[attr-defined]
        tensor = torch.tensor([ids])
        with torch.no_grad():
            states = towers["encoder"](tensor, (tensor != 0).long(), torch.tensor([types])).last_hidden_state[0]
        at = {mark: ids.index(n + 1) for n, mark in enumerate(MARKS)}
        query = (states[at["[unused0]"]] + states[at["[unused1]"]]) / 2
        expected.append(float(query @ states[at["[unused2]"]]))
    np.testing.assert_allclose(scorer.score(CONTEXT, ENTITIES), expected, atol=1e-4)
    on_torch = TorchPairs.load(tmp_path / "ce", Running(batch_size=2))
    np.testing.assert_allclose(on_torch.score(CONTEXT, ENTITIES), expected, atol=1e-4)
    assert np.isfinite(scorer.score("no mention at all", ENTITIES)).all()


def test_cls_cross_encoder_as_published(tmp_path: Path) -> None:
    import torch

    towers, saved = write_checkpoint(tmp_path / "ce", {"encoder": ""}, linear=True)
    scorer = load_scorer(str(tmp_path / "ce"))
    ids, types = as_published(
        "the big cat sat in the",
        "river bank",
        "to fish in the water",
        ENTITIES[0],
        scorer.form.tokenizer,  # type: ignore[attr-defined]
    )
    tensor = torch.tensor([ids])
    with torch.no_grad():
        pooled = towers["encoder"](tensor, (tensor != 0).long(), torch.tensor([types])).pooler_output[0]
        expected = pooled @ saved["encoder.additional_linear.weight"][0] + saved["encoder.additional_linear.bias"]
    assert scorer.score(CONTEXT, ENTITIES[:1])[0] == pytest.approx(float(expected), abs=1e-4)
    on_torch = TorchPairs.load(tmp_path / "ce")
    np.testing.assert_allclose(on_torch.score(CONTEXT, ENTITIES), scorer.score(CONTEXT, ENTITIES), atol=1e-4)


def test_emb_cross_encoder_of_ms_marco(models: dict[str, Path]) -> None:
    """ADACUR's: an ordinary checkpoint whose score is [CLS] · [SEP]."""
    import torch
    import transformers

    library: Any = transformers
    scorer = load_scorer(f"emb+{models['bert']}")
    model = library.AutoModel.from_pretrained(models["bert"]).eval()
    tokenizer = library.AutoTokenizer.from_pretrained(models["bert"])
    expected = []
    for item in ITEMS[:6]:
        told = tokenizer("river bank", item, truncation=True, max_length=96, return_tensors="pt")
        with torch.no_grad():
            states = model(**told).last_hidden_state[0]
        ends = (told["input_ids"][0] == tokenizer.sep_token_id).nonzero()[:, 0]
        expected.append(float(states[0] @ states[ends[0]]))
    np.testing.assert_allclose(scorer.score("river bank", ITEMS[:6]), expected, atol=1e-4)
    assert scorer.fingerprint != load_scorer(str(models["bert"])).fingerprint


@pytest.mark.parametrize("names", [("input_encoder", "label_encoder"), ("context_encoder", "cand_encoder")])
def test_two_towers_as_published(tmp_path: Path, names: tuple[str, str]) -> None:
    import torch

    towers, _ = write_checkpoint(tmp_path / "de", dict.fromkeys(names, ""))
    encoder = load_encoder(str(tmp_path / "de"))
    assert isinstance(encoder, DualEncoder)
    vectors, query = encoder.encode_items(ENTITIES), encoder.encode_queries([CONTEXT])
    assert vectors.shape == (3, 24)
    assert np.linalg.norm(vectors, axis=1).std() > 1e-3  # not made unit length
    form = Marked.of(open_tokenizer(tmp_path / "de"), query_tokens=20, item_tokens=24)
    for tower, texts, found in ((names[1], form.items(ENTITIES), vectors), (names[0], form.queries([CONTEXT]), query)):
        for text, vector in zip(texts, found, strict=True):
            with torch.no_grad():
                expected = towers[tower](torch.from_numpy(text.ids)[None]).last_hidden_state[0, 0].numpy()
            np.testing.assert_allclose(vector, expected, atol=1e-4)
    assert encoder.encode_queries([]).shape == (0, 24)


def test_a_checkpoint_that_is_neither_is_a_sentence(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "odd", {"something": ""})
    with pytest.raises(InputError, match="no dual encoder of two towers"):
        load_encoder(str(tmp_path / "odd"))
    with pytest.raises(InputError, match="lacks the tensor"):
        ExportedCrossEncoder.load(tmp_path / "odd")


def test_an_item_as_a_query() -> None:
    assert as_query(ENTITIES[2]) == "[START] a [END] red dog account"
    assert as_query("text alone") == "text alone"


def test_dot_product_encoders_keep_their_lengths(tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    write_model(tmp_path / "plain", "distilbert", head=False)
    parts = [Transformer(str(tmp_path / "plain")), Pooling(32, pooling_mode="mean")]
    for similarity in ("dot", "cosine"):
        SentenceTransformer(modules=parts, similarity_fn_name=similarity, device="cpu").save(str(tmp_path / similarity))
    free, unit = (load_encoder(str(tmp_path / name)) for name in ("dot", "cosine"))
    assert isinstance(free, TorchDualEncoder)
    lengths = np.linalg.norm(free.encode_items(ITEMS), axis=1)
    assert lengths.std() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(unit.encode_items(ITEMS), axis=1), 1, atol=1e-5)
    rows = free.encode_items(ITEMS)
    np.testing.assert_allclose(rows / lengths[:, None], unit.encode_items(ITEMS), atol=1e-5)
    assert free.fingerprint != unit.fingerprint
    told = load_encoder(f"{tmp_path / 'cosine'}#similarity=dot&max_length=16")
    assert np.linalg.norm(told.encode_items(ITEMS), axis=1).std() > 1e-3
