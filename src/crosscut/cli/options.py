"""Options of several commands: single ones, groups of those that go together, and how their values are read.

A group is a dataclass whose fields are options. A command has it as one parameter, `loading: LoadOptions`, and
`with_groups` gives the command each of its fields as an option of its own.
"""

from __future__ import annotations

import functools
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from crosscut.cli.output import console, say
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.datasets.columns import ColumnNames
    from crosscut.datasets.judged import JudgedQueries
    from crosscut.index import Index
    from crosscut.score_store.engines import Engine
    from crosscut.search.hits import Price

OPERATORS = {">=": "gte", "<=": "lte", "!=": "ne", ">": "gt", "<": "lt", "=": ""}

Folder = Annotated[Path, typer.Argument(help="The folder of the index.")]
Corpus = Annotated[
    Path,
    typer.Argument(help="A JSONL, JSON, CSV, TSV, Parquet, Arrow or text file of items, a BEIR folder, a text folder."),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
EngineName = Annotated[str, typer.Option(help="Where models run: local, or ray (pip install 'crosscut[ray]').")]
Encoder = Annotated[str, typer.Option(help="A dual encoder: default, a model folder, a hub id.")]


@dataclass(frozen=True)
class LoadOptions:
    """Options for loading an index."""

    scorer: Annotated[
        str | None,
        typer.Option(show_envvar=False, help="The scorer, if not the index's own: a folder, a hub id, an address."),
    ] = None
    trust_remote: Annotated[
        bool,
        typer.Option(
            "--trust-remote", show_envvar=False, help="Send queries and items to the address that the index names."
        ),
    ] = False

    def index(self, folder: Path, *, store: Path | None = None, log: Path | None = None) -> Index:
        """Load the index that a command works on."""
        from crosscut.index import Index

        with console(stderr=True).status("loading the index"):
            index = Index.load(folder, store=store, scorer=self.scorer, trust_remote=self.trust_remote)
        if log is not None:
            index.keep_log(log)
        return index


@dataclass(frozen=True)
class QueryOptions:
    """Queries with the relevance of items, where it was judged."""

    qrels: Annotated[
        Path | None, typer.Option(help="Qrels or clicks of a file of queries: query id, item id, relevance.")
    ] = None
    split: Annotated[str, typer.Option(help="Which queries, where they have a split: train, test, or all.")] = "train"
    limit: Annotated[int, typer.Option(help="Most queries, drawn by the seed.", min=1)] = 200
    seed: Annotated[int, typer.Option(help="Of the draw.", min=0)] = 0

    def read(self, source: Path | None) -> JudgedQueries | None:
        """Read the queries of a folder or a file, with their qrels, and say what was read."""
        from crosscut.datasets.judged import read_judged

        if source is None:
            if self.qrels is not None:
                raise InputError(f"{self.qrels.name} names queries by id and has no texts: give the queries, too")
            return None
        judged = read_judged(source, qrels=self.qrels, split=self.split)
        if not judged.queries:
            raise InputError(f"{str(source)!r} has no queries")
        judged = judged.sample(self.limit, self.seed)
        say(judged.note)
        return judged


@dataclass(frozen=True)
class TextOptions:
    """Columns of what is read: those that a model is given."""

    text: Annotated[str | None, typer.Option(help="The column of texts, when it is not called text.")] = None
    title: Annotated[str | None, typer.Option(help="The column of titles.")] = None
    id: Annotated[str | None, typer.Option(help="The column of ids.")] = None

    @property
    def named(self) -> ColumnNames:
        """The columns as readers take them."""
        return {"text": self.text, "title": self.title, "id": self.id}


@dataclass(frozen=True)
class ColumnOptions(TextOptions):
    """Columns of items, and what is kept of them."""

    metadata: Annotated[
        list[str] | None, typer.Option(help="A column to keep for filters; all others if left out.")
    ] = None
    number: Annotated[list[str] | None, typer.Option(help="A column of CSV or TSV that holds numbers.")] = None

    @property
    def named(self) -> ColumnNames:
        """The columns as readers take them."""
        return {**super().named, "metadata": self.metadata, "numbers": self.number or ()}


@dataclass(frozen=True)
class ModelOptions:
    """Options for running a hub model."""

    device: Annotated[
        str | None, typer.Option(help="cpu, cuda, cuda:1, mps; several between commas, or cuda:*.", show_default="cpu")
    ] = None
    dtype: Annotated[
        str | None, typer.Option(help="fp32; fp16, bf16 on a GPU; int8 on the CPU.", show_default="fp32")
    ] = None
    batch_size: Annotated[int | None, typer.Option(help="Pairs or texts of a batch, on a GPU.", show_default="32")] = (
        None
    )
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a pair or a text.", show_default="the model's")
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """The settings that the user gave."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class EngineOptions:
    """Options for devices and copies of models."""

    engine: EngineName = "local"
    workers: Annotated[
        int | None, typer.Option(help="Threads for an API, processes for a model, actors for Ray.", show_default="1; 2")
    ] = None
    address: Annotated[str | None, typer.Option(help="The Ray cluster; a local one if left out.")] = None
    gpus: Annotated[float, typer.Option(help="GPUs of each Ray worker.")] = 0.0

    def made(self, scorer: str | None = None) -> Engine:
        """Return the engine; GPUs for its workers need a scorer on a device that makes use of them."""
        from crosscut.score_store.engines import RayEngine, make_engine

        engine = make_engine(self.engine, workers=self.workers, address=self.address)
        if not isinstance(engine, RayEngine):
            if self.gpus:
                raise InputError("--gpus are those of Ray workers; use it with --engine ray, or name a --device")
            return engine
        if self.gpus and scorer is not None and "device=" not in scorer.partition("#")[2]:
            raise InputError(
                f"every worker would have {self.gpus:g} GPUs, and {scorer!r} runs on the CPU: name --device cuda too"
            )
        return replace(engine, gpus=self.gpus)


@dataclass(frozen=True)
class PriceOptions:
    """Options for the price of a scorer."""

    price_per_thousand: Annotated[
        float, typer.Option(show_envvar=False, help="Price of a thousand calls; shows costs in money.")
    ] = 0.0
    price_per_million_tokens: Annotated[
        float, typer.Option(show_envvar=False, help="Price of a million tokens (four characters each).")
    ] = 0.0

    @property
    def price(self) -> Price | None:
        """The price, if one was given."""
        from crosscut.search.hits import Price

        given = self.price_per_thousand, self.price_per_million_tokens
        return Price(*given) if any(given) else None


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer takes it: in place of groups of options it has the options, behind its own.

    `Annotated[Group, {"field": value}]` has other defaults than the group.
    """
    groups: dict[str, dict[str, Any]] = {}  # options and their defaults, by parameter
    kinds: dict[str, Any] = {}
    alone, grouped = list[inspect.Parameter](), list[inspect.Parameter]()
    hints = get_type_hints(command, include_extras=True)
    for one in inspect.signature(command).parameters.values():
        hint = hints[one.name]
        kind, *usual = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if not is_dataclass(kind):
            alone.append(one.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        kinds[one.name] = kind
        groups[one.name] = {option.name: option.default for option in fields(kind)} | (usual[0] if usual else {})
        inner = {name: as_option(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
        grouped += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=inner[name])
            for name, default in groups[one.name].items()
        ]

    @functools.wraps(command)
    def run(*arguments: Any, **values: Any) -> None:
        for name, usual in groups.items():
            given = {option: values.pop(option, value) for option, value in usual.items()}
            values[name] = kinds[name](**{k: tuple(v) if isinstance(v, list) else v for k, v in given.items()})
        command(*arguments, **values)

    run.__signature__ = inspect.Signature([*alone, *grouped])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in (*alone, *grouped)}
    return run


def as_option(hint: Any) -> Any:
    """Return an annotation as typer reads it: it knows lists of any length, and no tuples."""
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return Annotated[list[str], *more] if kind == tuple[str, ...] else hint


# -- values of options -----------------------------------------------------------------------------------------------


def numbers(option: str, text: str) -> list[int]:
    """Read `50,100` as whole numbers of at least 1."""
    try:
        values = [int(part) for part in text.split(",") if part.strip()]
    except ValueError:
        raise InputError(f"{option} takes whole numbers separated by commas; got {text!r}") from None
    if not values or min(values) < 1:
        raise InputError(f"{option} takes whole numbers of at least 1; got {text!r}")
    return values


def filter_of(texts: list[str] | None) -> dict[str, Any] | None:
    """Read `language=en`, `year>=2000` as a filter; several on one key hold together."""
    conditions: dict[str, Any] = {}
    for text in texts or ():
        sign = next((sign for sign in OPERATORS if sign in text), "")
        key, _, value = text.partition(sign) if sign else (text, "", "")
        key, value = key.strip(), value.strip()
        if not key or not value:
            raise InputError(f"--filter takes key=value, or key>=value (also <=, <, >, !=); got {text!r}")
        try:
            bound = json.loads(value)
        except ValueError:
            bound = value
        bound = bound if isinstance(bound, int | float | bool | str) else value
        if OPERATORS[sign]:
            conditions.setdefault(key, {})[OPERATORS[sign]] = bound
        else:  # 2005 is a number in JSON and a text in CSV
            either = [bound] if isinstance(bound, str) else [bound, value]
            conditions[key] = [*conditions.get(key, []), *either]
    return conditions or None


def read_texts(path: Path) -> list[str]:
    """Read the queries of a file, each once; none is a mistake."""
    from crosscut.datasets import read_queries

    found = list(dict.fromkeys(query.text for query in read_queries(path)))
    if not found:
        raise InputError(f"{str(path)!r} has no queries")
    return found


def piped() -> list[str]:
    """Read queries from standard input, one a line; none when nothing is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        return []
    return [line.strip() for line in sys.stdin if line.strip()]
