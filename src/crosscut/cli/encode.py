"""`crosscut encode`: texts to vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.options import Corpus, Encoder, Json, ModelOptions, with_groups
from crosscut.cli.output import progress_bar, result
from crosscut.errors import InputError


@with_groups
def encode(
    texts: Corpus,
    output: Annotated[Path, typer.Argument(help="Where the vectors go: .npy (texts × dimensions), float32.")],
    running: ModelOptions,
    encoder: Encoder = "default",
    as_queries: Annotated[bool, typer.Option("--queries", help="The texts are queries, not items.")] = False,
    similarity: Annotated[str | None, typer.Option(help="dot or cosine, if not the model's own.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Copies of the model, one device each.", show_default="one a device")
    ] = None,
    as_json: Json = False,
) -> None:
    """Encode items or queries with a dual encoder.

    Examples:

        crosscut encode corpus.jsonl items.npy

        crosscut encode msmarco/ items.npy --encoder organisation/model --device cuda --dtype bf16 --workers 4

        crosscut encode queries.txt queries.npy --queries
    """
    import numpy as np

    from crosscut.datasets import read_items, read_queries
    from crosscut.models.bi_encoder import load_encoder
    from crosscut.models.spec import with_settings, workers_on

    if output.suffix != ".npy":
        raise InputError(f"vectors are written as .npy; got {str(output)!r}")
    settings = {**running.given, "similarity": similarity}
    if workers is not None:
        settings["device"] = ",".join(workers_on(running.device, workers))
    model = load_encoder(with_settings(encoder, **settings))
    if as_queries:
        rows = model.encode_queries([query.text for query in read_queries(texts)])
    else:
        items = list(read_items(texts))
        with progress_bar(quiet=as_json) as progress:
            rows = model.encode_items(items, progress=progress)
    np.save(output, np.asarray(rows, np.float32))
    record = {"texts": rows.shape[0], "dimension": rows.shape[1], "fingerprint": model.fingerprint}
    sentence = f"wrote {output}: {rows.shape[0]:,} × {rows.shape[1]}, fingerprint {model.fingerprint}"
    result(sentence, record, as_json)
