"""Tables and picture of docs/learning.md, from the committed results: `python benchmarks/learning_report.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CELLS = ((1, 50), (10, 50), (10, 100), (100, 200))


def worlds() -> list[dict[str, Any]]:
    found = sorted((ROOT / "benchmarks/results").glob("learning-*.json"))
    return sorted((json.loads(path.read_text()) for path in found), key=lambda world: int(world["items"]))


def cells(run: dict[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(cell["k"], cell["budget"]): cell for cell in run["cells"]}


def table() -> str:
    """Every world after all the searches it has: before → after, and the misses that are gone."""
    lines = ["| world | items | past searches | " + " | ".join(f"k={k}, B={b}" for k, b in CELLS) + " |"]
    lines.append("|---" * (3 + len(CELLS)) + "|")
    gone: dict[tuple[int, int], list[float]] = {cell: [] for cell in CELLS}
    for world in worlds():
        size = max(int(name.split("/")[0]) for name in world["runs"])
        found = cells(world["runs"][f"{size}/0"])
        told = []
        for key in CELLS:
            cell = found[key]
            gone[key].append(cell["misses"])
            interval = f"[{cell['low']:+.3f}, {cell['high']:+.3f}]"
            told.append(f"{cell['before']:.3f} → {cell['after']:.3f} {interval}")
        lines.append(f"| {world['world']} | {world['items']:,} | {size} | " + " | ".join(told) + " |")
    means = [f"**{sum(shares) / len(shares):.0%}**" if shares and key[0] > 1 else "" for key, shares in gone.items()]
    lines.append("| misses removed, mean | | | " + " | ".join(means) + " |")
    return "\n".join(lines)


def worse() -> list[str]:
    """Cells of any run whose interval lies below zero."""
    return [
        f"{world['world']} {name} k={cell['k']} B={cell['budget']}: {cell['low']:+.3f} … {cell['high']:+.3f}"
        for world in worlds()
        for name, run in world["runs"].items()
        for cell in run["cells"]
        if cell["high"] < 0
    ]


def picture(path: Path) -> None:
    """Misses that are gone at k = 10, B = 50, against the number of past searches."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    for world in worlds():
        points: dict[int, list[float]] = {}
        for name, run in world["runs"].items():
            points.setdefault(int(name.split("/")[0]), []).append(cells(run)[10, 50]["misses"])
        sizes = sorted(points)
        axes.plot(sizes, [100 * sum(points[s]) / len(points[s]) for s in sizes], marker="o", label=world["world"])
    axes.set_xlabel("past searches of 100 calls")
    axes.set_ylabel("misses removed, %, k = 10, B = 50")
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    print(table())
    print("significantly worse:", worse() or "nowhere")
    picture(ROOT / "docs/images/learning.svg")
