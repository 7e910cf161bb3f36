"""`crosscut encode`: texts to vectors; `crosscut export`: a score store to an archive for `crosscut replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosscut.cli.common import progress_bar, say
from crosscut.cli.options import ModelOptions, World, with_groups
from crosscut.errors import InputError


@with_groups
def encode(
    texts: Annotated[
        Path, typer.Argument(help="A BEIR or MS MARCO folder, or a file of items or queries (.jsonl, .tsv, .txt …).")
    ],
    output: Annotated[Path, typer.Argument(help="Where the vectors go: .npy (texts × dimensions), float32.")],
    running: ModelOptions,
    encoder: Annotated[str, typer.Option(help="default, a model folder, a hub id.")] = "default",
    as_queries: Annotated[bool, typer.Option("--queries", help="The texts are queries, not items.")] = False,
    world: World = None,
    similarity: Annotated[
        str | None, typer.Option(help="dot or cosine, if not what the model itself says.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Copies of the model, one device each.", show_default="one a device"),
    ] = None,
) -> None:
    """Encode items or queries with a dual encoder.

    Examples:

        crosscut encode corpus.jsonl items.npy

        crosscut encode msmarco/ items.npy --encoder organisation/model --device cuda --dtype bf16 --workers 4

        crosscut encode queries.txt queries.npy --queries
    """
    import numpy as np

    from crosscut.datasets import read_items, read_queries, read_world
    from crosscut.models.bi_encoder import load_encoder
    from crosscut.models.spec import with_settings, workers_on

    if output.suffix != ".npy":
        raise InputError(f"vectors are written as .npy; got {str(output)!r}")
    settings = {**running.given, "similarity": similarity}
    if workers is not None:
        settings["device"] = ",".join(workers_on(running.device, workers))
    model = load_encoder(with_settings(encoder, **settings))
    found = None if world is None else read_world(texts, world, split="all")
    if as_queries:
        asked = [query.text for query in (read_queries(texts) if found is None else found.queries)]
        rows = model.encode_queries(asked)
    else:
        items = list(read_items(texts)) if found is None else found.items
        with progress_bar() as progress:
            rows = model.encode_items(items, progress=progress)
    np.save(output, np.asarray(rows, np.float32))
    say(f"wrote {output}: {rows.shape[0]:,} × {rows.shape[1]}, fingerprint {model.fingerprint}")


def export(
    store: Annotated[Path, typer.Argument(help="The folder of a score store (`crosscut score`).")],
    output: Annotated[Path, typer.Argument(help="The archive: .npz with test, train and vectors.")],
    corpus: Annotated[Path, typer.Option(help="The items that were scored: a folder or a file.")],
    test: Annotated[
        Path | None, typer.Option(help="Test queries, a file.", show_default="the mentions of --world")
    ] = None,
    train: Annotated[Path | None, typer.Option(help="Train (anchor) queries, a file.")] = None,
    scorer: Annotated[str, typer.Option(help="The scorer whose scores they are.")] = "default",
    encoder: Annotated[str | None, typer.Option(help="Add vectors of this dual encoder.")] = None,
    world: World = None,
) -> None:
    """Write the scores of a store as an archive that `crosscut replay --data` and `crosscut reproduce` take.

    Not a single call is made: scores that are missing are named instead.

    Example: crosscut export scores/ scores.npz --corpus corpus.jsonl --test queries.txt --train train.txt
    """
    import numpy as np

    from crosscut.datasets import read_items, read_queries, read_world
    from crosscut.index.knowing import fitted_to
    from crosscut.models.bi_encoder import load_encoder
    from crosscut.score_store import ScoreStore
    from crosscut.scorers.loading import load_scorer
    from crosscut.storage import write_arrays

    found = None if world is None else read_world(corpus, world, split="all")
    if test is not None:
        asked = {"test": [query.text for query in read_queries(test)]}
    elif found is not None:
        asked = {"test": [query.text for query in found.queries]}
    else:
        raise InputError("name the test queries with --test, a file, or the world of a ZESHEL folder with --world")
    items = list(read_items(corpus)) if found is None else found.items
    scores = ScoreStore(store, scorer_fingerprint=fitted_to(load_scorer(scorer), items).fingerprint)
    arrays: dict[str, Any] = {}
    if train is not None:
        asked["train"] = [query.text for query in read_queries(train)]
    for name, texts in asked.items():
        matrix = np.asarray(scores.matrix(texts, items, partial=True))
        missing = int(np.isnan(matrix).sum())
        if missing:
            raise InputError(
                f"{missing:,} of {matrix.size:,} scores of the {name} queries are not in {str(store)!r}; "
                "compute them with `crosscut score`"
            )
        arrays[name] = matrix.astype(np.float16)
    if encoder is not None:
        model = load_encoder(encoder)
        arrays["vectors"] = model.encode_items(items)
        arrays["query_vectors"] = model.encode_queries(asked["test"])
        if "train" in asked:
            arrays["anchor_query_vectors"] = model.encode_queries(asked["train"])
    write_arrays(output, arrays)
    say(f"wrote {output}: {', '.join(f'{name} {array.shape}' for name, array in arrays.items())}")
