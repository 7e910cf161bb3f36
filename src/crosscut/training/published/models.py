"""The papers' models in torch, to be trained: cross-encoders with [EMB] or [CLS], dual encoders of two towers.

    [EMB]-CE   (h[M_s] + h[M_e]) / 2 · h[ENT], contextual states of special tokens (ANNCUR §2.6, app. A.1);
               h[CLS] · h[SEP] between plain texts (ADACUR app. B.1.2)
    [CLS]-CE   w · pool(h[CLS]) + b
    DE         h[CLS] of a query tower · h[CLS] of an item tower (BLINK's form); or the one tower of a
               sentence-transformers model, pooled as that model says

They are saved as their authors saved theirs, so that `crosscut.scorers` and `crosscut.encoders` load either.
"""

from __future__ import annotations

import json
import shutil
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from crosscut.datasets.records import Item, plain_text
from crosscut.encoders.bodies import filled_body, first_position, read_rows
from crosscut.encoders.checkpoints import read_config
from crosscut.encoders.exported import local_folder
from crosscut.encoders.modules import FILE, read_modules
from crosscut.encoders.pairs import MARKS, Form, Marked, Plain, Row, Text, open_tokenizer
from crosscut.encoders.states import of_one_length
from crosscut.encoders.towers import TOWERS, has_towers, read_towers, row_of
from crosscut.errors import InputError, needing
from crosscut.storage import write_file, write_json
from crosscut.training.loop import write_tensors

Kind = Literal["emb", "cls"]
TOKENS_PER_CALL = 1 << 14  # of texts that are embedded together, without a gradient


def open_body(folder: Path, weights: dict[str, npt.NDArray[np.float32]] | None = None, prefix: str = "") -> nn.Module:
    """The encoder of a folder that transformers wrote, or one under a prefix of a checkpoint's tensors."""
    with needing("the papers' recipes train models of transformers", "torch"):
        import transformers
    library: Any = transformers
    if weights is None:
        try:
            return library.AutoModel.from_pretrained(str(folder)).float()  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            raise InputError(f"no encoder can be started from {str(folder)!r} ({error})") from error
    body: nn.Module = filled_body(read_config(folder), weights, str(folder), prefix)
    return body


def open_marked(folder: Path) -> tuple[Any, int]:
    """The tokenizer of an encoder and the size of its vocabulary, with marks of mentions and titles: BERT's vocabulary
    has unused words for them, RoBERTa's gets three more."""
    tokenizer = open_tokenizer(folder)
    tokenizer.add_special_tokens([mark for mark in MARKS if tokenizer.token_to_id(mark) is None])
    return tokenizer, max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1


def widened(body: nn.Module, words: int) -> nn.Module:
    """The encoder with vectors for so many words, if it has fewer."""
    whole: Any = body
    if whole.config.vocab_size < words:
        whole.resize_token_embeddings(words)
    return body


class Savable(nn.Module, ABC):
    """A model that writes itself to a folder."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write what `load` of its kind reads."""


class PaperCross(Savable):
    """A cross-encoder as the papers publish theirs.

    form : `Marked`, mentions and entities with special tokens, or `Plain`, two texts.
    """

    def __init__(self, body: nn.Module, form: Marked | Plain, kind: Kind, folder: Path) -> None:
        super().__init__()
        if kind not in ("emb", "cls"):
            raise InputError(f"the head is 'emb' or 'cls', not {kind!r}")
        self.body, self.form, self.kind, self.folder = body, form, kind, folder
        config: Any = body.config
        if kind == "cls":
            self.linear = nn.Linear(int(config.hidden_size), 1)
            nn.init.normal_(self.linear.weight, std=0.02)
            nn.init.zeros_(self.linear.bias)

    @classmethod
    def start(cls, model: str | Path, kind: Kind = "emb", *, marked: bool = True, tokens: int = 128) -> PaperCross:
        """From an encoder such as bert-base-uncased; `tokens` a side if marked, else of a pair."""
        folder = local_folder(model)
        tokenizer, words = open_marked(folder) if marked else (open_tokenizer(folder), 0)
        form: Marked | Plain
        if marked:
            form = Marked.of(tokenizer, query_tokens=tokens, item_tokens=tokens, emb=kind == "emb")
        elif kind == "emb":
            form = Plain.of(tokenizer, tokens, emb=True)
        else:
            raise InputError(
                "a [CLS] cross-encoder on plain texts is what sentence-transformers trains; use it, or marked texts"
            )
        body = widened(open_body(folder), words)
        config: Any = body.config
        room = 2 * tokens if marked else tokens
        places = int(config.max_position_embeddings) - first_position(config)
        if places < room:
            raise InputError(
                f"pairs of {room} tokens do not fit the {places} positions of {str(model)!r}; use fewer tokens"
            )
        return cls(body, form, kind, folder)

    def forward(self, rows: Sequence[Row]) -> Tensor:
        """Scores (pairs,)."""
        read = read_rows(self.body, rows)  # (pairs, r, D)
        if self.kind == "emb":
            return (read[:, :-1].mean(1) * read[:, -1]).sum(1)  # type: ignore[no-any-return]
        vector = read[:, 0]
        pooler: Any = getattr(self.body, "pooler", None)
        if pooler is not None:
            vector = torch.tanh(pooler.dense(vector))
        return self.linear(vector)[:, 0]  # type: ignore[no-any-return]

    def save(self, folder: Path) -> None:
        """As the authors save theirs: `crosscut.scorers` loads the folder (`emb+…` if the texts are plain)."""
        config: Any = self.body.config
        folder.mkdir(parents=True, exist_ok=True)
        if isinstance(self.form, Marked):
            tensors = {f"encoder.bert_model.{name}": value for name, value in self.body.state_dict().items()}
            pooled = getattr(self.body, "pooler", None) is not None
            if self.kind == "cls":
                tensors["encoder.additional_linear.weight"] = self.linear.weight
                tensors["encoder.additional_linear.bias"] = self.linear.bias
            _save(folder / "model.torch", tensors)
            write_json(
                folder / "wrapper_config.json",
                {
                    "max_input_len": self.form.query_tokens,
                    "max_label_len": self.form.item_tokens,
                    "pooling_type": "cls_w_lin" if pooled else "cls",
                },
            )
        else:
            write_tensors(folder / "model.safetensors", self.body.state_dict())
            write_json(folder / "tokenizer_config.json", {"model_max_length": self.form.longest})
        write_file(folder / "tokenizer.json", [self.form.tokenizer.to_str().encode()])
        write_json(folder / "config.json", json.loads(config.to_json_string()))


class Sentences:
    """Texts as a sentence-transformers model reads them: with what the tokenizer puts around one."""

    def __init__(self, tokenizer: Any, longest: int) -> None:
        self.tokenizer, self.longest = tokenizer, longest

    def queries(self, texts: Sequence[str]) -> list[Text]:
        self.tokenizer.enable_truncation(self.longest)
        return [Text(np.asarray(one.ids, np.int64)) for one in self.tokenizer.encode_batch(list(texts))]

    def items(self, items: Sequence[Item | str]) -> list[Text]:
        return self.queries([plain_text(item) for item in items])

    def join(self, query: Text, item: Text) -> Row:
        raise InputError("a dual encoder reads query and item apart")


class Towers(Savable):
    """A dual encoder: a tower of queries and one of items, or one tower for both.

    scale : what inner products are multiplied with to be scores: 20 where vectors have unit length, else 1.
    """

    def __init__(
        self, bodies: Sequence[nn.Module], form: Form, folder: Path, *, mean: bool = False, unit: bool = False
    ) -> None:
        super().__init__()
        self.bodies = nn.ModuleList(bodies)
        self.form, self.folder, self.mean, self.unit = form, folder, mean, unit
        self.scale = 20.0 if unit else 1.0

    @classmethod
    def start(cls, model: str | Path, *, tokens: int = 128) -> Towers:
        """From what there is: towers that were trained (DE_BASE), a sentence-transformers model (DE_SRC of BEIR), or
        an encoder that knows nothing of the task, twice (DE_BERT)."""
        folder = local_folder(model)
        if (folder / FILE).is_file():
            return cls._sentences(folder, tokens)
        tokenizer, words = open_marked(folder)
        form = Marked.of(tokenizer, query_tokens=tokens, item_tokens=tokens)
        if not has_towers(folder):
            return cls([widened(open_body(folder), words) for _ in range(2)], form, folder)
        saved, names = read_towers(folder)
        return cls([open_body(folder, saved, f"{name}.bert_model.") for name in names], form, folder)

    @classmethod
    def _sentences(cls, folder: Path, tokens: int) -> Towers:
        modules = read_modules(folder)
        kinds = [one.kind for one in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or set(kinds[2:]) - {"Normalize"}:
            raise InputError(f"{str(folder)!r} is made of {', '.join(kinds)}; train an encoder with pooling")
        pooling = json.loads((modules[1].folder / "config.json").read_text("utf-8"))
        mean = bool(pooling.get("pooling_mode_mean_tokens", pooling.get("pooling_mode") == "mean"))
        if not mean and not (pooling.get("pooling_mode_cls_token") or pooling.get("pooling_mode") == "cls"):
            raise InputError(f"{str(folder)!r} pools neither by the mean nor by the first token: choose another")
        told = folder / "config_sentence_transformers.json"
        own = json.loads(told.read_text("utf-8")).get("similarity_fn_name") if told.is_file() else None
        inner = modules[0].folder
        form = Sentences(open_tokenizer(inner), tokens)
        return cls([open_body(inner)], form, folder, mean=mean, unit="Normalize" in kinds or own not in ("dot",))

    @property
    def width(self) -> int:
        config: Any = self.bodies[0].config
        return int(config.hidden_size)

    def forward(self, texts: Sequence[Text], side: int) -> Tensor:
        """Vectors (texts × D) of queries (side 0) or of items (side 1)."""
        body = self.bodies[side % len(self.bodies)]
        rows = [row_of(text) for text in texts]
        if self.mean:
            states, mask = read_rows(body, rows, whole=True)
            weights = mask[..., None].to(states.dtype)
            vectors = (states * weights).sum(1) / weights.sum(1)
        else:
            vectors = read_rows(body, rows)[:, 0]
        return functional.normalize(vectors, dim=1) if self.unit else vectors

    @torch.no_grad()
    def embed(self, texts: Sequence[Text], side: int) -> npt.NDArray[np.float32]:
        """Vectors (texts × D) without a gradient, texts of one length together."""
        was = self.training
        self.eval()
        rows = np.zeros((len(texts), self.width), np.float32)
        for places in of_one_length(texts, TOKENS_PER_CALL):
            rows[places] = self([texts[place] for place in places], side).float().cpu().numpy()
        self.train(was)
        return rows

    def save(self, folder: Path) -> None:
        """As towers (BLINK's names); a sentence-transformers model as it was, with its new weights."""
        folder.mkdir(parents=True, exist_ok=True)
        if len(self.bodies) == 1:
            if folder.resolve() != self.folder.resolve():
                shutil.copytree(self.folder, folder, dirs_exist_ok=True)
            inner = read_modules(folder)[0].folder
            write_tensors(inner / "model.safetensors", self.bodies[0].state_dict(), {"format": "pt"})
            (inner / "pytorch_model.bin").unlink(missing_ok=True)
            return
        assert isinstance(self.form, Marked)
        config: Any = self.bodies[0].config
        tensors = {
            f"{name}.bert_model.{key}": value
            for name, body in zip(TOWERS[0], self.bodies, strict=True)
            for key, value in body.state_dict().items()
        }
        _save(folder / "model.torch", tensors)
        write_file(folder / "tokenizer.json", [self.form.tokenizer.to_str().encode()])
        limits = {"max_input_len": self.form.query_tokens, "max_label_len": self.form.item_tokens}
        write_json(folder / "wrapper_config.json", limits)
        write_json(folder / "config.json", json.loads(config.to_json_string()))


def _save(path: Path, tensors: dict[str, Tensor]) -> None:
    """A torch state dict, written whole or not at all."""
    import io

    buffer = io.BytesIO()
    torch.save({name: value.detach().cpu() for name, value in tensors.items()}, buffer)
    write_file(path, [buffer.getvalue()])
