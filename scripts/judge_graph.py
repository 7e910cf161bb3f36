"""Write a Llama model without weights, the judge's graph: python scripts/judge_graph.py FILE.gguf OUT.onnx

Products are `MatMulNBits` in blocks of eight bits; the weights are given to the session (`crosscut.models.causal_lm`).

    input_ids (b, s)   cos, sin (b, s, width / 2)   mask (b, s, p + s), added to what a token sees
    past_keys, past_values (layers, b, heads, p, width)   rows, targets (m): of which tokens log p of what is wanted
    →  log_probs (m)   keys, values (layers, b, heads, s, width)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from crosscut.models.causal_lm import BLOCK
from crosscut.models.gguf import GGUF

FLOAT, INT64, UINT8, INT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8


class Graph:
    """Nodes and constants, as they come."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.tensors: list[Any] = []

    def node(self, kind: str, inputs: list[str], output: str, **settings: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **settings))
        return output

    def constant(self, name: str, value: Any) -> str:
        if all(tensor.name != name for tensor in self.tensors):
            self.tensors.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def shape(self, *sizes: int) -> str:
        return self.constant("shape_" + "_".join(map(str, sizes)), np.array(sizes, np.int64))

    def weights(self, name: str, shape: list[int], kind: int) -> str:
        """A tensor that the session is given."""
        tensor = TensorProto(name=name, data_type=kind, dims=shape, data_location=TensorProto.EXTERNAL)
        size = int(np.prod(shape)) * (4 if kind == FLOAT else 1)
        for key, value in (("location", "weights"), ("offset", "0"), ("length", str(size))):
            tensor.external_data.add(key=key, value=value)
        self.tensors.append(tensor)
        return name

    def product(self, rows: str, name: str, inputs: int, outputs: int, out: str) -> str:
        blocks = outputs * inputs // BLOCK
        tensors = [
            self.weights(f"{name}.bits", [outputs, inputs // BLOCK, BLOCK], UINT8),
            self.weights(f"{name}.scale", [blocks], FLOAT),
            self.weights(f"{name}.zero", [blocks], UINT8),
        ]
        settings = {"K": inputs, "N": outputs, "bits": 8, "block_size": BLOCK, "accuracy_level": 4}
        return self.node("MatMulNBits", [rows, *tensors], out, domain="com.microsoft", **settings)

    def norm(self, rows: str, name: str, width: int, out: str) -> str:
        self.node("Mul", [rows, rows], f"{out}_square")
        self.node("ReduceMean", [f"{out}_square"], f"{out}_mean", axes=[-1], keepdims=1)
        self.node("Add", [f"{out}_mean", "epsilon"], f"{out}_some")
        self.node("Sqrt", [f"{out}_some"], f"{out}_size")
        self.node("Div", [rows, f"{out}_size"], f"{out}_unit")
        return self.node("Mul", [f"{out}_unit", self.weights(name, [width], FLOAT)], out)

    def rotated(self, heads: str, count: int, width: int, out: str) -> str:
        """Rotary positions: pairs of neighbouring numbers are turned."""
        self.node("Reshape", [heads, self.shape(0, 0, 0, width // 2, 2)], f"{out}_pairs")
        for part in (0, 1):
            place = self.constant(f"place_{part}", np.int64(part))
            self.node("Gather", [f"{out}_pairs", place], f"{out}_{part}", axis=4)
        for name, one, two, kind in (("first", "cos", "sin", "Sub"), ("second", "sin", "cos", "Add")):
            self.node("Mul", [f"{out}_0", f"{one}_all"], f"{out}_{name}_a")
            self.node("Mul", [f"{out}_1", f"{two}_all"], f"{out}_{name}_b")
            self.node(kind, [f"{out}_{name}_a", f"{out}_{name}_b"], f"{out}_{name}_sum")
            self.node("Unsqueeze", [f"{out}_{name}_sum", self.shape(-1)], f"{out}_{name}")
        self.node("Concat", [f"{out}_first", f"{out}_second"], f"{out}_turned", axis=-1)
        return self.node("Reshape", [f"{out}_turned", self.shape(0, 0, count, width)], out)


def llama(settings: dict[str, Any], vocabulary: int) -> ModelProto:
    """The graph of a model with these settings."""
    layers, width = int(settings["llama.block_count"]), int(settings["llama.embedding_length"])
    inner, heads = int(settings["llama.feed_forward_length"]), int(settings["llama.attention.head_count"])
    shared = int(settings["llama.attention.head_count_kv"])
    head = width // heads
    g = Graph()
    g.constant("epsilon", np.float32(settings["llama.attention.layer_norm_rms_epsilon"]))
    g.constant("root", np.float32(head**-0.5))
    g.weights("embedding.bits", [vocabulary, width], INT8)
    g.weights("embedding.scale", [vocabulary, width // 32], FLOAT)
    g.node("Gather", ["embedding.bits", "input_ids"], "words_bits", axis=0)
    g.node("Cast", ["words_bits"], "words_whole", to=FLOAT)
    g.node("Gather", ["embedding.scale", "input_ids"], "words_scale", axis=0)
    g.node("Reshape", ["words_whole", g.shape(0, 0, width // 32, 32)], "words_blocks")
    g.node("Reshape", ["words_scale", g.shape(0, 0, width // 32, 1)], "words_scales")
    g.node("Mul", ["words_blocks", "words_scales"], "words")
    x = g.node("Reshape", ["words", g.shape(-1, width)], "x")
    g.node("Shape", ["input_ids"], "batch")
    for count in {heads, shared}:
        g.node("Concat", ["batch", g.shape(count), g.shape(head)], f"by_{count}", axis=0)
    for name in ("cos", "sin"):
        g.node("Unsqueeze", [name, g.shape(2)], f"{name}_all")
    g.node("Unsqueeze", ["mask", g.shape(1, 2)], "mask_all")
    kept: dict[str, list[str]] = {"keys": [], "values": []}
    for layer in range(layers):
        p = f"layer{layer}_"
        h = g.norm(x, f"{layer}.attn_norm", width, f"{p}norm")
        for name, count in (("q", heads), ("k", shared), ("v", shared)):
            g.product(h, f"{layer}.{name}", width, count * head, f"{p}{name}_flat")
            g.node("Reshape", [f"{p}{name}_flat", f"by_{count}"], f"{p}{name}")
        turned = {
            name: g.rotated(f"{p}{name}", count, head, f"{p}{name}_at") for name, count in (("q", heads), ("k", shared))
        }
        for name, rows in (("q", turned["q"]), ("k", turned["k"]), ("v", f"{p}v")):
            g.node("Transpose", [rows], f"{p}{name}_heads", perm=[0, 2, 1, 3])
        number = g.constant(f"layer_{layer}", np.int64(layer))
        for name, past in (("k", "keys"), ("v", "values")):
            g.node("Gather", [f"past_{past}", number], f"{p}{name}_past", axis=0)
            g.node("Concat", [f"{p}{name}_past", f"{p}{name}_heads"], f"{p}{name}_every", axis=2)
            g.node("Unsqueeze", [f"{p}{name}_every", g.shape(2)], f"{p}{name}_groups")
            kept[past].append(g.node("Unsqueeze", [f"{p}{name}_heads", g.shape(0)], f"{p}{name}_kept"))
        g.node("Reshape", [f"{p}q_heads", g.shape(0, shared, heads // shared, -1, head)], f"{p}q_groups")
        g.node("Transpose", [f"{p}k_groups"], f"{p}k_across", perm=[0, 1, 2, 4, 3])
        g.node("MatMul", [f"{p}q_groups", f"{p}k_across"], f"{p}raw")
        g.node("Mul", [f"{p}raw", "root"], f"{p}scaled")
        g.node("Add", [f"{p}scaled", "mask_all"], f"{p}seen")
        g.node("Softmax", [f"{p}seen"], f"{p}weights", axis=-1)
        g.node("MatMul", [f"{p}weights", f"{p}v_groups"], f"{p}mixed")
        g.node("Reshape", [f"{p}mixed", g.shape(0, heads, -1, head)], f"{p}mixed_heads")
        g.node("Transpose", [f"{p}mixed_heads"], f"{p}mixed_rows", perm=[0, 2, 1, 3])
        g.node("Reshape", [f"{p}mixed_rows", g.shape(-1, width)], f"{p}mixed_flat")
        g.product(f"{p}mixed_flat", f"{layer}.o", width, width, f"{p}o")
        x = g.node("Add", [x, f"{p}o"], f"{p}attended")
        h = g.norm(x, f"{layer}.ffn_norm", width, f"{p}ffn")
        g.product(h, f"{layer}.gate", width, inner, f"{p}gate")
        g.product(h, f"{layer}.up", width, inner, f"{p}up")
        g.node("Sigmoid", [f"{p}gate"], f"{p}open")
        g.node("Mul", [f"{p}gate", f"{p}open"], f"{p}swish")
        g.node("Mul", [f"{p}swish", f"{p}up"], f"{p}inner")
        g.product(f"{p}inner", f"{layer}.down", inner, width, f"{p}down")
        x = g.node("Add", [x, f"{p}down"], f"{p}out")
    g.node("Gather", [x, "rows"], "asked", axis=0)
    g.product(g.norm("asked", "norm", width, "last"), "0.head", width, vocabulary, "logits")
    g.node("LogSoftmax", ["logits"], "every_log_prob", axis=-1)
    g.node("Unsqueeze", ["targets", g.shape(-1)], "target_column")
    g.node("GatherElements", ["every_log_prob", "target_column"], "log_prob_column", axis=1)
    g.node("Reshape", ["log_prob_column", g.shape(-1)], "log_probs")
    for name, parts in kept.items():
        g.node("Concat", parts, name, axis=0)
    info = helper.make_tensor_value_info
    past = [layers, "b", shared, "p", head]
    inputs = [
        info("input_ids", INT64, ["b", "s"]),
        *(info(name, FLOAT, ["b", "s", head // 2]) for name in ("cos", "sin")),
        info("mask", FLOAT, ["b", "s", "t"]),
        *(info(f"past_{name}", FLOAT, past) for name in kept),
        *(info(name, INT64, ["m"]) for name in ("rows", "targets")),
    ]
    outputs = [info("log_probs", FLOAT, ["m"]), *(info(name, FLOAT, [layers, "b", shared, "s", head]) for name in kept)]
    graph = helper.make_graph(g.nodes, "llama", inputs, outputs, g.tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:3])
    gguf = GGUF(source)
    made = llama(gguf.settings, len(gguf.tensor("token_embd.weight")))
    target.write_bytes(made.SerializeToString())
    print(f"{target}: {target.stat().st_size:,} bytes")
