"""First stages: which items to score first."""

from crosscut.retrieval.bm25 import BM25

__all__ = ["BM25"]
