"""An index on disk: the files of one generation of its folder (`crosscut.storage.folders`).

    items.jsonl         one object a line: id, title, text, metadata
    vectors.npy         (n × d) float16 or float32, memory-mapped when loaded
    centroids.npy, home.npy     of a large index: (lists × d) centroids of its vectors, (n) the list of each
    anchors.npy         (k_q × n) scores of the anchor queries, memory-mapped when loaded
    measured.npy        (n) bool: False where a column of anchors is an estimate
    queries.jsonl       the anchor queries, one JSON string a line
    bm25.json, bm25-*.npy       counts of words
    lexicon.json, lexicon-*.npy     how common words were when the index was built: hashes of stems, and shares
    known.json          which encoder has read what the scorer knows of every item:
    tokens.npy, token-lengths.npy   (tokens × 128) int8 token vectors, memory-mapped; (n) how many each item has
    known-vectors.npy   (n × D) of the scorer's dual encoder, where the index has another
    factors.json, factors-*.npy     of a sparse score matrix
    prior.json, prior-*.npy     of query vectors, learned from past searches

Of items that were removed nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crosscut.datasets.records import Item, ItemList
from crosscut.encoders.known import KnownItems
from crosscut.encoders.words import Lexicon
from crosscut.errors import InputError
from crosscut.index.knowing import bound
from crosscut.index.state import State
from crosscut.retrievers.bm25 import BM25
from crosscut.scorers.base import Scorer
from crosscut.scorers.meter import ScoreCache
from crosscut.scorers.named import check_saved
from crosscut.search.prior import Prior
from crosscut.spaces.factorization.factors import Factors
from crosscut.storage import Files, Folder, Kind, Saved

KIND = Kind("index", "index.json", 2)
ARRAYS = ("vectors", "centroids", "home", "anchors", "measured")
FLOATS = "<f2 <f4 <f8"


def write_state(state: State, queries: Sequence[str], files: Files) -> None:
    """Every part of a state, and the anchor queries; nothing of items that were removed."""
    state.unread.check()  # damage must not be copied under new checksums
    state = state.compacted(None)
    files.lines("items", (item._asdict() for item in state.items))
    files.lines("queries", queries)
    for name in ARRAYS:
        array = getattr(state, name)
        if array is not None:
            files.array(name, array)
    if state.bm25 is not None:
        state.bm25.write(files)
    for part in (state.lexicon, state.known):
        if part is not None:
            part.write(files)
    if state.factors is not None:
        state.factors.write(files)
    if state.prior is not None:
        state.prior.write(files)


def read_state(saved: Saved, scorer: Scorer | None, cache: ScoreCache | None) -> tuple[State, list[str]]:
    """What `write_state` wrote; large arrays are memory-mapped."""
    try:
        items = ItemList(Item(**line) for line in saved.lines("items"))
    except TypeError as error:
        raise saved.damaged("items.jsonl", f"holds something else than items ({error})") from error
    queries = saved.lines("queries")
    n = len(items)
    arrays: dict[str, Any] = {}
    if "vectors.npy" in saved:
        arrays["vectors"] = saved.array("vectors", FLOATS, (n, None), mapped="r")
    if "home.npy" in saved:
        arrays["centroids"] = saved.array("centroids", "<f4", (None, arrays["vectors"].shape[1]))
        arrays["home"] = home = saved.array("home", "<i8", (n,))
        if n and not (home.min() >= 0 and home.max() < len(arrays["centroids"])):
            raise saved.damaged("home.npy", f"names lists outside the {len(arrays['centroids'])} there are")
    if "anchors.npy" in saved:
        arrays["anchors"] = saved.array("anchors", FLOATS, (len(queries), n), mapped="r")
        arrays["measured"] = saved.array("measured", "|b1", (n,))
    bm25 = BM25.read(saved, n) if "bm25.json" in saved else None
    known = _known(saved, n)
    state = State(
        items,
        np.ones(n, np.bool_),
        scorer=bound(scorer, items, known, arrays.get("vectors"), bm25),
        bm25=bm25,
        lexicon=Lexicon.read(saved) if "lexicon.json" in saved else None,
        known=known,
        factors=Factors.read(saved, n) if "factors.json" in saved else None,
        prior=Prior.read(saved, n, arrays["vectors"].shape[1]) if "prior.json" in saved else None,
        cache=cache,
        seed=saved.facts["seed"],
        unread=saved.unread,
        **arrays,
    )
    return state, queries


def _known(saved: Saved, n: int) -> KnownItems | None:
    """What the scorer knows of n items, if it does."""
    if "known.json" not in saved:
        return None
    known = KnownItems.read(saved, n)
    if known.vectors is None and "vectors.npy" not in saved:
        raise saved.damaged("vectors.npy", "is missing, by which its scorer knows the items")
    return known


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


def same_model(
    what: str,
    given: Any,
    saved: dict[str, Any] | None,
    load: Callable[[Any], Any],
    path: Path,
    any_fingerprint: bool,
    trust_remote: bool = False,
) -> Any:
    """The scorer or encoder of a saved index, checked against what the index was built with."""
    if saved is None:
        return None if given is None else load(given)
    if given is None and saved["name"] is None:
        if what == "scorer":
            raise InputError(
                f"the index at {str(path)!r} was built with a scorer that has no name: pass it, Index.load(…, scorer=…)"
            )
        return None  # searches go without query vectors, or with the caller's
    if given is None:
        check_saved(str(saved["name"]), f"the index at {str(path)!r}", trust_remote)
    model = load(saved["name"] if given is None else given)
    if model.fingerprint != saved["fingerprint"] and not any_fingerprint:
        way = "; pass any_scorer=True to use it all the same" if what == "scorer" else ""
        raise InputError(
            f"the index at {str(path)!r} was built with {what} {saved['fingerprint']}, and this one is "
            f"{model.fingerprint}{way}"
        )
    return model
