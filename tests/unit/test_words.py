"""BM25 with a frozen idf."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crosscut.encoders.words import Lexicon, Words, query_stems, stems
from crosscut.errors import InputError
from crosscut.retrieval.bm25 import BM25

TEXTS = [
    "the bank of the river",
    "bank [ENT] an institution that lends money",
    "rivers flow to the sea, and rivers flood",
    "a loan is money lent at interest",
    "",
]
QUERIES = ["money from a bank", "he sat on the [START] bank [END] of the river", "flooding", "zebra"]


def test_a_lexicon_of_the_corpus_gives_the_bm25_of_the_corpus() -> None:
    words, reference = Words.of(TEXTS, Lexicon.of(TEXTS)), BM25(TEXTS)
    for query in QUERIES:
        np.testing.assert_allclose(words.match(query).bm25, reference.scores(query), rtol=1e-5, atol=1e-6)


def test_some_items_match_as_they_do_among_all() -> None:
    """Any order, twice the same, words of some, of all, and of none of the items."""
    words = Words.of(TEXTS, Lexicon.of(TEXTS))
    for query in (*QUERIES, "zebra", ""):
        every, asked = words.match(query), words.ask(query)
        for some in ([2, 0, 1], [1, 1], [len(TEXTS) - 1], []):
            positions = np.array(some, np.int64)
            for found in (words.match(query, positions), words.match(asked, positions)):
                np.testing.assert_array_equal(found.bm25, every.bm25[positions])
                np.testing.assert_array_equal(found.relative, every.relative[positions])


def test_added_items_void_no_score() -> None:
    lexicon = Lexicon.of(TEXTS[:3])
    few, many = Words.of(TEXTS[:3], lexicon), Words.of(TEXTS, lexicon)
    for query in QUERIES:
        for before, after in zip(few.match(query), many.match(query), strict=True):
            np.testing.assert_array_equal(before, after[:3])


def test_a_share_of_the_limit_lies_between_nothing_and_all() -> None:
    words = Words.of([*TEXTS, "money bank " * 50], Lexicon.of(TEXTS))
    match = words.match("money from a bank")
    missing = words.lexicon.idf(stems("from"))[0] / words.limit("money from a bank")[0]
    assert 0.5 * (1 - missing) < match.relative[-1] < 1 - missing
    assert match.relative[4] == match.bm25[4] == 0
    np.testing.assert_allclose(match.relative * words.limit("money from a bank")[0], match.bm25, rtol=1e-5)
    assert words.match("the of").bm25.tolist() == [0.0] * 6  # nothing but stop words
    assert words.limit("the of") == (0.0, 0)


def test_a_mention_counts_twice() -> None:
    assert query_stems("on the [START] banks [END] of it") == ["bank", "bank"]


def test_a_lexicon_is_kept(tmp_path: Path) -> None:
    lexicon = Lexicon.mean([Lexicon.of(TEXTS), Lexicon.of(["money, money", "seas"])], 1000.0)
    lexicon.save(tmp_path / "lexicon.json")
    again = Lexicon.load(tmp_path / "lexicon.json")
    words = [*stems(" ".join(TEXTS)), "zebra"]
    np.testing.assert_allclose(again.idf(words), lexicon.idf(words), atol=1e-3)
    assert again.mean_length == lexicon.mean_length
    assert again.idf(["zebra"])[0] > again.idf(["river"])[0] > again.idf(["money"])[0]
    (tmp_path / "lexicon.json").write_text("{}")
    with pytest.raises(InputError, match="no readable lexicon"):
        Lexicon.load(tmp_path / "lexicon.json")


def test_an_empty_corpus_has_a_lexicon() -> None:
    assert len(Words.of([], Lexicon.of([]))) == 0
    with pytest.raises(InputError, match="says nothing"):
        Lexicon({}, 0, 1)
