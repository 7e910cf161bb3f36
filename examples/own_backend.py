"""A vector back end of one's own: vectors kept in eight bits, a quarter of float32, and a method that searches them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from crosscut import Parts, register
from crosscut.ann.baseline import masked
from crosscut.ann.topk import Ask, Everything, Found, Indexed
from crosscut.linalg.top import ranked
from crosscut.methods import Crosscut
from crosscut.search.loop import Plan
from crosscut.types import Floats, Handles


class EightBits(Everything):
    """A `TopK`: `count` and `sample` are those of items 0 … n − 1."""

    exact = False

    def __init__(self, vectors: Floats) -> None:
        super().__init__(len(vectors))
        self.scale = np.abs(vectors).max(axis=1, keepdims=True) / 127 + 1e-30  # (n × 1)
        self.values = np.round(vectors / self.scale).astype(np.int8)  # (n × d)
        self.d = vectors.shape[1]

    def rows(self, handles: Handles) -> Floats:
        return self.values[handles] * self.scale[handles]

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        found = []
        for ask in asks:
            scores = masked(self.values @ ask.vector * self.scale[:, 0], ask.exclude, ask.allowed)
            handles = ranked(scores, ask.count)
            found.append(Found(handles, scores[handles]))
        return found


@register
@dataclass(frozen=True, repr=False)
class SmallCrosscut(Crosscut):
    """The default method over vectors of eight bits."""

    name: ClassVar[str] = "crosscut-8bit"

    def plan(self, parts: Parts) -> Plan:
        assert parts.encoder is not None
        store = EightBits(parts.encoder.rows(np.arange(parts.size)))
        return super().plan(replace(parts, encoder=Indexed(store), anchors=None))
