"""`crosscut evaluate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import EngineName, TrustRemote, console, numbers, progress_bar, say, table
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.evaluation.judged import Judged


def evaluate(
    index: Annotated[Path, typer.Argument(help="An index folder, made by `crosscut index build`.")],
    queries: Annotated[
        Path, typer.Argument(help="A BEIR folder with judgements, or a file of queries (.jsonl, .tsv, .txt).")
    ],
    split: Annotated[str, typer.Option(help="Judgements of a BEIR folder: qrels/<split>.tsv.")] = "test",
    methods: Annotated[
        str, typer.Option(help="Methods, comma-separated, with settings: rnr,axn@rounds=10.")
    ] = "rnr,axn,crosscut",
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "50,100,200",
    k: Annotated[str, typer.Option("-k", help="Neighbours for k-NN recall, comma-separated.")] = "10",
    limit: Annotated[int | None, typer.Option(help="Only the first so many queries.")] = None,
    truth: Annotated[
        int, typer.Option(help="Queries scored with every item for k-NN recall; 0 leaves it out.", min=0)
    ] = 20,
    scorer: Annotated[str | None, typer.Option(help="The scorer, if the index does not name it.")] = None,
    engine: EngineName = "local",
    trust_remote: TrustRemote = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the records here.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Write plots (PNG) into this folder.")] = None,
) -> None:
    """Measure an index: does it find what the scorer would, and is that what people judged relevant?

    k-NN recall needs the truth of some queries, their score with every item; what that takes is said first.

    Examples:

        crosscut evaluate my.index scifact/ --methods rnr,crosscut --budgets 50,100 --json out.json --plots plots/

        crosscut evaluate my.index queries.txt --truth 50 -k 1,10
    """
    from crosscut.datasets import read_beir, read_queries
    from crosscut.evaluation.judged import evaluate as measure
    from crosscut.evaluation.judged import truth_of
    from crosscut.index import Index
    from crosscut.methods import parse_all
    from crosscut.storage import write_json

    judgements: dict[str, dict[str, float]] = {}
    if queries.is_dir():
        collection = read_beir(queries, split=split)
        judgements = collection.judgements
        asked = {query.id: query.text for query in collection.queries if query.id in judgements}
    else:
        asked = {query.id: query.text for query in read_queries(queries)}
    asked = dict(list(asked.items())[:limit])
    if not asked:
        raise InputError(f"{str(queries)!r} has no queries to evaluate on")
    names, sizes, ks = parse_all(methods), numbers("--budgets", budgets), numbers("-k", k)
    with console(stderr=True).status("loading the index"):
        loaded = Index.load(index, scorer=scorer, trust_remote=trust_remote)
    records: list[Judged] = []
    with progress_bar() as progress:
        known = dict(list(asked.items())[:truth])
        if known:
            say(
                f"the truth of {len(known)} queries × {len(loaded):,} items: {len(known) * len(loaded):,} calls; "
                "--truth 0 leaves it out"
            )
            scores, _ = truth_of(loaded, list(known.values()), progress, engine=engine)  # type: ignore[arg-type]
            records += measure(loaded, known, {}, methods=names, budgets=sizes, k=ks, truth=scores, progress=progress)
        if judgements:
            records += measure(loaded, asked, judgements, methods=names, budgets=sizes, k=ks, progress=progress)
    if not records:
        raise InputError("there is nothing to measure: no judgements, and --truth 0")
    _show(records)
    if json_path is not None:
        write_json(json_path, [record.json() for record in records])
        say(f"wrote {json_path}")
    if plots is not None:
        from crosscut.evaluation.plots import measures_against_calls

        plots.mkdir(parents=True, exist_ok=True)
        measures_against_calls(records, plots / "evaluation.png")
        say(f"wrote {plots / 'evaluation.png'}")


def _show(records: list[Judged]) -> None:
    measures = list(dict.fromkeys(record.measure for record in records))
    rows: dict[tuple[str, Any], dict[str, Judged]] = {}
    for record in records:
        rows.setdefault((record.method, record.budget), {})[record.measure] = record
    cells = []
    for (method, _), found in rows.items():
        values = [found.get(measure) for measure in measures]
        shown = ["–" if one is None else f"{one.value:.3f} ±{(one.high - one.low) / 2:.3f}" for one in values]
        cells.append((method, f"{next(iter(found.values())).calls:.0f}", *shown))
    table("mean over queries, ± half of the 95 % interval", ("method", "calls", *measures), cells, keys=2)
    queries = {measure: next(r.queries for r in records if r.measure == measure) for measure in measures}
    say(f"queries: {json.dumps(queries)}")
