"""From a folder of texts to the matrices and vectors that experiments are made on: planned, priced, resumable.

    DIR with documents/ and mentions/     ZESHEL; one world, its mentions split at random into train and test
    DIR with corpus.jsonl, queries.jsonl  BEIR; pseudo-queries (qgen-queries.jsonl) train, judged queries test
    DIR with collection.tsv               MS MARCO; queries.train.tsv train, queries.dev.small.tsv and its qrels test
    scores.npz                            matrices that exist already

Everything lands in one folder: a score store, and `world.npz` with the arrays that `crosscut replay --data` takes. What
is there is not made again; the same command goes on where it was stopped. The archive knows which scorer, encoder and
texts it is of: another of them makes it anew, from scores that the store keeps for each scorer.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack
from zipfile import BadZipFile

import numpy as np

from crosscut.datasets.records import Collection, Item
from crosscut.encoders.pairs import as_query
from crosscut.errors import InputError
from crosscut.storage import make_folder, write_arrays, write_json
from crosscut.types import Array, Progress

if TYPE_CHECKING:
    from crosscut.encoders.named import DualEncoder
    from crosscut.scorers.base import Scorer
    from crosscut.scores.buy import Purchase, Terms

Size: TypeAlias = Literal["small", "full"]
PARTS = ("test", "train", "vectors", "query_vectors", "anchor_query_vectors", "words", "item_scores", "item_anchors")
VIEWS = ("views", "view_counts", "merged", "merged_counts")
SMALL = {"items": 1000, "train": 40, "test": 40, "item_anchors": 40}
FULL = {"items": 1 << 60, "train": 500, "test": 3000, "item_anchors": 500}
"""Most items, train queries, test queries and anchor items; the papers' at full size."""


@dataclass(frozen=True)
class WorldTexts:
    """What is to be scored: items, train and test queries, and for test queries the positions of right items."""

    name: str
    items: list[Item]
    train: list[str]
    test: list[str]
    gold: list[list[int]]
    words: Literal["tfidf", "bm25"]

    def anchors(self, count: int) -> list[int]:
        """The positions of items that are asked as queries, drawn."""
        return sorted(np.random.default_rng(1).choice(len(self.items), count, replace=False).tolist())


@dataclass(frozen=True)
class Models:
    """What scores and what encodes, by name; each is loaded when first needed."""

    scorer: str
    encoder: str | None

    @cached_property
    def scoring(self) -> Scorer:
        from crosscut.scorers.loading import load_scorer

        return load_scorer(self.scorer)

    @cached_property
    def encoding(self) -> DualEncoder | None:
        from crosscut.encoders.named import load_encoder

        return None if self.encoder is None else load_encoder(self.encoder)

    def mark(self, texts: WorldTexts) -> Array:
        """What a world is made of, in 32 bytes: the fingerprints of these models, the texts in their order."""
        from crosscut.scores.keys import Keys

        encoder = "" if self.encoding is None else self.encoding.fingerprint
        lists = [Keys.of(one).digest for one in (texts.train, texts.test, texts.items)]
        parts = " ".join([self.scoring.fingerprint, encoder, texts.words, *lists])
        return np.frombuffer(hashlib.sha256(parts.encode()).digest(), np.uint8)


@dataclass(frozen=True)
class WorldPlan:
    """What a world costs; `known` of its calls were made before."""

    items: int
    train: int
    test: int
    item_anchors: int
    known: int = 0

    @property
    def calls(self) -> int:
        return (self.train + self.test + self.item_anchors) * self.items

    @property
    def left(self) -> int:
        return self.calls - self.known

    def said(self) -> str:
        """The plan as a sentence."""
        return (
            f"{self.train} train and {self.test} test queries × {self.items:,} items"
            + (f", {self.item_anchors} anchor items × {self.items:,} items" if self.item_anchors else "")
            + f": {self.calls:,} calls, {4 * self.calls / 1e6:,.1f} MB of scores"
            + (f", {f'{self.known:,}' if self.left else 'all'} of them bought before" if self.known else "")
        )


def read_texts(data: Path, world: str | None, size: Size, *, train: int | None = None, seed: int = 0) -> WorldTexts:
    """The texts of a ZESHEL world or a BEIR folder, cut to size; drawn, never the first ones."""
    limits = {**(SMALL if size == "small" else FULL), **({} if train is None else {"train": train})}
    rng = np.random.default_rng(seed)
    if (data / "documents").is_dir():
        return _zeshel(data, world, limits, rng)
    if (data / "collection.tsv").is_file() or (data / "collection.tsv.gz").is_file():
        return _msmarco(data, limits, rng, seed)
    if world is not None:
        raise InputError(f"--world is for ZESHEL, and {str(data)!r} has no folder documents")
    from crosscut.datasets import read_beir
    from crosscut.datasets.beir import read_queries
    from crosscut.datasets.files import find

    collection = read_beir(data)
    judged = [query for query in collection.queries if collection.gold(query.id)]
    pseudo = [name for name in ("qgen-queries.jsonl", "qgen-queries.jsonl.gz") if (data / name).is_file()]
    if pseudo:
        asked = [query.text for query in read_queries(find(data, "qgen-queries.jsonl"))]
        learned = [asked[place] for place in rng.permutation(len(asked))[: limits["train"]]]
        tested = [judged[place] for place in rng.permutation(len(judged))[: limits["test"]]]
    else:  # no pseudo-queries: the judged queries are split
        order = rng.permutation(len(judged))
        count = min(limits["train"], len(judged) // 2)
        learned = [judged[place].text for place in order[:count]]
        tested = [judged[place] for place in order[count : count + limits["test"]]]
    return _cut(collection, learned, tested, limits, rng, "bm25")


def _zeshel(data: Path, world: str | None, limits: dict[str, int], rng: np.random.Generator) -> WorldTexts:
    from crosscut.datasets import read_world

    worlds = sorted(path.name.split(".json")[0] for path in (data / "documents").glob("*.json*"))
    if world not in worlds:
        raise InputError(f"name the world of {str(data)!r} with --world: {', '.join(worlds)}")
    collection = read_world(data, str(world), split="all")
    order = rng.permutation(len(collection.queries))
    count = min(limits["train"], len(order) // 2)
    learned = [collection.queries[place].text for place in order[:count]]
    tested = [collection.queries[place] for place in order[count : count + limits["test"]]]
    return _cut(collection, learned, tested, limits, rng, "tfidf")


def _msmarco(data: Path, limits: dict[str, int], rng: np.random.Generator, seed: int) -> WorldTexts:
    from crosscut.datasets.msmarco import read_msmarco

    found = read_msmarco(data, train=limits["train"], test=limits["test"], items=limits["items"], seed=seed)
    return _cut(found.collection, found.train, found.collection.queries, limits, rng, "bm25")


def _cut(
    collection: Collection,
    train: list[str],
    test: Sequence[Any],
    limits: dict[str, int],
    rng: np.random.Generator,
    words: Literal["tfidf", "bm25"],
) -> WorldTexts:
    """Items down to their limit, those that are right for a test query kept."""
    if not train or not test:
        raise InputError(
            f"{collection.name!r} has {len(train)} train and {len(test)} test queries; an experiment needs some of both"
        )
    positions = collection.positions
    right = [[positions[id] for id in collection.gold(query.id)] for query in test]
    count = len(collection.items)
    if count > limits["items"]:
        kept = sorted({place for some in right for place in some})
        others = np.setdiff1d(rng.permutation(count), kept, assume_unique=False)
        rng.shuffle(others)
        chosen = np.sort(np.concatenate([kept, others[: max(0, limits["items"] - len(kept))]]).astype(np.int64))
    else:
        chosen = np.arange(count)
    place = {int(old): new for new, old in enumerate(chosen.tolist())}
    return WorldTexts(
        collection.name,
        [collection.items[old] for old in chosen.tolist()],
        train,
        [query.text for query in test],
        [[place[one] for one in some if one in place] for some in right],
        words,
    )


def plan(texts: WorldTexts, *, item_anchors: int = 0) -> WorldPlan:
    return WorldPlan(len(texts.items), len(texts.train), len(texts.test), min(item_anchors, len(texts.items) // 4))


def bought_before(cost: WorldPlan, texts: WorldTexts, models: Models, folder: Path) -> WorldPlan:
    """The plan, with the calls whose scores are in the folder already."""
    from crosscut.scores import ScoreStore

    if not (folder / "scores").is_dir():
        return cost
    asked = [*texts.train, *texts.test, *(as_query(texts.items[place]) for place in texts.anchors(cost.item_anchors))]
    held = ScoreStore(folder / "scores", scorer_fingerprint=models.scoring.fingerprint)
    return replace(cost, known=held.coverage(asked, texts.items).known or 0)


def is_made(texts: WorldTexts, models: Models, folder: Path, *, item_anchors: int = 0, views: bool = False) -> bool:
    """Whether the folder holds the arrays of this world, those that are asked for among them."""
    try:
        with (folder / "world.npz").open("rb") as file, np.load(file, allow_pickle=False) as archive:
            wanted = {"made_of", *(["item_scores"] if item_anchors else []), *(["views"] if views else [])}
            return wanted <= {*archive.files} and np.array_equal(archive["made_of"], models.mark(texts))
    except UNREADABLE:  # not there, or not whole
        return False


def make_arrays(
    texts: WorldTexts,
    models: Models,
    folder: Path,
    *,
    item_anchors: int = 0,
    views: bool = False,
    **terms: Unpack[Terms],
) -> dict[str, Array]:
    """The arrays of a world, made or read; `terms` go to the purchase of scores (engine, limit …)."""
    from crosscut.scores.buy import buy_matrix

    target = folder / "world.npz"
    if is_made(texts, models, folder, item_anchors=item_anchors, views=views):
        return load_arrays(target)
    make_folder(folder)
    terms = {**terms, "store": folder / "scores", "load": models.scorer}
    scores = _complete(buy_matrix(models.scoring, [*texts.train, *texts.test], texts.items, **terms))
    arrays: dict[str, Array] = {"train": scores[: len(texts.train)], "test": scores[len(texts.train) :]}
    if item_anchors:
        places = texts.anchors(item_anchors)
        asked = [as_query(texts.items[place]) for place in places]
        between = _complete(buy_matrix(models.scoring, asked, texts.items, **terms))
        arrays |= {"item_scores": between, "item_anchors": np.asarray(places)}
    if models.encoding is not None:
        arrays |= _encoded(texts, models.encoding, terms.get("progress"))
        if views:
            arrays |= _views(texts, models.encoding)
    arrays["words"] = _words(texts)
    kept: dict[str, Any] = {
        name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in arrays.items()
    }
    write_json(folder / "gold.json", texts.gold)
    write_arrays(target, {"made_of": models.mark(texts), **kept})
    return load_arrays(target)


def _complete(bought: Purchase) -> Array:
    if bought.missing:
        raise InputError(f"{bought.missing:,} scores are still missing; run the same command again")
    return np.asarray(bought.scores, np.float32)


UNREADABLE = (OSError, ValueError, TypeError, LookupError, BadZipFile, zlib.error, EOFError, MemoryError)


def load_arrays(path: Path) -> dict[str, Array]:
    """The arrays of an archive that an experiment can use; whole numbers stay whole."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            names = {**{name: name for name in (*PARTS, *VIEWS)}, "anchors": "train"}
            found = {names[name]: archive[name] for name in archive.files if name in names}
    except UNREADABLE as error:
        raise InputError(f"{str(path)!r} is not a readable archive of scores ({error})") from error
    for name, array in found.items():
        if array.dtype.kind not in "fiub" or not np.isfinite(array).all():
            raise InputError(f"the array {name} of {str(path)!r} ({array.dtype}) holds what is no finite number")
    if "test" not in found:
        raise InputError(f"{str(path)!r} has no array called test: the scores of test queries with every item")
    return {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in found.items()}


def _encoded(texts: WorldTexts, encoder: DualEncoder, progress: Progress | None) -> dict[str, Array]:
    return {
        "vectors": encoder.encode_items(texts.items, progress=progress),
        "query_vectors": encoder.encode_queries(texts.test),
        "anchor_query_vectors": encoder.encode_queries(texts.train),
    }


def _views(texts: WorldTexts, encoder: DualEncoder) -> dict[str, Array]:
    """Sentences of items, and their runs, each a vector of its own."""
    from crosscut.retrievers.multiview import MultiView, runs

    cut, merged = MultiView.encode(encoder, texts.items), MultiView.encode(encoder, texts.items, split=runs(), most=40)
    return dict(zip(VIEWS, (cut.vectors, cut.counts, merged.vectors, merged.counts), strict=True))


def views_of(arrays: dict[str, Array]) -> dict[str, Any]:
    """Takes the views out of the arrays of a world."""
    from crosscut.retrievers.multiview import MultiView

    found = {name: arrays.pop(name) for name in VIEWS if name in arrays}
    titles = (("sentences", "views", "view_counts"), ("merged sentences", "merged", "merged_counts"))
    return {title: MultiView(found[one], found[two]) for title, one, two in titles if one in found and two in found}


def _words(texts: WorldTexts) -> Array:
    from crosscut.retrieval.bm25 import BM25
    from crosscut.retrievers.tfidf import TfIdf

    retriever = TfIdf(texts.items) if texts.words == "tfidf" else BM25(texts.items)
    return np.stack([np.asarray(retriever.scores(query), np.float32) for query in texts.test])
