"""An index on disk: a folder (`crosscut.storage`) with a part for every segment (`crosscut.index.segment`), and beside

    index.json          the settings, the bitmap of removed items, and of every file its size and checksum
    centroids.npy       (lists × d) of a large index, shared by its segments
    anchors.npy         (n × k_q) scores of the anchor queries
    anchor_vectors.npy  (k_q × d) the encoder's vectors of the anchor queries
    measured.npy        (n) bool: False where the scores of an item are an estimate
    statistics.json, statistics-*.npy   what the scorer has learned from the corpus when the index was built
    scorer.json, scorer-vectors.npy     which encoder made the scorer's vectors; (n × D) where the index has others
    factors.json, factors-*.npy     of a sparse score matrix
    prior.json, prior-*.npy     of query vectors, learned from past searches

A segment that is there already is kept as it is.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.index.knowing import ScorerVectors, corpus_scorer
from crosscut.index.segment import FLOATS, Segment
from crosscut.index.settings import Settings
from crosscut.linalg.arrays import starts_of
from crosscut.scorers.base import Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.loading import check_saved
from crosscut.search.prior import Prior
from crosscut.spaces.factorization.factors import Factors
from crosscut.storage import Files, Folder, Kind, Saved
from crosscut.types import Array, Mask

if TYPE_CHECKING:
    from crosscut.index.corpus import LocalCorpus

KIND = Kind("index", "index.json", 5, how_to_make=": make one with `crosscut index build` or Index.build")
BLOCK = 1 << 14  # items whose scores are turned over together


def packed(bits: Mask) -> str:
    """A bitmap as text; few bytes where few bits differ."""
    return base64.b64encode(zlib.compress(np.packbits(bits).tobytes(), 1)).decode()


def unpacked(text: str, n: int) -> Mask:
    data = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    return np.unpackbits(data, count=n).astype(np.bool_)


def write_corpus(corpus: LocalCorpus, files: Files) -> None:
    """Everything but the segments."""
    if corpus.centroids is not None:
        files.array("centroids", corpus.centroids)
    if corpus.anchors is not None:
        anchors: Array = corpus.anchors
        blocks: Iterator[Array] = (anchors[:, at : at + BLOCK].T for at in range(0, anchors.shape[1], BLOCK))
        files.rows("anchors", anchors.dtype, anchors.shape[::-1], blocks)
    for name in ("anchor_vectors", "measured"):
        if getattr(corpus, name) is not None:
            files.array(name, getattr(corpus, name))
    if corpus.statistics:
        files.json("statistics", sorted(corpus.statistics))
        for name, array in corpus.statistics.items():
            files.array(f"statistics-{name}", array)
    for part in (corpus.known, corpus.factors, corpus.prior):
        if part is not None:
            part.write(files)


def read_corpus(saved: Saved, scorer: Scorer | None, cache: ScoreCache | None) -> LocalCorpus:
    """Load an index; large arrays are memory-mapped."""
    from crosscut.index.corpus import LocalCorpus

    settings = Settings.from_json(saved.facts)
    centroids = saved.numbers("centroids", "<f4", (None, None)) if "centroids.npy" in saved else None
    segments = [Segment.read(part, centroids) for part in saved.parts]
    n = int(starts_of(np.array([len(segment) for segment in segments], np.int64))[-1])
    queries = len(settings.anchor_queries)
    arrays: dict[str, Any] = {}
    if "anchors.npy" in saved:
        anchors = saved.array("anchors", FLOATS, (n, queries)).T
        arrays["anchors"] = np.ascontiguousarray(anchors) if centroids is None else anchors
        arrays["measured"] = saved.array("measured", "|b1", (n,))
    if "anchor_vectors.npy" in saved:
        arrays["anchor_vectors"] = saved.numbers("anchor_vectors", "<f4", (queries, None))
    vectors = next((segment.vectors for segment in segments if segment.vectors is not None), None)
    d = 0 if vectors is None else vectors.shape[1]
    corpus = LocalCorpus.of(
        segments,
        centroids=centroids,
        statistics=read_statistics(saved),
        known=_scorer_vectors(saved, n, vectors is not None),
        factors=Factors.read(saved, n) if "factors.json" in saved else None,
        prior=Prior.read(saved, n, [d, d + queries]) if "prior.json" in saved else None,
        passages=settings.passages,
        cache=cache,
        seed=settings.seed,
        **arrays,
    )
    alive = ~unpacked(saved.facts["removed"], n)
    return corpus.with_alive(alive).bound(scorer)


def read_statistics(saved: Saved) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics of the corpus that its scorer goes by."""
    if "statistics.json" not in saved:
        return {}
    return {str(name): saved.array(f"statistics-{name}", "<u8 <f8", (None,)) for name in saved.json("statistics")}


def _scorer_vectors(saved: Saved, n: int, vectors: bool) -> ScorerVectors | None:
    if "scorer.json" not in saved:
        return None
    known = ScorerVectors.read(saved, n)
    if known.rows is None and not vectors:
        raise saved.damaged("vectors.npy", "is missing, by which its scorer knows the items")
    return known


def verify(path: str | Path) -> list[str]:
    """Read all of an index and compare all of it; a sentence for every file that is damaged."""
    folder = Folder(path, KIND)
    found = folder.verify()
    if not found:  # what the files say fits together, too
        try:
            folder.load(lambda saved: read_corpus(saved, None, None))
        except InputError as error:
            found.append(str(error))
    return found


def owed(saved: Saved, model: Any) -> bool:
    """Whether a saved index holds what it has from its scorer, and from no other: another would be wrong about it."""
    files = ["anchors.npy", "factors.json", "prior.json", *(["scorer.json"] if corpus_scorer(model) else [])]
    return any(name in saved for name in files) or any(
        saved.facts.get(name) is not None for name in ("tuned", "calibration")
    )


def same_model(
    what: str,
    given: Any,
    saved: dict[str, Any] | None,
    load: Callable[[Any], Any],
    path: Path,
    fits: Callable[[Any], bool] = lambda model: False,
    trust_remote: bool = False,
) -> Any:
    """The scorer or encoder of a saved index: the one it was built with, or another that `fits`."""
    if saved is None:
        return None if given is None else load(given)
    if given is None and saved["name"] is None:
        if what == "scorer":
            raise InputError(
                f"the index at {str(path)!r} was built with a scorer that has no name: pass it, Index.load(…, scorer=…)"
                " (--scorer on the command line, for one that has a name)"
            )
        return None  # searches go without query vectors, or with the caller's
    if given is None:
        check_saved(str(saved["name"]), f"the index at {str(path)!r}", trust_remote)
    model = load(saved["name"] if given is None else given)
    if model.fingerprint != saved["fingerprint"] and not fits(model):
        way = "; build it anew, or pass any_scorer=True in Python to use it all the same" if what == "scorer" else ""
        raise InputError(
            f"the index at {str(path)!r} was built with {what} {saved['fingerprint']}, and this one is "
            f"{model.fingerprint}{way}"
        )
    return model
