"""Which words of a vocabulary are forms of one word.

A cross-encoder is told which item tokens also stand in the query (`crosscut.encoders.tokens.matched`); "loved" and
"love" should count as the same. English inflections are taken off by a few rules in the manner of Porter's first
step; irregular forms are left to the model. In other languages the rules rarely apply, and tokens match as they are.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

_VOWELS = frozenset("aeiouy")
_GROUPS = re.compile("[aeiouy]+")
_SHORT = re.compile("[^aeiou]*[aeiouy][^aeiouwxy]")  # one syllable that ends like hop


def stem(word: str) -> str:
    """The word without plural, -ed and -ing; a final e, y or doubled consonant is made alike.

    >>> {stem(word) for word in ("love", "loves", "loved", "loving")}
    {'love'}
    """
    if len(word) < 4 or not (word.isascii() and word.isalpha()):
        return word
    return _alike(_of_the_verb(_one(word)))


def _one(word: str) -> str:
    """Without the s of a plural."""
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("ies"):
        return word[:-3] + "y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def _of_the_verb(word: str) -> str:
    """Without -ing and -ed."""
    for ending in ("ing", "ed"):
        rest = word.removesuffix(ending)
        if rest != word and len(rest) > 1 and not word.endswith("eed") and _VOWELS & set(rest):
            if rest[-1] == rest[-2] and rest[-1] not in "aeioulsz":
                return rest[:-1]  # hopping → hop
            return rest + "e" if _SHORT.fullmatch(rest) else rest  # hoping → hope
    return word


def _alike(word: str) -> str:
    """With an end that other forms of the word have too."""
    if word.endswith("e") and len(word) > 3 and not _SHORT.fullmatch(word[:-1]):
        word = word[:-1]
    if word.endswith("y") and len(word) > 2:
        word = word[:-1] + "i"
    if word.endswith("ll") and len(_GROUPS.findall(word)) > 1:
        word = word[:-1]  # controlled, control
    return word


def stem_keys(vocabulary: dict[str, int], size: int) -> npt.NDArray[np.int64]:
    """One key per token id, (size,): the smallest id of a whole word with the same stem; word pieces keep their own."""
    keys = np.arange(size, dtype=np.int64)
    first: dict[str, int] = {}
    for word, id in sorted(vocabulary.items(), key=lambda entry: entry[1]):
        if not word.startswith("##"):
            keys[id] = first.setdefault(stem(word), id)
    return keys
