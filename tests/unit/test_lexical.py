"""BM25 under a frozen idf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosscut.bundled.lexical import LexicalIndex, Lexicon
from crosscut.bundled.model_dir import default_dir
from crosscut.errors import InputError
from crosscut.retrieval.bm25 import BM25

TEXTS = [
    "the bank of the river",
    "bank [ENT] an institution that lends money",
    "rivers flow to the sea, and rivers flood",
    "a loan is money lent at interest",
    "",
]
QUERIES = ["money from a bank", "he sat on the [START] bank [END] of the river", "flooding", "zebra", "", "the of"]


def lexicon_of(texts: list[str]) -> Lexicon:
    return Lexicon.counted(BM25(texts).segments)


def index_of(texts: list[str], lexicon: Lexicon) -> LexicalIndex:
    return LexicalIndex(BM25(texts), lexicon)


def matches(index: LexicalIndex, query: str, positions: list[int] | None = None) -> np.ndarray:
    return index.match(index.read(query), None if positions is None else np.array(positions, np.int64))


def test_a_lexicon_of_the_corpus_gives_the_bm25_of_the_corpus() -> None:
    index, reference = index_of(TEXTS, lexicon_of(TEXTS)), BM25(TEXTS)
    for query in QUERIES:
        limit = index.read(query).limit or 1.0
        np.testing.assert_allclose(matches(index, query) * limit, reference.scores(query), rtol=1e-5, atol=1e-6)
        assert (matches(index, query) <= 1).all()


def test_some_items_match_as_they_do_among_all() -> None:
    index = index_of(TEXTS, lexicon_of(TEXTS))
    for query in QUERIES:
        every = matches(index, query)
        for some in ([2, 0, 1], [1, 1], [len(TEXTS) - 1], []):
            np.testing.assert_array_equal(matches(index, query, some), every[some])


def test_added_items_change_no_score() -> None:
    lexicon = lexicon_of(TEXTS[:3])
    few, many = index_of(TEXTS[:3], lexicon), index_of(TEXTS, lexicon)
    for query in QUERIES:
        np.testing.assert_array_equal(matches(few, query), matches(many, query)[:3])


def test_a_lexicon_comes_back_bit_for_bit_and_spells_no_word() -> None:
    lexicon = lexicon_of(["zebra crossing", "a zebra", "money"])
    arrays = lexicon.arrays()
    again = Lexicon.from_arrays(arrays)
    assert again.fingerprint == lexicon.fingerprint
    assert again.idf(["zebra", "unseen"]).tolist() == lexicon.idf(["zebra", "unseen"]).tolist()
    assert again.idf(["unseen"])[0] > again.idf(["money"])[0] > again.idf(["zebra"])[0]
    assert not any(b"zebra" in array.tobytes() for array in arrays.values())


@pytest.mark.parametrize(
    ("name", "value"),
    [("stems", [2, 1]), ("shares", [0.5]), ("documents", [0.0, 1.0]), ("", [])],
)
def test_arrays_that_are_no_lexicon(name: str, value: list[float]) -> None:
    arrays = {
        "stems": np.array([1, 2], np.uint64),
        "shares": np.array([0.1, 0.5]),
        "documents": np.array([10.0, 3.0]),
    }
    if name:
        arrays[name] = np.array(value)
    else:
        del arrays["stems"]
    with pytest.raises(InputError):
        Lexicon.from_arrays(arrays)


def test_the_lexicon_of_the_model_is_readable(tmp_path: Path) -> None:
    lexicon = Lexicon.load(default_dir() / "lexicon.json")
    assert lexicon.idf(["penguin"])[0] > lexicon.idf(["time"])[0] > 0
    (tmp_path / "lexicon.json").write_text("{}")
    with pytest.raises(InputError, match="no readable lexicon"):
        Lexicon.load(tmp_path / "lexicon.json")


def test_an_empty_corpus_has_a_lexicon() -> None:
    assert len(index_of([], lexicon_of([]))) == 0
