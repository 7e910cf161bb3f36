"""Cross-encoders from a hub or a path, run by sentence-transformers; the same interface as `scorers.onnx`.

Scores are raw logits: sentence-transformers applies a sigmoid to models with one label unless told
otherwise, so the Identity is asked for. Pairs are sorted by length before they are batched.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import InputError, MissingDependency, ScorerError
from crosscut.scorers.base import Request
from crosscut.types import Floats, Positions


class TorchCrossEncoder:
    """A sentence-transformers `CrossEncoder` as a crosscut scorer.

    >>> scorer = TorchCrossEncoder.load("cross-encoder/ms-marco-MiniLM-L6-v2")
    """

    def __init__(self, model: Any, *, batch_size: int = 32, name: str | None = None) -> None:
        labels = getattr(getattr(model, "config", None), "num_labels", 1)
        if labels != 1:
            raise InputError(f"the cross-encoder has {labels} labels; a scorer needs one score a pair")
        if batch_size < 1:
            raise InputError(f"a batch of {batch_size} pairs is not possible; use 1 or more")
        self.model = model
        self.batch_size = batch_size
        self.name = name
        self.fingerprint = fingerprint_of(model)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        device: str | None = None,
        max_length: int | None = None,
        batch_size: int = 32,
        **options: Any,
    ) -> TorchCrossEncoder:
        """A hub id or a folder; `options` go to `sentence_transformers.CrossEncoder`."""
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingDependency(
                "hub cross-encoders run on sentence-transformers: pip install 'crosscut[torch]'"
            ) from error
        from torch.nn import Identity

        try:
            loaded = CrossEncoder(str(model), device=device, max_length=max_length, activation_fn=Identity(), **options)
        except (OSError, ValueError) as error:
            raise InputError(
                f"no cross-encoder can be loaded from {str(model)!r} ({error}); pass a hub id or a folder "
                f"written by "
                "CrossEncoder.save_pretrained"
            ) from error
        return cls(loaded, batch_size=batch_size, name=str(model))

    def score(self, query: str, items: Sequence[str]) -> Floats:
        """Scores of a query with item texts, (len(items),)."""
        return self.score_pairs([(query, item) for item in items])

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Scores of (query, item) texts, in order."""
        if not pairs:
            return np.empty(0, np.float64)
        from torch.nn import Identity

        order = sorted(range(len(pairs)), key=lambda p: len(pairs[p][0]) + len(pairs[p][1]))
        try:
            raw = self.model.predict(
                [pairs[p] for p in order],
                batch_size=self.batch_size,
                activation_fn=Identity(),
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        except RuntimeError as error:
            raise ScorerError(f"the cross-encoder failed on {len(pairs)} pairs: {error}") from error
        scores = np.empty(len(pairs), np.float64)
        scores[order] = np.asarray(raw, np.float64).reshape(len(pairs))
        return scores

    def bind(self, items: Sequence[str]) -> BoundTorchCrossEncoder:
        """This model over a corpus, addressed by position."""
        return BoundTorchCrossEncoder(self, items)

    def __repr__(self) -> str:
        return f"TorchCrossEncoder({self.name!r}, fingerprint={self.fingerprint!r})"


class BoundTorchCrossEncoder:
    """A cross-encoder that knows its corpus; items are positions 0 … n − 1."""

    def __init__(self, model: TorchCrossEncoder, items: Sequence[str]) -> None:
        self.model = model
        self.fingerprint = model.fingerprint
        self.items = list(items)

    def __len__(self) -> int:
        return len(self.items)

    @property
    def n_items(self) -> int:
        """The size of the corpus, for whoever searches it."""
        return len(self)

    def score(self, query: Any, positions: Positions) -> Floats:
        """Scores of one query with the items at `positions`, in that order."""
        return self.score_many([(query, positions)])[0]

    def score_many(self, requests: Sequence[Request]) -> list[Floats]:
        """The scores of every request, run as one list of pairs."""
        pairs = []
        sizes = []
        for query, positions in requests:
            positions = np.asarray(positions, np.int64)
            if positions.size and not (positions.min() >= 0 and positions.max() < len(self)):
                raise InputError(
                    f"positions {positions.min()} … {positions.max()} do not fit a corpus of {len(self)} items"
                )
            pairs += [(str(query), self.items[position]) for position in positions.tolist()]
            sizes.append(len(positions))
        scores = self.model.score_pairs(pairs)
        return np.split(scores, np.cumsum(sizes)[:-1]) if sizes else []


def fingerprint_of(model: Any) -> str:
    """SHA-256, shortened, of the weights and the length limit: what scores depend on."""
    digest = hashlib.sha256()
    limit = getattr(model, "max_seq_length", None) or getattr(model, "max_length", None)
    digest.update(f"{type(model).__name__} {limit}".encode())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()[:16]
