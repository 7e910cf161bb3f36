"""`crosscut evaluate` and `crosscut calibrate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.options import EngineName, Folder, Json, LoadOptions, QueryOptions, numbers, with_groups
from crosscut.cli.output import console, progress_bar, result, say, table
from crosscut.errors import InputError, needing

if TYPE_CHECKING:
    from crosscut.datasets.judged import JudgedQueries
    from crosscut.evaluation.evaluate import Measurement, Outcome
    from crosscut.index import Index
    from crosscut.methods import Method

SHOWN = ("nDCG@10", "Success@1")
"""Measures of the table; the others are in the JSON."""

Queries = Annotated[Path, typer.Argument(help="A BEIR folder with qrels, or a file of queries (.jsonl, .tsv, .txt).")]


@with_groups
def evaluate(
    index: Folder,
    loading: LoadOptions,
    judged: Annotated[QueryOptions, {"split": "test"}],
    queries: Annotated[
        Path | None, typer.Argument(help="A BEIR folder with qrels, or a file of queries (.jsonl, .tsv, .txt).")
    ] = None,
    titles: Annotated[
        bool, typer.Option("--titles", help="No qrels? Use item titles as queries (removed from the items).")
    ] = False,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods, comma-separated: rerank,axn@rounds=10; by default rerank and the index's."),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "5,10,20,50,100,200",
    k: Annotated[str, typer.Option("-k", help="Neighbours for k-NN recall, comma-separated.")] = "10",
    exhaustive: Annotated[
        int, typer.Option(help="Queries scored with every item, for k-NN recall; 0 leaves it out.", min=0)
    ] = 20,
    engine: EngineName = "local",
    json_path: Annotated[Path | None, typer.Option("--json", help="Write records and advice here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw relevance and recall against calls: .svg, .png.")] = None,
) -> None:
    """Does it pay? Relevance and recall against calls, beside searches without any, and advice in a sentence.

    Relevance is what people judged, recall the share of the scorer's own top k that a search finds. Recall needs the
    scores of some queries with every item; how many calls that takes is printed first.

    Examples:

        crosscut evaluate my.index scifact/ --json out.json --plot out.svg

        crosscut evaluate my.index queries.tsv --qrels clicks.tsv --budgets 10,50,100

        crosscut evaluate my.index queries.txt --exhaustive 50 -k 1,10
    """
    from crosscut.evaluation.evaluate import advise, evaluate, exhaustive_scores, no_call_baselines, records_of
    from crosscut.evaluation.plots import measures_against_calls
    from crosscut.evaluation.pseudo_queries import title_queries
    from crosscut.methods import parse_all
    from crosscut.storage import write_json

    sizes, ks = numbers("--budgets", budgets), numbers("-k", k)
    if queries is None and not titles:
        raise InputError("what should be evaluated? give a folder or a file of queries, or --titles")
    read = judged.read(queries)
    loaded = loading.index(index)
    if read is None:
        with console(stderr=True).status("hiding titles"):
            loaded, read = title_queries(loaded, seed=judged.seed)
        read = read.sample(judged.limit, judged.seed)
        say(read.note)
    names = parse_all(methods) if methods else list(dict.fromkeys([*parse_all("rerank"), loaded.method]))
    own = str(loaded.method) if loaded.method in names else str(names[-1])
    _check(loaded, read, names, sizes, (json_path, plot), plot is not None)
    known = dict(list(read.queries.items())[:exhaustive])
    recalls: list[Outcome] = []
    searched, free = [], []
    with progress_bar() as progress, _keeping(json_path, read.note, recalls):
        if known:
            calls = len(known) * len(loaded)
            what = f"scoring {len(known)} queries with {len(loaded):,} items"
            say(f"{what}: {calls:,} calls; --exhaustive 0 leaves it out")
            scores, _ = exhaustive_scores(loaded, list(known.values()), progress, engine=engine)  # type: ignore[arg-type]
            recalls += no_call_baselines(loaded, known, {}, k=ks, exhaustive=scores)
            recalls += evaluate(
                loaded, known, {}, methods=names, budgets=sizes, k=ks, exhaustive=scores, progress=progress
            )
        if read.by_text:
            free = no_call_baselines(loaded, read.queries, read.qrels)
            searched = evaluate(loaded, read.queries, read.qrels, methods=names, budgets=sizes, progress=progress)
    if not recalls and not searched:
        raise InputError("there is nothing to measure: no qrels, and --exhaustive 0")
    advice = advise(searched, free, own)
    records = records_of([*free, *searched, *recalls])
    _show(records)
    out = console()
    for sentence in advice.sentences:
        out.print(sentence, soft_wrap=not out.is_terminal)
    if json_path is not None:
        content = {"queries": read.note, "advice": advice.json(), "records": [record.json() for record in records]}
        write_json(json_path, content)
        say(f"wrote {json_path}")
    if plot is not None:
        measures_against_calls([record for record in records if _is_shown(record)], plot)
        say(f"wrote {plot}")


def _check(
    index: Index,
    judged: JudgedQueries,
    methods: Sequence[Method],
    budgets: Sequence[int],
    written: Sequence[Path | None],
    plotted: bool,
) -> None:
    """Refuse what would fail after calls have been paid for."""
    if judged.by_text:
        with needing("relevance is measured by ir-measures", "eval"):
            import ir_measures  # noqa: F401
    if plotted:
        with needing("plots are drawn by {}", "plots"):
            import matplotlib  # noqa: F401
    for path in written:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise InputError(f"{str(path)!r} cannot be written: name a file in a folder that exists")
    query = next(iter(judged.queries.values()))
    for method in methods:  # a search that is halted before its first call
        budget = None if method.name == "exact" else max(budgets)
        index.search_many([query], 1, budget, method=method, halts=[lambda: "checked"])


@contextmanager
def _keeping(path: Path | None, note: str, recalls: list[Outcome]) -> Iterator[None]:
    """Write the recall that was paid for, where a later step fails."""
    from crosscut.evaluation.evaluate import records_of
    from crosscut.storage import write_json

    try:
        yield
    except BaseException:
        if path is not None and recalls:
            write_json(path, {"queries": note, "records": [record.json() for record in records_of(recalls)]})
            say(f"wrote what was measured to {path}")
        raise


def _is_shown(record: Measurement) -> bool:
    return record.measure in SHOWN or record.measure.startswith("recall")


def _show(records: list[Measurement]) -> None:
    measures = list(dict.fromkeys(record.measure for record in records if _is_shown(record)))
    rows: dict[tuple[str, Any], dict[str, Measurement]] = {}
    for record in records:
        rows.setdefault((record.method, record.budget), {})[record.measure] = record
    cells = []
    for (method, _), found in rows.items():
        values = [found.get(measure) for measure in measures]
        shown = ["–" if one is None else f"{one.value:.3f} ±{(one.high - one.low) / 2:.3f}" for one in values]
        cells.append((method, f"{next(iter(found.values())).calls:.0f}", *shown))
    counts = [f"{m}: {next(r.queries for r in records if r.measure == m)}" for m in measures]
    note = f"± half of the 95 % interval; queries measured: {', '.join(counts)}"
    table("mean over queries", ("method", "calls", *measures), cells, note=note)


@with_groups
def calibrate(
    index: Folder,
    queries: Queries,
    loading: LoadOptions,
    judged: Annotated[QueryOptions, {"limit": 100}],
    budget: Annotated[int | None, typer.Option(help="Scorer calls for each query.")] = None,
    as_json: Json = False,
) -> None:
    """Learn probabilities from scores: hits then have one, 0 … 1, and --threshold works. Saved with the index.

    Each judged query is searched, and its ten best hits are compared with the qrels.

    Examples:

        crosscut calibrate my.index queries.jsonl --qrels qrels.tsv

        crosscut calibrate my.index scifact/ --split train --limit 50
    """
    read = judged.read(queries)
    assert read is not None
    if not read.by_text:
        raise InputError(f"{str(queries)!r} has no qrels: how often a score is relevant cannot be known without")
    loaded = loading.index(index)
    with console(stderr=True).status("calibrating"):
        found = loaded.calibrate(read.by_text, budget=budget)
    loaded.save()
    sentence = (
        f"calibrated on {found.queries} judged queries ({found.relevant} relevant items among their ten best), "
        f"{found.calls:,} calls; on queries held out: "
        f"calibration error {found.error:.3f}, Brier skill {found.skill:.3f}"
    )
    result(sentence, found.json(), as_json)
