"""Time rivals in turns: a machine whose speed drifts slows all of them alike."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

FIRST_VERSION = "06db54a"
"""The revision of this repository that had the first version whole."""


def in_turns(
    work: Mapping[str, Callable[[], Any]], repeats: int, *, fewer: Mapping[str, int] | None = None, warm: bool = True
) -> dict[str, list[float]]:
    """Seconds of several runs of each, one after the other in turn.

    With `warm`, a first round is not counted; who has `fewer` runs than `repeats` is not in it.
    """
    most = fewer or {}
    times: dict[str, list[float]] = {name: [] for name in work}
    for repeat in range(-1 if warm else 0, repeats):
        for name, run in work.items():
            if name in most and not 0 <= repeat < most[name]:
                continue
            started = time.perf_counter()
            run()
            if repeat >= 0:
                times[name].append(time.perf_counter() - started)
    return times


def spread(values: list[float]) -> dict[str, float]:
    """Median and range."""
    return {"median": float(np.median(values)), "low": min(values), "high": max(values), "runs": len(values)}


def checked_out(revision: str, folder: Path) -> Path:
    """The package as it was at a revision of this repository: its `src`, unpacked into a folder."""
    here = Path(__file__).parent.parent
    packed = subprocess.run(["git", "archive", revision, "src"], check=True, capture_output=True, cwd=here).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], check=True, input=packed)
    return folder / "src"
