"""Dual encoders of two towers, as ANNCUR and BLINK have published them: [CLS] of either tower, inner product.

Queries and items have weights of their own (2 × 110M of a BERT-base) and are marked as in ANNCUR app. A.1. Vectors are
not made unit length: their inner products are the scores that the models were trained on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item
from crosscut.encoders.batching import TOKENS_PER_CALL, groups_of_one_length
from crosscut.encoders.checkpoints import read_arrays, read_body, read_config, weights_file
from crosscut.encoders.exported import cached_model, digest_of, local_folder
from crosscut.encoders.modules import FILE as MODULES
from crosscut.encoders.named import Alike, Rows, in_parts
from crosscut.encoders.pairs import Marked, Row, Text, open_tokenizer
from crosscut.encoders.running import Running, check_device
from crosscut.encoders.session import OnnxSession
from crosscut.encoders.whole import Head, Step, packed, whole_graph
from crosscut.errors import InputError
from crosscut.threads import cores
from crosscut.types import Progress

TOWERS = (("input_encoder", "label_encoder"), ("context_encoder", "cand_encoder"))
"""What ANNCUR and BLINK call the tower of queries and the tower of items."""


def has_towers(folder: str | Path) -> bool:
    """Whether a folder holds a checkpoint rather than a model of sentence-transformers."""
    place = Path(folder)
    return place.is_dir() and not (place / MODULES).is_file() and weights_kind(place) in (".torch", ".ckpt", ".bin")


def weights_kind(folder: Path) -> str:
    """The ending of the file of weights; nothing where there is none."""
    try:
        return weights_file(folder).suffix
    except InputError:
        return ""


class TwoTowers(ABC):
    """A dual encoder of two towers.

    unit : make vectors unit length.
    workers : how many parts of many items are encoded at once.
    """

    def __init__(self, form: Marked, dimension: int, fingerprint: str, *, unit: bool = False, workers: int = 1) -> None:
        self.form, self.dimension, self.unit, self.workers = form, dimension, unit, workers
        self.fingerprint = f"{fingerprint}-cosine" if unit else fingerprint

    @abstractmethod
    def _encode(self, tower: int, texts: Sequence[Text]) -> Rows:
        """Vectors of queries (tower 0) or of items (tower 1)."""

    def _encoded(self, tower: int, texts: Sequence[Text]) -> Rows:
        rows = self._encode(tower, texts)
        if not self.unit:
            return rows
        return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), np.float32)

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return self._encoded(0, self.form.queries(texts) if len(texts) else [])

    def encode_items(self, items: Sequence[Item | str], *, progress: Progress | None = None) -> Rows:
        def encode(some: Sequence[Item | str]) -> Rows:
            return self._encoded(1, self.form.items(some))

        return in_parts(encode, items, self.dimension, progress, self.workers)


class OnnxTowers(TwoTowers):
    """On onnxruntime, for the CPU; exported if it has not been yet."""

    def __init__(self, model: str | Path, running: Running) -> None:
        folder = local_folder(model)
        limits, key = _identity(folder, running.max_length)
        home, record = cached_model(key, lambda: _export(folder, limits))
        form = _form(home, limits)
        super().__init__(form, int(record["dimension"]), f"towers-{key}", unit=running.similarity == "cosine")
        self._towers = [OnnxSession(home / name, cores()) for name in ("queries.onnx", "items.onnx")]

    def _encode(self, tower: int, texts: Sequence[Text]) -> Rows:
        session = self._towers[tower]
        rows = np.empty((len(texts), self.dimension), np.float32)

        def run(places: list[int]) -> None:
            rows[places] = session.run(packed([row_of(texts[place]) for place in places], session.inputs))

        session.map(run, groups_of_one_length(texts, TOKENS_PER_CALL))
        return rows


class TorchTowers(TwoTowers):
    """In torch, on every device that is named."""

    def __init__(self, model: str | Path, running: Running) -> None:
        from crosscut.encoders.bodies import filled_body, torch_dtype

        folder = local_folder(model)
        limits, key = _identity(folder, running.max_length)
        saved, names = read_towers(folder)
        kind, config = torch_dtype(running.dtype), read_config(folder)
        copies = [
            [
                filled_body(config, saved, str(folder), f"{name}.bert_model.").to(check_device(device), kind).eval()
                for name in names
            ]
            for device in running.every()
        ]
        self._linears, self.batch_size = [_linear(saved, name) for name in names], running.batch_size
        self._copies = Alike(copies)
        first = self._linears[0]
        super().__init__(
            _form(folder, limits),
            int(copies[0][0].config.hidden_size) if first is None else len(first[0]),
            f"towers-{key}-torch-{running.dtype}",
            unit=running.similarity == "cosine",
            workers=len(copies),
        )

    def _encode(self, tower: int, texts: Sequence[Text]) -> Rows:
        """Texts of about one length together, the longest first."""
        import torch

        from crosscut.encoders.bodies import read_rows

        rows = np.empty((len(texts), self.dimension), np.float32)
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place].ids))
        with self._copies.one() as bodies, torch.inference_mode():
            for start in range(0, len(order), self.batch_size):
                places = order[start : start + self.batch_size]
                read = read_rows(bodies[tower], [row_of(texts[place]) for place in places])[:, 0].float().cpu().numpy()
                linear = self._linears[tower]
                rows[places] = read if linear is None else read @ linear[0].T + linear[1]
        return rows


def load_towers(model: str | Path, running: Running) -> TwoTowers:
    """Two towers as the settings say: on onnxruntime on the CPU, in torch elsewhere."""
    return OnnxTowers(model, running) if running.on_cpu else TorchTowers(model, running)


def row_of(text: Text) -> Row:
    """A text that is read alone, for the vector of its first token."""
    return Row(text.ids, np.zeros_like(text.ids), np.arange(len(text.ids)), np.zeros(1, np.int64))


def _identity(folder: Path, max_length: int | None) -> tuple[dict[str, int], str]:
    """The most tokens of either side, and a digest of all that vectors depend on."""
    import json

    path = folder / "wrapper_config.json"
    given = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    limits = {
        "query_tokens": max_length or int(given.get("max_input_len", 128)),
        "item_tokens": max_length or int(given.get("max_label_len", 128)),
    }
    places = int(read_config(folder).get("max_position_embeddings", 512))
    if max_length is not None and max_length > places:
        raise InputError(f"{str(folder)!r} has positions for {places} tokens and {max_length} are asked for")
    names = ("config.json", "model.config", "vocab.txt", "tokenizer.json")
    files = {name: folder / name for name in names if (folder / name).is_file()}
    return limits, digest_of({**files, "weights": weights_file(folder)}, {"towers": True, **limits})


def _form(folder: Path, limits: dict[str, int]) -> Marked:
    tokenizer = open_tokenizer(folder)
    return Marked.of(tokenizer, query_tokens=limits["query_tokens"], item_tokens=limits["item_tokens"])


def read_towers(folder: Path) -> tuple[dict[str, Any], tuple[str, str]]:
    """The tensors of a checkpoint, and what its towers are called."""
    saved = read_arrays(weights_file(folder))
    found = next((pair for pair in TOWERS if any(name.startswith(f"{pair[0]}.") for name in saved)), None)
    if found is None:
        known = " or ".join(" and ".join(pair) for pair in TOWERS)
        raise InputError(
            f"{str(folder)!r} holds no dual encoder of two towers ({known}); models of sentence-transformers have a "
            "modules.json beside them"
        )
    return saved, found


def _linear(saved: dict[str, Any], tower: str) -> tuple[Any, Any] | None:
    """The layer behind a tower, if there is one: weights and bias."""
    weight = saved.get(f"{tower}.additional_linear.weight")
    if weight is None:
        return None
    return weight, saved.get(f"{tower}.additional_linear.bias", np.zeros(len(weight), np.float32))


def _export(folder: Path, limits: dict[str, int]) -> tuple[dict[str, bytes], dict[str, Any]]:
    saved, found = read_towers(folder)
    config = read_config(folder)
    graphs, widths = [], set()
    for tower in found:
        body = read_body(config, saved, repr(str(folder)), prefix=f"{tower}.bert_model.")
        linear = _linear(saved, tower)
        steps = () if linear is None else (Step("linear", *linear),)
        widths.add(body.width if linear is None else len(linear[0]))
        graphs.append(whole_graph(body, Head(steps=steps)))
    tokenizer = open_tokenizer(folder)
    files = {"queries.onnx": graphs[0], "items.onnx": graphs[1], "tokenizer.json": tokenizer.to_str().encode()}
    return files, {"dimension": widths.pop(), **limits}
