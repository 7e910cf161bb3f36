"""The trainable models: cross-encoders with an [EMB] or a [CLS] head, and dual encoders, on one split
encoder.

- [EMB]-CE (ANNCUR §2.6): f(q, i) = s · e_q · e_i, the contextual vectors of the two special tokens
after
  query and item were read together;
- [CLS]-CE: f(q, i) = w · e_q + b, a linear layer on the first token;
- DE: cosine of mean-pooled vectors, times a temperature, query and item read apart to the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crosscut.encoders.tokens import ITEM, MATCHED, MENTION, MENTIONED, PAIR_ROLES, ROLES, TITLE, Tokens
from crosscut.errors import InputError
from crosscut.training.bert import EncoderSizes, Layer, Lower, Packing, pack

Head = Literal["emb", "cls"]
REMEMBERED = 3_000_000  # tokens whose states a frozen lower part keeps in half precision: 2.3 GB at 384 wide


class PackedTexts(NamedTuple):
    """Packed texts: what `Lower` reads, and where each text lies."""

    ids: Tensor  # (T,)
    roles: Tensor  # (T,)
    keys: np.ndarray  # (T,) forms of one word share a key
    packing: Packing
    starts: np.ndarray  # (texts,) row of the first token
    lengths: np.ndarray  # (texts,)


def pack_texts(texts: Sequence[Tokens]) -> PackedTexts:
    """Tokenised texts, laid one after the other."""
    lengths = np.asarray([len(text.ids) for text in texts], np.int64)
    return PackedTexts(
        ids=torch.from_numpy(np.concatenate([text.ids for text in texts])),
        roles=torch.from_numpy(np.concatenate([text.roles for text in texts])),
        keys=np.concatenate([text.keys for text in texts]),
        packing=pack(lengths),
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
    )


class PairBatch(NamedTuple):
    """Which tokens meet: the packed pairs built from packed texts."""

    gather: Tensor  # (P,) rows of the texts, pair after pair, query before item
    roles: Tensor  # (P,) roles of those tokens in their pair
    rows: Tensor  # (pairs, 2) the rows, among the P, of the two special tokens
    packing: Packing

    def to(self, device: torch.device) -> PairBatch:
        return PairBatch(self.gather.to(device), self.roles.to(device), self.rows.to(device), self.packing.to(device))


def pair_up(texts: PackedTexts, queries: Sequence[int], items: Sequence[int]) -> PairBatch:
    """Pair text `queries[p]` with text `items[p]`, for every p."""
    q, i = np.asarray(queries, np.int64), np.asarray(items, np.int64)
    starts = np.stack([texts.starts[q], texts.starts[i]], 1).ravel()  # (2 pairs,)
    lengths = np.stack([texts.lengths[q], texts.lengths[i]], 1).ravel()
    offsets = np.cumsum(lengths) - lengths
    gather = np.arange(int(lengths.sum())) - np.repeat(offsets - starts, lengths)
    # an item token that stands in its pair's query, [CLS] and [SEP] apart, has the role of a match (`tokens.matched`)
    of_item = np.repeat(np.arange(len(lengths)) % 2 == 1, lengths)  # (P,)
    keys = np.repeat(np.arange(len(lengths)) // 2, lengths) << 32 | texts.keys[gather]
    inner = np.ones(len(gather), np.bool_)
    inner[offsets] = False
    inner[offsets + lengths - 1] = False
    roles = texts.roles.numpy()[gather]
    text = of_item & ((roles == ITEM) | (roles == TITLE))
    mentioned = np.isin(keys, keys[roles == MENTION])
    added = np.where(mentioned, MENTIONED, MATCHED * np.isin(keys, keys[~of_item & inner]))
    return PairBatch(
        gather=torch.from_numpy(gather),
        roles=torch.from_numpy(np.where(text, roles + added, roles)),
        rows=torch.from_numpy(offsets.reshape(-1, 2)),
        packing=pack(lengths.reshape(-1, 2).sum(1)),
    )


class Split(nn.Module):
    """An encoder whose first `independent` layers read texts alone."""

    def __init__(self, shape: EncoderSizes, independent: int, roles: int = ROLES) -> None:
        super().__init__()
        if not 0 <= independent < shape.num_hidden_layers:
            raise InputError(
                f"{independent} independent layers of {shape.num_hidden_layers} leave none to read query "
                f"and item "
                f"together; choose 0 … {shape.num_hidden_layers - 1}"
            )
        self.shape = shape
        self.independent = independent
        self.lower = Lower(shape, independent)
        self.roles = nn.Embedding(roles, shape.hidden_size)
        self.upper = nn.ModuleList(Layer(shape) for _ in range(shape.num_hidden_layers - independent))
        self.remembered: dict[bytes, Tensor] = {}  # states (length × D) of texts by their token ids
        nn.init.zeros_(self.roles.weight)

    def start_from(self, weights: dict[str, Tensor]) -> None:
        """Take the weights of `read_encoder`: the first layers go below the meeting point, the rest above."""
        lower = {name: tensor for name, tensor in weights.items() if not name.startswith("layers.")}
        upper = {}
        for name, tensor in weights.items():
            if name.startswith("layers."):
                _, number, part = name.split(".", 2)
                if int(number) < self.independent:
                    lower[name] = tensor
                elif int(number) < self.shape.num_hidden_layers:
                    upper[f"{int(number) - self.independent}.{part}"] = tensor
        self.lower.load_state_dict(lower)
        self.upper.load_state_dict(upper)
        self.remembered.clear()

    def freeze_lower(self) -> None:
        """Train only above the meeting point; texts then need no gradient below it, and are read once."""
        self.lower.requires_grad_(False)
        self.remembered.clear()

    def states(self, texts: PackedTexts) -> Tensor:
        """States at the meeting point (T × D), rounded to half precision as a scorer keeps them."""
        if any(parameter.requires_grad for parameter in self.lower.parameters()):
            return self.lower(texts.ids, texts.packing)  # type: ignore[no-any-return]
        with torch.no_grad():
            return self._remember(texts).float()

    def _remember(self, texts: PackedTexts) -> Tensor:
        """States (T × D) in half precision; a text that was read before is not read again."""
        parts = np.split(texts.ids.numpy(), texts.starts[1:])
        keys = [part.tobytes() for part in parts]
        new = {key: part for key, part in zip(keys, parts, strict=True) if key not in self.remembered}
        if new:
            if sum(map(len, self.remembered.values())) + sum(map(len, new.values())) > REMEMBERED:
                self.remembered.clear()
                new = dict(zip(keys, parts, strict=True))
            lengths = [len(part) for part in new.values()]
            states = self.lower(torch.from_numpy(np.concatenate(list(new.values()))), pack(lengths)).half()
            self.remembered.update(zip(new, states.split(lengths), strict=True))
        return torch.cat([self.remembered[key] for key in keys])


class CrossModel(Split):
    """A cross-encoder; `head` is "emb" or "cls"."""

    def __init__(self, shape: EncoderSizes, independent: int = 0, head: Head = "emb") -> None:
        super().__init__(shape, independent, PAIR_ROLES)
        if head not in ("emb", "cls"):
            raise InputError(f"the head is 'emb' or 'cls', not {head!r}")
        self.head: Head = head
        self.offset: Tensor
        self.register_buffer("offset", torch.tensor(0.0))  # a constant level taken off every score; ranks nothing
        if head == "emb":
            self.scale = nn.Parameter(torch.tensor(1.0))
        else:
            self.linear = nn.Linear(shape.hidden_size, 1)

    def forward(self, texts: PackedTexts, queries: Sequence[int], items: Sequence[int]) -> Tensor:
        """The score of text `queries[p]` with text `items[p]`: (pairs,)."""
        return self.meet(self.states(texts), pair_up(texts, queries, items))

    def meet(self, states: Tensor, pairs: PairBatch) -> Tensor:
        """From states at the meeting point (T × D) to scores (pairs,)."""
        pairs = pairs.to(states.device)
        x = states[pairs.gather] + self.roles(pairs.roles)  # (P, D)
        for layer in self.upper[:-1]:
            x = layer(x, pairs.packing)
        rows = pairs.rows if self.head == "emb" else pairs.rows[:, :1]
        ends = self.upper[-1](x, pairs.packing, rows)  # (pairs · r, D)
        if self.head == "cls":
            return self.linear(ends)[:, 0] - self.offset  # type: ignore[no-any-return]
        ends = ends.view(len(rows), 2, -1)
        product: Tensor = (ends[:, 0] * ends[:, 1]).sum(1) * self.scale - self.offset
        return product


class DualModel(Split):
    """A dual encoder: mean-pooled, unit length; one set of weights, queries and items told apart by roles."""

    def __init__(self, shape: EncoderSizes, independent: int = 0) -> None:
        super().__init__(shape, independent)
        self.temperature = nn.Parameter(torch.tensor(20.0))

    def forward(self, texts: PackedTexts) -> Tensor:
        """One vector per text: (texts × D)."""
        states = self.states(texts)
        packing = texts.packing.to(states.device)
        x = states + self.roles(texts.roles.to(states.device))  # (T, D)
        for layer in self.upper:
            x = layer(x, packing)
        owner = packing.places // packing.length  # (T,)
        sums = x.new_zeros(packing.batch, x.shape[1]).index_add(0, owner, x)
        return functional.normalize(sums, dim=1)  # the mean and the sum point the same way
