"""Building an index: vectors of texts, scores of queries with every item."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import parse_qsl

import numpy as np
import numpy.typing as npt

from crosscut.ann.flat import top_items
from crosscut.datasets.columns import ColumnNames
from crosscut.datasets.records import Item, plain_text
from crosscut.errors import InputError
from crosscut.index.items import Source, stream
from crosscut.index.knowing import ScorerVectors, corpus_scorer, same_encoder, with_statistics
from crosscut.index.options import SpaceName
from crosscut.index.passages import OF
from crosscut.linalg.arrays import checked_vectors
from crosscut.methods.base import Method, Parts
from crosscut.models.bi_encoder import DualEncoder
from crosscut.retrieval.bm25 import BM25
from crosscut.score_store.engines import EngineChoice
from crosscut.score_store.jobs import ScoringOptions, score_matrix
from crosscut.scorers.base import Scorer
from crosscut.scorers.loading import load_scorer
from crosscut.spaces.base import Vectors
from crosscut.spaces.cur import CUR
from crosscut.spaces.factorization import Factors, factorize
from crosscut.spaces.sparse import SparseScores, items_per_query
from crosscut.storage import Folder, digest, sync
from crosscut.types import Array, Positions, Progress, whole

if TYPE_CHECKING:
    from crosscut.index.corpus import LocalCorpus
    from crosscut.index.settings import Settings

Brought: TypeAlias = npt.ArrayLike | str | Path | Callable[[list[str]], npt.ArrayLike]
"""Vectors of items: an array or memory map (n × d), the path of a .npy file, or a function from texts to vectors."""
WAYS = {
    "encoder": "build the index with an encoder",
    "anchors": "build the index with train queries (queries=…)",
    "factors": "build the index with train queries and space='als', 'transductive' or 'inductive'",
    "words": "build the index with bm25=True",
    "n": "the items must be countable",
}
"""Advice on missing parts of a method, for an index."""
SPACES = ("encoder", "cur", "als", "transductive", "inductive")
PORTION_IN_FOLDER = 1 << 14  # items between two saves of a build in a folder
BUILDING = ".building"
PORTION = 1024  # texts that a function is given at a time


@dataclass(frozen=True)
class Seller:
    """The scorer of a build, by name where workers can load it, and the engine that runs it."""

    scorer: Scorer | None
    name: str | None = None
    engine: EngineChoice = "local"
    progress: Progress | None = None
    device: str | None = None  # where factors of the scores are trained, and in what arithmetic

    def terms(self, corpus: LocalCorpus, what: str) -> tuple[Scorer, ScoringOptions]:
        """The scorer, and how `crosscut.score_store.jobs` is to use it."""
        if corpus.scorer is None or self.scorer is None:
            raise InputError("this index has no scorer: load it with scorer=…")
        return self.scorer, ScoringOptions(
            cache=corpus.cache,
            engine=self.engine,
            load=None if self.name is None else loader(self.name, self.scorer),
            bound=corpus.scorer,
            progress=self.progress,
            what=what,
        )

    def scores(
        self, corpus: LocalCorpus, queries: Sequence[str], positions: Positions
    ) -> tuple[npt.NDArray[np.float32], int]:
        """Scores (q × m) of queries with items, and the calls they took."""
        scorer, terms = self.terms(corpus, "scoring queries with every item")
        bought = score_matrix(scorer, queries, corpus.items, positions=positions, **terms)
        return bought.scores, bought.calls


def loader(name: str, scorer: Scorer) -> str | Callable[[], Scorer]:
    """Return what makes a scorer of this name elsewhere, with the statistics that are frozen here."""
    model = corpus_scorer(scorer)
    return name if model is None or not model.statistics else partial(_loaded, name, dict(model.statistics))


def _loaded(name: str, statistics: dict[str, Array]) -> Scorer:
    return with_statistics(load_scorer(name), statistics)


def factorized(
    corpus: LocalCorpus,
    encoder: DualEncoder | None,
    queries: Sequence[str],
    per_query: int,
    solver: Any,
    seller: Seller,
) -> Factors:
    """Item factors from `per_query` scores of each train query: half of its nearest items, half drawn (AXN §2.1)."""
    assert encoder is not None  # or `promised` has refused it
    assert corpus.vectors is not None
    vectors = encoder.encode_queries(queries)
    ranked = top_items(per_query, corpus.vectors, vectors)
    pairs = items_per_query(per_query, (len(queries), len(corpus.items)), ranked=ranked, random=0.5, seed=corpus.seed)
    trained = training(seller.device, solver)  # refused before anything is bought
    scorer, terms = seller.terms(corpus, "scoring train queries with some items")
    scores = SparseScores.from_scorer(scorer, queries, pairs, items=corpus.items, **terms)
    return factorize(scores, corpus.vectors, vectors, solver=solver, **trained)


def training(device: str | None, solver: str) -> dict[str, Any]:
    """Settings of a solver from a device and what stands behind it: `cuda#dtype=bf16&batch_size=64`."""
    if device is None:
        return {}
    if solver not in ("transductive", "inductive"):
        raise InputError(
            f"space={solver!r} is solved on the CPU and takes no device, got {device!r}: leave it out; the device of a "
            "hub model stands behind its name, organisation/model#device=cuda"
        )
    from crosscut.spaces.factorization.transductive import arithmetic, device_of, import_torch

    where, _, options = device.partition("#")
    named = dict(parse_qsl(options, keep_blank_values=True))
    size = named.get("batch_size", "1")
    if not {*named} <= {"dtype", "batch_size"} or not size.isdecimal() or int(size) < 1:
        raise InputError(f"behind a device stands #dtype=bf16, #batch_size=64, both with & or nothing; got {device!r}")
    torch = import_torch(f"space={solver!r}")
    arithmetic(torch, device_of(torch, where), named.get("dtype", "fp32"), solver)
    settings: dict[str, Any] = {"dtype": named["dtype"]} if "dtype" in named else {}
    return {"device": where, **settings, **({"batch": int(size)} if "batch_size" in named else {})}


class Reading(NamedTuple):
    """Vectors (n × d) of items by the index's encoder, and by that of its scorer."""

    vectors: npt.NDArray[Any] | None
    known: npt.NDArray[Any] | None = None

    def scorer_vectors(self, scorer: Scorer) -> ScorerVectors | None:
        """Return what an index keeps for a scorer that uses vectors."""
        model = corpus_scorer(scorer)
        if model is None or self.known is None:
            return None
        return ScorerVectors(model.encoder_fingerprint, None if self.known is self.vectors else self.known)


def read(
    items: Sequence[Item],
    scorer: Scorer | None,
    encoder: DualEncoder | None,
    dtype: npt.DTypeLike,
    progress: Progress | None,
    vectors: Brought | None = None,
) -> Reading:
    """Encode items, if their vectors are not brought; each once, if one encoder serves index and scorer."""
    model = corpus_scorer(scorer)
    rows = None if vectors is None else brought(vectors, items, dtype, progress)
    same_space(rows, encoder)
    if model is None:
        return Reading(encoded(encoder, items, dtype, progress) if encoder is not None and rows is None else rows)
    if same_encoder(model, encoder):
        rows = model.precompute(items, progress).astype(kept_as(dtype)) if rows is None else rows
        return Reading(rows, rows)
    if encoder is not None and rows is None:
        rows = encoded(encoder, items, dtype, progress)
    return Reading(rows, model.precompute(items, progress).astype(np.float16))


def encoded(
    encoder: DualEncoder, items: Sequence[Item], dtype: npt.DTypeLike, progress: Progress | None
) -> npt.NDArray[Any]:
    """Vectors (n × d) of items, in the precision they are kept in."""
    kind = kept_as(dtype)
    return encoder.encode_items(items, progress=progress).astype(kind)


def brought(vectors: Brought, items: Sequence[Item], dtype: npt.DTypeLike, progress: Progress | None) -> Array:
    """Vectors (n × d) that the user has, checked: one a row, finite, in the precision they are kept in."""
    if callable(vectors):
        return _made(vectors, items, dtype, progress)
    array = as_brought(vectors, len(items), dtype)
    return array if array.dtype == kept_as(dtype) else array.astype(dtype)


def as_brought(vectors: npt.ArrayLike | str | Path, n: int, dtype: npt.DTypeLike) -> Array:
    """The same, where they are and in the precision they have: they can be kept as `dtype`."""
    given = _mapped(vectors) if isinstance(vectors, str | Path) else vectors
    array = checked_vectors(given, "vectors", kind=kept_as(dtype))
    if len(array) != n:
        raise InputError(f"{len(array)} vectors for {n} items: give one for each, in the order of the items")
    return array


def _mapped(path: str | Path) -> Array:
    try:
        return np.asanyarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except (OSError, ValueError) as error:
        raise InputError(f"no vectors can be read from {str(path)!r} ({error}); pass a .npy file") from error


def _made(
    make: Callable[[list[str]], npt.ArrayLike], items: Sequence[Item], dtype: npt.DTypeLike, progress: Progress | None
) -> Array:
    """Vectors from the user's own function of texts, some at a time."""
    made: Array | None = None
    for start in range(0, len(items), PORTION):
        texts = [plain_text(item) for item in items[start : start + PORTION]]
        d = None if made is None else made.shape[1]
        part = checked_vectors(make(texts), "vectors of the function", d, kept_as(dtype))
        if len(part) != len(texts):
            raise InputError(f"the function gave {len(part)} vectors for {len(texts)} texts; one for each is needed")
        if made is None:
            made = np.empty((len(items), part.shape[1]), dtype)
        made[start : start + len(part)] = part
        if progress is not None:
            progress("encoding items", start + len(part), len(items))
    return np.empty((0, 0), dtype) if made is None else made


def kept_as(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The precision that vectors are kept in."""
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float16), np.dtype(np.float32)):
        raise InputError(f"vectors are kept as float16 or float32; got {kind}")
    return kind


def same_space(vectors: Array | None, encoder: DualEncoder | None) -> None:
    """Refuse an encoder whose query vectors cannot be compared with these."""
    if vectors is not None and encoder is not None and len(vectors) and vectors.shape[1] != encoder.dimension:
        raise InputError(
            f"the vectors have {vectors.shape[1]} dimensions and the encoder makes {encoder.dimension}: pass the one "
            "that made them, or encoder=None and a query_vector with every search"
        )


def distinct(items: Sequence[Item]) -> None:
    """Refuse an id that stands twice."""
    seen: set[str] = set()
    for item in items:
        if item.id in seen:
            raise InputError(f"the id {item.id!r} stands twice among {len(items)} items; ids must be unique")
        seen.add(item.id)


def separate(documents: Sequence[Item], passages: Iterable[Item]) -> None:
    """Refuse a document whose id is that of another's passage: an id must name one thing."""
    ids = {document.id for document in documents}
    for passage in passages:
        if passage.id in ids:
            raise InputError(
                f"document {passage.id!r} has the id that a passage of {passage.metadata[OF]!r} gets: rename one"
            )


def train_queries(space: SpaceName, queries: list[str], anchors: int, calls: int | None) -> tuple[SpaceName, list[str]]:
    """The space that train queries are for, and those that it takes."""
    whole("anchors", anchors)
    if calls is not None and (not whole("calls", calls) or space not in ("auto", "cur") or not queries):
        given = f"calls={calls}, space={space!r} and {len(queries)} train queries"
        raise InputError(f"{given} do not go together: give queries, at least 1 call, and space='auto'")
    if space == "auto":
        space = "cur" if queries else "encoder"
    if space not in SPACES:
        raise InputError(f"space is one of {', '.join(SPACES)} or auto; got {space!r}")
    asked = queries[:anchors] if space == "cur" and calls is None else queries
    if queries and not asked:
        raise InputError(f"anchors={anchors} uses none of {len(queries)} train queries: give 1 or more, or no queries")
    if (space == "encoder") == bool(asked):
        raise InputError(f"space={space!r} and {len(asked)} train queries do not go together: encoder alone takes none")
    return space, asked


def promised(method: Method, space: SpaceName, encoder: bool, vectors: bool, words: bool) -> None:
    """Refuse a space or method that cannot work on what is about to be built: before items are read, and calls are
    paid. A method of ours is planned on stand-ins."""
    if space not in ("encoder", "cur") and not encoder:
        raise InputError(
            f"space={space!r} starts from an encoder's vectors of items and queries, and there is none: pass the "
            "encoder that made the vectors, or space='cur', which needs none"
        )
    rows = np.random.default_rng(0).normal(size=(16, 16)).astype(np.float32)
    some = Vectors(rows)
    parts = Parts(
        encoder=some if encoder or vectors else None,
        anchors=CUR(rows) if space == "cur" else None,
        factors=some if space not in ("encoder", "cur") else None,
        words=BM25([Item("", "", "")] * len(rows)) if words else None,
        n=len(rows),
        ways=WAYS,
    )
    if (lack := method.missing(parts)) is not None:
        raise InputError(f"{method.name} {lack}")
    if type(method).__module__.startswith("crosscut.methods."):
        method.made(parts)


def local_corpus(
    given: Sequence[Item],
    settings: Settings,
    scorer: Scorer,
    encoder: DualEncoder | None,
    vectors: Brought | None,
    bm25: bool,
    dtype: npt.DTypeLike,
    progress: Progress | None,
) -> tuple[LocalCorpus, Scorer]:
    """A corpus of items, encoded and counted; and the scorer, with how common words are."""
    from crosscut.index.corpus import SEGMENT, LocalCorpus
    from crosscut.index.segment import Segment

    if not given:
        raise InputError("there is no item to build an index of: the source is empty")
    distinct(given)
    cut = settings.passages
    items = list(given if cut is None else cut.cut(given))
    if cut is not None:
        separate(given, items)
    reading = read(items, scorer if vectors is None else None, encoder, dtype, progress, vectors)
    rows, weighing = reading.vectors, corpus_scorer(scorer)
    segments = [
        Segment.of(
            items[start : start + SEGMENT],
            None if rows is None else rows[start : start + SEGMENT],
            bm25 or weighing is not None,
        )
        for start in range(0, len(items), SEGMENT)
    ]
    corpus = LocalCorpus.of(segments, seed=settings.seed, passages=cut)
    if weighing is not None and corpus.bm25 is not None:
        scorer = weighing = weighing.fitted(corpus.bm25)
        corpus = replace(corpus, statistics=weighing.statistics, known=reading.scorer_vectors(scorer))
    return corpus.bound(scorer), scorer


def build_in_folder(
    path: Path,
    source: Source,
    columns: ColumnNames,
    settings: Settings,
    encoder: DualEncoder | None,
    vectors: Brought | None,
    bm25: bool,
    dtype: npt.DTypeLike,
    progress: Progress | None,
) -> None:
    """Build an index in its folder, some items after others: at no time is the corpus in memory.

    What is done is an index in `<folder>.building`, to which items are added; at the end it gets lists and its name.
    A build that was stopped goes on from its last save when the same is asked for again.
    """
    from crosscut.index.corpus import LocalCorpus
    from crosscut.index.folder import KIND, read_corpus

    if (path / KIND.record).exists():
        raise InputError(f"there is an index at {str(path)!r} already: load it and add, or choose another")
    work = Folder(path.with_name(path.name + BUILDING), KIND)
    inputs = json.loads(json.dumps(_inputs(source, columns, settings, encoder, vectors, bm25, dtype)))
    facts = {**settings.json(), "inputs": inputs, "built": False}
    work.check()
    with work.lock():
        corpus = LocalCorpus.of([], seed=settings.seed, passages=settings.passages)
        done: dict[str, Any] = {}
        if (work.path / KIND.record).exists():
            with contextlib.suppress(InputError):  # damaged: begin anew
                done = work.record()
                if done.get("inputs") == inputs and "source" in inputs:
                    corpus = work.load(lambda saved: read_corpus(saved, None, None))
                else:
                    done = {}
        if not done.get("built"):
            items = iter(stream(source, progress=progress, **columns))
            if settings.passages is not None:
                items = settings.passages.cut(items)
            rest = itertools.islice(items, len(corpus.items), None)
            given = None if vectors is None or callable(vectors) else _rows_of(vectors)
            while some := list(itertools.islice(rest, PORTION_IN_FOLDER)):
                start = len(corpus.items)
                corpus = corpus.streamed(some, _vectors_of(some, start, encoder, vectors, given, dtype), bm25)
                corpus = corpus.save(work, facts, None)
                if progress is not None:
                    progress("reading items", len(corpus.items), 0)
            if given is not None and len(given) != len(corpus.items):
                raise InputError(
                    f"{len(given)} vectors for {len(corpus.items)} items: give one for each, in the order of the items"
                )
            if not corpus.segments:
                raise InputError("there is no item to build an index of: the source is empty")
            if progress is not None:
                progress("writing the index", 0, 1)
            corpus.save_clustered(work, {**facts, "built": True})
            if progress is not None:
                progress("writing the index", 1, 1)
    with contextlib.suppress(OSError):
        (work.path / "lock").unlink()
    if path.is_dir():
        path.rmdir()  # it is empty, or this fails
    os.replace(work.path, path)
    sync(path.parent)


def _rows_of(vectors: Any) -> Array:
    given = _mapped(vectors) if isinstance(vectors, str | Path) else np.asanyarray(vectors)
    if given.ndim != 2:
        raise InputError(f"vectors need two dimensions (items × d); got shape {given.shape}")
    return given


def _vectors_of(
    items: list[Item],
    start: int,
    encoder: DualEncoder | None,
    vectors: Brought | None,
    given: Array | None,
    dtype: npt.DTypeLike,
) -> Array | None:
    """Vectors of some items: the user's own, or the encoder's."""
    if given is not None:
        rows = given[start : start + len(items)]
        if len(rows) < len(items):
            raise InputError(
                f"{len(given)} vectors for more than {start + len(rows)} items: give one for each, in their order"
            )
        rows = brought(rows, items, dtype, None)
    elif callable(vectors):
        rows = brought(vectors, items, dtype, None)
    elif encoder is not None:
        return encoded(encoder, items, dtype, None)
    else:
        return None
    same_space(rows, encoder)
    return np.ascontiguousarray(rows)


def _inputs(
    source: Source,
    columns: ColumnNames,
    settings: Settings,
    encoder: DualEncoder | None,
    vectors: Brought | None,
    bm25: bool,
    dtype: npt.DTypeLike,
) -> dict[str, Any]:
    """Return facts that identify the inputs of a build: only a build of the same inputs is resumed."""
    inputs: dict[str, Any] = {"columns": {name: value for name, value in columns.items() if value}}
    if isinstance(source, str | Path):
        inputs["source"] = [str(Path(source).resolve()), *_about(Path(source))]
    inputs |= {"encoder": None if encoder is None else encoder.fingerprint, "dtype": kept_as(dtype).str}
    inputs |= {"words": bm25, "vectors": vectors is not None}
    return inputs | {"passages": None if settings.passages is None else asdict(settings.passages)}


def _about(source: Path) -> list[Any]:
    """Size and age of a file; of a folder, a digest of those of its files: when one changes, a build begins anew."""
    if not source.is_dir():
        about = source.stat() if source.exists() else None
        return [] if about is None else [about.st_size, about.st_mtime_ns]
    files = sorted(path for path in source.rglob("*") if path.is_file())
    return [digest(json.dumps([[str(path), *_about(path)] for path in files]).encode()).hexdigest()]
