"""One object from texts to hits: build, search, add, remove, save, load, tune."""

from crosscut.index.index import Index

__all__ = ["Index"]
