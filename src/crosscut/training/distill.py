"""Distillation: a dual encoder that learns the scorer's ranking of a target domain (DE_DSTL).

ANNCUR (Yadav et al. 2022, app. A.3) and AXN (Yadav et al. 2024, app. A.2.1):

    T(q)      the scorer's top k_d items of a train query, among those it has scored
    L_match   Σ_q H(softmax s_q^CE, softmax s_q^DE) over T(q): match the distribution of scores
    L_pair    Σ_q Σ_j H([0, 1], softmax [s_{q,N_j}, s_{q,T_j}]): each of the top items above a hard negative, the
              encoder's own best items that are not in T(q), mined anew before every epoch
    s^DE      cosine times the model's temperature

AdamW, learning rate 1e-5, 10 epochs; a tenth of the queries validates, by how many of the scorer's ten best of its
scored items the encoder puts among its own ten best of them. The scores are bought once and kept beside the
checkpoints; a run that was killed goes on from both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from crosscut.datasets.records import Item
from crosscut.encoders.tokens import Tokens
from crosscut.errors import InputError
from crosscut.scorers.base import Scorer
from crosscut.scores.buy import Terms
from crosscut.spaces.sparse import SparseScores, items_per_query
from crosscut.training.examples import Example, Examples, TrainingBatch
from crosscut.training.jobs import Job, embed, run_job, start_model, tokenizer_of
from crosscut.training.loop import Outcome, scores_of
from crosscut.training.models import DualModel, Split
from crosscut.training.negatives import rank_dense
from crosscut.types import Array

Loss = Literal["match", "pair"]
BEST = 10  # of the scorer's best items that a validation looks for


def distill(
    items: Sequence[Item | str],
    queries: Sequence[str],
    scores: SparseScores,
    job: Job,
    *,
    loss: Loss = "match",
) -> Outcome:
    """Distil a scorer into a dual encoder and write `job.output`/model.

    Parameters
    ----------
    items, queries
        All items (n) and the texts of the train queries (|Q|).
    scores
        G (|Q| × n): what the scorer said of some items of each query; `bought_scores` obtains it.
    job
        `job.settings.candidates` is k_d, the items a query is trained on; `job.negatives` is not used.
    """
    check(loss, scores, queries, items)
    job.check()
    model = start_model(DualModel, job)
    tokenizer = tokenizer_of(job)
    examples = Examples(pool=tokenizer.items(list(items)))
    tokens = [tokenizer.query(text) for text in queries]
    lists = by_score(scores)
    shortest = min((len(ranked) for ranked, _ in lists.values()), default=0)
    if len(lists) < 2 or shortest < 2:
        raise InputError(
            f"{len(lists)} queries with {shortest} scored items or more cannot be distilled: "
            "score at least 2 items of at least 2 queries"
        )
    candidates = max(2, min(job.settings.candidates, shortest))
    if loss == "pair":
        candidates -= candidates % 2  # as many negatives as top items
    job = replace(job, settings=replace(job.settings, candidates=candidates))
    held, learned = _split(lists, job.validation_share, job.settings.seed)
    examples.validation = [_example("validation", tokens[q], *lists[q]) for q in held]

    def mine(epoch: int, examples: Examples) -> None:
        if loss == "pair":
            examples.train = _pairs(model, examples.pool, lists, tokens, learned, candidates)
        elif epoch == 0:
            examples.train = _matches(lists, tokens, learned, candidates)

    mine(0, examples)
    return run_job(
        job,
        model,
        examples,
        before_epoch=lambda epoch, found: mine(epoch, found) if epoch else None,
        objective=match_loss if loss == "match" else pair_loss,
        judge=agreement,
    )


def check(loss: Loss, scores: SparseScores, queries: Sequence[str], items: Sequence[Item | str]) -> None:
    """Refuse a loss that there is not, and scores of other queries and items."""
    if loss not in ("match", "pair"):
        raise InputError(f"the loss of a distillation is 'match' or 'pair', not {loss!r}")
    if scores.shape != (len(queries), len(items)):
        raise InputError(f"scores of {scores.shape} (queries × items) for {len(queries)} queries, {len(items)} items")


def match_loss(model: Split, batch: TrainingBatch) -> tuple[Tensor, int]:
    """L_match of a batch, and how many queries have the scorer's best item first."""
    ours = scores_of(model, batch)  # (examples × k_d)
    theirs = torch.tensor(batch.scores, dtype=torch.float32, device=ours.device).view(ours.shape)
    loss = -(functional.softmax(theirs, 1) * functional.log_softmax(ours, 1)).sum(1).mean()
    return loss, int((ours.argmax(1) == theirs.argmax(1)).sum())


def pair_loss(model: Split, batch: TrainingBatch) -> tuple[Tensor, int]:
    """L_pair of a batch whose examples hold top items, then as many negatives; and how many put a top item first."""
    ours = scores_of(model, batch)  # (examples × k_d)
    half = ours.shape[1] // 2
    loss = functional.softplus(ours[:, half:] - ours[:, :half]).mean()
    return loss, int((ours.argmax(1) < half).sum())


@torch.no_grad()
def agreement(model: Split, examples: Examples) -> dict[str, float]:
    """The share of the scorer's ten best among a validation query's scored items that the encoder's ten best hold."""
    assert isinstance(model, DualModel)
    used = sorted({item for example in examples.validation for item in example.items})
    place = {item: row for row, item in enumerate(used)}
    vectors = embed(model, [examples.pool[item] for item in used])
    queries = embed(model, [example.query for example in examples.validation])
    shares = []
    for example, query in zip(examples.validation, queries, strict=True):
        shares.append(shared_best(vectors[[place[item] for item in example.items]] @ query))
    return {"mean": float(np.mean(shares))}


def shared_best(ours: Array) -> float:
    """The share of the scorer's ten best items that are among our ten best; items lie in the order of the scorer."""
    count = min(BEST, max(1, len(ours) // 2))
    return float(np.mean(np.argsort(-ours, kind="stable")[:count] < count))


Lists = dict[int, tuple[list[int], list[float]]]


def by_score(scores: SparseScores) -> Lists:
    """Each query's scored items and their scores, best first."""
    order = np.lexsort((scores.pairs.items, -scores.scores, scores.pairs.queries))
    queries, items, values = scores.pairs.queries[order], scores.pairs.items[order], scores.scores[order]
    lists: Lists = {}
    for query, item, value in zip(queries.tolist(), items.tolist(), values.tolist(), strict=True):
        found = lists.setdefault(query, ([], []))
        found[0].append(item)
        found[1].append(value)
    return lists


def _matches(lists: Lists, tokens: Sequence[Tokens], queries: Sequence[int], candidates: int) -> list[Example]:
    """The scorer's top k_d of every query, with its scores."""
    return [_example("train", tokens[q], lists[q][0][:candidates], lists[q][1][:candidates]) for q in queries]


def _pairs(
    model: DualModel,
    pool: Sequence[Tokens],
    lists: Lists,
    tokens: Sequence[Tokens],
    queries: Sequence[int],
    candidates: int,
) -> list[Example]:
    """Half of k_d the scorer's top items, half the encoder's best others, by its latest weights."""
    half = candidates // 2
    ranked = rank_dense(embed(model, list(pool)), embed(model, [tokens[q] for q in queries]), 2 * candidates)
    made = []
    for query, row in zip(queries, ranked, strict=True):
        top = lists[query][0][:half]
        wrong = [item for item in row.tolist() if item not in set(top)][:half]
        made.append(_example("train", tokens[query], [*top, *wrong], []))
    return made


def _split(lists: Lists, share: float, seed: int) -> tuple[list[int], list[int]]:
    queries = sorted(lists)
    random.Random(seed).shuffle(queries)
    held = min(max(1, round(share * len(queries))), len(queries) - 1)
    return queries[:held], queries[held:]


def _example(source: str, query: Tokens, items: Sequence[int], scores: Sequence[float]) -> Example:
    return Example(source, query, tuple(items), frozenset(items), tuple(scores))


def bought_scores(
    items: Sequence[Item | str],
    queries: Sequence[str],
    scorer: Scorer | str,
    job: Job,
    k_d: int,
    **terms: Unpack[Terms],
) -> SparseScores:
    """The scorer's scores of each query's top k_d by the encoder before training; bought once, kept in `job.output`."""
    model, tokenizer = start_model(DualModel, job), tokenizer_of(job)
    vectors = embed(model, tokenizer.items(list(items)))
    ranked = rank_dense(vectors, embed(model, [tokenizer.query(text) for text in queries]), k_d)
    pairs = items_per_query(k_d, (len(queries), len(items)), ranked=ranked)
    terms.setdefault("store", job.output / "scores")
    return SparseScores.buy(scorer, queries, pairs, items=items, **terms)
