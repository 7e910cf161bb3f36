"""Hooks of the documentation site (mkdocs.yml): CHANGELOG.md, CONTRIBUTING.md and SECURITY.md are pages of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from outside docs/."""
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        text = (ROOT / name).read_text("utf-8").replace("](docs/", "](")
        files.append(File.generated(config, name.lower(), content=text))
    return files
