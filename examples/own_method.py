"""A method of one's own: kernel ridge regression, with a share of random picks (ε-greedy).

An RBF kernel is an inner product of random Fourier features (Rahimi and Recht 2007), so it is one more space for the
same loop. CROSSCUT_PLUGINS=own_method lets the command line and the server know it by name.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from crosscut import Parts, Vectors, register
from crosscut.ann.baseline import NOTHING
from crosscut.methods import InRounds
from crosscut.search.fits import Ridge
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear


@register
@dataclass(frozen=True, repr=False)
class KernelRidge(InRounds):
    """Ridge regression on random Fourier features of the encoder's vectors."""

    name: ClassVar[str] = "kernel-ridge"
    needs: ClassVar[tuple[str, ...]] = ("encoder",)

    explore: float = 0.1
    ridge: float = 0.1
    width: float = 1.0
    features: int = 256

    def plan(self, parts: Parts) -> Plan:
        assert parts.encoder is not None
        rng = np.random.default_rng(parts.seed)
        rows = parts.encoder.rows(np.arange(parts.size))  # (n × d)
        angles = rows @ rng.normal(scale=1 / self.width, size=(rows.shape[1], self.features))
        angles += rng.uniform(0, 2 * np.pi, self.features)
        space = Vectors(np.sqrt(2 / self.features) * np.cos(angles))  # (n × features)
        then = Linear(space, parts.topk(space, NOTHING), lambda query, d: Ridge(d, self.ridge))
        return self.in_rounds(parts, parts.stage(self.first), then)
