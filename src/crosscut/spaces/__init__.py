"""One vector per item: dual-encoder vectors, CUR, factors, and their concatenation."""

from crosscut.spaces.base import Constant, Space, Stacked, Vectors, as_space
from crosscut.spaces.cur import CUR

__all__ = ["CUR", "Constant", "Space", "Stacked", "Vectors", "as_space"]
