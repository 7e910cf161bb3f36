"""Base scores: how well an item answers a query, as far as that is known without reading the two together.

    g(q, i) = Σ_k  w_k · φ_k(q, i)

φ are three features of the pair: words they share (`lexical.py`), the cosine of the dual encoder (`encoder.py`), and
whether a marked mention names the item (`title_match.py`). The weights are constants, fitted on many collections;
queries with a marked mention have weights of their own.

A score depends on the pair alone: the idf of words comes from a lexicon that is frozen when an index is built. So no
call is needed for it, and it is exact for every item at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.bundled.encoder import BundledEncoder
from crosscut.bundled.lexical import LexicalIndex, Lexicon, QueryTerms
from crosscut.bundled.model_dir import DEFAULT, ModelDir, open_model_dir
from crosscut.bundled.title_match import Titles
from crosscut.bundled.tokenizer import split_mention
from crosscut.datasets.records import Item, Items, SharedItems, items_of, marked_text
from crosscut.errors import InputError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.products import product, share
from crosscut.models.batching import LRUCache
from crosscut.retrieval.bm25 import BM25
from crosscut.scorers.base import BoundScorer, CorpusScorer, Request, RetryBudget, ScoreResult, count_of
from crosscut.threads import ForkLock
from crosscut.types import Floats, Handles, Positions, Progress

Vectors = npt.NDArray[np.floating]

WEIGHTS, LEXICON = "weights.json", "lexicon.json"
FEATURES = ("words", "cosine", "title")
"""BM25 as a share of its limit, cosine of the dual encoder, how well the mention names the item."""
REMEMBERED_QUERIES = 64
UNREADABLE = "the bundled model does not read the script of this query: BM25 alone ordered the items"
NOTE = (
    "ordered by base scores alone, no call was made; `pip install crosscut-judge` adds a language model that reads the "
    "best of them"
)


@dataclass(frozen=True)
class Weights:
    """The weights of the features, (k,) each."""

    plain: Floats
    marked: Floats  # where the query marks a mention

    @classmethod
    def load(cls, path: Path) -> Weights:
        try:
            saved = json.loads(path.read_text("utf-8"))
            rows = [np.array([float(saved[kind][name]) for name in FEATURES]) for kind in ("plain", "marked")]
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{str(path)!r} holds no weights of base scores ({error!r})") from error
        if not np.isfinite(rows).all():
            raise InputError(f"{str(path)!r} holds weights that are no real numbers")
        return cls(*rows)


class ReadQuery(NamedTuple):
    """A query, ready to be compared with any item."""

    terms: QueryTerms
    vector: npt.NDArray[np.float32]  # (D,)
    mention: str
    weights: Floats  # (k,)


class BaseScores:
    """g over a corpus; items are positions 0 … n − 1.

    Parameters
    ----------
    encoder : gives the vectors of queries.
    weights : of the features.
    words : of the items, under a frozen lexicon.
    vectors : (n × D) of the items, by the encoder; compared in float16, whatever they are kept in.
    texts : of the items at some positions; their titles are read with the first mention.
    """

    def __init__(
        self,
        encoder: BundledEncoder,
        weights: Weights,
        words: LexicalIndex,
        vectors: Vectors,
        texts: Callable[[Positions], list[str]],
    ) -> None:
        if len(words) != len(vectors):
            raise InputError(f"the words of {len(words)} items and the vectors of {len(vectors)} do not go together")
        self.encoder, self.weights = encoder, weights
        self.words, self.vectors, self._texts = words, vectors, texts
        self._queries: LRUCache[str, ReadQuery] = LRUCache(REMEMBERED_QUERIES)

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def _titles(self) -> Titles:
        return Titles.of(self._texts(np.arange(len(self))))

    def all_many(self, queries: Sequence[str]) -> list[Floats]:
        """Return g of every item, (n,), for every query; over all cores."""
        with one_thread():
            return share(self._all, self._read_queries(queries))

    def at(self, query: str, positions: Positions) -> Floats:
        """Return g of the items at `positions`; a value does not depend on the others."""
        (asked,) = self._read_queries([query])
        words = self.words.match(asked.terms, positions)
        rows = self.vectors[positions].astype(np.float16).astype(np.float32)  # the same from whatever they are kept in
        title = self._titles.taken(positions) if asked.mention else None
        return _sum(asked, words, np.einsum("nd,d->n", rows, asked.vector), title)

    def _all(self, asked: ReadQuery) -> Floats:
        cosine = product(self.vectors, asked.vector[None].astype(np.float64))[0]
        return _sum(asked, self.words.match(asked.terms), cosine, self._titles if asked.mention else None)

    def _read_queries(self, queries: Sequence[str]) -> list[ReadQuery]:
        return self._queries.of(queries, lambda new: map(self._read, new, self.encoder.encode_queries(new)))

    def _read(self, query: str, vector: npt.NDArray[np.float32]) -> ReadQuery:
        terms, mention = self.words.read(query), split_mention(query)[1]
        weights = self.weights.marked if mention else self.weights.plain
        if self.encoder.model.tokenizer.unreadable(query):  # its vector means nothing
            mention, weights = "", np.array([self.weights.plain[0], 0.0, 0.0])
        return ReadQuery(terms, vector, mention, weights)


def _sum(asked: ReadQuery, words: Floats, cosine: Any, titles: Titles | None) -> Floats:
    total: Floats = asked.weights[0] * words + asked.weights[1] * cosine
    return total if titles is None else total + asked.weights[2] * titles.match(asked.mention)


class BaseScorer(CorpusScorer):
    """Base scores as a scorer: every score is known without a call.

    >>> scorer = BaseScorer.load()
    >>> scorer.score("what keeps bread fresh", ["a bread box keeps loaves from drying out", …])
    """

    def __init__(self, model: ModelDir, *, lexicon: Lexicon | None = None) -> None:
        self.model = model
        self.encoder = BundledEncoder(model)
        self.weights = Weights.load(model.path / WEIGHTS)
        self._lexicon = lexicon
        self._fingerprint = model.fingerprint("lower.onnx", "dual.onnx", WEIGHTS, LEXICON)

    @classmethod
    def load(
        cls, path: str | Path = DEFAULT, *, threads: int | None = None, lexicon: Lexicon | None = None
    ) -> BaseScorer:
        """Return the scorer of the package, or of a directory of the same files; `lexicon` weighs words."""
        return cls(open_model_dir(path, threads=threads), lexicon=lexicon)

    @property
    def fingerprint(self) -> str:
        return self._fingerprint if self._lexicon is None else f"{self._fingerprint}-{self._lexicon.fingerprint}"

    @property
    def encoder_fingerprint(self) -> str:
        return self.encoder.fingerprint

    @cached_property
    def _general_lexicon(self) -> Lexicon:
        return Lexicon.load(self.model.path / LEXICON)

    @property
    def lexicon(self) -> Lexicon:
        """The lexicon of the corpus, or the general one of many collections."""
        return self._lexicon or self._general_lexicon

    def fitted(self, words: BM25) -> BaseScorer:
        return self if self._lexicon is not None else self._with(Lexicon.counted(words.segments))

    @property
    def statistics(self) -> dict[str, npt.NDArray[Any]]:
        return {} if self._lexicon is None else self._lexicon.arrays()

    def with_statistics(self, arrays: Mapping[str, npt.NDArray[Any]]) -> BaseScorer:
        return self._with(Lexicon.from_arrays(arrays) if arrays else None)

    def _with(self, lexicon: Lexicon | None) -> BaseScorer:
        made = copy(self)
        made._lexicon = lexicon
        return made

    def precompute(self, items: Sequence[Item], progress: Progress | None = None) -> npt.NDArray[np.float32]:
        return self.encoder.encode_items(items, progress=progress)

    def bind(
        self,
        items: Items | Sequence[Item | str],
        vectors: Vectors | None = None,
        words: BM25 | None = None,
    ) -> BoundBaseScorer:
        return BoundBaseScorer(self, items_of(items), vectors, words)

    def __repr__(self) -> str:
        return f"BaseScorer({str(self.model.path)!r}, fingerprint={self.fingerprint!r})"


class BoundBaseScorer(BoundScorer):
    """Base scores of the items of a corpus; without their vectors and words, items are read when they are asked for."""

    free = True

    def __init__(
        self, scorer: BaseScorer, items: Items, vectors: Vectors | None = None, words: BM25 | None = None
    ) -> None:
        self.scorer, self._items = scorer, items
        self.n_items = count_of(items)
        self._lock = ForkLock()
        self._scores: BaseScores | None = None
        if vectors is not None and words is not None:
            self._scores = self._over(LexicalIndex(words, scorer.lexicon), vectors, self._texts)
        # nobody reads all of the items that lie in files
        self.has_base_scores = self._scores is not None or not (isinstance(items, SharedItems) and items.filed)

    def note(self, query: Any) -> str | None:
        return UNREADABLE if self.scorer.model.tokenizer.unreadable(str(query)) else NOTE

    def extended(self, vectors: Vectors | None, words: BM25 | None) -> BoundBaseScorer:
        return BoundBaseScorer(self.scorer, self._items, vectors, words)

    def base_scores(self, query: Any, handles: Handles | None = None) -> Floats:
        if handles is None:
            return self._read_all().all_many([str(query)])[0]
        handles, scores = np.asarray(handles, np.int64), self._scores
        if scores is not None and (not len(handles) or handles.max() < len(scores)):
            return scores.at(str(query), handles)
        texts = self._texts(handles)
        return self._read(texts).at(str(query), np.arange(len(texts)))

    def base_scores_many(self, queries: Sequence[Any], n: int | None = None) -> list[Floats]:
        return [scores[:n] for scores in self._read_all(n).all_many([str(query) for query in queries])]

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        return [ScoreResult.of(self.base_scores(query, handles)) for query, handles in requests]

    def preload(self, handles: Handles) -> None:
        if self.has_base_scores:
            self._read_all()

    def _read_all(self, n: int | None = None) -> BaseScores:
        with self._lock:  # a corpus is encoded once
            count = max(self._count(), n or 0)  # items of a corpus need not know how many they are
            if self._scores is None or len(self._scores) < count:
                self._scores = self._read(self._texts(np.arange(count)))
            return self._scores

    def _read(self, texts: list[str]) -> BaseScores:
        words = LexicalIndex(BM25(texts), self.scorer.lexicon)
        vectors = self.scorer.encoder.encode_items(texts).astype(np.float16)
        return self._over(words, vectors, lambda positions: [texts[place] for place in positions.tolist()])

    def _over(self, words: LexicalIndex, vectors: Vectors, texts: Callable[[Positions], list[str]]) -> BaseScores:
        return BaseScores(self.scorer.encoder, self.scorer.weights, words, vectors, texts)

    def _count(self) -> int:
        return self._items.total if isinstance(self._items, SharedItems) else count_of(self._items) or 0

    def _texts(self, handles: Positions) -> list[str]:
        return [marked_text(item) for item in self._items.get(handles)]
