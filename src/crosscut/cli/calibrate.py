"""`crosscut calibrate`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crosscut.cli.common import console, say
from crosscut.cli.options import IndexFolder, Json, LoadOptions, with_groups
from crosscut.errors import InputError


@with_groups
def calibrate(
    index: IndexFolder,
    loading: LoadOptions,
    queries: Annotated[
        Path, typer.Argument(help="A BEIR folder with judgements, or a file of queries (.jsonl, .tsv, .txt).")
    ],
    judgements: Annotated[
        Path | None, typer.Option(help="Judgements of a file of queries: query id, item id, relevance, between tabs.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Which queries, if they tell their split or are of a folder: train, test, or all.")
    ] = "train",
    limit: Annotated[int, typer.Option(help="Queries that are drawn, at most.", min=1)] = 100,
    budget: Annotated[int | None, typer.Option(help="Calls of the scorer for each of them.")] = None,
    seed: Annotated[int, typer.Option(help="Of the draw.", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """Learn what scores mean: hits then have a probability, 0 … 1, and --threshold works. Saved with the index.

    Each judged query is searched, and its ten best hits are compared with the judgements.

    Examples:

        crosscut calibrate my.index queries.jsonl --judgements qrels.tsv

        crosscut calibrate my.index scifact/ --split train --limit 50
    """
    from crosscut.datasets.judged import read_judged

    judged = read_judged(queries, judgements=judgements, split=split).sample(limit, seed)
    say(judged.note)
    if not judged.by_text:
        raise InputError(f"{str(queries)!r} has no judgements: how often a score is relevant cannot be known without")
    with console(stderr=True).status("loading the index"):
        loaded = loading.index(index)
    with console(stderr=True).status("calibrating"):
        made = loaded.calibrate(judged.by_text, budget=budget)
    loaded.save()
    if as_json:
        typer.echo(json.dumps(made.json()))
        return
    typer.echo(
        f"calibrated on {made.queries} judged queries ({made.relevant} relevant items among their ten best), "
        f"{made.calls:,} calls; on queries held out: "
        f"calibration error {made.error:.3f}, Brier skill {made.skill:.3f}"
    )
