"""Timings: each returns records; none says anything without the machine that it ran on.

| program | what is timed |
|---|---|
| loop | time outside the scorer, against plain numpy and against reading V once a round |
| ivf | fixed N and early exit against FAISS IVFFlat, one thread (`ivf.py`: also on sentences, and an older crosscut) |
| index | build, save, load, search, add, remove, forget at n items in files |
| store | committing, reading and forgetting scores |
| server | searches per second and latency of concurrent clients |
| cross-encoder | pairs per second against `CrossEncoder.predict`, same weights and pairs |
| import | CPU seconds of `import crosscut` and of the command line |
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import crosscut
from crosscut_lab.papers.transcriptions import axn, shares
from crosscut_lab.report import Records
from crosscut_lab.speed.ivf import ivf
from crosscut_lab.speed.timing import clumps, in_turns

TEXT = "river bank tree house king ship iron gold moon star wind fire stone bird fish"
WORDS = TEXT.split()


def texts(n: int, seed: int = 0, length: int = 12) -> list[str]:
    rng = np.random.default_rng(seed)
    picked = rng.integers(0, len(WORDS), (n, length))
    return [f"{number} " + " ".join(WORDS[j] for j in row) for number, row in enumerate(picked)]


def overlap(query: str, some: Any) -> list[float]:
    asked = set(query.split())
    return [len(asked & set(text.split())) + (len(text) % 7) / 10 for text in some]


def loop(n: int = 10_000, repeats: int = 3, d: int = 384, budget: int = 100) -> Records:
    """Time outside the scorer of single searches."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((n, d), dtype=np.float32) / np.float32(np.sqrt(d))
    query = rng.standard_normal(d)
    scores = (vectors @ query + 0.3 * rng.standard_normal(n))[None]
    records = []
    for rounds in (5, 10):
        searchers = {
            name: crosscut.Searcher(crosscut.MatrixScorer(scores), vectors=vectors, method=f"{name}@rounds={rounds}")
            for name in ("axn", "crosscut")
        }
        work: dict[str, Callable[[], Any]] = {
            name: partial(one.search, 0, 10, budget, query_vector=query) for name, one in searchers.items()
        }
        work["reading V once"] = lambda: vectors.sum()

        def plain(rounds: int = rounds) -> Any:
            first = np.argsort(-(vectors @ query.astype(np.float32)), kind="stable")[: shares(budget, rounds)[0]]
            return axn(vectors, scores[0], first, budget, rounds, query)

        work["plain numpy"] = plain
        seconds = in_turns(work, repeats)
        once = seconds.pop("reading V once")
        records += [
            {
                "method": name, "n": n, "d": d, "budget": budget, "rounds": rounds, "ms": 1000 * value,
                "share of 7 ms a call": value / (budget * 0.007), "reads of V a round": value / (once * rounds),
            }
            for name, value in seconds.items()
        ]  # fmt: skip
    return records


def index(n: int = 20_000, repeats: int = 3, d: int = 64) -> Records:
    """An index in files: what each verb takes."""
    vectors, queries = clumps(n, d), clumps(20, d, 1)
    items, later = texts(n), texts(100, 7)

    def encode(some: Any) -> Any:
        return clumps(len(some), d, len(some))

    records: Records = []

    def timed(name: str, work: Callable[[], Any], count: int = 1) -> Any:
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            found = work()
        spent = {
            "ms": 1000 * (time.perf_counter() - wall) / count,
            "cpu ms": 1000 * (time.process_time() - cpu) / count,
        }
        records.append({"verb": name, "n": n, "d": d, **spent})
        return found

    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "my.index"
        build = partial(crosscut.Index.build, items, scorer=overlap, encoder=encode, vectors=vectors, path=path)
        timed("build", build)
        load = partial(crosscut.Index.load, path, scorer=overlap, encoder=encode)
        found = timed("load", load, repeats)
        search = partial(found.search, "river bank", 10, 100, query_vector=queries[0])
        timed("search, 100 calls, first", search)
        timed("search, 100 calls", search, 10 * repeats)
        timed("add 100", lambda: found.add([f"new {text}" for text in later]))
        timed("save", found.save)
        ids = [hit.id for hit in search()]
        timed("remove 1", lambda: found.remove(ids[:1]))
        timed("forget 1", lambda: found.forget(ids[1:2]))
        timed("save", found.save)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        records.append({"verb": "bytes on disk", "n": n, "d": d, "bytes": size, "of vectors": size / (2 * n * d)})
    return records


def store(n: int = 2_000, repeats: int = 3) -> Records:
    """A score store: n items × 50 queries bought into it, read again, an item forgotten."""
    from crosscut.score_store import ScoreStore
    from crosscut.score_store.jobs import score_matrix

    scorer = crosscut.scorers.TextScorer(lambda query, some: [float(len(text)) for text in some], fingerprint="length")
    items, queries = texts(n), texts(50, 3, 4)
    seconds: dict[str, list[float]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as place:
            steps: dict[str, Callable[[], Any]] = {
                "score and commit": partial(score_matrix, scorer, queries, items, store=place),
                "read again": lambda: np.asarray(score_matrix(scorer, queries, items, store=place).scores).sum(),
                "forget an item": lambda: ScoreStore(place, scorer_fingerprint=scorer.fingerprint).forget([items[3]]),
            }
            for name, work in steps.items():
                started = time.perf_counter()
                work()
                seconds.setdefault(name, []).append(time.perf_counter() - started)
    scores = n * len(queries)
    return [{"step": name, "scores": scores, "ms": 1000 * statistics.median(all_)} for name, all_ in seconds.items()]


def server(n: int = 2_000, repeats: int = 3, clients: int = 16) -> Records:
    """Concurrent clients of a server whose scorer takes half a millisecond a call."""
    import httpx
    import uvicorn

    from crosscut.server import make_app

    def slow(query: str, some: Any) -> list[float]:
        time.sleep(0.0005 * len(some))
        return overlap(query, some)

    built = crosscut.Index.build(texts(n), scorer=slow, encoder=lambda some: clumps(len(some), 32, len(some)))
    running = uvicorn.Server(uvicorn.Config(make_app(built), port=0, log_level="warning"))
    thread = threading.Thread(target=running.run, daemon=True)
    thread.start()
    while not running.started:
        time.sleep(0.01)
    port = running.servers[0].sockets[0].getsockname()[1]
    latencies: list[float] = []

    def client(number: int) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as http:
            for turn in range(2 * repeats):
                started = time.perf_counter()
                answer = http.post("/search", json={"query": f"{WORDS[(number + turn) % 15]} moon", "budget": 40})
                answer.raise_for_status()
                latencies.append(time.perf_counter() - started)

    records: Records = []
    for count in (1, clients):
        latencies.clear()
        threads = [threading.Thread(target=client, args=(number,)) for number in range(count)]
        started = time.perf_counter()
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        spent = time.perf_counter() - started
        records.append(
            {
                "clients": count, "searches": len(latencies), "searches per second": len(latencies) / spent,
                "median ms": 1000 * statistics.median(latencies), "slowest ms": 1000 * max(latencies),
                "share of the scorer's speed": len(latencies) * 40 * 0.0005 / spent,
            }
        )  # fmt: skip
    running.should_exit = True
    thread.join(timeout=10)
    return records


def cross_encoder(n: int = 48, repeats: int = 3, model: str | None = None) -> Records:
    """A hub cross-encoder, or one of MiniLM's shape with random weights, n pairs of natural lengths."""
    from sentence_transformers import CrossEncoder
    from torch.nn import Identity

    from crosscut.datasets.records import items_of
    from crosscut.scorers.loading import load_scorer

    with tempfile.TemporaryDirectory() as place:
        folder = model or str(random_model(Path(place) / "model"))
        rng = np.random.default_rng(0)
        some = [" ".join(rng.choice(WORDS, int(length))) for length in rng.integers(10, 120, n)]
        theirs = CrossEncoder(folder, device="cpu", activation_fn=Identity())
        ours = load_scorer(folder)
        handles = np.arange(n)
        work = {
            "CrossEncoder.predict": lambda: theirs.predict([("river bank", text) for text in some], batch_size=32),
            "crosscut": lambda: ours.bind(items_of(some)).score("river bank", handles),
        }
        difference = float(np.abs(work["CrossEncoder.predict"]() - work["crosscut"]()).max())
        seconds = in_turns(work, repeats, time.process_time)
    return [
        {"scorer": name, "pairs": n, "pairs per CPU second": n / value, "largest difference": difference}
        for name, value in seconds.items()
    ]


def random_model(folder: Path) -> Path:
    """Write a cross-encoder of MiniLM's shape with random weights."""
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir(parents=True)
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *WORDS,
        *letters,
        *(f"##{letter}" for letter in letters),
    ]
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertWordPieceTokenizer(str(folder / "vocab.txt")).save(str(folder / "tokenizer.json"))
    torch.manual_seed(0)
    shape: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12}
    config = BertConfig(vocab_size=len(vocabulary), intermediate_size=1536, num_labels=1, **shape)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), model_max_length=512).save_pretrained(folder)
    return folder


def imports(n: int = 0, repeats: int = 3) -> Records:
    """CPU seconds of new processes, the interpreter's own taken off."""
    import resource

    def spent(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    programs = {
        "nothing": "pass",
        "import crosscut": "import crosscut",
        "crosscut --help": "import sys; sys.argv = ['crosscut', '--help']\nfrom crosscut.cli import main\n"
        "try: main()\nexcept SystemExit: pass",
    }
    seconds = {name: min(spent(code) for _ in range(repeats)) for name, code in programs.items()}
    nothing = seconds.pop("nothing")
    return [{"program": name, "cpu seconds": value - nothing} for name, value in seconds.items()]


PROGRAMS: Mapping[str, Callable[..., Records]] = {
    "loop": loop,
    "ivf": ivf,
    "index": index,
    "store": store,
    "server": server,
    "cross-encoder": cross_encoder,
    "import": imports,
}
