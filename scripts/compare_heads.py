"""[CLS] against [EMB] heads trained alike, on three kinds of negatives (ANNCUR table 3):
python scripts/compare_heads.py OUT.json

Both heads: same seed, same queries (marked WordNet examples; held-out files left out), same upper layers of
all-MiniLM-L6-v2. Negatives are drawn from a pool of training synsets: at random, from the best of TF-IDF, or from the
best of a dual encoder (the plain encoder). Then every synset of held-out worlds is scored for some of its queries:
accuracy@1, and the spectrum and rank of the score matrix.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
import tomllib
from pathlib import Path

import numpy as np
import torch
from default_mix import unmarked
from train_default import RECIPE, embed_all, encoder_folder, start
from wordnet import WordNet

from crosscut.encoders.tokens import Tokenizer, marked_text
from crosscut.evaluation.plots import COLOURS, _figure
from crosscut.retrievers.tfidf import TfIdf
from crosscut.training.bert import read_encoder
from crosscut.training.examples import Example, Examples
from crosscut.training.loop import TrainingSettings, train
from crosscut.training.models import CrossModel, DualModel, pack_texts, pair_up
from crosscut.training.negatives import draw, rank_dense

NEGATIVES = 5  # mined ones a query; two more come from the rest of its batch, with random ones all seven


class Study:
    """Queries, a pool of items and the rankings that negatives are drawn from."""

    def __init__(self, wordnet: WordNet, hidden: set[str], tokenizer: Tokenizer, examples: int, pool: int) -> None:
        rng = random.Random(1)
        members = [synset for synset in wordnet.synsets if synset.world not in hidden]
        queries, gold = wordnet.queries(members)
        self.queries = rng.sample(queries, examples + 100)
        right = {id for query in self.queries for id in gold[query.id]}
        rest = [synset.id for synset in members if synset.id not in right]
        kept = right | set(rng.sample(rest, max(0, pool - len(right))))
        items = [synset for synset in members if synset.id in kept]
        place = {synset.id: number for number, synset in enumerate(items)}
        self.texts = [marked_text(synset.item) for synset in items]
        self.right = [place[next(iter(gold[query.id]))] for query in self.queries]
        self.tokenizer = tokenizer
        self.pool = tokenizer.items(self.texts)

    def rank(self, negatives: str, plain: DualModel) -> np.ndarray | None:
        if negatives == "tfidf":
            return TfIdf(self.texts).rank([unmarked(query.text) for query in self.queries], 60)
        if negatives == "dual":
            tokens = [self.tokenizer.query(query.text) for query in self.queries]
            return rank_dense(embed_all(plain, self.pool), embed_all(plain, tokens), 60)
        return None

    def build(self, ranked: np.ndarray | None) -> Examples:
        """Training examples; validation always against TF-IDF's or the encoder's candidates if there are any."""
        rng = random.Random(2)
        examples = Examples(pool=list(self.pool))
        for number, (query, right) in enumerate(zip(self.queries, self.right, strict=True)):
            wrong = draw(ranked[number], {right}, NEGATIVES, rng) if ranked is not None else []
            example = Example("wordnet", self.tokenizer.query(query.text), (right, *wrong), frozenset({right}))
            (examples.validation if number < 100 else examples.train).append(example)
        return examples


@torch.no_grad()
def matrix(model: CrossModel, tokenizer: Tokenizer, queries: list[str], items: list[str]) -> np.ndarray:
    """Scores (queries × items)."""
    tokens = tokenizer.items(items)
    order = np.argsort([len(text.ids) for text in tokens])
    rows = np.zeros((len(queries), len(items)))
    for start_ in range(0, len(items), 64):
        part = order[start_ : start_ + 64]
        texts = pack_texts([tokens[p] for p in part] + [tokenizer.query(query) for query in queries])
        states = model.states(texts)
        for number in range(len(queries)):
            pairs = pair_up(texts, [len(part) + number] * len(part), range(len(part)))
            rows[number, part] = model.meet(states, pairs).numpy()
    return rows


def describe(scores: np.ndarray, gold: np.ndarray) -> dict[str, object]:
    """Accuracy, and how many directions a score matrix has: shares of energy, and numpy's numerical rank."""
    singular = np.linalg.svd(scores - scores.mean(), compute_uv=False)
    energy = np.cumsum(singular**2) / (singular**2).sum()
    own = np.linalg.svd(scores - scores.mean(0), compute_uv=False)
    standard = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
    return {
        "queries": len(scores),
        "items": scores.shape[1],
        "accuracy@1": float(np.mean(scores.argmax(1) == gold)),
        "directions for 90, 95, 99 %": [int(np.searchsorted(energy, share) + 1) for share in (0.9, 0.95, 0.99)],
        "… item means taken off": [
            int(np.searchsorted(np.cumsum(own**2) / (own**2).sum(), share) + 1) for share in (0.9, 0.95, 0.99)
        ],
        "singular values over 1 % of the largest": int((singular > 0.01 * singular[0]).sum()),
        "skewness of a query's scores": float((standard**3).mean()),
        "singular values": [round(float(value), 3) for value in singular],
    }


def plot(rows: list[dict[str, object]], path: Path) -> None:
    """Singular values over the largest, item means taken off nowhere (ANNCUR table 3b counts them): a panel a world."""
    worlds = list(dict.fromkeys(str(row["world"]) for row in rows))
    figure, axes = _figure(4.6 * len(worlds), 3.6, columns=len(worlds))
    colours = dict(zip(dict.fromkeys(row["negatives"] for row in rows), COLOURS, strict=False))
    for axis, world in zip(axes[0], worlds, strict=True):
        for row in rows:
            if row["world"] != world:
                continue
            values = np.asarray(row["singular values"])
            style = "-" if row["head"] == "emb" else "--"
            label = f"[{str(row['head']).upper()}], {row['negatives']} negatives"
            axis.semilogy(
                np.arange(1, len(values)), values[:-1] / values[0], style, color=colours[row["negatives"]], label=label
            )
        axis.set(title=world, xlabel="singular value", ylim=(1e-3, 1.2))
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("over the largest")
    axes[0][-1].legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--pool", type=int, default=20_000, help="synsets that negatives are drawn from")
    parser.add_argument("--queries", type=int, default=100, help="of each world")
    parser.add_argument("--worlds", default="noun.feeling,verb.emotion")
    parser.add_argument(
        "--runs",
        default="dual:emb,dual:cls,tfidf:emb,random:emb,tfidf:cls,random:cls",
        help="negatives:head, in this order; results are written after each",
    )
    parser.add_argument("--plot", type=Path, help="only draw the spectra of OUT.json into this file")
    arguments = parser.parse_args()
    if arguments.plot is not None:
        plot(json.loads(arguments.output.read_text("utf-8"))["rows"], arguments.plot)
        return
    recipe = tomllib.loads(RECIPE.read_text("utf-8"))
    hidden = {*recipe["worlds"]["held_out"], *recipe["worlds"]["validation"]}
    shape, weights = read_encoder(encoder_folder())
    tokenizer = Tokenizer(encoder_folder() / "tokenizer.json", query_tokens=48, item_tokens=48)
    wordnet = WordNet()
    worlds = [wordnet.world(name) for name in arguments.worlds.split(",")]
    study = Study(wordnet, hidden, tokenizer, arguments.examples, arguments.pool)
    plain = DualModel(shape, recipe["independent_layers"])
    start(plain, weights)
    rankings: dict[str, np.ndarray | None] = {}
    rows = []
    for run in arguments.runs.split(","):
        negatives, head = run.split(":")
        if negatives not in rankings:
            rankings[negatives] = study.rank(negatives, plain)
        torch.manual_seed(0)
        model = CrossModel(shape, recipe["independent_layers"], head)
        start(model, weights)
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            train(model, study.build(rankings[negatives]), TrainingSettings(validations=1), folder)
        seconds = time.monotonic() - begun
        for world in worlds:
            tests = random.Random(0).sample(world.queries, min(arguments.queries, len(world.queries)))
            where = world.positions
            gold = np.asarray([where[world.gold(query.id)[0]] for query in tests])
            scores = matrix(model, tokenizer, [q.text for q in tests], [marked_text(i) for i in world.items])
            told = describe(scores, gold)
            rows.append({"negatives": negatives, "head": head, "world": world.name, **told, "seconds": seconds})
            print(json.dumps({k: v for k, v in rows[-1].items() if k != "singular values"}), flush=True)
        report = {"examples": arguments.examples, "pool": arguments.pool, "rows": rows}
        arguments.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
