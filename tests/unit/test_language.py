"""Sources, docs and test names avoid phrases of which readers said that they do not understand them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PHRASES = re.compile(
    r"\btold\b|\btells?\b(?!\(\))|\bstands (?:for|in|beside|once)\b|\bdear\b|in the box\b|\bthe box\b|known part"
    r"|\bthe house\b|\bwhoever\b|\"\"\"What \w+ (?:is|are|has|have)\b",
    re.IGNORECASE,
)
FOLDERS = {
    "src": (".py", ".js", ".html"),
    "lab": (".py", ".md"),
    "tests": (".py",),
    "docs": (".md",),
    "examples": (".py",),
}


def test_sources_and_docs_are_in_plain_words() -> None:
    files = [
        path
        for folder, endings in FOLDERS.items()
        for path in (ROOT / folder).rglob("*")
        if path.suffix in endings and path != Path(__file__)
    ]
    files += ROOT.glob("*.md")
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in files
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if PHRASES.search(line)
    ]
    assert found == []
