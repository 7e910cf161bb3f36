"""`crosscut fill`: items into a vector database, encoded and written block by block, here or by workers of Ray."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import Id, Metadata, Numbers, TextColumn, Title, columns_of, counted, progress_bar, say
from crosscut.errors import InputError


def fill(
    corpus: Annotated[
        Path, typer.Argument(help="A BEIR folder, or a JSONL, CSV, TSV, Parquet, Arrow, JSON or text file of items.")
    ],
    store: Annotated[
        str,
        typer.Argument(
            help="postgresql://… (PostgreSQL), http://… (Qdrant), a folder of LanceDB or of a qdrant-edge shard."
        ),
    ],
    name: Annotated[str, typer.Argument(help="The table or collection, which is there already.")],
    encoder: Annotated[str, typer.Option(help="default, a model folder, a hub id.")] = "default",
    engine: Annotated[
        str, typer.Option(help="Where items are encoded: local, or ray (pip install 'crosscut[ray]').")
    ] = "local",
    workers: Annotated[int | None, typer.Option(help="Workers of Ray.", show_default="2")] = None,
    address: Annotated[str | None, typer.Option(help="The Ray cluster; a local one if left out.")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs of each Ray worker.")] = 0.0,
    resume: Annotated[bool, typer.Option("--resume", help="Skip what the store has: after a stop, the same again.")] = (
        False
    ),
    store_id: Annotated[str | None, typer.Option(help="The store's column or field of ids.")] = None,
    store_vector: Annotated[str | None, typer.Option(help="Of vectors.")] = None,
    store_text: Annotated[str | None, typer.Option(help="Of texts.")] = None,
    store_title: Annotated[str | None, typer.Option(help="Of titles.")] = None,
    store_metadata: Annotated[str | None, typer.Option(help="Of metadata, if it has one for all of it.")] = None,
    api_key: Annotated[str | None, typer.Option(envvar="QDRANT_API_KEY", help="Of Qdrant.")] = None,
    text: TextColumn = None,
    title: Title = None,
    id: Id = None,
    metadata: Metadata = None,
    number: Numbers = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Write items and their vectors into a vector database, however many there are.

    Workers of Ray write straight into a server's store. Search it with `crosscut.Index.over(store)`.

    Examples:

        crosscut fill papers.jsonl postgresql://me@localhost/library papers --store-text body

        crosscut fill papers.jsonl http://localhost:6333 papers --engine ray --address auto --workers 16
    """
    from crosscut.ann.stores.opening import open_store
    from crosscut.encoders.named import load_encoder
    from crosscut.index.filling import Filling
    from crosscut.index.items import stream
    from crosscut.scores.engines import RayEngine, make_engine

    chosen = make_engine(engine, workers=workers, address=address)
    if isinstance(chosen, RayEngine):
        chosen = replace(chosen, gpus=gpus)
    elif gpus:
        raise InputError("--gpus are those of Ray workers; use it with --engine ray")
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
            items = stream(corpus, progress=progress, **columns_of(text, title, id, metadata, number))
            written = Filling(opened, items, resume=resume, progress=progress).run(encoder, chosen)
        total = opened.count()
    if as_json:
        typer.echo(json.dumps({"written": written, "items": total}))
    else:
        say(f"{counted(written, 'item')} written; {total:,} in {opened.place}")
