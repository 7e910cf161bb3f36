"""Scales of channels, for products of whole numbers (SmoothQuant, Xiao et al. 2023, arXiv 2211.10438).

In a product x W of whole numbers a row x has one scale. A channel that is far larger than others in every row leaves
these few of the 255 steps, and trained encoders have such channels. Scales c move size from x to W,

    x W = (x / c) (diag(c) W)        c_j = √(max |x_j| / max |W_j|)

with maxima over some texts, taken once. They are constants of the graph: a score still depends on its pair alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.encoders.checkpoints import Body
from crosscut.encoders.graph import FLOAT, GELU_LEAST, Array
from crosscut.encoders.pairs import Row
from crosscut.encoders.session import OnnxSession
from crosscut.encoders.whole import Head, Whole, packed

LEAST = 1e-5  # a channel that is always 0 has no scale of its own


class _Watched(Whole):
    """A graph in float32 that also tells the largest |x| of each channel before every product."""

    at_once = 1 << 62  # every product as a whole

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        self.read: dict[str, dict[str, Array]] = {}  # by x: names and weights of the products that read it
        self.raised: set[str] = set()

    def linear(
        self, name: str, x: str, weight: npt.NDArray[np.float32], *, positive: bool = False, exact: bool = False
    ) -> str:
        if not exact:
            self.read.setdefault(x, {})[name] = self.weights[f"{name}.weight"]
            self.raised |= {x} if positive else set()
        return super().linear(name, x, weight, positive=positive, exact=exact)

    def watched(self) -> dict[str, tuple[str, int, Sequence[Any]]]:
        made: dict[str, tuple[str, int, Sequence[Any]]] = {}
        for x, weights in self.read.items():
            width = next(iter(weights.values())).shape[1]
            rows = self.node("Reshape", [x, self.whole(-1, width)])
            largest = self.node("ReduceMax", [self.node("Abs", [rows])], axes=[0], keepdims=0)
            made[f"largest_{x}"] = (largest, FLOAT, [width])
        return made


def channel_scales(body: Body, head: Head, rows: Iterable[Sequence[Row]]) -> dict[str, Array]:
    """Scales of the channels of every product that may be rounded, by the name of its weight."""
    graph = _Watched(body)
    session = OnnxSession(graph.written(head), 1)
    largest: dict[str, Array] = {}
    for some in rows:
        told = session.run_all(packed(some, session.inputs))
        for x in graph.read:
            largest[x] = np.maximum(largest.get(x, np.float32(0)), told[f"largest_{x}"])
    scales: dict[str, Array] = {}
    for x, weights in graph.read.items():
        before = largest[x] + np.float32(GELU_LEAST if x in graph.raised else 0)
        after = np.max([np.abs(weight).max(axis=0) for weight in weights.values()], axis=0)
        one = np.sqrt(np.maximum(before, LEAST) / np.maximum(after, LEAST)).astype(np.float32)
        scales |= dict.fromkeys(weights, one / np.exp(np.log(one).mean()))
    return scales
