"""`crosscut search`."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.common import (
    PriceOfCalls,
    PriceOfTokens,
    TrustRemote,
    conditions,
    console,
    counted,
    piped,
    price,
    table,
)
from crosscut.errors import InputError

REASONS = {
    "budget": "the budget is spent",
    "exhausted": "everything was scored",
    "patience": "the top k had settled",
    "confident": "more calls would hardly change the top k",
    "target recall": "enough is expected to be found",
    "deadline": "the deadline had come",
    "rounds": "all rounds were made",
}
"""Why a search stopped, in words."""
FEW = 4  # up to this many queries are answered sooner than compiled loops are loaded

if TYPE_CHECKING:
    from crosscut.index import Index
    from crosscut.search.hits import Hits


def search(
    index: Annotated[Path, typer.Argument(help="An index folder, made by `crosscut index build`.")],
    query: Annotated[list[str] | None, typer.Argument(help="Queries; without any, one a line from a pipe.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many hits.")] = 10,
    budget: Annotated[
        int | None, typer.Option(help="Calls of the scorer per query, at most; 100, or every item for exact.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Another method than the index's own, with settings: axn@rounds=10,mix=0.8.")
    ] = None,
    stop: Annotated[str | None, typer.Option(help="A stopping rule: patience@rounds=2.")] = None,
    filter: Annotated[
        list[str] | None, typer.Option(help="A condition on metadata: key=value, key>=value, …; may be repeated.")
    ] = None,
    target_recall: Annotated[float | None, typer.Option(help="Stop at this expected recall (after a tune).")] = None,
    deadline: Annotated[float | None, typer.Option(help="Seconds after which no more calls are made.")] = None,
    rank: Annotated[
        str | None, typer.Option(help="The order of hits: scorer, or fused (scorer, vectors and words together).")
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="Only hits that are relevant with this probability (the box's scorer knows; others, once calibrated)."
        ),
    ] = None,
    scorer: Annotated[str | None, typer.Option(help="The scorer, if the index does not name it.")] = None,
    trust_remote: TrustRemote = False,
    price_calls: PriceOfCalls = 0.0,
    price_tokens: PriceOfTokens = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a query.")] = False,
) -> None:
    """Search an index: the best items by exact score, with at most --budget calls a query.

    Examples:

        crosscut search my.index "how do vaccines work" -k 5 --budget 100

        cat queries.txt | crosscut search my.index --json --filter language=en --filter 'year>=2000'
    """
    from crosscut.index import Index
    from crosscut.linalg.products import few

    asked = list(query or ()) or piped()
    if not asked:
        raise InputError("there is no query: give one, or pipe queries in, one a line")
    chosen = conditions(filter)
    errors = console(stderr=True)
    with errors.status("loading the index"):
        loaded = Index.load(index, scorer=scorer, trust_remote=trust_remote)
    loaded.price = price(price_calls, price_tokens)
    with few() if len(asked) <= FEW else nullcontext(), errors.status(f"searching {len(loaded):,} items"):
        found = loaded.search_many(
            asked,
            k,
            budget,
            method=method,
            filter=chosen,
            stop=stop,
            target_recall=target_recall,
            deadline=deadline,
            threshold=threshold,
            rank=rank,
        )
    for hits in found:
        if as_json:
            typer.echo(json.dumps(_record(hits, loaded), ensure_ascii=False))
        else:
            _show(hits, loaded)


def _record(hits: Hits, index: Index) -> dict[str, Any]:
    return {
        "query": hits.query,
        "hits": [
            {
                "id": hit.id,
                "score": hit.score,
                "probability": hit.probability,
                "round": hit.round,
                "title": index[hit.id].title,
                "text": index[hit.id].text,
            }
            for hit in hits
        ],
        "calls": hits.calls,
        "cached": hits.cached,
        **({} if hits.cost is None else {"cost": hits.cost}),
        "rounds": hits.rounds,
        "stop_reason": hits.stop_reason,
        "seconds": {"scorer": hits.seconds.scorer, "fit": hits.seconds.fit, "select": hits.seconds.select},
    }


def _show(hits: Hits, index: Index) -> None:
    rows = []
    for place, hit in enumerate(hits, 1):
        item = index[hit.id]
        snippet = item.text if len(item.text) <= 160 else item.text[:157] + "…"
        text = f"{item.title} · {snippet}" if item.title else snippet
        chance = () if hit.probability is None else (f"{hit.probability:.2f}",)
        rows.append((place, f"{hit.score:.2f}", *chance, hit.round, hit.id, text))
    chances = ("probability",) if hits and hits[0].probability is not None else ()
    table(hits.query, ("", "score", *chances, "round", "id", "text"), rows)
    seconds = hits.seconds
    told = f"{seconds.total:.2f} s ({seconds.scorer:.2f} s of them in the scorer)"
    why = REASONS.get(hits.stop_reason, f"stopped by {hits.stop_reason}")
    money = "" if hits.cost is None else f"; {hits.cost:.6g} in money"
    typer.echo(f"{counted(hits.calls, 'call')} in {counted(hits.rounds, 'round')}, {told}; {why}{money}\n")
