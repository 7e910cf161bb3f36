"""Everything that is computed once per collection: python scripts/relevance_sets.py DATA WORK [NAME …]

For every collection, in WORK/<name>/: tokens and states at the meeting point of items and of chosen queries, vectors
and token vectors of the dual encoder, and, for every chosen query, candidates with the features of the known part
(`crosscut.encoders.known`). Training and evaluation read these files and compute none of them again. A killed run
resumes with the file it was at.

Queries are drawn with a seed: the first 150 train queries *choose* (design, steps, weights), up to 700 more train, up
to 300 of the test part report. Candidates are the union of the best 100 (50 for training) of BM25, dual encoder and
their equal-weight fusion, z-scored over the collection; the judged items join them for training alone.
"""

from __future__ import annotations

import argparse
import json
import random
import tomllib
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_weights import dual_model, encoder_folder
from wordnet import WordNet

from crosscut.datasets.beir import is_test, read_beir
from crosscut.datasets.files import find, records
from crosscut.datasets.records import Item, Query
from crosscut.encoders.folder import open_folder
from crosscut.encoders.late import TokenVectors, to_bytes
from crosscut.encoders.states import encode_alone
from crosscut.encoders.tokens import MENTION, Tokenizer, Tokens, marked_text
from crosscut.encoders.words import Lexicon, Words
from crosscut.retrievers.tfidf import TfIdf
from crosscut.training.bert import pack
from crosscut.training.models import DualModel

RECIPE = tomllib.loads(Path(__file__).with_name("default_models.toml").read_text("utf-8"))
SETTINGS = RECIPE["relevance"]
GROUPS: list[list[str]] = SETTINGS["groups"]
EVALUATED: list[str] = SETTINGS["evaluated"]
TRAINED: list[str] = SETTINGS["trained"]
CHOOSE = 150
VOCABULARY = 30522
FEATURES = ("bm25", "relative", "cosine", "late_idf", "late_mention")


def group_of(name: str) -> list[str]:
    """The collections that are left out together with this one."""
    return next((group for group in GROUPS if name in group), [])


class Texts:
    """Tokens and states (T × D) of many texts, flat."""

    def __init__(self, folder: Path, side: str) -> None:
        self.lengths = np.load(folder / f"{side}-lengths.npy")
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.ids, self.roles, self.keys = (np.load(folder / f"{side}-{k}.npy") for k in ("ids", "roles", "keys"))
        self.states = np.load(folder / f"{side}-states.npy", mmap_mode="r")

    def rows(self, places: Any) -> np.ndarray:
        """Rows of the tokens of these texts, one text after the other."""
        return np.concatenate([np.arange(self.starts[p], self.starts[p] + self.lengths[p]) for p in places])


class Set:
    """One collection, prepared."""

    def __init__(self, work: Path, name: str) -> None:
        self.name, self.folder = name, work / name
        told = json.loads((self.folder / "texts.json").read_text("utf-8"))
        self.items: list[str] = told["items"]
        self.query_ids = [id for id, _ in told["train"] + told["test"]]
        self.queries = [text for _, text in told["train"] + told["test"]]
        self.train = len(told["train"])  # queries before this one are of the train part
        self.gains = [{int(p): float(gain) for p, gain in told["gold"][id]} for id in self.query_ids]
        self.hard: dict[str, list[int]] | None = told.get("hard")

    @cached_property
    def query_texts(self) -> Texts:
        return Texts(self.folder, "queries")

    @cached_property
    def item_texts(self) -> Texts:
        return Texts(self.folder, "items")

    @cached_property
    def lexicon(self) -> Lexicon:
        return Lexicon.of(self.items)


def ndcg(ranked: Any, gains: dict[int, float], k: int = 10) -> float:
    discounts = 1 / np.log2(np.arange(2, k + 2))
    found = sum(gains.get(int(item), 0.0) * d for item, d in zip(ranked[:k], discounts, strict=False))
    ideal = sum(g * d for g, d in zip(sorted(gains.values(), reverse=True)[:k], discounts, strict=False))
    return float(found / ideal) if ideal else 0.0


def standard(scores: np.ndarray) -> np.ndarray:
    return np.asarray((scores - scores.mean()) / (scores.std() + 1e-9))


# reading ---------------------------------------------------------------------------------------------------------


def read_collection(data: Path, name: str) -> dict[str, Any]:
    """Items, train and test queries with at least one right item, right items by position."""
    collection = read_beir(data / name)
    rng = random.Random(f"rel {name}")
    judged = [query for query in collection.queries if collection.gold(query.id)]
    if name == "scifact":
        split = {record["_id"]: record["split"] for _, record in records(find(data / name, "queries.jsonl"))}
        train = [query for query in judged if split[query.id] == "train"]
        test = [query for query in judged if split[query.id] != "train"]
    elif name in EVALUATED:
        train, test = [], judged
    else:
        train = [query for query in judged if not is_test(query.id)]
        test = [query for query in judged if is_test(query.id)]
    rng.shuffle(train)
    if name != "scifact":
        rng.shuffle(test)
    train, test, items = train[:3000], test[:400], list(collection.items)
    if name in SETTINGS["parts"]:  # a part of a large collection is enough to train on
        train, test = train[:1500], test[:100]
        needed = {id for query in train + test for id in collection.gold(query.id)}
        rest = [item for item in items if item.id not in needed]
        rng.shuffle(rest)
        needed |= {item.id for item in rest[: SETTINGS["parts"][name]]}
        items = [item for item in items if item.id in needed]
    place = {item.id: n for n, item in enumerate(items)}
    gold = {
        query.id: [[place[id], s] for id, s in collection.judgements[query.id].items() if id in place and s > 0]
        for query in train + test
    }
    return told(items, [q for q in train if gold[q.id]], [q for q in test if gold[q.id]], gold)


def read_world(wordnet: WordNet, name: str) -> dict[str, Any]:
    """A held-out or validation world of WordNet: its queries are all test."""
    collection = wordnet.world(name)
    queries = [query for query in collection.queries if collection.gold(query.id)]
    random.Random(0).shuffle(queries)
    queries = queries[: SETTINGS["worlds"].get(name, 120)]
    place = collection.positions
    return told(
        collection.items, [], queries, {q.id: [[place[id], 1.0] for id in collection.gold(q.id)] for q in queries}
    )


def read_wordnet(wordnet: WordNet) -> dict[str, Any]:
    """Queries of the other files of WordNet, with synsets of the same lemma, neighbours and look-alikes."""
    hidden = {*RECIPE["worlds"]["held_out"], *RECIPE["worlds"]["validation"]}
    rng = random.Random("rel wn_train")
    members = [synset for synset in wordnet.synsets if synset.world not in hidden]
    queries, gold = wordnet.queries(members)
    queries += [query for query in queries if "-v." in query.id]
    chosen = list({query.id: query for query in rng.sample(queries, 5200)}.values())[:4000]
    plain = [query.text.replace("[START]", "").replace("[END]", "") for query in chosen]
    alike = TfIdf([marked_text(synset.item) for synset in members]).rank(plain, 25)

    def allowed(ids: set[str]) -> list[str]:
        return [id for id in sorted(ids) if id in wordnet.by_id and wordnet.by_id[id].world not in hidden]

    hard: dict[str, list[str]] = {}
    place: dict[str, int] = {}
    for number, query in enumerate(chosen):
        (right,) = gold[query.id]
        synset = wordnet.by_id[right]
        same = {other for lemma in synset.lemmas for other in wordnet.by_lemma[lemma.lower()]} - {right}
        near = {*synset.neighbours, *(h for p in synset.hypernyms for h in wordnet.hyponyms[p])} - {right} - same
        near_ids = allowed(near)
        wrong = allowed(same)[:12] + rng.sample(near_ids, min(4, len(near_ids)))
        wrong += [members[n].id for n in alike[number][:8]]
        hard[query.id] = [id for id in dict.fromkeys(wrong) if id != right]
        for id in [right, *hard[query.id]]:
            place.setdefault(id, len(place))
    items = [wordnet.by_id[id].item for id in place]
    judged = {query.id: [[place[next(iter(gold[query.id]))], 1.0]] for query in chosen}
    return {**told(items, chosen, [], judged), "hard": {id: [place[o] for o in ids] for id, ids in hard.items()}}


def told(items: list[Item], train: list[Query], test: list[Query], gold: dict[str, Any]) -> dict[str, Any]:
    return {
        "items": [marked_text(item) for item in items],
        "train": [[query.id, query.text] for query in train],
        "test": [[query.id, query.text] for query in test],
        "gold": gold,
    }


# states and vectors ------------------------------------------------------------------------------------------------


def write_states(folder: Path, side: str, tokens: list[Tokens]) -> None:
    lower = open_folder("default").lower
    lengths = np.asarray([len(text.ids) for text in tokens], np.int64)
    np.save(folder / f"{side}-lengths.npy", lengths)
    for key in ("ids", "roles", "keys"):
        flat = np.concatenate([getattr(text, key) for text in tokens]).astype(np.int32)
        np.save(folder / f"{side}-{key}.npy", flat)
    part = folder / f"{side}-states.part.npy"
    out = np.lib.format.open_memmap(part, mode="w+", dtype=np.float16, shape=(int(lengths.sum()), 384))
    starts = np.cumsum(lengths) - lengths
    for first in range(0, len(tokens), 2048):
        for number, states in enumerate(encode_alone(lower, tokens[first : first + 2048]), first):
            out[starts[number] : starts[number] + len(states)] = states
    out.flush()
    part.rename(folder / f"{side}-states.npy")


@torch.no_grad()
def write_vectors(model: DualModel, folder: Path, side: str, texts: Texts, basis: torch.Tensor) -> None:
    """One vector per text, and one of 128 numbers per token."""
    order = np.argsort(texts.lengths, kind="stable")
    vectors = np.zeros((len(order), 384), np.float32)
    part = folder / f"{side}-tokens.part.npy"
    out = np.lib.format.open_memmap(part, mode="w+", dtype=np.float16, shape=(int(texts.lengths.sum()), basis.shape[1]))
    first = 0
    while first < len(order):
        longest = texts.lengths[order[min(len(order) - 1, first + 4096 // int(texts.lengths[order[first]]))]]
        places = order[first : first + max(1, 4096 // int(longest))]
        first += len(places)
        rows, packing = texts.rows(places), pack(texts.lengths[places])
        x = torch.from_numpy(texts.states[rows]).float()
        x = x + model.roles(torch.from_numpy(texts.roles[rows].astype(np.int64)))  # (T, D)
        for layer in model.upper:
            x = layer(x, packing)
        sums = x.new_zeros(len(places), x.shape[1]).index_add(0, packing.places // packing.length, x)
        vectors[places] = torch.nn.functional.normalize(sums, dim=1).numpy()
        out[rows] = (torch.nn.functional.normalize(x, dim=1) @ basis).half().numpy()
    np.save(folder / f"{side}-vectors.npy", vectors)
    out.flush()
    part.rename(folder / f"{side}-tokens.npy")


# features ----------------------------------------------------------------------------------------------------------


def token_idf(work: Path, left_out: list[str]) -> np.ndarray:
    """idf of word pieces over the collections that are trained on, each of the same weight: (vocabulary,)."""
    names = [name for name in SETTINGS["lexicon"] if name not in left_out]
    share = np.zeros(VOCABULARY)
    for name in names:
        lengths, ids = (np.load(work / name / f"items-{key}.npy") for key in ("lengths", "ids"))
        owners = np.repeat(np.arange(len(lengths)), lengths)
        held = np.bincount(np.unique(owners * VOCABULARY + ids) % VOCABULARY, minlength=VOCABULARY)
        share += held / len(lengths) / len(names)
    return (-np.log(share + 1e-5)).astype(np.float32)


def token_bytes(flat: np.ndarray) -> np.ndarray:
    wide = flat.astype(np.float32)
    return to_bytes(wide / (np.linalg.norm(wide, axis=1, keepdims=True) + 1e-6))


def candidates(work: Path, one: Set) -> dict[str, np.ndarray]:
    """Candidates of the chosen queries, their features, and what the three rivals reach over the whole collection."""
    queries, items = one.query_texts, one.item_texts
    idf = token_idf(work, group_of(one.name))
    words = Words.of(one.items, one.lexicon)
    item_vectors, query_vectors = (np.load(one.folder / f"{side}-vectors.npy") for side in ("items", "queries"))
    flat = token_bytes(np.load(one.folder / "items-tokens.npy"))
    inner = np.ones(len(flat), np.bool_)  # without [CLS] and [SEP]
    inner[items.starts] = inner[items.starts + items.lengths - 1] = False
    tokens = TokenVectors([(flat[inner], items.lengths - 2)], flat.shape[1])
    query_tokens = token_bytes(np.load(one.folder / "queries-tokens.npy"))
    train = range(CHOOSE, min(one.train, CHOOSE + (2600 if one.hard else 700)))
    tests = range(one.train, min(len(one.queries), one.train + (369 if one.name == "wikiqa" else 300)))
    out: dict[str, list[Any]] = {"query": [], "count": [], "items": [], "features": [], "rivals": [], "facts": []}
    for number in [*range(min(CHOOSE, one.train)), *train, *tests]:
        text, gains = one.queries[number], one.gains[number]
        match, cosine = words.match(text), item_vectors @ query_vectors[number]
        fused = standard(match.bm25) + standard(cosine)
        depth = 50 if number in train else 100
        if one.hard is not None:
            best = np.argsort(-fused, kind="stable")[:10]
            union = np.asarray(sorted({*one.hard[one.query_ids[number]], *gains, *best.tolist()}))
        else:
            tops = [np.argsort(-scores, kind="stable")[:depth] for scores in (match.bm25, cosine, fused)]
            union = np.unique(np.concatenate([*tops, np.asarray(list(gains) if number in train else [], np.int64)]))
        own = slice(queries.starts[number] + 1, queries.starts[number] + queries.lengths[number] - 1)
        mention = queries.roles[own] == MENTION
        weights = idf[queries.ids[own]]
        best_cosines = tokens.best(query_tokens[own], union)  # (candidates × m)
        marked = best_cosines[:, mention].mean(1) if mention.any() else np.zeros(len(union))
        late = best_cosines @ (weights / weights.sum())
        limit, terms = words.limit(text)
        out["query"].append(number)
        out["count"].append(len(union))
        out["items"].append(union)
        out["features"].append(
            np.stack([match.bm25[union], match.relative[union], cosine[union], late, marked], 1).astype(np.float32)
        )
        ranks = [np.argsort(-scores, kind="stable")[:10] for scores in (match.bm25, cosine, fused)]
        out["rivals"].append([ndcg(ranked, gains) for ranked in ranks])
        facts = [np.log1p(terms) - 2.0, float(mention.any()), np.log(limit / max(terms, 1) + 0.1) - 1.6]
        out["facts"].append(facts)
    flat_keys = ("items", "features")
    return {key: np.concatenate(v) if key in flat_keys else np.asarray(v) for key, v in out.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    work: Path = arguments.work
    worlds = [f"wn_{world}" for part in ("validation", "held_out") for world in RECIPE["worlds"][part]]
    names = arguments.names or [*TRAINED, *worlds, *EVALUATED]
    wordnet = WordNet()
    model = dual_model(SETTINGS["dual_share"])
    basis_path = work / "basis.npy"
    for name in names:
        folder = work / name
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "items-states.npy").is_file():
            if name == "wn_train":
                content = read_wordnet(wordnet)
            elif name.startswith("wn_"):
                content = read_world(wordnet, name.removeprefix("wn_"))
            else:
                content = read_collection(arguments.data, name)
            (folder / "texts.json").write_text(json.dumps(content), "utf-8")
            tokenizer = Tokenizer(
                encoder_folder() / "tokenizer.json",
                query_tokens=RECIPE["query_tokens"],
                item_tokens=SETTINGS["item_tokens"].get(name, RECIPE["item_tokens"]),
            )
            queries = [tokenizer.query(text) for _, text in content["train"] + content["test"]]
            write_states(folder, "queries", queries)
            write_states(folder, "items", tokenizer.items(content["items"]))
    if not basis_path.is_file():
        np.save(basis_path, principal(model, work))
    basis = torch.from_numpy(np.load(basis_path))
    for name in names:
        one = Set(work, name)
        if not (one.folder / "items-tokens.npy").is_file():
            write_vectors(model, one.folder, "queries", one.query_texts, basis)
            write_vectors(model, one.folder, "items", one.item_texts, basis)
        if not (one.folder / "candidates.npz").is_file():
            np.savez(one.folder / "candidates.npz", **candidates(work, one))


@torch.no_grad()
def principal(model: DualModel, work: Path, width: int = 128) -> np.ndarray:
    """The directions that hold most of the token vectors of a few short collections: (D × width), not centred."""
    moment = np.zeros((384, 384))
    whole = torch.eye(384)
    for name, side in SETTINGS["basis"]:
        folder = work / name
        write_vectors(model, folder, side, Texts(folder, side), whole)
        some = np.load(folder / f"{side}-tokens.npy")[::7].astype(np.float64)
        moment += some.T @ some
        (folder / f"{side}-tokens.npy").unlink()
    return np.linalg.eigh(moment)[1][:, ::-1][:, :width].astype(np.float32)


if __name__ == "__main__":
    main()
