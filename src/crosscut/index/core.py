"""What every role of an index stands on: its state, its models, its method."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crosscut.encoders.named import DualEncoder
from crosscut.index.building import Seller
from crosscut.index.log import SearchLog
from crosscut.index.passages import Passages
from crosscut.index.state import State
from crosscut.methods import Method, parse
from crosscut.methods.learning import Learned
from crosscut.score_store.engines import EngineChoice
from crosscut.scorers.base import Scorer
from crosscut.scorers.calibration import Calibration
from crosscut.search.price import Price
from crosscut.search.ranking import ByScorer, Rank
from crosscut.search.recall import RecallModel
from crosscut.search.stopping import Stop
from crosscut.storage import Folder, Lock
from crosscut.types import Progress

if TYPE_CHECKING:
    from crosscut.stores.base import Store


class Core:
    """The parts of an index that its roles share."""

    def __init__(
        self,
        state: State,
        *,
        scorer: Scorer | None,
        scorer_name: str | None,
        encoder: DualEncoder | None,
        encoder_name: str | None,
        queries: Sequence[str] = (),
        method: str | Method = "crosscut",
    ) -> None:
        self._state = state
        self.store: Store | None = None  # the vector database that its items stay in
        self.scorer = scorer
        self.encoder = encoder
        self._names = {"scorer": scorer_name, "encoder": encoder_name}
        self.anchor_queries = list(queries)
        self.method = parse(method)
        self.stop: Stop | None = None
        self.tuned: dict[str, Any] | None = None  # the report of the last `tune`
        self.recall_model: RecallModel | None = None
        self.rank: Rank = ByScorer()  # the order of hits
        self.budget: int | None = None  # calls of a search that names none; None: 100
        self.calibration: Calibration | None = None  # of the scorer: what its scores mean
        self.price: Price | None = None  # of a call, for `hits.cost`
        self.build_calls = 0
        self.taught: Learned | None = None  # by searches of train queries while it was built (`build(calls=…)`)
        self.log: SearchLog | None = None  # of searches, to learn from
        self.learn_every: int | None = None  # searches after which it learns by itself
        self._since = 0  # searches since it last did
        self._learner: threading.Thread | None = None
        self._folder: Folder | None = None  # where it was loaded from, or saved to
        self._lock: Lock | None = None  # of that folder
        self._writing = threading.RLock()

    @property
    def passages(self) -> Passages | None:
        """How documents were cut into the items, if they were."""
        return self._state.passages if self.store is None else None

    def _seller(self, engine: EngineChoice, progress: Progress | None, device: str | None = None) -> Seller:
        return Seller(self.scorer, self._names["scorer"], engine, progress, device)

    def _vectors(self, queries: Sequence[str]) -> npt.NDArray[np.float32] | None:
        """The encoder's query vectors, if the items have such vectors too."""
        if self.encoder is None or self._state.vectors is None or not queries:
            return None
        return self.encoder.encode_queries(queries)

    def _claim(self) -> None:
        """The right to change the folder this index came from, until it is saved."""
        if self._folder is not None and self._lock is None:
            lock = self._folder.lock()
            try:
                self._folder.unchanged()
            except BaseException:
                lock.release()
                raise
            self._lock = lock


def name_of(model: Any) -> str | None:
    """How a model is found again: by name, if it was given by name."""
    return str(model) if isinstance(model, str | Path) else None
