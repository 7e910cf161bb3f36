"""[CLS] against [EMB] heads trained alike (ANNCUR table 3, fig. 1b): python scripts/compare_heads.py OUT.json

Both heads, same seed, same examples (marked WordNet examples, held-out files left out), same upper layers of
all-MiniLM-L6-v2, three kinds of negatives: random, TF-IDF, and the hardest, synsets of the same lemma and their
neighbours. Then every synset of a held-out world is scored for its test queries: accuracy@1, and the spectrum of the
score matrix.
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
from train_default import RECIPE, encoder_folder, start

from crosscut.datasets.wordnet import WordNet
from crosscut.encoders.tokens import Tokenizer
from crosscut.training.bert import read_encoder
from crosscut.training.examples import Example, Examples
from crosscut.training.loop import Settings, train
from crosscut.training.models import CrossModel, pack_texts, pair_up
from crosscut.training.negatives import TfIdf, draw


def build(wordnet: WordNet, hidden: set[str], tokenizer: Tokenizer, negatives: str, count: int) -> Examples:
    rng = random.Random(1)
    members = [synset for synset in wordnet.synsets if synset.world not in hidden]
    place = {synset.id: number for number, synset in enumerate(members)}
    texts = [synset.item.full_text for synset in members]
    examples = Examples(pool=tokenizer.items(texts))
    queries, gold = wordnet.queries(members)
    chosen = rng.sample(queries, count + 100)
    ranked = TfIdf(texts).rank([query.text for query in chosen], 60) if negatives == "tfidf" else None
    for number, query in enumerate(chosen):
        (right,) = gold[query.id]
        wrong: list[int] = []
        if ranked is not None:
            wrong = draw(ranked[number], {place[right]}, 5, rng)
        elif negatives == "lemma":
            synset = wordnet.by_id[right]
            same = {o for lemma in synset.lemmas for o in wordnet.by_lemma[lemma.lower()]} - {right}
            near = {*synset.neighbours, *(h for p in synset.hypernyms for h in wordnet.hyponyms[p])} - {right} - same
            for ids, most in ((same, 3), (near, 2)):
                known = sorted(place[o] for o in ids if o in place)
                wrong += rng.sample(known, min(most, len(known)))
        items = (place[right], *wrong)
        example = Example("wordnet", tokenizer.query(query.text), items, frozenset(items[:1]))
        (examples.validation if number < 100 else examples.train).append(example)
    return examples


@torch.no_grad()
def matrix(model: CrossModel, tokenizer: Tokenizer, queries: list[str], items: list[str]) -> np.ndarray:
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--examples", type=int, default=2000)
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--world", default="noun.time")
    parser.add_argument("--negatives", default="lemma,tfidf,random")
    arguments = parser.parse_args()
    recipe = tomllib.loads(RECIPE.read_text("utf-8"))
    hidden = {*recipe["worlds"]["held_out"], *recipe["worlds"]["validation"]}
    shape, weights = read_encoder(encoder_folder())
    tokenizer = Tokenizer(encoder_folder() / "tokenizer.json", query_tokens=48, item_tokens=48)
    wordnet = WordNet()
    world = wordnet.world(arguments.world)
    tests = random.Random(0).sample(world.queries, arguments.queries)
    gold = np.asarray([world.positions[world.gold(query.id)[0]] for query in tests])
    rows = []
    for negatives in arguments.negatives.split(","):
        examples = build(wordnet, hidden, tokenizer, negatives, arguments.examples)
        for head in ("emb", "cls"):
            torch.manual_seed(0)
            model = CrossModel(shape, recipe["independent_layers"], head)  # type: ignore[arg-type]
            start(model, weights)
            begun = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                train(model, examples, Settings(validations=1), folder)
            scores = matrix(model, tokenizer, [query.text for query in tests], [i.full_text for i in world.items])
            energy = np.cumsum(np.linalg.svd(scores - scores.mean(), compute_uv=False) ** 2)
            standard = (scores - scores.mean(1, keepdims=True)) / scores.std(1, keepdims=True)
            rows.append(
                {
                    "negatives": negatives,
                    "head": head,
                    "accuracy@1": float(np.mean(scores.argmax(1) == gold)),
                    "directions for 90, 95, 99 %": [
                        int(np.searchsorted(energy / energy[-1], share) + 1) for share in (0.9, 0.95, 0.99)
                    ],
                    "skewness of a query's scores": float((standard**3).mean()),
                    "training seconds": time.monotonic() - begun,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
            report = {"world": arguments.world, "items": len(world.items), "queries": len(tests), "rows": rows}
            arguments.output.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
