"""An index that learns from its own searches."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from crosscut.errors import CrosscutError, InputError
from crosscut.index.core import Core
from crosscut.index.log import LIMIT, Logged, SearchLog, query_hash
from crosscut.index.spending import scored_by
from crosscut.index.state import State
from crosscut.methods.learning import FEWEST, Learned, learn
from crosscut.search.hits import Hits
from crosscut.search.prior import Past
from crosscut.storage import Since
from crosscut.types import Floats, whole

LOGGER = logging.getLogger("crosscut.index")
HALF_LIFE = 2000  # searches after which an old one counts half
ScoredBy: TypeAlias = Callable[[str, Hits], tuple[list[str], Floats, Floats]]
"""What a search has scored: ids, scores, and the chance with which each was picked."""


class Learning(Core):
    """The role of learning: searches are logged, and the log teaches what to expect of the next."""

    def keep_log(self, path: str | Path | None, *, limit: int = LIMIT, learn_every: int | None = None) -> None:
        """Log every search that has a query vector; nothing is logged unless this was asked for.

        Parameters
        ----------
        path
            The file: query vectors, ids and scores, not the texts. None: log no more.
        limit
            Bytes, at which the older half is dropped.
        learn_every
            Learn by itself, beside the searches, whenever so many have been made; None: only when told to.
        """
        if learn_every is not None:
            whole("learn_every", learn_every, 1)
        log = None if path is None else SearchLog(path, limit=limit)
        if log is not None:
            log.begin()
        self.log, self.learn_every = log, learn_every

    def learn(self, *, correction: float = 1.0) -> Learned:
        """Learn from the log what to expect of a query: better searches, and not one call more.

        What is learned is used by `crosscut`, beside anchor scores where there are any, and only if it does better on
        logged searches that were held out; the answer says so. Scores of another scorer or encoder do not count, nor
        those of items that are gone, nor searches of the anchor queries themselves; a search that is 2,000
        searches old counts half. What an index was taught while it was built (`build(calls=…)`) stays until a log of
        as many searches teaches something; what it learned before, while a log is too short to learn anything from.

        With `correction` above 1, an item that was drawn at random (`crosscut@explore=0.1`) counts for as many that
        were not scored, up to so many.
        """
        if not correction >= 1:
            raise InputError(f"correction is for how many pairs one may count, 1 or more; got {correction}")
        if self.log is None:
            raise InputError("there is no log of searches to learn from: call index.keep_log('searches.log') first")
        with self._writing:
            return self._learn(correction)

    def _learn(self, correction: float) -> Learned:
        state = self._state
        if state.encoder_space is None:
            raise InputError("this index has no vectors, in whose space it could learn: build it with an encoder")
        anchors = set(map(query_hash, self.anchor_queries)) if state.anchors is not None else set()
        searches = [search for search in self._logged(state.encoder_space.d) if search.query not in anchors]
        past = past_of(searches, state.places.get, correction)
        got = learn(
            past,
            state.encoder_space,
            anchors=state.anchor_space,
            n=len(state.items),
            weights=fading(len(past)),
            seed=state.seed,
        )
        old = state.prior
        if old is not None and old.bought and (got.prior is None or got.searches < old.searches):
            why = f"{got.why}; what {old.searches} searches taught while the index was built stays"
            return replace(got, prior=old, why=why)
        if old is not None and self._too_few(got):
            return replace(got, prior=old, why=f"{got.why}; what {old.searches} others taught before stays")
        self._state = replace(state, prior=got.prior)
        return got

    def _too_few(self, got: Learned) -> bool:
        """Whether a log is too short to learn anew from, as one that was begun lately; not because it forgot some."""
        return got.prior is None and got.searches < FEWEST and self.log is not None and not self.log.forgot

    def forget_queries(self, queries: Iterable[str]) -> int:
        """Erase searches from the log, and learn again without them; returns how many were erased."""
        with self._writing:
            return self._unlearn(queries=[queries] if isinstance(queries, str) else list(queries))

    def _unlearn(self, *, queries: Sequence[str] = (), ids: Sequence[str] = ()) -> int:
        """What a log held of queries and items, and what was learned from that, are gone."""
        count = 0 if self.log is None else self.log.forget(queries=queries, ids=ids)
        if self._drop_learned() and self.log is not None:
            self.learn()
        return count

    def _drop_learned(self) -> bool:
        """Whether there was something that had been learned; it is gone."""
        if self._state.prior is None:
            return False
        self._state = replace(self._state, prior=None)
        return True

    @property
    def _began(self) -> Since | None:
        """For a search that begins now: what is forgotten while it runs is not logged."""
        return None if self.log is None else self.log.since

    @property
    def _models(self) -> str:
        return "/".join("none" if one is None else one.fingerprint for one in (self.scorer, self.encoder))

    def _logged(self, d: int) -> list[Logged]:
        """What the log holds of these models, oldest first."""
        assert self.log is not None
        return [one for one in self.log.read() if one.models == self._models and len(one.vector) == d]

    def _remember(
        self,
        queries: Sequence[str],
        vectors: Sequence[npt.ArrayLike | None] | npt.NDArray[Any] | None,
        found: Sequence[Hits],
        scored: ScoredBy,
        since: Since | None,
    ) -> None:
        """Log what searches have scored, if they are logged; `since` was the log's when they began."""
        if self.log is None or vectors is None:
            return
        searches = []
        for query, vector, hits in zip(queries, vectors, found, strict=True):
            if vector is None or not hits.calls + hits.cached:
                continue
            ids, scores, chances = scored(query, hits)
            values = np.asarray(vector, dtype=np.float32), scores.astype(np.float32)
            drawn = chances.astype(np.float32) if (chances < 1).any() else None
            searches.append(Logged(query_hash(query), self._models, time.time(), ids, *values, drawn))
        try:
            self.log.append(searches, since=since)
        except CrosscutError as error:  # what was searched was paid for, and is told all the same
            LOGGER.warning("%d searches were not logged: %s", len(searches), error)
            return
        self._since += len(searches)
        busy = self._learner is not None and self._learner.is_alive()
        if self.learn_every is not None and self._since >= self.learn_every and not busy:
            self._since = 0
            self._learner = threading.Thread(target=self.learn, name="crosscut-learn", daemon=True)
            self._learner.start()


def scored_of(state: State, query: str, hits: Hits) -> tuple[list[str], Floats, Floats]:
    """What a search has scored: ids, scores without what the scorer knew unasked, and the chance that each had."""
    handles, scores, chances = scored_by(state.scorer, query, hits)
    return [state.items[position].id for position in handles.tolist()], scores, chances


def past_of(searches: Sequence[Logged], handle_of: Callable[[str], int | None], correction: float) -> list[Past]:
    """Logged searches with handles, without items that are gone."""
    past = []
    for search in searches:
        found = [(place, handle) for place, id in enumerate(search.ids) if (handle := handle_of(id)) is not None]
        if len(found) > 1:
            there, handles = np.array(found, np.int64).T
            weights = None if search.chances is None else _counted(search.chances[there], correction)
            scores = search.scores[there].astype(np.float64)
            past.append(Past(search.vector.astype(np.float64), handles, scores, weights))
    return past


def fading(count: int) -> Floats:
    """How much each search counts, oldest first."""
    return np.asarray(0.5 ** (np.arange(count)[::-1] / HALF_LIFE))


def _counted(chances: npt.NDArray[np.float32], correction: float) -> Floats:
    """For how many pairs each stands; where the number of items is not known, for itself."""
    known = np.where(np.isfinite(chances), chances, 1.0).astype(np.float64)
    return np.asarray(np.minimum(1 / np.maximum(known, 1e-12), correction))
