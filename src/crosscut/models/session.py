"""ONNX graphs, run one call a core.

The products of a small transformer fill one core's caches at a few hundred tokens, and splitting them over cores costs
more than it brings. So a call is the work of one thread, and calls run side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.threads import after_fork

Part = TypeVar("Part")
Result = TypeVar("Result")

SLOWER = ["SkipLayerNormFusion"]  # makes one slow node of three quick ones
EXACT_SUMS = "session.x64quantprecision", "1"
ELSEWHERE = b"\x0a\x08location"  # a tensor whose numbers are in another file contains it
# 4 · 255 · 127 as a MatMulInteger of uint8 and int8; `scripts/saturation_graph.py` writes it
SATURATION = Path(__file__).parent.parent / "data" / "saturation.onnx"


class OnnxSession:
    """One graph; `threads` calls of it run at a time. `tensors` are weights that the graph only names."""

    def __init__(
        self, graph: Path | bytes, threads: int, *, tensors: Mapping[str, npt.NDArray[Any]] | None = None
    ) -> None:
        import onnxruntime

        self.threads = threads
        self.name = "the graph" if isinstance(graph, bytes) else repr(str(graph))
        if tensors is None and ELSEWHERE in (graph if isinstance(graph, bytes) else graph.read_bytes()):
            raise InputError(
                f"{self.name} keeps weights in other files, which may lie anywhere and are no part of its fingerprint; "
                "save the model in one file"
            )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if tensors is not None:
            values = {name: onnxruntime.OrtValue.ortvalue_from_numpy(value) for name, value in tensors.items()}
            options.add_external_initializers(list(values), list(values.values()))
            self._tensors = values  # the session reads them where they are
        if sums_saturate():
            options.add_session_config_entry(*EXACT_SUMS)
        try:
            self._session = onnxruntime.InferenceSession(
                graph if isinstance(graph, bytes) else str(graph),
                options,
                providers=["CPUExecutionProvider"],
                disabled_optimizers=SLOWER,
            )
        except Exception as error:  # onnxruntime raises a family of unrelated exceptions for damaged files
            message = f"{self.name} is not a readable ONNX model ({error}); export or install it again"
            raise InputError(message) from error

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type of the output: float16, or float32 in an exact export."""
        return np.dtype(np.float16 if "16" in self._session.get_outputs()[0].type else np.float32)

    @property
    def inputs(self) -> list[str]:
        """Names of what a call is given."""
        return [one.name for one in self._session.get_inputs()]

    @property
    def outputs(self) -> list[str]:
        """Names of what a call gives, the first of them what `run` gives unless it is asked for others."""
        return [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """One call, on the calling thread; the first output."""
        return self._run(self.outputs[:1], inputs)[0]

    def run_all(self, inputs: Mapping[str, npt.NDArray[Any]]) -> dict[str, npt.NDArray[Any]]:
        """One call, on the calling thread; every output by its name."""
        return dict(zip(self.outputs, self._run(None, inputs), strict=True))

    def _run(self, outputs: list[str] | None, inputs: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        try:
            return list(self._session.run(outputs, dict(inputs)))
        except Exception as error:  # as above: a graph of another shape than its folder says
            raise InputError(f"{self.name} cannot be run ({error}); export or install it again") from error

    def map(self, work: Callable[[Part], Result], parts: Sequence[Part]) -> list[Result]:
        """`work` of every part, in order; it calls `run` of this session or another, never `map`."""
        if self.threads == 1 or len(parts) < 2:
            return [work(part) for part in parts]
        return list(_pool(self.threads).map(work, parts))


@cache
def sums_saturate() -> bool:
    """Whether this processor adds products of bytes in sixteen bits (x86 before VNNI): exact sums must be asked for."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(SATURATION), options, providers=["CPUExecutionProvider"])
    total = session.run(None, {"bytes": np.full((1, 4), 255, np.uint8)})[0]
    return int(total[0, 0]) != 4 * 255 * 127


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="crosscut-model")


# threads do not survive a fork: a child makes its own
after_fork(_pool.cache_clear)
