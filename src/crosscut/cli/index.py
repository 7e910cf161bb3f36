"""`crosscut index`: build, add, remove, forget, tune, learn, verify, compact, complete, show."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from crosscut.cli.common import counted, lasting, progress_bar, read_texts, result, say
from crosscut.cli.corpus import announce, is_streamed, look_at, read_corpus, what_was_built
from crosscut.cli.options import ColumnOptions, EngineName, Folder, Json, LoadOptions, with_groups
from crosscut.cli.show import show
from crosscut.cli.tuning import told_by_recall, told_by_relevance
from crosscut.cli.upkeep import compact, complete
from crosscut.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Make an index of your texts, and keep it.")

Corpus = Annotated[
    Path, typer.Argument(help="A JSONL, JSON, CSV, TSV, Parquet, Arrow or text file, or a folder of texts.")
]


@app.command()
@with_groups
def build(
    corpus: Corpus,
    folder: Folder,
    columns: ColumnOptions,
    scorer: Annotated[str, typer.Option(help="'default', a model folder, a hub id, or an address.")] = "default",
    encoder: Annotated[
        str,
        typer.Option(help="Dual encoder: 'default', a folder, a hub id, or 'none'; auto is default without --vectors."),
    ] = "auto",
    queries: Annotated[
        Path | None,
        typer.Option(help="Train queries (.jsonl, .tsv, .txt): scored with every item, they make searches far better."),
    ] = None,
    anchors: Annotated[int, typer.Option(help="How many of them, at most, for --space cur.")] = 200,
    calls: Annotated[
        int | None,
        typer.Option(min=1, help="Spend at most so many calls on train queries, where they help most."),
    ] = None,
    space: Annotated[
        str,
        typer.Option(
            help="cur: scores with every item; als, transductive, inductive: factors of a few; encoder; auto."
        ),
    ] = "auto",
    per_query: Annotated[int, typer.Option(help="Items scored per train query, for factors.")] = 100,
    store: Annotated[
        Path | None, typer.Option(help="A score store: known scores are free, a build that was stopped goes on.")
    ] = None,
    method: Annotated[str, typer.Option(help="What searches use unless told otherwise.")] = "crosscut",
    no_words: Annotated[bool, typer.Option("--no-words", help="No BM25 in round one.")] = False,
    vectors: Annotated[
        Path | None, typer.Option(help="Vectors of the items, a .npy file; --encoder is then only for queries.")
    ] = None,
    passages: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Cut documents into passages of so many words; searches answer with documents. 0 keeps them whole.",
            show_default="120 for a folder of files, 0 otherwise",
        ),
    ] = None,
    engine: EngineName = "local",
    device: Annotated[
        str | None,
        typer.Option(help="Where factors are trained: cuda, cuda:1, mps.", show_default="cpu"),
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(help="Of products while inductive factors are trained: bf16; fp16 on a GPU.", show_default="fp32"),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Scores of a step while factors are trained.", show_default="1024")
    ] = None,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--in-memory",
            help="Item after item, in bounded memory; a build that was stopped goes on. For files over 1 GB it is so.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Build an index: items are embedded, their words counted; with --queries, train queries are scored with all.

    Examples:

        crosscut index build corpus.jsonl my.index

        crosscut index build corpus.parquet my.index --text body --id pk

        crosscut index build notes/ notes.index

        crosscut index build scifact/ my.index --queries train.jsonl --anchors 100 --store scores/

        crosscut index build corpus.jsonl my.index --queries train.jsonl --calls 20000

        crosscut index build corpus.jsonl my.index --queries train.jsonl --space inductive --per-query 50 --device cuda

        crosscut index build collection.tsv my.index --vectors vectors.npy --stream
    """
    from crosscut.index import Index
    from crosscut.index.passages import Passages

    started = time.monotonic()
    streamed = is_streamed(corpus, stream)
    _has_room(folder, streamed)
    dense = space in ("auto", "cur")
    asked = read_texts(queries) if queries is not None else None
    cut = Passages.of(None if passages is None else passages or False, corpus)
    source: Any = (look_at if streamed else read_corpus)(corpus, columns.named, whole=cut is None)
    if calls is None:
        announce(asked and asked[: anchors if dense else None], source, cut, None if dense else per_query)
    with progress_bar() as progress:
        index = Index.build(
            source,
            scorer=scorer,
            encoder=None if encoder == "none" else encoder,
            vectors=vectors,
            passages=cut or False,
            queries=asked,
            anchors=anchors,
            calls=calls,
            space=space,  # type: ignore[arg-type]
            per_query=per_query,
            store=store,
            bm25=not no_words,
            method=method,
            engine=engine,  # type: ignore[arg-type]
            device=_trained_on(device, dtype=dtype, batch_size=batch_size),
            progress=progress,
            path=folder if streamed else None,
            **(columns.named if streamed else {}),
        )
        if not streamed:
            index.save(folder)
    took = lasting(time.monotonic() - started)
    record = {"items": len(index), "calls": index.build_calls, "anchors": len(index.anchor_queries)}
    what, learnt = what_was_built(source, index)
    result(f"{what} in {folder}, in {took}{learnt}", record, as_json)
    if not as_json:
        say(f'next: crosscut search {folder} "…", or crosscut serve {folder}')


def _has_room(folder: Path, streamed: bool) -> None:
    """Refuse a folder that cannot become an index, before anything is read or paid for."""
    from crosscut.index.folder import KIND
    from crosscut.storage import Folder as Home

    if (folder / "index.json").exists():
        raise InputError(f"there is an index at {str(folder)!r} already: use `crosscut index add`, or another folder")
    if not streamed:  # there the parts of a build that was stopped may lie
        Home(folder, KIND).check()


def _trained_on(device: str | None, **settings: str | int | None) -> str | None:
    """A device with arithmetic and batches behind it, as `Index.build` takes them."""
    told = "&".join(f"{name}={value}" for name, value in settings.items() if value is not None)
    return f"{device or 'cpu'}#{told}" if told else device


@app.command()
@with_groups
def add(
    folder: Folder,
    corpus: Corpus,
    columns: ColumnOptions,
    loading: LoadOptions,
    vectors: Annotated[Path | None, typer.Option(help="Vectors of these items, a .npy file.")] = None,
    as_json: Json = False,
) -> None:
    """Add items: they are embedded, not scored, and can be found at once.

    Example:

        crosscut index add my.index more.jsonl
    """
    with progress_bar() as progress:
        index = loading.index(folder)
        count = index.add(corpus, vectors=vectors, progress=progress, **columns.named)
        index.save()
    told = f"{counted(count, 'item')} added; {len(index):,} in {folder}"
    result(told, {"added": count, "items": len(index)}, as_json)


@app.command()
@with_groups
def remove(
    folder: Folder,
    ids: Annotated[list[str], typer.Argument(help="Ids of items.")],
    loading: LoadOptions,
    as_json: Json = False,
) -> None:
    """Remove items: no search finds them. `forget` also sees to it that no file holds them.

    Example:

        crosscut index remove my.index 4983 5836
    """
    index = loading.index(folder)
    count = index.remove(ids)
    index.save()
    told = f"{counted(count, 'item')} removed; {len(index):,} in {folder}"
    result(told, {"removed": count, "items": len(index)}, as_json)


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
    _there("log of searches", log)
    _there("score store", store)
    index = loading.index(folder, store)
    index.keep_log(log)
    lines = [] if texts is None else texts.read_text(encoding="utf-8").splitlines()
    found = index.forget(ids or (), texts=lines)
    summary = f"{counted(found.items, 'item')}, {counted(found.scores, 'score')} and {found.searches:,} logged searches"
    counts = {"forgotten": found.items, "scores": found.scores, "searches": found.searches, "items": len(index)}
    result(f"erased {summary}; {len(index):,} items in {folder}", counts, as_json)


def _there(what: str, path: Path | None) -> None:
    """Refuse to forget where nothing is: something may be left elsewhere."""
    if path is not None and not path.exists():
        raise InputError(f"there is no {what} at {str(path)!r}, and nothing was forgotten: give the one that is used")


@app.command()
@with_groups
def tune(
    folder: Folder,
    loading: LoadOptions,
    queries: Annotated[
        Path | None, typer.Option(help="Train queries; without them, the anchor queries of the index, for no calls.")
    ] = None,
    k: Annotated[int, typer.Option("-k", help="How many neighbours.")] = 10,
    budget: Annotated[int, typer.Option(help="Calls per query.")] = 100,
    judgements: Annotated[
        Path | None, typer.Option(help="Judgements of these queries: choose by what people want, not by recall.")
    ] = None,
    measure: Annotated[str, typer.Option(help="With --judgements: nDCG, MRR or accuracy.")] = "nDCG",
    split: Annotated[str, typer.Option(help="With --judgements: which queries, train, test, or all.")] = "train",
    limit: Annotated[int, typer.Option(help="With --judgements: so many queries, drawn by the seed.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw.", min=0)] = 0,
    max_calls: Annotated[int | None, typer.Option(help="Refuse to spend more than this.")] = None,
    engine: EngineName = "local",
    as_json: Json = False,
) -> None:
    """Choose method, settings and stopping rules on train queries; calibrate --target-recall.

    Example:

        crosscut index tune my.index -k 10 --budget 200

        crosscut index tune my.index --queries queries.tsv --judgements qrels.tsv --measure MRR
    """
    from crosscut.datasets.judged import read_judged

    index = loading.index(folder)
    by: dict[str, Any] = {"k": k, "budget": budget, "max_calls": max_calls}
    if judgements is not None:
        if queries is None:
            raise InputError(f"judgements name queries by id, and {judgements.name} has no texts: give --queries, too")
        judged = read_judged(queries, judgements=judgements, split=split).sample(limit, seed)
        say(judged.note)
        by |= {"judgements": judged.by_text, "measure": measure}
    else:
        by |= {"queries": None if queries is None else read_texts(queries), "engine": engine}
    if by.get("queries") is not None:
        say(f"the truth of the train queries takes {index.tuning_calls(by['queries']):,} calls")
    with progress_bar() as progress:
        report: Any = index.tune(**by, progress=progress)
        index.save()
    if as_json:
        typer.echo(json.dumps(report.json(), indent=1))
    else:
        (told_by_recall if judgements is None else told_by_relevance)(report)


@app.command()
@with_groups
def learn(
    folder: Folder,
    log: Annotated[Path, typer.Option(help="The log of past searches, as `crosscut serve --log` writes it.")],
    loading: LoadOptions,
    as_json: Json = False,
) -> None:
    """Learn from past searches: better searches without anchor scores, and not one call more.

    What is learned is used only if it does better on logged searches that were held out.

    Example:

        crosscut index learn my.index --log searches.log
    """
    from crosscut.index.log import SearchLog

    if not log.exists():
        raise InputError(
            f"there is no log of searches at {str(log)!r}: searches write one with --log (crosscut search, crosscut "
            "serve), or after index.keep_log"
        )
    if log.stat().st_size and not SearchLog(log).read():
        raise InputError(f"{str(log)!r} holds no search: it is not what searches write with --log")
    index = loading.index(folder)
    index.keep_log(log)
    got = index.learn()
    index.save()
    record = {"searches": got.searches, "used": got.prior is not None, "plain": got.plain, "learned": got.learned}
    told = {name: None if value != value else value for name, value in record.items()}  # no NaN in JSON
    result(f"{got.searches:,} past searches; {got.why}", told, as_json)


@app.command()
def verify(folder: Folder, as_json: Json = False) -> None:
    """Read every file of an index and compare every checksum; exit 1 if one is damaged.

    Example:

        crosscut index verify my.index
    """
    from crosscut.index.folder import verify as read_all

    damaged = read_all(folder)
    result("\n".join(damaged) or f"every file of {folder} is whole", {"damaged": damaged}, as_json)
    if damaged:
        raise typer.Exit(1)


app.command()(compact)
app.command()(complete)
app.command()(show)
