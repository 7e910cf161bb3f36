"""Options of several commands: single ones, and groups of those that go together.

A group is a dataclass whose fields are options. A command has it as one parameter, `loading: LoadOptions`, and
`with_groups` gives the command each of its fields as an option of its own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin, get_type_hints

import typer

from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.datasets.columns import ColumnNames
    from crosscut.index import Index
    from crosscut.score_store.engines import Engine
    from crosscut.search.price import Price

Folder = Annotated[Path, typer.Argument(help="The folder of the index.")]
IndexFolder = Annotated[Path, typer.Argument(help="An index folder, made by `crosscut index build`.")]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")]
EngineName = Annotated[str, typer.Option(help="Where models run: local, or ray (pip install 'crosscut[ray]').")]
Device = Annotated[
    str | None,
    typer.Option(help="cpu, cuda, cuda:1, mps; several between commas, or cuda:*, one a worker.", show_default="cpu"),
]
World = Annotated[str | None, typer.Option(help="The world of a ZESHEL folder, such as yugioh.")]


@dataclass(frozen=True)
class LoadOptions:
    """How an index is loaded."""

    scorer: Annotated[
        str | None,
        typer.Option(
            show_envvar=False, help="The scorer, if not the one that the index names: a folder, a hub id, an address."
        ),
    ] = None
    trust_remote: Annotated[
        bool,
        typer.Option(
            "--trust-remote", show_envvar=False, help="Send queries and items to the address that the index names."
        ),
    ] = False

    def index(self, folder: Path, store: Path | None = None) -> Index:
        """The index in a folder."""
        from crosscut.index import Index

        return Index.load(folder, store=store, **asdict(self))


@dataclass(frozen=True)
class TextOptions:
    """Columns of what is read: those that a model is given."""

    text: Annotated[str | None, typer.Option(help="The column that is the text, when it is not called text.")] = None
    title: Annotated[str | None, typer.Option(help="The column that is the title.")] = None
    id: Annotated[str | None, typer.Option(help="The column that is the id.")] = None

    @property
    def named(self) -> ColumnNames:
        """As readers take them."""
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
        return {**super().named, "metadata": self.metadata, "numbers": self.number or ()}


@dataclass(frozen=True)
class ModelOptions:
    """How a hub model is run (`crosscut.models.spec`)."""

    device: Device = None
    dtype: Annotated[
        str | None, typer.Option(help="fp32; fp16, bf16 on a GPU; int8 on the CPU.", show_default="fp32")
    ] = None
    batch_size: Annotated[int | None, typer.Option(help="Pairs or texts at a time, on a GPU.", show_default="32")] = (
        None
    )
    max_length: Annotated[
        int | None, typer.Option(help="Most tokens of a pair or a text.", show_default="the model's")
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that the user gave."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class EngineOptions:
    """What scores, or encodes, and where."""

    engine: EngineName = "local"
    workers: Annotated[
        int | None, typer.Option(help="Threads for an API, processes for a model, actors for Ray.", show_default="1; 2")
    ] = None
    address: Annotated[str | None, typer.Option(help="The Ray cluster; a local one if left out.")] = None
    gpus: Annotated[float, typer.Option(help="GPUs of each Ray worker.")] = 0.0

    def made(self, scorer: str | None = None) -> Engine:
        """The engine; GPUs for its workers only where there is a scorer on a device, which makes use of them."""
        from crosscut.score_store.engines import RayEngine, make_engine

        engine = make_engine(self.engine, workers=self.workers, address=self.address)
        if isinstance(engine, RayEngine):
            if self.gpus and scorer is not None and "device=" not in scorer.partition("#")[2]:
                raise InputError(
                    f"every worker would have {self.gpus:g} GPUs, and {scorer!r} run on the CPU: name --device cuda too"
                )
            return replace(engine, gpus=self.gpus)
        if self.gpus:
            raise InputError("--gpus are those of Ray workers; use it with --engine ray, or name a --device")
        return engine


@dataclass(frozen=True)
class PriceOptions:
    """What a scorer costs."""

    price_per_thousand: Annotated[
        float, typer.Option(show_envvar=False, help="What a thousand calls cost; tells costs in money.")
    ] = 0.0
    price_per_million_tokens: Annotated[
        float, typer.Option(show_envvar=False, help="What a million tokens cost (four characters each).")
    ] = 0.0

    @property
    def price(self) -> Price | None:
        """The price, if one was given."""
        from crosscut.search.price import Price

        told = self.price_per_thousand, self.price_per_million_tokens
        return Price(*told) if any(told) else None


def as_option(hint: Any) -> Any:
    """Return an annotation as typer reads it: it knows lists of any length, and no tuples."""
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    return Annotated[list[str], *more] if kind == tuple[str, ...] else hint


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: in place of groups of options it has the options, behind its own.

    `Annotated[Group, {"field": value}]` has other defaults than the group.
    """
    groups: dict[str, dict[str, Any]] = {}  # of each its options, with what they are unless they are given
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
