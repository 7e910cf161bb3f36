"""A scorer into a dual encoder as published (ANNCUR app. A.3, AXN app. A.2.1).

    DE_BERT+CE   starts from an encoder that knows nothing of the task
    DE_BASE+CE   starts from towers that were trained on judged queries (`recipes.train_towers`)
    DE_DSTL      starts from a sentence-transformers model (DE_SRC of BEIR)

Towers have weights of their own, scores are inner products, gradients of 4 batches are added up.
`crosscut.training.distill` is ours: one set of weights, cosine.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.spaces.sparse import SparseScores
from crosscut.training.distill import Loss, by_score, check, shared_best
from crosscut.training.loop import Outcome
from crosscut.training.negatives import rank_dense
from crosscut.training.published.fitting import Case, PaperJob, fit
from crosscut.training.published.models import Towers
from crosscut.training.published.recipes import HELD, ReadWorld, negatives, tower_scores


def distil(
    items: Sequence[Item | str],
    queries: Sequence[str],
    scores: SparseScores,
    job: PaperJob,
    *,
    loss: Loss = "match",
) -> Outcome:
    """A scorer into a dual encoder; `recipe.candidates` is k_d, the scorer's best items of a query (L_pair: as many
    negatives beside them). Writes `output`/model."""
    check(loss, scores, queries, items)
    model, recipe = Towers.start(job.start, tokens=job.tokens), job.recipe
    world = ReadWorld(model.form.items(items), model.form.queries(queries), [frozenset()] * len(queries))
    best = by_score(scores)
    order = np.random.default_rng(recipe.seed).permutation(sorted(best)).tolist()
    if len(order) < 2 or min(len(found) for found, _ in best.values()) < 2:
        raise InputError("a distillation needs 2 scored items or more of 2 queries or more")
    held = min(max(1, round(HELD * len(order))), len(order) - 1)
    judging, learned = order[:held], order[held:]

    def mine(epoch: int) -> list[Case]:
        tops = {q: best[q][0][: recipe.candidates] for q in learned}
        if loss == "match":
            return [Case(0, q, tuple(tops[q]), tuple(best[q][1][: recipe.candidates])) for q in learned]
        with job.hardware.arithmetic():
            vectors, asked = model.embed(world.items, 1), model.embed([world.queries[q] for q in learned], 0)
        ranked = rank_dense(vectors, asked, 2 * recipe.candidates)
        wrong = [negatives(row, frozenset(tops[q]), len(tops[q])) for q, row in zip(learned, ranked, strict=True)]
        # a top item with each negative: as many of either
        return [Case(0, q, (*tops[q][: len(some)], *some)) for q, some in zip(learned, wrong, strict=True) if len(some)]

    return fit(
        model,
        mine,
        lambda towers, cases: (match if loss == "match" else pair)(tower_scores(towers, [world], cases), cases),
        lambda towers: agreement(towers, world, {q: best[q] for q in judging}),
        job,
    )


def match(scores: Sequence[Tensor], cases: Sequence[Case]) -> Tensor:
    """L_match: H(softmax of the scorer's scores, softmax of ours), the mean over queries."""
    losses = []
    for ours, case in zip(scores, cases, strict=True):
        theirs = torch.tensor(case.scores, device=ours.device)
        losses.append(-(functional.softmax(theirs, 0) * functional.log_softmax(ours.float(), 0)).sum())
    return torch.stack(losses).mean()


def pair(scores: Sequence[Tensor], cases: Sequence[Case]) -> Tensor:
    """L_pair: each of the scorer's best items above a negative of its own."""
    halves = [one.float().chunk(2) for one in scores]
    return torch.stack([functional.softplus(wrong - right).mean() for right, wrong in halves]).mean()


def agreement(towers: Towers, world: ReadWorld, best: dict[int, tuple[list[int], list[float]]]) -> float:
    """The share of the scorer's ten best that are among the dual encoder's ten best of what was scored."""
    shares = []
    wanted = sorted({item for found, _ in best.values() for item in found})
    vectors = dict(zip(wanted, towers.embed([world.items[item] for item in wanted], 1), strict=True))
    for query, (found, _) in best.items():
        asked = towers.embed([world.queries[query]], 0)[0]
        shares.append(shared_best(np.asarray([vectors[item] @ asked for item in found])))
    return float(np.mean(shares))
