"""Rounds by lists over whatever is searched: anchor scores, factors, a stacked space, a base per item.

Items lie in lists of near ones, made by k-means of their encoder vectors (`crosscut.spaces.home`). What is alike in
the encoder's space is mostly alike in the scorer's, so the same lists serve every space that is made of these items:
nothing is laid out a second time. A list's centre is the mean of some of its items *in the space that is searched*,
their base included. A round begins with what the one before found and did not score, and reads lists in order of what
their centres predict, `TOGETHER` at a time, until so many in a row bring nothing into the best. Lists that an earlier
round has read are read again: u moves far in the first rounds, and of 117,659 WordNet synsets rounds that passed by
what was visited found .45 of the best, these .56, and flat ones .57.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from crosscut.ann.baseline import Baseline
from crosscut.ann.flat import WILD, rerank
from crosscut.ann.topk import Allowed, Ask, Found, OfRows
from crosscut.linalg.arrays import inside
from crosscut.linalg.products import share
from crosscut.linalg.top import best, slack_for
from crosscut.spaces.base import Space
from crosscut.spaces.home import Home
from crosscut.types import NO_HANDLES, Floats, Handles, Positions

TOGETHER = 16  # lists read at a time
DESCRIBED = 32  # items of a list that its centre is the mean of
READ = 1 << 13  # items whose vectors are read at a time for that


class Lists(OfRows):
    """base + V u of any space whose items lie in lists."""

    exact = False

    def __init__(
        self, space: Space, base: Baseline, home: Home, *, together: int = TOGETHER, all_lists: bool = False
    ) -> None:
        super().__init__(space)
        self.space, self.base, self.home = space, base, home
        self._together, self._all = together, all_lists
        self._last: tuple[Handles, Home] | None = None  # a filter, and the lists of what it lets through

    @cached_property
    def centres(self) -> tuple[npt.NDArray[np.float32], Floats]:
        """Of every list the mean vector (lists × d) and the mean base (lists), of some of its items."""
        places, lists = self.home.some(DESCRIBED)
        count = len(self.home.starts) - 1
        total, level = np.zeros((count, self.d)), np.zeros(count)
        for start in range(0, len(places), READ):
            here, of = places[start : start + READ], lists[start : start + READ]
            edges = np.flatnonzero(np.append(True, np.diff(of) > 0))
            total[of[edges]] += np.add.reduceat(self.space.rows(here), edges)
            level[of[edges]] += np.add.reduceat(np.broadcast_to(self.base.at(here), here.shape), edges)
        sizes = np.maximum(np.bincount(lists, minlength=count), 1)
        return (total / sizes[:, None]).astype(np.float32), level / sizes

    def top(self, asks: Sequence[Ask]) -> list[Found]:
        self.centres  # noqa: B018  (once, before threads share them)
        return share(self._one, asks)

    def _one(self, ask: Ask) -> Found:
        home = self.home if ask.allowed is None else self._narrowed(ask.allowed)
        return _Round(self, ask, home).run(self._all, self._together)

    def _narrowed(self, within: Allowed) -> Home:
        last = self._last
        if last is None or last[0] is not within:  # the rounds of a search ask with one filter
            last = self._last = within, self.home.within(within)
        return last[1]


class _Round:
    """One ask."""

    def __init__(self, lists: Lists, ask: Ask, home: Home) -> None:
        self.lists, self.ask, self.home = lists, ask, home
        largest = float(np.abs(ask.vector).max(initial=0.0))
        self.scale = largest if largest > WILD else 1.0  # a wild u must not overflow the space's precision
        self.places = NO_HANDLES  # the best so far
        self.values: Floats = np.empty(0)
        self.wanted = ask.count + slack_for(ask.count)

    def run(self, everything: bool, together: int) -> Found:
        """Lists in order of what their centres predict, until some in a row bring nothing; or all of them."""
        ask = self.ask
        begins = ask.start[~np.isin(ask.start, ask.exclude)]
        gone = np.union1d(ask.exclude, begins)
        self._offer(begins)
        self._offer(_without(self.home.rest, gone))
        near = self._near()
        order = np.argsort(-near, kind="stable")[: int(np.count_nonzero(near > -np.inf))]
        done = 0
        while done < len(order):
            chunk = order[done : done + together]
            stays = self._offer(_without(self.home.members(chunk), gone))
            done += len(chunk)
            if stays and not everything and len(self.places) >= ask.count and done > together:
                break
        return self._best()

    def _near(self) -> npt.NDArray[np.float32]:
        """(lists) what the centres predict; −inf for lists that are not to be visited."""
        centres, level = self.lists.centres
        near = centres @ (self.ask.vector / self.scale).astype(np.float32)
        near += (level / self.scale).astype(np.float32)
        near[self.home.empty] = -np.inf
        return np.asarray(near)

    def _offer(self, places: Positions) -> bool:
        """Take the best of some items in; whether the best `count` stay as they were."""
        if not len(places):
            return True
        values = self.lists.space.at(places, self.ask.vector / self.scale).astype(np.float64)
        values = values * self.scale + self.ask.base.at(places)
        floor = -np.inf
        if len(self.values) >= self.ask.count:
            floor = np.partition(self.values, len(self.values) - self.ask.count)[len(self.values) - self.ask.count]
        stays = not bool((~(values <= floor)).any())
        self.places = np.concatenate([self.places, places])
        self.values = np.concatenate([self.values, values])
        keep = best(self.values, self.wanted)
        self.places, self.values = self.places[keep], self.values[keep]
        return stays

    def _best(self) -> Found:
        """The best in float64, ties to the lower position; the next round begins with what is left over (`rest`)."""
        return rerank(self.lists.space, self.ask.vector, np.sort(self.places), self.ask.base, self.ask.count)


def _without(places: Positions, gone: Positions) -> Positions:
    return places[~inside(places, gone)] if len(gone) else places
