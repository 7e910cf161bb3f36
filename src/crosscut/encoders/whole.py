"""A whole encoder, with its head, as one ONNX graph: cross-encoders and dual encoders that others have trained.

    ids, positions, types (u)    tokens that differ
    tokens (t)                   which of them stand in the rows, row after row, without padding
    grid (b × l)                 the tokens of each row; past its end any
    places (t)                   where in the grid each token lies
    lengths (b), reads (b × r)   of the rows, and what the head reads of them     → scores (b) or vectors (b × d)

Rows are texts or pairs of any length up to l. Products, where the time goes, see no padding; only the attention is laid
out in the grid, and masks what is past a row's own end. Before rows are mixed for the first time a token depends on
itself and its place alone, and in a search the query's are the same in every pair: the first layer's keys, queries and
values are computed once for tokens that are the same.

Where the head reads a few rows q, the last layer is computed for those alone, and needs no key k = K x and no value
v = V x of any token, for

    q · K x = (Kᵀ q) · x        Σ a V x = V Σ a x

(ModernBERT turns its keys by their places, and has to compute them.)

In eight bits each product is one of whole numbers, with a scale for every row (`crosscut.encoders.graph`): a score
depends on its own pair alone, never on its batch-mates, as it would with scales taken per call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from crosscut.encoders.checkpoints import Body
from crosscut.encoders.graph import FLOAT, INT64, ONE, Channels, Graph, Weights
from crosscut.encoders.pairs import Row
from crosscut.errors import InputError

FAR = -1e9  # takes an item out of a softmax
AT_ONCE = 768  # channels of a product in float32: rows of 3,072 or 4,096 numbers fall on the same lines of a cache


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


def packed(rows: Sequence[Row], inputs: Sequence[str]) -> dict[str, npt.NDArray[np.int64]]:
    """What a call of the graph is given for these rows, of what it takes."""
    lengths = np.asarray([len(row.ids) for row in rows], np.int64)
    there = np.arange(int(lengths.max())) < lengths[:, None]  # (b, l)
    grid = np.zeros(there.shape, np.int64)
    grid[there] = np.arange(int(lengths.sum()))
    told = {"grid": grid, "places": np.flatnonzero(there), "lengths": lengths}
    names = [name for name in ("ids", "positions", "types") if name in inputs]
    values = np.stack([np.concatenate([getattr(row, name) for row in rows]) for name in names])  # (names, t)
    key = values[0]
    for other in values[1:]:
        key = key * (int(other.max()) + 1) + other
    _, first, told["tokens"] = np.unique(key, return_index=True, return_inverse=True)
    told |= dict(zip(names, values[:, first], strict=True))
    if "reads" in inputs:
        told["reads"] = np.stack([row.reads for row in rows])
    return told


def whole_graph(
    body: Body, head: Head, precision: Literal["float32", "integer"] = "float32", channels: Channels | None = None
) -> bytes:
    """The model, its products in float32 or of whole numbers; `channels` as `crosscut.encoders.rounding` gives them."""
    return Whole(body, precision, channels).written(head)


class Whole(Graph):
    """The graph of one encoder, layer by layer; states are packed (t × D)."""

    at_once = AT_ONCE

    def __init__(
        self, body: Body, precision: Literal["float32", "integer"] = "float32", channels: Channels | None = None
    ) -> None:
        super().__init__(precision, body.heads, body.epsilon, channels)
        self.body, self.weights = body, body.weights
        self._rotary: dict[float, tuple[str, str]] = {}

    def written(self, head: Head) -> bytes:
        """The whole graph with a head."""
        body = self.body
        x = self.embedded()
        for layer in range(body.layers):
            x = self.encoder_layer(layer, x, first=layer == 0, few=bool(head.reads) and layer == body.layers - 1)
        if body.modern:
            x = self.norm(x, "final_norm")
        answer = self.answer(x, head)
        shapes: dict[str, Sequence[Any]] = {"ids": ["u"], "tokens": ["t"], "grid": ["b", "l"], "places": ["t"]}
        shapes["lengths"] = ["b"]
        if not body.modern:
            shapes["positions"] = ["u"]
        if body.segments:
            shapes["types"] = ["u"]
        if head.reads:
            shapes["reads"] = ["b", "r"]
        inputs = {name: (INT64, shape) for name, shape in shapes.items()}
        return self.finish("answers", inputs, (answer, FLOAT, ["b"] if head.scores else ["b", "d"]), self.watched())

    def watched(self) -> dict[str, tuple[str, int, Sequence[Any]]]:
        """Further outputs."""
        return {}

    def small(self, array: npt.NDArray[np.float32]) -> str:
        return self.constant(array)  # as its authors have saved it

    def embedded(self) -> str:
        """What the first layer reads, of tokens that differ (u × D)."""
        x = self.node("Gather", [self.constant(self.weights["words"]), "ids"])
        for table, rows in (("positions", "positions"), ("types", "types")):
            if table in self.weights and not self.body.modern:
                x = self.node("Add", [x, self.node("Gather", [self.constant(self.weights[table]), rows])])
        x = self.norm(x, "norm")
        if "project.weight" in self.weights:
            x = self.node("Add", [self.product(x, self.weights["project.weight"]), self.own("project.bias")])
        return x

    @cached_property
    def there(self) -> str:
        """Which cells of the grid hold a token (b × l)."""
        return self.node("Less", [self.steps, self.node("Unsqueeze", ["lengths", self.whole(1)])])

    @cached_property
    def mask(self) -> str:
        """The same as the attention takes it."""
        return self.node("Cast", [self.there], to=6)

    @cached_property
    def steps(self) -> str:
        """0, 1, 2, … up to the longest row (l)."""
        zero, one = self._index(0), self._index(1)
        return self.node("Range", [zero, self.node("Gather", [self.node("Shape", ["grid"]), one]), one])

    @cached_property
    def _first_grid(self) -> str:
        return self.node("Gather", ["tokens", "grid"])

    @cached_property
    def _read(self) -> str:
        """Which packed tokens the head reads (b × r)."""
        return self.node("GatherElements", ["grid", "reads"], axis=1)

    def encoder_layer(self, number: int, x: str, *, first: bool, few: bool) -> str:
        """One layer (t × D); the first is given tokens that differ (u × D), and with `few` only what the head reads
        is computed (b × r × D)."""
        grid = self._first_grid if first else "grid"
        if self.body.modern:
            return self._modern_layer(number, x, grid, few=few)
        prefix = f"layers.{number}"
        if few:
            return self._few(prefix, self.node("Gather", [x, "tokens"]) if first else x)
        names = ("query", "key", "value")
        made = [self.linear(f"{prefix}.{name}", x, self.weights[f"{prefix}.{name}.weight"]) for name in names]
        laid = [self.node("Gather", [one, grid]) for one in made]
        biases = self.small(np.concatenate([self.weights[f"{prefix}.{name}.bias"] for name in names]))
        mixed = self.node("MultiHeadAttention", [*laid, biases, self.mask], "com.microsoft", num_heads=self.heads)
        skip = self.node("Gather", [x, "tokens"]) if first else x
        return self.after_attention(self.weights, prefix, self._pack(mixed), skip)

    def feed_forward(self, weights: Weights, prefix: str, x: str, *, few: bool = False) -> str:
        """The wide part of a layer, in float32 by so many channels at a time."""
        up, bias, down = (weights[f"{prefix}.{name}"] for name in ("up.weight", "up.bias", "down.weight"))
        exact = self.precision == "float32" or self.channels.get(f"{prefix}.down", ONE) is None
        parts = -(-len(up) // self.at_once)
        if few or not exact or parts == 1:
            return super().feed_forward(weights, prefix, x, few=few)
        total = self.node("Add", [x, self.own(f"{prefix}.down.bias")])
        split = (np.array_split(one, parts) for one in (up, bias, down.T))
        for some, shift, back in zip(*split, strict=True):
            wide = self.node("MatMul", [x, self.constant(some.T)])
            wide = self.node("BiasGelu", [wide, self.constant(shift)], "com.microsoft")
            total = self.node("Gemm", [wide, self.constant(back), total])
        return self.norm(total, f"{prefix}.norm")

    def _pack(self, laid: str) -> str:
        """From the grid (b × l × D) to packed (t × D)."""
        return self.node("Gather", [self.node("Reshape", [laid, self.whole(-1, self.body.width)]), "places"])

    def _few(self, prefix: str, x: str) -> str:
        """The last layer for the rows that the head reads (b × r × D), in float32: they are few."""
        width, heads = self.body.width, self.heads
        size = width // heads
        weight = {part: self.weights[f"{prefix}.{part}.weight"] for part in ("query", "key", "value")}
        bias = {part: self.weights[f"{prefix}.{part}.bias"] for part in ("query", "value")}
        asked = self.node("Gather", [x, self._read])
        scale = np.float32(size**-0.5)
        query = self.node("MatMul", [asked, self.constant(weight["query"].T * scale)])
        query = self.node("Add", [query, self.constant(bias["query"] * scale)])
        # a key's bias adds the same to all logits of a row: the softmax does not see it
        query = self._by_head(query, self.constant(weight["key"].reshape(heads, size, width)), size, width)
        laid = self.node("Gather", [x, "grid"])  # (b, l, D)
        read = self.node("Shape", ["reads"])
        rows = self.node("Concat", [self.node("Gather", [read, self.whole(0)]), self.whole(-1, width)], axis=0)
        logits = self.node(
            "MatMul", [self.node("Reshape", [query, rows]), self.node("Transpose", [laid], perm=[0, 2, 1])]
        )
        far = self.node("Where", [self.there, self.constant(np.float32(0)), self.constant(np.float32(FAR))])
        shares = self.node(
            "Softmax", [self.node("Add", [logits, self.node("Unsqueeze", [far, self.whole(1)])])], axis=-1
        )
        means = self.node("MatMul", [shares, laid])  # (b, r · heads, D)
        split = self.node("Concat", [read, self.whole(heads, width)], axis=0)
        values = weight["value"].reshape(heads, size, width).transpose(0, 2, 1)
        mixed = self._by_head(self.node("Reshape", [means, split]), self.constant(values), width, size)
        mixed = self.node("Reshape", [mixed, self.node("Concat", [read, self.whole(width)], axis=0)])
        mixed = self.node("Add", [mixed, self.constant(bias["value"])])
        return self.after_attention(self.weights, prefix, mixed, asked, few=True)

    def _by_head(self, x: str, matrices: str, before: int, after: int) -> str:
        """x (b × r × heads · before), or (b × r × heads × before), times each head's own matrix (before × after)."""
        read = self.node("Shape", ["reads"])
        split = self.node("Concat", [read, self.whole(self.heads, before)], axis=0)
        x = self.node("Transpose", [self.node("Reshape", [x, split])], perm=[2, 0, 1, 3])  # (heads, b, r, before)
        made = self.node("MatMul", [self.node("Reshape", [x, self.whole(self.heads, -1, before)]), matrices])
        apart = self.node("Concat", [self.whole(self.heads), read, self.whole(after)], axis=0)
        return self.node("Transpose", [self.node("Reshape", [made, apart])], perm=[1, 2, 0, 3])  # (b, r, heads, after)

    def _modern_layer(self, number: int, x: str, grid: str, *, few: bool) -> str:
        """Norm, attention with rotary positions, norm, gated layer; each added to what it read."""
        modern = self.body.modern
        assert modern is not None
        prefix = f"layers.{number}"
        read = self.norm(x, f"{prefix}.attn_norm") if f"{prefix}.attn_norm.weight" in self.weights else x
        places = self.node("Expand", [self.steps, self.node("Shape", ["grid"])])  # 0, 1, 2, … of every row (b, l)
        name = f"{prefix}.attn.Wqkv"
        parts = np.split(self.weights[f"{name}.weight"], 3)
        first = grid != "grid"
        skip = self.node("Gather", [x, "tokens"]) if first else x
        key, value = (self.node("Gather", [self.linear(name, read, part), grid]) for part in parts[1:])
        if few:
            rows = self.node("Gather", ["tokens", self._read]) if first else self._read
            query, at = self.product(self.node("Gather", [read, rows]), parts[0], exact=True), "reads"
            skip = self.node("Gather", [skip, self._read])
        else:
            query, at = self.node("Gather", [self.linear(name, read, parts[0]), grid]), places
        query, key = self._turn(query, at, modern.thetas[number]), self._turn(key, places, modern.thetas[number])
        inputs = [query, key, value, "", self.mask]
        window = modern.windows[number]
        if window is not None:
            inputs.append(self._window(at, places, window))
        mixed = self.node("MultiHeadAttention", inputs, "com.microsoft", num_heads=self.heads)
        mixed = mixed if few else self._pack(mixed)
        x = self.node("Add", [skip, self._biased(f"{prefix}.attn.Wo", mixed, exact=few)])
        wide = self._biased(f"{prefix}.mlp.Wi", self.norm(x, f"{prefix}.mlp_norm"), exact=few)
        shaped, gate = self._split(wide, 2, len(self.weights[f"{prefix}.mlp.Wi.weight"]) // 2)
        opened = self.node("Mul", [self.node("Gelu", [shaped], "com.microsoft"), gate])
        return self.node("Add", [x, self._biased(f"{prefix}.mlp.Wo", opened, exact=few)])

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
        """The head on states (b × r × D), or packed (t × D) where it takes the mean."""
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
        """The mean over the tokens of each row (b × D), of packed states."""
        there = self.node("Unsqueeze", [self.node("Cast", [self.there], to=FLOAT), self.whole(2)])  # (b, l, 1)
        laid = self.node("Mul", [self.node("Gather", [x, "grid"]), there])
        total = self.node("ReduceSum", [laid, self.whole(1)], keepdims=0)
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

    def _biased(self, name: str, x: str, *, exact: bool) -> str:
        """A linear layer, with its bias where it has one."""
        made = self.linear(name, x, self.weights[f"{name}.weight"], exact=exact)
        return self.node("Add", [made, self.own(f"{name}.bias")]) if f"{name}.bias" in self.weights else made

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
