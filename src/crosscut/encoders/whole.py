"""A whole encoder, with its head, as one ONNX graph: cross-encoders and dual encoders that others have trained.

    ids, positions, types (b × l), lengths (b), reads (b × r)    → scores (b) or vectors (b × d)

Rows are texts or pairs of any length up to l; the attention masks what is past a row's own end. `types` are there where
the encoder has segments, `reads` where the head reads rows: the last layer is then computed for those alone, and only
its keys and values for all.

In eight bits each product is one of whole numbers, with a scale for every row (`crosscut.encoders.graph`): a score
depends on its own pair alone, never on its batch-mates, as it would with scales taken per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crosscut.encoders.checkpoints import Body
from crosscut.encoders.graph import FLOAT, INT64, Graph
from crosscut.errors import InputError

FAR = -1e9  # takes an item out of a softmax


@dataclass(frozen=True)
class Step:
    """Something done to a vector: a linear layer, a norm, or a function by its name."""

    kind: Literal["linear", "norm", "tanh", "relu", "gelu"]
    weight: npt.NDArray[np.float32] | None = None
    bias: npt.NDArray[np.float32] | None = None
    epsilon: float = 1e-5


@dataclass(frozen=True)
class Head:
    """From states to an answer.

    reads : rows of the last layer that are read; 0: the mean over all tokens.
    steps : done to the first of them, or to the mean; where `dot`, the answer is instead the inner product of the last
        row with the mean of those before it ([EMB]-CE, ANNCUR §2.6).
    unit : make the answer unit length.
    """

    reads: int = 1
    steps: tuple[Step, ...] = field(default=(), repr=False)
    dot: bool = False
    unit: bool = False

    @property
    def scores(self) -> bool:
        """Whether the answer is one number."""
        last = self.steps[-1] if self.steps else None
        return self.dot or (last is not None and last.weight is not None and len(last.weight) == 1)


def whole_graph(body: Body, head: Head, precision: Literal["float32", "integer"] = "float32") -> bytes:
    """The model, its products in float32 or of whole numbers."""
    graph = _Whole(body, precision)
    x, mask = graph.embedded()
    asked = graph.node("Unsqueeze", ["reads", graph.whole(2)]) if head.reads else ""
    for layer in range(body.layers):
        last = layer == body.layers - 1
        x = graph.encoder_layer(layer, x, mask, asked if last else "")
    if body.modern:
        x = graph.norm(x, "final_norm")
    answer = graph.answer(x, head)
    inputs: dict[str, tuple[int, Sequence[Any]]] = {"ids": (INT64, ["b", "l"]), "lengths": (INT64, ["b"])}
    if not body.modern:
        inputs["positions"] = (INT64, ["b", "l"])
    if body.segments:
        inputs["types"] = (INT64, ["b", "l"])
    if head.reads:
        inputs["reads"] = (INT64, ["b", "r"])
    shape: Sequence[Any] = ["b"] if head.scores else ["b", "d"]
    return graph.finish("answers", inputs, (answer, FLOAT, shape))


class _Whole(Graph):
    """The graph of one encoder, layer by layer."""

    def __init__(self, body: Body, precision: Literal["float32", "integer"]) -> None:
        super().__init__(precision, body.heads, body.epsilon)
        self.body, self.weights = body, body.weights
        self._rotary: dict[float, tuple[str, str]] = {}

    def small(self, array: npt.NDArray[np.float32]) -> str:
        return self.constant(array)  # as its authors have saved it

    def embedded(self) -> tuple[str, str]:
        """What the first layer reads (b × l × D), and the mask of its keys (b × l)."""
        x = self.node("Gather", [self.constant(self.weights["words"]), "ids"])
        for table, rows in (("positions", "positions"), ("types", "types")):
            if table in self.weights and not self.body.modern:
                x = self.node("Add", [x, self.node("Gather", [self.constant(self.weights[table]), rows])])
        x = self.norm(x, "norm")
        if "project.weight" in self.weights:
            x = self.node("Add", [self.product(x, self.weights["project.weight"]), self.own("project.bias")])
        zero, one = self.constant(np.asarray(0, np.int64)), self.constant(np.asarray(1, np.int64))
        places = self.node("Range", [zero, self.node("Gather", [self.node("Shape", ["ids"]), one]), one])  # (l,)
        ends = self.node("Unsqueeze", ["lengths", self.whole(1)])
        return x, self.node("Cast", [self.node("Less", [places, ends])], to=6)

    def encoder_layer(self, number: int, x: str, mask: str, asked: str) -> str:
        """One layer; with `asked` (b × r × 1) only for those rows."""
        rows = self.node("GatherND", [x, asked], batch_dims=1) if asked else ""  # (b, r, D)
        if not self.body.modern:
            return self.layer(self.weights, f"layers.{number}", x, mask=mask, asked=rows)
        return self._modern_layer(number, x, mask, rows)

    def _modern_layer(self, number: int, x: str, mask: str, rows: str) -> str:
        """Norm, attention with rotary positions, norm, gated layer; each added to what it read."""
        modern = self.body.modern
        assert modern is not None
        prefix = f"layers.{number}"
        read = self.norm(x, f"{prefix}.attn_norm") if f"{prefix}.attn_norm.weight" in self.weights else x
        places = self._places()  # (b, l)
        packed = self.weights[f"{prefix}.attn.Wqkv.weight"]
        parts = np.split(packed, 3)
        if rows:
            asked = self.node("GatherND", [read, self.node("Unsqueeze", ["reads", self.whole(2)])], batch_dims=1)
            query = self.product(asked, parts[0])
            key, value = self._split(self.product(read, np.concatenate(parts[1:])), 2, self.body.width)
            at, skip = "reads", rows
        else:
            query, key, value = self._split(self.product(read, packed), 3, self.body.width)
            at, skip = places, x
        query, key = self._turn(query, at, modern.thetas[number]), self._turn(key, places, modern.thetas[number])
        inputs = [query, key, value, "", mask]
        window = modern.windows[number]
        if window is not None:
            inputs.append(self._window(at, places, window))
        mixed = self.node("MultiHeadAttention", inputs, "com.microsoft", num_heads=self.heads)
        mixed = self._with_bias(self.product(mixed, self.weights[f"{prefix}.attn.Wo.weight"]), f"{prefix}.attn.Wo")
        x = self.node("Add", [skip, mixed])
        inner = self.weights[f"{prefix}.mlp.Wi.weight"]
        wide = self._with_bias(self.product(self.norm(x, f"{prefix}.mlp_norm"), inner), f"{prefix}.mlp.Wi")
        shaped, gate = self._split(wide, 2, len(inner) // 2)
        opened = self.node("Mul", [self.node("Gelu", [shaped], "com.microsoft"), gate])
        narrow = self._with_bias(self.product(opened, self.weights[f"{prefix}.mlp.Wo.weight"]), f"{prefix}.mlp.Wo")
        return self.node("Add", [x, narrow])

    def _places(self) -> str:
        """0, 1, 2, … of every row (b × l)."""
        zero, one = self.constant(np.asarray(0, np.int64)), self.constant(np.asarray(1, np.int64))
        shape = self.node("Shape", ["ids"])
        return self.node("Expand", [self.node("Range", [zero, self.node("Gather", [shape, one]), one]), shape])

    def _turn(self, x: str, places: str, theta: float) -> str:
        """Rotary positions."""
        if theta not in self._rotary:
            size = self.body.width // self.body.heads
            speeds = 1.0 / theta ** (np.arange(0, size, 2, dtype=np.float64) / size)
            angles = np.arange(self.body.longest, dtype=np.float64)[:, None] * speeds  # (longest × size / 2)
            cos, sin = (self.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
            self._rotary[theta] = cos, sin
        return self.node("RotaryEmbedding", [x, places, *self._rotary[theta]], "com.microsoft", num_heads=self.heads)

    def _window(self, rows: str, places: str, window: int) -> str:
        """0 where a row may look, far below elsewhere: (b × 1 × rows × l)."""
        apart = self.node(
            "Sub", [self.node("Unsqueeze", [rows, self.whole(2)]), self.node("Unsqueeze", [places, self.whole(1)])]
        )
        far = self.node("Greater", [self.node("Abs", [apart]), self.constant(np.asarray(window, np.int64))])
        cost = self.node("Mul", [self.node("Cast", [far], to=FLOAT), self.constant(np.asarray(FAR, np.float32))])
        return self.node("Unsqueeze", [cost, self.whole(1)])

    def answer(self, x: str, head: Head) -> str:
        """The head on states (b × r × D), or (b × l × D) where it takes the mean."""
        if head.dot:
            rows = [self.node("Gather", [x, self._index(row)], axis=1) for row in range(head.reads)]
            query = rows[0] if len(rows) == 2 else self.node("Mean", rows[:-1])
            product = self.node("Mul", [query, rows[-1]])
            return self.node("ReduceSum", [product, self.whole(1)], keepdims=0)
        vector = self.node("Gather", [x, self._index(0)], axis=1) if head.reads else self._mean(x)
        for step in head.steps:
            vector = self._step(vector, step)
        if head.unit:
            vector = self.node("LpNormalization", [vector], axis=-1, p=2)
        return self.node("Squeeze", [vector, self.whole(1)]) if head.scores else vector

    def _mean(self, x: str) -> str:
        zero, one = self.constant(np.asarray(0, np.int64)), self.constant(np.asarray(1, np.int64))
        length = self.node("Gather", [self.node("Shape", ["ids"]), one])
        there = self.node(
            "Less", [self.node("Range", [zero, length, one]), self.node("Unsqueeze", ["lengths", self.whole(1)])]
        )
        there = self.node("Unsqueeze", [self.node("Cast", [there], to=FLOAT), self.whole(2)])  # (b, l, 1)
        total = self.node("ReduceSum", [self.node("Mul", [x, there]), self.whole(1)], keepdims=0)
        counts = self.node("Unsqueeze", [self.node("Cast", ["lengths"], to=FLOAT), self.whole(1)])
        return self.node("Div", [total, counts])

    def _step(self, vector: str, step: Step) -> str:
        """One step of the head, in float32 whatever the layers are in: it is done once a row."""
        if step.kind == "linear":
            assert step.weight is not None
            made = self.node("MatMul", [vector, self.constant(step.weight.T)])
            return made if step.bias is None else self.node("Add", [made, self.constant(step.bias)])
        if step.kind == "norm":
            assert step.weight is not None
            inputs = [vector, self.constant(step.weight)]
            inputs += [] if step.bias is None else [self.constant(step.bias)]
            return self.node("LayerNormalization", inputs, axis=-1, epsilon=step.epsilon)
        if step.kind == "gelu":
            return self.node("Gelu", [vector], "com.microsoft")
        return self.node({"tanh": "Tanh", "relu": "Relu"}[step.kind], [vector])

    def norm(self, x: str, name: str) -> str:
        inputs = [x, self.own(f"{name}.weight")]
        if f"{name}.bias" in self.weights:
            inputs.append(self.own(f"{name}.bias"))
        return self.node("LayerNormalization", inputs, axis=-1, epsilon=self.epsilon)

    def own(self, name: str) -> str:
        return self.constant(self.weights[name])

    def _with_bias(self, x: str, name: str) -> str:
        return self.node("Add", [x, self.own(f"{name}.bias")]) if f"{name}.bias" in self.weights else x

    def _split(self, x: str, count: int, width: int) -> list[str]:
        """x (… × count·width) in so many parts."""
        from onnx import helper

        self._count += 1
        names = [f"split_{self._count}_{part}" for part in range(count)]
        self.nodes.append(helper.make_node("Split", [x, self.whole(*[width] * count)], names, axis=-1))
        return names

    def _index(self, row: int) -> str:
        return self.constant(np.asarray(row, np.int64))


def classifier(config: Mapping[str, Any], saved: Mapping[str, npt.NDArray[np.float32]], where: str) -> Head:
    """The head of a `…ForSequenceClassification` with one label, as transformers saves it."""
    kind = str(config.get("model_type", "bert"))
    names = {
        "bert": (("bert.pooler.dense", "tanh"), ("classifier", "")),
        "electra": (("classifier.dense", "gelu"), ("classifier.out_proj", "")),
        "distilbert": (("pre_classifier", "relu"), ("classifier", "")),
        "modernbert": (("head.dense", str(config.get("classifier_activation", "gelu"))), ("classifier", "")),
    }.get(kind, (("classifier.dense", "tanh"), ("classifier.out_proj", "")))
    steps: list[Step] = []
    for name, after in names:
        if f"{name}.weight" not in saved:
            raise InputError(f"{where} has no {name}.weight: it is no cross-encoder with one score a pair")
        steps.append(Step("linear", saved[f"{name}.weight"], saved.get(f"{name}.bias")))
        if after in ("tanh", "relu", "gelu"):
            steps.append(Step(after))  # type: ignore[arg-type]
        elif after:
            raise InputError(f"{where} uses the activation {after!r} in its head; tanh, relu and gelu can be read")
        if name == "head.dense":
            epsilon = float(config.get("norm_eps", 1e-5))
            steps.append(Step("norm", saved["head.norm.weight"], saved.get("head.norm.bias"), epsilon))
    labels = len(saved[f"{names[-1][0]}.weight"])
    if labels != 1:
        raise InputError(f"the cross-encoder has {labels} labels; a scorer needs one score a pair")
    mean = kind == "modernbert" and config.get("classifier_pooling", "cls") == "mean"
    return Head(reads=0 if mean else 1, steps=tuple(steps))
