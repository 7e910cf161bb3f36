"""Dual encoders from what the user has: a name, a folder, a hub id, a model, functions.

| functions | called as |
|---|---|
| one | `f(texts) -> vectors`, for queries and items alike |
| a pair | the first for queries, the second for items |
| `Embeddings` of LangChain | `embed_query(text)`, `embed_documents(texts)` |
| `BaseEmbedding` of LlamaIndex | `get_query_embedding(text)`, `get_text_embedding_batch(texts)` |

Vectors of functions are used as they are: make them unit length if cosine is meant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, plain_text
from crosscut.errors import InputError, needing
from crosscut.models.hub import check_modules
from crosscut.models.spec import ModelSettings, Similarity, check_device, split_name
from crosscut.types import Progress

Rows = npt.NDArray[np.float32]
Embed = Callable[[list[str]], Any]
PORTION = 256
ENCODING = "encoding items"
"""The step that encoders report to a progress function."""


@runtime_checkable
class DualEncoder(Protocol):
    """Texts to vectors whose inner products are similarities."""

    @property
    def fingerprint(self) -> str:
        """A short name that changes whenever the vectors may change."""

    @property
    def dimension(self) -> int:
        """d of the vectors."""

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        """(q × d)."""

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Rows:
        """(n × d), of items or texts; `progress(what, done, total)` is called now and then."""


def torch_fingerprint(model: Any) -> str:
    """SHA-256, shortened, of a model's weights and its length limit: what vectors and scores depend on."""
    limit = getattr(model, "max_seq_length", None) or getattr(model, "max_length", None)
    digest = hashlib.sha256(f"{type(model).__name__} {limit}".encode())
    tensors = sorted(model.state_dict().items())
    kinds = {str(tensor.dtype) for _, tensor in tensors if tensor.is_floating_point()}
    if kinds - {"torch.float32"}:  # half a precision gives other scores
        digest.update(" ".join(sorted(kinds)).encode())
    for name, tensor in tensors:
        digest.update(name.encode())
        if tensor.is_meta:  # a shape without numbers
            digest.update(str(tuple(tensor.shape)).encode())
        else:
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:16]


class TorchDualEncoder:
    """A sentence-transformers model as a crosscut dual encoder.

    Vectors are what inner products are taken of: unit length where the model's similarity is the cosine, as they are
    where it is the dot product; `similarity` says otherwise. `copies` are the same model on other devices: items are
    shared out among all of them.
    """

    def __init__(
        self, model: Any, *, batch_size: int = 64, similarity: Similarity | None = None, copies: Sequence[Any] = ()
    ) -> None:
        self.model = model
        self._models = Alike([model, *copies])
        self.batch_size = batch_size
        own = str(getattr(model, "similarity_fn_name", None))  # what it says of its vectors
        self.similarity: Similarity = similarity or ("dot" if own == "dot" else "cosine")
        self.fingerprint = torch_fingerprint(model) + ("-dot" if self.similarity == "dot" else "")
        self.dimension = self._encode(["a"]).shape[1]

    @classmethod
    def load(cls, model: str | Path, settings: ModelSettings | None = None) -> TorchDualEncoder:
        """A hub id or a folder."""
        with needing("hub encoders run on sentence-transformers", "torch"):
            from sentence_transformers import SentenceTransformer
        how = settings or ModelSettings(batch_size=64)
        check_modules(model)
        copies = []
        for device in map(check_device, how.every()):
            try:
                loaded = SentenceTransformer(str(model), device=device)
            except (OSError, ValueError) as error:
                raise InputError(f"no dual encoder can be loaded from {str(model)!r} ({error})") from error
            if how.max_length is not None:
                loaded.max_seq_length = how.max_length
            if how.dtype in ("fp16", "bf16"):
                loaded.half() if how.dtype == "fp16" else loaded.bfloat16()
            copies.append(loaded)
        return cls(copies[0], batch_size=how.batch_size, similarity=how.similarity, copies=copies[1:])

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return self._encode(texts)

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Rows:
        texts = [plain_text(item) for item in items]
        return in_parts(self._encode, texts, self.dimension, progress, self._models.count)

    def _encode(self, texts: Sequence[str]) -> Rows:
        with self._models.one() as model:
            rows = model.encode(
                list(texts),
                batch_size=self.batch_size,
                normalize_embeddings=self.similarity == "cosine",
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        return np.asarray(rows, np.float32)


class Alike:
    """The same model on several devices; each call takes one that is free."""

    def __init__(self, models: Sequence[Any]) -> None:
        self.count = len(models)
        self._free: SimpleQueue[Any] = SimpleQueue()
        for model in models:
            self._free.put(model)

    @contextmanager
    def one(self) -> Iterator[Any]:
        """A model that nobody else uses meanwhile; waits for it."""
        model = self._free.get()
        try:
            yield model
        finally:
            self._free.put(model)


def in_parts(
    encode: Callable[[Sequence[Any]], Rows],
    texts: Sequence[Any],
    dimension: int,
    progress: Progress | None,
    workers: int = 1,
) -> Rows:
    """Vectors of many texts, a thousand at a time, `workers` of such parts at once."""
    parts, done = [np.empty((0, dimension), np.float32)], 0
    blocks = (texts[start : start + 1024] for start in range(0, len(texts), 1024))
    with ThreadPoolExecutor(workers) as pool:
        for rows in pool.map(encode, blocks) if workers > 1 else map(encode, blocks):
            parts.append(rows)
            done += len(rows)
            if progress is not None:
                progress(ENCODING, done, len(texts))
    return np.concatenate(parts)


class FunctionEncoder:
    """A dual encoder made of functions from texts to vectors. `fingerprint` names what the vectors depend on."""

    def __init__(self, queries: Embed, items: Embed | None = None, *, fingerprint: str | None = None) -> None:
        self._queries, self._items = queries, items or queries
        names = "/".join(_name(function) for function in (self._queries, self._items))
        self.fingerprint = fingerprint or hashlib.sha256(names.encode()).hexdigest()[:16]

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
    """Return the class or function of an encoder and the name of its model, as far as the object has one."""
    named = (getattr(thing, name, None) for name in ("model_name", "model"))
    model = next((name for name in named if isinstance(name, str)), "")
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    return f"{kind.__module__}.{kind.__qualname__}:{model}"


def _rows(embed: Embed, texts: list[str]) -> Rows:
    needed = f"{len(texts)} texts; one row for each is needed"
    try:
        rows = np.asarray(embed(texts), np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"the embedding function gave no numbers ({error}) for {needed}") from error
    if rows.ndim != 2 or len(rows) != len(texts):
        raise InputError(f"the embedding function gave {rows.shape} numbers for {needed}")
    if not np.isfinite(rows).all():
        raise InputError("the embedding function gave a vector with NaN or an infinity in it")
    return rows


def load_encoder(encoder: Any = "default") -> DualEncoder:
    """Load the bundled dual encoder (`"default"`), one in a folder, a hub id, a sentence-transformers model, embeddings
    of LangChain or LlamaIndex, a function from texts to vectors, or a pair of them (for queries, for items)."""
    if isinstance(encoder, str | Path):
        name = str(encoder)
        if name == "default" or (Path(name) / "dual.onnx").is_file():
            from crosscut.bundled.encoder import BundledEncoder

            return BundledEncoder.load(name)
        bare, how = split_name(name)
        if not Path(bare).is_dir() and bare.count("/") != 1:
            raise InputError(
                f"there is no dual encoder called {name!r} and no folder of that name; pass 'default', a model "
                "folder, or a hub id such as 'organisation/model'"
            )
        if how.dtype == "int8":
            raise InputError(
                f"int8 is for cross-encoders; the dual encoder {bare!r} runs in fp32, on a GPU in fp16 or bf16"
            )
        return TorchDualEncoder.load(bare, how if "#" in name else None)
    if isinstance(encoder, DualEncoder):
        return encoder
    if hasattr(encoder, "encode") and hasattr(encoder, "state_dict"):
        return TorchDualEncoder(encoder)
    made = function_encoder(encoder)
    if made is not None:
        return made
    raise InputError(
        f"{encoder!r} is no dual encoder: pass a name, a folder, a hub id, a SentenceTransformer, or a function from "
        "texts to vectors"
    )
