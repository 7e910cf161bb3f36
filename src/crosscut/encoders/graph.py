"""The split encoder as ONNX graphs, written node by node from its weights.

    lower.onnx   input_ids (b × l)                                     → states (b × l × D), float16
    cross.onnx   states (b × l × D), roles (b × l), items (b),
                 lengths (b)                                           → scores (b)
    dual.onnx    states (b × l × D), roles (b × l)                     → vectors (b × D), unit length
                                                                       → tokens (b × l × d), unit length, where the
                                                                         model has a projection for late interaction

Texts of one call of `lower` and `dual` have one length: no padding, so nothing to mask. In `cross` a row is a pair:
the query's tokens, then the item's, which begin at `items`. Pairs of any queries share a call, padded to a common
length; the attention masks what is past a pair's own end.

Matrices may be kept in eight bits (one scale per output) or sixteen; a Cast and a Mul of constants bring
them back to float32 when a session is made, so all arithmetic is float32. With "integer" precision the large products
themselves are of whole numbers: every row of x is rounded to eight bits by a scale of its own,

    x W = diag(s) (X V) diag(t)        X = round(x / s), V = round(W / t)

so a token never depends on its batch-mates, sums are exact on any machine, and a graph takes less than half the time.
Where channels of x differ much in size, x W = (x / c) (diag(c) W) with scales c of the channels is rounded better
(`crosscut.encoders.rounding`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from crosscut.encoders.quantize import quantize, rounded

if TYPE_CHECKING:
    from onnx import TensorProto

Array = npt.NDArray[np.float32]
Weights = Mapping[str, Array]
Channels = Mapping[str, Array | None]
"""Scales of the channels of products, by the names of their weights; None: the product stays in float32."""
Precision = Literal["float32", "float16", "int8", "integer"]
OPSET = 17
GELU_LEAST = 0.17  # GELU is nowhere below −0.17
ONE = np.ones((), np.float32)


class Graph:
    """A graph under construction; every method adds a node and returns the name of its output."""

    def __init__(self, precision: Precision, heads: int, epsilon: float, channels: Channels | None = None) -> None:
        self.precision, self.heads, self.epsilon = precision, heads, epsilon
        self.channels = channels or {}
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._count = 0
        self._rounded: dict[str, tuple[str, str, str, int]] = {}
        self._divided: dict[tuple[str, int], str] = {}

    def node(
        self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: float | list[int] | TensorProto
    ) -> str:
        from onnx import helper

        self._count += 1
        name = f"{kind.lower()}_{self._count}"
        told: dict[str, Any] = {"name": name, "domain": domain, **attributes}
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **told))
        return name

    def constant(self, array: npt.NDArray[Any] | np.generic) -> str:
        from onnx import numpy_helper

        self._count += 1
        name = f"constant_{self._count}"
        self.constants.append(numpy_helper.from_array(np.asarray(array, order="C"), name))
        return name

    def whole(self, *numbers: int) -> str:
        return self.constant(np.asarray(numbers, np.int64))

    def small(self, array: npt.NDArray[np.float32]) -> str:
        """A vector or a small table: float16 unless everything is float32."""
        if self.precision == "float32":
            return self.constant(array)
        return self.node("Cast", [self.constant(array.astype(np.float16))], to=1)

    def matrix(self, weight: npt.NDArray[np.float32]) -> str:
        """A linear layer's weight (out × in), ready to be multiplied from the right (in × out)."""
        if self.precision in ("int8", "integer"):
            values, scale = quantize(weight)
            wide = self.node("Cast", [self.constant(values.T)], to=1)
            return self.node("Mul", [wide, self.constant(scale.T)])
        return self.small(weight.T)

    def product(self, x: str, weight: npt.NDArray[np.float32], *, positive: bool = False, exact: bool = False) -> str:
        """x (… × in) with a linear layer's weight (out × in): (… × out).

        `positive` says that x ≥ 0, and `exact` asks for float32.
        """
        if exact and self.precision == "integer":
            return self.node("MatMul", [x, self.small(weight.T)])
        if self.precision != "integer":
            return self.node("MatMul", [x, self.matrix(weight)])
        rows, scale, lead, zero = self.rounded_rows(x, weight.shape[1], positive)
        values, outputs = quantize(weight)
        # zero points are constants of each product: onnxruntime rewrites them one by one where sums could saturate
        zeros = [self.constant(np.uint8(zero)), self.constant(np.int8(0))]
        inputs = [rows, self.constant(values.T), scale, self.constant(outputs[:, 0]), *zeros]
        flat = self.node("MatMulIntegerToFloat", inputs, "com.microsoft")
        shape = self.node("Concat", [lead, self.whole(len(weight))], axis=0)
        return self.node("Reshape", [flat, shape])

    def linear(
        self, name: str, x: str, weight: npt.NDArray[np.float32], *, positive: bool = False, exact: bool = False
    ) -> str:
        """The product with a weight that has a name, by which its channels may have scales, or be left in float32."""
        scales = self.channels.get(name, ONE)
        if scales is None or exact or self.precision != "integer":
            return self.product(x, weight, positive=positive, exact=exact or scales is None)
        if scales is ONE:
            return self.product(x, weight, positive=positive)
        if (x, id(scales)) not in self._divided:
            self._divided[x, id(scales)] = self.node("Mul", [x, self.constant(1 / scales)])
        return self.product(self._divided[x, id(scales)], weight * scales, positive=positive)

    def rounded_rows(self, x: str, width: int, positive: bool) -> tuple[str, str, str, int]:
        """x (… × in) in eight bits (rows × in); its rows' scales (rows × 1); …; the number that stands for 0."""
        if x not in self._rounded:
            rows = self.node("Reshape", [x, self.whole(-1, width)])
            largest = self.node("ReduceMax", [rows if positive else self.node("Abs", [rows])], axes=[-1], keepdims=1)
            steps, zero = (255, 0) if positive else (127, 128)
            scale = self.node("Mul", [largest, self.constant(np.float32(1 / steps))])
            scale = self.node("Max", [scale, self.constant(np.float32(1e-9))])
            one_each = self.node("Reshape", [scale, self.whole(-1)])
            zeros = self.node("ConstantOfShape", [self.node("Shape", [one_each])], value=_filled(zero))
            small = self.node("QuantizeLinear", [rows, one_each, zeros], axis=0)
            lead = self.node("Slice", [self.node("Shape", [x]), self.whole(0), self.whole(-1)])
            self._rounded[x] = small, scale, lead, zero
        return self._rounded[x]

    def look_up(self, table: npt.NDArray[np.float32], ids: str) -> str:
        """Rows of an embedding table; int8 rows stay int8 in memory and are widened one look-up at a time."""
        if self.precision not in ("int8", "integer"):
            return self.node("Gather", [self.small(table), ids])
        values, scale = quantize(table)
        rows = self.node("Cast", [self.node("Gather", [self.constant(values), ids])], to=1)
        return self.node("Mul", [rows, self.node("Gather", [self.constant(scale), ids])])

    def layer(self, weights: Weights, prefix: str, x: str, *, mask: str = "", asked: str = "") -> str:
        """One transformer layer on x (b × l × D); with `asked` (b × r × D) only for those rows of x.

        Such rows are few and what the head reads: they are never rounded.
        """
        few, asked = bool(asked), asked or x
        names = ("query", "key", "value")
        projected = [
            self.linear(f"{prefix}.{name}", source, weights[f"{prefix}.{name}.weight"], exact=few and source == asked)
            for name, source in zip(names, (asked, x, x), strict=True)
        ]
        biases = self.small(np.concatenate([weights[f"{prefix}.{name}.bias"] for name in names]))
        inputs = [*projected, biases] + ([mask] if mask else [])
        mixed = self.node("MultiHeadAttention", inputs, "com.microsoft", num_heads=self.heads)
        return self.after_attention(weights, prefix, mixed, asked, few=few)

    def after_attention(self, weights: Weights, prefix: str, mixed: str, asked: str, *, few: bool = False) -> str:
        """The rest of a layer, from what the attention has mixed for the rows that were asked for."""
        mixed = self.linear(f"{prefix}.output", mixed, weights[f"{prefix}.output.weight"], exact=few)
        x = self.add_norm(weights, f"{prefix}.attention_norm", mixed, asked, weights[f"{prefix}.output.bias"])
        return self.feed_forward(weights, prefix, x, few=few)

    def feed_forward(self, weights: Weights, prefix: str, x: str, *, few: bool = False) -> str:
        """The norm of x + W₂ gelu(W₁ x + b₁) + b₂."""
        wide = self.linear(f"{prefix}.up", x, weights[f"{prefix}.up.weight"], exact=few)
        wide = self.node("BiasGelu", [wide, self.small(weights[f"{prefix}.up.bias"])], "com.microsoft")
        down, bias = weights[f"{prefix}.down.weight"], weights[f"{prefix}.down.bias"]
        scales = self.channels.get(f"{prefix}.down", ONE)
        if self.precision == "integer" and not few and scales is not None:
            # raised above 0 it has a bit more; the bias takes back what that adds
            wide = self.node("Add", [wide, self.constant(np.float32(GELU_LEAST))])
            bias = bias - np.float32(GELU_LEAST) * (rounded(down * scales) / scales).sum(axis=1)
        narrow = self.linear(f"{prefix}.down", wide, down, positive=True, exact=few)
        return self.add_norm(weights, f"{prefix}.norm", narrow, x, bias)

    def add_norm(self, weights: Weights, norm: str, x: str, skip: str, bias: npt.NDArray[np.float32]) -> str:
        """The norm of x + skip + bias. Three nodes: onnxruntime's one for all of it takes four times as long."""
        total = self.node("Add", [self.node("Add", [skip, self.constant(bias)]), x])
        scale, shift = (self.small(weights[f"{norm}.{part}"]) for part in ("weight", "bias"))
        return self.node("LayerNormalization", [total, scale, shift], axis=-1, epsilon=self.epsilon)

    def finish(
        self,
        name: str,
        inputs: Mapping[str, tuple[int, Sequence[Any]]],
        output: tuple[str, int, Sequence[Any]],
        more: Mapping[str, tuple[str, int, Sequence[Any]]] | None = None,
    ) -> bytes:
        """The serialised model; `inputs` maps a name to its element type and shape, `more` further outputs."""
        from onnx import checker, helper

        outputs = {name: output, **(more or {})}
        for key, (last, _, _) in outputs.items():
            self.nodes.append(helper.make_node("Identity", [last], [key]))
        graph = helper.make_graph(
            self.nodes,
            "crosscut",
            [helper.make_tensor_value_info(key, t, shape) for key, (t, shape) in inputs.items()],
            [helper.make_tensor_value_info(key, t, shape) for key, (_, t, shape) in outputs.items()],
            self.constants,
        )
        domains = [helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=domains, ir_version=9, producer_name="crosscut")
        checker.check_model(model)
        return bytes(model.SerializeToString())


FLOAT, INT64, FLOAT16 = 1, 7, 10


def _filled(value: int) -> Any:
    """What a ConstantOfShape of bytes is filled with."""
    from onnx import helper

    return helper.make_tensor("value", 2, [1], [value])


def lower_graph(
    weights: Weights, layers: int, heads: int, epsilon: float, precision: Precision, states: int = FLOAT16
) -> bytes:
    """`lower.onnx` from weights named as in `crosscut.training.bert.Lower`; `states` is their element type."""
    graph = Graph(precision, heads, epsilon)
    words = graph.look_up(weights["words.weight"], "input_ids")  # (b, l, D)
    length = graph.node("Gather", [graph.node("Shape", ["input_ids"]), graph.whole(1)])  # (1,)
    places = graph.node(
        "Slice", [graph.constant(weights["positions.weight"]), graph.whole(0), length, graph.whole(0)]
    )  # (l, D)
    x = graph.node("Add", [words, places])
    norm = [x, graph.small(weights["norm.weight"]), graph.small(weights["norm.bias"])]
    x = graph.node("LayerNormalization", norm, axis=-1, epsilon=epsilon)
    for number in range(layers):
        x = graph.layer(weights, f"layers.{number}", x)
    kept = graph.node("Cast", [x], to=states)
    width = weights["words.weight"].shape[1]
    return graph.finish("states", {"input_ids": (INT64, ["b", "l"])}, (kept, states, ["b", "l", width]))


def cross_graph(
    weights: Weights,
    layers: int,
    heads: int,
    epsilon: float,
    precision: Precision,
    head: str,
    *,
    states: int = FLOAT16,
    trim: bool = True,
) -> bytes:
    """`cross.onnx` from weights named as in `crosscut.training.models.CrossModel`.

    `trim` computes the last layer only for the tokens that the head reads; without it the scores are the
    same and the time is longer (benchmarks/scorer.py shows by how much).
    """
    graph = Graph(precision, heads, epsilon)
    width = weights["roles.weight"].shape[1]
    table = graph.small(weights["roles.weight"])
    wide = graph.node("Cast", ["states"], to=FLOAT)
    x = graph.node("Add", [wide, graph.node("Gather", [table, "roles"])])  # (b, l, D)
    # key mask (b × l): tokens before the pair's own end
    zero, one = graph.constant(np.asarray(0, np.int64)), graph.constant(np.asarray(1, np.int64))
    l_ = graph.node("Gather", [graph.node("Shape", ["roles"]), one])
    places = graph.node("Range", [zero, l_, one])  # (l,)
    ends = graph.node("Unsqueeze", ["lengths", graph.whole(1)])  # (b, 1)
    mask = graph.node("Cast", [graph.node("Less", [places, ends])], to=6)  # int32
    # where the head reads: the query's [CLS] and, for [EMB], the item's
    starts = graph.node("Unsqueeze", ["items", graph.whole(1)])  # (b, 1)
    firsts = graph.node("Mul", [starts, zero])
    read = [firsts] if head == "cls" else [firsts, starts]
    read_at = graph.node("Unsqueeze", [graph.node("Concat", read, axis=1), graph.whole(2)])  # (b, 1 or 2, 1)
    for number in range(layers - 1):
        x = graph.layer(weights, f"upper.{number}", x, mask=mask)
    if trim:
        asked = graph.node("GatherND", [x, read_at], batch_dims=1)  # (b, 1 or 2, D)
        ends_ = graph.layer(weights, f"upper.{layers - 1}", x, mask=mask, asked=asked)
    else:
        x = graph.layer(weights, f"upper.{layers - 1}", x, mask=mask)
        ends_ = graph.node("GatherND", [x, read_at], batch_dims=1)
    if head == "cls":
        first = graph.node("Squeeze", [ends_, graph.whole(1)])  # (b, D)
        scored = graph.node("MatMul", [first, graph.constant(weights["linear.weight"].T)])
        scored = graph.node("Add", [scored, graph.constant(weights["linear.bias"])])
        scores = graph.node("Squeeze", [scored, graph.whole(1)])
    else:
        vectors = [graph.node("Gather", [ends_, graph.constant(np.asarray(i, np.int64))], axis=1) for i in (0, 1)]
        product = graph.node("Mul", vectors)  # (b, D)
        summed = graph.node("ReduceSum", [product, graph.whole(1)], keepdims=0)
        scores = graph.node("Mul", [summed, graph.constant(np.asarray(weights["scale"], np.float32))])
    if "offset" in weights:
        scores = graph.node("Sub", [scores, graph.constant(np.asarray(weights["offset"], np.float32))])
    inputs = {
        "states": (states, ["b", "l", width]),
        "roles": (INT64, ["b", "l"]),
        "items": (INT64, ["b"]),
        "lengths": (INT64, ["b"]),
    }
    return graph.finish("scores", inputs, (scores, FLOAT, ["b"]))


def dual_graph(
    weights: Weights,
    layers: int,
    heads: int,
    epsilon: float,
    precision: Precision,
    states: int = FLOAT16,
    narrow: npt.NDArray[np.float32] | None = None,
) -> bytes:
    """`dual.onnx` from weights named as in `crosscut.training.models.DualModel`.

    `narrow` (D × d) projects the token vectors for late interaction (`crosscut.encoders.late`).
    """
    graph = Graph(precision, heads, epsilon)
    width = weights["roles.weight"].shape[1]
    x = graph.node("Gather", [graph.small(weights["roles.weight"]), "roles"])
    x = graph.node("Add", [graph.node("Cast", ["states"], to=FLOAT), x])
    for number in range(layers):
        x = graph.layer(weights, f"upper.{number}", x)
    mean = graph.node("ReduceMean", [x], axes=[1], keepdims=0)  # (b, D)
    length = graph.node("ReduceL2", [mean], axes=[1], keepdims=1)
    vectors = graph.node("Div", [mean, length])
    inputs = {"states": (states, ["b", "l", width]), "roles": (INT64, ["b", "l"])}
    more: dict[str, tuple[str, int, Sequence[Any]]] = {}
    if narrow is not None:
        tokens = graph.node("MatMul", [x, graph.small(narrow)])  # (b, l, d)
        tokens = graph.node("Div", [tokens, graph.node("ReduceL2", [tokens], axes=[2], keepdims=1)])
        more["tokens"] = (tokens, FLOAT, ["b", "l", narrow.shape[1]])
    return graph.finish("vectors", inputs, (vectors, FLOAT, ["b", width]), more)
