"""Training on a collection, from judged queries to a model folder that runs without torch.

The cross-encoder gets a fixed set of negatives; the dual encoder has them mined anew before every epoch
with its latest weights (ANNCUR appendix A.1). A tenth of the queries validates.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from crosscut.datasets.records import Collection, Query
from crosscut.encoders.named import load_encoder
from crosscut.encoders.running import placed
from crosscut.encoders.tokens import Tokenizer, Tokens
from crosscut.errors import InputError
from crosscut.retrievers.tfidf import TfIdf
from crosscut.training.bert import read_encoder
from crosscut.training.examples import Example, Examples
from crosscut.training.export import export
from crosscut.training.hardware import Hardware
from crosscut.training.loop import Judge, Objective, Outcome, Report, TrainingSettings, train
from crosscut.training.models import CrossModel, DualModel, Head, Split, pack_texts
from crosscut.training.negatives import draw, rank_dense
from crosscut.training.saved import is_exported, read_exported

Negatives = Literal["random", "tfidf", "dual"]
Ranker = Callable[[Sequence[Query]], npt.NDArray[np.int64]]
MINED = 60
M = TypeVar("M", bound=Split)


@dataclass(frozen=True)
class Job:
    """What to train from, and how; shared by both kinds of model.

    `layers` cuts the encoder to its first layers; `independent` of them read texts alone, and `frozen`
    keeps those as they are. `miner` is a trained dual encoder that mines a cross-encoder's negatives (a folder, a hub
    id, a checkpoint of two towers); `hardest` takes its very best, as ANNCUR does with 63 of them (app. A.1), in place
    of a draw among the best 50.
    """

    encoder: Path
    output: Path
    negatives: Negatives = "tfidf"
    miner: str | None = None
    hardest: bool = False
    layers: int | None = None
    independent: int = 0
    frozen: bool = False
    query_tokens: int = 128
    item_tokens: int = 128
    validation_share: float = 0.1
    hardware: Hardware = field(default_factory=Hardware)
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    report: Report | None = None

    def check(self) -> None:
        if self.negatives not in ("random", "tfidf", "dual"):
            raise InputError(f"negatives are 'random', 'tfidf' or 'dual', not {self.negatives!r}")
        if not 0 < self.validation_share < 1:
            raise InputError(f"the validation share {self.validation_share} must lie between 0 and 1")
        if self.miner is not None and self.negatives != "dual":
            raise InputError(
                f"the miner {self.miner!r} is a dual encoder: it needs negatives='dual', not {self.negatives!r}"
            )

    @property
    def mined(self) -> int:
        """How many items a miner ranks for a query: enough for the negatives, right items among them."""
        return max(MINED, self.settings.candidates + 10)


def train_cross_encoder(collections: Collection | Sequence[Collection], job: Job, *, head: Head = "emb") -> Outcome:
    """Train a cross-encoder on judged queries and write `job.output`/model.

    Of several collections, such as the worlds of ZESHEL, negatives come from the query's own.
    """
    job.check()
    model = start_model(CrossModel, job, head)
    tokenizer = tokenizer_of(job)
    miner = None
    if job.negatives == "dual" and job.miner is None:
        miner = start_model(DualModel, job)
        miner.requires_grad_(False)
    examples = Examples()
    _fill(examples, as_worlds(collections), job, tokenizer, miner)
    return run_job(job, model, examples)


def train_dual_encoder(collections: Collection | Sequence[Collection], job: Job) -> Outcome:
    """Train a dual encoder on judged queries and write `job.output`/model."""
    job.check()
    model = start_model(DualModel, job)
    tokenizer = tokenizer_of(job)
    worlds = as_worlds(collections)
    examples = Examples()
    _fill(examples, worlds, job, tokenizer, model)

    def mine_again(epoch: int, examples: Examples) -> None:
        if epoch and job.negatives == "dual":
            validation = examples.validation
            _fill(examples, worlds, job, tokenizer, model)
            examples.validation = validation  # accuracies of all epochs are about the same candidates

    return run_job(job, model, examples, before_epoch=mine_again)


def as_worlds(collections: Collection | Sequence[Collection]) -> list[Collection]:
    return [collections] if isinstance(collections, Collection) else list(collections)


def embed(model: DualModel, tokens: Sequence[Tokens], *, tokens_per_call: int = 4096) -> npt.NDArray[np.float32]:
    """Vectors (texts × D) of a dual encoder under training."""
    order = np.argsort([len(text.ids) for text in tokens], kind="stable")
    vectors = np.zeros((len(tokens), model.shape.hidden_size), np.float32)
    first = 0
    while first < len(order):
        rows = order[first : first + max(1, tokens_per_call // len(tokens[order[first]].ids))]
        with torch.no_grad():
            vectors[rows] = model(pack_texts([tokens[row] for row in rows])).float().cpu().numpy()
        first += len(rows)
    return vectors


def start_model(kind: Callable[..., M], job: Job, *arguments: object) -> M:
    """A model of this kind with the weights of the job's encoder."""
    if is_exported(job.encoder):
        return _go_on(kind, job)
    shape, weights = read_encoder(job.encoder)
    if job.layers is not None:
        if not 1 <= job.layers <= shape.num_hidden_layers:
            raise InputError(f"the encoder has {shape.num_hidden_layers} layers; {job.layers} of them cannot be kept")
        shape = type(shape)(**{**shape.asdict(), "num_hidden_layers": job.layers})
    torch.manual_seed(job.settings.seed)
    model = kind(shape, job.independent, *arguments)
    model.start_from(weights)
    if job.frozen:
        model.freeze_lower()
    return model.to(job.hardware.first)


def _go_on(kind: Callable[..., M], job: Job) -> M:
    """The dual encoder of an exported folder, as it was."""
    if kind is not DualModel:
        raise InputError(
            f"{str(job.encoder)!r} is an exported model, from which a dual encoder may go on; a cross-encoder starts "
            "from a BERT-like encoder: config.json, model.safetensors, tokenizer.json"
        )
    shape, independent, weights = read_exported(job.encoder)
    if job.layers not in (None, shape.num_hidden_layers) or job.independent not in (0, independent):
        raise InputError(
            f"{str(job.encoder)!r} has {shape.num_hidden_layers} layers, {independent} of them independent, and keeps "
            f"them; {job.layers} layers and {job.independent} independent ones were asked for"
        )
    model = kind(shape, independent)
    model.load_state_dict({**weights, "temperature": model.temperature})
    if job.frozen:
        model.freeze_lower()
    return model.to(job.hardware.first)


def tokenizer_of(job: Job) -> Tokenizer:
    """The encoder's tokenizer, with the job's limits."""
    path = job.encoder / "tokenizer.json"
    return Tokenizer(path, query_tokens=job.query_tokens, item_tokens=job.item_tokens)


def _ranker(
    job: Job, collection: Collection, tokenizer: Tokenizer, pool: Sequence[Tokens], dual: DualModel | None
) -> Ranker:
    """Ranks items for queries by the miner that the job names."""
    if job.negatives == "tfidf":
        index = TfIdf(collection.items)
        return lambda queries: index.rank([query.text for query in queries], job.mined)
    if job.miner is not None:
        trained = load_encoder(placed(str(job.miner), job.hardware.devices))
        vectors = trained.encode_items(collection.items)
        return lambda queries: rank_dense(vectors, trained.encode_queries([q.text for q in queries]), job.mined)
    if job.negatives == "dual" and dual is not None:
        items = embed(dual, list(pool[: len(collection.items)]))
        return lambda queries: rank_dense(
            items, embed(dual, [tokenizer.query(query.text) for query in queries]), job.mined
        )
    rng = np.random.default_rng(job.settings.seed)
    count = min(job.mined, len(collection.items))
    return lambda queries: np.stack([rng.permutation(len(collection.items))[:count] for _ in queries])


def _fill(
    examples: Examples, worlds: Sequence[Collection], job: Job, tokenizer: Tokenizer, dual: DualModel | None
) -> None:
    """One example per query and right item; which queries validate depends on the seed alone."""
    if not examples.pool:
        for world in worlds:
            examples.add_items(tokenizer.items(world.items))
    examples.train, examples.validation = [], []
    rng = random.Random(job.settings.seed)
    first = 0
    for world in worlds:
        pool = examples.pool[first : first + len(world.items)]
        _add(examples, world, first, job, tokenizer, _ranker(job, world, tokenizer, pool, dual), rng)
        first += len(world.items)


def _add(
    examples: Examples,
    collection: Collection,
    first: int,
    job: Job,
    tokenizer: Tokenizer,
    rank: Ranker,
    rng: random.Random,
) -> None:
    """The examples of one collection, whose items lie in the pool from `first` on."""
    positions = collection.positions
    judged = [query for query in collection.queries if collection.gold(query.id)]
    if len(judged) < 2:
        raise InputError(
            f"{len(judged)} queries of {collection.name!r} have a relevant item; training needs at least 2"
        )
    rng.shuffle(judged)
    held = max(1, round(job.validation_share * len(judged)))
    ranked = rank(judged)
    count = job.settings.candidates - 1
    for number, query in enumerate(judged):
        gold = [positions[id] for id in collection.gold(query.id)]
        for right in gold:
            wrong = draw(ranked[number], set(gold), count, rng, among=count if job.hardest else max(50, count))
            example = Example(
                "validation" if number < held else "train",
                tokenizer.query(query.text),
                tuple(first + item for item in (right, *wrong)),
                frozenset(first + item for item in gold),
            )
            (examples.validation if number < held else examples.train).append(example)


def run_job(
    job: Job,
    model: CrossModel | DualModel,
    examples: Examples,
    *,
    before_epoch: Callable[[int, Examples], None] | None = None,
    objective: Objective | None = None,
    judge: Judge | None = None,
) -> Outcome:
    """Train a model, with the options of `train`, and write `job.output`/model."""
    outcome = train(
        model,
        examples,
        job.settings,
        job.output / "checkpoints",
        report=job.report,
        before_epoch=before_epoch,
        objective=objective,
        judge=judge,
        hardware=job.hardware,
    )
    export(
        job.output / "model",
        job.encoder / "tokenizer.json",
        cross=model if isinstance(model, CrossModel) else None,
        dual=model if isinstance(model, DualModel) else None,
        query_tokens=job.query_tokens,
        item_tokens=job.item_tokens,
    )
    return outcome
