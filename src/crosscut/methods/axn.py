"""`axn` (Yadav et al. 2024, alg. 1): the same least squares in any space of item vectors.

u = (1 − λ) (V_A)† β (a − α) + λ u_encoder        eq. 4 and 7
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from crosscut.ann.baseline import Level
from crosscut.errors import InputError
from crosscut.methods.base import InRounds, Parts, register
from crosscut.search.fits import LeastSquaresFit
from crosscut.search.loop import Plan
from crosscut.search.pickers import Linear
from crosscut.spaces.base import Space


@register
@dataclass(frozen=True, repr=False)
class AXN(InRounds):
    """`mix` is λ of eq. 7, scores enter as β(s − α).

    Factors bring the α and β that their scores were normalised by; without them raw scores are regressed. `space` is
    what is searched: `auto` takes factors, else the encoder's vectors, else the scores of anchor queries.
    """

    name: ClassVar[str] = "axn"

    mix: float = 0.0
    rcond: float | None = None
    alpha: float | None = None
    beta: float | None = None
    space: Literal["auto", "encoder", "factors", "anchors"] = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mix <= 1:
            raise InputError(f"λ (mix) is a share of the encoder's query vector, 0 … 1; got {self.mix}")
        if self.alpha is not None and not np.isfinite(self.alpha):
            raise InputError(f"α of the score normalisation must be a real number; got {self.alpha}")
        if self.beta is not None and not self.beta > 0:
            raise InputError(f"β of the score normalisation must be above 0, or the ranking turns; got {self.beta}")

    def missing(self, parts: Parts) -> str | None:
        slots = ("encoder", "factors", "anchors") if self.space == "auto" else (self.space,)
        return parts.lacks(*slots)

    def grid(self, parts: Parts) -> dict[str, tuple[Any, ...]]:
        return {**super().grid(parts), "mix": (0.3, 0.8) if self._space(parts).of_queries else ()}

    def plan(self, parts: Parts) -> Plan:
        space = self._space(parts)
        if self.mix and not space.of_queries:
            raise InputError(
                f"λ = {self.mix} mixes in the encoder's query vector, which does not live in the space that is "
                f"searched ({type(space).__name__}): use mix=0, or search the encoder's vectors"
            )
        alpha, beta = space.normal
        base = Level(alpha if self.alpha is None else self.alpha)
        then = Linear(
            space,
            parts.topk(space, base),
            lambda query, d: LeastSquaresFit(d, rcond=self.rcond, mix=self.mix, vector=query.vector),
            base,
            scale=beta if self.beta is None else self.beta,
        )
        return self.in_rounds(parts, parts.stage(self.first), then)

    def _space(self, parts: Parts) -> Space:
        spaces = {"factors": parts.factors, "encoder": parts.encoder, "anchors": parts.anchors}
        wanted = spaces.values() if self.space == "auto" else [spaces[self.space]]
        return next(space for space in wanted if space is not None)
