"""First stages that read texts: which items to look at before the scorer has said anything."""

from crosscut.retrievers.tfidf import TfIdf

__all__ = ["TfIdf"]
