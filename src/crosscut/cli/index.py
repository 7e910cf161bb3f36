"""`crosscut index`: build, add, remove, forget, tune, learn, verify, compact, complete, show; `crosscut fill`."""

from __future__ import annotations

import itertools
import json
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.options import (
    ColumnOptions,
    Corpus,
    Encoder,
    EngineName,
    EngineOptions,
    Folder,
    Json,
    LoadOptions,
    QueryOptions,
    read_texts,
    with_groups,
)
from crosscut.cli.output import counted, duration, progress_bar, result, say, table
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.datasets.records import Item

app = typer.Typer(no_args_is_help=True, help="Build an index of your texts, and maintain it.")

STREAMED = 10**9  # bytes of a file that is not read into memory
INSPECTED = 1000  # items of one that is not
LONG = 200  # words; most scorers read fewer than a text with more of them has
CONTENTS = {
    "vectors.npy": "vectors",
    "bm25-terms.npy": "words",
    "anchors.npy": "scores of train queries",
    "factors.json": "factors",
    "prior.json": "past searches",
}
"""Names of optional files of an index, as `info` prints them."""

Ids = Annotated[list[str], typer.Argument(help="Ids of items.")]


@dataclass(frozen=True)
class TrainingOptions:
    """Options for training factors of train queries."""

    device: Annotated[str | None, typer.Option(help="cuda, cuda:1, mps.", show_default="cpu")] = None
    dtype: Annotated[
        str | None, typer.Option(help="Of inductive factors: bf16; fp16 on a GPU.", show_default="fp32")
    ] = None
    batch_size: Annotated[int | None, typer.Option(min=1, help="Scores of a step.", show_default="1024")] = None

    @property
    def trained_on(self) -> str | None:
        """The device with its settings, as `Index.build` takes it."""
        given = {"dtype": self.dtype, "batch_size": self.batch_size}
        settings = "&".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"{self.device or 'cpu'}#{settings}" if settings else self.device


@app.command()
@with_groups
def build(
    corpus: Corpus,
    folder: Folder,
    columns: ColumnOptions,
    training: TrainingOptions,
    scorer: Annotated[str, typer.Option(help="'default', a model folder, a hub id, or an address.")] = "default",
    encoder: Annotated[
        str, typer.Option(help="'default', a folder, a hub id, or 'none'; auto is default without --vectors.")
    ] = "auto",
    queries: Annotated[
        Path | None, typer.Option(help="Train queries: scored with every item, they make searches far better.")
    ] = None,
    anchors: Annotated[int, typer.Option(help="Most train queries, for --space cur.")] = 200,
    calls: Annotated[
        int | None, typer.Option(min=1, help="Most calls for train queries, spent where they help most.")
    ] = None,
    space: Annotated[
        str,
        typer.Option(
            help="cur: scores with every item; als, transductive, inductive: factors of a few; encoder; auto."
        ),
    ] = "auto",
    per_query: Annotated[int, typer.Option(help="Items scored per train query, for factors.")] = 100,
    store: Annotated[
        Path | None, typer.Option(help="A score store: known scores are free, a stopped build goes on.")
    ] = None,
    method: Annotated[str, typer.Option(help="The method of searches.")] = "crosscut",
    no_words: Annotated[bool, typer.Option("--no-words", help="No BM25 in round one.")] = False,
    vectors: Annotated[
        Path | None, typer.Option(help="Vectors of the items, .npy; --encoder is then only for queries.")
    ] = None,
    passages: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Cut documents into passages of so many words; searches answer with documents. 0: no cutting.",
            show_default="120 for a folder of files, 0 otherwise",
        ),
    ] = None,
    engine: EngineName = "local",
    stream: Annotated[
        bool | None,
        typer.Option("--stream/--in-memory", help="Item by item, in bounded memory; the default over 1 GB."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an index: items are encoded, their words counted; with --queries, train queries are scored with all items.

    Examples:

        crosscut index build corpus.jsonl my.index

        crosscut index build corpus.parquet my.index --text body --id pk

        crosscut index build scifact/ my.index --queries train.jsonl --anchors 100 --store scores/

        crosscut index build corpus.jsonl my.index --queries train.jsonl --calls 20000

        crosscut index build collection.tsv my.index --vectors vectors.npy --stream
    """
    from crosscut.index import Index
    from crosscut.index.passages import Passages

    started = time.monotonic()
    streamed = corpus.is_file() and corpus.stat().st_size > STREAMED if stream is None else stream
    _check_target(folder, streamed)
    train = read_texts(queries) if queries is not None else None
    cut = Passages.of(None if passages is None else passages or False, corpus)
    source = _read(corpus, columns, streamed, remark_long=cut is None)
    if train and calls is None and isinstance(source, list):
        n = len(source) if cut is None else sum(1 for _ in cut.cut(source))
        if space in ("auto", "cur"):
            train_count, each = min(len(train), anchors), n
        else:
            train_count, each = len(train), min(per_query, n)
        unit = "items" if cut is None else "passages"
        say(f"{train_count:,} train queries × {each:,} {unit}: {train_count * each:,} calls to make at most")
    with progress_bar(quiet=as_json) as progress:
        index = Index.build(
            source,
            scorer=scorer,
            encoder=None if encoder == "none" else encoder,
            vectors=vectors,
            passages=cut or False,
            queries=train,
            anchors=anchors,
            calls=calls,
            space=space,  # type: ignore[arg-type]
            per_query=per_query,
            store=store,
            bm25=not no_words,
            method=method,
            engine=engine,  # type: ignore[arg-type]
            device=training.trained_on,
            progress=progress,
            path=folder if streamed else None,
            **(columns.named if streamed else {}),
        )
        if not streamed:
            index.save(folder)
    what = counted(len(index), "item")
    if cut is not None:
        what = f"{len(index):,} passages"
        what = f"{counted(len(source), 'document')} ({what})" if isinstance(source, list) else what
    learned = "" if index.taught is None else f"; {index.build_calls:,} calls on train queries, {index.taught.why}"
    record = {"items": len(index), "calls": index.build_calls, "anchors": len(index.anchor_queries)}
    result(f"{what} in {folder}, in {duration(time.monotonic() - started)}{learned}", record, as_json)
    if not as_json:
        say(f'next: crosscut search {folder} "…", or crosscut serve {folder}')


def _check_target(folder: Path, streamed: bool) -> None:
    """Refuse a folder that cannot become an index, before anything is read or paid for."""
    from crosscut.index.folder import KIND
    from crosscut.storage import Folder as Target

    if (folder / "index.json").exists():
        raise InputError(f"there is an index at {str(folder)!r} already: use `crosscut index add`, or another folder")
    if not streamed:  # there the parts of a stopped build may lie
        Target(folder, KIND).check()


def _read(corpus: Path, columns: ColumnOptions, streamed: bool, *, remark_long: bool) -> Path | list[Item]:
    """Return the items of a corpus, or its path if it is not read into memory; say what is odd about them."""
    from crosscut.index.items import as_items
    from crosscut.index.items import stream as stream_items

    if streamed:
        items = list(itertools.islice(stream_items(corpus, **columns.named), INSPECTED))
    else:
        with progress_bar() as progress:
            items = as_items(corpus, progress=progress, **columns.named)
    these = f"the first {len(items):,}" if streamed else f"{len(items):,}"
    empty = [item.id for item in items if not (item.title + item.text).strip()]
    if empty:
        say(f"without a text: {counted(len(empty), 'item')} of {these}, the first is {empty[0]!r}")
    long = sum(item.text.count(" ") > LONG for item in items) if remark_long else 0
    if long:
        say(
            f"longer than {LONG} words: {counted(long, 'item')} of {these}; most scorers read only the "
            "beginning of such texts (--passages 120 cuts them into passages)"
        )
    return corpus if streamed else items


@app.command()
@with_groups
def add(
    folder: Folder,
    corpus: Corpus,
    columns: ColumnOptions,
    loading: LoadOptions,
    vectors: Annotated[Path | None, typer.Option(help="Vectors of these items, .npy.")] = None,
    as_json: Json = False,
) -> None:
    """Add items: they are encoded, not scored, and can be found at once.

    Example:

        crosscut index add my.index more.jsonl
    """
    with progress_bar(quiet=as_json) as progress:
        index = loading.index(folder)
        count = index.add(corpus, vectors=vectors, progress=progress, **columns.named)
        index.save()
    sentence = f"{counted(count, 'item')} added; {len(index):,} in {folder}"
    result(sentence, {"added": count, "items": len(index)}, as_json)


@app.command()
@with_groups
def remove(folder: Folder, ids: Ids, loading: LoadOptions, as_json: Json = False) -> None:
    """Remove items: no search finds them. Files, a search log and a score store may still hold them: see `forget`.

    Example:

        crosscut index remove my.index 4983 5836
    """
    index = loading.index(folder)
    count = index.remove(ids)
    index.save()
    sentence = f"{counted(count, 'item')} removed; {len(index):,} in {folder}"
    result(sentence, {"removed": count, "items": len(index)}, as_json)


@app.command()
@with_groups
def forget(
    folder: Folder,
    loading: LoadOptions,
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of items, also of those that were removed before.")
    ] = None,
    texts: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line, whose scores are erased from the store.")
    ] = None,
    store: Annotated[Path | None, typer.Option(help="A score store that has scores of them.")] = None,
    log: Annotated[Path | None, typer.Option(help="A log of searches that scored them.")] = None,
    as_json: Json = False,
) -> None:
    """Erase items and every trace of them: from the index's files, a score store, a log, and what was learned.

    Example:

        crosscut index forget my.index 4983 --store scores/ --log searches.log
    """
    for what, path in (("log of searches", log), ("score store", store)):
        if path is not None and not path.exists():  # something may be left elsewhere
            raise InputError(f"there is no {what} at {str(path)!r}, and nothing was forgotten: give the one in use")
    index = loading.index(folder, store=store, log=log)
    lines = [] if texts is None else texts.read_text(encoding="utf-8").splitlines()
    found = index.forget(ids or (), texts=lines)
    summary = f"{counted(found.items, 'item')}, {counted(found.scores, 'score')} and {found.searches:,} logged searches"
    record = {"forgotten": found.items, "scores": found.scores, "searches": found.searches, "items": len(index)}
    result(f"erased {summary}; {len(index):,} items in {folder}", record, as_json)


@app.command()
@with_groups
def tune(
    folder: Folder,
    loading: LoadOptions,
    judged: QueryOptions,
    queries: Annotated[
        Path | None, typer.Option(help="Train queries; without them, the index's anchor queries, for no calls.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Number of hits.")] = 10,
    budget: Annotated[int, typer.Option(help="Calls per query.")] = 100,
    measure: Annotated[str, typer.Option(help="With --qrels: nDCG, MRR or accuracy.")] = "nDCG",
    max_calls: Annotated[int | None, typer.Option(help="Refuse to make more calls.")] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Choose method, settings and stopping rules on train queries; calibrate --target-recall.

    With --qrels by relevance, on --limit queries of the --split; without by recall of the scorer's own top k.

    Examples:

        crosscut index tune my.index -k 10 --budget 200

        crosscut index tune my.index --queries queries.tsv --qrels qrels.tsv --measure MRR
    """
    by: dict[str, Any] = {"k": k, "budget": budget, "max_calls": max_calls}
    if judged.qrels is not None:
        read = judged.read(queries)
        assert read is not None  # without queries it raises
        by |= {"qrels": read.by_text, "measure": measure}
    else:
        by |= {"queries": None if queries is None else read_texts(queries), "engine": engine}
    index = loading.index(folder)
    if by.get("queries") is not None:
        say(f"scoring the train queries with every item takes {index.tuning_calls(by['queries']):,} calls")
    with progress_bar(quiet=as_json) as progress:
        report: Any = index.tune(**by, progress=progress)
        index.save()
    if as_json:
        typer.echo(json.dumps(report.json(), indent=1))
    elif judged.qrels is None:
        _show_tuning_by_recall(report)
    else:
        _show_tuning_by_relevance(report)


def _show_tuning_by_relevance(report: Any) -> None:
    rows = [
        (str(trial.method), str(trial.order), str(trial.stop or "never"), f"{trial.calls:.0f}", f"{trial.value:.3f}")
        for trial in sorted(report.trials, key=lambda trial: -trial.value)
    ]
    title = f"k = {report.k}, {report.queries} judged queries, the best of {len(report.trials)} trials"
    table(title, ("method", "order", "stop", "calls", report.measure), [*dict.fromkeys(rows)][:15])
    best = report.chosen
    typer.echo(
        f"chosen: {best.method}, {best.budget} calls, order {best.order}, stop {best.stop or 'never'}: "
        f"{report.measure} {best.value:.3f} ({best.low:.3f} … {best.high:.3f}) on these queries"
    )


def _show_tuning_by_recall(report: Any) -> None:
    rows = [(trial.method, f"{trial.value:.3f}", f"{trial.low:.3f} … {trial.high:.3f}") for trial in report.trials]
    title = f"k = {report.k}, {report.chosen.budget} calls, {report.queries} queries"
    best = report.trials.index(report.chosen)
    table(title, ("tried", "recall", "95 %"), rows, bold={(best, column) for column in range(3)})
    for line in (f"chosen: {report.chosen.method}", *report.notes):
        typer.echo(line)
    patience = report.patience
    if patience is not None:
        typer.echo(f"{patience.stop}: recall {patience.value:.3f} with {patience.calls:.0f} calls")
    if report.targets:
        reached = []
        for one in report.targets:
            fixed = "–" if one.fixed_calls is None else f"{one.fixed_calls:.0f}"
            reached.append((f"{one.target:g}", f"{one.recall:.3f}", f"{one.calls:.0f}", fixed))
        table("on the train queries", ("target recall", "reached", "calls", "fixed budget for as much"), reached)


@app.command()
@with_groups
def learn(
    folder: Folder,
    log: Annotated[Path, typer.Option(help="The log of past searches, as `crosscut serve --log` writes it.")],
    loading: LoadOptions,
    as_json: Json = False,
) -> None:
    """Learn from past searches: better searches without anchor scores, and without a further call.

    What is learned is used only if it does better on logged searches that were held out.

    Example:

        crosscut index learn my.index --log searches.log
    """
    if not log.exists():
        raise InputError(
            f"there is no log of searches at {str(log)!r}: searches write one with --log (crosscut search, crosscut "
            "serve), or after index.keep_log"
        )
    index = loading.index(folder, log=log)
    learned = index.learn()
    index.save()
    record: dict[str, Any] = {"searches": learned.searches, "used": learned.prior is not None}
    record |= {"plain": learned.plain, "learned": learned.learned}
    finite = {name: None if value != value else value for name, value in record.items()}  # no NaN in JSON
    result(f"{learned.searches:,} past searches; {learned.why}", finite, as_json)


@app.command()
def verify(folder: Folder, as_json: Json = False) -> None:
    """Read every file of an index and compare every checksum; exit 1 if one is damaged.

    Example:

        crosscut index verify my.index
    """
    from crosscut.index import Index

    damaged = Index.verify(folder)
    result("\n".join(damaged) or f"every file of {folder} is intact", {"damaged": damaged}, as_json)
    if damaged:
        raise typer.Exit(1)


@app.command()
@with_groups
def compact(folder: Folder, loading: LoadOptions, as_json: Json = False) -> None:
    """Write the files of an index without removed items; large ones keep up to an eighth of them until then.

    Example:

        crosscut index compact my.index
    """
    index = loading.index(folder)
    count = index.compact()
    if count:
        index.save()
    sentence = f"{counted(count, 'removed item')} left the files" if count else "no removed item was left in the files"
    result(f"{sentence}; {len(index):,} in {folder}", {"compacted": count, "items": len(index)}, as_json)


@app.command()
@with_groups
def complete(
    folder: Folder,
    loading: LoadOptions,
    store: Annotated[
        Path | None, typer.Option(help="A score store: known scores are free, a stopped run goes on.")
    ] = None,
    max_calls: Annotated[int | None, typer.Option(help="Refuse to make more calls.")] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Score the train queries with items that were added since: until then their scores are estimates.

    Example:

        crosscut index complete my.index --store scores/
    """
    index = loading.index(folder, store=store)
    most = index.completing_calls
    if most and not as_json:
        say(f"the scores of train queries with items that were added since take up to {most:,} calls")
    with progress_bar(quiet=as_json) as progress:
        calls = index.complete(max_calls=max_calls, engine=engine, progress=progress)  # type: ignore[arg-type]
        if most:
            index.save()
    sentence = f"every item has its scores, after {counted(calls, 'call')}" if most else "every item had its scores"
    result(f"{sentence}; {len(index):,} in {folder}", {"calls": calls, "items": len(index)}, as_json)


@app.command()
def show(folder: Folder, as_json: Json = False) -> None:
    """Show what is in an index.

    Example:

        crosscut index show my.index
    """
    from crosscut.index.folder import KIND
    from crosscut.storage import Folder as Saved

    manifest = Saved(folder, KIND).record()
    folders = {manifest["folder"]: manifest["files"], **manifest["parts"]}
    hidden = ("files", "parts", "removed", "anchor_queries", "tuned", "format", "folder")
    facts: dict[str, Any] = {name: value for name, value in manifest.items() if name not in hidden}
    facts |= {"segments": len(manifest["parts"])}
    facts |= {"bytes": sum(file["bytes"] for files in folders.values() for file in files.values())}
    facts |= {"tuned": manifest["tuned"] is not None}
    if as_json:
        typer.echo(json.dumps(facts, indent=1))
        return
    keys = [key for part in manifest["parts"] for key in json.loads((folder / part / "metadata.json").read_bytes())]
    metadata = [key for key in dict.fromkeys(keys) if not key.startswith("passage_")]
    contents = [content for name, content in CONTENTS.items() if any(name in files for files in folders.values())]
    cut = facts.get("passages")
    rows = [
        ("items" if cut is None else "passages", f"{facts['items']:,}" + (f" of {cut['words']} words" if cut else "")),
        ("metadata", ", ".join(metadata) or "none"),
        ("scorer", _model(facts["scorer"])),
        ("encoder", _model(facts["encoder"])),
        ("searches use", ", ".join(contents) or "nothing but the items"),
        ("method", facts["method"] + (", settings tuned" if facts["tuned"] else "")),
        ("budget", f"{facts.get('budget') or 100} calls, unless a search gives another"),
        ("stopping rule", facts.get("stop") or "the method's own"),
        ("order of hits", facts["order"]),
        ("probabilities", "calibrated" if facts.get("calibration") else "uncalibrated"),
        ("calls to build it", f"{facts['build_calls']:,}"),
        ("on disk", f"{facts['bytes'] / 1e6:,.1f} MB, format {facts['version']}, generation {facts['generation']}"),
    ]
    table(str(folder), ("", "value"), rows)


def _model(saved: dict[str, Any] | None) -> str:
    return "none" if saved is None else f"{saved['name'] or 'an object'} (fingerprint {saved['fingerprint']})"


@dataclass(frozen=True)
class StoreOptions:
    """A vector database, and what its columns or fields are called."""

    store_id: Annotated[str | None, typer.Option(help="The store's column or field of ids.")] = None
    store_vector: Annotated[str | None, typer.Option(help="Of vectors.")] = None
    store_text: Annotated[str | None, typer.Option(help="Of texts.")] = None
    store_title: Annotated[str | None, typer.Option(help="Of titles.")] = None
    store_metadata: Annotated[str | None, typer.Option(help="Of metadata, if it has one for all of it.")] = None
    api_key: Annotated[str | None, typer.Option(envvar="QDRANT_API_KEY", help="Of Qdrant.")] = None

    def open(self, address: str, name: str) -> Any:
        """Open a table or collection of a database."""
        from crosscut.stores.opening import open_store

        columns = {key.removeprefix("store_"): value for key, value in vars(self).items() if key != "api_key"}
        return open_store(address, name, api_key=self.api_key, **columns)


@with_groups
def fill(
    corpus: Corpus,
    store: Annotated[str, typer.Argument(help="postgresql://… (PostgreSQL), http://… (Qdrant), a folder of LanceDB.")],
    name: Annotated[str, typer.Argument(help="The table or collection, which is there already.")],
    stores: StoreOptions,
    engines: EngineOptions,
    columns: ColumnOptions,
    encoder: Encoder = "default",
    resume: Annotated[bool, typer.Option("--resume", help="Skip what the store has: goes on after a stop.")] = False,
    as_json: Json = False,
) -> None:
    """Write items and their vectors into a vector database, however many there are.

    Workers of Ray write straight into a server's store. Search it with `crosscut.Index.over(store)`.

    Examples:

        crosscut fill papers.jsonl postgresql://me@localhost/library papers --store-text body

        crosscut fill papers.jsonl http://localhost:6333 papers --engine ray --address auto --workers 16
    """
    from crosscut.index.items import stream
    from crosscut.index.store_corpus import fill as fill_store
    from crosscut.models.bi_encoder import load_encoder

    engine = engines.made()
    with closing(stores.open(store, name)) as opened:
        dimension = load_encoder(encoder).dimension
        if dimension != opened.d:
            raise InputError(
                f"the encoder makes vectors of {dimension} dimensions, and those of {opened.place} have {opened.d}: "
                "pass the --encoder they were made with"
            )
        with progress_bar(quiet=as_json) as progress:
            items = stream(corpus, progress=progress, **columns.named)
            written = fill_store(opened, items, encoder, engine, resume=resume, progress=progress)
        total = opened.count()
    sentence = f"{counted(written, 'item')} written; {total:,} in {opened.place}"
    result(sentence, {"written": written, "items": total}, as_json)
