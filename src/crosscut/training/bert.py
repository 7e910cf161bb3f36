"""A BERT-like encoder in torch, on packed tokens, in two parts that meet in the middle.

The first m layers (`lower`) read every text alone; the remaining layers read query and item together. With
m = 0 this is the cross-encoder of ANNCUR (section 2, fig. 1a). With m > 0 the states of an item after m
layers do not depend on the query: they are computed once per corpus, as a dual encoder's vectors are, and
only the upper layers are paid per pair (the split of PreTTR and MORES, with the heads of ANNCUR on top).

Packed means: the tokens of all texts of a batch lie one after the other in one (T × D) matrix, so that linear
layers, where the time goes, never see padding; only the attention scores are padded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from crosscut.encoders.checkpoints import read_arrays, read_body, read_config, weights_file
from crosscut.errors import InputError


@dataclass(frozen=True)
class EncoderSizes:
    """The sizes of an encoder, as in a Hugging Face `config.json`."""

    vocab_size: int
    hidden_size: int
    num_attention_heads: int
    intermediate_size: int
    num_hidden_layers: int
    max_position_embeddings: int = 512
    layer_norm_eps: float = 1e-12

    def asdict(self) -> dict[str, Any]:
        return asdict(self)


class Packing(NamedTuple):
    """How the packed tokens of `batch` texts lie in a padded (batch × length) grid."""

    places: Tensor  # (T,) place of each token in the flattened grid
    starts: Tensor  # (batch,) row of each text's first token
    mask: Tensor  # (batch, 1, 1, length) True where there is a token
    batch: int
    length: int

    def to(self, device: torch.device) -> Packing:
        return self._replace(places=self.places.to(device), starts=self.starts.to(device), mask=self.mask.to(device))


def pack(lengths: Sequence[int] | npt.NDArray[np.int64]) -> Packing:
    """The packing of texts with these lengths."""
    sizes = torch.as_tensor(np.asarray(lengths, np.int64))
    batch, length = len(sizes), int(sizes.max())
    grid = torch.arange(length)[None, :] < sizes[:, None]  # (batch, length)
    return Packing(
        places=grid.flatten().nonzero()[:, 0],
        starts=torch.cumsum(sizes, 0) - sizes,
        mask=grid[:, None, None, :],
        batch=batch,
        length=length,
    )


class Layer(nn.Module):
    """One transformer layer, post-norm, as in BERT."""

    def __init__(self, shape: EncoderSizes) -> None:
        super().__init__()
        d = shape.hidden_size
        self.heads = shape.num_attention_heads
        self.query = nn.Linear(d, d)
        self.key = nn.Linear(d, d)
        self.value = nn.Linear(d, d)
        self.output = nn.Linear(d, d)
        self.attention_norm = nn.LayerNorm(d, eps=shape.layer_norm_eps)
        self.up = nn.Linear(d, shape.intermediate_size)
        self.down = nn.Linear(shape.intermediate_size, d)
        self.norm = nn.LayerNorm(d, eps=shape.layer_norm_eps)

    def forward(self, x: Tensor, packing: Packing, rows: Tensor | None = None) -> Tensor:
        """x (T × D) → (T × D), or only `rows` (batch × r) of it → (batch·r × D).

        The last layer of a cross-encoder is asked for the rows its head reads: keys and values are needed of
        every token, but queries, output and feed-forward of those rows alone.
        """
        asked = x if rows is None else x[rows.flatten()]  # (T or batch·r, D)
        keys = self._grid(self.key(x), packing)  # (batch, heads, length, D / heads)
        values = self._grid(self.value(x), packing)
        if rows is None:
            queries = self._grid(self.query(asked), packing)
        else:
            queries = self.query(asked).view(packing.batch, rows.shape[1], self.heads, -1).transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=packing.mask)
        flat = mixed.transpose(1, 2).reshape(-1, x.shape[1])  # (batch·length or batch·r, D)
        if rows is None:
            flat = flat[packing.places]  # (T, D)
        asked = self.attention_norm(asked + self.output(flat))
        return self.norm(asked + self.down(functional.gelu(self.up(asked))))  # type: ignore[no-any-return]

    def _grid(self, packed: Tensor, packing: Packing) -> Tensor:
        padded = packed.new_zeros(packing.batch * packing.length, packed.shape[1])
        padded = padded.index_copy(0, packing.places, packed)
        return padded.view(packing.batch, packing.length, self.heads, -1).transpose(1, 2)


class Lower(nn.Module):
    """Embeddings and the first m layers: what is computed of each text alone."""

    def __init__(self, shape: EncoderSizes, layers: int) -> None:
        super().__init__()
        self.words = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.positions = nn.Embedding(shape.max_position_embeddings, shape.hidden_size)
        self.norm = nn.LayerNorm(shape.hidden_size, eps=shape.layer_norm_eps)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(layers))

    def forward(self, ids: Tensor, packing: Packing) -> Tensor:
        """Packed token ids (T,) → states (T × D)."""
        device = self.words.weight.device
        ids, packing = ids.to(device), packing.to(device)
        x = self.words(ids) + self.positions(packing.places % packing.length)
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, packing)
        return x  # type: ignore[no-any-return]


def read_encoder(folder: str | Path) -> tuple[EncoderSizes, dict[str, Tensor]]:
    """Shape and weights of a BERT, MiniLM, RoBERTa or DistilBERT, saved by transformers or sentence-transformers.

    They are one architecture; what differs is folded into the positions: the embedding of the only segment in use, and
    where RoBERTa's begin. The weights come named as in this module: `words`, `positions`, `norm`, and
    `layers.<i>.<part>`.
    """
    config = read_config(folder)
    path = weights_file(folder)
    try:
        body = read_body(config, read_arrays(path), repr(str(folder)))
    except InputError as error:
        raise InputError(f"{str(path)!r} does not describe a BERT-like encoder: {error}") from error
    if body.modern or "project.weight" in body.weights:
        raise InputError(
            f"{str(folder)!r} is a {body.kind}; training starts from BERT-like encoders: bert, roberta, distilbert"
        )
    saved = {name: torch.from_numpy(np.array(array)) for name, array in body.weights.items()}
    places = saved.pop("positions")
    if "types" in saved:
        places = places + saved.pop("types")[0]
    weights = {"words.weight": saved.pop("words"), "positions.weight": places, **saved}
    shape = EncoderSizes(
        vocab_size=len(weights["words.weight"]),
        hidden_size=body.width,
        num_attention_heads=body.heads,
        intermediate_size=len(weights["layers.0.up.weight"]),
        num_hidden_layers=body.layers,
        max_position_embeddings=len(places),
        layer_norm_eps=body.epsilon,
    )
    return shape, weights
