"""Texts to token ids and roles, without torch.

Every text is encoded on its own, `[CLS] … [SEP]`, so that an item is tokenised once and kept. Where a query
and an item meet, each token also carries a *role*, which takes the place of the special tokens of ANNCUR
appendix A.1:

    query   [CLS]  ctxt_l  mention  ctxt_r  [SEP]          item   [CLS]  title  description  [SEP]
    role      4       0       1        0       0                    5      3         2         2

The two [CLS] tokens are the special tokens of the [EMB] head; the mention role stands for [M_s] … [M_e], the title
role for [ENT]. In texts these are written `[START] … [END]` and, where an item has no title of its own, `title
[ENT] description`. When a pair is scored, an item token that also stands in the query, inflected or not, takes another
role, and yet another if it stands in the mention: what words share is told, not left to be guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import MENTION_END, MENTION_START, TITLE_MARK, Item
from crosscut.encoders.stems import stem_keys
from crosscut.errors import InputError

if TYPE_CHECKING:
    import tokenizers

Ids = npt.NDArray[np.int64]

QUERY, MENTION, ITEM, TITLE, QUERY_HEAD, ITEM_HEAD = range(6)
ROLES = 6
MATCHED = 4
"""Added to ITEM and TITLE where the item's token also stands in the query: roles 6 and 7."""
MENTIONED = 6
"""Added to ITEM and TITLE where it stands in the query's mention: roles 8 and 9."""
PAIR_ROLES = 10
ENDS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))
"""What stands before and behind a text, in vocabularies like BERT's and like RoBERTa's."""
LONGEST_TEXT = 20_000
"""Characters looked at: far more than any token limit keeps, far less than would cost time."""


class Tokens(NamedTuple):
    """One text: token ids, roles, and keys that forms of one word share (`stems.py`), all of shape (length,)."""

    ids: Ids
    roles: Ids
    keys: Ids


class Tokenizer:
    """A `tokenizer.json` and the limits of the papers (128 tokens a side by default)."""

    def __init__(self, path: str | Path, *, query_tokens: int = 128, item_tokens: int = 128) -> None:
        import tokenizers

        self.path = Path(path)
        self.query_tokens = query_tokens
        self.item_tokens = item_tokens
        if min(query_tokens, item_tokens) < 4:
            raise InputError(
                f"{query_tokens} query tokens and {item_tokens} item tokens leave no room for text; "
                "each side needs at least 4"
            )
        if not self.path.is_file():
            raise InputError(f"there is no tokenizer at {str(self.path)!r}; expected a tokenizer.json")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(self.path))
        except Exception as error:  # the Rust side raises bare Exception
            raise InputError(
                f"{str(self.path)!r} is not a tokenizer.json ({error}); save one with Tokenizer.save"
            ) from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        pairs = [[self._tokenizer.token_to_id(token) for token in ends] for ends in ENDS]
        start, end = next((pair for pair in pairs if None not in pair), (None, None))
        if start is None or end is None:
            raise InputError(
                f"{str(self.path)!r} lacks [CLS] or [SEP]; encoders need a vocabulary like BERT's or RoBERTa's"
            )
        self._start, self._end = int(start), int(end)

    @property
    def vocabulary_size(self) -> int:
        return int(self._tokenizer.get_vocab_size())

    def query(self, text: str) -> Tokens:
        """A query; a marked mention is kept and its context cut evenly on both sides (A.1)."""
        left, mention, right = split_mention(text)
        parts = self._encode([left, mention, right])
        left_ids, mention_ids, right_ids = cut_around(parts[0], parts[1], parts[2], self.query_tokens - 2)
        ids = [self._start, *left_ids, *mention_ids, *right_ids, self._end]
        roles = [QUERY_HEAD] + [QUERY] * (len(ids) - 1)
        roles[1 + len(left_ids) : 1 + len(left_ids) + len(mention_ids)] = [MENTION] * len(mention_ids)
        return self._tokens(ids, roles)

    def item(self, item: Item | str) -> Tokens:
        """One item, cut at the end."""
        return self.items([item])[0]

    def items(self, items: Sequence[Item | str]) -> list[Tokens]:
        """Many items at once (the tokenizer works in parallel)."""
        halves = [split_title(item) for item in items]
        titles = self._encode([title for title, _ in halves])
        bodies = self._encode([body for _, body in halves])
        room = self.item_tokens - 2
        tokens = []
        for title, body in zip(titles, bodies, strict=True):
            title = title[:room]
            body = body[: room - len(title)]
            ids = [self._start, *title, *body, self._end]
            roles = [ITEM_HEAD] + [TITLE] * len(title) + [ITEM] * (len(body) + 1)
            tokens.append(self._tokens(ids, roles))
        return tokens

    def _tokens(self, ids: list[int], roles: list[int]) -> Tokens:
        places = np.asarray(ids, np.int64)
        return Tokens(places, np.asarray(roles, np.int64), self._keys[places])

    @cached_property
    def _keys(self) -> Ids:
        return stem_keys(self._tokenizer.get_vocab(), self.vocabulary_size)

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoded: list[tokenizers.Encoding] = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]


def matched(roles: Ids, keys: Ids, query: Tokens) -> Ids:
    """Roles of item tokens (any shape) once the query is known; its [CLS] and [SEP] match nothing."""
    text = (roles == ITEM) | (roles == TITLE)
    mentioned = np.isin(keys, query.keys[query.roles == MENTION])
    added = np.where(mentioned, MENTIONED, MATCHED * np.isin(keys, query.keys[1:-1]))
    return np.where(text, roles + added, roles)


def split_title(item: Item | str) -> tuple[str, str]:
    """Title and description of an item; a text may have its title inside, `title [ENT] description`."""
    if not isinstance(item, str):
        if item.title and item.text:
            return item.title[:LONGEST_TEXT], item.text[:LONGEST_TEXT]
        item = item.title or item.text  # a title alone is the text
    text = item[:LONGEST_TEXT]
    title, mark, body = text.partition(TITLE_MARK)
    return (title, body) if mark else ("", text)


def marked_text(item: Item) -> str:
    """An item as one text, `title [ENT] text`, the form of ANNCUR appendix A.1."""
    return f" {TITLE_MARK} ".join(part for part in (item.title, item.text) if part)


def split_mention(text: str) -> tuple[str, str, str]:
    """`left [START] mention [END] right` in three; without marks everything is left context.

    Far context is dropped by characters first: a sentence of 100,000 characters costs nothing.
    """
    start = text.find(MENTION_START)
    end = text.find(MENTION_END, start + len(MENTION_START)) if start >= 0 else -1
    if start < 0 or end < 0:
        return text[:LONGEST_TEXT], "", ""
    left = text[:start][-LONGEST_TEXT:]
    mention = text[start + len(MENTION_START) : end][:LONGEST_TEXT]
    return left, mention, text[end + len(MENTION_END) :][:LONGEST_TEXT]


def cut_around(
    left: Sequence[int], mention: Sequence[int], right: Sequence[int], room: int
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """Keep the mention, then as much context on either side; what one side does not need the other gets.

    Without a mention the text is all left context and loses its end, not its beginning.
    """
    if not mention and not right:
        return left[:room], mention, right
    mention = mention[:room]
    spare = room - len(mention)
    kept_left = min(len(left), max(spare // 2, spare - len(right)))
    kept_right = min(len(right), spare - kept_left)
    return left[len(left) - kept_left :], mention, right[:kept_right]
