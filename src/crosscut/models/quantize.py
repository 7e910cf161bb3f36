"""An ONNX graph with its matrix products in eight bits, one scale a row: whatever the architecture.

    x W  ≈  s_x s_W · (q_x q_W)        q_x = round(x / c / s_x),   q_W = round(c W / s_W),   in −127 … 127

s_x is the scale of one row of x, so that the score of a pair does not depend on its batch-mates; s_W is that of one
column of W. c evens out channels of x that are far larger than others (SmoothQuant, Xiao et al. 2023); it comes from
the largest values that x takes on samples.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
Feeds = Mapping[str, npt.NDArray[Any]]

SMALLEST = 64 * 64  # numbers of a matrix that is worth it
DOMAIN = "com.microsoft"


def products(model: Any) -> list[str]:
    """Return the names of the products with a constant matrix, in the order of the graph."""
    constants = _constants(model)
    return [node.output[0] for node in model.graph.node if _weights(node, constants) is not None]


def channel_maxima(
    model: Any, run: Callable[[bytes, Sequence[str], Feeds], list[Array]], samples: Iterable[Feeds]
) -> dict[str, Array]:
    """Return the largest value of every channel that goes into a product, over samples.

    `run(graph, outputs, feeds)` runs a graph.
    """
    import onnx
    from onnx import helper, numpy_helper

    probed = onnx.ModelProto()
    probed.CopyFrom(model)
    constants = _constants(model)
    widths = {}
    for node in model.graph.node:
        matrix = _weights(node, constants)
        if matrix is not None:
            widths[node.input[0]] = matrix.shape[0]
    outputs = []
    for number, (name, width) in enumerate(widths.items()):
        probe = f"probe{number}"
        probed.graph.initializer.append(numpy_helper.from_array(np.array([-1, width], np.int64), f"{probe}_shape"))
        probed.graph.node.extend(
            [
                helper.make_node("Reshape", [name, f"{probe}_shape"], [f"{probe}_rows"]),
                helper.make_node("Abs", [f"{probe}_rows"], [f"{probe}_size"]),
                helper.make_node("ReduceMax", [f"{probe}_size"], [probe], axes=[0], keepdims=0),
            ]
        )
        probed.graph.output.append(helper.make_tensor_value_info(probe, 1, [width]))
        outputs.append(probe)
    graph = probed.SerializeToString()
    maxima = {name: np.zeros(width, np.float32) for name, width in widths.items()}
    for feeds in samples:
        for name, found in zip(maxima, run(graph, outputs, feeds), strict=True):
            maxima[name] = np.maximum(maxima[name], found)
    return maxima


def quantize(model: Any, maxima: Mapping[str, Array], *, exempt: Collection[str] = ()) -> Any:
    """Return a copy of a graph with its products in eight bits, but for those whose outputs are `exempt`."""
    import onnx
    from onnx import helper, numpy_helper

    made = onnx.ModelProto()
    made.CopyFrom(model)
    graph, constants = made.graph, _constants(model)
    chosen: dict[int, Array] = {}
    for place, node in enumerate(graph.node):
        matrix = _weights(node, constants)
        if matrix is not None and node.output[0] not in exempt and node.input[0] in maxima:
            chosen[place] = matrix
    rows = _Rows(maxima, [(graph.node[place].input[0], matrix) for place, matrix in chosen.items()])
    nodes = []
    for place, node in enumerate(graph.node):
        if place not in chosen:
            nodes.append(node)
            continue
        name, matrix = f"int8_{place}", chosen[place]
        scaled = matrix * rows.channels[node.input[0]][:, None]
        scale = np.maximum(np.abs(scaled).max(0) / 127, 1e-12).astype(np.float32)
        bits = np.clip(np.rint(scaled / scale), -127, 127).astype(np.int8)
        constants_of = {
            f"{name}_bits": bits,
            f"{name}_scale": scale,
            f"{name}_zero_x": np.uint8(128),
            f"{name}_zero_w": np.int8(0),
            f"{name}_width": np.array([matrix.shape[1]], np.int64),
        }
        rows.tensors += [numpy_helper.from_array(np.asarray(value), key) for key, value in constants_of.items()]
        quantized, row_scale, leading, more = rows.of(node.input[0])
        nodes += [
            *more,
            helper.make_node(
                "MatMulIntegerToFloat",
                [quantized, f"{name}_bits", row_scale, f"{name}_scale", f"{name}_zero_x", f"{name}_zero_w"],
                [f"{name}_flat"],
                domain=DOMAIN,
            ),
            helper.make_node("Concat", [leading, f"{name}_width"], [f"{name}_shape"], axis=0),
            helper.make_node("Reshape", [f"{name}_flat", f"{name}_shape"], list(node.output)),
        ]
    used = {name for node in nodes for name in node.input} | {output.name for output in graph.output}
    tensors = [tensor for tensor in graph.initializer if tensor.name in used]
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend([*tensors, *rows.tensors])
    if not any(opset.domain == DOMAIN for opset in made.opset_import):
        made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


class _Rows:
    """The inputs of products in eight bits; an input of several products is rounded once."""

    def __init__(self, maxima: Mapping[str, Array], uses: Sequence[tuple[str, Array]]) -> None:
        from onnx import numpy_helper

        largest: dict[str, Array] = {}
        for name, matrix in uses:
            row = np.abs(matrix).max(1)
            largest[name] = np.maximum(largest[name], row) if name in largest else row
        self.channels: dict[str, Array] = {}
        for name, row in largest.items():
            channels = np.sqrt(np.maximum(maxima[name], 1e-5) / np.maximum(row, 1e-5))
            self.channels[name] = (channels / np.exp(np.log(channels).mean())).astype(np.float32)
        self.tensors: list[Any] = [
            numpy_helper.from_array(np.array(1 / 127, np.float32), "int8_step"),
            numpy_helper.from_array(np.array(1e-9, np.float32), "int8_least"),
            numpy_helper.from_array(np.array([-1], np.int64), "int8_flat"),
            numpy_helper.from_array(np.array([0], np.int64), "int8_begin"),
        ]
        self._done: dict[str, str] = {}

    def of(self, name: str) -> tuple[str, str, str, list[Any]]:
        """Return the names of an input in eight bits, of its row scales and its leading shape, and the nodes for it."""
        from onnx import TensorProto, helper, numpy_helper

        if name in self._done:
            own = self._done[name]
            return f"{own}_bits", f"{own}_scales", f"{own}_leading", []
        own = self._done[name] = f"int8_rows{len(self._done)}"
        width = len(self.channels[name])
        self.tensors += [
            numpy_helper.from_array(1 / self.channels[name], f"{own}_channels"),
            numpy_helper.from_array(np.array([-1, width], np.int64), f"{own}_shape"),
        ]
        zero = helper.make_tensor("value", TensorProto.UINT8, [1], [128])
        node = helper.make_node
        nodes = [
            node("Mul", [name, f"{own}_channels"], [f"{own}_even"]),
            node("Reshape", [f"{own}_even", f"{own}_shape"], [f"{own}_rows"]),
            node("Abs", [f"{own}_rows"], [f"{own}_size"]),
            node("ReduceMax", [f"{own}_size"], [f"{own}_most"], axes=[-1], keepdims=1),
            node("Mul", [f"{own}_most", "int8_step"], [f"{own}_raw"]),
            node("Max", [f"{own}_raw", "int8_least"], [f"{own}_scales"]),
            node("Reshape", [f"{own}_scales", "int8_flat"], [f"{own}_each"]),
            node("Shape", [f"{own}_each"], [f"{own}_count"]),
            node("ConstantOfShape", [f"{own}_count"], [f"{own}_zero"], value=zero),
            node("QuantizeLinear", [f"{own}_rows", f"{own}_each", f"{own}_zero"], [f"{own}_bits"], axis=0),
            node("Shape", [name], [f"{own}_whole"]),
            node("Slice", [f"{own}_whole", "int8_begin", "int8_flat"], [f"{own}_leading"]),
        ]
        return f"{own}_bits", f"{own}_scales", f"{own}_leading", nodes


def _constants(model: Any) -> dict[str, Any]:
    return {tensor.name: tensor for tensor in model.graph.initializer}


def _weights(node: Any, constants: Mapping[str, Any]) -> Array | None:
    """The constant matrix of a product that is worth it; None of any other node."""
    from onnx import numpy_helper

    if node.op_type != "MatMul" or node.input[1] not in constants:
        return None
    tensor = constants[node.input[1]]
    if len(tensor.dims) != 2 or int(np.prod(tensor.dims)) < SMALLEST:
        return None
    return np.asarray(numpy_helper.to_array(tensor), np.float32)
