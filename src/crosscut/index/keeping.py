"""An index on disk: saved, loaded, locked, verified."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

from crosscut.encoders.named import DualEncoder, load_encoder
from crosscut.errors import InputError
from crosscut.index.core import Core, name_of
from crosscut.index.folder import KIND, owed, read_state, read_statistics, same_model, verify, write_state
from crosscut.index.knowing import with_statistics
from crosscut.index.options import Loading
from crosscut.index.passages import Passages
from crosscut.index.state import State
from crosscut.index.streaming import clear
from crosscut.score_store.store import ScoreStore
from crosscut.scorers.base import Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.calibration import Calibration
from crosscut.scorers.loading import load_scorer
from crosscut.search.ranking import parse_rank
from crosscut.search.recall import RecallModel
from crosscut.search.stopping import Patience, parse_stop
from crosscut.storage import Folder, Saved


class Keeping(Core):
    """The role of being kept in a folder."""

    def save(self, path: str | Path | None = None) -> Path:
        """Write the index to a folder, in one step: until it is done, what was there stays readable."""
        with self._writing:
            target = Path(path) if path is not None else self.path
            if target is None:
                raise InputError("where should the index go? pass a folder: index.save('my.index')")
            same = self._folder is not None and target.resolve() == self._folder.path.resolve()
            folder = self._folder if same and self._folder is not None else Folder(target, KIND)
            if not same:
                folder.check()
            lock = self._lock if same and self._lock is not None else folder.lock()
            try:
                if same:
                    folder.unchanged()
                folder.write(self._facts(), partial(write_state, self._state, self.anchor_queries))
                self._state = self._filed(folder)
            finally:
                if lock is not self._lock:
                    lock.release()
            clear(target)
            self._release()  # of this folder, or of another one that this index came from
            self._folder = folder
            return target

    def _filed(self, folder: Folder) -> State:
        """After it was saved: a large index goes on from its files in the new generation."""
        state = self._state
        if state.saved is None:
            return state
        if state.starts is None:
            return replace(state, saved=None)  # its maps stay; the files that they are of are gone
        if state.purge:
            filed = folder.load(lambda saved: read_state(saved, self.scorer, state.cache))[0]
            return replace(filed, cache=filed.cache_over(filed.items), passages=state.passages)
        return replace(state, saved=folder.load(lambda saved: saved))

    def _facts(self) -> dict[str, Any]:
        def told(name: str, model: Scorer | DualEncoder | None) -> dict[str, Any] | None:
            return None if model is None else {"name": self._names[name], "fingerprint": model.fingerprint}

        return {
            "items": self._state.size,
            "first": self._state.first,
            "scorer": told("scorer", self.scorer),
            "encoder": told("encoder", self.encoder),
            "method": str(self.method),
            "patience": self.stop.rounds if isinstance(self.stop, Patience) else None,
            "stop": None if self.stop is None else str(self.stop),
            "rank": str(self.rank),
            "budget": self.budget,
            "tuned": self.tuned,
            "calibration": None if self.calibration is None else self.calibration.json(),
            "passages": None if self.passages is None else asdict(self.passages),
            "seed": self._state.seed,
            "build_calls": self.build_calls,
        }

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        scorer: Any = None,
        encoder: Any = None,
        any_scorer: bool = False,
        trust_remote: bool = False,
        cache: ScoreCache | None = None,
        store: str | Path | None = None,
        verify: bool = True,
    ) -> Self:
        """An index that was saved.

        Parameters
        ----------
        scorer, encoder
            Needed when the index was built with an object or a function instead of a name. They must be the ones it
            was built with: fingerprints are compared. An index that holds nothing of its scorer (no train queries, no
            tuning, no calibration, nothing learned) takes any.
        any_scorer
            Take a scorer whose fingerprint differs all the same. Anchor scores and tuning stay those of the old one.
        trust_remote
            Let the folder name the address of its scorer, to which queries and items are sent. Without it, an index
            that was built with an address wants to be told it again (`scorer`).
        cache, store
            As in `build`: scores found there are free, new ones are kept.
        verify
            Compare the checksums of all files; those of large arrays before the first search.
        """
        told = Loading(scorer=scorer, encoder=encoder, any_scorer=any_scorer, trust_remote=trust_remote)
        told |= {"cache": cache, "store": store}
        folder = Folder(path, KIND)
        index = folder.load(lambda saved: cls._read(saved, Path(path), told), verify=verify)
        index._folder = folder
        return index

    @classmethod
    def _read(cls, saved: Saved, target: Path, told: Loading) -> Self:
        manifest, scorer, encoder, store = saved.facts, told["scorer"], told["encoder"], told["store"]
        statistics = read_statistics(saved)
        model = same_model(
            "scorer",
            scorer,
            manifest["scorer"],
            lambda given: with_statistics(load_scorer(given), statistics),
            target,
            lambda model: told["any_scorer"] or not owed(saved, model),
            told["trust_remote"],
        )
        dual = same_model("encoder", encoder, manifest["encoder"], load_encoder, target)
        state, queries = read_state(saved, model, told["cache"])
        cut = manifest.get("passages")
        state = replace(state, passages=None if cut is None else Passages(**cut))
        if store is not None and model is not None:
            state = replace(state, cache=ScoreStore(store, scorer_fingerprint=model.fingerprint).cache(state.items))
        index = cls(
            state,
            scorer=model,
            scorer_name=name_of(scorer) if scorer is not None else (manifest["scorer"] or {}).get("name"),
            encoder=dual,
            encoder_name=name_of(encoder) if encoder is not None else (manifest["encoder"] or {}).get("name"),
            queries=queries,
            method=manifest["method"],
        )
        index.build_calls = manifest["build_calls"]
        index.stop = None if manifest["patience"] is None else Patience(manifest["patience"])
        if manifest.get("stop") is not None:
            index.stop = parse_stop(manifest["stop"])
        index.tuned = manifest["tuned"]
        if index.tuned is not None and index.tuned.get("model") is not None:
            index.recall_model = RecallModel.from_json(index.tuned["model"])
        index.rank = parse_rank(manifest.get("rank", "scorer"))
        index.budget = manifest.get("budget")
        saved_calibration = manifest.get("calibration")
        if saved_calibration is not None:
            index.calibration = Calibration.from_json(saved_calibration)
        return index

    @staticmethod
    def verify(path: str | Path) -> list[str]:
        """Read all of a saved index and compare every checksum: a sentence for every file that is damaged."""
        return verify(path)

    @property
    def unsaved(self) -> bool:
        """Whether this index has changed since its folder was saved or loaded."""
        return self._lock is not None

    @property
    def path(self) -> Path | None:
        """The folder this index was loaded from, or saved to last."""
        return None if self._folder is None else self._folder.path

    def close(self) -> None:
        """Give up changes that were not saved, and the right to make any; scores that wait for a store are written."""
        self._state.flush()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
