"""What is known of a pair without a call: g(query, item), the base that the cross-encoder corrects.

    g(q, i) = Σ_k  w_k · exp(b_k · ψ(q)) · φ_k(q, i)
    f(q, i) = g(q, i) + w · exp(b · ψ(q)) · correction(q, i)

φ are features of the pair, each a fraction of what the cross-encoder costs: cosine of the dual encoder, words shared
(`words.py`), late interaction (`late.py`), whether a marked mention names the item (`titles.py`). ψ are two facts of
the query: how many words, and how rare they are on average; b lets the weights follow them, that of the correction too.
Words are counted up to as many as the queries had that b was chosen on: further on it would be a guess. Queries with a
marked mention have w and b of their own: there the mention decides, and the longer its sentence is the more so. All
were learned over many collections (`scripts/train_relevance.py`, `scripts/marked_weights.py`) and are constants.
Nothing here depends on the other items: idf comes from a lexicon that is frozen (`words.Lexicon`).

All of it is known for every item at once, except that late interaction reads every token of an item. So over a large
corpus it is computed for the best `deep` items by the other features; the rest get its mean given the cosine, a line
whose slope was learned with the weights. `at` is always exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.encoders.dual import OnnxDualEncoder, ReadText
from crosscut.encoders.late import Bytes, TokenVectors
from crosscut.encoders.recent import Recent
from crosscut.encoders.titles import Titles
from crosscut.encoders.tokens import MENTION, marked_text, split_mention
from crosscut.encoders.words import Lexicon, QueryWords, Words
from crosscut.errors import InputError
from crosscut.linalg.blas import one_thread
from crosscut.linalg.products import product, share
from crosscut.storage import Files, Saved

Floats = npt.NDArray[np.float64]
Vectors = npt.NDArray[np.floating]
Positions = npt.NDArray[np.int64]

FILES = FILE, LEXICON, TOKEN_IDF = "known.json", "lexicon.json", "token_idf.npy"
FEATURES = ("words", "cosine", "late", "late_mention", "title")
"""BM25 as a share of its limit, cosine of the dual encoder, late interaction of all tokens and of a mention's, how well
the mention names the item."""
LATE = slice(2, 4)
CORRECTION = "correction"
"""The cross-encoder's part of f, weighed as the features are."""
DEEP = 1000
REMEMBERED = 64


class Facts(NamedTuple):
    """What weights follow."""

    words: int
    rarity: float  # mean idf of a word


@dataclass(frozen=True)
class QueryWeights:
    """w and b of one kind of query, those of the correction last."""

    weights: npt.NDArray[np.float32]  # (k + 1,)
    bends: npt.NDArray[np.float32]  # (k + 1 × 2)
    most_words: npt.NDArray[np.float32]  # (k + 1,) of a query that are counted, or inf

    def of(self, facts: Facts) -> Floats:
        """w · exp(b · ψ), (k + 1,)."""
        # as it was learned: deviations from a usual query
        words = np.log1p(np.minimum(facts.words, self.most_words)) - 2.0
        rarity = np.log(facts.rarity + 0.1) - 1.6
        return np.asarray(self.weights * np.exp(self.bends[:, 0] * words + self.bends[:, 1] * rarity), np.float64)

    def json(self) -> dict[str, Any]:
        rows = {}
        for number, name in enumerate((*FEATURES, CORRECTION)):
            rows[name] = {"weight": float(self.weights[number]), "bends": self.bends[number].tolist()}
            if np.isfinite(most := float(self.most_words[number])):
                rows[name]["most_words"] = most
        return rows

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> QueryWeights:
        rows = [saved[name] for name in (*FEATURES, CORRECTION)]
        made = cls(
            weights=np.asarray([row["weight"] for row in rows], np.float32),
            bends=np.asarray([row["bends"] for row in rows], np.float32).reshape(len(rows), 2),
            most_words=np.asarray([row.get("most_words", np.inf) for row in rows], np.float32),
        )
        if not (np.isfinite(made.weights).all() and np.isfinite(made.bends).all() and (made.most_words >= 1).all()):
            raise ValueError("weights are numbers, and at least one word is counted")
        return made


@dataclass(frozen=True)
class Constants:
    """What g is made with."""

    plain: QueryWeights
    marked: QueryWeights  # where the query marks a mention
    late_given_cosine: npt.NDArray[np.float32]  # (2 × 2): slope and level of each late feature given the cosine
    token_idf: npt.NDArray[np.float32]  # (vocabulary,)
    lexicon: Lexicon

    @classmethod
    def load(cls, folder: Path) -> Constants:
        """The constants in a model folder."""
        try:
            about = json.loads((folder / FILE).read_text("utf-8"))
            made = cls(
                plain=QueryWeights.from_json(about["plain"]),
                marked=QueryWeights.from_json(about["marked"]),
                late_given_cosine=np.asarray([about["late_given_cosine"][n] for n in FEATURES[LATE]], np.float32),
                token_idf=_vector(folder / TOKEN_IDF),
                lexicon=Lexicon.load(folder / LEXICON),
            )
            if not np.isfinite(made.token_idf).all():
                raise ValueError("weights are numbers")
            return made
        except InputError:
            raise
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise InputError(
                f"{str(folder)!r} does not say what is known without a call ({error!r}); export the model again"
            ) from error

    def save(self, folder: Path) -> None:
        """Write known.json, token_idf.npy and lexicon.json into a folder that exists."""
        self.save_weights(folder)
        np.save(folder / TOKEN_IDF, self.token_idf.astype(np.float16))
        self.lexicon.save(folder / LEXICON)

    def save_weights(self, folder: Path) -> None:
        """Write known.json alone."""
        lines = {
            name: [float(v) for v in line] for name, line in zip(FEATURES[LATE], self.late_given_cosine, strict=True)
        }
        about = {"plain": self.plain.json(), "marked": self.marked.json(), "late_given_cosine": lines}
        (folder / FILE).write_text(json.dumps(about, indent=1) + "\n", "utf-8")


def _vector(path: Path) -> npt.NDArray[np.float32]:
    """A .npy file of one row of numbers; a header that claims more than the file holds is refused unread."""
    mapped = np.lib.format.open_memmap(path, mode="r")
    if mapped.ndim != 1 or mapped.dtype.kind != "f":
        raise ValueError(f"{path.name} holds {mapped.dtype} of shape {mapped.shape}, not a row of fractions")
    return np.array(mapped, np.float32)


class ReadQuery(NamedTuple):
    """A query, ready to be compared with any item."""

    words: QueryWords
    vector: npt.NDArray[np.float32]  # (D,)
    tokens: Bytes  # (m × d)
    idf: npt.NDArray[np.float32]  # (m,) sums to one
    mention: npt.NDArray[np.float32]  # (m,) sums to one, or zero without a mention
    name: str  # the mention, as it is written
    weights: Floats  # (k,) of the features, this query's
    correction: float  # the weight of what the cross-encoder says


class KnownItems(NamedTuple):
    """What is kept of items so that g can be told of each without reading it again. Their words are kept by count
    (`words.count_words`), beside this."""

    encoder: str  # fingerprint of the dual encoder that read them
    tokens: TokenVectors
    titles: Titles
    vectors: Vectors | None = None  # (n × D) of the dual encoder; None: kept by whoever keeps this

    def extended(self, vectors: Vectors, tokens: TokenVectors, titles: Titles) -> KnownItems:
        """With what was read of more items, behind these."""
        own = None if self.vectors is None else np.concatenate([self.vectors, vectors.astype(self.vectors.dtype)])
        return self._replace(tokens=self.tokens.joined(tokens), titles=self.titles.joined(titles), vectors=own)

    def taken(self, positions: Positions) -> KnownItems:
        """Of some of the items."""
        own = None if self.vectors is None else self.vectors[positions]
        return self._replace(tokens=self.tokens.taken(positions), titles=self.titles.taken(positions), vectors=own)

    def write(self, files: Files) -> None:
        """As files of a generation."""
        files.json("known", {"encoder": self.encoder})
        self.tokens.write(files)
        self.titles.write(files)
        if self.vectors is not None:
            files.array("known-vectors", self.vectors)

    @classmethod
    def read(cls, saved: Saved, items: Sequence[Item]) -> KnownItems:
        """What `write` wrote, of these items."""
        about = saved.json("known")
        if not (isinstance(about, dict) and isinstance(about.get("encoder"), str)):
            raise saved.damaged("known.json", "does not name the encoder that has read the items")
        n, own = len(items), "known-vectors.npy" in saved
        vectors = saved.array("known-vectors", "<f2 <f4", (n, None), mapped="r") if own else None
        # indexes of before kept no titles
        titles = Titles.read(saved, n) if "title-names.npy" in saved else Titles.of(map(marked_text, items))
        return cls(about["encoder"], TokenVectors.read(saved, n), titles, vectors)


class Known:
    """g over a corpus; items are positions 0 … n − 1.

    Parameters
    ----------
    encoder : the dual encoder of a folder that has the constants.
    words : the words of the items, under the lexicon that weighs them.
    vectors : (n × D) of the items, as the encoder gave them; compared in float16, whatever they are kept in.
    tokens : vectors of the items' tokens.
    titles : words of the items' names.
    deep : items whose late interaction is computed when all are asked for.
    """

    def __init__(
        self,
        encoder: OnnxDualEncoder,
        words: Words,
        vectors: Vectors,
        tokens: TokenVectors,
        titles: Titles,
        *,
        deep: int = DEEP,
    ) -> None:
        self.encoder, self.deep = encoder, deep
        self.constants = encoder.folder.known
        self.words, self.vectors, self.tokens, self.titles = words, vectors, tokens, titles
        if not len(words) == len(vectors) == len(tokens) == len(titles):
            raise InputError(
                f"words of {len(words)} items, vectors of {len(vectors)}, tokens of {len(tokens)} and titles of "
                f"{len(titles)} do not go together"
            )
        self._asked: Recent[ReadQuery] = Recent(REMEMBERED)

    @classmethod
    def of(
        cls, encoder: OnnxDualEncoder, items: Sequence[str], *, lexicon: Lexicon | None = None, deep: int = DEEP
    ) -> Known:
        """Of texts, `title [ENT] text` or plain, which are read now; words are weighed by the box's lexicon if not by
        another."""
        words = Words.of(items, lexicon or encoder.folder.known.lexicon)
        vectors, tokens = encoder.read_items(items)
        return cls(encoder, words, vectors.astype(np.float16), tokens, Titles.of(items), deep=deep)

    def extended(self, items: Sequence[str]) -> Known:
        """Of more texts too, behind these: only they are read."""
        vectors, tokens = self.encoder.read_items(items)
        both = np.concatenate([self.vectors, vectors.astype(self.vectors.dtype)])
        titles = self.titles.joined(Titles.of(items))
        return Known(self.encoder, self.words.extended(items), both, self.tokens.joined(tokens), titles, deep=self.deep)

    def __len__(self) -> int:
        return len(self.words)

    def all_many(self, queries: Sequence[str]) -> list[Floats]:
        """`all` of every query, over all cores."""
        with one_thread():
            return share(self._all, self.ask_many(queries))

    def all(self, query: str) -> Floats:
        """g of every item, (n,); past the best `deep` late interaction is estimated from the cosine."""
        return self._all(self.ask(query))

    def _all(self, asked: ReadQuery) -> Floats:
        words = self.words.match(asked.words).relative  # (n,)
        cosine = product(self.vectors, asked.vector[None].astype(np.float64))[0]  # (n,)
        title = self._title(asked, None)
        if len(self) <= self.deep:
            return self._sum(asked, words, cosine, self._late(asked, None), title)
        given = self.constants.late_given_cosine  # (2 × 2)
        late = np.outer(cosine, given[:, 0]) + given[:, 1]  # (n × 2)
        late[:, 1] *= asked.mention.any()
        known = self._sum(asked, words, cosine, late, title)
        best = np.sort(np.argpartition(-known, self.deep)[: self.deep])
        exact = self._late(asked, best)
        # the level of the line is this query's: that of the items that are nearest to those which are not computed
        last = np.argsort(-known[best], kind="stable")[-self.deep // 4 :]
        late += (exact[last] - late[best[last]]).mean(0)
        late[best] = exact
        return self._sum(asked, words, cosine, late, title)

    def at(self, query: str, positions: Positions) -> Floats:
        """g of the items at `positions`, exact, and the same whatever else is asked for."""
        asked = self.ask(query)
        return self._sum(asked, *self.features(asked, np.asarray(positions, np.int64)))

    def features(self, asked: ReadQuery, positions: Positions) -> tuple[Any, Any, Any, Any]:
        """φ of the items at `positions`: words (m), cosine (m), late interaction (m × 2), title (m)."""
        words = self.words.match(asked.words, positions).relative
        rows = self.vectors[positions].astype(np.float16).astype(np.float32)  # the same from whatever they are kept in
        cosine = np.einsum("nd,d->n", rows, asked.vector)
        return words, cosine, self._late(asked, positions), self._title(asked, positions)

    def ask(self, query: str) -> ReadQuery:
        """The query's side, remembered for the rounds of a search."""
        return self.ask_many([query])[0]

    def ask_many(self, queries: Sequence[str]) -> list[ReadQuery]:
        """The sides of several queries, which the encoder reads together."""
        return self._asked.of(queries, lambda new: map(self._ask, new, self.encoder.read_queries(new)))

    def _ask(self, query: str, read: ReadText) -> ReadQuery:
        inner = slice(1, -1)  # without [CLS] and [SEP]
        idf = self.constants.token_idf[read.text.ids[inner]]
        mention = (read.text.roles[inner] == MENTION).astype(np.float32)
        mass, terms = self.words.limit(query)
        kind = self.constants.marked if mention.any() else self.constants.plain
        *weights, correction = kind.of(Facts(terms, mass / max(terms, 1)))
        return ReadQuery(
            words=self.words.ask(query),
            vector=read.vector,
            tokens=read.tokens[inner],
            idf=idf / max(float(idf.sum()), 1e-6),
            mention=mention / max(float(mention.sum()), 1.0),
            name=split_mention(query)[1],
            weights=np.asarray(weights),
            correction=float(correction),
        )

    def _late(self, asked: ReadQuery, positions: Positions | None) -> Any:
        """(items × 2): mean of the best cosines, weighed by idf, and of the mention's tokens alone."""
        if not len(asked.tokens):
            return np.zeros((len(self) if positions is None else len(positions), 2), np.float32)
        best = self.tokens.best(asked.tokens, positions)  # (items × m)
        # row by row, not as a product: a row's sum then does not depend on how many rows there are
        return np.stack([(best * weight).sum(1) for weight in (asked.idf, asked.mention)], 1)

    def _title(self, asked: ReadQuery, positions: Positions | None) -> Floats:
        """How well the mention names each item, (items,)."""
        if not asked.name:
            return np.zeros(len(self) if positions is None else len(positions))
        return self.titles.match(asked.name, positions)

    def _sum(self, asked: ReadQuery, words: Any, cosine: Any, late: Any, title: Any) -> Floats:
        total = np.zeros(len(cosine), np.float64)
        for weight, values in zip(asked.weights, (words, cosine, *late.T, title), strict=True):
            if weight:
                total += weight * values
        return total
