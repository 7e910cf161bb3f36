"""Dual encoders of two towers, as ANNCUR and BLINK have published them: [CLS] of either tower, inner product.

Queries and items have weights of their own (2 × 110M of a BERT-base) and are marked as in ANNCUR app. A.1. Vectors are
not made unit length: their inner products are the scores that the models were trained on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item
from crosscut.encoders.checkpoints import read_arrays, read_body, read_config, weights_file
from crosscut.encoders.exported import cached_model, digest_of, local_folder
from crosscut.encoders.modules import FILE as MODULES
from crosscut.encoders.named import Alike, Rows, in_parts
from crosscut.encoders.pairs import Marked, Row, Text, open_tokenizer
from crosscut.encoders.running import Running, check_device
from crosscut.encoders.session import TOKENS_PER_CALL, OnnxSession
from crosscut.encoders.states import of_one_length
from crosscut.encoders.whole import Head, Step, packed, whole_graph
from crosscut.errors import InputError
from crosscut.threads import cores

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


class TwoTowers:
    """A dual encoder of two towers, on onnxruntime."""

    def __init__(self, home: Path, record: dict[str, Any], *, threads: int | None = None) -> None:
        self.home, self.record = home, record
        self.fingerprint = f"towers-{record['key']}"
        self.dimension = int(record["dimension"])
        query, item = (int(record[side]) for side in ("query_tokens", "item_tokens"))
        self.form = Marked.of(open_tokenizer(home), query_tokens=query, item_tokens=item)
        count = cores() if threads is None else threads
        self._towers = [OnnxSession(home / name, count) for name in ("queries.onnx", "items.onnx")]

    @classmethod
    def load(cls, model: str | Path, *, threads: int | None = None, max_length: int | None = None) -> TwoTowers:
        """A folder or a hub id, exported if it has not been yet; `max_length` tokens of a text, if not the model's."""
        folder = local_folder(model)
        limits, key = _identity(folder, max_length)
        home, record = cached_model(key, lambda: _export(folder, limits))
        return cls(home, {**record, "key": key}, threads=threads)

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return self._encode(0, self.form.queries(texts) if len(texts) else [])

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Rows:
        return in_parts(lambda some: self._encode(1, self.form.items(some)), items, self.dimension, progress)

    def _encode(self, tower: int, texts: Sequence[Text]) -> Rows:
        session = self._towers[tower]
        rows = np.empty((len(texts), self.dimension), np.float32)

        def run(places: list[int]) -> None:
            rows[places] = session.run(packed([row_of(texts[place]) for place in places], session.inputs))

        session.map(run, of_one_length(texts, TOKENS_PER_CALL))
        return rows


class TorchTowers:
    """The same in torch, for other devices than the CPU; `bodies` are of queries and of items."""

    def __init__(
        self, copies: Sequence[Sequence[Any]], linears: Sequence[Any], form: Marked, fingerprint: str, batch_size: int
    ) -> None:
        self._towers = Alike(copies)
        self._linears, self.form, self.fingerprint, self.batch_size = linears, form, fingerprint, batch_size
        width = int(copies[0][0].config.hidden_size)
        self.dimension = width if linears[0] is None else len(linears[0][0])

    @classmethod
    def load(cls, model: str | Path, running: Running) -> TorchTowers:
        """A folder, on every device that is named."""
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
        form = Marked.of(open_tokenizer(folder), query_tokens=limits["query_tokens"], item_tokens=limits["item_tokens"])
        fingerprint = f"towers-{key}-torch-{running.dtype}"
        return cls(copies, [_linear(saved, name) for name in names], form, fingerprint, running.batch_size)

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return self._encode(0, self.form.queries(texts) if len(texts) else [])

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Rows:
        def encode(some: Sequence[Item | str]) -> Rows:
            return self._encode(1, self.form.items(some))

        return in_parts(encode, items, self.dimension, progress, self._towers.count)

    def _encode(self, side: int, texts: Sequence[Text]) -> Rows:
        """Texts of about one length together, the longest first."""
        import torch

        from crosscut.encoders.bodies import read_rows

        rows = np.empty((len(texts), self.dimension), np.float32)
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place].ids))
        with self._towers.one() as bodies, torch.inference_mode():
            for start in range(0, len(order), self.batch_size):
                places = order[start : start + self.batch_size]
                read = read_rows(bodies[side], [row_of(texts[place]) for place in places])[:, 0].float().cpu().numpy()
                linear = self._linears[side]
                rows[places] = read if linear is None else read @ linear[0].T + linear[1]
        return rows


class Unit:
    """A dual encoder with its vectors made unit length."""

    def __init__(self, encoder: TwoTowers | TorchTowers) -> None:
        self.encoder, self.dimension = encoder, encoder.dimension
        self.fingerprint = f"{encoder.fingerprint}-cosine"

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return _unit(self.encoder.encode_queries(texts))

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Rows:
        return _unit(self.encoder.encode_items(items, progress=progress))


def load_towers(model: str | Path, running: Running) -> TwoTowers | TorchTowers | Unit:
    """Two towers as the settings say: on onnxruntime on the CPU, in torch elsewhere."""
    made: TwoTowers | TorchTowers
    made = TwoTowers.load(model, max_length=running.max_length) if running.on_cpu else TorchTowers.load(model, running)
    return Unit(made) if running.similarity == "cosine" else made


def _unit(rows: Rows) -> Rows:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


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
    return (
        None
        if weight is None
        else (weight, saved.get(f"{tower}.additional_linear.bias", np.zeros(len(weight), np.float32)))
    )


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
