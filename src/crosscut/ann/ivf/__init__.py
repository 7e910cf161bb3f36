"""A clustered index with early exit: `index`, its compiled search `kernels`, exit `rules`, `learning`, `tuning`."""

from crosscut.ann.ivf.index import IVF
from crosscut.ann.results import Metric, Nearest, NearestMany

__all__ = ["IVF", "Metric", "Nearest", "NearestMany"]
