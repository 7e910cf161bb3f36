"""The papers' recipes: AdamW, a short linear warm-up, linear decay, the best checkpoint kept.

| recipe | paper | what it does |
|---|---|---|
| `train_towers` | ANNCUR app. A.1 | DE_BASE: cross-entropy over the right item and hard negatives, mined before every epoch |
| `train_cross` | ANNCUR app. A.1 | [EMB]- or [CLS]-CE: cross-entropy over the right item and 63 fixed negatives of a dual encoder |
| `distil` | ANNCUR app. A.3, AXN app. A.2.1 | DE_BERT+CE, DE_BASE+CE: L_match or L_pair on a scorer's scores |
| `teach` | ADACUR app. B.1.2 | [EMB]-CE of plain texts: squared error to the mean score of several teachers |

DE_DSTL of a sentence-transformers model is trained by that library (`distil_sentences`). Negatives come from the data
set of the query. A run that was stopped starts again from the beginning.
"""  # noqa: E501

from __future__ import annotations

import copy
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from crosscut.datasets.records import Collection, Item, plain_text
from crosscut.errors import InputError
from crosscut.spaces.sparse import SparseScores
from crosscut.types import Positions
from crosscut_lab.papers.data import tfidf_scores
from crosscut_lab.papers.models import Kind, Marked, PaperCross, PaperModel, Plain, Text, Towers, load_encoder

M = TypeVar("M", bound=PaperModel)
POOL = 10_000  # items among which a dual encoder is judged
HELD = 0.1  # share of the queries held out where there is no dev set


class Case(NamedTuple):
    """A query with some items of its data set, and the scores that they should get where those are known."""

    collection: int
    query: int
    items: tuple[int, ...]
    scores: tuple[float, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """The numbers of a recipe; a step sees `batch` × `accumulate` queries, `batch` at a time."""

    learning_rate: float = 1e-5
    weight_decay: float = 0.01
    warm_up: float = 0.01
    epochs: int = 4
    batch: int = 4
    accumulate: int = 1
    candidates: int = 64
    validations: int = 5  # an epoch
    tokens: int = 128  # of a side; of a pair of plain texts, of both
    device: str = "cpu"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("learning_rate", "epochs", "batch", "accumulate", "validations"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}")
        if self.candidates < 2:
            raise InputError(f"{self.candidates} candidates a query leave no negative; use at least 2")


@dataclass
class Outcome:
    """The best validation, the number of steps, and one record a validation."""

    best: float
    steps: int
    history: list[dict[str, Any]]


def schedule(progress: float, warm_up: float) -> float:
    """Return the share of the learning rate at `progress` in 0 … 1: linear up, linear down."""
    if progress < warm_up:
        return progress / warm_up
    return max(0.0, (1 - progress) / max(1 - warm_up, 1e-9))


def fit(
    model: M,
    mine: Callable[[int], list[Case]],
    loss: Callable[[M, Sequence[Case]], Tensor],
    judge: Callable[[M], float],
    recipe: Recipe,
    output: Path,
    report: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Train and write the best weights to `output`/model; `mine(epoch)` returns the examples of an epoch."""
    model.to(recipe.device).train()
    torch.manual_seed(recipe.seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=recipe.learning_rate, weight_decay=recipe.weight_decay)
    best, weights = -np.inf, copy.deepcopy(model.state_dict())
    history: list[dict[str, Any]] = []
    step, started = 0, time.monotonic()
    for epoch in range(recipe.epochs):
        cases = mine(epoch)
        if not cases:
            raise InputError("there are no training examples; give queries with right items")
        random.Random(recipe.seed + epoch).shuffle(cases)
        size = recipe.batch * recipe.accumulate
        steps = -(-len(cases) // size)
        for number in range(steps):
            step += 1
            group = cases[number * size : (number + 1) * size]
            value = gradient(model, loss, [group[at : at + recipe.batch] for at in range(0, len(group), recipe.batch)])
            if not np.isfinite(value):
                raise InputError(f"the loss is {value} at step {step}; lower the learning rate")
            for one in optimizer.param_groups:
                one["lr"] = recipe.learning_rate * schedule(step / (steps * recipe.epochs), recipe.warm_up)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if (number + 1) % max(1, steps // recipe.validations) == 0 or number + 1 == steps:
                model.eval()
                with torch.no_grad():
                    found = judge(model)
                model.train()
                history.append(
                    {"step": step, "loss": value, "validation": found, "seconds": time.monotonic() - started}
                )
                report(f"step {step}: loss {value:.3f}, validation {found:.3f}")
                if found > best:
                    best, weights = found, copy.deepcopy(model.state_dict())
    model.load_state_dict(weights)
    model.eval()
    model.save(output / "model")
    return Outcome(float(best), step, history)


def gradient(model: M, loss: Callable[[M, Sequence[Case]], Tensor], parts: Sequence[Sequence[Case]]) -> float:
    """Set the gradient of the mean loss over all parts; return that loss."""
    total, value = sum(map(len, parts)), 0.0
    model.zero_grad(set_to_none=True)
    for part in parts:
        found = loss(model, part) * (len(part) / total)
        found.backward()  # type: ignore[no-untyped-call]
        value += float(found.detach())
    return value


@dataclass(frozen=True)
class ReadTexts:
    """Items and judged queries of a collection as a model reads them, with the right items of each query."""

    items: list[Text]
    queries: list[Text]
    gold: list[frozenset[int]]
    source: tuple[Sequence[Item], Sequence[str]]

    @classmethod
    def of(cls, collection: Collection, form: Marked | Plain) -> ReadTexts:
        place = collection.positions
        judged = [query for query in collection.queries if collection.gold(query.id)]
        gold = [frozenset(place[id] for id in collection.gold(query.id)) for query in judged]
        items = [form.item(item) for item in collection.items]
        return cls(items, [form.query(q.text) for q in judged], gold, (collection.items, [q.text for q in judged]))

    def part(self, chosen: Sequence[int]) -> ReadTexts:
        """Return the same items with some of the queries."""
        items, texts = self.source
        return ReadTexts(
            self.items,
            [self.queries[q] for q in chosen],
            [self.gold[q] for q in chosen],
            (items, [texts[q] for q in chosen]),
        )

    @property
    def most(self) -> int:
        return max(map(len, self.gold), default=0)


def split(
    collections: Sequence[Collection], dev: Sequence[Collection], form: Marked | Plain, seed: int
) -> tuple[list[ReadTexts], list[ReadTexts]]:
    """Return what to learn from and what to validate on: a dev set, or a tenth of the queries."""
    train = [ReadTexts.of(one, form) for one in collections]
    if sum(len(one.queries) for one in train) < 2:
        raise InputError("training needs at least 2 queries with a right item")
    if dev:
        return train, [ReadTexts.of(one, form) for one in dev]
    rng = np.random.default_rng(seed)
    learned, judging = [], []
    for one in train:
        order = rng.permutation(len(one.queries))
        held = min(max(1, round(HELD * len(order))), max(len(order) - 1, 0))
        learned.append(one.part(sorted(order[held:].tolist())))
        judging.append(one.part(sorted(order[:held].tolist())))
    return learned, judging


def nearest(items: Any, queries: Any, k: int) -> Positions:
    """Return positions of the k items (n × d) with the largest inner products, for every query: (m × k)."""
    return np.argsort(-(np.asarray(queries) @ np.asarray(items).T), axis=1, kind="stable")[:, :k]


def negatives(ranked: Positions, gold: frozenset[int], count: int) -> list[int]:
    """Return the best `count` of a ranking that are not right."""
    return [item for item in ranked.tolist() if item not in gold][:count]


def cases_of(sets: Sequence[ReadTexts], rank: Callable[[ReadTexts], Positions], count: int) -> list[Case]:
    """Return the right item of every query first, its hardest negatives behind it."""
    made = []
    for number, one in enumerate(sets):
        ranked: Sequence[Positions] = list(rank(one)) if one.queries else []
        for query, gold in enumerate(one.gold):
            wrong = negatives(ranked[query], gold, count - 1)
            made += [Case(number, query, (right, *wrong)) for right in sorted(gold)]
    return made


def ranked_by(towers: Towers, one: ReadTexts, count: int) -> Positions:
    return nearest(towers.embed(one.items, 1), towers.embed(one.queries, 0), count + one.most)


def ranker(miner: str | Path, count: int, device: str, seed: int) -> Callable[[ReadTexts], Positions]:
    """Return a ranking by a dual encoder, by `tfidf` or by `random`: the negatives of ANNCUR's table 3."""
    if miner == "random":
        rng = np.random.default_rng(seed)
        return lambda one: np.stack([rng.permutation(len(one.items))[: count + one.most] for _ in one.gold])
    if miner == "tfidf":
        return lambda one: np.argsort(-tfidf_scores(*one.source), axis=1, kind="stable")[:, : count + one.most]
    encoder = load_encoder(str(miner), device)
    return lambda one: nearest(
        encoder.encode_items(one.source[0]), encoder.encode_queries(list(one.source[1])), count + one.most
    )


def entropy(scores: Sequence[Tensor]) -> Tensor:
    """Return the mean cross-entropy of cases whose first item is the right one."""
    return torch.stack([-functional.log_softmax(one.float(), 0)[0] for one in scores]).mean()


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


def squared(scores: Sequence[Tensor], cases: Sequence[Case]) -> Tensor:
    """Return the mean squared error to the teachers' mean."""
    ours = torch.cat(list(scores)).float()
    return functional.mse_loss(ours, torch.tensor([s for case in cases for s in case.scores], device=ours.device))


LOSSES = {"match": match, "pair": pair}


def tower_scores(towers: Towers, sets: Sequence[ReadTexts], cases: Sequence[Case]) -> list[Tensor]:
    """Return the scores of each case's items; every text is encoded once."""
    queries = towers([sets[case.collection].queries[case.query] for case in cases], 0)
    wanted = list(dict.fromkeys((case.collection, item) for case in cases for item in case.items))
    place = {one: row for row, one in enumerate(wanted)}
    items = towers([sets[number].items[item] for number, item in wanted], 1)
    return [
        items[[place[case.collection, item] for item in case.items]] @ query
        for case, query in zip(cases, queries, strict=True)
    ]


def pair_scores(cross: PaperCross, sets: Sequence[ReadTexts], cases: Sequence[Case]) -> list[Tensor]:
    """Return the scores of each case's items."""
    rows = [
        cross.form.join(sets[case.collection].queries[case.query], sets[case.collection].items[item])
        for case in cases
        for item in case.items
    ]
    return list(cross(rows).split([len(case.items) for case in cases]))


def accuracy(towers: Towers, sets: Sequence[ReadTexts], seed: int) -> float:
    """Return how often the nearest item is a right one, among all items or, of large sets, `POOL` drawn."""
    rng = np.random.default_rng(seed)
    hits = []
    for one in sets:
        right = {item for gold in one.gold for item in gold}
        others = [item for item in rng.permutation(len(one.items)).tolist() if item not in right]
        pool = np.asarray([*sorted(right), *others[: max(0, POOL - len(right))]])
        if one.queries:
            best = nearest(towers.embed([one.items[i] for i in pool], 1), towers.embed(one.queries, 0), 1)[:, 0]
            hits += [int(pool[place]) in gold for place, gold in zip(best, one.gold, strict=True)]
    return float(np.mean(hits))


def train_towers(
    collections: Sequence[Collection], start: str | Path, output: Path, recipe: Recipe,
    *, dev: Sequence[Collection] = (), **how: Any,
) -> Outcome:  # fmt: skip
    """DE_BASE: two towers from a plain encoder, or from trained towers."""
    model = Towers.start(start, tokens=recipe.tokens).to(recipe.device)
    train, judging = split(collections, dev, model.form, recipe.seed)
    return fit(
        model,
        lambda epoch: cases_of(train, lambda one: ranked_by(model, one, recipe.candidates), recipe.candidates),
        lambda towers, cases: entropy(tower_scores(towers, train, cases)),
        lambda towers: accuracy(towers, judging, recipe.seed),
        recipe, output, **how,
    )  # fmt: skip


def train_cross(
    collections: Sequence[Collection], start: str | Path, output: Path, recipe: Recipe,
    *, miner: str | Path, head: Kind = "emb", dev: Sequence[Collection] = (), **how: Any,
) -> Outcome:  # fmt: skip
    """[EMB]- or [CLS]-CE; `miner` is a trained dual encoder, `tfidf` or `random`."""
    model = PaperCross.start(start, head, tokens=recipe.tokens)
    train, judging = split(collections, dev, model.form, recipe.seed)
    rank = ranker(miner, recipe.candidates, recipe.device, recipe.seed)
    fixed, held = (cases_of(sets, rank, recipe.candidates) for sets in (train, judging))

    def judge(cross: PaperCross) -> float:
        return float(np.mean([int(pair_scores(cross, judging, [case])[0].argmax()) == 0 for case in held]))

    return fit(
        model, lambda epoch: list(fixed), lambda cross, cases: entropy(pair_scores(cross, train, cases)), judge,
        recipe, output, **how,
    )  # fmt: skip


def best_of(scores: SparseScores) -> dict[int, tuple[list[int], list[float]]]:
    """Return the items of every train query, best score first, and their scores."""
    found: dict[int, list[tuple[float, int]]] = {}
    for query, item, score in zip(
        scores.pairs.queries.tolist(), scores.pairs.items.tolist(), scores.scores, strict=True
    ):
        found.setdefault(query, []).append((-float(score), item))
    return {q: ([item for _, item in sorted(some)], [-s for s, _ in sorted(some)]) for q, some in found.items()}


def distil(
    items: Sequence[Item | str], queries: Sequence[str], scores: SparseScores, start: str | Path, output: Path,
    recipe: Recipe, *, loss: str = "match", **how: Any,
) -> Outcome:  # fmt: skip
    """Distil a scorer into towers; `candidates` is k_d, the scorer's best items of a query."""
    if loss not in LOSSES:
        raise InputError(f"the loss is {' or '.join(LOSSES)}; got {loss!r}")
    model = Towers.start(start, tokens=recipe.tokens).to(recipe.device)
    gold = [frozenset[int]()] * len(queries)
    read = ReadTexts([model.form.item(i) for i in items], [model.form.query(q) for q in queries], gold, ((), ()))
    best = best_of(scores)
    order = np.random.default_rng(recipe.seed).permutation(sorted(best)).tolist()
    if len(order) < 2 or min(len(found) for found, _ in best.values()) < 2:
        raise InputError("a distillation needs 2 scored items or more of 2 queries or more")
    held = min(max(1, round(HELD * len(order))), len(order) - 1)
    judging, learned, k_d = order[:held], order[held:], recipe.candidates

    def mine(epoch: int) -> list[Case]:
        tops = {q: best[q][0][:k_d] for q in learned}
        if loss == "match":
            return [Case(0, q, tuple(tops[q]), tuple(best[q][1][:k_d])) for q in learned]
        ranked = nearest(model.embed(read.items, 1), model.embed([read.queries[q] for q in learned], 0), 2 * k_d)
        wrong = [negatives(row, frozenset(tops[q]), len(tops[q])) for q, row in zip(learned, ranked, strict=True)]
        # as many top items as negatives
        return [Case(0, q, (*tops[q][: len(some)], *some)) for q, some in zip(learned, wrong, strict=True) if some]

    def judge(towers: Towers) -> float:
        """Return the share of the scorer's ten best items among the ten best of the towers."""
        shares = []
        for query in judging:
            found = best[query][0]
            values = towers.embed([read.items[i] for i in found], 1) @ towers.embed([read.queries[query]], 0)[0]
            top = min(10, len(found))
            shares.append(len(set(np.argsort(-values, kind="stable")[:top].tolist()) & set(range(top))) / top)
        return float(np.mean(shares))

    return fit(
        model, mine, lambda towers, cases: LOSSES[loss](tower_scores(towers, [read], cases), cases), judge,
        recipe, output, **how,
    )  # fmt: skip


def distil_sentences(
    items: Sequence[Item | str], queries: Sequence[str], scores: SparseScores, start: str | Path, output: Path,
    recipe: Recipe,
) -> Outcome:  # fmt: skip
    """DE_DSTL of BEIR: a sentence-transformers model learns the scorer's distribution (its DistillKLDivLoss)."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, util
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.losses import DistillKLDivLoss

    best = best_of(scores)
    count = min(recipe.candidates, min(len(found) for found, _ in best.values()))
    table: dict[str, list[Any]] = {"query": [queries[q] for q in best]}
    for place in range(count):
        table[f"item{place}"] = [plain_text(items[found[place]]) for found, _ in best.values()]
    table["label"] = [values[:count] for _, values in best.values()]
    model = SentenceTransformer(str(start), device=recipe.device)
    how = Arguments(
        output_dir=str(output / "run"), num_train_epochs=recipe.epochs, learning_rate=recipe.learning_rate,
        per_device_train_batch_size=recipe.batch, gradient_accumulation_steps=recipe.accumulate,
        warmup_ratio=recipe.warm_up, seed=recipe.seed, report_to="none", save_strategy="no", logging_strategy="epoch",
        use_cpu=recipe.device == "cpu",
    )  # fmt: skip
    trainer = SentenceTransformerTrainer(
        model=model, args=how, train_dataset=Dataset.from_dict(table),
        loss=DistillKLDivLoss(model, similarity_fct=util.pairwise_dot_score),
    )  # fmt: skip
    found = trainer.train()
    model.save(str(output / "model"))
    return Outcome(
        -float(found.training_loss), int(found.global_step), [dict(one) for one in trainer.state.log_history]
    )


def teach(
    collection: Collection, start: str | Path, output: Path, recipe: Recipe,
    teacher_scores: Callable[[Positions, Positions], Sequence[Any]], *, ranked: Positions, **how: Any,
) -> Outcome:  # fmt: skip
    """[EMB]-CE of plain texts; `teacher_scores(rows, items)` returns one array of scores a teacher.

    `ranked` has hard items of every judged query; the right one and the best of them are scored by each teacher.
    """
    model = PaperCross.start(start, "emb", marked=False, tokens=recipe.tokens)
    read = ReadTexts.of(collection, model.form)
    cases = cases_of([read], lambda _: ranked, recipe.candidates)
    wanted = sorted({(case.query, item) for case in cases for item in case.items})
    rows, columns = (np.asarray(side, np.int64) for side in zip(*wanted, strict=True))
    mean = dict(zip(wanted, np.mean(teacher_scores(rows, columns), axis=0).tolist(), strict=True))
    cases = [case._replace(scores=tuple(mean[case.query, item] for item in case.items)) for case in cases]
    order = np.random.default_rng(recipe.seed).permutation(len(read.queries))
    held = set(order[: min(max(1, round(HELD * len(order))), len(order) - 1)].tolist())
    judging = [case for case in cases if case.query in held]

    def judge(cross: PaperCross) -> float:
        errors = [float(squared(pair_scores(cross, [read], [case]), [case])) for case in judging]
        return 1 / (1 + float(np.mean(errors)))

    return fit(
        model, lambda epoch: [case for case in cases if case.query not in held],
        lambda cross, some: squared(pair_scores(cross, [read], some), some), judge, recipe, output, **how,
    )  # fmt: skip
