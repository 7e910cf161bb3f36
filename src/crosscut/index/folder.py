"""An index on disk: the files of one generation of its folder (`crosscut.storage.folders`).

    items.npy, items-*.npy, ids.npy, ids-places.npy     the items, and where an id is (`crosscut.datasets.columnar`)
    metadata.json, metadata-*                           their metadata by key (`crosscut.index.metadata`)
    vectors.npy         (n × d) float16 or float32, memory-mapped when loaded
    centroids.npy, starts.npy, arrival.npy      of a large index, whose items lie list by list: (lists × d) centroids of
                        its vectors, (lists + 1) where each list begins, (n) the order in which the items came
    anchors.npy         (k_q × n) scores of the anchor queries, memory-mapped when loaded
    anchor_vectors.npy  (k_q × d) the encoder's vectors of the anchor queries
    measured.npy        (n) bool: False where a column of anchors is an estimate
    bm25.json, bm25-*.npy       counts of words (`crosscut.retrieval.bm25`)
    statistics.json, statistics-*.npy   what the scorer has learned from the corpus when the index was built
    scorer.json, scorer-vectors.npy     which encoder made the scorer's vectors; (n × D) where the index has others
    factors.json, factors-*.npy     of a sparse score matrix
    prior.json, prior-*.npy     of query vectors, learned from past searches

Of items that were removed nothing is written. A large index that came from a folder is the exception, because saving it
should cost what changed: its files stay as they are (in the new generation they are second names of the same files),
and beside them stand

    more.jsonl, more-vectors.npy        items that were added since, and their vectors
    more-lists.npy, more-centroids.npy  lists of the first of them, once they are thousands (`crosscut.index.later`)
    alive.npy           (n) bool: False for those that were removed since: an eighth of all at most
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.columnar import FiledItems, Packed
from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError
from crosscut.index.corpus import LocalCorpus, ranks
from crosscut.index.knowing import ScorerVectors, bound, corpus_scorer
from crosscut.index.later import LaterLists
from crosscut.index.metadata import write_columns
from crosscut.index.passages import Passages
from crosscut.retrieval.bm25 import BM25, Postings
from crosscut.scorers.base import Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.loading import check_saved
from crosscut.search.prior import Prior
from crosscut.spaces.factorization.factors import Factors
from crosscut.spaces.rows import FiledVectors
from crosscut.storage import WILD, Files, Folder, Kind, Saved, divides

KIND = Kind("index", "index.json", 4, how_to_make=": make one with `crosscut index build` or Index.build")
FLOATS = "<f2 <f4 <f8"
CHANGING = frozenset(("more", "alive", "anchors", "measured", "factors", "prior", "scorer", "statistics"))
"""Names of files that are written anew each time; the others of a large index stay."""


def write_corpus(corpus: LocalCorpus, files: Files) -> None:
    """Every part of a corpus; nothing of items that were removed, unless its files stay."""
    corpus.unread.check()  # damage must not be copied under new checksums
    if corpus.in_files and not corpus.purge:
        _stay(corpus, files)
    elif corpus.in_files:
        _purged(corpus, files)
        there = np.flatnonzero(corpus.alive)
        corpus = replace(corpus, **corpus.about(there))
    else:
        corpus = corpus.compacted(None).settled()
        _anew(corpus, files)
    for name in ("anchors", "anchor_vectors", "measured"):
        if getattr(corpus, name) is not None:
            files.array(name, getattr(corpus, name))
    if corpus.statistics:
        files.json("statistics", sorted(corpus.statistics))
        for name, array in corpus.statistics.items():
            files.array(f"statistics-{name}", array)
    for part in (corpus.known, corpus.factors, corpus.prior):
        if part is not None:
            part.write(files)


def _anew(corpus: LocalCorpus, files: Files) -> None:
    """Items, vectors and words of a corpus in memory, or of a small one."""
    items = Packed.of([*corpus.items])
    items.write(files)
    write_columns(files, items)
    if isinstance(corpus.vectors, FiledVectors):
        n = len(corpus.items)
        parts = corpus.vectors.blocks(np.arange(n))
        files.rows("vectors", corpus.vectors.dtype, corpus.vectors.shape, parts, scattered=True)
    elif corpus.vectors is not None:
        files.array("vectors", corpus.vectors)
    for name in ("centroids", "starts"):
        if getattr(corpus, name) is not None:
            files.array(name, getattr(corpus, name))
    if corpus.arrival is not None:
        files.array("arrival", corpus.arrival.whole())
    if corpus.bm25 is not None:
        write_words(Postings.join(corpus.bm25.segments), corpus.bm25, files)


def _stay(corpus: LocalCorpus, files: Files) -> None:
    """A large index whose files stay as they are."""
    saved = corpus.saved
    assert saved is not None
    assert isinstance(corpus.items, FiledItems)
    for name in saved.names:
        if name.split(".")[0].split("-")[0] not in CHANGING:
            files.keep(name, saved)
    if corpus.items.more:
        files.lines("more", (item._asdict() for item in corpus.items.more))
        if isinstance(corpus.vectors, FiledVectors):
            files.array("more-vectors", corpus.vectors.more)
        if corpus.later is not None:
            corpus.later.write(files)
    if not corpus.alive.all():
        files.array("alive", corpus.alive)


def _purged(corpus: LocalCorpus, files: Files) -> None:
    """A large index without what was removed, streamed from file to file."""
    assert isinstance(corpus.items, FiledItems)
    assert isinstance(corpus.vectors, FiledVectors)
    assert corpus.starts is not None
    n = len(corpus.items.first)
    there = np.flatnonzero(corpus.alive[:n])
    corpus.items.first.write(files, there)
    write_columns(files, corpus.items.first, there)
    shape, parts = (len(there), corpus.vectors.shape[1]), corpus.vectors.blocks(there)
    files.rows("vectors", corpus.vectors.dtype, shape, parts, scattered=True)
    assert corpus.centroids is not None
    files.array("centroids", corpus.centroids)
    files.array("starts", np.searchsorted(there, corpus.starts).astype(np.int64))
    if corpus.arrival is not None:
        files.array("arrival", ranks(corpus.arrival.take(there)))
    if corpus.bm25 is not None:
        write_words(Postings.join(corpus.bm25.segments[:1], there), corpus.bm25, files)
    behind = np.flatnonzero(corpus.alive[n:])
    if len(behind):
        files.lines("more", (corpus.items.more[place]._asdict() for place in behind.tolist()))
        more = corpus.vectors.more[behind]
        files.array("more-vectors", more)
        later = None if corpus.later is None else corpus.later.taken(behind, more)
        if later is not None:
            later.write(files)


def read_corpus(
    saved: Saved, scorer: Scorer | None, cache: ScoreCache | None, passages: Passages | None = None
) -> LocalCorpus:
    """What `write_corpus` wrote; large arrays are memory-mapped."""
    queries = saved.facts["anchor_queries"]
    items = _items(saved)
    n = len(items)
    arrays: dict[str, Any] = {"alive": np.ones(n, np.bool_)}
    if "alive.npy" in saved:
        arrays["alive"] = saved.array("alive", "|b1", (n,))
    arrays |= _vectors(saved, items)
    if "anchors.npy" in saved:
        arrays["anchors"] = saved.array("anchors", FLOATS, (len(queries), n), mapped="r")
        arrays["measured"] = saved.array("measured", "|b1", (n,))
    if "anchor_vectors.npy" in saved:
        arrays["anchor_vectors"] = saved.numbers("anchor_vectors", "<f4", (len(queries), None))
    bm25, known = _words(saved, items, arrays["alive"]), _known(saved, items)
    d = arrays["vectors"].shape[1] if "vectors" in arrays else 0
    return LocalCorpus(
        items,
        scorer=bound(scorer, items, known, arrays.get("vectors"), bm25),
        bm25=bm25,
        statistics=read_statistics(saved),
        known=known,
        factors=Factors.read(saved, n) if "factors.json" in saved else None,
        prior=Prior.read(saved, n, [d, d + len(queries)]) if "prior.json" in saved else None,
        cache=cache,
        seed=abs(int(saved.facts["seed"])),
        unread=saved.unread,
        saved=saved,
        passages=passages,
        **arrays,
    )


def _items(saved: Saved) -> ItemList | FiledItems:
    try:
        n = int(saved.facts["first"])
        return FiledItems(Packed.read(saved, n), map(_item, saved.lines("more")) if "more.jsonl" in saved else [])
    except TypeError as error:
        raise saved.damaged("items.jsonl", f"holds something else than items ({error})") from error


def _item(line: Any) -> Item:
    item = Item(**line)
    if not (all(isinstance(part, str) for part in item[:3]) and isinstance(item.metadata, dict)):
        raise TypeError(f"an item is made of three texts and metadata, and this is {line!r:.60}")
    return item


def _vectors(saved: Saved, items: ItemList | FiledItems) -> dict[str, Any]:
    """Vectors, and how they lie."""
    n = len(items) if isinstance(items, ItemList) else len(items.first)
    if "vectors.npy" not in saved:
        return {}
    if "starts.npy" not in saved:
        return {"vectors": saved.array("vectors", FLOATS, (n, None), mapped="r")}
    vectors = saved.touched("vectors", FLOATS, (n, None))
    d = vectors.array.shape[1]
    centroids = saved.numbers("centroids", "<f4", (None, d))
    starts = saved.array("starts", "<i8", (len(centroids) + 1,))
    if not divides(starts, n):
        raise saved.damaged("starts.npy", f"does not divide {n} vectors among {len(centroids)} lists")
    more = saved.array("more-vectors", FLOATS, (len(items) - n, d)) if "more-vectors.npy" in saved else None
    arrays: dict[str, Any] = {"vectors": FiledVectors(vectors, more), "centroids": centroids, "starts": starts}
    if more is not None:
        arrays["later"] = LaterLists.read(saved, more)
    if "arrival.npy" in saved:
        arrays["arrival"] = saved.touched("arrival", "<i8", (n,))
    return arrays


def read_statistics(saved: Saved) -> dict[str, npt.NDArray[Any]]:
    """Return the statistics of the corpus that its scorer goes by."""
    if "statistics.json" not in saved:
        return {}
    return {str(name): saved.array(f"statistics-{name}", "<u8 <f8", (None,)) for name in saved.json("statistics")}


def _known(saved: Saved, items: ItemList | FiledItems) -> ScorerVectors | None:
    if "scorer.json" not in saved:
        return None
    known = ScorerVectors.read(saved, len(items))
    if known.rows is None and "vectors.npy" not in saved:
        raise saved.damaged("vectors.npy", "is missing, by which its scorer knows the items")
    return known


def write_words(postings: Postings, words: BM25, files: Files) -> None:
    for name in Postings.DTYPES:
        files.array(f"bm25-{name}", getattr(postings, name))
    files.json("bm25", {"k1": words.k1, "b": words.b})


def _words(saved: Saved, items: ItemList | FiledItems, alive: Any) -> BM25 | None:
    if "bm25.json" not in saved:
        return None
    n = len(items.first) if isinstance(items, FiledItems) else len(items)
    arrays = {name: saved.array(f"bm25-{name}", kind, (None,), mapped="c") for name, kind in Postings.DTYPES.items()}
    try:
        postings = Postings(**arrays)
    except InputError as error:
        raise saved.damaged("bm25-starts.npy", str(error)) from error
    if postings.n != n:
        raise saved.damaged("bm25-lengths.npy", f"tells of {postings.n} items, and there are {n}")
    settings = saved.json("bm25")
    k1, b = float(settings["k1"]), float(settings["b"])
    if not (0 <= k1 <= WILD and 0 <= b <= 1):
        raise saved.damaged("bm25.json", f"tells k1 = {k1} and b = {b}, and b is 0 … 1")
    words = BM25.over([postings], k1=k1, b=b)
    if isinstance(items, FiledItems) and items.more:
        words = words.extended(items.more)
    return words.among(alive)


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
