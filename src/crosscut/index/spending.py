"""Calls that may be spent while an index is built, where they help most.

Scores of train queries buy two things. A *search* of its own, some hundred calls, teaches what to expect of the next
query (`search/prior.py`), however many items there are. *Anchor scores*, a query with every item, show what items have
in common under this scorer. Searches bring more a call, and anchors bring more on top of them than further searches do:
half the calls go to either, once forty searches are paid and two anchor queries can be. Scores of anchor queries with a
part of the items, the rest estimated, bring less than both (`crosscut-lab study spending`).

Little is never worse than nothing: what searches teach is used only if it orders held-out searches better
(`methods/learning.py`), beside anchor scores or, if it does not there, in their place; and without it no fewer than
eight anchor queries are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crosscut.errors import InputError
from crosscut.index.build import Seller
from crosscut.index.corpus import LocalCorpus
from crosscut.index.learning import scored_by
from crosscut.methods.crosscut import Crosscut
from crosscut.methods.learning import FEWEST, Learned, learn
from crosscut.models.bi_encoder import DualEncoder
from crosscut.scorers.caching import CachingScorer
from crosscut.search.prior import Past
from crosscut.searcher import Searcher
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR
from crosscut.types import NO_HANDLES, Array, Positions

EACH = 100  # calls of a search
LEAST, MOST = 50, 400  # where calls are few, and where queries are
ENOUGH = 160  # searches, beyond which a query is better an anchor, if that can be paid
ALONE = 8  # anchor queries that help without anything learned
PAIR = 2  # anchor queries at least: one alone brings less than the searches that it costs
TOGETHER = 20  # searches between two reports


@dataclass(frozen=True)
class Spending:
    """A split of a budget: the number of anchor queries, and of searches of `each` calls."""

    anchors: int
    searches: int
    each: int

    def calls(self, n: int) -> int:
        """At most."""
        return self.anchors * n + self.searches * self.each


def share_out(calls: int, queries: int, n: int, most: int, *, searchable: bool = True) -> Spending:
    """Split calls between anchor queries and searches.

    Parameters
    ----------
    calls
        That may be spent.
    queries
        Train queries there are.
    n
        Items, which an anchor query is scored with.
    most
        Anchor queries that are wanted at most.
    searchable
        Whether items have vectors, without which searches teach nothing.
    """
    dense = Spending(min(calls // n, queries, most), 0, 0)
    if not searchable or queries < FEWEST or calls < FEWEST * LEAST:
        if dense.anchors < ALONE:
            raise InputError(
                f"{calls:,} calls for {queries:,} train queries are too few to help: give {FEWEST} queries and "
                f"{FEWEST * LEAST:,} calls for searches, or {ALONE} queries and {ALONE * n:,} calls for anchor scores"
            )
        return dense
    paid = max(0, min(calls // 2, calls - FEWEST * EACH)) // n
    anchors = min(paid, queries // 2, queries - FEWEST, most)
    anchors = anchors if anchors >= PAIR else 0
    left = calls - anchors * n
    searches = min(queries - anchors, max(left // EACH, min(FEWEST, left // LEAST)))
    each = min(left // searches, MOST, n)
    spare = left - searches * each
    more = min(spare // n, queries - anchors - searches, most - anchors)
    anchors, spare = anchors + more, spare - more * n
    turned = min(spare // max(1, n - each), searches - ENOUGH, most - anchors)
    if turned > 0:
        anchors, searches = anchors + turned, searches - turned
    return Spending(anchors, searches, each)


def middles(vectors: Array, count: int, seed: int = 0) -> Positions:
    """Queries to have anchor scores of: the one nearest to the middle of each of so many clusters (k-means++).

    On train queries they taught more than queries drawn at random, and than the pivots of a QR decomposition.
    """
    if count < 1:
        return NO_HANDLES
    from sklearn.cluster import KMeans  # takes a while to import

    rows = vectors.astype(np.float64)
    distinct = len(np.unique(rows, axis=0))
    fitted = KMeans(min(count, distinct), n_init=4, random_state=seed).fit(rows)
    found = []
    for cluster, centre in enumerate(fitted.cluster_centers_):
        inside = np.flatnonzero(fitted.labels_ == cluster)
        found.append(int(inside[np.argmin(((rows[inside] - centre) ** 2).sum(axis=1))]))
    rest = np.setdiff1d(np.arange(len(rows)), found)  # where queries are alike
    return np.concatenate([np.array(found, np.int64), rest])[:count]


@dataclass(frozen=True)
class Spent:
    """Result of spending calls."""

    corpus: LocalCorpus
    queries: list[str]  # the anchor queries
    calls: int
    taught: Learned | None


def spend(
    corpus: LocalCorpus, encoder: DualEncoder | None, queries: Sequence[str], calls: int, most: int, seller: Seller
) -> Spent:
    """A corpus with what at most so many calls for train queries buy."""
    n = len(corpus.items)
    searchable = encoder is not None and corpus.vectors is not None
    plan = share_out(calls, len(queries), n, most, searchable=searchable)
    vectors = None if encoder is None or not searchable else encoder.encode_queries(queries)
    chosen = np.arange(plan.anchors) if vectors is None else middles(vectors, plan.anchors, corpus.seed)
    asked = [queries[j] for j in chosen.tolist()]
    plain, paid = corpus, 0
    if asked:
        scores, paid = seller.scores(corpus, asked, np.arange(n))
        corpus = replace(corpus, anchors=scores, measured=np.ones(n, np.bool_))
    if vectors is None or not plan.searches or corpus.encoder_space is None:
        return Spent(corpus, asked, paid, None)
    others = np.setdiff1d(np.arange(len(queries)), chosen)[: plan.searches]
    past, more = searched(corpus, [queries[j] for j in others.tolist()], vectors[others], plan.each, seller)
    kept, taught = taught_by(past, corpus.encoder_space, corpus.anchor_space, n, corpus.seed)
    prior = None if taught.prior is None else replace(taught.prior, bought=True)
    return Spent(replace((corpus if kept else plain), prior=prior), asked if kept else [], paid + more, taught)


def taught_by(
    past: Sequence[Past], encoder: Space, anchors: CUR | None, n: int | None, seed: int = 0
) -> tuple[bool, Learned]:
    """Whether anchor scores are kept, and what searches taught: beside them, or in their place."""
    taught = learn(past, encoder, anchors=anchors, n=n, seed=seed)
    if anchors is None or taught.prior is not None or len(anchors.anchor_scores) >= ALONE:
        return True, taught
    return False, learn(past, encoder, n=n, seed=seed)


def searched(
    corpus: LocalCorpus, queries: Sequence[str], vectors: Array, each: int, seller: Seller
) -> tuple[list[Past], int]:
    """Return the scores of searches of train queries, and the calls; cached scores count as calls, so that a repetition
    scores the same items, and is free."""
    if corpus.scorer is None:
        raise InputError("this index has no scorer: build it with scorer=…")
    scorer = CachingScorer(corpus.scorer, corpus.cache, bounded=True)
    searcher = Searcher(scorer, method=Crosscut(learned=False), parts=corpus.parts)
    past: list[Past] = []
    for start in range(0, len(queries), TOGETHER):
        some = slice(start, start + TOGETHER)
        for query, vector, hits in zip(
            queries[some],
            vectors[some],
            searcher.search_many(queries[some], 1, each, query_vectors=vectors[some]),
            strict=True,
        ):
            past.append(Past(np.asarray(vector, np.float64), *scored_by(corpus.scorer, query, hits)[:2]))
        if seller.progress is not None:
            seller.progress("searching train queries", len(past), len(queries))
    return past, scorer.calls
