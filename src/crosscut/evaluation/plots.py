"""Pictures of a replay. Needs matplotlib: `pip install 'crosscut[plots]'`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.errors import needing
from crosscut.evaluation.judged import Judged
from crosscut.evaluation.replay import Report
from crosscut.evaluation.world import World
from crosscut.methods import Method
from crosscut.search.hits import Hits

COLOURS = ("#1b6ca8", "#d1495b", "#66a182", "#edae49", "#8d5a97", "#2e4057", "#00798c", "#b5651d", "#777777")


def library() -> tuple[Any, Any]:
    """What draws; asked for before a long replay, whose plots would be missed at its end."""
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


def measures_against_calls(records: Sequence[Judged], path: str | Path) -> None:
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


def recall_against_rounds(reports: dict[int, Report], path: str | Path) -> None:
    """One panel per k and budget: recall over the number of rounds (ADACUR fig. 3)."""
    some = next(iter(reports.values()))
    panels = sorted({(r.k, r.budget) for r in some.records})
    methods = list(dict.fromkeys(r.method for r in some.records))
    figure, axes = _figure(3.8 * len(panels), 3.4, columns=len(panels))
    for axis, (k, budget) in zip(axes[0], panels, strict=True):
        for method, colour in zip(methods, _colours(methods), strict=True):
            rounds = sorted(reports)
            values = [reports[r].get(method, k, budget) for r in rounds]
            axis.plot(rounds, [v.recall for v in values], marker="o", ms=4, color=colour, label=method)
            axis.fill_between(rounds, [v.low for v in values], [v.high for v in values], color=colour, alpha=0.15)
        axis.set(title=f"k = {k}, B = {budget}", xlabel="rounds", xscale="log")
        axis.set_xticks(sorted(reports), [str(r) for r in sorted(reports)])
        axis.minorticks_off()
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("Top-k-Recall")
    axes[0][-1].legend(fontsize=8)
    figure.savefig(path, dpi=140)


def approximate_against_exact(exact: Any, hits: Hits, path: str | Path, *, k: Sequence[int] = (1, 10, 100)) -> None:
    """One panel per round: predicted against exact scores of all items, what was scored marked (ADACUR fig. 11)."""
    rounds = [r for r in hits.trace if r.predictions is not None]
    rounds = rounds if len(rounds) <= 5 else [rounds[j] for j in np.linspace(0, len(rounds) - 1, 5).astype(int)]
    exact = np.asarray(exact, dtype=np.float64)
    ranked = np.sort(exact)[::-1]
    figure, axes = _figure(3.2 * max(len(rounds), 1), 3.4, columns=max(len(rounds), 1))
    for axis, now in zip(axes[0], rounds, strict=False):
        number = next(j for j, r in enumerate(hits.trace) if r is now)
        before = np.concatenate([r.positions for r in hits.trace[:number]] or [np.empty(0, dtype=np.int64)])
        assert now.predictions is not None
        axis.scatter(exact, now.predictions, s=4, color="#bbbbbb", label="all items", linewidths=0)
        axis.scatter(exact[now.positions], now.predictions[now.positions], s=14, color="#d1495b", label="picked now")
        axis.scatter(exact[before], now.predictions[before], s=10, color="#1b6ca8", label="scored before")
        for size in k:
            if size <= len(ranked):
                axis.axvline(ranked[size - 1], color="#2e4057", lw=0.6, ls="--")
                axis.text(
                    ranked[size - 1],
                    1.01,
                    f"{size}",
                    transform=axis.get_xaxis_transform(),
                    fontsize=7,
                    ha="center",
                )
        axis.set(xlabel="exact score")
        axis.set_title(f"round {number + 1}, {len(before)} scored", fontsize=9, pad=14)
        axis.grid(alpha=0.2)
    axes[0][0].set_ylabel("predicted score")
    axes[0][-1].legend(fontsize=7, loc="lower right")
    figure.savefig(path, dpi=140)


def time_split(rows: Sequence[dict[str, Any]], path: str | Path) -> None:
    """Stacked bars: seconds per query in the scorer, the fit and the selection (ADACUR fig. 4, AXN fig. 5).

    Each row holds `label` and `seconds` with the keys scorer, fit and select.
    """
    figure, axes = _figure(max(5.0, 0.75 * len(rows) + 2), 3.6)
    axis = axes[0][0]
    bottom = np.zeros(len(rows))
    for part, colour in (("scorer", "#1b6ca8"), ("fit", "#d1495b"), ("select", "#edae49")):
        values = np.array([row["seconds"][part] for row in rows])
        axis.bar(range(len(rows)), values, bottom=bottom, color=colour, label=part, width=0.7)
        bottom += values
    for j, row in enumerate(rows):
        outside = row["seconds"]["fit"] + row["seconds"]["select"]
        if bottom[j]:
            axis.text(j, bottom[j], f"{100 * outside / bottom[j]:.1f} %", ha="center", va="bottom", fontsize=8)
    axis.set_ylim(0, 1.12 * max(bottom.max(), 1e-12))
    axis.set_xticks(range(len(rows)), [row["label"] for row in rows], rotation=30, ha="right", fontsize=8)
    axis.set(ylabel="seconds per query", title="time per query; the figure is the share outside the scorer")
    axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, dpi=140)


def spectrum_plot(spectra: dict[str, Sequence[float]], path: str | Path) -> None:
    """Singular values, relative to the first, on a log scale (of what ANNCUR table 3b counts)."""
    figure, axes = _figure(5, 3.6)
    for (name, values), colour in zip(spectra.items(), COLOURS, strict=False):
        relative = np.asarray(values) / max(values[0], 1e-300)
        axes[0][0].plot(range(1, len(relative) + 1), relative, color=colour, label=name)
    axes[0][0].set(yscale="log", xlabel="direction", ylabel="singular value / first")
    axes[0][0].legend(fontsize=8)
    axes[0][0].grid(alpha=0.25)
    figure.savefig(path, dpi=140)


def rounds_of_one_query(world: World, method: Method, query: int, budget: int, path: str | Path) -> None:
    """Search one test query and draw its rounds."""
    searcher = world.searcher(method)
    vector = None if world.query_vectors is None or world.vectors is None else world.query_vectors[query]
    hits = searcher.search(query, 10, budget, query_vector=vector, trace=True)
    approximate_against_exact(world.test[query], hits, path)


def _colours(methods: Sequence[str]) -> list[str]:
    return [COLOURS[j % len(COLOURS)] for j in range(len(methods))]


def points(records: Sequence[dict[str, Any]], title: str, path: str | Path) -> None:
    """One panel a method: `recall`, here an approximate score, over `x`, the exact one; anchor items in blue."""
    methods = list(dict.fromkeys(record["method"] for record in records))
    columns = min(4, len(methods))
    figure, axes = _figure(3.2 * columns, 2.9 * -(-len(methods) // columns), columns, -(-len(methods) // columns))
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


def lines(records: Sequence[dict[str, Any]], title: str, path: str | Path) -> None:
    """One panel per k: `recall` over `x`, a line a method, with its interval where a record has one."""
    ks = sorted({record["k"] for record in records})
    methods = list(dict.fromkeys(record["method"] for record in records))
    figure, axes = _figure(4.6 * len(ks) + 1.2, 3.8, columns=len(ks))
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
