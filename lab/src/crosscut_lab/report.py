"""Records: how they are made, printed and written."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import typer

from crosscut.errors import InputError
from crosscut.measures import interval
from crosscut.types import Floats

Records: TypeAlias = list[dict[str, Any]]
"""Flat dictionaries of numbers and names, ready for JSON, a table and a plot."""


def record(method: str, k: int, x: float, values: Floats, **more: Any) -> dict[str, Any]:
    """Return the mean of per-query values with its 95 % interval."""
    low, high = interval(values)
    return {"method": method, "k": k, "x": x, "recall": float(values.mean()), "low": low, "high": high, **more}


def machine() -> dict[str, Any]:
    """Return what timings depend on: versions and processor, no paths and no names."""
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


def numbers(text: str) -> tuple[int, ...]:
    """Return the whole numbers of a comma-separated option."""
    try:
        return tuple(int(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{text!r} is not a comma-separated list of whole numbers") from None


def rounded(value: Any, digits: int = 4) -> Any:
    """Round the floats of a JSON value, which halves its size."""
    if isinstance(value, Mapping):
        return {key: rounded(one, digits) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(one, digits) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def write(path: Path, facts: Mapping[str, Any]) -> None:
    """Write a result: one line a record, so that a diff shows what changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = {name: value for name, value in facts.items() if name != "records"}
    lines = [json.dumps(rounded(one), ensure_ascii=False) for one in facts.get("records", [])]
    body = json.dumps(rounded(head), ensure_ascii=False, indent=1)[:-2]
    body += ',\n "records": [\n  ' + ",\n  ".join(lines) + "\n ]\n}\n" if lines else "\n}\n"
    path.write_text(body, encoding="utf-8")


def say(text: str) -> None:
    """Print a message to standard error."""
    typer.echo(text, err=True)


def markdown(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table."""
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(cell(value) for value in row) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def cell(value: Any) -> str:
    """Return one value as it is shown in a table."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def curves(records: Records, most: int = 8) -> str:
    """Return records as a table: a row a method and k, a column an x; long curves are thinned."""
    xs = sorted({one["x"] for one in records})
    if len(xs) > most:
        xs = xs[:: -(-len(xs) // most)]
    found = {(one["method"], one["k"], one["x"]): one["recall"] for one in records}
    keys = dict.fromkeys((one["method"], one["k"]) for one in records)
    rows = [(method, k, *(found.get((method, k, x)) for x in xs)) for method, k in keys]
    return markdown(("method", "k", *(f"{x:g}" for x in xs)), rows)
