"""`crosscut train paper …`: the papers' models by the papers' recipes (`crosscut.training.published`)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from crosscut.cli.common import progress_bar
from crosscut.cli.options import EngineName, Json, World, with_groups
from crosscut.cli.training import (
    TORCH,
    Loss,
    Output,
    PaperOptions,
    read_collections,
    reporting,
    scored_by,
    show_outcome,
)
from crosscut.errors import InputError, needing

app = typer.Typer(no_args_is_help=True, help="Train the papers' models by the papers' recipes.")

Data = Annotated[Path, typer.Argument(help="A ZESHEL folder (documents, mentions) or a BEIR folder")]
Start = Annotated[str, typer.Option(help="What to start from, such as bert-base-uncased: a folder or a hub id")]
Part = Annotated[str, typer.Option(help="Split to learn from")]
Dev = Annotated[str | None, typer.Option(help="Split that picks the best checkpoint; a tenth of the queries if none")]


@app.command("dual-encoder")
@with_groups
def dual_encoder(
    data: Data,
    start: Start,
    output: Output,
    how: Annotated[PaperOptions, {"epochs": 4, "batch": 8, "candidates": 64}],
    split: Part = "train",
    dev: Dev = None,
    as_json: Json = False,
) -> None:
    """DE_BASE of ANNCUR (app. A.1): two towers, hard negatives mined anew before every epoch.

    Example: crosscut train paper dual-encoder zeshel/ --start bert-base-uncased --dev val --output de/ --device cuda
    """
    with needing(*TORCH):
        from crosscut.training.published.recipes import train_towers

    with progress_bar(quiet=as_json) as progress:
        job = how.job(start, output, reporting(progress, quiet=as_json))
        judging = read_collections(data, dev) if dev else ()
        outcome = train_towers(read_collections(data, split), job, dev=judging)
    show_outcome(outcome, output, as_json)


@app.command("cross-encoder")
@with_groups
def cross_encoder(
    data: Data,
    start: Start,
    output: Output,
    miner: Annotated[
        str, typer.Option(help="What mines negatives: the trained dual encoder, de/model; or tfidf, or random")
    ],
    how: Annotated[PaperOptions, {"epochs": 4, "candidates": 64}],
    head: Annotated[str, typer.Option(help="emb (inner product of special tokens) or cls (linear layer)")] = "emb",
    split: Part = "train",
    dev: Dev = None,
    as_json: Json = False,
) -> None:
    """[EMB]-CE or [CLS]-CE of ANNCUR (app. A.1): special tokens, 63 fixed negatives of a trained dual encoder.

    Example: crosscut train paper cross-encoder zeshel/ --start bert-base-uncased --miner de/model --output ce/
    """
    with needing(*TORCH):
        from crosscut.training.published.recipes import train_cross

    with progress_bar(quiet=as_json) as progress:
        job = how.job(start, output, reporting(progress, quiet=as_json))
        judging = read_collections(data, dev) if dev else ()
        outcome = train_cross(read_collections(data, split), job, miner, head=head, dev=judging)  # type: ignore[arg-type]
    show_outcome(outcome, output, as_json)


@app.command("distill")
@with_groups
def distill(
    start: Start,
    output: Output,
    scorer: Annotated[str, typer.Option(help="The cross-encoder: a model folder, a hub id, an address")],
    data: Annotated[Path, typer.Argument(help="A BEIR folder, or a ZESHEL folder with --world")],
    how: Annotated[PaperOptions, {"epochs": 10, "batch": 1, "accumulate": 4, "candidates": 100}],
    world: World = None,
    loss: Loss = "match",
    queries: Annotated[int, typer.Option(help="Train queries, drawn")] = 500,
    k_d: Annotated[int | None, typer.Option(help="Items a query that are scored; every item if left out")] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """DE_BERT+CE, DE_BASE+CE (ANNCUR app. A.3) or DE_DSTL (AXN app. A.2.1), by what it starts from.

    An encoder gives DE_BERT+CE, towers of `crosscut train paper dual-encoder` DE_BASE+CE, a sentence-transformers model
    DE_DSTL. Without --k-d the scorer sees every item of every train query, as ANNCUR's does.

    Example: crosscut train paper distill zeshel/ --world yugioh --scorer ce/model --start de/model --output dstl/
    """
    from crosscut.evaluation.papers.world_files import read_texts
    from crosscut.spaces.sparse import SparseScores, items_per_query

    with needing(*TORCH):
        from crosscut.training.negatives import rank_dense
        from crosscut.training.published.distillation import distil
        from crosscut.training.published.models import Towers

    with progress_bar(quiet=as_json) as progress:
        job = how.job(start, output, reporting(progress, quiet=as_json))
        texts = read_texts(data, world, "full", train=queries, seed=how.seed)
        shape = (len(texts.train), len(texts.items))
        count = min(k_d or shape[1], shape[1])
        ranked = None
        if count < shape[1]:
            towers = Towers.start(start, tokens=how.max_tokens).to(job.hardware.first)
            vectors = towers.embed(towers.form.items(texts.items), 1)
            ranked = rank_dense(vectors, towers.embed(towers.form.queries(texts.train), 0), count)
        named, workers = scored_by(scorer, engine, job.hardware)
        terms: Any = {"store": output / "scores", "engine": workers, "progress": progress}
        pairs = items_per_query(count, shape, ranked=ranked)
        scores = SparseScores.buy(named, texts.train, pairs, items=texts.items, **terms)
        outcome = distil(texts.items, texts.train, scores, job, loss=loss)  # type: ignore[arg-type]
    show_outcome(outcome, output, as_json, "shared top 10", calls=scores.calls, scoring_seconds=scores.seconds)


@app.command("student")
@with_groups
def student(
    data: Data,
    start: Start,
    output: Output,
    teacher: Annotated[list[str], typer.Option(help="A scorer whose scores are learned; several are averaged")],
    how: Annotated[
        PaperOptions, {"learning_rate": 7e-6, "warm_up": 0.05, "batch": 32, "candidates": 2, "max_tokens": 256}
    ],
    split: Part = "train",
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """ADACUR's cross-encoder for BEIR (app. B.1.2): mean squared error to the mean score of several teachers.

    The model scores by the inner product of [CLS] and [SEP]; search with `--scorer emb+OUTPUT/model`.

    Example: crosscut train paper student msmarco/ --start microsoft/MiniLM-L6 --teacher A --teacher B --output ce/
    """
    import numpy as np

    from crosscut.linalg.top import ranked
    from crosscut.retrieval.bm25 import BM25

    with needing(*TORCH):
        from crosscut.training.published.recipes import teach

    with progress_bar(quiet=as_json) as progress:
        job = how.job(start, output, reporting(progress, quiet=as_json))
        if (data / "documents").is_dir():
            raise InputError("the student learns from plain queries and texts: give a BEIR folder")
        (collection,) = read_collections(data, split)
        judged = [query.text for query in collection.queries if collection.gold(query.id)]
        if not judged:
            raise InputError(f"no query of {str(data)!r} has a right item in the split {split!r}")
        words = BM25(collection.items)
        most = min(how.candidates + 20, len(collection.items))
        placed = [scored_by(one, engine, job.hardware) for one in teacher]
        widest = max((made for _, made in placed), key=lambda made: made.workers)
        outcome = teach(
            collection,
            job,
            [named for named, _ in placed],
            ranked=np.stack([ranked(np.asarray(words.scores(text)), most) for text in judged]),
            engine=widest,
            progress=progress,
        )
    show_outcome(outcome, output, as_json, "1 / (1 + error)")
