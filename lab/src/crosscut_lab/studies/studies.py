"""The studies: what is varied, on every matrix.

| study | question |
|---|---|
| rivals | which method finds most at equal calls, rivals tuned on train queries? |
| readme | the table and the picture of the README |
| learning | what do past searches teach, by their number? |
| exploring | does a log that also explored teach more? |
| anchors-share | anchor scores on a part of the items: are the others found? |
| spending | C calls for train queries: searches, or anchor scores? |
| growth | recall as the number of items grows |
| first-stage | round one by vectors, lexical, both in turn |
| in-flight | what does it cost that a round is no smaller than what a scorer answers at once? |
| stopping | calls saved by stopping rules, and recall lost |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crosscut.errors import InputError
from crosscut.evaluation.replay import ScoreData, tuned_axn
from crosscut.methods import AXN, parse
from crosscut.methods.learning import learn
from crosscut.search.prior import Past
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.extension import extended_scores, extension_error
from crosscut.types import Array
from crosscut_lab.matrices import Matrix
from crosscut_lab.studies.harness import Arm, Cell, compare, tuned

ANCHORS = 40
TUNING = 40
CALLS = 100  # of a past search
RIVALS = ("rerank", "tour", "gar", "rgs", "gp", "qdrant-feedback")
CELLS: tuple[Cell, ...] = tuple((k, budget) for budget in (20, 50, 100, 200) for k in (1, 10, 100) if k <= budget)
FEW: tuple[Cell, ...] = tuple((k, budget) for budget in (5, 10, 15, 20, 30, 50) for k in (1, 10) if k <= budget)


def plain(matrix: Matrix) -> ScoreData:
    """Return the data set without anchor scores."""
    return replace(matrix.data, anchors=None, anchor_query_vectors=None)


def anchored(matrix: Matrix, count: int = ANCHORS) -> ScoreData:
    """Return the data set with the first anchor queries alone."""
    anchors = matrix.data.anchors
    if anchors is None:
        raise InputError(f"{matrix.name} has no scores of train queries")
    return replace(matrix.data, anchors=np.asarray(anchors)[:count], anchor_query_vectors=None)


def searched(matrix: Matrix, method: str = "crosscut", seed: int = 0, most: float = 1.0) -> list[Past]:
    """Return searches of the train queries as a log; drawn items count 1 / chance times, at most `most`."""
    asked, anchors = matrix.vectors()[2], matrix.data.anchors
    if anchors is None:
        raise InputError(f"{matrix.name} has no scores of train queries")
    data = replace(plain(matrix), test=anchors, query_vectors=asked, words=None, item_scores=None, item_anchors=None)
    log = []
    hits = data.search(Arm("", method, data).searcher(seed), 10, min(CALLS, matrix.n))
    for row, vector, found in zip(anchors, asked, hits, strict=True):
        weights = None
        if most > 1:
            chances = [np.ones(len(one.scores)) if one.chances is None else one.chances for one in found.trace]
            weights = np.minimum(1 / np.concatenate(chances), most)
        scored = np.asarray(found.scored)
        log.append(Past(vector.astype(np.float64), scored, row[scored].astype(np.float64), weights))
    return log


def rivals(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    data, space = plain(matrix), matrix.vectors()[0]
    yield Arm("crosscut", "crosscut", data)
    log = matrix.past or searched(matrix)
    yield Arm("crosscut, learned", "crosscut", replace(data, prior=learn(log, space, n=matrix.n).prior))
    anchors, _, asked = matrix.data.anchors, *matrix.vectors()[1:]
    tuning = None
    if anchors is not None:
        tuning = replace(data, test=np.asarray(anchors)[:TUNING], query_vectors=asked[:TUNING], words=None)
    for name in RIVALS:
        method = parse(name)
        yield Arm(name, method if tuning is None else tuned(tuning, method, jointly=name == "qdrant-feedback"), data)
    yield Arm("axn, raw", "axn", data)
    if anchors is not None and tuning is not None:
        known = replace(matrix.data, anchors=np.asarray(anchors)[:TUNING], anchor_query_vectors=asked[:TUNING])
        both = [tuned_axn(known, AXN(rounds=rounds), 10, [100]) for rounds in (5, 10)]
        best = max(both, key=lambda one: Arm("", one, tuning).run([(10, 100)])[0][10, 100].mean())
        yield Arm("axn, tuned", best, data)
        beside = anchored(matrix)
        calls = min(ANCHORS, len(anchors)) * matrix.n
        for name in ("crosscut", "anncur", "anncur@first=dense", "adacur", "adacur@first=dense"):
            against = None if name == "crosscut" else "crosscut, anchors"
            yield Arm(f"{name}, anchors", name, beside, calls, against=against)


def readme(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    data, space = plain(matrix), matrix.vectors()[0]
    anchors, _, asked = matrix.data.anchors, *matrix.vectors()[1:]
    yield Arm("rerank", "rerank", data)
    for name in ("gar", "qdrant-feedback"):
        method = parse(name)
        if anchors is not None:
            tuning = replace(data, test=np.asarray(anchors)[:TUNING], query_vectors=asked[:TUNING], words=None)
            method = tuned(tuning, method, jointly=name == "qdrant-feedback")
        yield Arm(name, method, data)
    yield Arm("crosscut", "crosscut", data)
    prior = learn(matrix.past or searched(matrix), space, n=matrix.n).prior
    yield Arm("crosscut, learned", "crosscut", replace(data, prior=prior))


def learning(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    data, space = plain(matrix), matrix.vectors()[0]
    log = matrix.past or searched(matrix)
    yield Arm("0 searches", "crosscut", data)
    for size in [size for size in (40, 80, 160, 320) if size < len(log)] + [len(log)]:
        for seed in range(seeds if size < len(log) else 1):
            some = np.random.default_rng(seed).permutation(len(log))[:size]
            got = learn([log[j] for j in some], space, n=matrix.n, seed=seed)
            facts = {"searches": size, "used": got.prior is not None}
            yield Arm(f"{size} searches", "crosscut", replace(data, prior=got.prior), size * CALLS, facts=facts)


def exploring(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    data, space = plain(matrix), matrix.vectors()[0]
    for share, most in ((0.0, 1.0), (0.1, 1.0), (0.1, 10.0), (0.3, 1.0), (0.3, 10.0)):
        for seed in range(seeds if share else 1):
            log = searched(matrix, f"crosscut@explore={share}", seed, most)
            prior = learn(log, space, n=matrix.n).prior
            yield Arm(f"explore {share:g}, weights to {most:g}", "crosscut", replace(data, prior=prior))


def partly(scores: Array, vectors: Array, hidden: Any) -> CUR:
    """Return anchor scores with some columns hidden and estimated."""
    known = np.where(hidden, np.float32(0), scores.astype(np.float32))
    known[:, hidden] = extended_scores(known, vectors, vectors[hidden], ~hidden, int(hidden.sum()))
    return CUR(known, errors=np.where(hidden, extension_error(known, vectors, ~hidden), 0.0))


def anchors_share(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    data, scores = plain(matrix), np.asarray(anchored(matrix).anchors, np.float32)
    rows = np.asarray(matrix.vectors()[0].rows(np.arange(matrix.n)), np.float32)
    yield Arm("no anchor scores", "crosscut", data)
    for share in (0.0, 0.1, 0.3, 0.5):
        for seed in range(seeds if share else 1):
            hidden = np.zeros(matrix.n, dtype=bool)
            hidden[np.random.default_rng(seed).choice(matrix.n, round(share * matrix.n), replace=False)] = True
            cur = partly(scores, rows, hidden) if share else CUR(scores)
            calls = len(scores) * int((~hidden).sum())
            yield Arm(f"{share:.0%} of the items without", "crosscut", data, calls, {"anchors": cur})


def spending(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    data, space, scores = plain(matrix), matrix.vectors()[0], matrix.data.anchors
    if scores is None:
        raise InputError(f"{matrix.name} has no scores of train queries")
    log = searched(matrix)
    yield Arm("nothing", "crosscut", data)
    for calls in (4_000, 8_000, 16_000, 32_000):
        for seed in range(seeds):
            order = np.random.default_rng(seed).permutation(len(log))
            facts = {"spent": calls}
            if calls // CALLS <= len(log):
                prior = learn([log[j] for j in order[: calls // CALLS]], space, n=matrix.n).prior
                yield Arm(f"{calls:,} calls: searches", "crosscut", replace(data, prior=prior), calls, facts=facts)
            count = calls // matrix.n
            if 1 <= count <= len(log):
                cur = CUR(np.asarray(scores)[order[:count]])
                yield Arm(f"{calls:,} calls: anchor scores", "crosscut", data, calls, {"anchors": cur}, facts=facts)


def growth(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    vectors = np.asarray(matrix.vectors()[0].rows(np.arange(matrix.n)), np.float32)
    for size in (*(size for size in (1_000, 2_500, 5_000, 10_000) if size < matrix.n), matrix.n):
        for seed in range(seeds if size < matrix.n else 1):
            items = np.sort(np.random.default_rng(seed).permutation(matrix.n)[:size])
            part = replace(
                plain(matrix), test=np.ascontiguousarray(matrix.data.test[:, items]), vectors=Vectors(vectors[items]),
                words=None, item_scores=None, item_anchors=None,
            )  # fmt: skip
            beside = replace(part, anchors=np.asarray(anchored(matrix).anchors)[:, items])
            for name, method, data in (
                ("rerank", "rerank", part), ("crosscut", "crosscut", part), ("crosscut, anchors", "crosscut", beside),
                ("adacur, anchors", "adacur@first=dense", beside),
            ):  # fmt: skip
                yield Arm(f"{name}, {size:,} items", method, data, against=f"rerank, {size:,} items", facts={"n": size})


def first_stage(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    if matrix.data.words is None:
        raise InputError(f"{matrix.name} has no lexical scores of its test queries")
    for method in ("crosscut", "rerank"):
        for stage in ("dense", "lexical", "union"):
            against = f"{method}, dense"
            yield Arm(f"{method}, {stage}", f"{method}@first={stage}", plain(matrix), against=against)


def in_flight(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    for count in (1, 4, 8, 16, 32):
        yield Arm(f"{count} pairs at once", "crosscut", plain(matrix), concurrency=count)


def stopping(matrix: Matrix, seeds: int) -> Iterator[Arm]:
    yield Arm("no rule", "crosscut@rounds=20", plain(matrix))
    for rule in ("patience@rounds=1", "patience@rounds=2", "patience@rounds=3", "patience@rounds=5"):
        yield Arm(rule, "crosscut@rounds=20", plain(matrix), stop=rule)


STUDIES: Mapping[str, tuple[Callable[[Matrix, int], Iterator[Arm]], Sequence[Cell]]] = {
    "rivals": (rivals, CELLS),
    "readme": (readme, tuple((10, budget) for budget in (10, 20, 50, 100))),
    "learning": (learning, CELLS),
    "exploring": (exploring, CELLS),
    "anchors-share": (anchors_share, CELLS),
    "spending": (spending, CELLS),
    "growth": (growth, ((10, 50), (10, 100), (100, 200))),
    "first-stage": (first_stage, FEW),
    "in-flight": (in_flight, ((10, 20), (10, 50), (10, 100))),
    "stopping": (stopping, ((1, 200), (10, 200))),
}


def run(name: str, matrix: Matrix, seeds: int) -> list[dict[str, Any]]:
    """Run a study on a matrix."""
    if name not in STUDIES:
        raise InputError(f"there is no study {name!r}; there are {', '.join(STUDIES)}")
    arms, cells = STUDIES[name]
    return [{"data": matrix.name, "n": matrix.n, **one} for one in compare(arms(matrix, seeds), cells)]
