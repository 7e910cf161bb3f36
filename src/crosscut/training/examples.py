"""Training examples, and the batches they are run in."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from crosscut.encoders.tokens import Tokens
from crosscut.errors import InputError


class Example(NamedTuple):
    """A query, the right item and negatives, as positions in a pool of items; `items[0]` is the right one.

    `judged` are all right items of the query: none of them is ever filled in as a negative. `scores` are a teacher's,
    one per item, where there is one to distil.
    """

    source: str
    query: Tokens
    items: tuple[int, ...]
    judged: frozenset[int]
    scores: tuple[float, ...] = ()


@dataclass
class Examples:
    """Examples and the pool of tokenised items that they point into."""

    pool: list[Tokens] = field(default_factory=list)
    train: list[Example] = field(default_factory=list)
    validation: list[Example] = field(default_factory=list)

    def add_items(self, items: Sequence[Tokens]) -> int:
        """Put items into the pool; returns the position of the first."""
        self.pool.extend(items)
        return len(self.pool) - len(items)

    def cost(self, example: Example) -> int:
        """Tokens that the pairs of an example hold."""
        lengths = sum(len(self.pool[item].ids) for item in example.items)
        return lengths + len(example.query.ids) * len(example.items)


class TrainingBatch(NamedTuple):
    """Texts of a batch, each once, and the pairs to score: `candidates` rows of (query, items)."""

    texts: list[Tokens]
    queries: list[int]  # (pairs,) text of each pair's query
    items: list[int]  # (pairs,) text of each pair's item
    examples: int
    candidates: int
    scores: tuple[float, ...] = ()  # (pairs,) the teacher's, if the examples have them


def batches(examples: Examples, *, tokens: int, candidates: int, seed: int) -> list[list[Example]]:
    """Examples in batches of about `tokens` tokens, alike in length within a batch, in random order.

    Sorting within slabs of a few hundred examples keeps padding low and the order random.
    """
    if candidates < 2:
        raise InputError(f"{candidates} candidates a query leave no negative; use at least 2")
    rng = random.Random(seed)
    order = list(examples.train)
    rng.shuffle(order)
    made: list[list[Example]] = []
    for start in range(0, len(order), 1024):
        slab = sorted(order[start : start + 1024], key=lambda example: (example.source, examples.cost(example)))
        group: list[Example] = []
        size = 0
        for example in slab:
            cost = examples.cost(example) * candidates // len(example.items)
            if group and (size + cost > tokens or example.source != group[0].source):
                made.append(group)
                group, size = [], 0
            group.append(example)
            size += cost
        if group:
            made.append(group)
    rng.shuffle(made)
    return made


def collate(examples: Examples, group: Sequence[Example], candidates: int, rng: random.Random) -> TrainingBatch:
    """Each example with exactly `candidates` items; what is missing comes from the others of the batch.

    Items of the batch are shared as random negatives, so that they need not be encoded again.
    """
    texts = [example.query for example in group]
    place: dict[int, int] = {}

    def put(item: int) -> None:
        if item not in place:
            place[item] = len(texts)
            texts.append(examples.pool[item])

    for example in group:
        for item in example.items[:candidates]:
            put(item)
    queries: list[int] = []
    items: list[int] = []
    for number, example in enumerate(group):
        own = list(example.items[:candidates])
        others = [item for item in place if item not in example.judged and item not in own]
        missing = candidates - len(own)
        own += rng.sample(others, min(missing, len(others)))
        while len(own) < candidates:  # a batch too small to share: any item of the pool
            item = rng.randrange(len(examples.pool))
            if item not in example.judged:
                own.append(item)
                put(item)
        queries += [number] * candidates
        items += [place[item] for item in own]
    taught = [example.scores[:candidates] for example in group]
    scores = tuple(score for own in taught for score in own) if all(len(own) == candidates for own in taught) else ()
    return TrainingBatch(texts, queries, items, len(group), candidates, scores)
