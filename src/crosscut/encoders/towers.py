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
from crosscut.encoders.exported import digest_of, kept, local_folder
from crosscut.encoders.modules import FILE as MODULES
from crosscut.encoders.named import Rows, in_parts
from crosscut.encoders.pairs import Marked, Row, Text, open_tokenizer
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
    def load(cls, model: str | Path, *, threads: int | None = None) -> TwoTowers:
        """A folder or a hub id, exported if it has not been yet."""
        folder = local_folder(model)
        limits = _limits(folder)
        weights = weights_file(folder)
        names = ("config.json", "model.config", "vocab.txt", "tokenizer.json")
        files = {name: folder / name for name in names if (folder / name).is_file()}
        key = digest_of({**files, "weights": weights}, {"towers": True, **limits})
        home, record = kept(key, lambda: _export(folder, weights, limits))
        return cls(home, {**record, "key": key}, threads=threads)

    def encode_queries(self, texts: Sequence[str]) -> Rows:
        return self._encode(0, self.form.queries(texts) if len(texts) else [])

    def encode_items(self, items: Sequence[Item | str], *, progress: Callable[[int], None] | None = None) -> Rows:
        return in_parts(lambda some: self._encode(1, self.form.items(some)), items, self.dimension, progress)

    def _encode(self, tower: int, texts: Sequence[Text]) -> Rows:
        session = self._towers[tower]
        rows = np.empty((len(texts), self.dimension), np.float32)

        def run(places: list[int]) -> None:
            read = [texts[place].ids for place in places]
            made = [Row(ids, np.zeros_like(ids), np.arange(len(ids)), np.zeros(1, np.int64)) for ids in read]
            rows[places] = session.run(packed(made, session.inputs))

        session.map(run, of_one_length(texts, TOKENS_PER_CALL))
        return rows


def _limits(folder: Path) -> dict[str, int]:
    import json

    path = folder / "wrapper_config.json"
    given = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    return {
        "query_tokens": int(given.get("max_input_len", 128)),
        "item_tokens": int(given.get("max_label_len", 128)),
    }


def _export(folder: Path, weights: Path, limits: dict[str, int]) -> tuple[dict[str, bytes], dict[str, Any]]:
    saved = read_arrays(weights)
    where = repr(str(folder))
    found = next((pair for pair in TOWERS if any(name.startswith(f"{pair[0]}.") for name in saved)), None)
    if found is None:
        raise InputError(
            f"{where} holds no dual encoder of two towers ({' or '.join(' and '.join(pair) for pair in TOWERS)}); "
            "models of sentence-transformers have a modules.json beside them"
        )
    config = read_config(folder)
    graphs, widths = [], set()
    for tower in found:
        body = read_body(config, saved, where, prefix=f"{tower}.bert_model.")
        linear = saved.get(f"{tower}.additional_linear.weight")
        steps = () if linear is None else (Step("linear", linear, saved.get(f"{tower}.additional_linear.bias")),)
        widths.add(body.width if linear is None else len(linear))
        graphs.append(whole_graph(body, Head(steps=steps)))
    tokenizer = open_tokenizer(folder)
    files = {"queries.onnx": graphs[0], "items.onnx": graphs[1], "tokenizer.json": tokenizer.to_str().encode()}
    return files, {"dimension": widths.pop(), **limits}
