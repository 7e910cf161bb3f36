"""What the server allows."""

from __future__ import annotations

import os
from dataclasses import dataclass

from crosscut.errors import InputError

TOKEN_ENV = "CROSSCUT_TOKEN"


@dataclass(frozen=True)
class Settings:
    """Limits and choices of a server.

    Parameters
    ----------
    max_budget, max_k, max_deadline
        Caps on what one request may ask for: calls of the scorer, hits, seconds.
    default_budget, default_deadline
        For requests that do not say; a deadline of None lets a search run to its end.
    max_documents, max_query, max_body
        Documents of one rerank request, characters of a query, bytes of a request's body.
    queue
        Requests that may wait; one more is answered 429.
    batch
        Searches that share their scorer calls at most.
    linger
        Seconds an idle server waits for company before it starts a batch.
    body_seconds
        Seconds a client may take to send its body.
    token_env
        The environment variable with the bearer token; when it is unset or empty, anyone may ask.
    page
        Whether to serve the web page.
    trace_items
        Up to this many items, a traced search keeps the predictions of all of them for its picture.
    examples
        Queries the page offers to try.
    """

    max_budget: int = 1000
    max_k: int = 100
    max_deadline: float = 60.0
    default_budget: int = 100
    default_deadline: float | None = None
    max_documents: int = 1000
    max_query: int = 4000
    max_body: int = 4 << 20
    queue: int = 128
    batch: int = 16
    linger: float = 0.002
    body_seconds: float = 10.0
    token_env: str = TOKEN_ENV
    page: bool = True
    trace_items: int = 200_000
    examples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in (
            "max_budget",
            "max_k",
            "default_budget",
            "max_documents",
            "max_query",
            "max_body",
            "queue",
            "batch",
        ):
            if getattr(self, name) < 1:
                raise InputError(f"{name} must be 1 or more; got {getattr(self, name)}")
        if self.default_budget > self.max_budget:
            raise InputError(f"the default budget, {self.default_budget}, is over the cap of {self.max_budget}")
        if not self.max_deadline > 0 or not (self.default_deadline or 1) > 0:
            raise InputError("deadlines are numbers of seconds above 0")

    def token(self) -> str | None:
        """The bearer token that requests must carry, or None."""
        return os.environ.get(self.token_env) or None
