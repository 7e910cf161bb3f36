"""The papers' recipes: from worlds of judged queries, or from a scorer's scores, to a model as published.

| recipe | paper | what it does |
|---|---|---|
| `train_towers` | ANNCUR app. A.1 | DE_BASE: cross-entropy over the right item and hard negatives, mined anew before every epoch with the latest weights; batch 8 |
| `train_cross` | ANNCUR app. A.1 | [EMB]- or [CLS]-CE: cross-entropy over the right item and 63 negatives of the trained dual encoder, fixed; batch 4 |
| `distillation.distil` | ANNCUR app. A.3, AXN app. A.2.1 | DE_BERT+CE, DE_BASE+CE, DE_DSTL: L_match or L_pair on a scorer's scores; gradients of 4 batches added up |
| `teach` | ADACUR app. B.1.2 | [EMB]-CE for plain texts: mean squared error to the mean of several teachers |

A world is a set of items with its queries: negatives come from the query's own world, as ZESHEL's must.
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from crosscut.datasets.records import Collection, Item
from crosscut.encoders.named import load_encoder
from crosscut.encoders.pairs import Form, Text
from crosscut.encoders.running import placed
from crosscut.encoders.towers import has_towers
from crosscut.errors import InputError
from crosscut.retrievers.tfidf import TfIdf
from crosscut.spaces.sparse import Pairs, SparseScores
from crosscut.training.hardware import Hardware
from crosscut.training.loop import Outcome
from crosscut.training.negatives import rank_dense
from crosscut.training.published.fitting import Case, PaperJob, fit
from crosscut.training.published.models import PaperCross, Towers
from crosscut.types import Positions

if TYPE_CHECKING:
    from crosscut.scores.buy import Terms

POOL = 10_000  # items among which a dual encoder is judged
HELD = 0.1  # share of the queries that judge, where there is no dev set


@dataclass(frozen=True)
class ReadWorld:
    """Items and queries as a model reads them; `gold` has the positions of every query's right items."""

    items: list[Text]
    queries: list[Text]
    gold: list[frozenset[int]]
    texts: tuple[Sequence[Item], Sequence[str]] = ((), ())  # as they were given: items and queries

    @classmethod
    def read(cls, collection: Collection, form: Form) -> ReadWorld:
        place = collection.positions
        judged = [query for query in collection.queries if collection.gold(query.id)]
        gold = [frozenset(place[id] for id in collection.gold(query.id)) for query in judged]
        texts = [query.text for query in judged]
        read = form.queries(texts) if judged else []
        return cls(form.items(collection.items), read, gold, (collection.items, texts))

    def part(self, chosen: Sequence[int]) -> ReadWorld:
        """The same items with some of the queries."""
        items, texts = self.texts
        return ReadWorld(
            self.items,
            [self.queries[query] for query in chosen],
            [self.gold[query] for query in chosen],
            (items, [texts[query] for query in chosen]),
        )


def _worlds(collections: Sequence[Collection], dev: Sequence[Collection], form: Form, seed: int) -> Splits:
    """Worlds to learn from and to be judged by: those of a dev set, or a tenth of the queries."""
    train = [ReadWorld.read(collection, form) for collection in collections]
    count = sum(len(world.queries) for world in train)
    if count < 2:
        raise InputError(f"{count} queries have a right item; training needs at least 2")
    if dev:
        return train, [ReadWorld.read(collection, form) for collection in dev]
    rng = np.random.default_rng(seed)
    learned, judging = [], []
    for world in train:
        order = rng.permutation(len(world.queries))
        held = min(max(1, round(HELD * len(order))), max(len(order) - 1, 0))
        learned.append(world.part(sorted(order[held:].tolist())))
        judging.append(world.part(sorted(order[:held].tolist())))
    return learned, judging


Splits = tuple[list[ReadWorld], list[ReadWorld]]


def negatives(ranked: Positions, gold: frozenset[int], count: int) -> list[int]:
    """The best `count` of a ranking that are not right."""
    return [item for item in ranked.tolist() if item not in gold][:count]


def _cases(worlds: Sequence[ReadWorld], rank: Callable[[ReadWorld], Positions], count: int) -> list[Case]:
    """The right item of every query first, its hardest negatives behind it."""
    made = []
    for number, world in enumerate(worlds):
        if not world.queries:
            continue
        ranked = rank(world)
        for query, gold in enumerate(world.gold):
            wrong = negatives(ranked[query], gold, count - 1)
            made += [Case(number, query, (right, *wrong)) for right in sorted(gold)]
    return made


def train_towers(collections: Sequence[Collection], job: PaperJob, *, dev: Sequence[Collection] = ()) -> Outcome:
    """DE_BASE: two towers from a plain encoder, or on from a dual encoder that there is; writes `output`/model."""
    model, recipe = Towers.start(job.start, tokens=job.tokens), job.recipe
    train, judging = _worlds(collections, dev, model.form, recipe.seed)

    def mine(epoch: int) -> list[Case]:
        with job.hardware.arithmetic():
            return _cases(train, lambda world: ranked_by(model, world, recipe.candidates), recipe.candidates)

    return fit(
        model,
        mine,
        lambda towers, cases: entropy(tower_scores(towers, train, cases)),
        lambda towers: accuracy(towers, judging, recipe.seed),
        job,
    )


def ranked_by(towers: Towers, world: ReadWorld, count: int) -> Positions:
    """The best items of every query of a world, right ones among them."""
    items, queries = towers.embed(world.items, 1), towers.embed(world.queries, 0)
    return rank_dense(items, queries, count + _most(world))


def ranker(
    miner: str | Path, count: int, tokens: int, how: Hardware, seed: int = 0
) -> Callable[[ReadWorld], Positions]:
    """Ranks a world's items by a trained dual encoder: on the training's own device.

    Or by `random` and `tfidf`, the other negatives of ANNCUR's table 3.
    """
    if miner == "random":
        rng = np.random.default_rng(seed)
        return lambda world: np.stack([rng.permutation(len(world.items))[: count + _most(world)] for _ in world.gold])
    if miner == "tfidf":
        return lambda world: TfIdf(world.texts[0]).rank(list(world.texts[1]), count + _most(world))
    if has_towers(miner):
        towers = Towers.start(miner, tokens=tokens).to(how.first)
        return lambda world: ranked_by(towers, world, count)
    encoder = load_encoder(placed(str(miner), how.devices))

    def rank(world: ReadWorld) -> Positions:
        items, queries = world.texts
        return rank_dense(encoder.encode_items(items), encoder.encode_queries(queries), count + _most(world))

    return rank


def _most(world: ReadWorld) -> int:
    """Right items of a query, at most."""
    return max(map(len, world.gold), default=0)


def tower_scores(towers: Towers, worlds: Sequence[ReadWorld], cases: Sequence[Case]) -> list[Tensor]:
    """Scores of each case's items; every text is read once."""
    queries = towers([worlds[case.world].queries[case.query] for case in cases], 0)
    wanted = list(dict.fromkeys((case.world, item) for case in cases for item in case.items))
    place = {one: row for row, one in enumerate(wanted)}
    items = towers([worlds[world].items[item] for world, item in wanted], 1)
    return [
        towers.scale * (items[[place[case.world, item] for item in case.items]] @ query)
        for case, query in zip(cases, queries, strict=True)
    ]


def entropy(scores: Sequence[Tensor]) -> Tensor:
    """Mean cross-entropy of cases whose first item is the right one."""
    return torch.stack([-functional.log_softmax(one.float(), 0)[0] for one in scores]).mean()


def accuracy(towers: Towers, worlds: Sequence[ReadWorld], seed: int) -> float:
    """How often the nearest item is a right one, among all items of a world or, of large ones, `POOL` drawn."""
    rng = np.random.default_rng(seed)
    hits = []
    for world in worlds:
        if not world.queries:
            continue
        right = {item for gold in world.gold for item in gold}
        others = [item for item in rng.permutation(len(world.items)).tolist() if item not in right]
        pool = np.asarray([*sorted(right), *others[: max(0, POOL - len(right))]])
        best = rank_dense(towers.embed([world.items[i] for i in pool], 1), towers.embed(world.queries, 0), 1)[:, 0]
        hits += [int(pool[one]) in gold for one, gold in zip(best, world.gold, strict=True)]
    return float(np.mean(hits))


def train_cross(
    collections: Sequence[Collection],
    job: PaperJob,
    miner: str | Path,
    *,
    head: Literal["emb", "cls"] = "emb",
    dev: Sequence[Collection] = (),
) -> Outcome:
    """[EMB]- or [CLS]-CE; `miner` is the trained dual encoder, `tfidf` or `random`; writes `output`/model."""
    model, recipe = PaperCross.start(job.start, head, tokens=job.tokens), job.recipe
    train, judging = _worlds(collections, dev, model.form, recipe.seed)
    with job.hardware.arithmetic():
        rank = ranker(miner, recipe.candidates, job.tokens, job.hardware, recipe.seed)
        fixed, judged = (_cases(worlds, rank, recipe.candidates) for worlds in (train, judging))
    return fit(
        model,
        lambda epoch: fixed,  # the same in every epoch
        lambda cross, cases: entropy(pair_scores(cross, train, cases)),
        lambda cross: first_is_right(cross, judging, judged),
        job,
    )


def pair_scores(cross: PaperCross, worlds: Sequence[ReadWorld], cases: Sequence[Case]) -> list[Tensor]:
    """Scores of each case's items."""
    rows = [
        cross.form.join(worlds[case.world].queries[case.query], worlds[case.world].items[item])
        for case in cases
        for item in case.items
    ]
    return list(cross(rows).split([len(case.items) for case in cases]))


def first_is_right(cross: PaperCross, worlds: Sequence[ReadWorld], cases: Sequence[Case]) -> float:
    """How often the right item comes before all its negatives."""
    return float(np.mean([int(pair_scores(cross, worlds, [case])[0].argmax()) == 0 for case in cases]))


def teach(
    collection: Collection, job: PaperJob, teachers: Sequence[Any], *, ranked: Positions, **terms: Unpack[Terms]
) -> Outcome:
    """[EMB]-CE on plain texts by mean squared error to the mean of the teachers' scores; writes `output`/model.

    `ranked` has hard items of every judged query; `recipe.candidates` of them, right one first, are scored by each
    teacher, once, and kept in `output`/scores.
    """
    if not teachers:
        raise InputError("name at least one teacher: a scorer whose scores are to be learned")
    model, recipe = PaperCross.start(job.start, "emb", marked=False, tokens=job.tokens), job.recipe
    world = ReadWorld.read(collection, model.form)
    judged = [query for query in collection.queries if collection.gold(query.id)]
    cases = _cases([world], lambda _: ranked, recipe.candidates)
    wanted = sorted({(case.query, item) for case in cases for item in case.items})
    rows, columns = (np.asarray(side, np.int64) for side in zip(*wanted, strict=True))
    pairs = Pairs(rows, columns, (len(judged), len(collection.items)))
    terms.setdefault("store", job.output / "scores")
    texts = [query.text for query in judged]
    bought = [SparseScores.buy(one, texts, pairs, items=collection.items, **terms).scores for one in teachers]
    mean = dict(zip(wanted, np.mean(bought, axis=0).tolist(), strict=True))
    cases = [case._replace(scores=tuple(mean[case.query, item] for item in case.items)) for case in cases]
    order = np.random.default_rng(recipe.seed).permutation(len(judged))
    held = set(order[: min(max(1, round(HELD * len(judged))), len(judged) - 1)].tolist())
    train, judging = ([c for c in cases if (c.query in held) == wants] for wants in (False, True))
    return fit(
        model,
        lambda epoch: train,
        lambda cross, some: squared(pair_scores(cross, [world], some), some),
        lambda cross: explained(cross, world, judging),
        job,
    )


def squared(scores: Sequence[Tensor], cases: Sequence[Case]) -> Tensor:
    """Mean squared error to the teachers' mean."""
    ours = torch.cat(list(scores)).float()
    theirs = torch.tensor([score for case in cases for score in case.scores], device=ours.device)
    return functional.mse_loss(ours, theirs)


def explained(cross: PaperCross, world: ReadWorld, cases: Sequence[Case]) -> float:
    """1 / (1 + mean squared error) on the queries that were held out: larger is better."""
    errors = [float(squared(pair_scores(cross, [world], [case]), [case])) for case in cases]
    return 1 / (1 + float(np.mean(errors)))
