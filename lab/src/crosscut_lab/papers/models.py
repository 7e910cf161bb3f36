"""The papers' models in torch: cross-encoders with [EMB] or [CLS] heads, dual encoders of two towers.

    [EMB]-CE   (h[M_s] + h[M_e]) / 2 · h[ENT], states of special tokens (ANNCUR §2.6, app. A.1);
               h[CLS] · h[SEP] between plain texts (ADACUR app. B.1.2)
    [CLS]-CE   w · h[CLS] + b
    DE         h[CLS] of a query tower · h[CLS] of an item tower (BLINK's form)

A mention and an entity are marked as ANNCUR's authors marked them, and checkpoints have their names of tensors:

    [CLS] left [M_s] mention [M_e] right [SEP]   title [ENT] description [SEP]

The positions of the item begin behind the room of the query, as if the query had been padded.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from crosscut.datasets.records import MENTION_END, MENTION_START, Item, plain_text
from crosscut.errors import InputError
from crosscut.scorers.adapters import TextScorer

Kind: TypeAlias = Literal["emb", "cls"]
MARKS = ("[unused0]", "[unused1]", "[unused2]")  # [M_s], [M_e], [ENT]
ENDS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))  # of BERT, of RoBERTa
TITLE_MARK = "[ENT]"
TOWERS = (("input_encoder", "label_encoder"), ("context_encoder", "cand_encoder"))  # ANNCUR's names, BLINK's
BATCH = 32


class Text(NamedTuple):
    """Tokens of one text with its special tokens, the places of its marks, and the text itself."""

    ids: list[int]
    marks: tuple[int, ...] = ()
    raw: str = ""


class Row(NamedTuple):
    """Tokens, segments and positions (l), and the places that a head reads (r)."""

    ids: list[int]
    types: list[int]
    positions: list[int]
    reads: list[int]


def split_mention(text: str) -> tuple[str, str, str]:
    """Split `left [START] mention [END] right`; without marks everything is left context."""
    left, start, rest = text.partition(MENTION_START)
    mention, end, right = rest.partition(MENTION_END)
    return (left, mention, right) if start and end else (text, "", "")


def split_title(item: Item | str) -> tuple[str, str]:
    """Return title and description; a text has its title on the first line or before `[ENT]`."""
    if isinstance(item, Item):
        return (item.title, item.text) if item.title and item.text else ("", item.title or item.text)
    mark = TITLE_MARK if TITLE_MARK in item else "\n"
    title, found, body = item.partition(mark)
    return (title, body) if found else ("", item)


class Marked:
    """A mention in its context, and an entity with its title (ANNCUR app. A.1)."""

    def __init__(self, tokenizer: Any, tokens: int, kind: Kind = "emb") -> None:
        self.tokenizer, self.tokens, self.kind = tokenizer, tokens, kind
        ends = next((pair for pair in ENDS if tokenizer.token_to_id(pair[0]) is not None), ENDS[0])
        tokenizer.add_special_tokens([mark for mark in MARKS if tokenizer.token_to_id(mark) is None])
        self.first, self.last = (tokenizer.token_to_id(name) for name in ends)
        self.start, self.end, self.title = (tokenizer.token_to_id(mark) for mark in MARKS)

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def query(self, text: str) -> Text:
        left, mention, right = (self._ids(part) for part in split_mention(text))
        room = self.tokens - 2
        mention = mention[: room - 2]
        if not mention and not right:  # nothing is marked: the marks enclose the text
            left, mention = [], left[: room - 2]
        marked = [self.start, *mention, self.end]
        before = (self.tokens - len(marked)) // 2 - 1
        after = room - len(marked) - before
        if len(left) <= before and len(right) > after:
            after += before - len(left)
        elif len(left) > before and len(right) <= after:
            before += after - len(right)
        kept = left[max(0, len(left) - before) :]
        place = 1 + len(kept)
        return Text([self.first, *kept, *marked, *right[:after], self.last], (place, place + len(marked) - 1), text)

    def item(self, item: Item | str) -> Text:
        title, body = (self._ids(part) for part in split_title(item))
        title = title[: self.tokens - 3]  # the mark is read: it is never cut off
        ids = [self.first, *[*title, self.title, *body][: self.tokens - 2], self.last]
        return Text(ids, (1 + len(title),), plain_text(item))

    def join(self, query: Text, item: Text) -> Row:
        start = len(query.ids)
        ids = [*query.ids, *item.ids[1:]]
        types = [0] * start + [1] * (len(ids) - start)
        behind = [place + self.tokens - start for place in range(start, len(ids))]
        reads = [*query.marks, start + item.marks[0] - 1] if self.kind == "emb" else [0]
        return Row(ids, types, [*range(start), *behind], reads)


class Plain:
    """Two texts as the tokenizer joins them; [CLS] and the token between the texts are read (ADACUR app. B.1.2)."""

    kind: Kind = "emb"

    def __init__(self, tokenizer: Any, tokens: int) -> None:
        self.tokenizer, self.tokens = tokenizer, tokens
        tokenizer.enable_truncation(tokens)

    def query(self, text: str) -> Text:
        return Text(list(self.tokenizer.encode(text).ids), raw=text)

    def item(self, item: Item | str) -> Text:
        return self.query(plain_text(item))

    def join(self, query: Text, item: Text) -> Row:
        both = self.tokenizer.encode(query.raw, item.raw)
        between = max((place for place, side in enumerate(both.sequence_ids) if side == 0), default=0) + 1
        return Row(list(both.ids), list(both.type_ids), list(range(len(both.ids))), [0, between])


def first_position(config: Any) -> int:
    """Return the position of the first token: RoBERTa counts from behind its padding."""
    return int(config.pad_token_id) + 1 if "roberta" in str(config.model_type) else 0


def read_rows(body: nn.Module, rows: Sequence[Row]) -> Tensor:
    """Return states of the last layer where each row is read (b × r × D)."""
    config: Any = body.config
    device = next(body.parameters()).device
    width = max(len(row.ids) for row in rows)

    def padded(name: str) -> Tensor:
        return torch.tensor([[*getattr(row, name), *[0] * (width - len(row.ids))] for row in rows], device=device)

    lengths = torch.tensor([len(row.ids) for row in rows], device=device)
    mask = torch.arange(width, device=device)[None] < lengths[:, None]
    inputs = {"input_ids": padded("ids"), "attention_mask": mask.long()}
    takes = inspect.signature(body.forward).parameters
    # ModernBERT knows distances alone: the gap before an item means nothing to it
    if str(config.model_type) != "modernbert" and "position_ids" in takes:
        inputs["position_ids"] = padded("positions") + first_position(config)
    if int(getattr(config, "type_vocab_size", 0) or 0) > 1:
        inputs["token_type_ids"] = padded("types")
    states = body(**inputs).last_hidden_state
    reads = torch.tensor([row.reads for row in rows], device=device)
    return states[torch.arange(len(rows), device=device)[:, None], reads]  # type: ignore[no-any-return]


def local_folder(model: str | Path) -> Path:
    """Return the folder of a model; a hub id is downloaded."""
    if Path(model).is_dir():
        return Path(model)
    if str(model).count("/") != 1:
        raise InputError(f"there is no model folder {str(model)!r}; pass a folder or a hub id 'organisation/name'")
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(str(model)))


def open_tokenizer(folder: Path) -> Any:
    """Return the fast tokenizer of a folder: tokenizer.json, or a vocabulary of word pieces."""
    import tokenizers

    if (folder / "tokenizer.json").is_file():
        made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    elif (folder / "vocab.txt").is_file():
        made = tokenizers.BertWordPieceTokenizer(str(folder / "vocab.txt"))._tokenizer
    else:
        raise InputError(f"{str(folder)!r} has neither tokenizer.json nor vocab.txt; save the tokenizer beside it")
    made.no_truncation()
    made.no_padding()
    return made


def checkpoint(folder: Path) -> Path | None:
    """Return the file of weights of one of the papers' checkpoints, if the folder holds one."""
    return next((path for ending in ("*.torch", "*.ckpt") for path in sorted(folder.glob(ending))), None)


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    saved = torch.load(path, map_location="cpu", weights_only=True)
    found: dict[str, Tensor] = saved.get("state_dict", saved)
    return {name.removeprefix("model."): value.float() for name, value in found.items()}


def open_body(folder: Path, tensors: dict[str, Tensor] | None = None, prefix: str = "") -> nn.Module:
    """Return the encoder of a folder that transformers wrote, or one filled with tensors under a prefix."""
    import transformers

    library: Any = transformers
    if tensors is None:
        try:
            return library.AutoModel.from_pretrained(str(folder)).float()  # type: ignore[no-any-return]
        except (OSError, ValueError) as error:
            raise InputError(f"no encoder can be started from {str(folder)!r} ({error})") from error
    config = json.loads((folder / "config.json").read_text("utf-8"))
    body: nn.Module = library.AutoModel.from_config(library.AutoConfig.for_model(**config))
    own = {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
    widen(body, max((len(value) for name, value in own.items() if "word_embeddings" in name), default=0))
    missing, _ = body.load_state_dict(own, strict=False)
    lacking = [name for name in missing if "pooler" not in name and "position_ids" not in name]
    if lacking:
        raise InputError(f"{str(folder)!r} lacks the tensor {prefix + lacking[0]!r}; save the model again")
    return body


def widen(body: nn.Module, words: int) -> nn.Module:
    """Give an encoder vectors for so many words, if it has fewer."""
    whole: Any = body
    if whole.config.vocab_size < words:
        whole.resize_token_embeddings(words)
    return body


def vocabulary(tokenizer: Any) -> int:
    return int(max(tokenizer.get_vocab(with_added_tokens=True).values())) + 1


class PaperModel(nn.Module):
    """A model that reads texts in one form and writes itself as the papers' authors wrote theirs."""

    form: Marked | Plain

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights by the names of the checkpoint."""
        raise NotImplementedError

    @property
    def config(self) -> Any:
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    @property
    def fingerprint(self) -> str:
        digest = hashlib.sha256(f"{type(self.form).__name__} {self.form.kind} {self.form.tokens}".encode())
        for value in self.state_dict().values():
            digest.update(value.detach().cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def save(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        buffer = io.BytesIO()
        torch.save({name: value.detach().cpu() for name, value in self.tensors().items()}, buffer)
        (folder / "model.torch").write_bytes(buffer.getvalue())
        (folder / "tokenizer.json").write_text(self.form.tokenizer.to_str(), "utf-8")
        (folder / "config.json").write_text(self.config.to_json_string(), "utf-8")
        plain = isinstance(self.form, Plain)
        limits = {"max_input_len": self.form.tokens, "max_label_len": self.form.tokens, "plain": plain}
        (folder / "wrapper_config.json").write_text(json.dumps(limits), "utf-8")


def limits_of(folder: Path) -> dict[str, Any]:
    path = folder / "wrapper_config.json"
    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


class PaperCross(PaperModel):
    """A cross-encoder with an [EMB] or a [CLS] head."""

    def __init__(self, body: nn.Module, form: Marked | Plain) -> None:
        super().__init__()
        self.body, self.form = body, form
        config: Any = body.config
        if form.kind == "cls":
            self.linear = nn.Linear(int(config.hidden_size), 1)
            nn.init.normal_(self.linear.weight, std=0.02)
            nn.init.zeros_(self.linear.bias)
        room = 2 * form.tokens if isinstance(form, Marked) else form.tokens
        places = int(config.max_position_embeddings) - first_position(config)
        if places < room:
            raise InputError(f"pairs of {room} tokens do not fit {places} positions of the encoder; use fewer tokens")

    @classmethod
    def start(cls, model: str | Path, kind: Kind = "emb", *, marked: bool = True, tokens: int = 128) -> PaperCross:
        """Start from an encoder such as bert-base-uncased; `tokens` a side if marked, else of a pair."""
        if kind not in ("emb", "cls") or (kind == "cls" and not marked):
            raise InputError(f"a head of kind {kind!r} on {'marked' if marked else 'plain'} texts is not one of these")
        folder = local_folder(model)
        tokenizer = open_tokenizer(folder)
        form = Marked(tokenizer, tokens, kind) if marked else Plain(tokenizer, tokens)
        return cls(widen(open_body(folder), vocabulary(tokenizer)), form)

    @classmethod
    def load(cls, model: str | Path) -> PaperCross:
        """Load a checkpoint, or with `emb+` a model of plain texts (ADACUR's)."""
        name = str(model)
        folder = local_folder(name.removeprefix("emb+"))
        limits, tokenizer, path = limits_of(folder), open_tokenizer(folder), checkpoint(folder)
        tokens = int(limits.get("max_input_len", 512 if name.startswith("emb+") else 128))
        saved = None if path is None else read_checkpoint(path)
        head = "encoder.additional_linear."
        kind: Kind = "cls" if saved is not None and f"{head}weight" in saved else "emb"
        plain = name.startswith("emb+") or limits.get("plain")
        form = Plain(tokenizer, tokens) if plain else Marked(tokenizer, tokens, kind)
        made = cls(open_body(folder, saved, "encoder.bert_model." if saved is not None else ""), form)
        if saved is not None and kind == "cls":
            made.linear.load_state_dict({part: saved[head + part] for part in ("weight", "bias")})
        return made.eval()

    @property
    def config(self) -> Any:
        return self.body.config

    def forward(self, rows: Sequence[Row]) -> Tensor:
        """Return scores (pairs,)."""
        read = read_rows(self.body, rows)  # (pairs, r, D)
        if self.form.kind == "emb":
            return (read[:, :-1].mean(1) * read[:, -1]).sum(1)
        return self.linear(read[:, 0])[:, 0]  # type: ignore[no-any-return]

    def tensors(self) -> dict[str, Tensor]:
        named = {f"encoder.bert_model.{name}": value for name, value in self.body.state_dict().items()}
        if self.form.kind == "cls":
            named |= {f"encoder.additional_linear.{n}": value for n, value in self.linear.state_dict().items()}
        return named

    @torch.inference_mode()
    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        """Return the scores of one query with texts, longest pairs first."""
        asked = self.form.query(query)
        rows = [self.form.join(asked, self.form.item(text)) for text in texts]
        order = sorted(range(len(rows)), key=lambda place: -len(rows[place].ids))
        scores = [0.0] * len(rows)
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            for place, value in zip(some, self([rows[p] for p in some]).tolist(), strict=True):
                scores[place] = value
        return scores


class Towers(PaperModel):
    """A dual encoder of a query tower and an item tower; scores are inner products."""

    def __init__(self, bodies: Sequence[nn.Module], form: Marked) -> None:
        super().__init__()
        self.bodies, self.form = nn.ModuleList(bodies), form

    @classmethod
    def start(cls, model: str | Path, *, tokens: int = 128) -> Towers:
        """Start from trained towers (DE_BASE), or from an encoder that knows nothing of the task, twice (DE_BERT)."""
        folder = local_folder(model)
        path = checkpoint(folder)
        form = Marked(open_tokenizer(folder), int(limits_of(folder).get("max_input_len", tokens)))
        if path is None:
            return cls([widen(open_body(folder), vocabulary(form.tokenizer)) for _ in range(2)], form)
        saved = read_checkpoint(path)
        found = next((pair for pair in TOWERS if any(name.startswith(f"{pair[0]}.") for name in saved)), None)
        if found is None:
            known = " or ".join(" and ".join(pair) for pair in TOWERS)
            raise InputError(f"{str(folder)!r} holds no dual encoder of two towers ({known})")
        return cls([open_body(folder, saved, f"{name}.bert_model.") for name in found], form).eval()

    @property
    def config(self) -> Any:
        return self.bodies[0].config

    def forward(self, texts: Sequence[Text], side: int) -> Tensor:
        """Return vectors (texts × D) of queries (side 0) or of items (side 1)."""
        rows = [Row(one.ids, [0] * len(one.ids), list(range(len(one.ids))), [0]) for one in texts]
        return read_rows(self.bodies[side], rows)[:, 0]

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{name}.bert_model.{key}": value
            for name, body in zip(TOWERS[0], self.bodies, strict=True)
            for key, value in body.state_dict().items()
        }

    @torch.no_grad()
    def embed(self, texts: Sequence[Text], side: int) -> npt.NDArray[np.float32]:
        """Return vectors (texts × D) without a gradient, longest texts first."""
        was = self.training
        self.eval()
        rows = np.zeros((len(texts), int(self.config.hidden_size)), np.float32)
        order = sorted(range(len(texts)), key=lambda place: -len(texts[place].ids))
        for start in range(0, len(order), BATCH):
            some = order[start : start + BATCH]
            rows[some] = self([texts[place] for place in some], side).float().cpu().numpy()
        self.train(was)
        return rows

    def encode_queries(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return self.embed([self.form.query(text) for text in texts], 0)

    def encode_items(self, items: Sequence[Item | str], **_: Any) -> npt.NDArray[np.float32]:
        return self.embed([self.form.item(item) for item in items], 1)


def load_scorer(name: str, device: str = "cpu") -> Any:
    """Return a scorer by name: a checkpoint of the papers (`emb+…` of plain texts), or what the library loads."""
    if name.startswith("emb+") or (Path(name).is_dir() and checkpoint(Path(name)) is not None):
        model = PaperCross.load(name).to(device)
        return TextScorer(model.score, fingerprint=model.fingerprint)
    from crosscut.scorers.loading import load_scorer as library

    return library(name)


def load_encoder(name: str, device: str = "cpu") -> Any:
    """Return a dual encoder by name: towers of the papers, or what the library loads."""
    if Path(name).is_dir() and checkpoint(Path(name)) is not None:
        return Towers.start(name).to(device).eval()
    from crosscut.models.bi_encoder import load_encoder as library

    return library(name)
