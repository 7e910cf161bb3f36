"""Whether what past searches teach is worth using: judged on past searches that were held out.

A search that is held out is gone through again: the items it scored first are given, the rest is to be put in order by
the plain ridge and by the learned prior. The share of the rest's ten best among the ten that are expected to be best
decides. Only if the learned prior is ahead, by more than its standard error, is it used. Under 40 searches nothing is
learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crosscut.errors import InputError
from crosscut.measures import recall
from crosscut.methods.base import Parts
from crosscut.methods.crosscut import Crosscut
from crosscut.methods.weights import beside, spread_of
from crosscut.scorers.meter import QueryLedger
from crosscut.search.loop import Plan, Query
from crosscut.search.pickers import Linear
from crosscut.search.prior import Past, Prior, fit_prior, padded
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR
from crosscut.types import Floats

FEWEST = 40  # searches, under which nothing is learned
FOLDS = 2
ROUGHLY = 5  # rounds of learning that are enough to judge by
MANY = 400  # searches, from which one fold is enough to judge by
GIVEN = (0.2, 0.5)  # shares of a held-out search that are given
BEST = 10
EASE = 2.0  # the spread of the encoder's coordinates against that of anchor scores, where learning starts


@dataclass(frozen=True)
class Learned:
    """Result of learning from a log of searches: the prior, if it is to be used, and its validation."""

    prior: Prior | None
    searches: int
    plain: float  # share of the best that the plain ridge finds in held-out searches
    learned: float  # and the learned prior
    error: float  # standard error of the difference
    why: str  # in a sentence


def learn(
    searches: Sequence[Past],
    encoder: Space,
    *,
    anchors: CUR | None = None,
    n: int | None = None,
    weights: Floats | None = None,
    seed: int = 0,
) -> Learned:
    """Learn a prior from past searches; return none where that would not help.

    Parameters
    ----------
    searches
        The log, oldest first.
    encoder
        The items' vectors; handles of the log name its rows.
    anchors
        Scores of anchor queries, if there are any, none of which may be among the searches: what is learned is then
        what a search expects beside them.
    n
        The number of items; None: not known.
    weights
        (N) how much each search counts.
    """
    if weights is not None and len(weights) != len(searches):
        raise InputError(f"{len(weights)} weights for {len(searches)} searches: give one for each")
    counts = np.ones(len(searches)) if weights is None else np.asarray(weights, dtype=np.float64)
    usable = [j for j, past in enumerate(searches) if len(past.scores) > 2 * BEST]
    if len(usable) < FEWEST:
        why = f"too few searches of more than {2 * BEST} calls to learn from: {len(usable)}, and {FEWEST} are needed"
        return Learned(None, len(usable), float("nan"), float("nan"), float("nan"), why)
    parts = Parts(encoder=encoder, anchors=anchors, n=n, seed=seed)
    space, weight, heard = _space(searches, encoder, anchors, seed)
    order = np.random.default_rng(seed).permutation(usable)
    values: list[tuple[float, float]] = []
    for fold in range(FOLDS if len(usable) < MANY else 1):
        held = order[fold::FOLDS][: MANY // 2]
        rest = np.setdiff1d(order, held)[: 2 * MANY]
        prior = fit_prior([heard[j] for j in rest], space.rows, weights=counts[rest], rounds=ROUGHLY, seed=seed)
        prior = replace(prior, weight=weight)
        plain, learned = (Crosscut().plan(made) for made in (parts, replace(parts, prior=prior)))
        values += [(_share(plain, searches[j]), _share(learned, searches[j])) for j in held]
    shares = np.array(values)  # (held × 2)
    gains = shares[:, 1] - shares[:, 0]
    before, after = shares.mean(axis=0).tolist()
    error = float(gains.std(ddof=1) / np.sqrt(len(gains)))
    better = bool(gains.mean() > error)
    reason = f"of the best of {len(gains)} held-out searches it expects {after:.3f}, the plain ridge {before:.3f}"
    final = None
    if better:
        kept = [heard[j] for j in usable]
        final = fit_prior(kept, space.rows, weights=counts[usable])
        final = replace(final, weight=weight)
    return Learned(final, len(usable), before, after, error, f"{'used' if better else 'not used'}: {reason}")


def _space(
    searches: Sequence[Past], encoder: Space, anchors: CUR | None, seed: int
) -> tuple[Space, float, Sequence[Past]]:
    """The space that is learned in, the weight of the encoder in it, and the searches as they look in it."""
    if anchors is None:
        return encoder, 1.0, searches
    weight = EASE * spread_of(beside(encoder, anchors, 0.0), seed) / spread_of(encoder, seed)
    space = beside(encoder, anchors, weight)
    return space, weight, [past._replace(vector=padded(past.vector, space.d)) for past in searches]


def _share(plan: Plan, past: Past) -> float:
    """The share of a search's best later items that a plan expects to be best, from what was scored before."""
    then = plan.then
    assert isinstance(then, Linear)
    shares = []
    for share in GIVEN:
        given = max(2, round(share * len(past.scores)))
        asked = past.handles[given:]
        query = Query(QueryLedger(None, len(past.scores)), vector=past.vector, allowed=np.sort(asked))
        then.start(query)
        query.account.record(past.handles[:given], past.scores[:given])
        (ask,) = then.asks([query], [BEST])
        expected = then.space.rows(asked) @ ask.vector + ask.base.at(asked)
        top = np.argsort(-expected, kind="stable")[:BEST]
        shares.append(recall(past.scores[given:], top, BEST))
    return float(np.mean(shares))
