"""ZESHEL worlds (Logeswaran et al. 2019): `documents/<world>.json` and `mentions/<split>.json`, one object
a line.

A document is {"document_id", "title", "text"}; a mention points into the text of its context document by
the first and the last of its words: {"mention_id", "corpus", "context_document_id", "start_index",
"end_index", "label_document_id"}. Queries are written as in ANNCUR appendix A.1: context left and right of
the marked mention, which is kept whole when the tokenizer cuts to 128 tokens.
"""

from __future__ import annotations

from pathlib import Path

from crosscut.datasets.files import Unique, find, records, text_of
from crosscut.datasets.records import MENTION_END, MENTION_START, Collection, Item, Query
from crosscut.errors import InputError

CONTEXT_WORDS = 128
"""Words kept on either side of a mention; at least as many as the 128 tokens of the papers can hold."""


def read_world(
    folder: str | Path, world: str, *, split: str = "test", context_words: int = CONTEXT_WORDS
) -> Collection:
    """One world with the mentions of one split (or of every mention file that exists, `split="all"`).

    The title that ZESHEL repeats at the head of each text is dropped.
    """
    folder = Path(folder)
    if context_words < 0:
        raise InputError(f"{context_words} words of context is less than none")
    documents = find(folder / "documents", f"{world}.json")
    items: list[Item] = []
    words: dict[str, list[str]] = {}  # mentions count words in the text as it stands, title included
    unique = Unique(documents)
    for number, record in records(documents):
        id = unique.check(text_of(record, ("document_id",), documents, number), number)
        title = text_of({"title": "", **record}, ("title",), documents, number)
        text = text_of(record, ("text",), documents, number)
        words[id] = text.split(" ")
        items.append(Item(id, title, text.removeprefix(title).strip() if title else text))
    unique.close()
    collection = Collection(
        name=f"zeshel/{world}",
        items=items,
        queries=[],
        empty_items=[item.id for item in items if not (item.title + item.text).strip()],
    )
    if split == "all":
        paths = sorted((folder / "mentions").glob("*.json*"))
    else:
        paths = [find(folder / "mentions", f"{split}.json")]
    for path in paths:
        unique = Unique(path)
        for number, record in records(path):
            if record.get("corpus") != world:
                continue
            id = unique.check(text_of(record, ("mention_id",), path, number), number)
            label = text_of(record, ("label_document_id",), path, number)
            context = text_of(record, ("context_document_id",), path, number)
            for document in (label, context):
                if document not in words:
                    raise InputError(f"{path} line {number} names document {document!r}, unknown to world {world!r}")
            marked = mark_span(words[context], record.get("start_index"), record.get("end_index"), context_words)
            if marked is None:
                raise InputError(
                    f"{path} line {number}: words {record.get('start_index')} … {record.get('end_index')} "
                    f"do not fit "
                    f"document {context!r} of {len(words[context])} words"
                )
            collection.queries.append(Query(id, marked))
            collection.qrels[id] = {label: 1.0}
        unique.close()
    return collection


def read_worlds(folder: str | Path, *, split: str = "train") -> list[Collection]:
    """Every world that has mentions in a split, in the order of their names: ZESHEL's eight of `train`, say."""
    folder = Path(folder)
    path = find(folder / "mentions", f"{split}.json")
    names = sorted({text_of(record, ("corpus",), path, number) for number, record in records(path)})
    if not names:
        raise InputError(f"{str(path)!r} has no mentions; name another split")
    return [read_world(folder, name, split=split) for name in names]


def mark_span(words: list[str], first: object, last: object, context: int) -> str | None:
    """`ctxt_l [START] mention [END] ctxt_r` with at most `context` words a side, or None."""
    if not (isinstance(first, int) and isinstance(last, int) and 0 <= first <= last < len(words)):
        return None
    left = words[max(0, first - context) : first]
    right = words[last + 1 : last + 1 + context]
    return " ".join([*left, MENTION_START, *words[first : last + 1], MENTION_END, *right])
