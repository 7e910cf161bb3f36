"""Plots of records. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crosscut.errors import needing

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d5a97", "#2e4057", "#00798c", "#b5651d", "#777777")


def figure_of(width: float, height: float, columns: int = 1, rows: int = 1) -> Any:
    """Return a figure without a display, and its axes (rows × columns)."""
    with needing("plots need matplotlib", "plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def draw(records: Sequence[dict[str, Any]], title: str, path: str | Path) -> None:
    """Draw single items as points, everything else as lines."""
    (points if "anchor" in records[0] else lines)(records, title, path)


def lines(records: Sequence[dict[str, Any]], title: str, path: str | Path) -> None:
    """One panel per k: `recall` over `x`, a line a method, with its interval where a record has one."""
    ks = sorted({record["k"] for record in records})
    methods = list(dict.fromkeys(record["method"] for record in records))
    figure, axes = figure_of(4.6 * len(ks) + 1.2, 3.8, columns=len(ks))
    for axis, k in zip(axes[0], ks, strict=True):
        for method, colour in zip(methods, _colours(methods), strict=True):
            points = sorted((r for r in records if (r["method"], r["k"]) == (method, k)), key=lambda r: r["x"])
            xs = [r["x"] for r in points]
            axis.plot(xs, [r["recall"] for r in points], marker="o", ms=3, color=colour, label=method)
            if points and "low" in points[0]:
                axis.fill_between(xs, [r["low"] for r in points], [r["high"] for r in points], color=colour, alpha=0.1)
        axis.set(title=f"k = {k}" if k else title)
        axis.grid(alpha=0.25)
    figure.suptitle(title, fontsize=10)
    axes[0][-1].legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=140)


def points(records: Sequence[dict[str, Any]], title: str, path: str | Path) -> None:
    """One panel a method: `recall`, here an approximate score, over `x`, the exact one; anchor items in blue."""
    methods = list(dict.fromkeys(record["method"] for record in records))
    columns = min(4, len(methods))
    figure, axes = figure_of(3.2 * columns, 2.9 * -(-len(methods) // columns), columns, -(-len(methods) // columns))
    for axis, method in zip(axes.ravel(), methods, strict=False):
        for known, colour in ((False, "tab:grey"), (True, "tab:blue")):
            some = [one for one in records if one["method"] == method and one["anchor"] is known]
            axis.scatter([one["x"] for one in some], [one["recall"] for one in some], s=5, color=colour)
        axis.set_title(method, fontsize=8)
        axis.grid(alpha=0.25)
    for axis in axes.ravel()[len(methods) :]:
        axis.set_axis_off()
    figure.supxlabel("exact score", fontsize=9)
    figure.supylabel("approximate score", fontsize=9)
    figure.suptitle(title, fontsize=10)
    figure.savefig(path, dpi=140)


def _colours(methods: Sequence[str]) -> list[str]:
    return [COLOURS[j % len(COLOURS)] for j in range(len(methods))]
