"""A folder of text files: one item a file, its path as its id.

`.txt` as it is; `.md` with its first heading as the title; `.html` without tags, scripts and styles, with its title.
Files and folders whose names begin with a dot are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

from crosscut.datasets.records import Item
from crosscut.errors import InputError
from crosscut.types import Progress

ENDINGS = (".txt", ".md", ".markdown", ".html", ".htm")
FRONT = re.compile(r"\A---\n.*?\n---\n", re.S)
UNREAD = {"script", "style", "noscript", "template", "svg"}
BLOCKS = {"p", "div", "li", "tr", "br", "section", "article", "pre", "h1", "h2", "h3", "h4", "h5", "h6", "td", "th"}


def text_files(folder: Path) -> list[Path]:
    """The files of a folder and of those inside it, in order."""
    inside = (path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    return sorted(path for path in inside if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def read_folder(folder: str | Path, *, progress: Progress | None = None) -> Iterator[Item]:
    """Items of a folder of .txt, .md and .html files; the id is the path inside the folder."""
    folder = Path(folder)
    paths = text_files(folder)
    for number, path in enumerate(paths, 1):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not UTF-8 ({error}); convert it first, or move it away") from error
        title, text = _parts(path, text)
        yield Item(path.relative_to(folder).as_posix(), title, text)
        if progress is not None:
            progress("reading files", number, len(paths))


def _parts(path: Path, text: str) -> tuple[str, str]:
    """Title and text of a file."""
    ending = path.suffix.lower()
    if ending in (".md", ".markdown"):
        text = FRONT.sub("", text)
        return _split_heading(text.strip())
    if ending in (".html", ".htm"):
        page = _Page()
        page.feed(text)
        page.close()
        return page.lines(page.title), page.lines(page.words)
    return "", text.strip()


def _split_heading(text: str) -> tuple[str, str]:
    """Return the first-level heading that a Markdown text begins with, if it does, and the rest."""
    if not (text.startswith("#") and text[1:2].isspace()):
        return "", text
    line, _, rest = text[1:].lstrip().partition("\n")
    title = line.rstrip().rstrip("#").rstrip()
    return (title, rest.strip()) if title else ("", text)


class _Page(HTMLParser):
    """The title and the words of a page."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title: list[str] = []
        self.words: list[str] = []
        self._inside: list[str] = []  # of what is not read, and of the title

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in UNREAD or tag == "title":
            self._inside.append(tag)
        elif tag in BLOCKS:
            self.words.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)
        elif self._inside[-1] == "title":
            self.title.append(data)

    @staticmethod
    def lines(parts: list[str]) -> str:
        lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
        return "\n".join(line for line in lines if line)
