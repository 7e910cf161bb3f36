"""Plots of a replay and of an evaluation. Needs matplotlib: `pip install 'crosscut[plots]'`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crosscut.errors import needing
from crosscut.evaluation.evaluate import Measurement
from crosscut.evaluation.replay import Report

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d5a97", "#2e4057", "#00798c", "#b5651d", "#777777")


def library() -> tuple[Any, Any]:
    """Import matplotlib; call it before a long replay, so that a missing package is an error at the start."""
    with needing("plots need matplotlib", "plots"):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    return Figure, FigureCanvasAgg


def _figure(width: float, height: float, columns: int = 1, rows: int = 1) -> Any:
    Figure, FigureCanvasAgg = library()
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False)


def recall_against_budget(report: Report, path: str | Path) -> None:
    """One panel per k: recall over the budget, a line per method with its interval."""
    ks = sorted({record.k for record in report.records})
    methods = list(dict.fromkeys(record.method for record in report.records))
    figure, axes = _figure(4.2 * len(ks), 3.6, columns=len(ks))
    for axis, k in zip(axes[0], ks, strict=True):
        for method, colour in zip(methods, _colours(methods), strict=True):
            points = sorted((r for r in report.records if r.method == method and r.k == k), key=lambda r: r.budget)
            budgets = [r.budget for r in points]
            axis.plot(budgets, [r.recall for r in points], marker="o", ms=4, color=colour, label=method)
            axis.fill_between(budgets, [r.low for r in points], [r.high for r in points], color=colour, alpha=0.15)
        axis.set(title=f"k = {k}", xlabel="budget (calls per query)", xscale="log")
        ticks = sorted({r.budget for r in report.records})
        axis.set_xticks(ticks, [str(t) for t in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("Top-k-Recall")
    axes[0][-1].legend(fontsize=8)
    figure.savefig(path, dpi=140)


def measures_against_calls(records: Sequence[Measurement], path: str | Path) -> None:
    """One panel per measure: its value over the calls made, a line per method with its interval.

    What there is without a call is a level line, with its interval as a band.
    """
    measures = list(dict.fromkeys(record.measure for record in records))
    methods = list(dict.fromkeys(record.method for record in records))
    figure, axes = _figure(4.4 * len(measures) + 1.4, 3.6, columns=len(measures))
    for axis, measure in zip(axes[0], measures, strict=True):
        for method, colour in zip(methods, _colours(methods), strict=True):
            points = sorted((r for r in records if (r.method, r.measure) == (method, measure)), key=lambda r: r.calls)
            if not points:
                continue
            calls = [r.calls for r in points]
            if not calls[-1]:
                axis.axhline(points[0].value, color=colour, ls="--", lw=1, label=f"{method}, no call")
                axis.axhspan(points[0].low, points[0].high, color=colour, alpha=0.06)
                continue
            axis.plot(calls, [r.value for r in points], marker="o", ms=4, color=colour, label=method)
            axis.fill_between(calls, [r.low for r in points], [r.high for r in points], color=colour, alpha=0.15)
        ticks = sorted({round(r.calls) for r in records if r.calls})
        axis.set(title=measure, xlabel="calls per query", xscale="log")
        axis.set_xticks(ticks, [str(tick) for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0][-1].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=140)


def _colours(methods: Sequence[str]) -> list[str]:
    return [COLOURS[j % len(COLOURS)] for j in range(len(methods))]
