"""Reports as tables for people and JSON for programs."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from crosscut.evaluation.replay import Report


def recall_table(report: Report) -> Table:
    """Recall of every method; one column per k and budget, the best of each in bold."""
    columns = list(dict.fromkeys((record.k, record.budget) for record in report.records))
    columns.sort()
    rows = list(dict.fromkeys(record.method for record in report.records))
    table = Table(title="Top-k-Recall at a budget of calls per query", caption=_caption(report))
    table.add_column("method")
    for k, budget in columns:
        table.add_column(f"k={k}\nB={budget}", justify="right")
    found = {(r.method, r.k, r.budget): r for r in report.records}
    best = {column: max(record.recall for key, record in found.items() if key[1:] == column) for column in columns}
    for method in rows:
        cells = []
        for column in columns:
            record = found.get((method, *column))
            if record is None:
                cells.append("–")
                continue
            text = f"{record.recall:.3f}"
            half = (record.high - record.low) / 2
            text = f"[bold]{text}[/bold]" if record.recall == best[column] else text
            cells.append(f"{text}\n[dim]±{half:.3f}[/dim]")
        label = f"{method} (oracle split)" if _oracle(report, method) else method
        table.add_row(label, *cells)
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
