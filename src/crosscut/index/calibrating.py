"""An index that says what its scores mean: probabilities instead of a scorer's own numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosscut.datasets.records import Items
from crosscut.errors import InputError
from crosscut.index.core import Core
from crosscut.index.options import checked_queries
from crosscut.index.relevance import named_in
from crosscut.scorers.adapters import as_bound
from crosscut.scorers.base import BoundScorer
from crosscut.scorers.calibration import (
    DEPTH,
    LEAST,
    Calibration,
    JudgedScores,
    against_random,
    calibrate,
)
from crosscut.scorers.meter import Meter, QueryLedger
from crosscut.search.hits import Hits
from crosscut.search.ranking import Evidence, Rank, ordered, parse_rank
from crosscut.types import Floats, whole

EACH = 8  # random items a query
WORDS = 12  # of an item, in the place of a query


@dataclass(frozen=True)
class Answering:
    """What becomes of the hits of a search."""

    rank: Rank
    calibration: Calibration | None = None
    threshold: float | None = None

    def answers(
        self,
        found: Sequence[Hits],
        vectors: Any,
        k: int,
        evidence: Callable[[Hits, Any], Evidence],
        told: Callable[[Hits], Hits],
    ) -> list[Hits]:
        """Hits in their order, with their items (`told`) and their probabilities.

        `vectors` are those of the queries, or None; `evidence` tells what is known of all that a search has scored.
        """
        made = []
        for hits, vector in zip(found, [None] * len(found) if vectors is None else vectors, strict=True):
            best = told(ordered(hits, self.rank, evidence(hits, vector), k) if self.rank.needs else hits)
            made.append(best if self.calibration is None else best.calibrated(self.calibration, self.threshold))
        return made


class Calibrating(Core):
    """The role of giving probabilities."""

    def calibrate(
        self,
        judgements: Mapping[str, Mapping[Any, float]] | None = None,
        *,
        budget: int | None = None,
        queries: Sequence[str] | None = None,
        pairs: int = 400,
        rank: str | Rank | None = None,
        max_calls: int | None = None,
    ) -> Calibration:
        """Learn what scores mean; from then on `hit.probability` is there and `threshold=` works. Saved with the index.

        The scorer in the box has probabilities from the start, learned on other collections; yours tell better.

        Parameters
        ----------
        judgements
            Query → item id → relevance, above 0 for relevant; 50 queries do well. Each is searched, and of its ten best
            hits those judged relevant are, all others are not. None: a rougher guess, from the scores of random pairs.
        budget
            Calls of each of these searches.
        queries
            Without judgements: texts for random pairs; by default the anchor queries, or items' own words.
        pairs
            How many random pairs.
        rank
            The order of hits that probabilities are for; the index's own by default.
        max_calls
            Refuse to spend more than this.
        """
        if self.scorer is None:
            raise InputError("this index has no scorer to calibrate: load it with scorer=…")
        order = self.rank if rank is None else parse_rank(rank)
        each = self.method.budget(self._usual(budget, None), len(self))  # type: ignore[arg-type]
        most = whole("pairs", pairs, LEAST) if judgements is None else each * len(judgements)
        if max_calls is not None and most > max_calls:
            raise InputError(f"calibrating would make up to {most} calls and may make {max_calls}: give fewer")
        if judgements is None:
            scores, calls = self._random_scores(queries, pairs)
            self.calibration = replace(against_random(scores, self.scorer.fingerprint, calls), rank=str(order))
        else:
            right = sum(any(gain > 0 for gain in each.values()) for each in judgements.values())
            if len(judgements) < LEAST or not right:
                raise InputError(
                    f"{len(judgements)} judged queries, {right} of them with something relevant, are too few to "
                    f"calibrate on: {LEAST} queries are needed, and relevant items"
                )
            named_in(self, judgements.values())
            found: list[Hits] = self.search_many(list(judgements), DEPTH, budget, rank=order)  # type: ignore[attr-defined]
            judged = [
                JudgedScores(hits.values, np.array([float(right.get(hit.id, 0) > 0) for hit in hits]), hits.cut)
                for hits, right in zip(found, judgements.values(), strict=True)
            ]
            calls = sum(hits.calls for hits in found)
            self.calibration = calibrate(judged, self.scorer.fingerprint, calls, str(order))
        return self.calibration

    def probabilities(self, scores: Sequence[float] | Floats) -> Floats:
        """The probability that a text with such a score is relevant, each score by itself: for reranking."""
        return self._calibrated("a probability").probabilities(np.asarray(scores, np.float64))

    def _calibrated(self, what: str) -> Calibration:
        return self._checked(self.calibration, what)

    def _checked(self, known: Calibration | None, what: str) -> Calibration:
        if known is None:
            raise InputError(
                f"{what} needs an index that is calibrated: index.calibrate({{query: {{id: 1}}, …}}), or "
                "crosscut calibrate my.index"
            )
        known.check("none" if self.scorer is None else self.scorer.fingerprint)
        return known

    def _answering(self, threshold: float | None, rank: str | Rank | None) -> Answering:
        """How hits are ordered, and what they mean."""
        order = self.rank if rank is None else parse_rank(rank)
        known = self.calibration
        if threshold is None:
            fits = known is not None and self.scorer is not None and known.fingerprint == self.scorer.fingerprint
            return Answering(order, known if fits and known is not None and known.rank == str(order) else None)
        number = isinstance(threshold, int | float | np.number) and not isinstance(threshold, bool)
        if not (number and 0 <= threshold <= 1):
            raise InputError(f"a threshold is a probability, 0 … 1; got {threshold!r}")
        calibration = self._checked(known, f"threshold={threshold}")
        if calibration.rank != str(order):
            raise InputError(
                f"threshold={threshold} needs a calibration for rank={str(order)!r}, and this index has one for "
                f"{calibration.rank!r}: index.calibrate(…, rank={str(order)!r}), or crosscut calibrate … --rank {order}"
            )
        return Answering(order, calibration, threshold)

    def _usual(self, budget: int | None, method: Any) -> int | None:
        """The calls of a search that names none: those that were chosen for the index's own method."""
        return self.budget if budget is None and method is None else budget

    def _random_scores(self, queries: Sequence[str] | None, pairs: int) -> tuple[Floats, int]:
        """Scores of random pairs, and the calls they took; those of anchor queries are known."""
        items: Items
        scorer: BoundScorer | None
        if self.store is not None and self.scorer is not None:
            rng, session = np.random.default_rng(0), self.store.session()
            there = session.sample(pairs, rng)  # a store's items are not all looked at
            items, scorer, cache = session, as_bound(self.scorer.bind(session)), None
        else:
            state = self._state
            rng = np.random.default_rng(state.seed)
            there = np.flatnonzero(state.alive)
            if queries is None and state.anchors is not None:
                rows = rng.integers(len(state.anchors), size=pairs)
                return np.asarray(state.anchors[rows, rng.choice(there, pairs)], np.float64), 0
            items, scorer, cache = state.items, state.scorer, state.cache
        if queries is None:
            some = rng.choice(there, min(len(there), -(-pairs // EACH)), replace=False)
            texts = [item.title or " ".join(item.text.split()[:WORDS]) for item in items.get(some)]
            queries = [text for text in texts if text.strip()]
        queries = checked_queries(queries)
        if not queries or not len(there):
            raise InputError("random pairs need queries and items: pass queries=, or judgements")
        queries = queries[:pairs]
        sizes = [pairs // len(queries) + (j < pairs % len(queries)) for j in range(len(queries))]
        picks = [rng.choice(there, min(size, len(there)), replace=False) for size in sizes]
        accounts = [QueryLedger(query, len(pick)) for query, pick in zip(queries, picks, strict=True)]
        assert scorer is not None
        meter = Meter(scorer, cache=cache)
        meter.score(accounts, picks)
        return np.concatenate([account.scores for account in accounts]), meter.calls
