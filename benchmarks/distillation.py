"""What distilling a scorer into the encoder costs and brings, on a score matrix whose texts are at hand.

    python benchmarks/distillation.py --data scores.npz --texts wordnet_wsd/ --encoder all-MiniLM-L6-v2/ --name NAME

The .npz holds `test` and `train` scores, `item_ids`, `test_ids` and `train_ids`; `--texts` is the BEIR folder that the
ids name (queries in `queries_semcor.jsonl` or `queries.jsonl`, with a `mention` if they have one). Writes
`benchmarks/results/distillation-NAME.json`. Scores come from the matrix: a call costs nothing here and is counted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from crosscut.evaluation.report import machine

import crosscut
from crosscut.datasets.files import find, records
from crosscut.measures import interval, paired_interval, recall
from crosscut.spaces.sparse import SparseScores, items_per_query
from crosscut.storage import write_json
from crosscut.training.distill import Loss, distill
from crosscut.training.jobs import Job, embed, start_model, tokenizer_of
from crosscut.training.loop import TrainingSettings
from crosscut.training.models import DualModel
from crosscut.training.negatives import rank_dense

CELLS = ((1, 100), (10, 100), (100, 500))
METHODS = ("rnr", "axn", "crosscut")


def texts_of(folder: Path, arrays: dict[str, Any]) -> tuple[list[str], list[str], list[str]]:
    """Items, train queries and test queries, in the order of the matrix."""
    wanted = {*arrays["train_ids"].tolist(), *arrays["test_ids"].tolist()}
    items = {
        record["_id"]: f"{record.get('title', '')} [ENT] {record['text']}"
        for _, record in records(find(folder, "corpus.jsonl"))
    }
    queries = {}
    for _, record in records(find(folder, "queries_semcor.jsonl", "queries.jsonl")):
        if record["_id"] in wanted:
            plain = " ".join(record["text"].replace("[START]", "").replace("[END]", "").replace("_", " ").split())
            mention = str(record.get("mention", "")).replace("_", " ")
            queries[record["_id"]] = f"{mention}: {plain}" if mention else plain
    return (
        [items[key] for key in arrays["item_ids"].tolist()],
        [queries[key] for key in arrays["train_ids"].tolist()],
        [queries[key] for key in arrays["test_ids"].tolist()],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--k-d", type=int, default=100)
    parser.add_argument("--candidates", type=int, default=24)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--losses", default="match,pair")
    parser.add_argument("--results", type=Path, default=Path("benchmarks/results"))
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in ("test", "train", "item_ids", "train_ids", "test_ids")}
    items, train, test = texts_of(options.texts, arrays)
    exact = arrays["test"].astype(np.float32)
    settings = TrainingSettings(
        learning_rate=options.rate, epochs=options.epochs, candidates=options.candidates, validations=options.epochs
    )
    rows: list[dict[str, Any]] = []
    base: dict[tuple[str, int, int], Any] = {}

    def judge(label: str, model: DualModel, told: dict[str, Any]) -> None:
        tokenizer = tokenizer_of(job)
        vectors = embed(model, tokenizer.items(items))
        queries = embed(model, [tokenizer.query(text) for text in test])
        for method in METHODS:
            searcher = crosscut.Searcher(crosscut.MatrixScorer(exact), vectors=vectors, method=method)
            for k, budget in CELLS:
                hits = searcher.search_many(range(len(exact)), k, budget, query_vectors=queries)
                values = np.array([recall(exact[row], found.scored, k) for row, found in enumerate(hits)])
                low, high = interval(values)
                record: dict[str, Any] = {"encoder": label, "method": method, "k": k, "budget": budget, **told}
                record |= {"recall": float(values.mean()), "low": low, "high": high}
                start = base.setdefault((method, k, budget), values)
                record["against_start"] = paired_interval(values, start)
                rows.append(record)
        print(label, [f"{row['method']} {row['recall']:.3f}" for row in rows[-9:]], flush=True)

    job = Job(options.encoder, Path(), settings=settings)
    model = start_model(DualModel, job)
    judge("start", model, {"calls": 0, "training_seconds": 0.0})
    tokenizer = tokenizer_of(job)
    vectors = embed(model, tokenizer.items(items))
    ranked = rank_dense(vectors, embed(model, [tokenizer.query(text) for text in train]), options.k_d)
    pairs = items_per_query(options.k_d, arrays["train"].shape, ranked=ranked)
    scores = SparseScores.from_dense(arrays["train"].astype(np.float64), pairs)
    losses: list[Loss] = options.losses.split(",")
    for loss in losses:
        with tempfile.TemporaryDirectory() as folder:
            job = Job(options.encoder, Path(folder), settings=settings)
            started = time.perf_counter()
            outcome = distill(items, train, scores, job, loss=loss)
            seconds = time.perf_counter() - started
            model = start_model(DualModel, job)
            from safetensors.torch import load_file

            model.load_state_dict(load_file(Path(folder) / "checkpoints" / "best.safetensors"), strict=False)
            told = {"calls": len(scores), "training_seconds": seconds, "validation": outcome.best}
            judge(loss, model, {**told, "best_step": outcome.best_step, "steps": outcome.steps})
        write_json(
            options.results / f"distillation-{options.name}.json",
            {
                "command": f"python benchmarks/distillation.py --data {options.data.name} --texts {options.texts.name} "
                f"--encoder {options.encoder.name} --name {options.name} --epochs {options.epochs}",
                "machine": machine(),
                "timing": "training_seconds: mining, training, validation and export, on a machine doing other work",
                "settings": {
                    **{name: getattr(options, name) for name in ("k_d", "candidates", "epochs", "rate")},
                    "queries": len(train),
                    "items": len(items),
                },
                "records": json.loads(json.dumps(rows)),
            },
        )


if __name__ == "__main__":
    main()
