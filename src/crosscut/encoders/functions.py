"""Embedding functions of one's own as dual encoders.

| | called as |
|---|---|
| a function | `f(texts) -> vectors`, for queries and items alike |
| a pair of functions | the first for queries, the second for items |
| `Embeddings` of LangChain | `embed_query(text)`, `embed_documents(texts)` |
| `BaseEmbedding` of LlamaIndex | `get_query_embedding(text)`, `get_text_embedding_batch(texts)` |

Vectors are taken as they come: make them unit length if cosine is meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, plain_text
from crosscut.errors import InputError
from crosscut.types import Progress

Rows = npt.NDArray[np.float32]
Embed = Callable[[list[str]], Any]
PORTION = 256
ENCODING = "encoding items"
"""What encoders tell that they do."""


class FunctionEncoder:
    """A dual encoder made of functions from texts to vectors. `fingerprint` names what the vectors depend on."""

    def __init__(self, queries: Embed, items: Embed | None = None, *, fingerprint: str | None = None) -> None:
        self._queries, self._items = queries, items or queries
        told = "/".join(_name(function) for function in (self._queries, self._items))
        self.fingerprint = fingerprint or hashlib.sha256(told.encode()).hexdigest()[:16]

    @cached_property
    def dimension(self) -> int:
        return int(self.encode_queries(["a"]).shape[1])

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return _rows(self._queries, list(texts))

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Rows:
        parts: list[Rows] = []
        for start in range(0, len(items), PORTION):
            parts.append(_rows(self._items, [plain_text(item) for item in items[start : start + PORTION]]))
            if progress is not None:
                progress(ENCODING, min(start + PORTION, len(items)), len(items))
        return np.concatenate(parts) if parts else np.empty((0, self.dimension), np.float32)


def function_encoder(encoder: Any) -> FunctionEncoder | None:
    """A dual encoder of functions, or of the embeddings of LangChain and LlamaIndex; None of anything else."""
    if isinstance(encoder, tuple) and len(encoder) == 2 and all(map(callable, encoder)):
        return FunctionEncoder(*encoder)
    for one, many in (("embed_query", "embed_documents"), ("get_query_embedding", "get_text_embedding_batch")):
        if hasattr(encoder, one) and hasattr(encoder, many):
            ask = partial(_one_by_one, getattr(encoder, one))
            return FunctionEncoder(ask, getattr(encoder, many), fingerprint=_name(encoder))
    return FunctionEncoder(encoder) if callable(encoder) else None


def _one_by_one(embed: Callable[[str], Any], texts: list[str]) -> list[Any]:
    return [embed(text) for text in texts]


def _name(thing: Any) -> str:
    """What vectors depend on, as far as the object tells: its class or function, and the name of its model."""
    named = (getattr(thing, name, None) for name in ("model_name", "model"))
    model = next((name for name in named if isinstance(name, str)), "")
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}:{model}"


def _rows(embed: Embed, texts: list[str]) -> Rows:
    told = f"{len(texts)} texts; one row for each is needed"
    try:
        rows = np.asarray(embed(texts), np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"the embedding function gave no numbers ({error}) for {told}") from error
    if rows.ndim != 2 or len(rows) != len(texts):
        raise InputError(f"the embedding function gave {rows.shape} numbers for {told}")
    if not np.isfinite(rows).all():
        raise InputError("the embedding function gave a vector with NaN or an infinity in it")
    return rows
