"""A batch of queries through the compiled search: what each must not find, what it begins with, and who works on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from crosscut.ann.ivf.layout import Layout, Single
from crosscut.ann.ivf.rules import Conditions
from crosscut.ann.results import NearestMany, each
from crosscut.ann.trail import Trail
from crosscut.errors import InputError
from crosscut.linalg.arrays import NOTHING, Ids, inside, joined
from crosscut.linalg.products import pool
from crosscut.threads import cores
from crosscut.types import Mask

if TYPE_CHECKING:
    from crosscut.ann.ivf.probing import Answers, Asked

BATCH = 1 << 23  # similarities to centroids held at a time: 32 MiB
DESCRIBED = 100  # closest centroids that the features of a forest look at


@dataclass(frozen=True)
class Restrictions:
    """What the queries of a batch must not find, all may find, and begin with: sorted places."""

    excluded: list[Ids]
    known: list[Ids]
    allowed: Ids
    closed: Mask | None  # (lists) no allowed vector in it; None: everything is allowed
    trails: Sequence[Trail] | None

    @classmethod
    def of(
        cls,
        layout: Layout,
        count: int,
        exclude: Sequence[npt.ArrayLike | None] | None = None,
        allow: npt.ArrayLike | None = None,
        trails: Sequence[Trail] | None = None,
    ) -> Restrictions:
        """From ids. What a trail begins with is not found a second time in its list."""
        allowed, closed = layout.allowed(allow)
        excluded = [np.sort(layout.places_of(ids)) for ids in each("sets of excluded ids", exclude, count)]
        known = [NOTHING] * count
        for j, trail in enumerate([] if trails is None else each("trails", trails, count)):
            begins = np.setdiff1d(layout.places_of(trail.ids), excluded[j])
            known[j] = begins if closed is None else begins[inside(begins, allowed)]
            excluded[j] = np.sort(np.concatenate([excluded[j], known[j]]))
        return cls(excluded, known, allowed, closed, trails)

    def asked(self, layout: Layout, queries: Single, rows: slice) -> Asked:
        """Some of the queries for the compiled search, with the lists that they may visit."""
        from crosscut.ann.ivf.probing import Asked

        near = layout.similarities(queries[rows])  # (b × lists)
        if self.closed is not None:
            near[:, self.closed] = -np.inf
        if self.trails is not None:
            for trail, row, query in zip(self.trails[rows], near, queries[rows], strict=True):
                trail.close(row, query)
        parts = (*joined(self.excluded[rows]), *joined(self.known[rows]), self.allowed, self.closed is not None)
        return Asked(queries[rows], near, *parts)


def search(
    layout: Layout,
    queries: Single,
    k: int,
    stop: Conditions,
    restrictions: Restrictions,
    threads: int | None = None,
    traced: bool = False,
) -> tuple[NearestMany, Single]:
    """The k closest vectors of every query, and what every list did (q × N × 4) if `traced`: see `deciding`."""
    from crosscut.ann.ivf.probing import Answers

    count = len(queries)
    if stop.learned:
        _check_features(stop, layout.d)
    answers = Answers(
        np.full((count, k), -np.inf, dtype=np.float32),
        np.full((count, k), -1, dtype=np.int64),
        np.zeros((count, 2), dtype=np.int64),
        np.zeros((count, stop.lists, 4) if traced else (0, 0, 4), dtype=np.float32),
    )
    step = max(1, BATCH // len(layout.centroids))
    for low in range(0, count, step):
        rows = slice(low, min(low + step, count))
        asked = restrictions.asked(layout, queries, rows)
        here = Answers(answers.scores[rows], answers.places[rows], answers.costs[rows], answers.traces[rows])
        _probe(layout, asked, stop, here, 1 if count == 1 else threads or cores())
        if layout.guard is not None or restrictions.trails is not None:
            for j, (near, probed) in enumerate(zip(asked.similarities, here.costs[:, 0].tolist(), strict=True), low):
                lists = np.argpartition(-near, probed - 1)[:probed] if probed else NOTHING
                layout.ready(lists)
                if restrictions.trails is not None:
                    restrictions.trails[j].mark(lists)
    ids = np.full((count, k), -1, dtype=np.int64)
    found = answers.places >= 0
    ids[found] = layout.ids[answers.places[found]]
    return NearestMany(ids, answers.scores, answers.costs[:, 0], answers.costs[:, 1]), answers.traces


def _probe(layout: Layout, asked: Asked, stop: Conditions, answers: Answers, workers: int) -> None:
    """Share the queries out. Neighbours in turn visit the same lists, which then still are in the processor's cache."""
    from crosscut.ann.ivf.probing import probe_all

    near = asked.similarities
    width = min(max(stop.lists, DESCRIBED if stop.learned else 0), near.shape[1])
    turns = np.argsort(near.argmax(axis=1), kind="stable") if len(near) > 1 else np.zeros(1, dtype=np.int64)

    def work(part: Ids) -> None:
        probe_all(part, asked, layout.stored, stop, width, answers)

    if workers == 1:
        work(turns)
    else:
        list(pool().map(work, np.array_split(turns, min(len(turns), 4 * workers))))


def _check_features(stop: Conditions, d: int) -> None:
    """Refuse forests that ask for features which vectors of d dimensions do not have."""
    from crosscut.ann.ivf.deciding import features_of

    asks = max(int(trees.feature.max(initial=-1)) for trees in (stop.classifier, stop.regression))
    if asks >= features_of(d, stop.tau):
        raise InputError(
            f"this exit rule asks for feature {asks} of {features_of(d, stop.tau)}: it was learned on vectors of "
            f"another number of dimensions than {d}; tune the index anew"
        )
