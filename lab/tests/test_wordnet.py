"""WordNet's data files (wndb(5WN)) as entity-linking data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from crosscut.datasets.records import plain_text
from crosscut.errors import InputError
from crosscut_lab.wordnet import WordNet, inflections, mark, parse

LINE = (
    "05611302 09 n 02 mind 0 brain 0 002 @ 05611100 n 0000 ~ 05611684 n 0000 | "
    'that which is responsible for thought; "his mind wandered"; "I couldn\'t get his words out of my head"  '
)


def test_wordnet_line() -> None:
    synset = parse(LINE, "n")
    assert synset.id == "05611302-n"
    assert synset.world == "noun.cognition"
    assert synset.lemmas == ("mind", "brain")
    assert plain_text(synset.item) == "mind, brain\nthat which is responsible for thought"
    assert synset.examples == ("his mind wandered", "I couldn't get his words out of my head")


def test_wordnet_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="install Debian's wordnet-base"):
        WordNet(tmp_path)
    for part in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{part}").write_text("  1 licence\n" + (LINE + "\n" if part == "noun" else ""))
    wordnet = WordNet(tmp_path)
    world = wordnet.world("noun.cognition")
    assert [query.text for query in world.queries] == ["his [START] mind [END] wandered"]
    assert world.gold(world.queries[0].id) == ["05611302-n"]
    with pytest.raises(InputError, match="no WordNet world 'nouns'"):
        wordnet.world("nouns")
    (tmp_path / "data.verb").write_text("garbage line\n")
    with pytest.raises(InputError, match="line 1 is not a WordNet data line"):
        _ = WordNet(tmp_path).synsets


@pytest.mark.parametrize(
    ("sentence", "lemma", "expected"),
    [
        ("She gave up smoking", "give up", "She [START] gave up [END] smoking"),
        ("two test tubes broke", "test tube", "two [START] test tubes [END] broke"),
        ("he stopped", "stop", "he [START] stopped [END]"),
        ("happiest of all", "happy", "[START] happiest [END] of all"),
        ("nothing here", "stop", None),
        ("unstoppable", "stop", None),
    ],
)
def test_marks(sentence: str, lemma: str, expected: str | None) -> None:
    assert mark(sentence, [lemma], {"give": ["gave", "given"]}) == expected
    assert lemma in inflections(lemma, {})
