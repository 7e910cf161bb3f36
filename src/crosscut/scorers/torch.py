"""Cross-encoders in torch, on any device: those that sentence-transformers runs, and the papers' own checkpoints.

Scores are raw logits: sentence-transformers applies a sigmoid to models with one label unless told
otherwise, so the Identity is asked for. Pairs are sorted by length before they are batched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item, Items, items_of
from crosscut.encoders.bodies import filled_body, read_rows, torch_dtype
from crosscut.encoders.modules import check_modules
from crosscut.encoders.named import torch_fingerprint
from crosscut.encoders.pairs import Form, Row
from crosscut.encoders.running import Running, check_device
from crosscut.errors import InputError, ScorerError, needing
from crosscut.scorers.adapters import BoundTexts, TextRequest
from crosscut.scorers.base import BoundScorer, Scorer, ScoreResult
from crosscut.types import Floats


class TorchCrossEncoder(Scorer):
    """A sentence-transformers `CrossEncoder` as a crosscut scorer.

    >>> scorer = TorchCrossEncoder.load("cross-encoder/ms-marco-MiniLM-L6-v2")
    """

    local = True  # a call costs neither money nor a request: a server may warm it up

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
    def load(cls, model: str | Path, running: Running | None = None) -> TorchCrossEncoder:
        """A hub id or a folder."""
        with needing("hub cross-encoders run on sentence-transformers", "torch"):
            from sentence_transformers import CrossEncoder
        from torch.nn import Identity

        check_modules(model)
        how = running or Running()
        device = check_device(how.here())
        try:
            loaded = CrossEncoder(str(model), device=device, max_length=how.max_length, activation_fn=Identity())
        except (OSError, ValueError) as error:
            raise InputError(
                f"no cross-encoder can be loaded from {str(model)!r} ({error}); pass a hub id or a folder "
                "written by CrossEncoder.save_pretrained"
            ) from error
        if how.dtype != "fp32":
            loaded.to(torch_dtype(how.dtype))
        return cls(loaded, batch_size=how.batch_size, name=str(model))

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

    def answer(self, requests: Sequence[TextRequest]) -> list[ScoreResult]:
        """All requests, run as one list of pairs."""
        scores = self.score_pairs([(query, text) for query, texts in requests for text in texts])
        return [
            ScoreResult.of(part) for part in np.split(scores, np.cumsum([len(texts) for _, texts in requests])[:-1])
        ]

    def __repr__(self) -> str:
        return f"TorchCrossEncoder({self.name!r}, fingerprint={self.fingerprint!r})"


def is_published(model: str) -> bool:
    """Whether a model is one that sentence-transformers cannot score with: `emb+…`, or a checkpoint of the papers."""
    folder = Path(model)
    return (
        model.startswith("emb+") or "emb_crossenc" in model or any(folder.glob("*.torch")) or any(folder.glob("*.ckpt"))
    )


class TorchPairs(Scorer):
    """ANNCUR's and ADACUR's cross-encoders in torch: [EMB] and [CLS] heads on their own form of pairs.

    On the CPU `crosscut.scorers.exported` is faster; this is for other devices.
    """

    def __init__(
        self, body: Any, head: Any, form: Form, *, batch_size: int = 32, name: str = "", dtype: str = "fp32"
    ) -> None:
        self.body, self.head, self.form, self.batch_size, self.name = body, head, form, batch_size, name
        self.device = next(body.parameters()).device
        self._fingerprint = f"{torch_fingerprint(body)}-{type(form).__name__}-{dtype}"

    @classmethod
    def load(cls, model: str | Path, running: Running | None = None) -> TorchPairs:
        """A hub id or a folder; `emb+…` for ADACUR's."""
        from crosscut.encoders.exported import local_folder
        from crosscut.encoders.pairs import open_tokenizer
        from crosscut.scorers.exported import SavedModel, form_of

        name, how = str(model), running or Running()
        source = SavedModel(local_folder(name.removeprefix("emb+")), emb="emb" in name, max_length=how.max_length)
        _, head, form = source.read()
        body = filled_body(source.config, source.body_arrays(), name)
        body = body.to(check_device(how.here()), torch_dtype(how.dtype)).eval()
        made = form_of(open_tokenizer(source.folder), form)
        return cls(body, head, made, batch_size=how.batch_size, name=name, dtype=how.dtype)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """This model over items, each tokenised when first scored."""
        from crosscut.scorers.exported import BoundPairs

        return BoundPairs(self.form, self.score_rows, items_of(items))

    def score_rows(self, rows: Sequence[Row]) -> Floats:
        """Scores of rows, in order; the longest first, so that a batch that is too large fails at once."""
        import torch

        order = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
        scores = np.empty(len(rows), np.float64)
        with torch.inference_mode():
            for start in range(0, len(order), self.batch_size):
                places = order[start : start + self.batch_size]
                read = read_rows(self.body, [rows[place] for place in places])
                scores[places] = self._answer(read.float().cpu().numpy())
        return scores

    def _answer(self, read: Any) -> Any:
        """The head, on rows (b × r × D) that are back on the CPU."""
        if self.head.dot:
            return np.einsum("bd,bd->b", read[:, :-1].mean(axis=1), read[:, -1])
        vector = read[:, 0]
        for step in self.head.steps:
            if step.kind == "linear":
                vector = vector @ step.weight.T + (0 if step.bias is None else step.bias)
            elif step.kind == "tanh":
                vector = np.tanh(vector)
            else:
                raise InputError(f"{self.name!r} has a head with {step.kind!r}, which runs on the CPU only")
        return vector[:, 0]

    def __repr__(self) -> str:
        return f"TorchPairs({self.name!r}, fingerprint={self.fingerprint!r})"
