"""What the server allows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.index import Index

TOKEN_ENV = "CROSSCUT_TOKEN"
WRITE_TOKEN_ENV = "CROSSCUT_WRITE_TOKEN"
USUAL = 100  # calls, where neither the server nor the index says another number
LOCAL = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Settings:
    """Limits and choices of a server.

    Parameters
    ----------
    max_budget, max_k, max_deadline
        Caps on what one request may ask for: calls of the scorer, hits, seconds.
    default_budget, default_deadline
        For requests that do not say. Without a default budget they have what the index was tuned to, or 100; without a
        default deadline the longest.
    max_documents, max_query
        Documents of one rerank request, characters of a query.
    max_body, max_values, max_held
        Bytes of a request's body, values in its JSON, and bytes of all bodies that are held at a time.
    max_connections
        Open connections. One more, and the one that has kept the server waiting longest is closed.
    per_client
        Requests that one client (its address) may have under way; one more is answered 429. None: no limit.
    queue
        Requests that may wait; one more is answered 429.
    batch
        Searches that share their scorer calls at most.
    side_by_side
        Batches with different settings that run at a time, of a scorer behind HTTP.
    linger
        Seconds an idle server waits for company before it starts a batch.
    header_seconds, body_seconds, read_seconds
        Seconds a client may take to send its headers, to send its body, and to read what it asked for.
    hosts
        Names (without port) by which a server without a token may be asked, so that a page from elsewhere, whose name
        suddenly points here, may not; empty for any name.
    token_env
        The environment variable with the bearer token; when it is unset or empty, anyone may ask.
    write_token_env
        The environment variable with the token of those who may add and remove items, and ask too; when it is unset or
        empty, nobody may.
    origins
        Pages of these addresses may ask from a browser (CORS): "https://shop.example".
    reload_seconds, save_seconds
        How often folders are looked at for changes by others, and changes by requests are written; None: never.
    page
        Whether to serve the web page.
    trace_numbers
        A traced search keeps the predictions of all items, for its picture, where they are no more than this.
    examples
        Queries the page offers to try.
    evaluation
        Records of `crosscut evaluate --json`, for the page to draw: recall and relevance against calls.
    """

    max_budget: int = 1000
    max_k: int = 100
    max_deadline: float = 60.0
    default_budget: int | None = None
    default_deadline: float | None = None
    max_documents: int = 1000
    max_query: int = 4000
    max_body: int = 4 << 20
    max_values: int = 100_000
    max_held: int = 64 << 20
    max_connections: int = 500
    per_client: int | None = None
    queue: int = 128
    batch: int = 16
    side_by_side: int = 8
    linger: float = 0.002
    header_seconds: float = 10.0
    body_seconds: float = 10.0
    read_seconds: float = 60.0
    hosts: tuple[str, ...] = LOCAL
    token_env: str = TOKEN_ENV
    write_token_env: str = WRITE_TOKEN_ENV
    origins: tuple[str, ...] = ()
    reload_seconds: float | None = 2.0
    save_seconds: float | None = 1.0
    page: bool = True
    trace_numbers: int = 2_000_000
    examples: tuple[str, ...] = ()
    evaluation: tuple[Mapping[str, Any], ...] = ()

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            if entry.type in ("int", "int | None") and value is not None and value < 1:
                raise InputError(f"{entry.name} must be 1 or more; got {value}")
            if entry.name.endswith(("_seconds", "_deadline")) and value is not None and not value > 0:
                raise InputError(f"{entry.name} is a number of seconds above 0; got {value}")
        if self.default_budget is not None and self.default_budget > self.max_budget:
            raise InputError(f"the default budget, {self.default_budget}, is over the cap of {self.max_budget}")
        if self.default_deadline is not None and self.default_deadline > self.max_deadline:
            raise InputError(f"the default deadline, {self.default_deadline} s, is over the cap, {self.max_deadline} s")

    def budget(self, index: Index, method: str | None = None) -> int:
        """Calls of a request that does not say, by the method that it names, or by the index's own."""
        tuned = index.budget if method is None else None
        return min(self.default_budget or tuned or USUAL, self.max_budget)

    def token(self) -> str | None:
        """The bearer token that requests must carry, or None."""
        return os.environ.get(self.token_env) or None

    def write_token(self) -> str | None:
        """The bearer token of those who may change items, or None: nobody may."""
        return os.environ.get(self.write_token_env) or None


def read_evaluation(path: Path) -> tuple[Mapping[str, Any], ...]:
    """The records that `crosscut evaluate --json` wrote into a file."""
    from pydantic import TypeAdapter, ValidationError

    from crosscut.server.schemas import Measured

    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        records = told.get("records") if isinstance(told, dict) else told  # beside the advice, or alone
        TypeAdapter(list[Measured]).validate_python(records)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValidationError, ValueError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise InputError(
            f"{str(path)!r} is not what `crosscut evaluate my.index queries --json FILE` writes: {said}"
        ) from None
    return tuple(records or ())
