"""`crosscut train paper …`: the papers' models by the papers' recipes (`crosscut.training.published`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import Device, EngineName, progress_bar
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
from crosscut.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from crosscut.training.loop import Outcome
    from crosscut.training.published.fitting import PaperJob
    from crosscut.types import Progress

app = typer.Typer(no_args_is_help=True, help="Train the papers' models by the papers' recipes.")

Data = Annotated[Path, typer.Argument(help="A ZESHEL folder (documents, mentions) or a BEIR folder")]
Start = Annotated[str, typer.Option(help="What to start from, such as bert-base-uncased: a folder or a hub id")]
Part = Annotated[str, typer.Option(help="Split to learn from")]
Dev = Annotated[str | None, typer.Option(help="Split that picks the best checkpoint; a tenth of the queries if none")]
Rate = Annotated[float, typer.Option(help="Learning rate")]
WarmUp = Annotated[float, typer.Option(help="Share of the steps in which the rate rises")]
Batch = Annotated[int, typer.Option("--batch-size", help="Queries at a time on a device")]
Accumulate = Annotated[int, typer.Option(help="Batches whose gradients make a step; devices share them")]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Copies of the model that work side by side, one device each", show_default="the devices"),
]


def _train(
    values: dict[str, Any],
    run: Callable[[PaperJob, Progress], Outcome],
    measure: str = "accuracy@1",
    more: dict[str, Any] | None = None,
) -> None:
    """Make the job of a command's options, run it, say what came of it."""
    try:
        from crosscut.training.hardware import Hardware
        from crosscut.training.published.fitting import PaperJob, Recipe
    except ImportError as error:
        raise MissingDependency("training needs torch", "torch") from error
    names = ("learning_rate", "warm_up", "epochs", "batch", "accumulate", "candidates", "seed")
    recipe, output, quiet = Recipe(**{name: values[name] for name in names}), values["output"], values["as_json"]
    hardware = Hardware.of(values["device"], values["dtype"], workers=values["workers"]).check()
    with progress_bar(quiet=quiet) as progress:
        report = reporting(progress, quiet=quiet)
        job = PaperJob(values["start"], output, recipe, values["max_tokens"], hardware, report)
        outcome = run(job, progress)
    show_outcome(outcome, output / "model", as_json=quiet, more=more, measure=measure)


@app.command("dual-encoder")
def dual_encoder(
    data: Data,
    start: Start,
    output: Output,
    split: Part = "train",
    dev: Dev = None,
    epochs: Epochs = 4,
    learning_rate: Rate = 1e-5,
    warm_up: WarmUp = 0.01,
    batch: Batch = 8,
    accumulate: Accumulate = 1,
    candidates: Candidates = 64,
    max_tokens: Tokens = 128,
    device: Device = None,
    dtype: TrainingDtype = None,
    workers: Workers = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """DE_BASE of ANNCUR (app. A.1): two towers, hard negatives mined anew before every epoch.

    Example: crosscut train paper dual-encoder zeshel/ --start bert-base-uncased --dev val --output de/ --device cuda
    """

    def run(job: PaperJob, _: Progress) -> Outcome:
        from crosscut.training.published.recipes import train_towers

        return train_towers(read_collections(data, split), job, dev=read_collections(data, dev) if dev else ())

    _train(locals(), run)


@app.command("cross-encoder")
def cross_encoder(
    data: Data,
    start: Start,
    output: Output,
    miner: Annotated[
        str, typer.Option(help="What mines negatives: the trained dual encoder, de/model; or tfidf, or random")
    ],
    head: Annotated[str, typer.Option(help="emb (inner product of special tokens) or cls (linear layer)")] = "emb",
    split: Part = "train",
    dev: Dev = None,
    epochs: Epochs = 4,
    learning_rate: Rate = 1e-5,
    warm_up: WarmUp = 0.01,
    batch: Batch = 4,
    accumulate: Accumulate = 1,
    candidates: Candidates = 64,
    max_tokens: Tokens = 128,
    device: Device = None,
    dtype: TrainingDtype = None,
    workers: Workers = None,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """[EMB]-CE or [CLS]-CE of ANNCUR (app. A.1): special tokens, 63 fixed negatives of a trained dual encoder.

    Example: crosscut train paper cross-encoder zeshel/ --start bert-base-uncased --miner de/model --output ce/
    """

    def run(job: PaperJob, _: Progress) -> Outcome:
        from crosscut.training.published.recipes import train_cross

        judging = read_collections(data, dev) if dev else ()
        return train_cross(read_collections(data, split), job, miner, head=head, dev=judging)  # type: ignore[arg-type]

    _train(locals(), run)


@app.command("distill")
def distill(
    start: Start,
    output: Output,
    scorer: Annotated[str, typer.Option(help="The cross-encoder: a model folder, a hub id, an address")],
    data: Annotated[Path, typer.Argument(help="A BEIR folder, or a ZESHEL folder with --world")],
    world: Annotated[str | None, typer.Option(help="The world of a ZESHEL folder, such as yugioh")] = None,
    loss: Annotated[str, typer.Option(help="match (distribution of scores) or pair (top items, negatives)")] = "match",
    queries: Annotated[int, typer.Option(help="Train queries, drawn")] = 500,
    k_d: Annotated[int | None, typer.Option(help="Items a query that are scored; every item if left out")] = None,
    epochs: Epochs = 10,
    learning_rate: Rate = 1e-5,
    warm_up: WarmUp = 0.01,
    batch: Batch = 1,
    accumulate: Accumulate = 4,
    candidates: Annotated[int, typer.Option(help="Of the scored items, the best that are trained on")] = 100,
    max_tokens: Tokens = 128,
    device: Device = None,
    dtype: TrainingDtype = None,
    workers: Workers = None,
    engine: EngineName = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """DE_BERT+CE, DE_BASE+CE (ANNCUR app. A.3) or DE_DSTL (AXN app. A.2.1), by what it starts from.

    An encoder gives DE_BERT+CE, towers of `crosscut train paper dual-encoder` DE_BASE+CE, a sentence-transformers model
    DE_DSTL. Without --k-d the scorer sees every item of every train query, as ANNCUR's does.

    Example: crosscut train paper distill zeshel/ --world yugioh --scorer ce/model --start de/model --output dstl/
    """
    bought: dict[str, Any] = {}

    def run(job: PaperJob, progress: Progress) -> Outcome:
        from crosscut.evaluation.papers.world_files import read_texts
        from crosscut.spaces.sparse import SparseScores, items_per_query
        from crosscut.training.negatives import rank_dense
        from crosscut.training.published.distillation import distil
        from crosscut.training.published.models import Towers

        texts = read_texts(data, world, "full", train=queries, seed=seed)
        shape = (len(texts.train), len(texts.items))
        count = min(k_d or shape[1], shape[1])
        ranked = None
        if count < shape[1]:
            towers = Towers.start(start, tokens=max_tokens).to(job.hardware.first)
            vectors = towers.embed(towers.form.items(texts.items), 1)
            ranked = rank_dense(vectors, towers.embed(towers.form.queries(texts.train), 0), count)
        named, workers_of = scored_by(scorer, engine, job.hardware)
        terms: Any = {"store": output / "scores", "engine": workers_of, "progress": progress}
        pairs = items_per_query(count, shape, ranked=ranked)
        scores = SparseScores.buy(named, texts.train, pairs, items=texts.items, **terms)
        bought.update(calls=scores.calls, scoring_seconds=scores.seconds)
        return distil(texts.items, texts.train, scores, job, loss=loss)  # type: ignore[arg-type]

    _train(locals(), run, "shared top 10", bought)


@app.command("student")
def student(
    data: Data,
    start: Start,
    output: Output,
    teacher: Annotated[list[str], typer.Option(help="A scorer whose scores are learned; several are averaged")],
    split: Part = "train",
    epochs: Epochs = 1,
    learning_rate: Rate = 7e-6,
    warm_up: WarmUp = 0.05,
    batch: Batch = 32,
    accumulate: Accumulate = 1,
    candidates: Annotated[int, typer.Option(help="Items of a query: the right one and the words' best others")] = 2,
    max_tokens: Annotated[int, typer.Option(help="Most tokens of a pair")] = 256,
    device: Device = None,
    dtype: TrainingDtype = None,
    workers: Workers = None,
    engine: EngineName = "local",
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """ADACUR's cross-encoder for BEIR (app. B.1.2): mean squared error to the mean score of several teachers.

    The model scores by the inner product of [CLS] and [SEP]; search with `--scorer emb+OUTPUT/model`.

    Example: crosscut train paper student msmarco/ --start microsoft/MiniLM-L6 --teacher A --teacher B --output ce/
    """

    def run(job: PaperJob, progress: Progress) -> Outcome:
        import numpy as np

        from crosscut.linalg.top import ranked
        from crosscut.retrievers.bm25 import BM25
        from crosscut.training.published.recipes import teach

        if (data / "documents").is_dir():
            raise InputError("the student learns from plain queries and texts: give a BEIR folder")
        (collection,) = read_collections(data, split)
        judged = [query.text for query in collection.queries if collection.gold(query.id)]
        if not judged:
            raise InputError(f"no query of {str(data)!r} has a right item in the split {split!r}")
        words = BM25(collection.items)
        most = min(candidates + 20, len(collection.items))
        placed = [scored_by(one, engine, job.hardware) for one in teacher]
        widest = max((made for _, made in placed), key=lambda made: made.workers)
        return teach(
            collection,
            job,
            [named for named, _ in placed],
            ranked=np.stack([ranked(np.asarray(words.scores(text)), most) for text in judged]),
            engine=widest,
            progress=progress,
        )

    _train(locals(), run, "1 / (1 + error)")
