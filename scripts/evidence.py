"""What several scorers say of judged candidates, for calibration and fusion: python scripts/evidence.py WORK OUTPUT

WORK is what relevance_sets.py, train_relevance.py and evaluate_relevance.py left. OUTPUT (an .npz, no texts in it) has,
for every collection and part (`test`; `choose`: train queries, where there are any), of each query up to 30 candidates,
the best by what the box knows without a call, and for each of them: `known`, `costly` (the cross-encoder's correction),
`score` (their sum, as it ships), `bm25`, `cosine`, `relevant`; `best_bm25` and `best_cosine` with `…_relevant` are the
30 best of the whole collection by these two. `judged` counts a query's relevant items. `random` has `score`, `bm25`
and `cosine` of random pairs. Weights have not seen the collection that they judge; random pairs are scored by the
weights of `--scorer`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from evaluate_relevance import SETTINGS, prepared, say
from relevance_sets import EVALUATED, GROUPS

from crosscut.encoders.words import Words
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.types import Floats

WIDTH = 30
PARTS = {"test": "corrections.npz", "choose": "corrections-choose.npz"}


def padded(values: Floats) -> Floats:
    return np.pad(np.asarray(values, np.float32), (0, WIDTH - len(values)), constant_values=np.nan)


def candidates(work: Path, name: str, file: str) -> dict[str, Floats]:
    """The candidates of one part of a collection."""
    one, settings = prepared(work, name), SETTINGS["cross_encoder"]
    with np.load(work / name / file) as saved:
        rows, ends = saved["rows"], np.cumsum(saved["count"])[:-1]
        found = list(zip(rows.tolist(), np.split(saved["places"], ends), np.split(saved["values"], ends), strict=True))
    columns: dict[str, list[Floats]] = {}
    for row, places, correction in found:
        own = one.of(row)
        relevant, known = one.gains[own] > 0, one.known[own][places]
        values = {
            "known": known,
            "costly": correction,
            "score": known + settings["weight"] * say(one.facts[row]) * correction,
            "bm25": one.features[own][places, 0],
            "cosine": one.features[own][places, 2],
            "relevant": relevant[places],
        }
        for column, rival in ((0, "best_bm25"), (2, "best_cosine")):
            scores = one.features[own][:, column]
            best = np.argsort(-scores, kind="stable")[:WIDTH]
            values |= {rival: scores[best], f"{rival}_relevant": relevant[best]}
        for column_name, value in values.items():
            columns.setdefault(column_name, []).append(padded(value))
        judged = sum(gain > 0 for gain in one.set.gains[int(one.query[row])].values())
        columns.setdefault("judged", []).append(np.array(judged))
    return {key: np.stack(values) for key, values in columns.items()}


def random_pairs(work: Path, name: str, model: OnnxCrossEncoder, queries: int = 40, each: int = 8) -> Floats:
    """(pairs × 3): score, BM25 and cosine of random pairs."""
    one = prepared(work, name)
    rng = np.random.default_rng(0)
    items = rng.choice(len(one.set.items), queries * each, replace=False)
    words = Words.of([one.set.items[item] for item in items], one.set.lexicon)
    texts = [one.set.items[item] for item in items]
    bound, vectors = model.bind(texts), model.encoder.encode_items(texts)
    rows = []
    for number, query in enumerate(rng.choice(len(one.set.queries), queries, replace=False).tolist()):
        places = np.arange(number * each, (number + 1) * each)
        text = one.set.queries[query]
        cosine = vectors[places] @ model.encoder.encode_queries([text])[0]
        rows.append(np.stack([bound.score(text, places), words.match(text).bm25[places], cosine], 1))
    return np.concatenate(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--scorer", default="default")
    arguments = parser.parse_args()
    model = OnnxCrossEncoder.load(arguments.scorer, threads=1)
    made: dict[str, Floats] = {}
    for name in (*(name for group in GROUPS for name in group), *EVALUATED, "scifact"):
        for part, file in PARTS.items():
            if (arguments.work / name / file).is_file():
                found = candidates(arguments.work, name, file)
                made |= {f"{name}/{part}/{key}": values for key, values in found.items()}
        made[f"{name}/random"] = random_pairs(arguments.work, name, model).astype(np.float32)
        print(name, flush=True)
    narrow = {
        key: values.astype(np.int16) if values.dtype.kind == "i" else values.astype(np.float16)
        for key, values in made.items()
    }
    np.savez_compressed(arguments.output, **narrow)


if __name__ == "__main__":
    main()
