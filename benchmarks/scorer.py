"""Pairs per second of the cross-encoder in the box against `CrossEncoder.predict` of sentence-transformers.

    python benchmarks/scorer.py [--json benchmarks/results/scorer.json]

A model of the box's shape with the weights that its training starts from, same weights for either side, same pairs of
natural lengths (synsets of the bundled world), one query × 1,000 items, warm, float32 arithmetic everywhere. The rival
is how anyone would run the model in sentence-transformers: transformers' own BertLayers behind a `CrossEncoder`, every
pair from its tokens up; its scores are checked against ours. Then what each step of our path wins, and the model in
the box, the cross-encoder alone.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))

from crosscut.datasets.bundled import load_world
from crosscut.encoders.graph import cross_graph
from crosscut.encoders.tokens import PAIR_ROLES, Tokenizer
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.training.bert import read_encoder
from crosscut.training.export import export, numpy_weights
from crosscut.training.models import CrossModel
from turns import in_turns

transformers: Any = importlib.import_module("transformers")
sentence_transformers: Any = importlib.import_module("sentence_transformers")


class PairConfig(transformers.BertConfig):  # type: ignore[misc]
    model_type = "crosscut-pair"


class BertForPairs(transformers.BertPreTrainedModel):  # type: ignore[misc]
    """The [EMB] cross-encoder on transformers' layers; the first `independent` see their own segment only."""

    config_class = PairConfig

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.bert = transformers.BertModel(config, add_pooling_layer=False)
        self.roles = torch.nn.Embedding(PAIR_ROLES, config.hidden_size)
        self.register_buffer("keys", torch.arange(config.vocab_size))
        self.scale = torch.nn.Parameter(torch.tensor(1.0))
        self.offset = torch.nn.Parameter(torch.tensor(0.0))
        self.post_init()

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any, **_: Any) -> Any:
        lengths = (token_type_ids == 0).logical_and(attention_mask == 1).sum(1, keepdim=True)
        places = torch.arange(input_ids.shape[1])[None] - lengths * token_type_ids
        x = self.bert.embeddings(
            input_ids=input_ids, position_ids=places.clamp(min=0), token_type_ids=torch.zeros_like(input_ids)
        )
        lowest = torch.finfo(x.dtype).min
        real = attention_mask[:, None, None, :] == 1
        same = token_type_ids[:, None, :, None] == token_type_ids[:, None, None, :]
        alone = torch.where(real & same, 0.0, lowest)
        joint = torch.where(real, 0.0, lowest).expand_as(alone)
        head = input_ids == 101
        roles = torch.where(token_type_ids == 0, torch.where(head, 4, 0), torch.where(head, 5, 2))
        keys = self.keys[input_ids]
        shared = (keys[:, :, None] == (keys * (token_type_ids == 0) * (input_ids > 103))[:, None, :]).any(2)
        roles = torch.where(shared & (roles == 2), 6, roles)
        for number, layer in enumerate(self.bert.encoder.layer):
            if number == self.config.independent:
                x = x.half().float() + self.roles(roles)
            x = layer(x, attention_mask=alone if number < self.config.independent else joint)
            x = x[0] if isinstance(x, tuple) else x
        first, second = x[:, 0], x[torch.arange(len(x)), lengths[:, 0]]
        logits = (first * second).sum(1, keepdim=True) * self.scale - self.offset
        return transformers.modeling_outputs.SequenceClassifierOutput(logits=logits)


def rival(cross: CrossModel, tokenizer: Path, folder: Path) -> Any:
    """A CrossEncoder with the weights of `cross`."""
    shape = cross.shape.asdict()
    config = PairConfig(**shape, independent=cross.independent, hidden_act="gelu", type_vocab_size=1, num_labels=1)
    model = BertForPairs(config)
    state = {}
    names = {
        "query": "attention.self.query",
        "key": "attention.self.key",
        "value": "attention.self.value",
        "output": "attention.output.dense",
        "attention_norm": "attention.output.LayerNorm",
        "up": "intermediate.dense",
        "down": "output.dense",
        "norm": "output.LayerNorm",
    }
    for name, tensor in cross.state_dict().items():
        parts = name.split(".")
        if parts[0] == "upper" or parts[:2] == ["lower", "layers"]:
            number = int(parts[1]) + cross.independent if parts[0] == "upper" else int(parts[2])
            state[f"bert.encoder.layer.{number}.{names[parts[-2]]}.{parts[-1]}"] = tensor
        elif parts[0] == "lower":
            table = {"words": "word_embeddings", "positions": "position_embeddings", "norm": "LayerNorm"}
            state[f"bert.embeddings.{table[parts[1]]}.{parts[2]}"] = tensor
        else:
            state[name] = tensor
    state["keys"] = torch.from_numpy(Tokenizer(tokenizer)._keys)
    state["bert.embeddings.token_type_embeddings.weight"] = torch.zeros(1, shape["hidden_size"])
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if "position_ids" not in name]:
        raise SystemExit(f"weights do not fit: {missing} {unexpected}")
    from tokenizers.processors import TemplateProcessing

    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tokenizer),
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        model_max_length=256,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
    fast.backend_tokenizer.post_processor = TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 [CLS]:1 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 101), ("[SEP]", 102)],
    )
    transformers.AutoConfig.register("crosscut-pair", PairConfig)
    transformers.AutoModelForSequenceClassification.register(PairConfig, BertForPairs)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return sentence_transformers.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--items", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    training = importlib.import_module("train_default")
    encoder_folder = training.encoder_folder

    shape, weights = read_encoder(encoder_folder())
    cross = CrossModel(shape, 4, "emb")
    training.start(cross, weights)
    world = load_world()
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(world.items))[: arguments.items]
    items = [f"{world.items[c].title} {world.items[c].text}" for c in chosen]  # no marks: the rival knows none
    query = "it took a while before the idea sank into his mind"
    every = np.arange(len(items))
    with tempfile.TemporaryDirectory() as place:
        full, untrimmed = Path(place) / "full", Path(place) / "untrimmed"
        tokenizer = encoder_folder() / "tokenizer.json"
        for folder, trim in ((full, True), (untrimmed, False)):
            export(folder, tokenizer, cross=cross, query_tokens=64, item_tokens=128)
            graph = cross_graph(
                numpy_weights(cross),
                2,
                shape.num_attention_heads,
                shape.layer_norm_eps,
                "float32",
                "emb",
                trim=trim,
            )
            (folder / "cross.onnx").write_bytes(graph)
        theirs = rival(cross, tokenizer, Path(place) / "hub")
        pairs = [(query, item) for item in items]
        reference = np.asarray(theirs.predict(pairs, show_progress_bar=False)).ravel()
        plain = OnnxCrossEncoder.load(untrimmed).bind(items, cache_bytes=0)
        trimmed = OnnxCrossEncoder.load(full).bind(items, cache_bytes=0)
        kept, box = (OnnxCrossEncoder.load(folder, alone=True).bind(items) for folder in (full, "default"))
        ours = kept.score(query, every)
        long = OnnxCrossEncoder.load(alone=True).bind(["mind " * 43] * len(items))  # with [CLS] and [SEP] 45 tokens
        longer = query + " at last , he said , once more"
        tokenizer = long.model.folder.tokenizer
        tokens = len(tokenizer.query(longer).ids) + len(tokenizer.item("mind " * 43).ids)
        names = (
            "CrossEncoder.predict, float32",
            "onnxruntime, tokens kept, batches of like length",
            "+ last layer only where the head reads",
            "+ item states kept (float32 weights)",
            "shipped (int8 and float16 weights)",
            f"shipped, {tokens} tokens a pair",
        )
        runs: tuple[Callable[[], Any], ...] = (
            lambda: theirs.predict(pairs, show_progress_bar=False),
            lambda: plain.score(query, every),
            lambda: trimmed.score(query, every),
            lambda: kept.score(query, every),
            lambda: box.score(query, every),
            lambda: long.score(longer, every),
        )
        times = in_turns(dict(zip(names, runs, strict=True)), arguments.repeats)
    rows = []
    for name in names:
        rates = sorted(len(items) / seconds for seconds in times[name])
        ratios = [slow / fast for slow, fast in zip(times[names[0]], times[name], strict=True)]  # of the same turn
        row = {"path": name, "pairs_per_second": float(np.median(rates)), "range": [rates[0], rates[-1]]}
        rows.append({**row, "times_the_rival": float(np.median(ratios)), "ratio_range": [min(ratios), max(ratios)]})
        print(f"{name:62s} {np.median(rates):8.0f} pairs/s {np.median(ratios):6.2f}×", flush=True)
    lengths = [len(one.ids) for one in tokenizer.items(items)]
    report = {
        "machine": {"processor": processor(), "cores": torch.get_num_threads()},
        "versions": {
            "onnxruntime": onnxruntime.__version__,
            "sentence-transformers": sentence_transformers.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
        "timing": f"one query × {len(items)} items, warm, in turns, median of {arguments.repeats}; tokenising is in "
        "the rival's time and not in ours, which keeps tokens (and, where said, item states) of a bound corpus",
        "mean_tokens_per_pair": float(np.mean(lengths) + len(tokenizer.query(query).ids)),
        "rows": rows,
        "speed_up_float32": rows[3]["times_the_rival"],
        "speed_up_shipped": rows[4]["times_the_rival"],
        "scores": {"lowest": float(reference.min()), "highest": float(reference.max())},
        "largest_difference_to_rival": float(np.abs(ours - reference).max()),
    }
    print(json.dumps({key: value for key, value in report.items() if key != "rows"}, indent=1))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def processor() -> str:
    """Model name and the vector instructions that matter."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    name = next((line.split(":")[1].strip() for line in text.splitlines() if line.startswith("model name")), "?")
    flags = [flag for flag in ("avx2", "avx512f", "avx512_vnni", "avx512_bf16") if f" {flag} " in f"{text} "]
    return f"{name} ({', '.join(flags)})"


if __name__ == "__main__":
    main()
