"""Write src/crosscut/data/saturation.onnx: python scripts/saturation_graph.py

One product of bytes whose sum does not fit sixteen bits, 4 · 255 · 127. A processor that adds pairs of such products in
sixteen bits gives another number, and `crosscut.models.session` then asks onnxruntime for exact sums.
"""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from crosscut.models.session import SATURATION


def graph() -> bytes:
    weights = numpy_helper.from_array(np.full((4, 1), 127, np.int8), "weights")
    made = helper.make_graph(
        [helper.make_node("MatMulInteger", ["bytes", "weights"], ["sum"])],
        "saturation",
        [helper.make_tensor_value_info("bytes", TensorProto.UINT8, [1, 4])],
        [helper.make_tensor_value_info("sum", TensorProto.INT32, [1, 1])],
        [weights],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="crosscut")
    return bytes(model.SerializeToString())


if __name__ == "__main__":
    SATURATION.write_bytes(graph())
