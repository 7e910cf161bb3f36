"""Cross-encoders that others have trained: on onnxruntime on the CPU, in torch on other devices.

What makes a model faster on onnxruntime than as it comes: items are tokenised once, when first scored, and kept, a
query once a search; pairs of about one length run together, one call a thread; optionally products in eight bits
(`crosscut.models.quantize`). Scores are raw logits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from crosscut.datasets.records import Item, Items, items_of, plain_text
from crosscut.errors import InputError, MissingDependency, ScorerError, needing
from crosscut.models.batching import TOKEN_BYTES, BoundedCache, LRUCache, length_buckets
from crosscut.models.bi_encoder import torch_fingerprint
from crosscut.models.export import graph_of, longest_pair, weight_files
from crosscut.models.hub import cached_model, check_modules, digest_of, local_folder
from crosscut.models.session import OnnxSession
from crosscut.models.spec import ModelSettings, check_device, split_name
from crosscut.scorers.adapters import BoundTexts, TextRequest
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult, count_of
from crosscut.threads import ForkLock, cores
from crosscut.types import Floats, Positions

Precision = Literal["float32", "int8"]
Samples = tuple[Sequence[str], Sequence[Item | str]]
Ids = npt.NDArray[np.int64]
REMEMBERED_QUERIES = 256
PAIRS_AT_ONCE = 8192
TOKENS = 512  # of a call: more would leave the caches, fewer cost calls
LONGEST_TEXT = 20_000  # characters that are read
SAMPLE_QUERIES, SAMPLE_ITEMS = 40, 100
CALIBRATED = 10, 5  # of so many sample queries, one in so many pairs is read for the largest values of channels
TOP, KEPT_SHARE = 10, 0.98
"""Of each top 10, what eight bits have to keep of it to be used."""


class Text(NamedTuple):
    """A text as tokens, cut to what fits into a pair, and how many it had."""

    ids: Ids
    length: int


class Pair(NamedTuple):
    """A query and an item as the tokens and segments that a model reads."""

    ids: Ids
    segments: Ids


class PairTokenizer:
    """Pairs of texts as a tokenizer joins them; a text is tokenised by itself, so that it is read once."""

    def __init__(self, path: Path, longest: int) -> None:
        import tokenizers

        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises plain Exceptions
            raise InputError(f"the tokenizer {str(path)!r} cannot be read ({error}); save it again") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        texts = [self._tokenizer.encode(one, add_special_tokens=False).ids for one in ("a", "b")]
        pair = self._tokenizer.encode("a", "b")
        sides = [[place for place, side in enumerate(pair.sequence_ids) if side == number] for number in (0, 1)]
        if not all(sides) or texts != [[pair.ids[place] for place in side] for side in sides]:
            raise InputError(
                "the tokenizer does not put special tokens around pairs of texts; save it with the post-processor its "
                "model was trained with"
            )
        ids, segments = np.asarray(pair.ids, np.int64), np.asarray(pair.type_ids, np.int64)
        (first, *_), (second, *_) = sides
        parts = [slice(0, first), slice(sides[0][-1] + 1, second), slice(sides[1][-1] + 1, None)]
        self._around = [(ids[part], segments[part]) for part in parts]
        self._segments = int(segments[first]), int(segments[second])
        self.room = longest - sum(len(part) for part, _ in self._around)
        if self.room < 2:
            raise InputError(f"{longest} tokens have no room for two texts; give the model a longer limit")

    def read(self, texts: Sequence[str]) -> list[Text]:
        """Return the tokens of texts."""
        found = self._tokenizer.encode_batch([text[:LONGEST_TEXT] for text in texts], add_special_tokens=False)
        return [Text(np.asarray(one.ids[: self.room], np.int64), len(one.ids)) for one in found]

    def join(self, query: Text, item: Text) -> Pair:
        """Return a query and an item as one row; the longer one is cut first."""
        mine, theirs = longest_first(query.length, item.length, self.room)
        (before, one), (between, two), (behind, three) = self._around
        first, second = self._segments
        ids = np.concatenate([before, query.ids[:mine], between, item.ids[:theirs], behind])
        return Pair(ids, np.concatenate([one, np.full(mine, first), two, np.full(theirs, second), three]))


def longest_first(first: int, second: int, room: int) -> tuple[int, int]:
    """Return how many tokens of two texts stay, the longer one being cut first: what `truncation=True` does."""
    if first + second <= room:
        return first, second
    shorter = min(first, second)
    longer = max(shorter, room - shorter)
    if shorter + longer > room:
        shorter, longer = room // 2, room - room // 2
    return (shorter, longer) if first <= second else (longer, shorter)


class OnnxCrossEncoder(Scorer):
    """A cross-encoder on onnxruntime.

    >>> scorer = OnnxCrossEncoder.load("cross-encoder/ms-marco-MiniLM-L6-v2")
    """

    local = True  # a call costs neither money nor a request: a server may warm it up

    def __init__(self, home: Path, record: dict[str, Any], *, threads: int | None = None, name: str = "") -> None:
        self.home, self.record, self.name = home, record, name
        self.threads = cores() if threads is None else threads
        if self.threads < 1:
            raise InputError(f"{threads} threads cannot run a model; use 1 or more")
        self.tokenizer = PairTokenizer(home / "tokenizer.json", record["longest"])
        self.session = OnnxSession(home / "model.onnx", self.threads)

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        precision: Precision = "float32",
        max_length: int | None = None,
        threads: int | None = None,
        samples: Samples | None = None,
    ) -> OnnxCrossEncoder:
        """Return the model of a hub id or a folder; its graph is read or exported once.

        Parameters
        ----------
        precision
            "int8" rounds weights and activations; the first and the last products stay in float32 where it would keep
            less than .98 of each top 10, and it is refused where that does not help.
        max_length
            Most tokens of a pair; by default what the tokenizer and the positions allow.
        samples
            Queries and items on which eight bits are judged; by default bundled ones.
        """
        if precision not in ("float32", "int8"):
            raise InputError(f"an exported model is float32 or int8, not {precision!r}")
        folder = local_folder(model)
        longest = min(max_length or 1 << 60, longest_pair(folder))
        names = ("config.json", "tokenizer.json", "tokenizer_config.json")
        files = {name: folder / name for name in names if (folder / name).is_file()}
        if "tokenizer.json" not in files:
            raise InputError(f"{str(folder)!r} has no tokenizer.json; save the fast tokenizer beside the model")
        files |= {file.name: file for file in weight_files(folder)}
        settings: dict[str, Any] = {"precision": precision, "longest": longest}
        if precision == "int8" and samples is not None:
            settings["samples"] = [list(samples[0]), [str(item) for item in samples[1]]]

        def make() -> tuple[dict[str, bytes], dict[str, Any]]:
            graph, about = graph_of(folder), {"precision": precision, "longest": longest}
            if precision == "int8":
                graph, found = _in_eight_bits(graph, PairTokenizer(files["tokenizer.json"], longest), samples, folder)
                about |= found
            return {"tokenizer.json": files["tokenizer.json"].read_bytes(), "model.onnx": graph}, about

        key = digest_of(files, settings)
        home, record = cached_model(key, make)
        return cls(home, {**record, "key": key}, threads=threads, name=str(model))

    @property
    def fingerprint(self) -> str:
        return f"onnx-{self.record['key']}"

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """Return this model over items: each is tokenised when first scored, and kept."""
        return _BoundPairs(self.tokenizer, self.score_pairs, items_of(items))

    def score_pairs(self, pairs: Sequence[Pair]) -> Floats:
        """Return the scores of pairs, in order."""
        scores = np.empty(len(pairs), np.float64)
        lengths = np.asarray([len(pair.ids) for pair in pairs], np.int64)

        def run(places: Positions) -> None:
            logits = self.session.run(padded([pairs[place] for place in places.tolist()], self.session.inputs))
            scores[places] = logits.reshape(len(places), -1)[:, 0]

        self.session.map(run, list(length_buckets(lengths, TOKENS, self.threads))[::-1])  # the longest first
        return scores

    def __repr__(self) -> str:
        return f"OnnxCrossEncoder({self.name!r}, fingerprint={self.fingerprint!r})"


def padded(pairs: Sequence[Pair], inputs: Sequence[str]) -> dict[str, Ids]:
    """Return what a model is given of some pairs; padding is masked."""
    lengths = np.asarray([len(pair.ids) for pair in pairs])
    there = np.arange(int(lengths.max()))[None, :] < lengths[:, None]
    ids, segments = np.zeros(there.shape, np.int64), np.zeros(there.shape, np.int64)
    ids[there] = np.concatenate([pair.ids for pair in pairs])
    segments[there] = np.concatenate([pair.segments for pair in pairs])
    given = {"input_ids": ids, "attention_mask": there.astype(np.int64), "token_type_ids": segments}
    unknown = sorted(set(inputs) - set(given))
    if unknown:
        raise InputError(f"the graph asks for {unknown[0]!r}, which is nothing that a pair of texts has")
    return {name: given[name] for name in inputs}


class _BoundPairs(BoundScorer):
    """A model of pairs over its items: each is tokenised when first scored, and kept."""

    def __init__(self, tokenizer: PairTokenizer, score: Callable[[Sequence[Pair]], Floats], items: Items) -> None:
        self.tokenizer, self._score, self.items = tokenizer, score, items
        self.n_items = count_of(items)
        self._texts = BoundedCache(TOKEN_BYTES)
        self._queries: LRUCache[str, Text] = LRUCache(REMEMBERED_QUERIES)
        self._lock = ForkLock()

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        queries = self._queries.of([str(query) for query, _ in requests], self.tokenizer.read)

        def read(owners: Positions, handles: Positions) -> Callable[[], Floats]:
            texts = self._read_items(handles)
            pairs = zip(owners.tolist(), handles.tolist(), strict=True)
            return partial(self._score, [self.tokenizer.join(queries[owner], texts[handle]) for owner, handle in pairs])

        return score_pairwise(requests, read)

    def _read_items(self, handles: Positions) -> dict[int, Text]:
        wanted = np.unique(handles).tolist()
        with self._lock:
            found = {handle: self._texts[handle] for handle in wanted if handle in self._texts}
            unread = [handle for handle in wanted if handle not in found]
            if unread:
                items = self.items.get(np.asarray(unread, np.int64))
                for handle, text in zip(unread, self.tokenizer.read([plain_text(item) for item in items]), strict=True):
                    found[handle] = text
                    self._texts.keep(handle, text, text.ids.nbytes)
        return found


def score_pairwise(
    requests: Sequence[Request], read: Callable[[Positions, Positions], Callable[[], Floats]]
) -> list[ScoreResult]:
    """Score all requests as one list of pairs, some at a time: `read(owners, handles)` gives the call for those."""
    if not requests:
        return []
    sizes = [len(handles) for _, handles in requests]
    handles = np.concatenate([np.asarray(handles, np.int64) for _, handles in requests])
    owners = np.repeat(np.arange(len(sizes)), sizes)
    scores, attempted = np.full(len(handles), np.nan), np.zeros(len(handles), np.bool_)
    failed: ScorerError | None = None
    for start in range(0, len(handles), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        try:
            call = read(owners[part], handles[part])
            attempted[part] = True
            scores[part] = call()
        except Exception as error:  # onnxruntime's exceptions share no base class; items may come from anywhere
            failed = ScorerError(f"the model failed on {len(handles[part])} pairs: {error}")
            failed.__cause__ = error
            break
    ends = np.cumsum(sizes)[:-1]
    return [
        ScoreResult(some, tried, None if np.isfinite(some).all() else failed)
        for some, tried in zip(np.split(scores, ends), np.split(attempted, ends), strict=True)
    ]


def _in_eight_bits(
    graph: bytes, tokenizer: PairTokenizer, samples: Samples | None, folder: Path
) -> tuple[bytes, dict[str, Any]]:
    """The graph in eight bits, with as many of its products as the ranking allows, and what is kept of each top 10."""
    with needing("eight bits are written with onnx", "torch"):
        import onnx

    from crosscut.models.quantize import channel_maxima, products, quantize

    pairs = _sample_pairs(tokenizer, samples)
    inputs = OnnxSession(graph, 1).inputs
    count, step = CALIBRATED
    feeds = [padded(some[::step], inputs) for some in pairs[:count]]
    sessions: dict[bytes, OnnxSession] = {}

    def run(probed: bytes, outputs: Sequence[str], given: Any) -> list[Any]:
        if probed not in sessions:
            sessions[probed] = OnnxSession(probed, cores())
        found = sessions[probed].run_all(given)
        return [found[name] for name in outputs]

    model = onnx.load_from_string(graph)
    maxima = channel_maxima(model, run, feeds)
    best, shares = _tops(graph, pairs, inputs), []
    for exempt in _exemptions(products(model)):
        small = quantize(model, maxima, exempt=exempt).SerializeToString()
        tops = _tops(small, pairs, inputs)
        shares.append(float(np.mean([len(one & other) / TOP for one, other in zip(best, tops, strict=True)])))
        if shares[-1] >= KEPT_SHARE:
            return small, {"top10_kept": shares[-1], "products_in_float32": sorted(exempt)}
    raise InputError(
        f"in eight bits {str(folder)!r} keeps {max(shares):.3f} of each top 10, not {KEPT_SHARE}: use "
        "precision='float32', or samples of your own texts, if they are unlike the bundled ones"
    )


def _exemptions(names: Sequence[str]) -> Iterator[frozenset[str]]:
    """Products that stay in float32, in the order of trials: none; about the first and the last layer; more of both."""
    yield frozenset()
    for share in (12, 6, 4):
        edge = max(1, len(names) // share)
        yield frozenset([*names[:edge], *names[-edge:]])


def _sample_pairs(tokenizer: PairTokenizer, samples: Samples | None) -> list[list[Pair]]:
    """Pairs of a few queries, each with the same items."""
    if samples is None:
        from crosscut.datasets.bundled import load_world

        world = load_world()
        texts = [query.text.replace("[START] ", "").replace(" [END]", "") for query in world.queries[:SAMPLE_QUERIES]]
        items: Sequence[Item | str] = world.items[:: len(world.items) // SAMPLE_ITEMS][:SAMPLE_ITEMS]
    else:
        texts, items = list(samples[0]), list(samples[1])
    if not texts or len(items) < 20:
        raise InputError(f"samples of {len(texts)} queries and {len(items)} items are too few; give 1 and 20 or more")
    read = tokenizer.read([plain_text(item) for item in items])
    return [[tokenizer.join(query, item) for item in read] for query in tokenizer.read(texts)]


def _tops(graph: bytes, pairs: Sequence[Sequence[Pair]], inputs: Sequence[str]) -> list[set[int]]:
    """The places of each query's ten best items."""
    session, tops = OnnxSession(graph, cores()), []
    for some in pairs:
        feeds = [padded(some[at : at + 32], inputs) for at in range(0, len(some), 32)]
        scores = np.concatenate([logits.reshape(-1) for logits in session.map(session.run, feeds)])
        tops.append(set(np.argsort(-scores, kind="stable")[:TOP].tolist()))
    return tops


class TorchCrossEncoder(Scorer):
    """A `CrossEncoder` of sentence-transformers as a scorer, on any device.

    >>> scorer = TorchCrossEncoder.load("cross-encoder/ms-marco-MiniLM-L6-v2")
    """

    local = True

    def __init__(self, model: Any, *, batch_size: int = 32, name: str | None = None) -> None:
        labels = getattr(getattr(model, "config", None), "num_labels", 1)
        if labels != 1:
            raise InputError(f"the cross-encoder has {labels} labels; a scorer needs one score a pair")
        if batch_size < 1:
            raise InputError(f"a batch of {batch_size} pairs is not possible; use 1 or more")
        self.model, self.batch_size, self.name = model, batch_size, name
        self._fingerprint = torch_fingerprint(model)

    @classmethod
    def load(cls, model: str | Path, settings: ModelSettings | None = None) -> TorchCrossEncoder:
        """Return the model of a hub id or a folder."""
        with needing("hub cross-encoders run on sentence-transformers", "torch"):
            import torch
            from sentence_transformers import CrossEncoder

        check_modules(model)
        how = settings or ModelSettings()
        device = check_device(how.here())
        try:
            loaded = CrossEncoder(
                str(model), device=device, max_length=how.max_length, activation_fn=torch.nn.Identity()
            )
        except (OSError, ValueError) as error:
            raise InputError(
                f"no cross-encoder can be loaded from {str(model)!r} ({error}); pass a hub id or a folder "
                "written by CrossEncoder.save_pretrained"
            ) from error
        if how.dtype != "fp32":
            loaded.to(torch.float16 if how.dtype == "fp16" else torch.bfloat16)
        return cls(loaded, batch_size=how.batch_size, name=str(model))

    @property
    def fingerprint(self) -> str:
        return self._fingerprint

    def score_pairs(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """Return the scores of (query, item) texts, in order; those of about one length run together."""
        if not pairs:
            return np.empty(0, np.float64)
        from torch.nn import Identity

        order = sorted(range(len(pairs)), key=lambda place: len(pairs[place][0]) + len(pairs[place][1]))
        try:
            raw = self.model.predict(
                [pairs[place] for place in order],
                batch_size=self.batch_size,
                activation_fn=Identity(),  # a model with one label has a sigmoid by default
                convert_to_numpy=True,
                show_progress_bar=False,
            )
        except RuntimeError as error:
            raise ScorerError(f"the cross-encoder failed on {len(pairs)} pairs: {error}") from error
        scores = np.empty(len(pairs), np.float64)
        scores[order] = np.asarray(raw, np.float64).reshape(len(pairs))
        return scores

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """Return this model over items, whose texts are title, newline, text."""
        return BoundTexts(items_of(items), self.answer)

    def answer(self, requests: Sequence[TextRequest]) -> list[ScoreResult]:
        """Score all requests as one list of pairs."""
        scores = self.score_pairs([(query, text) for query, texts in requests for text in texts])
        ends = np.cumsum([len(texts) for _, texts in requests])[:-1]
        return [ScoreResult.of(part) for part in np.split(scores, ends)]

    def __repr__(self) -> str:
        return f"TorchCrossEncoder({self.name!r}, fingerprint={self.fingerprint!r})"


def load_cross_encoder(name: str) -> Scorer:
    """Return the cross-encoder of a hub id or a folder, with settings behind a `#` (`crosscut.models.spec`).

    On the CPU it runs on onnxruntime; a model that cannot be exported runs in torch, as all do on other devices.
    """
    model, how = split_name(name)
    if not how.on_cpu:
        return TorchCrossEncoder.load(model, how)
    precision: Precision = "int8" if how.dtype == "int8" else "float32"
    try:
        return OnnxCrossEncoder.load(model, precision=precision, max_length=how.max_length)
    except (InputError, ImportError) as error:
        if precision == "int8" or find_spec("sentence_transformers") is None:
            if isinstance(error, ImportError) and not isinstance(error, MissingDependency):
                raise MissingDependency("hub models are exported with torch and onnx", "torch") from error
            raise
        return TorchCrossEncoder.load(model, how)
