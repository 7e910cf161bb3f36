"""From a folder of texts to the matrices and vectors of an experiment: planned, bought, resumable.

    DIR with documents/ and mentions/     ZESHEL; one world, its mentions split at random into train and test
    DIR with corpus.jsonl, queries.jsonl  BEIR; pseudo-queries (qgen-queries.jsonl) train, judged queries test
    DIR with collection.tsv               MS MARCO; queries.train.tsv train, queries.dev.small.tsv and its qrels test
    scores.npz                            matrices that exist already

Scores are kept in a score store of the output folder and vectors beside them, by what they depend on: the same command
goes on where it was stopped, and another model or text begins anew.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np

from crosscut.datasets.records import MENTION_END, MENTION_START, Collection, Item, plain_text
from crosscut.errors import InputError
from crosscut.evaluation.replay import ScoreData, score_data
from crosscut.score_store.jobs import score_matrix
from crosscut.spaces.sparse import Pairs, SparseScores
from crosscut.types import Array

Size: TypeAlias = Literal["small", "full"]
NOTHING = 1 << 60
LIMITS: dict[str, dict[str, int]] = {
    "small": {"items": 1000, "train": 40, "test": 40, "item_anchors": 40},
    "full": {"items": NOTHING, "train": 500, "test": NOTHING, "item_anchors": 500},
}
PAPER_QUERIES = {"yugioh": 3374, "military": 2400, "star_trek": 4227, "doctor_who": 4000, "pro_wrestling": 1392}
"""Mentions of ZESHEL worlds that the papers split into train and test queries."""
PAPER_TEST = {"hotpotqa": 1000}
ARRAYS = ("test", "vectors", "query_vectors", "anchor_query_vectors", "words", "item_scores", "item_anchors")
VIEWS = (("sentences", "views", "view_counts"), ("merged sentences", "merged", "merged_counts"))


@dataclass(frozen=True)
class Texts:
    """Items, train and test queries, and for test queries the positions of right items."""

    name: str
    items: list[Item]
    train: list[str]
    test: list[str]
    gold: list[list[int]]
    lexical: Literal["tfidf", "bm25"]

    @cached_property
    def digest(self) -> str:
        parts = [*self.train, *self.test, *(f"{item.title}\0{item.text}" for item in self.items)]
        return hashlib.sha256("\1".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def drawn(self, count: int) -> list[int]:
        """Return the positions of anchor items."""
        return sorted(np.random.default_rng(1).choice(len(self.items), count, replace=False).tolist())


def read_texts(
    data: Path, world: str | None, size: Size, *, train: int | None = None, test: int | None = None, seed: int = 0
) -> Texts:
    """Read the texts of a data set, cut to size; queries and items are drawn, never the first ones."""
    limits = dict(LIMITS[size])
    if size == "full":
        limits["test"] = PAPER_TEST.get(data.name.lower(), NOTHING)
    limits |= {name: value for name, value in (("train", train), ("test", test)) if value is not None}
    rng = np.random.default_rng(seed)
    if (data / "documents").is_dir():
        return _zeshel(data, world, limits, rng)
    if (data / "collection.tsv").is_file() or (data / "collection.tsv.gz").is_file():
        from crosscut_lab.papers.msmarco import read_msmarco

        found = read_msmarco(data, train=limits["train"], test=limits["test"], items=limits["items"], seed=seed)
        return _cut(found.collection, found.train, found.collection.queries, limits, rng, "bm25")
    if world is not None:
        raise InputError(f"--world is for ZESHEL, and {str(data)!r} has no folder documents")
    from crosscut.datasets import read_beir
    from crosscut.datasets.beir import read_queries
    from crosscut.datasets.files import find

    collection = read_beir(data)
    judged = [query for query in collection.queries if collection.gold(query.id)]
    if any((data / name).is_file() for name in ("qgen-queries.jsonl", "qgen-queries.jsonl.gz")):
        asked = [query.text for query in read_queries(find(data, "qgen-queries.jsonl"))]
        learned = [asked[place] for place in rng.permutation(len(asked))[: limits["train"]]]
        tested = [judged[place] for place in rng.permutation(len(judged))[: limits["test"]]]
    else:  # no pseudo-queries: the judged queries are split
        order = rng.permutation(len(judged))
        count = min(limits["train"], len(judged) // 2)
        learned = [judged[place].text for place in order[:count]]
        tested = [judged[place] for place in order[count : count + limits["test"]]]
    return _cut(collection, learned, tested, limits, rng, "bm25")


def _zeshel(data: Path, world: str | None, limits: dict[str, int], rng: np.random.Generator) -> Texts:
    from crosscut_lab.papers.zeshel import read_world

    worlds = sorted(path.name.split(".json")[0] for path in (data / "documents").glob("*.json*"))
    if world not in worlds:
        raise InputError(f"name the world of {str(data)!r} with --world: {', '.join(worlds)}")
    collection = read_world(data, str(world), split="all")
    order = rng.permutation(len(collection.queries))[: PAPER_QUERIES.get(str(world), NOTHING)]
    count = min(limits["train"], len(order) // 2)
    learned = [collection.queries[place].text for place in order[:count]]
    tested = [collection.queries[place] for place in order[count : count + limits["test"]]]
    return _cut(collection, learned, tested, limits, rng, "tfidf")


def _cut(
    collection: Collection, train: list[str], test: Sequence[Any], limits: dict[str, int], rng: np.random.Generator,
    lexical: Literal["tfidf", "bm25"],
) -> Texts:  # fmt: skip
    """Draw items down to their limit; those that are right for a test query stay."""
    if not train or not test:
        raise InputError(
            f"{collection.name!r} has {len(train)} train and {len(test)} test queries; an experiment needs some of both"
        )
    positions = collection.positions
    right = [[positions[id] for id in collection.gold(query.id)] for query in test]
    chosen = np.arange(len(collection.items))
    if len(chosen) > limits["items"]:
        kept = sorted({place for some in right for place in some})
        others = np.setdiff1d(chosen, kept)
        rng.shuffle(others)
        chosen = np.sort(np.concatenate([kept, others[: max(0, limits["items"] - len(kept))]]).astype(np.int64))
    place = {int(old): new for new, old in enumerate(chosen.tolist())}
    gold = [[place[one] for one in some if one in place] for some in right]
    items = [collection.items[old] for old in chosen.tolist()]
    return Texts(collection.name, items, train, [query.text for query in test], gold, lexical)


def as_query(item: Item) -> str:
    """Return an item as a query whose mention is its title (ANNCUR app. A.2)."""
    return f"{MENTION_START} {item.title} {MENTION_END} {item.text}" if item.title else item.text


@dataclass
class Purchase:
    """A data set whose scores and vectors are obtained when an experiment asks for them, and kept in a folder."""

    texts: Texts
    scorer: Any
    encoder: Any
    folder: Path
    terms: dict[str, Any] = field(default_factory=dict)  # `ScoringOptions`: engine, progress, limit …
    calls: int = 0

    def scores(self, queries: Sequence[str]) -> Array:
        """Return the scores of queries with every item (q × n)."""
        bought = score_matrix(self.scorer, queries, self.texts.items, store=self.folder / "scores", **self.terms)
        self.calls += bought.calls
        if bought.missing:
            raise InputError(f"{bought.missing:,} scores are still missing; run the same command again")
        return np.asarray(bought.scores, np.float32)

    def pairs(self, pairs: Pairs) -> SparseScores:
        """Return the scores of train queries with some items."""
        store, texts = self.folder / "scores", self.texts
        found = SparseScores.from_scorer(self.scorer, texts.train, pairs, items=texts.items, store=store, **self.terms)
        self.calls += found.calls
        return found

    def kept(self, name: str, make: Callable[[], Any]) -> Array:
        """Return an array of the encoder, made once."""
        path = self.folder / f"{name}-{self.texts.digest}-{self.encoder.fingerprint}.npy"
        if not path.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            with path.with_suffix(".tmp").open("wb") as file:
                np.save(file, make())
            path.with_suffix(".tmp").rename(path)
        return np.asarray(np.load(path))

    def arrays(self, *, train: int | None = None, item_anchors: int = 0, views: bool = False) -> dict[str, Array]:
        """Return the arrays of the data set; `train` is how many train queries are scored with every item."""
        texts, encoder = self.texts, self.encoder
        arrays: dict[str, Array] = {"test": self.scores(texts.test)}
        if train != 0:
            arrays["train"] = self.scores(texts.train[:train])
        if item_anchors:
            places = texts.drawn(item_anchors)
            arrays["item_scores"] = self.scores([as_query(texts.items[place]) for place in places])
            arrays["item_anchors"] = np.asarray(places)
        if encoder is not None:
            arrays["vectors"] = self.kept("items", lambda: encoder.encode_items(texts.items))
            arrays["query_vectors"] = self.kept("test", lambda: encoder.encode_queries(texts.test))
            arrays["anchor_query_vectors"] = self.kept("train", lambda: encoder.encode_queries(texts.train))
        if encoder is not None and views:
            from crosscut_lab.papers.multiview import MultiView, runs

            made = MultiView.encode(encoder, texts.items), MultiView.encode(encoder, texts.items, split=runs(), most=40)
            for (_, vectors, counts), several in zip(VIEWS, made, strict=True):
                arrays |= {vectors: several.vectors, counts: several.counts}
        score = tfidf_scores if texts.lexical == "tfidf" else bm25_scores
        arrays["words"] = score(texts.items, texts.test)
        return arrays


def load_arrays(path: Path) -> dict[str, Array]:
    """Return the arrays of an archive that an experiment reads, in float32."""
    wanted = {*ARRAYS, "train", "anchors", *(name for view in VIEWS for name in view[1:])}
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name] for name in archive.files if name in wanted}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{str(path)!r} is not a readable archive of scores ({error})") from error
    for name, array in found.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise InputError(f"the array {name} of {str(path)!r} ({array.dtype}) is not made of finite numbers")
    if "test" not in found:
        raise InputError(f"{str(path)!r} has no array called test: the scores of test queries with every item")
    if "anchors" in found:
        found["train"] = found.pop("anchors")
    return {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in found.items()}


def data_of(arrays: dict[str, Array]) -> tuple[ScoreData, Array | None]:
    """Return arrays as a data set, and the vectors of all train queries, of which not all need dense scores."""
    given: dict[str, Any] = {name: array for name, array in arrays.items() if name in ARRAYS}
    given["anchors"] = arrays.get("train")
    asked = given.pop("anchor_query_vectors", None)
    if asked is not None and given["anchors"] is not None:
        given["anchor_query_vectors"] = asked[: len(given["anchors"])]
    return score_data(**given), asked


def first_queries(data: ScoreData, gold: Any, train: int | None, test: int | None) -> tuple[ScoreData, Any]:
    """Return a data set of the first train and test queries."""
    cut: dict[str, Any] = {}
    for name, count in (
        ("anchors", train), ("anchor_query_vectors", train), ("test", test), ("query_vectors", test), ("words", test)
    ):  # fmt: skip
        value = getattr(data, name)
        cut[name] = None if value is None else value[:count]
    return replace(data, **cut), None if gold is None else gold[:test]


def views_of(arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the items with several vectors each."""
    from crosscut_lab.papers.multiview import MultiView

    return {title: MultiView(arrays[one], arrays[two]) for title, one, two in VIEWS if one in arrays and two in arrays}


def tfidf_scores(items: Sequence[Item | str], queries: Sequence[str]) -> Array:
    """Return scores by scikit-learn's TF-IDF with its defaults (AXN app. A.3): (q × n)."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer: Any = TfidfVectorizer()
    texts = vectorizer.fit_transform([plain_text(item) for item in items])  # (n × words)
    return np.asarray((vectorizer.transform(list(queries)) @ texts.T).toarray(), np.float32)


def bm25_scores(items: Sequence[Item | str], queries: Sequence[str], k1: float = 0.9, b: float = 0.4) -> Array:
    """Return scores by BM25 with the parameters of BEIR's authors (AXN app. A.3): (q × n)."""
    from scipy import sparse
    from sklearn.feature_extraction.text import CountVectorizer

    vectorizer: Any = CountVectorizer()
    counts = sparse.csr_matrix(vectorizer.fit_transform([plain_text(item) for item in items]), dtype=np.float64)
    lengths = np.asarray(counts.sum(axis=1)).ravel()
    found = np.asarray((counts > 0).sum(axis=0)).ravel()
    idf = np.log(1 + (len(lengths) - found + 0.5) / (found + 0.5))  # (words)
    rows, columns = counts.nonzero()
    tf = counts.data
    counts.data = idf[columns] * tf * (k1 + 1) / (tf + k1 * (1 - b + b * lengths[rows] / lengths.mean()))
    return np.asarray((sparse.csr_matrix(vectorizer.transform(list(queries))) @ counts.T).toarray(), np.float32)
