"""An index on disk: the files of one generation of its folder (`crosscut.storage.folders`).

    items.npy, items-*.npy, ids.npy, ids-places.npy     the items, and where an id is (`crosscut.datasets.columnar`)
    metadata.json, metadata-*                           their metadata by key (`crosscut.index.metadata`)
    vectors.npy         (n × d) float16 or float32, memory-mapped when loaded
    centroids.npy, starts.npy, arrival.npy      of a large index, whose items lie list by list: (lists × d) centroids of
                        its vectors, (lists + 1) where each list begins, (n) the order in which the items came
    anchors.npy         (k_q × n) scores of the anchor queries, memory-mapped when loaded
    measured.npy        (n) bool: False where a column of anchors is an estimate
    queries.jsonl       the anchor queries, one JSON string a line
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

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.datasets.columnar import FiledItems, Packed
from crosscut.datasets.records import Item, ItemList
from crosscut.errors import InputError
from crosscut.index.knowing import ScorerVectors, bound, corpus_scorer
from crosscut.index.later import LaterLists
from crosscut.index.metadata import write_columns
from crosscut.index.state import State, ranks
from crosscut.retrieval.bm25 import BM25, Postings
from crosscut.scorers.base import Scorer
from crosscut.scorers.caching import ScoreCache
from crosscut.scorers.loading import check_saved
from crosscut.search.prior import Prior
from crosscut.spaces.factorization.factors import Factors
from crosscut.spaces.rows import FiledVectors
from crosscut.storage import WILD, Files, Folder, Kind, Saved, divides

KIND = Kind("index", "index.json", 3, older=(2,), how_to_make=": make one with `crosscut index build` or Index.build")
FLOATS = "<f2 <f4 <f8"
CHANGING = frozenset(("more", "alive", "anchors", "measured", "queries", "factors", "prior", "scorer", "statistics"))
"""Names of files that are written anew each time; the others of a large index stay."""


def write_state(state: State, queries: Sequence[str], files: Files) -> None:
    """Every part of a state, and the anchor queries; nothing of items that were removed, unless its files stay."""
    state.unread.check()  # damage must not be copied under new checksums
    if state.in_files and not state.purge:
        _stay(state, files)
    elif state.in_files:
        _purged(state, files)
        there = np.flatnonzero(state.alive)
        state = replace(state, **state.about(there))
    else:
        state = state.compacted(None).settled()
        _anew(state, files)
    files.lines("queries", queries)
    for name in ("anchors", "measured"):
        if getattr(state, name) is not None:
            files.array(name, getattr(state, name))
    if state.statistics:
        files.json("statistics", sorted(state.statistics))
        for name, array in state.statistics.items():
            files.array(f"statistics-{name}", array)
    for part in (state.known, state.factors, state.prior):
        if part is not None:
            part.write(files)


def _anew(state: State, files: Files) -> None:
    """Items, vectors and words of a state in memory, or of a small one."""
    items = Packed.of([*state.items])
    items.write(files)
    write_columns(files, items)
    if isinstance(state.vectors, FiledVectors):
        n = len(state.items)
        parts = state.vectors.blocks(np.arange(n))
        files.rows("vectors", state.vectors.dtype, state.vectors.shape, parts, scattered=True)
    elif state.vectors is not None:
        files.array("vectors", state.vectors)
    for name in ("centroids", "starts"):
        if getattr(state, name) is not None:
            files.array(name, getattr(state, name))
    if state.arrival is not None:
        files.array("arrival", state.arrival.whole())
    if state.bm25 is not None:
        write_words(Postings.join(state.bm25.segments), state.bm25, files)


def _stay(state: State, files: Files) -> None:
    """A large index whose files stay as they are."""
    saved = state.saved
    assert saved is not None
    assert isinstance(state.items, FiledItems)
    for name in saved.names:
        if name.split(".")[0].split("-")[0] not in CHANGING:
            files.keep(name, saved)
    if state.items.more:
        files.lines("more", (item._asdict() for item in state.items.more))
        if isinstance(state.vectors, FiledVectors):
            files.array("more-vectors", state.vectors.more)
        if state.later is not None:
            state.later.write(files)
    if not state.alive.all():
        files.array("alive", state.alive)


def _purged(state: State, files: Files) -> None:
    """A large index without what was removed, streamed from file to file."""
    assert isinstance(state.items, FiledItems)
    assert isinstance(state.vectors, FiledVectors)
    assert state.starts is not None
    n = len(state.items.first)
    there = np.flatnonzero(state.alive[:n])
    state.items.first.write(files, there)
    write_columns(files, state.items.first, there)
    shape, parts = (len(there), state.vectors.shape[1]), state.vectors.blocks(there)
    files.rows("vectors", state.vectors.dtype, shape, parts, scattered=True)
    assert state.centroids is not None
    files.array("centroids", state.centroids)
    files.array("starts", np.searchsorted(there, state.starts).astype(np.int64))
    if state.arrival is not None:
        files.array("arrival", ranks(state.arrival.take(there)))
    if state.bm25 is not None:
        write_words(Postings.join(state.bm25.segments[:1], there), state.bm25, files)
    behind = np.flatnonzero(state.alive[n:])
    if len(behind):
        files.lines("more", (state.items.more[place]._asdict() for place in behind.tolist()))
        more = state.vectors.more[behind]
        files.array("more-vectors", more)
        later = None if state.later is None else state.later.taken(behind, more)
        if later is not None:
            later.write(files)


def read_state(saved: Saved, scorer: Scorer | None, cache: ScoreCache | None) -> tuple[State, list[str]]:
    """What `write_state` wrote; large arrays are memory-mapped."""
    queries = saved.lines("queries")
    items = _items(saved)
    n = len(items)
    arrays: dict[str, Any] = {"alive": np.ones(n, np.bool_)}
    if "alive.npy" in saved:
        arrays["alive"] = saved.array("alive", "|b1", (n,))
    arrays |= _vectors(saved, items)
    if "anchors.npy" in saved:
        arrays["anchors"] = saved.array("anchors", FLOATS, (len(queries), n), mapped="r")
        arrays["measured"] = saved.array("measured", "|b1", (n,))
    bm25, known = _words(saved, items, arrays["alive"]), _known(saved, items)
    d = arrays["vectors"].shape[1] if "vectors" in arrays else 0
    state = State(
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
        **arrays,
    )
    if "home.npy" in saved:  # version 2
        centroids = saved.numbers("centroids", "<f4", (None, arrays["vectors"].shape[1]))
        home = saved.array("home", "<i8", (n,))
        if n and not (home.min() >= 0 and home.max() < len(centroids)):
            raise saved.damaged("home.npy", f"names lists outside the {len(centroids)} there are")
        state = state.listed(centroids, home, scorer)
    return state, queries


def _items(saved: Saved) -> ItemList | FiledItems:
    try:
        if "items.jsonl" in saved:  # version 2
            return ItemList(map(_item, saved.lines("items")))
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
            folder.load(lambda saved: read_state(saved, None, None))
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
