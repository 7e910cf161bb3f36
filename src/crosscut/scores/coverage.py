"""What a store holds, and at what pace it is filled."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from crosscut.scores.records import Damage
from crosscut.scores.sources import Source


@dataclass(frozen=True)
class Coverage:
    """What a store holds; `known` of `pairs` when it was asked about queries and items."""

    scorer: str
    scores: int
    queries: int
    blocks: int
    matrices: int
    bytes: int
    damaged: list[Damage] = field(default_factory=list)
    pairs: int | None = None
    known: int | None = None
    pairs_per_second: float | None = None

    @property
    def missing(self) -> int | None:
        return None if self.pairs is None or self.known is None else self.pairs - self.known

    @property
    def seconds_left(self) -> float | None:
        """At the pace of the latest blocks."""
        if self.missing is None or not self.pairs_per_second:
            return None
        return self.missing / self.pairs_per_second


def bytes_of(folder: Path) -> int:
    """Of all files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # consolidated while we look
            total += path.stat().st_size if path.is_file() else 0
    return total


def pace(sources: Sequence[Source], window: float = 300.0, pause: float = 10.0) -> float | None:
    """Pairs a second over the last minutes, back to the last pause."""
    blocks = sorted((source for source in sources if source.seconds > 0), key=lambda source: -source.written)
    if not blocks:
        return None
    ended = begun = blocks[0].written
    pairs = 0
    for block in blocks:
        if block.written < max(begun - pause, ended - window):
            break
        begun = min(begun, block.written - block.seconds)
        pairs += block.pairs
    return pairs / max(ended - begun, 1e-9)
