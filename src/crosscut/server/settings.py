"""Limits and choices of a server: the options of `crosscut serve`, and a table in docs/guides/serving.md."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer

from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.index import Index
    from crosscut.server.schemas import Measurement

TOKEN_ENV = "CROSSCUT_TOKEN"
WRITE_TOKEN_ENV = "CROSSCUT_WRITE_TOKEN"
DEFAULT_BUDGET = 100  # calls, where neither the request nor the server nor the index says another number
LOCAL = ("localhost", "127.0.0.1", "::1")


def option(help: str, *names: str) -> Any:
    return typer.Option(*names, show_envvar=False, help=help)  # the help of the command states the rule once


@dataclass(frozen=True)
class Settings:
    """Limits and choices of a server; every field is an option of `crosscut serve` of the same name."""

    max_budget: Annotated[int, option("Most scorer calls of a request, and most documents of a rerank request.")] = 1000
    budget: Annotated[int | None, option("Calls of requests that give none; else the index's own, or 100.")] = None
    max_k: Annotated[int, option("Most hits of a request.")] = 100
    max_deadline: Annotated[float, option("Longest deadline of a request, in seconds.")] = 60.0
    deadline: Annotated[float | None, option("Deadline of requests that give none; else the longest.")] = None
    max_query: Annotated[int, option("Most characters of a query.")] = 4000
    max_body: Annotated[int, option("Largest body of a request, in bytes.")] = 4 << 20
    body_seconds: Annotated[float, option("Seconds a client may take to send a body.")] = 10.0
    max_connections: Annotated[int, option("Open connections; one more is answered 503.")] = 500
    per_client: Annotated[int | None, option("Concurrent requests of one address; one more is answered 429.")] = None
    queue: Annotated[int, option("Requests that may wait; one more is answered 429.")] = 128
    batch: Annotated[int, option("Most searches that share their scorer calls.")] = 16
    remote_batches: Annotated[int, option("Concurrent batches of a scorer behind HTTP.")] = 8
    linger: Annotated[float, option("Seconds an idle server collects requests before it starts a batch.")] = 0.002
    token_env: Annotated[str, option("Environment variable with the bearer token of requests.")] = TOKEN_ENV
    write_token_env: Annotated[
        str, option("Environment variable with the token that may also add and remove items.")
    ] = WRITE_TOKEN_ENV
    allow_host: Annotated[
        tuple[str, ...], option("Host names, beside localhost, of a server without a token; * for any.")
    ] = ()
    allow_origin: Annotated[
        tuple[str, ...], option("Web addresses whose pages may send requests from a browser (CORS).")
    ] = ()
    reload_seconds: Annotated[float, option("Seconds between looks for changed folders; 0: never.")] = 2.0
    save_seconds: Annotated[float, option("Seconds until changes by requests are written.")] = 1.0
    page: Annotated[bool, option("Serve the web page.", "--page/--no-page")] = True
    example: Annotated[tuple[str, ...], option("Queries that the page offers.")] = ()
    evaluation: Annotated[Path | None, option("Output of `crosscut evaluate --json`, drawn on the page.")] = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("deadline") and value is not None and not value > 0:
                raise InputError(f"{field.name} is a number of seconds above 0; got {value}")
            if field.name.endswith("_seconds"):
                if not value >= 0:
                    raise InputError(f"{field.name} is a number of seconds, 0 or more; got {value}")
            elif isinstance(value, int) and not isinstance(value, bool) and value < 1:
                raise InputError(f"{field.name} must be 1 or more; got {value}")
        if self.budget is not None and self.budget > self.max_budget:
            raise InputError(f"the default budget, {self.budget}, is over the cap of {self.max_budget}")
        if self.deadline is not None and self.deadline > self.max_deadline:
            raise InputError(f"the default deadline, {self.deadline} s, is over the cap, {self.max_deadline} s")

    def budget_of(self, index: Index, method: str | None = None) -> int:
        """Return the calls of a request that gives no budget, by the method it names or the index's own."""
        tuned = index.budget if method is None else None
        return min(self.budget or tuned or DEFAULT_BUDGET, self.max_budget)

    def token(self) -> str | None:
        """Return the bearer token that requests must carry, or None."""
        return os.environ.get(self.token_env) or None

    def write_token(self) -> str | None:
        """Return the bearer token that may change items, or None: nobody may."""
        return os.environ.get(self.write_token_env) or None


def settings_table() -> str:
    """Return the table of settings for the documentation, as Markdown."""
    lines = ["| option | default | |", "|---|---|---|"]
    hints = get_type_hints(Settings, include_extras=True)
    for field in fields(Settings):
        help = get_args(hints[field.name])[1].help
        default = "" if field.default in (None, ()) else f"`{field.default}`"
        lines.append(f"| `--{field.name.replace('_', '-')}` | {default} | {help} |")
    return "\n".join(lines)


def read_evaluation(path: Path) -> list[Measurement]:
    """Return the records that `crosscut evaluate --json` wrote into a file."""
    from pydantic import TypeAdapter, ValidationError

    from crosscut.server.schemas import Measurement

    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        records = content.get("records") if isinstance(content, dict) else content  # beside the advice, or alone
        return TypeAdapter(list[Measurement]).validate_python(records)
    except OSError as error:
        raise InputError(f"{str(path)!r} cannot be read: {error.strerror}") from None
    except (ValidationError, ValueError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise InputError(
            f"{str(path)!r} is not what `crosscut evaluate my.index queries --json FILE` writes: {reason}"
        ) from None
