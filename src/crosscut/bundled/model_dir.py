"""A directory that holds a bundled model: its configuration, its ONNX sessions and its fingerprint.

config.json      width, limits of tokens, version of the format
tokenizer.json   the vocabulary
lower.onnx       embeddings and the first layers of the dual encoder
dual.onnx        its remaining layers and the pooling
weights.json     weights of the base scores (`crosscut.bundled.base_scores`)
lexicon.json     how common words are, over many collections
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from crosscut.bundled.tokenizer import Tokenizer
from crosscut.errors import InputError
from crosscut.models.session import OnnxSession
from crosscut.threads import ForkLock, cores

FORMAT = 5
DEFAULT = "default"


def default_dir() -> Path:
    """Return where the model that comes with the package lies."""
    return Path(__file__).parent.parent / "data" / "models"


def is_model_dir(name: str) -> bool:
    """Return whether a name is that of a bundled model: "default", or a directory of the same files."""
    return name == DEFAULT or (Path(name) / "dual.onnx").is_file()


class ModelDir:
    """The files of a model.

    Parameters
    ----------
    path : the directory, or "default".
    threads : calls of the model that run at a time, each on a thread of its own; by default one a core.
    """

    def __init__(self, path: str | Path = DEFAULT, *, threads: int | None = None) -> None:
        self.path = default_dir() if str(path) == DEFAULT else Path(path)
        self.threads = threads if threads is not None else cores()
        if self.threads < 1:
            raise InputError(f"{threads} threads cannot run a model; use 1 or more")
        if not (self.path / "config.json").is_file():
            raise InputError(
                f"there is no crosscut model at {str(path)!r} (no config.json in {str(self.path)!r}); pass 'default' "
                "or a copy of that directory"
            )
        try:
            config: dict[str, Any] = json.loads((self.path / "config.json").read_text("utf-8"))
            version = config["format"]
            self.width = int(config["width"]) if version == FORMAT else 0
            limits = {side: int(config[f"{side}_tokens"]) for side in ("query", "item")}
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(
                f"{str(self.path / 'config.json')!r} is not the configuration of a crosscut model ({error!r})"
            ) from error
        if version != FORMAT:
            raise InputError(
                f"the model at {str(self.path)!r} has format {version}, and this version reads {FORMAT}; use the model "
                "that comes with this version"
            )
        self.tokenizer = Tokenizer(
            self.path / "tokenizer.json", query_tokens=limits["query"], item_tokens=limits["item"]
        )
        self._sessions: dict[str, OnnxSession] = {}
        self._lock = ForkLock()

    def session(self, name: str) -> OnnxSession:
        """Return one of the ONNX files, ready to run; it is loaded once."""
        with self._lock:
            if name in self._sessions:
                return self._sessions[name]
        path = self.path / name
        if not path.is_file():
            raise InputError(
                f"the model at {str(self.path)!r} has no {name}; it holds "
                f"{sorted(file.name for file in self.path.glob('*.onnx'))}"
            )
        session = OnnxSession(path, self.threads)
        with self._lock:
            return self._sessions.setdefault(name, session)

    def fingerprint(self, *names: str) -> str:
        """Return a shortened SHA-256 of the configuration, the tokenizer and these files."""
        digest = hashlib.sha256()
        for name in ("config.json", "tokenizer.json", *names):
            path = self.path / name
            if not path.is_file():
                raise InputError(f"the model at {str(self.path)!r} has no {name}")
            digest.update(name.encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]


_open: WeakValueDictionary[tuple[Any, ...], ModelDir] = WeakValueDictionary()


def open_model_dir(path: str | Path = DEFAULT, *, threads: int | None = None) -> ModelDir:
    """Return a model directory; callers that open the same one share its sessions and caches."""
    model = ModelDir(path, threads=threads)
    files = sorted(model.path.iterdir())
    state = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return _open.setdefault((str(model.path.resolve()), model.threads, *state), model)
