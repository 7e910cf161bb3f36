"""Cross-encoders from a hub or a path, run by sentence-transformers; the same interface as `scorers.onnx`.

Scores are raw logits: sentence-transformers applies a sigmoid to models with one label unless told
otherwise, so the Identity is asked for. Pairs are sorted by length before they are batched.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item, Items, items_of
from crosscut.encoders.named import torch_fingerprint
from crosscut.errors import InputError, MissingDependency, ScorerError
from crosscut.scorers.base import Answer, BoundScorer, Scorer
from crosscut.scorers.texts import BoundTexts, TextRequest
from crosscut.types import Floats


class TorchCrossEncoder(Scorer):
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
        self._fingerprint = torch_fingerprint(model)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        device: str | None = None,
        max_length: int | None = None,
        batch_size: int = 32,
        options: Mapping[str, Any] | None = None,
    ) -> TorchCrossEncoder:
        """A hub id or a folder; `options` go to `sentence_transformers.CrossEncoder`."""
        try:
            from sentence_transformers import CrossEncoder
        except ImportError as error:
            raise MissingDependency("hub cross-encoders run on sentence-transformers", "torch") from error
        from torch.nn import Identity

        try:
            loaded = CrossEncoder(
                str(model), device=device, max_length=max_length, activation_fn=Identity(), **(options or {})
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"no cross-encoder can be loaded from {str(model)!r} ({error}); pass a hub id or a folder "
                "written by CrossEncoder.save_pretrained"
            ) from error
        return cls(loaded, batch_size=batch_size, name=str(model))

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

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

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """This model over items, whose texts are title, newline, text."""
        return BoundTexts(items_of(items), self.answer)

    def answer(self, requests: Sequence[TextRequest]) -> list[Answer]:
        """All requests, run as one list of pairs."""
        scores = self.score_pairs([(query, text) for query, texts in requests for text in texts])
        return [Answer.of(part) for part in np.split(scores, np.cumsum([len(texts) for _, texts in requests])[:-1])]

    def __repr__(self) -> str:
        return f"TorchCrossEncoder({self.name!r}, fingerprint={self.fingerprint!r})"
