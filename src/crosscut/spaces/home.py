"""Which items belong together: lists of them, by their encoder vectors, whatever space is searched."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crosscut.types import NO_HANDLES, Mask, Positions


@dataclass(frozen=True, eq=False)
class Home:
    """Lists of items: first those that lie list by list, 0 … m − 1, then those of `order`, list by list too."""

    starts: Positions  # (lists + 1) where each list begins
    m: int
    order: Positions = field(default_factory=lambda: NO_HANDLES)

    @property
    def listed(self) -> int:
        """Items from this position on are in no list."""
        return self.m + len(self.order)

    @property
    def empty(self) -> Mask:
        """(lists) whether a list has no item."""
        return np.asarray(np.diff(self.starts) == 0)

    def members(self, lists: Positions) -> Positions:
        """The items of some lists."""
        parts = []
        for low, high in zip(self.starts[lists].tolist(), self.starts[lists + 1].tolist(), strict=True):
            parts.append(np.arange(low, high) if low < self.m else self.order[low - self.m : high - self.m])
        return np.concatenate(parts) if parts else NO_HANDLES

    def within(self, allowed: Positions) -> Home:
        """Lists of sorted items that are allowed, and of no others."""
        first = allowed[: np.searchsorted(allowed, self.m)]
        stays = np.isin(self.order, allowed)
        before = np.append(0, np.cumsum(stays))
        inside = np.searchsorted(first, np.minimum(self.starts, self.m))
        starts = inside + before[np.maximum(self.starts - self.m, 0)]
        return Home(starts, 0, np.concatenate([first, self.order[stays]]))

    def some(self, count: int) -> tuple[Positions, Positions]:
        """Up to `count` items of every list, spread over it; and the list of each."""
        sizes = np.diff(self.starts)
        taken = np.minimum(sizes, count)
        lists = np.repeat(np.arange(len(sizes)), taken)
        turn = np.arange(len(lists)) - np.repeat(np.cumsum(taken) - taken, taken)
        places = self.starts[lists] + turn * sizes[lists] // np.maximum(taken[lists], 1)
        items = places.copy()
        behind = places >= self.m
        items[behind] = self.order[places[behind] - self.m]
        return items, lists
