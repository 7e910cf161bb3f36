"""Write the README's tables from the committed results: `python benchmarks/figures.py`; with --check, only compare."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RECALL = ROOT / "benchmarks/results/reproduction-wordnet-cognition.json"
LOOP = ROOT / "benchmarks/results/loop.json"
COLUMNS = ((1, 50), (1, 100), (10, 50), (10, 100), (10, 200), (100, 200), (100, 500))
NAMES = {
    "rnr": "retrieve and rerank",
    "anncur": "ANNCUR",
    "adacur": "ADACUR",
    "adacur@first=dense": "ADACUR, encoder first",
    "axn": "AXN, encoder vectors",
    "crosscut, no anchors": "**crosscut**, no anchor scores",
    "crosscut": "**crosscut**",
}
CASES = (
    (10_000, 500, 500, 100, 1, "7 ms"),
    (100_000, 384, 500, 10, 1, "2 ms"),
    (100_000, 384, 500, 10, 64, "2 ms"),
    (1_000_000, 384, 500, 10, 1, "2 ms"),
)


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(cells) + " |" for cells in [header, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]])


def recall_table() -> str:
    records = {(r["method"], r["k"], r["budget"]): r for r in json.loads(RECALL.read_text())["records"]}
    rows = [
        [name, *(f"{records[method, *column]['recall']:.3f}" for column in COLUMNS)] for method, name in NAMES.items()
    ]
    return table(["", *(f"k={k}, {budget} calls" for k, budget in COLUMNS)], rows)


def loop_table() -> str:
    cases: dict[Any, Any] = {
        (c["method"], c["n"], c["d"], c["budget"], c["rounds"], c["batch"]): c
        for c in json.loads(LOOP.read_text())["cases"]
    }
    rows = []
    for n, d, budget, rounds, batch, price in CASES:
        key = (n, d, budget, rounds, batch)
        share = [100 * cases[method, *key]["share_of_scorer_time"][price] for method in ("axn", "crosscut")]
        rival = cases.get(("transcription", *key))
        plain = "–" if rival is None else f"{100 * rival['share_of_scorer_time'][price]:.0f} %"
        what = f"{n:,} items, d = {d}, {budget} calls in {rounds} rounds, " + (
            "one query" if batch == 1 else f"{batch} queries"
        )
        rows.append([what, price, f"{share[0]:.1f} %", f"{share[1]:.1f} %", plain])
    return table(["", "a call takes", "axn", "crosscut", "plain numpy"], rows)


def filled(text: str) -> str:
    for name, made in (("recall", recall_table()), ("loop", loop_table())):
        block = f"<!-- figures: {name} -->\n{made}\n<!-- end -->"
        text = re.sub(rf"<!-- figures: {name} -->.*?<!-- end -->", block, text, flags=re.DOTALL)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    made = filled(text)
    if parser.parse_args().check:
        sys.exit(0 if made == text else "the README's tables are not those of the results: run benchmarks/figures.py")
    readme.write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main()
