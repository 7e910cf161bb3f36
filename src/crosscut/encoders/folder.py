"""A model folder on disk: its configuration, its ONNX sessions and its fingerprint.

`crosscut.training.export` says what lies in a folder. "default" names the one inside the package.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from crosscut.encoders.recent import Recent
from crosscut.encoders.session import OnnxSession
from crosscut.encoders.states import States, encode_alone
from crosscut.encoders.tokens import Tokenizer, Tokens
from crosscut.errors import InputError
from crosscut.threads import ForkLock, cores

if TYPE_CHECKING:
    from crosscut.encoders.dual import ReadText
    from crosscut.encoders.known import Constants

FORMAT = 4
READABLE = (3, 4)
"""Formats that this version reads; 3 had no known part."""
DEFAULT = "default"
REMEMBERED_QUERIES = 128


def default_folder() -> Path:
    """Where the models in the box lie."""
    return Path(__file__).parent.parent / "data" / "models"


class ModelFolder:
    """A folder made by `crosscut.training.export`.

    Parameters
    ----------
    path : the folder, or "default".
    threads : how many calls of a model run at a time, each on a thread of its own; by default one a core.
    """

    def __init__(self, path: str | Path = DEFAULT, *, threads: int | None = None) -> None:
        self.path = default_folder() if str(path) == DEFAULT else Path(path)
        self.threads = threads if threads is not None else cores()
        if self.threads < 1:
            raise InputError(f"{threads} threads cannot run a model; use 1 or more")
        if not (self.path / "config.json").is_file():
            raise InputError(
                f"there is no crosscut model at {str(path)!r} (no config.json in {str(self.path)!r}); "
                f"pass 'default' "
                "or a folder written by `crosscut train`; hub models are loaded by crosscut.scorers.torch"
            )
        try:
            self.config: dict[str, Any] = json.loads((self.path / "config.json").read_text("utf-8"))
            if self.config["format"] not in READABLE:
                raise InputError(
                    f"the model at {str(self.path)!r} has format {self.config['format']}, this version "
                    f"reads {FORMAT}; "
                    "update crosscut or export the model again"
                )
            self.width = int(self.config["shape"]["hidden_size"])
            limits = {side: int(self.config[f"{side}_tokens"]) for side in ("query", "item")}
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{str(self.path / 'config.json')!r} is not a crosscut model configuration ({error!r}); "
                "hub models are loaded by crosscut.scorers.torch"
            ) from error
        self.tokenizer = Tokenizer(
            self.path / "tokenizer.json", query_tokens=limits["query"], item_tokens=limits["item"]
        )
        self._queries: Recent[tuple[States, Tokens]] = Recent(REMEMBERED_QUERIES)
        self.read: Recent[ReadText] = Recent(REMEMBERED_QUERIES)  # by the dual encoder
        self._sessions: dict[str, OnnxSession] = {}
        self._lock = ForkLock()

    def session(self, name: str) -> OnnxSession:
        """One file of the folder, ready to run; loaded once."""
        with self._lock:
            if name in self._sessions:
                return self._sessions[name]
        path = self.path / name
        if not path.is_file():
            raise InputError(
                f"the model at {str(self.path)!r} has no {name}; it holds "
                f"{sorted(file.name for file in self.path.glob('*.onnx'))}"
            )
        made = OnnxSession(path, self.threads)
        with self._lock:
            return self._sessions.setdefault(name, made)

    @cached_property
    def lower(self) -> OnnxSession:
        """The layers that read a text alone."""
        return self.session("lower.onnx")

    @property
    def knows(self) -> bool:
        """Whether the cross-encoder corrects what is known without it (`crosscut.encoders.known`)."""
        return bool(self.config.get("known", False))

    @cached_property
    def known(self) -> Constants:
        """The constants of the known part."""
        from crosscut.encoders.known import TOKEN_IDF, Constants

        made = Constants.load(self.path)
        weighed, tokens = len(made.token_idf), self.tokenizer.vocabulary_size
        if weighed < tokens:
            raise InputError(
                f"the model at {str(self.path)!r} weighs {weighed} tokens in {TOKEN_IDF}, and its tokenizer has "
                f"{tokens}; export the model again"
            )
        return made

    def read_queries(self, texts: Sequence[str]) -> list[tuple[States, Tokens]]:
        """States and tokens of queries; the dual encoder, the cross-encoder and every round ask for the same ones."""
        return self._queries.of(texts, self._read_queries)

    def _read_queries(self, texts: Sequence[str]) -> list[tuple[States, Tokens]]:
        tokens = [self.tokenizer.query(text) for text in texts]
        states = [one.copy() for one in encode_alone(self.lower, tokens)]  # no view of a whole call is kept
        return list(zip(states, tokens, strict=True))

    def fingerprint(self, *names: str) -> str:
        """SHA-256, shortened, of the files that scores depend on."""
        digest = hashlib.sha256()
        for name in ("config.json", "tokenizer.json", *names):
            path = self.path / name
            if not path.is_file():
                raise InputError(f"the model at {str(self.path)!r} has no {name}")
            digest.update(name.encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


_open: WeakValueDictionary[tuple[Any, ...], ModelFolder] = WeakValueDictionary()


def open_folder(path: str | Path = DEFAULT, *, threads: int | None = None) -> ModelFolder:
    """A model folder; a cross-encoder and a dual encoder of one folder share it, and so their lower layers."""
    folder = ModelFolder(path, threads=threads)
    files = sorted(folder.path.iterdir())
    state = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return _open.setdefault((str(folder.path.resolve()), folder.threads, *state), folder)
