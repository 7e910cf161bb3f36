"""`crosscut fill`: items into a vector database, encoded and written block by block, here or by workers of Ray."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import counted, progress_bar, say
from crosscut.cli.options import ColumnOptions, EngineOptions, Json, with_groups
from crosscut.errors import InputError


@with_groups
def fill(
    corpus: Annotated[
        Path, typer.Argument(help="A BEIR folder, or a JSONL, CSV, TSV, Parquet, Arrow, JSON or text file of items.")
    ],
    store: Annotated[
        str,
        typer.Argument(help="postgresql://… (PostgreSQL), http://… (Qdrant), a folder of LanceDB."),
    ],
    name: Annotated[str, typer.Argument(help="The table or collection, which is there already.")],
    engines: EngineOptions,
    columns: ColumnOptions,
    encoder: Annotated[str, typer.Option(help="default, a model folder, a hub id.")] = "default",
    resume: Annotated[bool, typer.Option("--resume", help="Skip what the store has: after a stop, the same again.")] = (
        False
    ),
    store_id: Annotated[str | None, typer.Option(help="The store's column or field of ids.")] = None,
    store_vector: Annotated[str | None, typer.Option(help="Of vectors.")] = None,
    store_text: Annotated[str | None, typer.Option(help="Of texts.")] = None,
    store_title: Annotated[str | None, typer.Option(help="Of titles.")] = None,
    store_metadata: Annotated[str | None, typer.Option(help="Of metadata, if it has one for all of it.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="QDRANT_API_KEY", help="Of Qdrant.")] = None,
    as_json: Json = False,
) -> None:
    """Write items and their vectors into a vector database, however many there are.

    Workers of Ray write straight into a server's store. Search it with `crosscut.Index.over(store)`.

    Examples:

        crosscut fill papers.jsonl postgresql://me@localhost/library papers --store-text body

        crosscut fill papers.jsonl http://localhost:6333 papers --engine ray --address auto --workers 16
    """
    from crosscut.index.items import stream
    from crosscut.index.store_corpus import fill as fill_store
    from crosscut.models.bi_encoder import load_encoder
    from crosscut.stores.opening import open_store

    engine = engines.made()
    there = open_store(
        store,
        name,
        api_key=api_key,
        id=store_id,
        vector=store_vector,
        text=store_text,
        title=store_title,
        metadata=store_metadata,
    )
    with closing(there) as opened:
        dimension = load_encoder(encoder).dimension
        if dimension != opened.d:
            raise InputError(
                f"the encoder makes vectors of {dimension} dimensions, and those of {opened.place} have {opened.d}: "
                "pass the --encoder they were made with"
            )
        with progress_bar(quiet=as_json) as progress:
            items = stream(corpus, progress=progress, **columns.named)
            written = fill_store(opened, items, encoder, engine, resume=resume, progress=progress)
        total = opened.count()
    if as_json:
        typer.echo(json.dumps({"written": written, "items": total}))
    else:
        say(f"{counted(written, 'item')} written; {total:,} in {opened.place}")
