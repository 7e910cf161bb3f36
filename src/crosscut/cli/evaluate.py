"""`crosscut evaluate`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import console, numbers, progress_bar, say, table
from crosscut.cli.options import EngineName, IndexFolder, LoadOptions, with_groups
from crosscut.errors import InputError, needing

if TYPE_CHECKING:
    from crosscut.datasets.judged import JudgedQueries
    from crosscut.evaluation.judged import Judged, Point
    from crosscut.index import Index
    from crosscut.methods import Method

SHOWN = ("nDCG@10", "Success@1")
"""Measures of the table; the others are in the JSON."""


@with_groups
def evaluate(
    index: IndexFolder,
    loading: LoadOptions,
    queries: Annotated[
        Path | None, typer.Argument(help="A BEIR folder with judgements, or a file of queries (.jsonl, .tsv, .txt).")
    ] = None,
    judgements: Annotated[
        Path | None,
        typer.Option(help="Judgements or clicks of a file of queries: query id, item id, relevance, between tabs."),
    ] = None,
    titles: Annotated[
        bool,
        typer.Option("--titles", help="Nothing is judged: search items by their titles, which are hidden for it."),
    ] = False,
    split: Annotated[
        str, typer.Option(help="Which queries, if they tell their split or are of a folder: test, train, or all.")
    ] = "test",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Methods, comma-separated, with settings: rerank,axn@rounds=10; by default rerank and the index's."
        ),
    ] = None,
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "5,10,20,50,100,200",
    k: Annotated[str, typer.Option("-k", help="Neighbours for k-NN recall, comma-separated.")] = "10",
    limit: Annotated[int | None, typer.Option(help="So many queries, drawn by the seed.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Of the draw.", min=0)] = 0,
    truth: Annotated[
        int, typer.Option(help="Queries scored with every item for k-NN recall; 0 leaves it out.", min=0)
    ] = 20,
    engine: EngineName = "local",
    json_path: Annotated[Path | None, typer.Option("--json", help="Write records and advice here.")] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Draw relevance and recall against calls: .svg, .png, .pdf.")
    ] = None,
) -> None:
    """Does it pay? Relevance and recall against calls, beside what there is without any, and advice in a sentence.

    Relevance is what people judged, recall is how much of the scorer's own answer a search finds. k-NN recall needs
    the truth of some queries, their score with every item; what that takes is said first.

    Examples:

        crosscut evaluate my.index scifact/ --json out.json --plot out.svg

        crosscut evaluate my.index queries.tsv --judgements clicks.tsv --budgets 10,50,100

        crosscut evaluate my.index --titles --limit 50

        crosscut evaluate my.index queries.txt --truth 50 -k 1,10
    """
    from crosscut.evaluation.advice import advise, records_of
    from crosscut.evaluation.judged import points, truth_of, unscored
    from crosscut.evaluation.plots import measures_against_calls
    from crosscut.methods import parse_all
    from crosscut.storage import write_json

    sizes, ks = numbers("--budgets", budgets), numbers("-k", k)
    asked = _read(queries, judgements, split, titles)
    with console(stderr=True).status("loading the index"):
        loaded = loading.index(index)
    loaded, asked = _titled(loaded, seed) if asked is None else (loaded, asked)
    asked = asked.sample(limit, seed)
    say(asked.note)
    names = parse_all(methods) if methods else list(dict.fromkeys([*parse_all("rerank"), loaded.method]))
    own = str(loaded.method) if loaded.method in names else str(names[-1])
    _check_first(loaded, asked, names, sizes, (json_path, plot), plot is not None)
    known = dict(list(asked.queries.items())[:truth])
    recalls: list[Point] = []
    searched, free = [], []
    with progress_bar() as progress, _kept(json_path, asked.note, recalls):
        if known:
            say(
                f"the truth of {len(known)} queries × {len(loaded):,} items: {len(known) * len(loaded):,} calls; "
                "--truth 0 leaves it out"
            )
            scores, _ = truth_of(loaded, list(known.values()), progress, engine=engine)  # type: ignore[arg-type]
            recalls += unscored(loaded, known, {}, k=ks, truth=scores)
            recalls += points(loaded, known, {}, methods=names, budgets=sizes, k=ks, truth=scores, progress=progress)
        if asked.by_text:
            free = unscored(loaded, asked.queries, asked.judgements)
            searched = points(loaded, asked.queries, asked.judgements, methods=names, budgets=sizes, progress=progress)
    if not recalls and not searched:
        raise InputError("there is nothing to measure: no judgements, and --truth 0")
    advice = advise(searched, free, own)
    records = records_of([*free, *searched, *recalls])
    _show(records)
    out = console()
    for sentence in advice.sentences:  # between words on a screen, one line in a pipe
        out.print(sentence, soft_wrap=not out.is_terminal)
    if json_path is not None:
        told = {"queries": asked.note, "advice": advice.json(), "records": [record.json() for record in records]}
        write_json(json_path, told)
        say(f"wrote {json_path}")
    if plot is not None:
        measures_against_calls([record for record in records if _is_shown(record)], plot)
        say(f"wrote {plot}")


def _check_first(
    index: Index,
    asked: JudgedQueries,
    methods: Sequence[Method],
    budgets: Sequence[int],
    written: Sequence[Path | None],
    plotted: bool,
) -> None:
    """Refuse what would fail after calls have been paid for."""
    if asked.by_text:
        with needing("relevance is measured by ir-measures", "eval"):
            import ir_measures  # noqa: F401
    if plotted:
        with needing("plots are drawn by {}", "plots"):
            import matplotlib  # noqa: F401
    for path in written:
        if path is not None and (path.is_dir() or not path.parent.is_dir()):
            raise InputError(f"{str(path)!r} cannot be written: name a file in a folder that exists")
    query = next(iter(asked.queries.values()))
    for method in methods:  # a search that is halted before its first call
        budget = None if method.name == "exact" else max(budgets)
        index.search_many([query], 1, budget, method=method, halts=[lambda: "checked"])


@contextmanager
def _kept(path: Path | None, note: str, recalls: list[Point]) -> Iterator[None]:
    """Write what the truth has shown, where a later step fails."""
    from crosscut.evaluation.advice import records_of
    from crosscut.storage import write_json

    try:
        yield
    except BaseException:
        if path is not None and recalls:
            write_json(path, {"queries": note, "records": [record.json() for record in records_of(recalls)]})
            say(f"wrote what was measured to {path}")
        raise


def _is_shown(record: Judged) -> bool:
    return record.measure in SHOWN or record.measure.startswith("recall")


def _read(queries: Path | None, judgements: Path | None, split: str, titles: bool) -> JudgedQueries | None:
    from crosscut.datasets.judged import read_judged

    if queries is None and not titles:
        raise InputError("what should be evaluated? give a folder or a file of queries, or --titles")
    if queries is None:
        return None
    asked = read_judged(queries, judgements=judgements, split=split)
    if not asked.queries:
        raise InputError(f"{str(queries)!r} has no queries to evaluate on")
    return asked


def _titled(index: Index, seed: int) -> tuple[Index, JudgedQueries]:
    from crosscut.evaluation.titles import hidden_titles

    with console(stderr=True).status("hiding titles"):
        return hidden_titles(index, seed=seed)


def _show(records: list[Judged]) -> None:
    measures = list(dict.fromkeys(record.measure for record in records if _is_shown(record)))
    rows: dict[tuple[str, Any], dict[str, Judged]] = {}
    for record in records:
        rows.setdefault((record.method, record.budget), {})[record.measure] = record
    cells = []
    for (method, _), found in rows.items():
        values = [found.get(measure) for measure in measures]
        shown = ["–" if one is None else f"{one.value:.3f} ±{(one.high - one.low) / 2:.3f}" for one in values]
        cells.append((method, f"{next(iter(found.values())).calls:.0f}", *shown))
    table("mean over queries, ± half of the 95 % interval", ("method", "calls", *measures), cells, keys=2)
    told = [f"{m}: {next(r.queries for r in records if r.measure == m)}" for m in measures]
    say(f"queries that were measured, {', '.join(told)}")
