"""A format of one's own: cards, each a title, lines of text and `key: value` lines, with a blank line between cards."""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from crosscut import InputError
from crosscut.datasets import Item


def read_cards(path: str | Path) -> Iterator[Item]:
    """`Index.build(read_cards("notes.cards"))`: items one after another, never a whole file in memory."""
    title, text, metadata, begun = "", list[str](), dict[str, str](), 0
    with Path(path).open(encoding="utf-8") as file:
        for number, line in enumerate(chain(file, [""]), 1):
            line = line.strip()
            if line and not title:
                title, begun = line, number
            elif line and ": " in line:
                key, _, value = line.partition(": ")
                metadata[key] = value
            elif line:
                text.append(line)
            elif title:
                if not text:
                    raise InputError(
                        f"{path}, line {begun}: the card {title!r} has no text; write some below its title"
                    )
                yield Item(str(begun), title, " ".join(text), metadata)
                title, text, metadata = "", [], {}
