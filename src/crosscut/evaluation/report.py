"""Reports as tables for people and JSON for programs."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from crosscut.evaluation.replay import Report


def recall_tables(report: Report) -> list[Table]:
    """Recall of every method, a table for each k: one column per budget, the best of each in bold."""
    return [_recall_table(report, k) for k in sorted({record.k for record in report.records})]


def _recall_table(report: Report, k: int) -> Table:
    found = {(r.method, r.budget): r for r in report.records if r.k == k}
    budgets = sorted({budget for _, budget in found})
    best = {size: max(r.recall for (_, budget), r in found.items() if budget == size) for size in budgets}
    table = Table(title=f"share of the top {k} found", caption=_caption(report))
    table.add_column("method", overflow="fold")
    for budget in budgets:
        table.add_column(f"{budget} calls", justify="right", no_wrap=True)
    for method in dict.fromkeys(method for method, _ in found):
        cells = []
        for budget in budgets:
            record = found[method, budget]
            text = f"{record.recall:.3f}"
            text = f"[bold]{text}[/bold]" if record.recall == best[budget] else text
            cells.append(f"{text} [dim]±{(record.high - record.low) / 2:.3f}[/dim]")
        table.add_row(f"{method} (oracle split)" if _oracle(report, method) else method, *cells)
    return table


def _oracle(report: Report, method: str) -> bool:
    return any(r.settings.get("split_chosen_by") == "oracle" for r in report.records if r.method == method)


def _caption(report: Report) -> str:
    queries = max((record.queries for record in report.records), default=0)
    seeds = max((record.seeds for record in report.records), default=0)
    several = f"up to {seeds} seeds" if seeds > 1 else "1 seed"
    return f"{queries} test queries, {several}; ± half of the 95 % interval over queries"


def machine() -> dict[str, Any]:
    """What the figures depend on: versions and processor, no paths and no names."""
    import scipy

    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "system": platform.system(),
        "processor": _processor(),
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
