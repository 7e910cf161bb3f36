"""Texts to token ids and roles, without torch.

A text is encoded as `[CLS] … [SEP]`. Each token also carries a *role*, which takes the place of the special tokens of
ANNCUR appendix A.1:

    query   [CLS]  ctxt_l  mention  ctxt_r  [SEP]          item   [CLS]  title  description  [SEP]
    role      4       0       1        0       0                    5      3         2         2

In texts a mention is written `[START] … [END]` and, where an item has no title of its own, a title `title [ENT]
description`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import MENTION_END, MENTION_START, TITLE_MARK, Item
from crosscut.errors import InputError

if TYPE_CHECKING:
    import tokenizers

Ids = npt.NDArray[np.int64]

QUERY, MENTION, ITEM, TITLE, QUERY_HEAD, ITEM_HEAD = range(6)
ENDS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))
"""Tokens that begin and end a text, in vocabularies like those of BERT and of RoBERTa."""
UNKNOWN = ("[UNK]", "<unk>")
FOREIGN_SHARE = 0.5
LONGEST_TEXT = 20_000
"""Characters that are read: far more than any limit of tokens keeps."""


class Tokens(NamedTuple):
    """One text: token ids and roles, both of shape (length,)."""

    ids: Ids
    roles: Ids


class Tokenizer:
    """A `tokenizer.json` and the limits of either side, in tokens."""

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

    def query(self, text: str) -> Tokens:
        """Return a query; a marked mention is kept and its context cut evenly on both sides (A.1)."""
        left, mention, right = split_mention(text)
        parts = self._encode([left, mention, right])
        left_ids, mention_ids, right_ids = cut_around(parts[0], parts[1], parts[2], self.query_tokens - 2)
        ids = [self._start, *left_ids, *mention_ids, *right_ids, self._end]
        roles = [QUERY_HEAD] + [QUERY] * (len(ids) - 1)
        roles[1 + len(left_ids) : 1 + len(left_ids) + len(mention_ids)] = [MENTION] * len(mention_ids)
        return Tokens(np.asarray(ids, np.int64), np.asarray(roles, np.int64))

    def items(self, items: Sequence[Item | str]) -> list[Tokens]:
        """Return many items, each cut at its end; the tokenizer works in parallel."""
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
            tokens.append(Tokens(np.asarray(ids, np.int64), np.asarray(roles, np.int64)))
        return tokens

    def unreadable(self, text: str) -> bool:
        """Return whether most of a text is in a script that the vocabulary does not have: unknown, or letter by letter.

        >>> tokenizer.unreadable("ما هي عاصمة فرنسا")
        True
        """
        ids = np.asarray(self._encode([text[:LONGEST_TEXT]])[0], np.int64)
        return len(ids) > 0 and float(self._foreign[ids].mean()) > FOREIGN_SHARE

    @cached_property
    def _foreign(self) -> npt.NDArray[np.bool_]:
        """Which tokens are unknown, or one letter that is not ASCII."""
        foreign = np.zeros(self._tokenizer.get_vocab_size(), np.bool_)
        for piece, number in self._tokenizer.get_vocab().items():
            letter = piece.removeprefix("##")
            foreign[number] = piece in UNKNOWN or (len(letter) == 1 and letter.isalpha() and not letter.isascii())
        return foreign

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoded: list[tokenizers.Encoding] = self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]


def split_title(item: Item | str) -> tuple[str, str]:
    """Return title and description of an item; a text may hold its title, `title [ENT] description`."""
    if not isinstance(item, str):
        if item.title and item.text:
            return item.title[:LONGEST_TEXT], item.text[:LONGEST_TEXT]
        item = item.title or item.text  # a title alone is the text
    text = item[:LONGEST_TEXT]
    title, mark, body = text.partition(TITLE_MARK)
    return (title, body) if mark else ("", text)


def split_mention(text: str) -> tuple[str, str, str]:
    """Split `left [START] mention [END] right` in three; without marks everything is left context.

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
