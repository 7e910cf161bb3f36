"""Write the tables of docs/lab/relevance.md from the committed results: python scripts/relevance_page.py"""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "lab" / "relevance.md"
TABLES = {
    "calibration": ("calibration", "doc_table"),
    "box": ("calibration", "box_table"),
    "fusion": ("fusion", "doc_table"),
    "two": ("two_scorers", "doc_table"),
    "downstream": ("downstream", "doc_table"),
}
"""Of a block of the page: the benchmark, and which of its tables."""


def table(name: str, which: str) -> str:
    """A table of one benchmark."""
    spec = importlib.util.spec_from_file_location(f"benchmark_{name}", ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    told = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))
    made: str = getattr(benchmark, which)(told)
    return made


def page() -> str:
    """The page as it should be."""
    text = PAGE.read_text("utf-8")
    for name, source in TABLES.items():
        block = f"<!-- {name} -->\n{table(*source)}\n<!-- end -->"
        text = re.sub(rf"<!-- {name} -->\n.*?<!-- end -->", lambda _, block=block: block, text, flags=re.S)
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
