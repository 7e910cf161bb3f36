"""Research pages, generated whole from the results."""

from __future__ import annotations

from pathlib import Path


def write_pages(results: Path, output: Path) -> list[Path]:
    """Write every page; return their paths."""
    return []
