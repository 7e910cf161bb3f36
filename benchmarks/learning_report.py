"""Tables of docs/lab/learning.md and pictures, from the committed results: python benchmarks/learning_report.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
CELLS = ((1, 50), (10, 50), (10, 100), (100, 200))
FEW = 180  # past searches


def worlds() -> list[dict[str, Any]]:
    found = sorted((ROOT / "benchmarks/results").glob("learning-*.json"))
    return sorted((json.loads(path.read_text()) for path in found), key=lambda world: int(world["items"]))


def cells(run: dict[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    return {(cell["k"], cell["budget"]): cell for cell in run["cells"]}


def sizes_of(world: dict[str, Any]) -> list[int]:
    """The numbers of past searches that are shown: the most up to a few hundred, and the most there is."""
    sizes = sorted({int(name.split("/")[0]) for name in world["runs"]})
    return list(dict.fromkeys([max(size for size in sizes if size <= FEW), sizes[-1]]))


def table() -> str:
    """Every world after past searches: before → after, and the misses that are gone after a few hundred at most."""
    lines = ["| world | items | past searches | " + " | ".join(f"k={k}, B={b}" for k, b in CELLS) + " |"]
    lines.append("|---" * (3 + len(CELLS)) + "|")
    gone: list[tuple[str, list[float]]] = []
    for world in worlds():
        for size in sizes_of(world):
            found = [cells(world["runs"][f"{size}/0"])[key] for key in CELLS]
            told = [f"{cell['before']:.3f} → {cell['after']:.3f} {_interval(cell)}" for cell in found]
            lines.append(f"| {world['world']} | {world['items']:,} | {size:,} | " + " | ".join(told) + " |")
            if size <= FEW:
                gone.append((f"{world['world']} | {world['items']:,} | {size}", [cell["misses"] for cell in found]))
    means = [sum(values) / len(gone) for values in zip(*(shares for _, shares in gone), strict=True)]
    rows = [("mean | | ", means), *gone[-2:]]
    for name, shares in rows:
        told = [f"{share:.0%}" if key[0] > 1 else "" for key, share in zip(CELLS, shares, strict=True)]
        told = [f"**{one}**" if one and shares is means else one for one in told]
        lines.append(f"| misses removed, {name} | " + " | ".join(told) + " |")
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


def by_size(world: dict[str, Any], key: tuple[int, int], what: str) -> dict[int, list[float]]:
    """Of every number of past searches, what its seeds have found."""
    points: dict[int, list[float]] = {}
    for name, run in world["runs"].items():
        points.setdefault(int(name.split("/")[0]), []).append(cells(run)[key][what])
    return dict(sorted(points.items()))


def growth() -> str:
    """Recall against the number of past searches, mean of the seeds."""
    sizes = sorted({size for world in worlds() for size in by_size(world, (10, 50), "after")})
    lines = ["| world, k = 10, B = 50 | before | " + " | ".join(map(str, sizes)) + " |"]
    lines.append("|---" * (2 + len(sizes)) + "|")
    for world in worlds():
        points = by_size(world, (10, 50), "after")
        before = cells(next(iter(world["runs"].values())))[10, 50]["before"]
        told = [f"{sum(points[s]) / len(points[s]):.3f}" if s in points else "" for s in sizes]
        lines.append(f"| {world['world']} | {before:.3f} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def shares() -> str:
    """Anchor scores on a part of the items: recall of the others, and of all, at k = 10 and B = 100."""
    lines = [
        "| world | without anchor scores | of those: no anchors → these | all items: none, all, these | over the line |"
    ]
    lines.append("|---" * 5 + "|")
    for path in sorted((ROOT / "benchmarks/results").glob("anchors_share-*.json")):
        world = json.loads(path.read_text())
        for cell in world["cells"]:
            if (cell["k"], cell["budget"]) != (10, 100):
                continue
            own = (
                f"{cell['unmeasured_without_anchors']:.3f} → {cell['unmeasured']:.3f} {_interval(cell['against_none'])}"
            )
            both = f"{cell['none']:.3f}, {cell['whole']:.3f}, {cell['overall']:.3f}"
            over = f"{cell['against_line']['gain']:+.3f} {_interval(cell['against_line'])}"
            lines.append(f"| {world['world']} | {cell['share']:.0%} | {own} | {both} | {over} |")
    return "\n".join(lines)


def _interval(found: dict[str, float]) -> str:
    return f"[{found['low']:+.3f}, {found['high']:+.3f}]"


def failed() -> list[str]:
    """Cells in which anchor scores on a part of the items lose significantly, against none or the line."""
    return [
        f"{path.stem} {cell['share']:.0%} k={cell['k']} B={cell['budget']} {name} {_interval(cell[name])}"
        for path in sorted((ROOT / "benchmarks/results").glob("anchors_share-*.json"))
        for cell in json.loads(path.read_text())["cells"]
        for name in ("against_none", "against_line")
        if cell[name]["high"] < 0
    ]


def summary() -> str:
    """In how many cells of `shares`, of every k and budget, something is lost significantly."""
    paths = (ROOT / "benchmarks/results").glob("anchors_share-*.json")
    cells = [cell for path in paths for cell in json.loads(path.read_text())["cells"]]
    lost = [cell for cell in cells if cell["against_none"]["high"] < 0]
    under = [-cell["against_line"]["gain"] for cell in cells if cell["against_line"]["high"] < 0]
    by = f", by up to {max(under):.3f}" if under else ""
    return (
        f"Of all {len(cells)} cells (k = 10 and 100, 50 to 200 calls) items without anchor scores are found "
        f"significantly\nless often than without any anchors in {len(lost)}; the whole is significantly under the line "
        f"in {len(under)}{by}."
    )


def _results(kind: str) -> list[dict[str, Any]]:
    found = sorted((ROOT / "benchmarks/results").glob(f"{kind}-*.json"))
    return sorted((json.loads(path.read_text()) for path in found), key=lambda world: int(world.get("items", 0)))


SPENT = {
    "searches": "searches alone",
    "anchors": "anchor scores alone",
    "part": "40 anchor queries, a part of the items",
    "both": "`calls=`",
}


def spending() -> str:
    """What calls for train queries buy, by the way they are spent."""
    columns = ((10, 50), (10, 100), (100, 200))
    lines = ["| world | calls | spent on | " + " | ".join(f"k={k}, B={b}" for k, b in columns) + " |"]
    lines.append("|---" * (3 + len(columns)) + "|")
    for world in _results("spending"):
        none = " | ".join(f"{cell['recall']:.3f}" for cell in world["none"])
        lines.append(f"| {world['world']} | 0 | nothing | {none} |")
        for name, found in world["runs"].items():
            way, calls = name.split("/")
            if found:
                told = [f"{cell['recall']:.3f} {_interval(cell)}" for cell in found]
                lines.append(f"| {world['world']} | {int(calls):,} | {SPENT[way]} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def hurt() -> list[str]:
    """Ways of `calls=` that are significantly worse than no calls at all."""
    return [
        f"{world['world']} {name} k={cell['k']} B={cell['budget']} {_interval(cell)}"
        for world in _results("spending")
        for name, found in world["runs"].items()
        for cell in found
        if name.startswith("both/") and cell["high"] < 0
    ]


def exploring() -> str:
    """What a log that explored teaches, against one that did not."""
    columns = ((10, 50), (10, 100), (100, 200))
    lines = ["| world | drawn at random | counts for up to | " + " | ".join(f"k={k}, B={b}" for k, b in columns) + " |"]
    lines.append("|---" * (3 + len(columns)) + "|")
    for world in _results("exploring"):
        for run in world["runs"]:
            told = [
                f"{cell['recall']:.3f}" + (f" {_interval(cell)}" if run["explore"] else "") for cell in run["cells"]
            ]
            share = f"{run['explore']:.0%} | {run['correction']:.0f}" if run["explore"] else "none | 1"
            lines.append(f"| {world['world']} | {share} | " + " | ".join(told) + " |")
    return "\n".join(lines)


def first_stages() -> str:
    """Round one by vectors, words, both, and late interaction: alone, and as the beginning of a search."""
    found = json.loads((ROOT / "benchmarks/results/first_stage.json").read_text())
    columns = [(what, k, b) for what in ("round one", "search") for k, b in ((10, 50), (10, 100), (100, 200))]
    told = {(cell["first"], cell["what"], cell["k"], cell["budget"]): cell["recall"] for cell in found["cells"]}
    lines = ["| `first=` | " + " | ".join(f"{what}, k={k}, B={b}" for what, k, b in columns) + " |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for stage in ("dense", "lexical", "union", "late"):
        lines.append(f"| {stage} | " + " | ".join(f"{told[stage, *column]:.3f}" for column in columns) + " |")
    return "\n".join(lines)


def words() -> str:
    """Recall without and with words as a coordinate."""
    columns = ((10, 20), (10, 50), (10, 100), (100, 200))
    lines = ["| world | items | index | " + " | ".join(f"k={k}, B={b}" for k, b in columns) + " |"]
    lines.append("|---" * (3 + len(columns)) + "|")
    for world in worded():
        told = {(row["index"], row["k"], row["budget"]): row for row in world["rows"]}
        for index in dict.fromkeys(row["index"] for row in world["rows"]):
            rows = [told[index, k, b] for k, b in columns]
            cells = [f"{row['without']:.3f} → {row['with']:.3f} {_interval(row)}" for row in rows]
            lines.append(f"| {world['world']} | {world['items']:,} | {index} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def worded() -> list[dict[str, Any]]:
    """The worlds of `words.py`."""
    found: list[dict[str, Any]] = json.loads((ROOT / "benchmarks/results/words.json").read_text())["worlds"]
    return found


def by_words() -> str:
    """How many of all cells words make better, and worse, beyond chance."""
    rows = [row for world in worded() for row in world["rows"]]
    better, worse = sum(row["low"] > 0 for row in rows), sum(row["high"] < 0 for row in rows)
    return f"Of {len(rows)} cells {better} are significantly better with words and {worse} worse."


def by_items() -> str:
    """Recall against the number of items, new weights, the same queries."""
    grown = _results("growth")
    sizes = sorted({point["items"] for world in grown for point in world["points"]})
    lines = [
        "| k = 10, B = 100 | | " + " | ".join(f"{size:,}" for size in sizes) + " |",
        "|---" * (2 + len(sizes)) + "|",
    ]
    for world in grown:
        for method in ("rnr", "crosscut", "crosscut, anchors"):
            name = method.replace("anchors", f"{world['anchor_queries']} anchor queries")
            found = {p["items"]: f"{p['recall']:.3f}" for p in world["points"] if _at(p, method, 10, 100)}
            lines.append(f"| {world['world']} | {name} | " + " | ".join(found.get(size, "") for size in sizes) + " |")
    return "\n".join(lines)


def _at(point: dict[str, Any], method: str, k: int, budget: int) -> bool:
    return (point["method"], point["k"], point["budget"]) == (method, k, budget)


def picture_by_items(path: Path) -> None:
    """Recall against the number of items: matrices of the new weights thinned out, and past searches at their size."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "learning"
    grown = _results("growth")
    learned = {world["world"]: world for world in worlds()}
    figure, both = pyplot.subplots(1, len(grown), figsize=(9, 3.7), sharey=True)
    for axes, world in zip(both, grown, strict=True):
        for method in ("crosscut, anchors", "crosscut", "rnr"):
            points = [p for p in world["points"] if _at(p, method, 10, 100)]
            spans = [[p["recall"] - p["low"] for p in points], [p["high"] - p["recall"] for p in points]]
            shown = [p["items"] for p in points], [p["recall"] for p in points]
            name = method.replace("anchors", f"{world['anchor_queries']} anchor queries")
            axes.errorbar(*shown, yerr=spans, marker="o", markersize=3, capsize=2, label=name)
        one = learned[world["world"]]
        for size in sizes_of(one):
            cell = cells(one["runs"][f"{size}/0"])[10, 100]
            spot = [one["items"]], [cell["after"]]
            axes.plot(*spot, "v", markersize=7, label=f"crosscut, {size:,} past searches")
        axes.set_xscale("log")
        axes.set_xlabel("items")
        axes.set_title(f"{world['world']}, k = 10, B = 100", fontsize=9)
        axes.legend(fontsize=6, loc="lower left")
    both[0].set_ylabel("recall")
    both[0].set_ylim(0.0, 1.0)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def picture(path: Path) -> None:
    """Recall at k = 10, B = 50 and misses that are gone, against the number of past searches; bars span the seeds."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    pyplot.rcParams["svg.hashsalt"] = "learning"
    figure, both = pyplot.subplots(1, 2, figsize=(9, 3.5))
    for axes, what, label in zip(both, ("after", "misses"), ("recall", "misses removed, share"), strict=True):
        for world in worlds():
            points = by_size(world, (10, 50), what)
            first = cells(next(iter(world["runs"].values())))[10, 50]["before"] if what == "after" else 0.0
            points = {0: [first], **points}
            means = [sum(values) / len(values) for values in points.values()]
            spans = [
                [max(0.0, mean - min(values)) for mean, values in zip(means, points.values(), strict=True)],
                [max(0.0, max(values) - mean) for mean, values in zip(means, points.values(), strict=True)],
            ]
            axes.errorbar(list(points), means, yerr=spans, marker="o", markersize=3, label=world["world"])
        axes.set_xlabel("past searches of 100 calls")
        axes.set_ylabel(f"{label}, k = 10, B = 50")
    both[0].legend(fontsize=6, loc="upper right")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    print(
        table(),
        growth(),
        shares(),
        spending(),
        exploring(),
        first_stages(),
        words(),
        by_words(),
        by_items(),
        sep="\n\n",
    )
    print("significantly worse:", worse() or "nowhere", failed() or "nowhere", hurt() or "nowhere")
    picture(ROOT / "docs/images/learning.svg")
    picture_by_items(ROOT / "docs/images/learning_items.svg")


if __name__ == "__main__":
    main()
