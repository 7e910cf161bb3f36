"""A stopping rule of one's own: enough, once the k-th best score is high enough. By name: "above@level=3"."""

from dataclasses import dataclass
from typing import ClassVar

from crosscut.names import Named
from crosscut.search.stopping import SoFar, register


@register
@dataclass(frozen=True, repr=False)
class Above(Named):
    """Stop when all of the best k score at least `level`."""

    name: ClassVar[str] = "above"
    reason: ClassVar[str] = "above the level"

    level: float = 0.0

    def watch(self, k: int) -> "Above":
        return self  # it remembers nothing from round to round

    def enough(self, so_far: SoFar) -> bool:
        return len(so_far.scores) == so_far.k and bool(so_far.scores[-1] >= self.level)
