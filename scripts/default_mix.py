"""The training mix of the models in the box: which query meets which negatives.

Test parts stay out: SciFact by its own split, the other sets by the rule of `crosscut.datasets.beir.is_test`,
WordNet by whole lexicographer files. SemCor is not read at all.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from wordnet import WordNet

from crosscut.datasets.beir import is_test, read_beir, read_judgements, read_queries
from crosscut.datasets.files import find, records
from crosscut.encoders.tokens import Tokenizer, marked_text
from crosscut.retrievers.tfidf import TfIdf
from crosscut.training.examples import Example, Examples
from crosscut.training.negatives import draw, rank_dense

Embed = Callable[[str, list[str], list[str]], tuple[np.ndarray, np.ndarray]]
VALIDATION_CANDIDATES = 12


class Mix:
    """Builds the examples of every source of a recipe."""

    def __init__(
        self,
        recipe: dict[str, Any],
        data: Path,
        tokenizer: Path,
        embed: Embed,
        mined: dict[str, np.ndarray] | None = None,
    ) -> None:
        self.recipe, self.data, self.tokenizer_path, self.embed = recipe, data, tokenizer, embed
        self.mined = mined or {}  # candidates of SciFact's claims and their scores, of mine_negatives.py
        self.examples = Examples()

    def build(self) -> Examples:
        for source in self.recipe["sources"]:
            rng = random.Random(f"{self.recipe['seed']} {source}")
            getattr(self, f"add_{source}")(source, self.recipe["sources"][source], rng)
        return self.examples

    def _tokenizer(self, settings: dict[str, Any]) -> Tokenizer:
        return Tokenizer(
            self.tokenizer_path,
            query_tokens=settings.get("query_tokens", self.recipe["query_tokens"]),
            item_tokens=settings["item_tokens"],
        )

    def add_wordnet(self, source: str, settings: dict[str, Any], rng: random.Random) -> None:
        wordnet = WordNet()
        worlds = self.recipe["worlds"]
        hidden = {*worlds["held_out"], *worlds["validation"]}
        tokenizer = self._tokenizer(settings)
        base = self.examples.add_items(tokenizer.items([marked_text(s.item) for s in wordnet.synsets]))
        place = {s.id: base + n for n, s in enumerate(wordnet.synsets)}

        def hard(id: str, allowed: Callable[[str], bool], siblings: int, neighbours: int) -> list[str]:
            synset = wordnet.by_id[id]
            same = {other for lemma in synset.lemmas for other in wordnet.by_lemma[lemma.lower()]} - {id}
            near = {*synset.neighbours, *(h for p in synset.hypernyms for h in wordnet.hyponyms[p])} - {id} - same
            pick = lambda ids, k: rng.sample(ids, min(k, len(ids)))  # noqa: E731
            first = pick(sorted(other for other in same if allowed(other)), siblings)
            second = pick(sorted(other for other in near if other in place and allowed(other)), neighbours)
            return [*first, *second]

        members = [s for s in wordnet.synsets if s.world not in hidden]
        queries, gold = wordnet.queries(members)
        if "stage" in self.recipe:
            rng.seed(f"{self.recipe['seed']} {source} {self.recipe['stage']}")
        if settings.get("verbs_twice"):
            queries += [query for query in queries if "-v." in query.id]
        chosen = rng.sample(queries, min(settings["examples"], len(queries)))
        lexical = settings.get("lexical", 0)
        alike = TfIdf([marked_text(s.item) for s in members]).rank([unmarked(q.text) for q in chosen], 40)
        for number, query in enumerate(chosen):
            (right,) = gold[query.id]
            wrong = hard(right, lambda other: wordnet.by_id[other].world not in hidden, 3, 2)
            others = [members[n].id for n in alike[number] if members[n].id not in (right, *wrong)]
            wrong += rng.sample(others[:30], lexical)
            tokens = tokenizer.query(query.text)
            items = tuple(place[id] for id in [right, *wrong])
            self.examples.train.append(Example(source, tokens, items, frozenset(items[:1])))
        if "stage" in self.recipe:  # the same validation in every stage
            rng = random.Random(f"{self.recipe['seed']} {source} validation")
        for world in worlds["validation"]:
            collection = wordnet.world(world)
            for query in rng.sample(collection.queries, 60):
                (right,) = collection.gold(query.id)
                wrong = hard(right, lambda other, world=world: wordnet.by_id[other].world == world, 5, 4)
                rest = [item.id for item in rng.sample(collection.items, 20) if item.id not in (right, *wrong)]
                items = tuple(place[id] for id in [right, *wrong, *rest][:VALIDATION_CANDIDATES])
                tokens = tokenizer.query(query.text)
                self.examples.validation.append(Example(source, tokens, items, frozenset(items[:1])))

    def add_squad(self, source: str, settings: dict[str, Any], rng: random.Random) -> None:
        collection = read_beir(self.data / "squad_sentences")
        self._add(source, settings, rng, collection, collection.queries, collection.judgements, dense=True, window=3)

    def add_mdn(self, source: str, settings: dict[str, Any], rng: random.Random) -> None:
        collection = read_beir(self.data / "mdn_el")
        queries = [*collection.queries, *read_queries(find(self.data / "mdn_el", "queries_extra.jsonl"))]
        judgements = dict(collection.judgements)
        for judgement in read_judgements(find(self.data / "mdn_el", "qrels_extra.tsv")):
            judgements.setdefault(judgement.query_id, {})[judgement.item_id] = judgement.score
        self._add(source, settings, rng, collection, queries, judgements, dense=False, window=4)

    def add_hotpot(self, source: str, settings: dict[str, Any], rng: random.Random) -> None:
        collection = read_beir(self.data / "hotpotqa_sub")
        self._add(source, settings, rng, collection, collection.queries, collection.judgements, dense=False)

    def add_scifact(self, source: str, settings: dict[str, Any], rng: random.Random) -> None:
        folder = self.data / "scifact"
        split = {record["_id"]: record["split"] for _, record in records(find(folder, "queries.jsonl"))}
        collection = read_beir(folder)
        train = [query for query in collection.queries if split[query.id] == "train"]
        self._add(source, settings, rng, collection, train, collection.judgements, dense=True, split=False)

    def add_scifact_cloze(self, source: str, settings: dict[str, Any], rng: random.Random) -> None:
        collection = read_beir(self.data / "scifact")
        texts = [marked_text(item) for item in collection.items]
        tokenizer = self._tokenizer(settings)
        base = self.examples.add_items(tokenizer.items(texts))
        if self.recipe.get("stage") == 4:
            rng.seed(f"{self.recipe['seed']} {source} 4")
        taken: list[tuple[int, str, str]] = []  # position, what was taken out, the rest
        for position in rng.sample(range(len(texts)), settings["examples"]):
            item = collection.items[position]
            sentences = re.split(r"(?<=[.!?]) +", item.text)
            if len(sentences) < 4:
                continue
            if rng.random() < settings.get("titles", 0.0):
                taken.append((position, item.title, item.text))
                continue
            out = rng.randrange(len(sentences))
            rest = marked_text(item._replace(text=" ".join(sentences[:out] + sentences[out + 1 :])))
            taken.append((position, sentences[out], rest))
        lexical = TfIdf(texts).rank([query for _, query, _ in taken], 60)
        encoded = None
        if settings.get("dense"):
            items, vectors = self.embed("scifact", [text[:1500] for text in texts], [query for _, query, _ in taken])
            encoded = rank_dense(items, vectors, 60)
        for number, (position, query, rest) in enumerate(taken):
            own = self.examples.add_items(tokenizer.items([rest]))
            wrong = draw(lexical[number], {position}, 4 if encoded is not None else 5, rng, among=25)
            if encoded is not None:
                wrong += draw(encoded[number], {position, *wrong}, 3, rng, among=40)
            items = (own, *(base + other for other in wrong))
            judged = frozenset({own, base + position})
            self.examples.train.append(Example(source, tokenizer.query(query), items, judged))

    def _add(self, source, settings, rng, collection, queries, judgements, *, dense, window=0, split=True):  # type: ignore[no-untyped-def]
        texts = [marked_text(item) for item in collection.items]
        tokenizer = self._tokenizer(settings)
        base = self.examples.add_items(tokenizer.items(texts))
        positions = collection.positions
        chosen = [q for q in queries if judgements.get(q.id) and not (split and is_test(q.id))]
        rng.shuffle(chosen)
        held, chosen = chosen[:50], chosen[50:]
        if "stage" in self.recipe:  # the same queries validate; the others meet new negatives in a new order
            rng.seed(f"{self.recipe['seed']} {source} {self.recipe['stage']}")
            rng.shuffle(chosen)
        rounds = -(-settings["examples"] // len(chosen))
        chosen = (chosen * rounds)[: settings["examples"]]
        unique = list({q.id: q for q in [*held, *chosen]}.values())
        row = {q.id: n for n, q in enumerate(unique)}
        short = [text[:1500] for text in texts]
        lexical = TfIdf(short).rank([unmarked(q.text) for q in unique], 80)
        encoded = None
        if dense:
            items, vectors = self.embed(source, short, [q.text for q in unique])
            encoded = rank_dense(items, vectors, 80)
        mined = self.mined if source == "scifact" else {}
        for number, query in enumerate([*held, *chosen]):
            count = VALIDATION_CANDIDATES - 1 if number < len(held) else 6
            gold = [positions[id] for id, score in judgements[query.id].items() if score > 0]
            if not gold:
                continue
            right = rng.choice(gold)
            banned = set(gold)
            near = [p for p in range(right - window, right + window + 1) if 0 <= p < len(texts) and p not in banned]
            wrong = rng.sample(near, min(len(near), count // 3))
            share = (count - len(wrong)) // 2 if encoded is not None else count - len(wrong)
            wrong += draw(lexical[row[query.id]], {*banned, *wrong}, share, rng, among=40)
            if encoded is not None:
                wrong += draw(encoded[row[query.id]], {*banned, *wrong}, count - len(wrong), rng, among=40)
            scores: tuple[float, ...] = ()
            if number >= len(held) and query.id in mined:
                wrong, scores = taught(mined[query.id], right, banned, rng)
            items = tuple(base + p for p in [right, *wrong])
            judged = frozenset(base + p for p in gold)
            example = Example(source, tokenizer.query(query.text), items, judged, scores)
            (self.examples.validation if number < len(held) else self.examples.train).append(example)


def taught(mined: np.ndarray, right: int, banned: set[int], rng: random.Random) -> tuple[list[int], tuple[float, ...]]:
    """Seven negatives of a claim, four of them among the fifteen that the cross-encoder liked best, and what the
    teacher says of the right item and of them: cross-encoder, BM25 and dual encoder together."""
    places, cross, lexical, dual = mined
    ranked = places[np.argsort(-cross, kind="stable")].astype(np.int64)
    wrong = draw(ranked, banned, 4, rng, among=15)
    wrong += draw(ranked, {*banned, *wrong}, 3, rng, among=len(ranked))
    teacher = dict(zip(places.astype(np.int64).tolist(), (cross + 0.2 * lexical + 5 * dual).tolist(), strict=True))
    return wrong, tuple(teacher[place] for place in [right, *wrong])


def unmarked(text: str) -> str:
    return re.sub(r"\[(START|END)\]", "", text)


def describe(examples: Examples) -> str:
    """Counts and token costs per source, as JSON."""
    table: dict[str, dict[str, int]] = {}
    for example in examples.train:
        entry = table.setdefault(example.source, {"train": 0, "tokens": 0})
        entry["train"] += 1
        entry["tokens"] += examples.cost(example) * 8 // len(example.items)
    for example in examples.validation:
        table.setdefault(example.source, {}).setdefault("validation", 0)
        table[example.source]["validation"] += 1
    return json.dumps(table)
