"""Which items belong together: lists of them, by their encoder vectors, whatever space is searched."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crosscut.types import NO_HANDLES, Mask, Positions


@dataclass(frozen=True, eq=False)
class Home:
    """Lists of items, and items that are in none."""

    starts: Positions  # (lists + 1) where each list begins
    order: Positions  # (m) the items, list by list
    rest: Positions = field(default_factory=lambda: NO_HANDLES)  # sorted

    @classmethod
    def of(cls, list_of: Positions, lists: int) -> Home:
        """From the list of every item (n); −1 for those in none."""
        order = np.argsort(list_of, kind="stable")
        starts = np.searchsorted(list_of[order], np.arange(lists + 1)).astype(np.int64)
        return cls(starts - starts[0], order[starts[0] :], np.sort(order[: starts[0]]))

    @property
    def empty(self) -> Mask:
        """(lists) whether a list has no item."""
        return np.asarray(np.diff(self.starts) == 0)

    def members(self, lists: Positions) -> Positions:
        """The items of some lists."""
        bounds = zip(self.starts[lists].tolist(), self.starts[lists + 1].tolist(), strict=True)
        return np.concatenate([NO_HANDLES, *(self.order[low:high] for low, high in bounds)])

    def within(self, allowed: Positions) -> Home:
        """Lists of sorted items that are allowed, and of no others."""
        stays = np.isin(self.order, allowed)
        before = np.append(0, np.cumsum(stays))
        return Home(before[self.starts], self.order[stays], self.rest[np.isin(self.rest, allowed)])

    def some(self, count: int) -> tuple[Positions, Positions]:
        """Up to `count` items of every list, spread over it; and the list of each."""
        sizes = np.diff(self.starts)
        taken = np.minimum(sizes, count)
        lists = np.repeat(np.arange(len(sizes)), taken)
        turn = np.arange(len(lists)) - np.repeat(np.cumsum(taken) - taken, taken)
        return self.order[self.starts[lists] + turn * sizes[lists] // np.maximum(taken[lists], 1)], lists
