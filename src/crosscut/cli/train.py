"""`crosscut train cross-encoder | dual-encoder | distill`: from a BEIR or ZESHEL folder to a model folder.

`crosscut train paper …` (`crosscut.cli.train_paper`) has the papers' recipes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import progress_bar
from crosscut.cli.options import EngineName, Json, with_groups
from crosscut.cli.train_paper import app as papers
from crosscut.cli.training import (
    TORCH,
    Loss,
    Output,
    SplitOptions,
    read_collections,
    reporting,
    scored_by,
    show_outcome,
)
from crosscut.errors import needing

app = typer.Typer(
    no_args_is_help=True, help="Train a cross-encoder or a dual encoder on judged queries, or distil a scorer."
)

app.add_typer(papers, name="paper")
Data = Annotated[Path, typer.Argument(help="A BEIR folder (corpus.jsonl, queries.jsonl, qrels), or a ZESHEL folder")]
Dual = Annotated[
    Path,
    typer.Option(
        help="BERT, RoBERTa or DistilBERT to start from: config.json, model.safetensors, tokenizer.json; or a dual "
        "encoder to go on from: default, or a folder that crosscut train has written"
    ),
]
Part = Annotated[str, typer.Option(help="Split of the judgements: qrels/<split>.tsv, mentions/<split>.json")]
Negative = Annotated[str, typer.Option(help="random, tfidf or dual (mined with a dual encoder)")]


@app.command("cross-encoder")
@with_groups
def cross_encoder(
    data: Data,
    encoder: Annotated[
        Path,
        typer.Option(help="BERT, RoBERTa or DistilBERT to start from: config.json, model.safetensors, tokenizer.json"),
    ],
    output: Output,
    how: Annotated[SplitOptions, {"learning_rate": 2e-4}],
    head: Annotated[str, typer.Option(help="emb (dot product of two special tokens) or cls (linear layer)")] = "emb",
    split: Part = "train",
    negatives: Negative = "tfidf",
    miner: Annotated[
        str | None, typer.Option(help="A trained dual encoder that mines the negatives; with --negatives dual.")
    ] = None,
    hardest: Annotated[bool, typer.Option(help="Take the very best negatives instead of drawing among them.")] = False,
    as_json: Json = False,
) -> None:
    """Train a cross-encoder: cross-entropy over one right item and hard negatives.

    Example: crosscut train cross-encoder scifact/ --encoder all-MiniLM-L6-v2/ --output my-model/ --layers 3

    The papers' own cross-encoders: crosscut train paper cross-encoder
    """
    with needing(*TORCH):
        from crosscut.training.jobs import train_cross_encoder

    with progress_bar(quiet=as_json) as progress:
        report = reporting(progress, quiet=as_json)
        job = how.job(encoder, output, report, negatives=negatives, miner=miner, hardest=hardest)
        outcome = train_cross_encoder(read_collections(data, split), job, head=head)  # type: ignore[arg-type]
    show_outcome(outcome, output, as_json)


@app.command("dual-encoder")
@with_groups
def dual_encoder(
    data: Data,
    encoder: Dual,
    output: Output,
    how: Annotated[SplitOptions, {"epochs": 2, "learning_rate": 5e-5}],
    split: Part = "train",
    negatives: Negative = "dual",
    as_json: Json = False,
) -> None:
    """Train a dual encoder: in-batch and hard negatives, mined anew before every epoch.

    Example: crosscut train dual-encoder scifact/ --encoder all-MiniLM-L6-v2/ --output my-encoder/
    """
    with needing(*TORCH):
        from crosscut.training.jobs import train_dual_encoder

    with progress_bar(quiet=as_json) as progress:
        job = how.job(encoder, output, reporting(progress, quiet=as_json), negatives=negatives)
        outcome = train_dual_encoder(read_collections(data, split), job)
    show_outcome(outcome, output, as_json)


@app.command("distill")
@with_groups
def distill(
    data: Annotated[Path, typer.Argument(help="BEIR folder: corpus.jsonl, queries.jsonl; judgements are not needed")],
    encoder: Dual,
    output: Output,
    how: Annotated[SplitOptions, {"epochs": 10, "candidates": 64}],
    scorer: Annotated[str, typer.Option(help="The teacher: default, a model folder, a hub id, an address")] = "default",
    loss: Loss = "match",
    k_d: Annotated[int, typer.Option(help="Items of the encoder's top that the scorer scores, per query")] = 100,
    queries: Annotated[int | None, typer.Option(help="Use only the first train queries")] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Distil a scorer into a dual encoder (DE_DSTL): it learns the scorer's ranking of this collection.

    Costs k_d calls per query, which are made once and kept in the output folder.

    Example: crosscut train distill scifact/ --encoder default --output my-encoder/ --queries 500
    """
    from crosscut.datasets.beir import read_items, read_queries
    from crosscut.datasets.files import find

    with needing(*TORCH):
        from crosscut.training.distill import bought_scores
        from crosscut.training.distill import distill as train_distilled

    with progress_bar(quiet=as_json) as progress:
        job = how.job(encoder, output, reporting(progress, quiet=as_json), negatives="dual")
        items = list(read_items(find(data, "corpus.jsonl")))
        texts = [query.text for query in read_queries(find(data, "queries.jsonl"))][:queries]
        named, workers = scored_by(scorer, engine, job.hardware)
        scores = bought_scores(items, texts, named, job, k_d, engine=workers, progress=progress)
        outcome = train_distilled(items, texts, scores, job, loss=loss)  # type: ignore[arg-type]
    show_outcome(outcome, output, as_json, calls=scores.calls, scoring_seconds=scores.seconds)
