"""Pairs of texts as the tokens a model was trained on: two forms.

`Plain`, of sentence-transformers and most hub models: whatever the tokenizer puts around and between two texts, cut to
a common length from the longer one. `Marked`, of ANNCUR's and BLINK's checkpoints (ANNCUR app. A.1):

    [CLS] left [M_s] mention [M_e] right [SEP]   title [ENT] description [SEP]

where the item's positions begin behind the room of the query, as its authors padded it. Either form reads a text once
and keeps it; joining two is all that is done per pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from crosscut.bundled.tokenizer import LONGEST_TEXT, split_mention, split_title
from crosscut.datasets.records import MENTION_END, MENTION_START, Item, plain_text
from crosscut.errors import InputError

Ids = npt.NDArray[np.int64]


class Text(NamedTuple):
    """Tokens of one text: a plain one without what is put around it, and its length before it was cut; a marked one
    with what is put around it, and the places of its marks."""

    ids: Ids
    marks: tuple[int, ...] = ()
    length: int = 0


class Row(NamedTuple):
    """What a model reads: tokens, segments and positions (l), and which rows of its last layer its head reads (r)."""

    ids: Ids
    types: Ids
    positions: Ids
    reads: Ids


class Form(Protocol):
    """How queries and items become rows."""

    def queries(self, texts: Sequence[str]) -> list[Text]:
        """Queries, read alone."""

    def items(self, items: Sequence[Item | str]) -> list[Text]:
        """Items, read alone."""

    def join(self, query: Text, item: Text) -> Row:
        """A query and an item in one row."""


def open_tokenizer(folder: str | Path, *, lowercase: bool = True) -> Any:
    """The fast tokenizer of a folder: tokenizer.json, or a vocabulary of word pieces."""
    import tokenizers

    folder = Path(folder)
    try:
        if (folder / "tokenizer.json").is_file():
            made = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        elif (folder / "vocab.txt").is_file():
            made = tokenizers.BertWordPieceTokenizer(str(folder / "vocab.txt"), lowercase=lowercase)._tokenizer
        else:
            raise InputError(f"{str(folder)!r} has neither tokenizer.json nor vocab.txt; save the tokenizer beside it")
    except InputError:
        raise
    except Exception as error:  # the library raises plain Exceptions
        raise InputError(f"the tokenizer of {str(folder)!r} cannot be read ({error}); save it again") from error
    made.no_truncation()
    made.no_padding()
    return made


def _encode(tokenizer: Any, texts: Sequence[str]) -> list[Ids]:
    found = tokenizer.encode_batch([text[:LONGEST_TEXT] for text in texts], add_special_tokens=False)
    return [np.asarray(one.ids, np.int64) for one in found]


@dataclass(frozen=True)
class Plain:
    """Two texts as the tokenizer joins them; `emb` reads [CLS] and what stands between the texts, else [CLS] alone."""

    tokenizer: Any
    longest: int
    around: tuple[Ids, Ids, Ids]  # before the query, between, behind the item
    segments: tuple[Ids, int, Ids, int, Ids]  # of those three and of the two texts
    emb: bool = False

    @classmethod
    def of(cls, tokenizer: Any, longest: int, *, emb: bool = False) -> Plain:
        """The form that a tokenizer gives to pairs, found by giving it one."""
        texts = [np.asarray(tokenizer.encode(one, add_special_tokens=False).ids) for one in ("a", "b")]
        pair = tokenizer.encode("a", "b")
        ids, types = np.asarray(pair.ids, np.int64), np.asarray(pair.type_ids, np.int64)
        own = np.asarray(pair.special_tokens_mask) == 0
        sides = [np.flatnonzero(own & (np.asarray([s == n for s in pair.sequence_ids]))) for n in (0, 1)]
        if [len(side) for side in sides] != [len(text) for text in texts] or ids[0] in texts[0]:
            raise InputError(
                "the tokenizer does not put special tokens around pairs of texts; "
                "save it with the post-processor its model was trained with"
            )
        (first, second), end = (side[0] for side in sides), sides[1][-1] + 1
        middle = sides[0][-1] + 1
        parts = [slice(0, first), slice(middle, second), slice(end, None)]
        longest_pair = longest - sum(len(ids[part]) for part in parts)
        if longest_pair < 2:
            raise InputError(f"{longest} tokens have no room for two texts; give the model a longer limit")
        return cls(
            tokenizer,
            longest,
            tuple(ids[part] for part in parts),  # type: ignore[arg-type]
            (types[parts[0]], int(types[first]), types[parts[1]], int(types[second]), types[parts[2]]),
            emb,
        )

    def queries(self, texts: Sequence[str]) -> list[Text]:
        return [Text(ids[: self.longest].copy(), length=len(ids)) for ids in _encode(self.tokenizer, texts)]

    def items(self, items: Sequence[Item | str]) -> list[Text]:
        return self.queries([plain_text(item) for item in items])

    def join(self, query: Text, item: Text) -> Row:
        before, between, behind = self.around
        room = self.longest - len(before) - len(between) - len(behind)
        mine, theirs = longest_first(query.length, item.length, room)
        ids = np.concatenate([before, query.ids[:mine], between, item.ids[:theirs], behind])
        lead, first, middle, second, tail = self.segments
        types = np.empty(len(ids), np.int64)
        start = len(before) + mine
        types[: len(before)], types[len(before) : start] = lead, first
        types[start : start + len(between)] = middle
        types[start + len(between) : len(ids) - len(behind)] = second
        types[len(ids) - len(behind) :] = tail
        reads = np.asarray([0, start] if self.emb else [0], np.int64)
        return Row(ids, types, np.arange(len(ids)), reads)


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts are kept, the longer one being cut first: what `truncation=True` does."""
    if first + second <= room:
        return first, second
    shorter = min(first, second)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room - room // 2
    return (shorter, longer) if first <= second else (longer, shorter)


ENDS = (("[CLS]", "[SEP]"), ("<s>", "</s>"))
"""What stands first and last: in BERT's words, in RoBERTa's."""
MARKS = ("[unused0]", "[unused1]", "[unused2]")


@dataclass(frozen=True)
class Marked:
    """A mention in its context, and an entity with its title (ANNCUR app. A.1).

    marks : ids of [M_s], [M_e] and [ENT]; the authors took [unused0], [unused1] and [unused2].
    """

    tokenizer: Any
    query_tokens: int
    item_tokens: int
    ends: tuple[int, int]  # [CLS], [SEP]
    marks: tuple[int, int, int]
    emb: bool = True

    @classmethod
    def of(cls, tokenizer: Any, *, query_tokens: int = 128, item_tokens: int = 128, emb: bool = True) -> Marked:
        names = (*next((pair for pair in ENDS if tokenizer.token_to_id(pair[0]) is not None), ENDS[0]), *MARKS)
        ids = [tokenizer.token_to_id(name) for name in names]
        if None in ids:
            raise InputError(
                f"the vocabulary has no {names[ids.index(None)]}, which ANNCUR's and BLINK's models mark texts with"
            )
        return cls(tokenizer, query_tokens, item_tokens, (ids[0], ids[1]), (ids[2], ids[3], ids[4]), emb)

    def queries(self, texts: Sequence[str]) -> list[Text]:
        """A text without marks is all mention-less context; its reads then fall on the ends of the text."""
        parts = [split_mention(text) for text in texts]
        lefts, mentions, rights = (_encode(self.tokenizer, list(some)) for some in zip(*parts, strict=True))
        return [self._query(*one) for one in zip(lefts, mentions, rights, strict=True)]

    def _query(self, left: Ids, mention: Ids, right: Ids) -> Text:
        room = self.query_tokens - 2
        mention = mention[: room - 2]
        if not len(mention) and not len(right):  # nothing is marked: the marks stand before and behind the text
            left, mention = left[:0], left[: room - 2]
        marked = np.concatenate([[self.marks[0]], mention, [self.marks[1]]]).astype(np.int64)
        before = (self.query_tokens - len(marked)) // 2 - 1
        after = room - len(marked) - before
        if len(left) <= before and len(right) > after:
            after += before - len(left)
        elif len(left) > before and len(right) <= after:
            before += after - len(right)
        kept = left[max(0, len(left) - before) :]
        ids = np.concatenate([[self.ends[0]], kept, marked, right[:after], [self.ends[1]]]).astype(np.int64)
        start = 1 + len(kept)
        return Text(ids, (start, start + len(marked) - 1))

    def items(self, items: Sequence[Item | str]) -> list[Text]:
        halves = [_halves(item) for item in items]
        titles, bodies = (_encode(self.tokenizer, [half[side] for half in halves]) for side in (0, 1))
        made = []
        for title, body in zip(titles, bodies, strict=True):
            title = title[: self.item_tokens - 3]  # the mark is read: it is never cut
            text = np.concatenate([title, [self.marks[2]], body])[: self.item_tokens - 2]
            ids = np.concatenate([[self.ends[0]], text, [self.ends[1]]]).astype(np.int64)
            made.append(Text(ids, (1 + len(title),)))
        return made

    def join(self, query: Text, item: Text) -> Row:
        ids = np.concatenate([query.ids, item.ids[1:]])
        start = len(query.ids)
        types, positions = np.zeros(len(ids), np.int64), np.arange(len(ids))
        types[start:] = 1
        positions[start:] += self.query_tokens - start  # as if the query had been padded
        reads = [*query.marks, start + item.marks[0] - 1] if self.emb else [0]
        return Row(ids, types, positions, np.asarray(reads, np.int64))


def _halves(item: Item | str) -> tuple[str, str]:
    """Title and text; an entity that has a title and no text keeps its title."""
    return (item.title, item.text) if isinstance(item, Item) and item.title else split_title(item)


def as_query(item: Item | str) -> str:
    """An item as a query whose mention is its title (ANNCUR app. A.2); a text without a title is itself."""
    title, body = _halves(item)
    return f"{MENTION_START} {title} {MENTION_END} {body}" if title else body
