"""Causal language models: log p of some tokens behind a text, on onnxruntime or in torch.

`OnnxLM` runs a model in a GGUF file. Its blocks of four bits become blocks of eight, which hold them almost exactly,
and products are of whole numbers, so that a value does not depend on what else is computed. A text's states (keys and
values of every layer) are kept, as many as fit: the next tokens behind it cost only themselves. The graph without
weights comes with the file (`crosscut-judge`); the blocks are made when the model is first used, and cached.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from uuid import uuid4

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError, needing
from crosscut.models.gguf import GGUF
from crosscut.models.hub import cache_folder
from crosscut.models.session import OnnxSession
from crosscut.models.spec import ModelSettings, check_device
from crosscut.storage import make_folder
from crosscut.threads import ForkLock, cores
from crosscut.types import Floats

if TYPE_CHECKING:
    import tokenizers

Array = npt.NDArray[np.float32]
Ids = list[int]
STATE_BYTES = 512 << 20
TOKENS = 512  # of a call
BLOCK = 64  # inputs whose weights share a scale
FAR = np.float32(-1e9)  # added to what a token does not see
MATRICES = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}


class CausalLM(Protocol):
    """A language model that reads tokens from left to right."""

    fingerprint: str

    def encode(self, text: str) -> Ids:
        """Return the tokens of a text, without special ones."""

    def log_probs(self, prefixes: Sequence[Ids], suffixes: Sequence[Ids]) -> list[Floats]:
        """Return log p of every token of each suffix behind its prefix."""


class _State(NamedTuple):
    """A text that was read: keys and values of every layer, (layers × heads × length × width) each."""

    keys: Array
    values: Array


class OnnxLM:
    """A model of the Llama family in a folder: one .gguf file, and the graph it runs in, without weights."""

    def __init__(self, folder: Path, *, threads: int | None = None, state_bytes: int = STATE_BYTES) -> None:
        files = sorted(folder.glob("*.gguf"))
        if len(files) != 1 or not (folder / "graph.onnx").is_file():
            raise InputError(f"{str(folder)!r} needs one .gguf file and a graph.onnx; install the judge again")
        self._gguf, self._graph = GGUF(files[0]), (folder / "graph.onnx").read_bytes()
        self._threads = threads or cores()
        about = self._gguf.settings
        digest = hashlib.sha256(self._graph)
        with files[0].open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        self.fingerprint = digest.hexdigest()[:16]
        heads, width = about["llama.attention.head_count"], about["llama.embedding_length"]
        self._head = int(width) // int(heads)
        self._shape = int(about["llama.block_count"]), int(about["llama.attention.head_count_kv"])
        steps = np.arange(0, self._head, 2) / self._head
        self._frequencies = float(about["llama.rope.freq_base"]) ** -steps
        self._states: OrderedDict[bytes, _State] = OrderedDict()
        self._room = state_bytes
        self._lock = ForkLock()

    @cached_property
    def _tokenizer(self) -> tokenizers.Tokenizer:
        return self._gguf.tokenizer()

    @cached_property
    def _session(self) -> OnnxSession:
        """The model, loaded with the first call: an index is built, and most commands run, without it."""
        return OnnxSession(self._graph, self._threads, tensors=_in_blocks(self._gguf, self.fingerprint))

    def encode(self, text: str) -> Ids:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def log_probs(self, prefixes: Sequence[Ids], suffixes: Sequence[Ids]) -> list[Floats]:
        # the last token of a prefix is read with the suffix: its output predicts the first token of the suffix
        states = self._read([prefix[:-1] for prefix in prefixes])
        tails = [[prefix[-1], *suffix[:-1]] for prefix, suffix in zip(prefixes, suffixes, strict=True)]
        found: list[Floats] = [np.empty(0)] * len(tails)

        def run(places: list[int]) -> None:
            asked = [suffixes[place] for place in places]
            values = self._run([states[place] for place in places], [tails[place] for place in places], asked)[0]
            for place, part in zip(places, values.astype(np.float64).reshape(len(places), -1), strict=True):
                found[place] = part

        sizes = [(state.keys.shape[2], len(tail)) for state, tail in zip(states, tails, strict=True)]
        self._session.map(run, _alike(sizes))
        return found

    def _read(self, texts: Sequence[Ids]) -> list[_State]:
        """The states of texts; those that were read last are kept."""
        keys = [np.asarray(text, np.int64).tobytes() for text in texts]
        with self._lock:
            known = {key: self._states[key] for key in keys if key in self._states}
        new = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        names, unread = list(new), list(new.values())

        def run(places: list[int]) -> None:
            some = [unread[place] for place in places]
            empty = np.zeros((self._shape[0], self._shape[1], 0, self._head), np.float32)
            _, made, values = self._run([_State(empty, empty)] * len(some), some, [])
            for row, place in enumerate(places):
                known[names[place]] = _State(made[:, row].copy(), values[:, row].copy())

        self._session.map(run, _alike([(0, len(text)) for text in unread]))
        with self._lock:
            for key in keys:
                self._states[key] = known[key]
                self._states.move_to_end(key)
            size = sum(state.keys.nbytes + state.values.nbytes for state in self._states.values())
            while size > self._room and self._states:
                _, state = self._states.popitem(last=False)
                size -= state.keys.nbytes + state.values.nbytes
        return [known[key] for key in keys]

    def _run(
        self, states: Sequence[_State], texts: Sequence[Ids], targets: Sequence[Ids]
    ) -> tuple[Array, Array, Array]:
        """One call, of texts of one length and states of one: log p of targets, and the states of the texts."""
        past, length = states[0].keys.shape[2], len(texts[0])
        angles = (past + np.arange(length))[:, None] * self._frequencies
        turns = np.broadcast_to(angles, (len(texts), *angles.shape))
        mask = np.zeros((len(texts), length, past + length), np.float32)
        mask[:, :, past:] = np.where(np.tri(length, dtype=np.bool_), 0, FAR)
        rows = [row * length + place for row, text in enumerate(targets) for place in range(len(text))]
        wanted = [token for text in targets for token in text]
        found = self._session.run_all(
            {
                "input_ids": np.asarray(texts, np.int64),
                "cos": np.cos(turns).astype(np.float32),
                "sin": np.sin(turns).astype(np.float32),
                "mask": mask,
                "past_keys": np.stack([state.keys for state in states], 1),
                "past_values": np.stack([state.values for state in states], 1),
                "rows": np.asarray(rows or [0], np.int64),
                "targets": np.asarray(wanted or [0], np.int64),
            }
        )
        return found["log_probs"], found["keys"], found["values"]


def _alike(sizes: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Places of texts with states and lengths of one size, about `TOKENS` tokens together: nothing is padded, and a
    value is the same whatever it is computed with."""
    by_size: dict[tuple[int, int], list[int]] = {}
    for place, size in enumerate(sizes):
        by_size.setdefault(size, []).append(place)
    groups = []
    for (_, length), places in sorted(by_size.items(), reverse=True):
        step = max(1, TOKENS // max(length, 1))
        groups += [places[start : start + step] for start in range(0, len(places), step)]
    return groups


def _in_blocks(gguf: GGUF, key: str) -> dict[str, npt.NDArray[Any]]:
    """The weights in blocks of eight bits, from the user's cache or made now."""
    path = cache_folder() / "models" / f"lm-{key}.npz"
    if path.is_file():
        with np.load(path, allow_pickle=False) as saved:
            return dict(saved)
    embedding = gguf.tensor("token_embd.weight")
    blocks = embedding.reshape(len(embedding), -1, 32)
    scale = np.maximum(np.abs(blocks).max(2) / 127, 1e-12).astype(np.float32)
    tensors: dict[str, npt.NDArray[Any]] = {
        "embedding.bits": np.rint(blocks / scale[:, :, None]).astype(np.int8).reshape(embedding.shape),
        "embedding.scale": scale,
        "norm": gguf.tensor("output_norm.weight"),
        **_blocks("0.head", embedding),
    }
    for layer in range(int(gguf.settings["llama.block_count"])):
        for name in ("attn_norm", "ffn_norm"):
            tensors[f"{layer}.{name}"] = gguf.tensor(f"blk.{layer}.{name}.weight")
        for name, saved_as in MATRICES.items():
            tensors |= _blocks(f"{layer}.{name}", gguf.tensor(f"blk.{layer}.{saved_as}.weight"))
    make_folder(path.parent)
    part = path.with_name(f"{path.stem}-{uuid4().hex[:8]}.part.npz")
    np.savez(part, **tensors)  # type: ignore[arg-type]
    part.replace(path)
    return tensors


def _blocks(name: str, matrix: Array) -> dict[str, npt.NDArray[Any]]:
    """A matrix (outputs × inputs) in blocks of whole numbers 0 … 255, each with a scale and a zero."""
    blocks = matrix.reshape(len(matrix), -1, BLOCK)
    low, high = np.minimum(blocks.min(2), 0), np.maximum(blocks.max(2), 0)
    scale = np.maximum((high - low) / 255, 1e-12).astype(np.float32)
    zero = np.clip(np.rint(-low / scale), 0, 255)
    bits = np.clip(np.rint(blocks / scale[:, :, None]) + zero[:, :, None], 0, 255).astype(np.uint8)
    return {f"{name}.bits": bits, f"{name}.scale": scale.reshape(-1), f"{name}.zero": zero.astype(np.uint8).reshape(-1)}


class TorchLM:
    """A causal language model of transformers: a hub id or a folder."""

    def __init__(self, model: Any, tokenizer: Any, *, batch_size: int = 8) -> None:
        self._model, self._tokenizer, self._batch = model.eval(), tokenizer, batch_size
        digest = hashlib.sha256(type(model).__name__.encode())
        for name, tensor in sorted(model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().float().numpy().tobytes())
        self.fingerprint = digest.hexdigest()[:16]

    @classmethod
    def load(cls, name: str | Path, settings: ModelSettings | None = None) -> TorchLM:
        """Return the model of a hub id or a folder; code that it brings is not run."""
        with needing("language models run on transformers", "torch"):
            import torch
            import transformers
        library: Any = transformers
        how = settings or ModelSettings(batch_size=8)
        kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}.get(how.dtype, torch.float32)
        try:
            model = library.AutoModelForCausalLM.from_pretrained(str(name), dtype=kind, trust_remote_code=False)
            tokenizer = library.AutoTokenizer.from_pretrained(str(name), trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"no language model can be loaded from {str(name)!r} ({error}); pass a hub id or a folder"
            ) from error
        return cls(model.to(check_device(how.here())), tokenizer, batch_size=how.batch_size)

    def encode(self, text: str) -> Ids:
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def log_probs(self, prefixes: Sequence[Ids], suffixes: Sequence[Ids]) -> list[Floats]:
        rows = [[*prefix, *suffix] for prefix, suffix in zip(prefixes, suffixes, strict=True)]
        found: list[Floats] = [np.empty(0)] * len(rows)
        order = sorted(range(len(rows)), key=lambda place: -len(rows[place]))
        for start in range(0, len(order), self._batch):
            places = order[start : start + self._batch]
            for place, values in zip(
                places, self._run([rows[p] for p in places], [len(suffixes[p]) for p in places]), strict=True
            ):
                found[place] = values
        return found

    def _run(self, rows: Sequence[Ids], counts: Sequence[int]) -> list[Floats]:
        """One call: log p of the last tokens of every row."""
        import torch

        device, length = self._model.device, max(map(len, rows))
        ids = torch.zeros((len(rows), length), dtype=torch.long, device=device)
        there = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row, device=device)
            there[number, : len(row)] = 1
        with torch.inference_mode():
            hidden = self._model.base_model(input_ids=ids, attention_mask=there).last_hidden_state
            found = []
            for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
                logits = self._model.get_output_embeddings()(hidden[number, len(row) - count - 1 : len(row) - 1])
                values = torch.log_softmax(logits.float(), -1).gather(1, ids[number, len(row) - count : len(row), None])
                found.append(values[:, 0].double().cpu().numpy())
        return found
