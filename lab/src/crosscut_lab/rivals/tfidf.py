"""TF-IDF over item texts, by scikit-learn: the cosine of word vectors, the papers' cheap first stage (ANNCUR §3.2).

w(t, i) = tf · (ln((1 + n) / (1 + df(t))) + 1),   scaled to length one
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.search.stages import Retriever
from crosscut.types import Positions

MARKS = re.compile(r"\[(?:START|END|ENT)\]")


class TfIdf(Retriever):
    """A retriever that knows its items, or their texts; they are positions 0 … n − 1."""

    def __init__(self, items: Sequence[Item | str]) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        if not len(items):
            raise InputError("TF-IDF needs at least one item; the corpus is empty")
        self._vectorizer: Any = TfidfVectorizer(preprocessor=_lowered, token_pattern=r"\w+", dtype=np.float32)
        try:
            self._items = self._vectorizer.fit_transform(items).tocsr()  # (n × words)
        except ValueError as error:
            raise InputError(f"none of the {len(items)} items has a word in it: TF-IDF has nothing to count") from error

    @property
    def n(self) -> int:
        return int(self._items.shape[0])

    def scores(self, query: str) -> npt.NDArray[np.float32]:
        """The cosine of a query with every item (n); 0 where no word is shared."""
        return np.asarray((self._items @ self._vectorizer.transform([query]).T).toarray(), np.float32).reshape(-1)

    def rank(self, queries: Sequence[str], k: int) -> Positions:
        """Positions of the k best items of each query, best first: (queries × k); ties go to the lower position."""
        ranked = np.empty((len(queries), min(k, self.n)), np.int64)
        for row, query in enumerate(queries):
            ranked[row] = np.argsort(-self.scores(query), kind="stable")[:k]
        return ranked


def _lowered(item: Item | str) -> str:
    """Title and text in lower case, without marks."""
    return MARKS.sub(" ", item if isinstance(item, str) else f"{item.title} {item.text}").lower()
