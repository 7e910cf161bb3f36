"""A clustered index with early exit: `index` (what users hold), `layout` (its data), `searching` → `probing` and
`deciding` (compiled), `rules`, `learning` and `tuning` of them, `folder` (on disk)."""

from crosscut.ann.ivf.index import IVF
from crosscut.ann.results import Metric, Nearest, NearestMany

__all__ = ["IVF", "Metric", "Nearest", "NearestMany"]
