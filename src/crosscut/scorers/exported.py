"""Cross-encoders that others have trained, on onnxruntime: for the CPU, without torch once they are exported.

Hub or sentence-transformers models (BERT and MiniLM, ELECTRA, RoBERTa, DistilBERT, ModernBERT) and the published
checkpoints of ANNCUR and ADACUR. What makes it faster than running the model as it comes:

- items are tokenised once, when first scored, and kept; a query once a search;
- pairs run together without padding, one call a core (`crosscut.encoders.session`, `crosscut.encoders.whole`);
- the last layer is computed only where the head reads it, the first layer's products once for tokens that are the same;
- attention, norms and activations are single operations;
- optionally products of whole numbers, in eight bits (`crosscut.encoders.graph`, `crosscut.encoders.rounding`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from crosscut.datasets.records import Item, Items, items_of
from crosscut.encoders.batching import TOKEN_BYTES, BoundedCache
from crosscut.encoders.checkpoints import Body, read_arrays, read_body, read_config, weights_file
from crosscut.encoders.exported import cached_model, digest_of, local_folder
from crosscut.encoders.pairs import Form, Marked, Plain, Row, Text, open_tokenizer
from crosscut.encoders.recent import Recent
from crosscut.encoders.rounding import channel_scales
from crosscut.encoders.session import OnnxSession
from crosscut.encoders.whole import Head, Step, classifier, packed, whole_graph
from crosscut.errors import InputError, ScorerError
from crosscut.scorers.base import BoundScorer, Request, RetryBudget, Scorer, ScoreResult, count_of
from crosscut.threads import ForkLock, cores
from crosscut.types import Floats, Positions

Precision = Literal["float32", "int8"]
Samples = tuple[Sequence[str], Sequence[Item | str]]
KEPT_QUERIES = 256
PAIRS_AT_ONCE = 8192
TOKENS = 512  # of a call: more would leave the caches, fewer cost calls
SAMPLE_QUERIES, SAMPLE_ITEMS = 40, 100
CALIBRATED = 10, 5  # of so many sample queries, one in so many pairs is read for the scales of channels
TOP, KEPT_SHARE = 10, 0.98
"""Of each top 10, what eight bits have to keep of it to be used."""


class ExportedCrossEncoder(Scorer):
    """A cross-encoder on onnxruntime.

    >>> scorer = ExportedCrossEncoder.load("cross-encoder/ms-marco-MiniLM-L6-v2")
    >>> scorer = ExportedCrossEncoder.load("emb+nishantyadav/emb_crossenc_msmarco_miniLM", precision="int8")
    """

    local = True  # a call costs neither money nor a request: a server may warm it up

    def __init__(self, home: Path, record: dict[str, Any], *, threads: int | None = None, name: str = "") -> None:
        self.home, self.record, self.name = home, record, name
        self.threads = cores() if threads is None else threads
        if self.threads < 1:
            raise InputError(f"{threads} threads cannot run a model; use 1 or more")
        self.form = form_of(open_tokenizer(home), record["form"])
        self.session = OnnxSession(home / "model.onnx", self.threads)
        self.inputs = self.session.inputs

    @classmethod
    def load(
        cls,
        model: str | Path,
        *,
        precision: Precision = "float32",
        max_length: int | None = None,
        threads: int | None = None,
        samples: Samples | None = None,
    ) -> ExportedCrossEncoder:
        """A hub id or a folder, exported if it has not been yet.

        Parameters
        ----------
        model
            `emb+…` scores by the inner product of [CLS] and [SEP], as ADACUR's models do (app. B.1); checkpoints of
            ANNCUR and BLINK are known by their tensors.
        precision
            "int8" rounds weights and activations; the first and the last layer stay in float32 where it would keep
            less than .98 of each top 10, and it is refused where that does not help.
        max_length
            Most tokens of a pair; by default what the tokenizer and the positions allow.
        samples
            Queries and items on which eight bits are judged, and the scales of channels taken; by default those in the
            box.
        """
        if precision not in ("float32", "int8"):
            raise InputError(f"an exported model is float32 or int8, not {precision!r}")
        name = str(model)
        folder = local_folder(name.removeprefix("emb+"))
        source = SavedModel(folder, emb=name.startswith("emb+") or "emb_crossenc" in name, max_length=max_length)
        settings: dict[str, Any] = {"precision": precision, "form": source.form_record()}
        if precision == "int8" and samples is not None:
            settings["samples"] = [list(samples[0]), [str(item) for item in samples[1]]]
        key = digest_of(source.files, settings)
        home, record = cached_model(key, lambda: source.export(precision, samples))
        return cls(home, {**record, "key": key}, threads=threads, name=name)

    @property
    def fingerprint(self) -> str:
        return f"onnx-{self.record['key']}"

    def bind(self, items: Items | Sequence[Item | str]) -> BoundScorer:
        """This model over items: each is tokenised when first scored, and kept."""
        return BoundPairs(self.form, self.score_rows, items_of(items))

    def score_rows(self, rows: Sequence[Row]) -> Floats:
        """Scores of rows, in order; rows of about one length run together."""
        sizes = np.asarray([len(row.ids) for row in rows], np.int64)
        scores = np.empty(len(rows), np.float64)

        def run(places: Positions) -> None:
            scores[places] = self.session.run(packed([rows[p] for p in places.tolist()], self.inputs))

        self.session.map(run, list(together(sizes, TOKENS, self.threads))[::-1])  # the longest first
        return scores

    def __repr__(self) -> str:
        return f"ExportedCrossEncoder({self.name!r}, fingerprint={self.fingerprint!r})"


def together(sizes: Positions, tokens: int, threads: int = 1) -> Iterator[Positions]:
    """Rows in groups of about so many tokens, from short to long, as many groups for each thread; the padding of each
    is no more than its tokens."""
    order = np.argsort(sizes, kind="stable")
    long = sizes[order]
    ends = np.cumsum(long)
    every = max(1, int(long.sum()))
    parts = threads * -(-every // (threads * tokens))
    group = (2 * ends - long) * parts // (2 * every)  # by the middle of each row: all groups hold about as many tokens
    start = 0
    for place in range(1, len(order) + 1):
        if place == len(order) or group[place] != group[start] or _padding(long[start : place + 1]):
            yield order[start:place]
            start = place


def _padding(long: Positions) -> bool:
    """Whether rows, from short to long, have more padding than tokens."""
    return bool(len(long) * long[-1] > 2 * long.sum())


class BoundPairs(BoundScorer):
    """A model of pairs that knows its items: each is tokenised when first scored, and kept."""

    def __init__(self, form: Form, score_rows: Callable[[Sequence[Row]], Floats], items: Items) -> None:
        self.form, self.score_rows, self.items = form, score_rows, items
        self.n_items = count_of(items)
        self._texts = BoundedCache(TOKEN_BYTES)
        self._queries: Recent[Text] = Recent(KEPT_QUERIES)
        self._lock = ForkLock()

    def score_many(
        self, requests: Sequence[Request], *, deadline: float | None = None, retries: Sequence[RetryBudget] = ()
    ) -> list[ScoreResult]:
        def read(owners: Positions, handles: Positions) -> Callable[[], Floats]:
            queries = self._queries.of([str(query) for query, _ in requests], self.form.queries)
            texts = self._read_items(handles)
            pairs = zip(owners.tolist(), handles.tolist(), strict=True)
            return partial(self.score_rows, [self.form.join(queries[owner], texts[handle]) for owner, handle in pairs])

        return as_pairs(requests, read)

    def _read_items(self, handles: Positions) -> dict[int, Text]:
        wanted = np.unique(handles).tolist()
        with self._lock:
            found = {handle: self._texts[handle] for handle in wanted if handle in self._texts}
            unread = [handle for handle in wanted if handle not in found]
            if unread:
                texts = self.form.items(self.items.get(np.asarray(unread, np.int64)))
                for handle, text in zip(unread, texts, strict=True):
                    found[handle] = text
                    self._texts.keep(handle, text, text.ids.nbytes)
        return found


class SavedModel:
    """A model as its authors have saved it."""

    def __init__(self, folder: Path, *, emb: bool, max_length: int | None) -> None:
        self.folder = folder
        self.config = read_config(folder)
        self.weights = weights_file(folder)
        self.wrapper = _json(folder / "wrapper_config.json")
        self.marked = self.weights.suffix in (".torch", ".ckpt")
        self.emb = emb
        self.longest = max_length or self._longest()
        names = ("config.json", "model.config", "wrapper_config.json", "tokenizer.json", "vocab.txt")
        self.files = {name: folder / name for name in names if (folder / name).is_file()}
        self.files["weights"] = self.weights
        if max_length is not None and max_length < 8:
            raise InputError(f"{max_length} tokens have no room for a pair; give 8 or more")

    def _longest(self) -> int:
        given = _json(self.folder / "tokenizer_config.json").get("model_max_length", 1 << 60)
        places = int(self.config.get("max_position_embeddings", 512))
        if "roberta" in str(self.config.get("model_type")) or self.config.get("model_type") == "camembert":
            places -= int(self.config.get("pad_token_id", 1)) + 1
        return int(min(given, places))

    def form_record(self) -> dict[str, Any]:
        """How pairs are written, as JSON."""
        if self.marked:
            sides = {side: int(self.wrapper.get(f"max_{name}_len", 128)) for side, name in _SIDES.items()}
            return {"kind": "marked", **sides}
        return {"kind": "plain", "longest": self.longest, "emb": self.emb}

    def body_arrays(self) -> dict[str, Any]:
        """The tensors of the encoder alone, by the names that transformers gives them."""
        saved = read_arrays(self.weights)
        known = ("encoder.bert_model.", "bert.", "roberta.", "distilbert.", "electra.", "model.")
        prefix = next((one for one in known if any(name.startswith(one) for name in saved)), "")
        return {name.removeprefix(prefix): array for name, array in saved.items() if name.startswith(prefix)}

    def read(self) -> tuple[Body, Head, dict[str, Any]]:
        """The encoder, its head, and its form."""
        saved = read_arrays(self.weights)
        where = repr(str(self.folder))
        form = self.form_record()
        if self.marked:
            body = read_body(self.config, saved, where, prefix="encoder.bert_model.")
            linear = saved.get("encoder.additional_linear.weight")
            if linear is None:  # [EMB]-CE: (h[M_s] + h[M_e]) / 2 · h[ENT]
                return body, Head(reads=3, dot=True), {**form, "emb": True}
            steps = [Step("linear", linear, saved.get("encoder.additional_linear.bias"))]
            if self.wrapper.get("pooling_type", "cls_w_lin") == "cls_w_lin":
                weight, bias = (saved[f"encoder.bert_model.pooler.dense.{part}"] for part in ("weight", "bias"))
                steps = [Step("linear", weight, bias), Step("tanh"), *steps]
            return body, Head(steps=tuple(steps)), {**form, "emb": False}
        body = read_body(self.config, saved, where)
        if self.longest > body.longest:
            raise InputError(f"{where} has positions for {body.longest} tokens and {self.longest} are asked for")
        return body, Head(reads=2, dot=True) if self.emb else classifier(self.config, saved, where), form

    def export(self, precision: Precision, samples: Samples | None) -> tuple[dict[str, bytes], dict[str, Any]]:
        """The files of the exported model, and what is to be known of it."""
        body, head, form = self.read()
        tokenizer = open_tokenizer(self.folder, lowercase=bool(self.config.get("do_lower_case", True)))
        files = {"tokenizer.json": tokenizer.to_str().encode()}
        facts: dict[str, Any] = {"precision": precision, "form": form, "kind": body.kind}
        graph = whole_graph(body, head)
        if precision == "int8":
            made = form_of(tokenizer, form)
            rows = _sample_rows(made, samples, marked=self.marked)
            graph, told = self._rounded(body, head, graph, rows)
            facts |= told
        return {**files, "model.onnx": graph}, facts

    def _rounded(
        self, body: Body, head: Head, exact: bytes, rows: Sequence[Sequence[Row]]
    ) -> tuple[bytes, dict[str, Any]]:
        """The model in eight bits, with as many of its layers as the ranking allows, and what is kept of it."""
        queries, step = CALIBRATED
        scales = channel_scales(body, head, [some[::step] for some in rows[:queries]])
        best, shares = _tops(exact, rows), []
        for left in left_out(body.layers):
            exempt = tuple(f"layers.{layer}." for layer in left)
            channels = {name: None if name.startswith(exempt) else scale for name, scale in scales.items()}
            small = whole_graph(body, head, "integer", channels)
            shares.append(_shared(best, _tops(small, rows)))
            if shares[-1] >= KEPT_SHARE:
                return small, {"top10_kept": shares[-1], "layers_in_float32": list(left)}
        raise InputError(
            f"in eight bits {str(self.folder)!r} keeps {max(shares):.3f} of each top 10, not {KEPT_SHARE}: "
            "use precision='float32', or samples of your own texts, if they are unlike those in the box"
        )


def left_out(layers: int) -> list[tuple[int, ...]]:
    """Layers that eight bits leave in float32, in the order of trials: none; the first and the last that is whole,
    where most of the error arises. Of the last layer of all only what the head reads is computed, in float32."""
    return [(), (0, layers - 2)] if layers > 3 else [()]


_SIDES = {"query_tokens": "input", "item_tokens": "label"}


def _json(path: Path) -> dict[str, Any]:
    import json

    return dict(json.loads(path.read_text("utf-8"))) if path.is_file() else {}


def form_of(tokenizer: Any, form: dict[str, Any]) -> Form:
    if form["kind"] == "marked":
        return Marked.of(tokenizer, query_tokens=form["query_tokens"], item_tokens=form["item_tokens"], emb=form["emb"])
    return Plain.of(tokenizer, form["longest"], emb=form["emb"])


def _sample_rows(form: Form, samples: Samples | None, *, marked: bool) -> list[list[Row]]:
    """Rows of a few queries, each with the same items."""
    if samples is None:
        from crosscut.datasets.bundled import load_world

        world = load_world()
        texts = [query.text for query in world.queries[:SAMPLE_QUERIES]]
        if not marked:
            texts = [text.replace("[START] ", "").replace(" [END]", "") for text in texts]
        items: Sequence[Item | str] = world.items[:: len(world.items) // SAMPLE_ITEMS][:SAMPLE_ITEMS]
    else:
        texts, items = list(samples[0]), list(samples[1])
    if not texts or len(items) < 20:
        raise InputError(f"samples of {len(texts)} queries and {len(items)} items are too few; give 1 and 20 or more")
    read = form.items(items)
    return [[form.join(query, item) for item in read] for query in form.queries(texts)]


def _tops(graph: bytes, rows: Sequence[Sequence[Row]]) -> list[set[int]]:
    """The places of each query's ten best items."""
    session, tops = OnnxSession(graph, cores()), []
    for some in rows:
        feeds = [packed(some[at : at + 32], session.inputs) for at in range(0, len(some), 32)]
        scores = np.concatenate(session.map(session.run, feeds))
        tops.append(set(np.argsort(-scores, kind="stable")[:TOP].tolist()))
    return tops


def _shared(best: Sequence[set[int]], found: Sequence[set[int]]) -> float:
    """The mean share of each query's best that was found."""
    return float(np.mean([len(one & other) / TOP for one, other in zip(best, found, strict=True)]))


def as_pairs(
    requests: Sequence[Request], read: Callable[[Positions, Positions], Callable[[], Floats]]
) -> list[ScoreResult]:
    """All requests as one list of pairs, some at a time: `read(owners, handles)` reads them, the call it gives pays."""
    if not requests:
        return []
    sizes = [len(handles) for _, handles in requests]
    handles = np.concatenate([np.asarray(handles, np.int64) for _, handles in requests])
    owners = np.repeat(np.arange(len(sizes)), sizes)
    scores, paid = np.full(len(handles), np.nan), np.zeros(len(handles), np.bool_)
    failed: ScorerError | None = None
    for start in range(0, len(handles), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        try:
            call = read(owners[part], handles[part])
            paid[part] = True
            scores[part] = call()
        except Exception as error:  # onnxruntime's exceptions share no base class; items may come from anywhere
            failed = ScorerError(f"the cross-encoder failed on {len(handles[part])} pairs: {error}")
            failed.__cause__ = error
            break
    ends = np.cumsum(sizes)[:-1]
    return [
        ScoreResult(some, called, None if np.isfinite(some).all() else failed)
        for some, called in zip(np.split(scores, ends), np.split(paid, ends), strict=True)
    ]
