"""One vector per item: dual-encoder vectors, CUR, item–item scores, factors, and their concatenation."""

from crosscut.spaces.base import Constant, Space, Stacked, Vectors, as_space
from crosscut.spaces.cur import CUR
from crosscut.spaces.items import ItemScores

__all__ = ["CUR", "Constant", "ItemScores", "Space", "Stacked", "Vectors", "as_space"]
