"""Weights of the known part where a mention is marked: python scripts/marked_weights.py DATA [FOLDER] [--work WORK]

FOLDER is the model folder (the box's), whose known.json is written anew. What decides about a marked mention is not
what decides about a question: here w and b of `crosscut.encoders.known` are learned for such queries alone, by listwise
cross-entropy of f = g + w · correction and, `own` times, of g by itself, over two sources of the same weight:
train queries of mdn_el (`--queries`, drawn by a seed), whose sentences are long, and the two worlds of WordNet that are
kept for validation, whose examples are short. Candidates are the best by the g that is in FOLDER. Each query counts a
second time as if items had no titles: a mention does not always name what it means.

Then g is scaled, the same for all such queries: the more g counts, the fewer calls find the top of f. `--scale` was
chosen on the same queries; a table of what it does is printed (benchmarks/results/models_marked.json). Last, f as a
whole, so that it is a logit as that of other queries is. WORK keeps the candidates, which are dear.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from relevance_sets import RECIPE, SETTINGS, ndcg
from torch import Tensor
from wordnet import WordNet

from crosscut.datasets.beir import is_test, read_beir
from crosscut.datasets.records import Collection, Query
from crosscut.encoders.folder import default_folder
from crosscut.encoders.known import FEATURES, Constants, Facts, QueryWeights
from crosscut.encoders.tokens import marked_text
from crosscut.encoders.words import Lexicon
from crosscut.scorers.onnx import OnnxCrossEncoder

STEPS, RIDGE = 60, 0.02
COMMAND = "python scripts/marked_weights.py DATA --json benchmarks/results/models_marked.json"


class Asked(NamedTuple):
    """A query and its candidates, best first by g."""

    features: np.ndarray  # (m × k)
    costly: np.ndarray  # (m,)
    right: np.ndarray  # (m,)
    words: int
    rarity: float


def asked(collection: Collection, queries: list[Query], depth: int, folder: Path) -> list[Asked]:
    """The candidates of some queries of a collection."""
    lexicon = Lexicon.of([marked_text(item) for item in collection.items])
    scorer = OnnxCrossEncoder.load(folder, lexicon=lexicon).bind(list(collection.items))
    scorer.preknow()
    known, made = scorer._read_all(), []
    for query in queries:
        best = np.argsort(-known.all(query.text), kind="stable")[:depth]
        gold = [collection.positions[id] for id in collection.gold(query.id)]
        mass, words = known.words.limit(query.text)
        (answer,) = scorer.costly_many([(query.text, best)])
        features = np.column_stack(known.features(known.ask(query.text), best)).astype(np.float64)
        right = np.isin(best, gold)
        made.append(Asked(features, answer.scores, right, words, mass / max(words, 1)))
    return made


def untitled(some: list[Asked]) -> list[Asked]:
    """The same as if no title said anything."""
    said = np.asarray([name != "title" for name in FEATURES], np.float64)
    return [one._replace(features=one.features * said) for one in some]


def gathered(data: Path, folder: Path, queries: int) -> list[list[Asked]]:
    """Both sources."""
    links = read_beir(data / "mdn_el")
    train = [query for query in links.queries if links.gold(query.id) and not is_test(query.id)]
    random.Random(1).shuffle(train)
    sources = [asked(links, train[:queries], 200, folder), []]
    wordnet = WordNet()
    for name in RECIPE["worlds"]["validation"]:
        world = wordnet.world(name)
        examples = [query for query in world.queries if world.gold(query.id)]
        random.Random(0).shuffle(examples)
        sources[1] += asked(world, examples[: (queries * 6) // 5], 100, folder)
    return sources


class Batch:
    """The queries of a source that have a right candidate, as tensors; what is padded is far below."""

    def __init__(self, some: list[Asked], most_words: float) -> None:
        some = [one for one in some if one.right.any()]
        m = max(len(one.costly) for one in some)

        def padded(values: np.ndarray, fill: float) -> np.ndarray:
            return np.pad(values, [(0, m - len(values)), *[(0, 0)] * (values.ndim - 1)], constant_values=fill)

        self.features = torch.tensor(np.stack([padded(one.features, 0.0) for one in some]))  # (q, m, k)
        self.costly = torch.tensor(np.stack([padded(one.costly, -1e4) for one in some]))  # (q, m)
        self.right = torch.tensor(np.stack([padded(one.right, False) for one in some]))
        words = [np.log1p(min(one.words, most_words)) - 2.0 for one in some]
        self.facts = torch.tensor(np.column_stack([words, [np.log(one.rarity + 0.1) - 1.6 for one in some]]))  # (q, 2)
        self.there = torch.tensor(np.stack([padded(np.ones(len(one.costly)), 0.0) for one in some])) > 0

    def known(self, logs: Tensor, bends: Tensor) -> Tensor:
        weights = torch.exp(logs + self.facts @ bends.T)  # (q, k)
        return torch.einsum("qmk,qk->qm", self.features, weights).masked_fill(~self.there, -1e4)

    def loss(self, scores: Tensor) -> Tensor:
        """Listwise cross-entropy."""
        right = scores.masked_fill(~self.right, -torch.inf)
        return (torch.logsumexp(scores, 1) - torch.logsumexp(right, 1)).mean()


def learned(sources: list[list[Asked]], first: QueryWeights, own: float) -> QueryWeights:
    """w and b of the features, from `first` under a ridge; how b follows the rarity of words stays."""
    batches = [Batch(some, float(first.most_words[0])) for some in sources]
    logs, bends = torch.tensor(np.log(first.weights.astype(np.float64))), torch.tensor(first.bends.astype(np.float64))
    logs, bends, weight = logs[:-1], bends[:-1], float(first.weights[-1])
    more, bent = (torch.zeros(len(logs), dtype=torch.float64, requires_grad=True) for _ in range(2))
    sharp = torch.zeros(2, dtype=torch.float64, requires_grad=True)  # of f and of g, only for learning
    optimizer = torch.optim.LBFGS([more, bent, sharp], max_iter=STEPS, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        optimizer.zero_grad()
        total = RIDGE * (more.square().sum() + bent.square().sum())
        for batch in batches:
            known = batch.known(logs + more, torch.stack([bends[:, 0] + bent, bends[:, 1]], 1))
            total = total + batch.loss((known + weight * batch.costly) * sharp[0].exp())
            total = total + own * batch.loss(known * sharp[1].exp())
        total.backward()
        return total

    optimizer.step(step)
    weights, both = first.weights.copy(), first.bends.copy()
    weights[:-1], both[:-1, 0] = (logs + more).exp().detach().numpy(), (bends[:, 0] + bent).detach().numpy()
    return replace(first, weights=weights, bends=both)


def scaled(weights: QueryWeights, of_known: float, of_all: float = 1.0) -> QueryWeights:
    """g times `of_known`, then f times `of_all`."""
    factors = np.asarray([*[of_known * of_all] * len(FEATURES), of_all], np.float32)
    return replace(weights, weights=weights.weights * factors)


def as_logit(sources: list[list[Asked]], weights: QueryWeights) -> float:
    """The factor that makes f a logit: with it the cross-entropy is least."""
    factors = np.geomspace(0.2, 20, 200)
    logs, bends = torch.tensor(np.log(weights.weights)).double(), torch.tensor(weights.bends).double()
    losses = []
    for batch in (Batch(some, float(weights.most_words[0])) for some in sources):
        f = batch.known(logs[:-1], bends[:-1]) + float(weights.weights[-1]) * batch.costly
        losses.append([float(batch.loss(f * factor)) for factor in factors])
    return float(factors[np.argmin(np.sum(losses, 0))])


def outcome(some: list[Asked], weights: QueryWeights) -> dict[str, float]:
    """nDCG@10 and accuracy of g and f, and the share of f's best ten among the best thirty by g."""
    rows = []
    for one in some:
        *own, weight = weights.of(Facts(one.words, one.rarity))
        known = one.features @ np.asarray(own)
        gains = dict.fromkeys(np.flatnonzero(one.right).tolist(), 1.0)
        orders = [np.argsort(-scores, kind="stable") for scores in (known, known + weight * one.costly)]
        of = [(ndcg(order[:10], gains) if gains else 0.0, float(one.right[order[0]])) for order in orders]
        rows.append([*of[0], *of[1], float(np.isin(orders[1][:10], orders[0][:30]).mean())])
    names = ("g nDCG", "g first", "f nDCG", "f first", "f's ten in g's thirty")
    return {name: round(float(value), 4) for name, value in zip(names, np.mean(rows, 0), strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=default_folder())
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--own", type=float, default=SETTINGS["marked"]["own"], help="weight of g's own loss")
    parser.add_argument("--scale", type=float, default=SETTINGS["marked"]["scale"], help="of g beside the correction")
    parser.add_argument("--json", type=Path, default=None, help="a file for the table")
    parser.add_argument("--work", type=Path, default=None, help="a folder for the candidates")
    how = parser.parse_args()
    kept = how.work / "marked.pickle" if how.work else None
    if kept is not None and kept.is_file():
        sources = pickle.loads(kept.read_bytes())
    else:
        sources = gathered(how.data, how.folder, how.queries)
        if kept is not None:
            kept.write_bytes(pickle.dumps(sources))
    constants = Constants.load(how.folder)
    most = np.full(len(constants.marked.weights), SETTINGS["marked"]["most_words"], np.float32)
    first = replace(constants.marked, most_words=most)
    every = dict(zip(("mdn_el", "WordNet"), sources, strict=True))
    every |= {f"{name}, no titles": untitled(some) for name, some in every.items()}
    made = learned(list(every.values()), first, how.own)
    tried = {"before": constants.marked, **{f"scale {scale:g}": scaled(made, scale) for scale in (1, 1.5, 2, 3)}}
    told = {
        label: {source: outcome(some, weights) for source, some in every.items()} for label, weights in tried.items()
    }
    print(json.dumps(told, indent=1))
    if how.json:
        about = {"command": COMMAND, "queries": [len(some) for some in sources], "own": how.own, "scale": how.scale}
        how.json.write_text(json.dumps({**about, "outcomes": told}, indent=1) + "\n", "utf-8")
    factor = as_logit(sources, scaled(made, how.scale))
    print(f"f times {factor:.3f} is a logit")
    replace(constants, marked=scaled(made, how.scale, factor)).save_weights(how.folder)


if __name__ == "__main__":
    main()
