"""`crosscut score`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosscut.cli.common import INTERRUPTED, counted, lasting, progress_bar, say
from crosscut.cli.options import EngineOptions, Json, ModelOptions, TextOptions, World, with_groups
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.datasets import Item, Query
    from crosscut.datasets.columns import ColumnNames
    from crosscut.score_store import Estimate, ScoringResult


@with_groups
def score(
    corpus: Annotated[
        Path, typer.Argument(help="A BEIR folder, or a JSONL, CSV, TSV, Parquet, Arrow, JSON or text file of items.")
    ],
    store: Annotated[Path, typer.Option(help="The folder of the score store; made if it is not there.")],
    engines: EngineOptions,
    running: ModelOptions,
    columns: TextOptions,
    queries: Annotated[
        Path | None, typer.Option(help="A file of queries, of the same kinds; those of the BEIR folder if left out.")
    ] = None,
    scorer: Annotated[
        str, typer.Option(help="'default', a model folder, a hub id, or the address of an API.")
    ] = "default",
    pairs: Annotated[
        Path | None,
        typer.Option(help="Score these pairs only: query id and item id between tabs, one pair a line."),
    ] = None,
    world: World = None,
    limit: Annotated[int | None, typer.Option(help="Make at most so many calls now.")] = None,
    max_queries: Annotated[int | None, typer.Option(help="Only the first so many queries.")] = None,
    price_per_thousand: Annotated[float | None, typer.Option(help="Of calls, to say what they will cost.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only say what is there and what is missing.")] = False,
    as_json: Json = False,
) -> None:
    """Score every query with every item and keep the scores: resumable, crash-safe, on one machine or many.

    What is in the store is not scored again, so a run that was stopped is continued by the same command; several runs
    may fill one store at once. Before it starts it says how many calls it will make, and roughly what they take.

    Examples:

        crosscut score scifact/ --store scores/

        crosscut score items.jsonl --queries train.tsv --scorer https://api.example.com/rerank --workers 8 --store scores/ --price-per-thousand 2

        crosscut score scifact/ --store scores/ --status

        crosscut score scifact/ --store scores/ --engine ray --address auto --workers 16
    """  # noqa: E501
    from crosscut.models.spec import with_settings

    scorer = with_settings(scorer, **running.given)
    items, asked = _texts(corpus, queries, max_queries, columns.named, world)
    if status:
        _status(store, scorer, items, asked, pairs, price_per_thousand, as_json)
        return
    from crosscut.index.build import loader
    from crosscut.index.knowing import fitted_to
    from crosscut.score_store.jobs import ScoringOptions, score_matrix, score_pairs
    from crosscut.scorers.loading import load_scorer

    engine = engines.made(scorer)
    texts = [query.text for query in asked], items
    model = fitted_to(load_scorer(scorer), items)  # as an index of these items will have it
    with progress_bar(quiet=as_json) as progress:
        options = ScoringOptions(
            store=store,
            load=loader(scorer, model),
            engine=engine,
            limit=limit,
            price_per_thousand=price_per_thousand,
            estimate=_announce,
            progress=progress,
        )
        try:
            if pairs is None:
                result = score_matrix(model, *texts, **options)
            else:
                result = score_pairs(model, *texts, *_pairs(pairs, asked, items), **options)
        except KeyboardInterrupt:
            say("stopped; every block that was finished is in the store, and the same command goes on")
            raise typer.Exit(INTERRUPTED) from None
    _report(result, store, price_per_thousand, as_json)


def _announce(estimate: Estimate) -> None:
    say(said(estimate))


def said(estimate: Estimate) -> str:
    """An estimate as a sentence."""
    known, pairs, calls, rate = estimate.known, estimate.pairs, estimate.calls, estimate.pairs_per_second
    if not calls:
        return f"nothing to score: all {pairs:,} scores are in the store"
    words = [f"{known:,} of {pairs:,} scores are in the store; {counted(calls, 'call')} to make"]
    if estimate.seconds is not None and rate is not None:
        words.append(f"about {lasting(estimate.seconds)} at {rate:,.0f} pairs/s")
    if estimate.cost is not None:
        words.append(f"costing about {estimate.cost:,.2f}")
    return ", ".join(words)


def _texts(
    corpus: Path, queries: Path | None, most: int | None, columns: ColumnNames, world: str | None
) -> tuple[list[Item], list[Query]]:
    from crosscut.datasets import read_items, read_queries, read_world
    from crosscut.datasets.files import find

    collection = None if world is None else read_world(corpus, world, split="all")
    items = list(read_items(corpus, **columns)) if collection is None else collection.items
    if collection is not None and queries is None:
        asked = collection.queries
    elif queries is None and not corpus.is_dir():
        raise InputError(f"{str(corpus)!r} is a file of items: name a file of queries with --queries")
    else:
        asked = read_queries(queries or find(corpus, "queries.jsonl", "queries.dev.small.tsv"))
    if most is not None:
        if most < 1:
            raise InputError(f"--max-queries is {most}; it must be 1 or more")
        asked = asked[:most]
    for name, found in (("items", items), ("queries", asked)):
        if not found:
            raise InputError(f"there are no {name} to score in {str(queries or corpus)!r}")
    return items, asked


def _pairs(path: Path, queries: list[Query], items: list[Item]) -> tuple[list[int], list[int]]:
    """Numbers of the queries and items that a file of pairs names."""
    from crosscut.datasets.files import lines

    places = [
        {query.id: place for place, query in enumerate(queries)},
        {item.id: place for place, item in enumerate(items)},
    ]
    rows: list[int] = []
    columns: list[int] = []
    for number, line in lines(path):
        fields = line.split("\t")
        if number == 1 and fields[0] in ("query-id", "query_id", "qid"):
            continue
        if len(fields) < 2:
            raise InputError(f"{path} line {number} has no tab; expected a query id and an item id between tabs")
        for kind, id, known in zip(("query", "item"), fields, places, strict=False):
            if id not in known:
                raise InputError(
                    f"{path} line {number} names the {kind} {id!r}, which is not among the {len(known)} read"
                )
        rows.append(places[0][fields[0]])
        columns.append(places[1][fields[1]])
    return rows, columns


def _status(
    path: Path,
    name: str,
    items: list[Item],
    queries: list[Query],
    pairs: Path | None,
    price: float | None,
    as_json: bool,
) -> None:
    import numpy as np

    from crosscut.index.knowing import fitted_to
    from crosscut.score_store import Keys, ScoreStore
    from crosscut.scorers.loading import load_scorer

    held = ScoreStore(path, scorer_fingerprint=fitted_to(load_scorer(name), items).fingerprint)
    query_keys, item_keys = Keys.of([query.text for query in queries]), Keys.of(items)
    if pairs is None:
        wanted = len(queries) * len(items)
        missing = sum(len(positions) for _, positions in held.missing(query_keys, item_keys))
    else:
        chosen = np.unique(np.array(_pairs(pairs, queries, items)), axis=1)
        wanted = chosen.shape[1]
        rows = [(row, chosen[1, chosen[0] == row]) for row in np.unique(chosen[0]).tolist()]
        missing = sum(int(np.isnan(held.get(query_keys.names[row], item_keys, places)).sum()) for row, places in rows)
    summary = held.summary()
    seconds = missing / summary.pairs_per_second if missing and summary.pairs_per_second else None
    cost = None if price is None else missing * price / 1000
    if as_json:
        counts = {"pairs": wanted, "known": wanted - missing, "missing": missing, "seconds_left": seconds, "cost": cost}
        typer.echo(json.dumps({"scorer": held.scorer_fingerprint, **summary._asdict(), **counts}))
        return
    share = 100 * (wanted - missing) / max(wanted, 1)
    say(f"{wanted - missing:,} of {wanted:,} scores are in the store ({share:.1f} %)")
    if missing:
        pace = "at a pace not yet known" if seconds is None else f"about {lasting(seconds)} at the latest pace"
        price_told = "" if cost is None else f", about {cost:,.2f}"
        say(f"{counted(missing, 'call')} to make, {pace}{price_told}")
    say(
        f"in all {summary.scores:,} scores of {summary.queries:,} queries by scorer {held.scorer_fingerprint}: "
        f"{counted(summary.records, 'record')}, {summary.bytes / 1e6:,.1f} MB"
    )


def _report(result: ScoringResult, store: Path, price: float | None, as_json: bool) -> None:
    if as_json:
        facts = {
            "store": str(store),
            "calls": result.calls,
            "known": result.known,
            "missing": result.missing,
            "lost": result.lost,
            "seconds": result.seconds,
            "cost": None if price is None else result.calls * price / 1000,
        }
        typer.echo(json.dumps(facts))
        return
    left = f"; {result.missing:,} are left for the next run" if result.missing else ""
    lost = f", {result.lost:,} of them without a score" if result.lost else ""
    say(f"made {result.calls:,} calls in {lasting(result.seconds)}{lost}{left}")
