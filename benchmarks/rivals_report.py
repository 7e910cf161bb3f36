"""Tables of docs/lab/rivals.md, from the committed results: `python benchmarks/rivals_report.py` writes them there."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "lab" / "rivals.md"
CELLS = ((10, 50), (10, 100), (10, 200), (10, 500), (100, 100), (100, 200), (100, 500))
MARKS = "<!-- tables -->", "<!-- end of tables -->"
LEARNED = "crosscut, learned"
ORDER = ("crosscut", "rnr", "axn", "tour", "gar", "rgs", "gp", "qdrant-feedback", "anncur", "adacur")
NEAR = -0.01  # a paired interval that reaches below this is not "ahead"


def worlds() -> list[dict[str, Any]]:
    found = sorted((ROOT / "benchmarks" / "results").glob("rivals-*.json"))
    return sorted((json.loads(path.read_text()) for path in found), key=lambda world: int(world["items"]))


def by_cell(method: dict[str, Any]) -> dict[tuple[int, int], dict[str, float]]:
    return {(cell["k"], cell["budget"]): cell for cell in method["cells"]}


def table(world: dict[str, Any]) -> str:
    """One world: recall of every method, ours first."""
    head = f"**{world['world']}**, {world['items']:,} items, {world['test_queries']} test queries"
    lines = [head, "", "| method | calls of the index | " + " | ".join(f"k={k}, B={b}" for k, b in CELLS) + " |"]
    lines.append("|---" * (2 + len(CELLS)) + "|")
    for name in sorted(world["methods"], key=lambda name: (ORDER.index(name.split(",")[0]), name != LEARNED, name)):
        method = world["methods"][name]
        cells = by_cell(method)
        settings = re.sub(r"-?\d+\.\d{4,}", lambda number: f"{float(number[0]):.3g}", method["settings"])
        told = f"`{settings}`" if "@" in settings else name
        values = " | ".join(f"{cells[key]['recall']:.3f}" for key in CELLS)
        lines.append(f"| {told} | {method['index_calls']:,} | {values} |")
    return "\n".join(lines)


def everything() -> str:
    """Every method on every world, at 100 calls; what an index takes stands beside."""
    names = dict.fromkeys(
        re.sub(r", \d+ anchor queries", ", anchor queries", name) for world in worlds() for name in world["methods"]
    )
    order = sorted(names, key=lambda name: (ORDER.index(name.split(",")[0]), "anchor" in name, LEARNED not in name))
    lines = ["| k = 10, B = 100 | " + " | ".join(f"{w['world']}, {w['items']:,} items" for w in worlds()) + " |"]
    lines.append("|---" * (1 + len(worlds())) + "|")
    for name in order:
        told = []
        for world in worlds():
            found = [
                method
                for own, method in world["methods"].items()
                if re.sub(r", \d+ anchor queries", ", anchor queries", own) == name
            ]
            calls = f" ({found[0]['index_calls']:,})" if found and found[0]["index_calls"] else ""
            told.append(f"{by_cell(found[0])[10, 100]['recall']:.3f}{calls}" if found else "")
        lines.append(f"| {name} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def reached() -> str:
    """Calls that reach what reranking the encoder's best 500 finds."""
    lines = ["| world | items | recall of rnr at 500, k = 10 | crosscut | crosscut, learned |", "|---|---|---|---|---|"]
    for world in worlds():
        goal = by_cell(world["methods"]["rnr"])[10, 500]["recall"]
        told = []
        for name in ("crosscut", "crosscut, learned"):
            cells = by_cell(world["methods"][name])
            enough = [b for k, b in CELLS if k == 10 and cells[k, b]["recall"] >= goal]
            told.append(f"{enough[0]}" if enough else "over 500")
        lines.append(f"| {world['world']} | {world['items']:,} | {goal:.3f} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def ahead(anchored: bool) -> str:
    """Whether ours, after learning, is ahead at every budget: of rivals with anchor queries, or without."""
    compared = 0
    told = []
    for world in worlds():
        for name, method in world["methods"].items():
            if name.startswith("crosscut") or bool(method["index_calls"]) != anchored:
                continue
            for cell in method["cells"]:
                compared += 1
                if cell["low"] < NEAR:
                    told.append(
                        f"{name}, {world['world']}, k = {cell['k']}, B = {cell['budget']}: "
                        f"{cell['lead']:+.3f} [{cell['low']:+.3f}, {cell['high']:+.3f}]"
                    )
    whom = "with anchor queries, whose calls come on top," if anchored else "without anchor queries"
    head = f"Against rivals {whom} the paired 95 % interval of the lead of `crosscut`, learned, stays above −0.01 in "
    return head + f"{compared - len(told)} of {compared} cells." + (f" Not in: {'; '.join(told)}." if told else "")


def tables() -> str:
    goal = "Calls that reach what 500 calls of `rnr` find, of 50, 100, 200 and 500:"
    told = [ahead(anchored=False), ahead(anchored=True), goal, reached()]
    head = "At 100 calls, with the calls that an index takes before its first search in brackets:"
    return "\n\n".join([head, everything(), *map(table, worlds()), *told])


def main() -> None:
    text = PAGE.read_text("utf-8")
    start, end = text.index(MARKS[0]) + len(MARKS[0]), text.index(MARKS[1])
    PAGE.write_text(f"{text[:start]}\n\n{tables()}\n\n{text[end:]}", "utf-8")


if __name__ == "__main__":
    main()
