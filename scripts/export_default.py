"""Write the models in the box: python scripts/export_default.py WORK [FOLDER] [--precision float32]

WORK is what relevance_sets.py and train_relevance.py left. The frozen lower layers are shared and kept in eight bits
(they were rounded before training, so nothing is lost); they and the dual encoder read texts by products of whole
numbers. The cross-encoder's own layers are kept in sixteen bits.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
import torch
from default_weights import dual_model, encoder_folder
from evaluate_relevance import averaged, prepared
from relevance_sets import RECIPE, SETTINGS, Set, token_idf

from crosscut.datasets.bundled import load_world
from crosscut.encoders.folder import default_folder
from crosscut.encoders.known import FEATURES, Constants, QueryWeights
from crosscut.encoders.tokens import Tokenizer, marked_text
from crosscut.encoders.words import Lexicon
from crosscut.training.export import export
from crosscut.training.models import CrossModel, pack_texts


@torch.no_grad()
def centre(model: CrossModel) -> None:
    """Take the mean score of random pairs off every score: near zero float16 is finest, and least squares happiest."""
    world = load_world()
    tokenizer = Tokenizer(encoder_folder() / "tokenizer.json", query_tokens=64, item_tokens=128)
    rng = random.Random(0)
    queries = [tokenizer.query(query.text) for query in rng.sample(world.queries, 32)]
    items = tokenizer.items([marked_text(item) for item in rng.sample(world.items, 32)])
    pairs = [(q, i) for q in range(32) for i in range(32, 64)]
    texts = pack_texts([*queries, *items])
    model.offset.add_(model(texts, [q for q, _ in pairs], [i for _, i in pairs]).mean().round())


def constants(work: Path) -> Constants:
    """The known part: weights as learned.

    Where a mention is marked these are the first weights, which `marked_weights.py` goes on from; there what the query
    adds to the correction's say is taken off g, which ranks the same.
    """
    mix, settings = json.loads((work / "mix-all.json").read_text("utf-8")), SETTINGS["cross_encoder"]
    weights, bends = (np.asarray(mix[key], np.float32) for key in ("weights", "bends"))  # (k), (k × 3)
    by_mention, followed = bends[:, 1] - np.log(settings["mention"]), bends[:, [0, 2]]  # of words and rarity
    correction = np.float32(settings["weight"])
    by_words = np.asarray([settings["words"], 0.0], np.float32)
    counted = np.full(len(FEATURES), np.inf)
    plain = QueryWeights(
        weights=np.asarray([*weights, 0.0, correction], np.float32),  # titles count where a mention is marked
        bends=np.vstack([followed, [0.0, 0.0], by_words]).astype(np.float32),
        most_words=np.append(counted, settings["most_words"]).astype(np.float32),
    )
    marked = QueryWeights(
        weights=np.asarray([*weights * np.exp(by_mention), SETTINGS["marked"]["title"], correction], np.float32),
        bends=np.vstack([followed - by_words, np.zeros((2, 2))]).astype(np.float32),
        most_words=np.append(counted, np.inf).astype(np.float32),
    )
    lexicons = [Set(work, name).lexicon for name in SETTINGS["lexicon"]]
    return Constants(
        plain=plain,
        marked=marked,
        late_given_cosine=lines(work),
        token_idf=token_idf(work, []),
        lexicon=Lexicon.mean(lexicons, 10_000, least=2e-5),
    )


def lines(work: Path) -> np.ndarray:
    """Late interaction given the cosine, over candidates of all collections: slope and level, (2 × 2)."""
    pairs = []
    for name in (*(n for group in SETTINGS["groups"] for n in group), "wn_noun.event", "wn_verb.creation"):
        one = prepared(work, name)
        marked = np.repeat(one.facts[:, 1] > 0, one.count)
        some = np.column_stack([one.features[:, 2:], marked])[:: max(1, len(one.items) // 20_000)]
        pairs.append(some)
    cosine, late, mention, marked = np.concatenate(pairs).T
    of_mention = marked > 0
    return np.asarray([np.polyfit(cosine, late, 1), np.polyfit(cosine[of_mention], mention[of_mention], 1)], np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", type=Path)
    parser.add_argument("folder", type=Path, nargs="?", default=default_folder())
    parser.add_argument("--precision", choices=["integer", "float16", "float32"], default="integer")
    arguments = parser.parse_args()
    cross = averaged(arguments.work, "all", SETTINGS["cross_encoder"]["share"])
    centre(cross)
    slim = json.loads((encoder_folder() / "tokenizer.json").read_text("utf-8"))
    slim["truncation"] = slim["padding"] = None
    dual = dual_model(SETTINGS["dual_share"])
    arguments.folder.mkdir(parents=True, exist_ok=True)
    tokenizer = arguments.folder / "tokenizer.json"
    tokenizer.write_text(json.dumps(slim, ensure_ascii=False, separators=(",", ":")), "utf-8")
    export(
        arguments.folder,
        tokenizer,
        cross=cross,
        dual=dual,
        lower_precision={"integer": "integer", "float16": "int8", "float32": "float32"}[arguments.precision],
        upper_precision="float32" if arguments.precision == "float32" else "float16",
        dual_precision=arguments.precision,
        query_tokens=RECIPE["query_tokens"],
        item_tokens=RECIPE["item_tokens"],
        narrow=np.load(arguments.work / "basis.npy") @ np.load(arguments.work / "late-all.npy"),
        known=constants(arguments.work),
    )
    for path in sorted(arguments.folder.iterdir()):
        print(f"{path.stat().st_size / 1e6:8.2f} MB  {path.name}")


if __name__ == "__main__":
    main()
