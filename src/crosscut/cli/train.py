"""`crosscut train cross-encoder | dual-encoder | distill`: from a BEIR or ZESHEL folder to a model folder.

`crosscut train paper …` (`crosscut.cli.train_paper`) has the papers' recipes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import Device, EngineName, progress_bar
from crosscut.cli.train_paper import app as papers
from crosscut.cli.training import (
    Candidates,
    Epochs,
    Json,
    Output,
    Seed,
    Tokens,
    TrainingDtype,
    read_collections,
    reporting,
    scored_by,
    show_outcome,
)
from crosscut.errors import MissingDependency

if TYPE_CHECKING:
    from crosscut.training.jobs import Job
    from crosscut.training.loop import Outcome, Report
    from crosscut.types import Progress

app = typer.Typer(
    no_args_is_help=True, help="Train a cross-encoder or a dual encoder on judged queries, or distil a scorer."
)

app.add_typer(papers, name="paper")
Data = Annotated[Path, typer.Argument(help="A BEIR folder (corpus.jsonl, queries.jsonl, qrels), or a ZESHEL folder")]
Encoder = Annotated[
    Path, typer.Option(help="BERT, RoBERTa or DistilBERT to start from: config.json, model.safetensors, tokenizer.json")
]
Dual = Annotated[
    Path,
    typer.Option(
        help="BERT, RoBERTa or DistilBERT to start from: config.json, model.safetensors, tokenizer.json; or a dual "
        "encoder to go on from: default, or a folder that crosscut train has written"
    ),
]
Part = Annotated[str, typer.Option(help="Split of the judgements: qrels/<split>.tsv, mentions/<split>.json")]
Negative = Annotated[str, typer.Option(help="random, tfidf or dual (mined with a dual encoder)")]
Layers = Annotated[int | None, typer.Option(help="Keep only the first layers of the encoder")]
Independent = Annotated[int, typer.Option(help="Layers that read query and item apart; item states are then kept")]
Frozen = Annotated[bool, typer.Option(help="Do not train the independent layers")]
Rate = Annotated[float, typer.Option(help="Peak learning rate of the one cycle")]
PerBatch = Annotated[int, typer.Option(help="Tokens of the pairs of a batch")]


@app.command("cross-encoder")
def cross_encoder(
    data: Data,
    encoder: Encoder,
    output: Output,
    head: Annotated[str, typer.Option(help="emb (dot product of two special tokens) or cls (linear layer)")] = "emb",
    split: Part = "train",
    negatives: Negative = "tfidf",
    miner: Annotated[
        str | None, typer.Option(help="A trained dual encoder that mines the negatives; with --negatives dual.")
    ] = None,
    hardest: Annotated[bool, typer.Option(help="Take the very best negatives instead of drawing among them.")] = False,
    layers: Layers = None,
    independent: Independent = 0,
    frozen: Frozen = False,
    epochs: Epochs = 1,
    learning_rate: Rate = 2e-4,
    candidates: Candidates = 8,
    max_tokens: Tokens = 128,
    tokens_per_batch: PerBatch = 4096,
    device: Device = None,
    dtype: TrainingDtype = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train a cross-encoder: cross-entropy over one right item and hard negatives.

    Example: crosscut train cross-encoder scifact/ --encoder all-MiniLM-L6-v2/ --output my-model/ --layers 3

    The papers' own cross-encoders: crosscut train paper cross-encoder
    """
    values = locals()

    def run(job: Job, report: Report, _: Progress) -> Outcome:
        from crosscut.training.jobs import train_cross_encoder

        return train_cross_encoder(read_collections(data, split), job, head=head, report=report)  # type: ignore[arg-type]

    _train(values, run)


@app.command("dual-encoder")
def dual_encoder(
    data: Data,
    encoder: Dual,
    output: Output,
    split: Part = "train",
    negatives: Negative = "dual",
    layers: Layers = None,
    independent: Independent = 0,
    frozen: Frozen = False,
    epochs: Epochs = 2,
    learning_rate: Rate = 5e-5,
    candidates: Candidates = 8,
    max_tokens: Tokens = 128,
    tokens_per_batch: PerBatch = 4096,
    device: Device = None,
    dtype: TrainingDtype = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Train a dual encoder: in-batch and hard negatives, mined anew before every epoch.

    Example: crosscut train dual-encoder scifact/ --encoder all-MiniLM-L6-v2/ --output my-encoder/
    """
    values = locals()

    def run(job: Job, report: Report, _: Progress) -> Outcome:
        from crosscut.training.jobs import train_dual_encoder

        return train_dual_encoder(read_collections(data, split), job, report=report)

    _train(values, run)


@app.command("distill")
def distill(
    data: Annotated[Path, typer.Argument(help="BEIR folder: corpus.jsonl, queries.jsonl; judgements are not needed")],
    encoder: Dual,
    output: Output,
    scorer: Annotated[str, typer.Option(help="The teacher: default, a model folder, a hub id, an address")] = "default",
    loss: Annotated[
        str, typer.Option(help="match (the scorer's distribution) or pair (top items, negatives)")
    ] = "match",
    k_d: Annotated[int, typer.Option(help="Items of the encoder's top that the scorer scores, per query")] = 100,
    queries: Annotated[int | None, typer.Option(help="Use only the first train queries")] = None,
    layers: Layers = None,
    independent: Independent = 0,
    frozen: Frozen = False,
    epochs: Epochs = 10,
    learning_rate: Rate = 1e-5,
    candidates: Annotated[int, typer.Option(help="Of the scored items, the scorer's best that are trained on")] = 64,
    max_tokens: Tokens = 128,
    tokens_per_batch: PerBatch = 4096,
    device: Device = None,
    dtype: TrainingDtype = None,
    seed: Seed = 0,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Distil a scorer into a dual encoder (DE_DSTL): it learns the scorer's ranking of this collection.

    Costs k_d calls per query, which are made once and kept in the output folder.

    Example: crosscut train distill scifact/ --encoder default --output my-encoder/ --queries 500
    """
    values = {**locals(), "negatives": "dual"}
    bought: dict[str, Any] = {}

    def run(job: Job, report: Report, progress: Progress) -> Outcome:
        from crosscut.datasets.beir import read_items, read_queries
        from crosscut.datasets.files import find
        from crosscut.training.distill import bought_scores
        from crosscut.training.distill import distill as train_distilled

        items = list(read_items(find(data, "corpus.jsonl")))
        texts = [query.text for query in read_queries(find(data, "queries.jsonl"))][:queries]
        named, workers = scored_by(scorer, engine, job.hardware)
        scores = bought_scores(items, texts, named, job, k_d, engine=workers, progress=progress)
        bought.update(calls=scores.calls, scoring_seconds=scores.seconds)
        return train_distilled(items, texts, scores, job, loss=loss, report=report)  # type: ignore[arg-type]

    _train(values, run, bought)


def _train(
    values: dict[str, Any],
    run: Callable[[Job, Report, Progress], Outcome],
    more: dict[str, Any] | None = None,
) -> None:
    """Make the job, show progress, print the outcome."""
    job = _job(values)
    with progress_bar(quiet=values["as_json"]) as progress:
        outcome = run(job, reporting(progress, quiet=values["as_json"]), progress)
    show_outcome(outcome, job.output / "model", as_json=values["as_json"], more=more)


def _job(values: dict[str, Any]) -> Job:
    from crosscut.encoders.folder import DEFAULT, default_folder

    try:
        from crosscut.training.hardware import Hardware
        from crosscut.training.jobs import Job
        from crosscut.training.loop import TrainingSettings
    except ImportError as error:
        raise MissingDependency("training needs torch", "torch") from error
    return Job(
        encoder=default_folder() if str(values["encoder"]) == DEFAULT else values["encoder"],
        output=values["output"],
        negatives=values["negatives"],
        miner=values.get("miner"),
        hardest=values.get("hardest", False),
        layers=values["layers"],
        independent=values["independent"],
        frozen=values["frozen"],
        query_tokens=values["max_tokens"],
        item_tokens=values["max_tokens"],
        hardware=Hardware.of(values["device"], values["dtype"]).check(),
        settings=TrainingSettings(
            tokens_per_batch=values["tokens_per_batch"],
            learning_rate=values["learning_rate"],
            epochs=values["epochs"],
            candidates=values["candidates"],
            seed=values["seed"],
        ),
    )
