"""crosscut: k-nearest-neighbour search when the similarity is expensive."""

__version__ = "0.1.0"
