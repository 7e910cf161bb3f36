"""`crosscut score`: a score store of queries and items; `crosscut export`: the same as an archive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from crosscut.cli.options import Corpus, EngineOptions, Json, ModelOptions, TextOptions, with_groups
from crosscut.cli.output import INTERRUPTED, counted, duration, progress_bar, result, say
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.datasets import Item, Query
    from crosscut.datasets.columns import ColumnNames
    from crosscut.score_store import Estimate

ScorerName = Annotated[str, typer.Option(help="'default', a model folder, a hub id, or the address of an API.")]


class Texts(NamedTuple):
    """Queries and items to score."""

    queries: list[Query]
    items: list[Item]


@with_groups
def score(
    corpus: Corpus,
    store: Annotated[Path, typer.Option(help="The score store; made if it is not there.")],
    engines: EngineOptions,
    running: ModelOptions,
    columns: TextOptions,
    queries: Annotated[
        Path | None, typer.Option(help="A file of queries; those of the BEIR folder if left out.")
    ] = None,
    scorer: ScorerName = "default",
    pairs: Annotated[
        Path | None, typer.Option(help="Score these pairs only: query id and item id between tabs, one pair a line.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Most calls of this run.")] = None,
    max_queries: Annotated[int | None, typer.Option(min=1, help="Only the first so many queries.")] = None,
    price_per_thousand: Annotated[float | None, typer.Option(help="Of calls, to estimate the cost.")] = None,
    status: Annotated[bool, typer.Option("--status", help="Only show what is there and what is missing.")] = False,
    as_json: Json = False,
) -> None:
    """Score every query with every item and keep the scores: resumable, on one machine or many.

    What is in the store is not scored again: the same command continues a run that was stopped, and several runs may
    fill one store at once. Before it starts it prints how many calls it will make, and roughly what they take.

    Examples:

        crosscut score scifact/ --store scores/

        crosscut score items.jsonl --queries train.tsv --scorer https://api.example.com/rerank --workers 8 --store s.db

        crosscut score scifact/ --store scores/ --status
    """
    from crosscut.index.knowing import fitted_to
    from crosscut.models.spec import with_settings
    from crosscut.scorers.loading import load_scorer

    scorer = with_settings(scorer, **running.given)
    texts = _read(corpus, queries, max_queries, columns.named)
    model = fitted_to(load_scorer(scorer), texts.items)  # as an index of these items has it
    chosen = None if pairs is None else _read_pairs(pairs, texts)
    if status:
        _status(store, model.fingerprint, texts, chosen, price_per_thousand, as_json)
        return
    from crosscut.index.build import loader
    from crosscut.score_store.jobs import ScoringOptions, score_matrix, score_pairs

    asked = [query.text for query in texts.queries]
    with progress_bar(quiet=as_json) as progress:
        options = ScoringOptions(
            store=store,
            load=loader(scorer, model),
            engine=engines.made(scorer),
            limit=limit,
            price_per_thousand=price_per_thousand,
            estimate=lambda estimate: say(sentence_of(estimate)),
            progress=progress,
        )
        try:
            if chosen is None:
                found = score_matrix(model, asked, texts.items, **options)
            else:
                found = score_pairs(model, asked, texts.items, *chosen, **options)
        except KeyboardInterrupt:
            say("stopped; every block that was finished is in the store, and the same command goes on")
            raise typer.Exit(INTERRUPTED) from None
    record = {"store": str(store), "calls": found.calls, "known": found.known, "missing": found.missing}
    record |= {"lost": found.lost, "seconds": found.seconds}
    record |= {"cost": None if price_per_thousand is None else found.calls * price_per_thousand / 1000}
    sentence = f"made {found.calls:,} calls in {duration(found.seconds)}"
    sentence += f", {found.lost:,} of them without a score" if found.lost else ""
    sentence += f"; {found.missing:,} are left for the next run" if found.missing else ""
    result(sentence, record, as_json)


def sentence_of(estimate: Estimate) -> str:
    """Return an estimate as a sentence."""
    known, pairs, calls, rate = estimate.known, estimate.pairs, estimate.calls, estimate.pairs_per_second
    if not calls:
        return f"nothing to score: all {pairs:,} scores are in the store"
    parts = [f"{known:,} of {pairs:,} scores are in the store; {counted(calls, 'call')} to make"]
    if estimate.seconds is not None and rate is not None:
        parts.append(f"about {duration(estimate.seconds)} at {rate:,.0f} pairs/s")
    if estimate.cost is not None:
        parts.append(f"costing about {estimate.cost:,.2f}")
    return ", ".join(parts)


def _read(corpus: Path, queries: Path | None, most: int | None, columns: ColumnNames) -> Texts:
    from crosscut.datasets import read_items, read_queries
    from crosscut.datasets.files import find

    items = list(read_items(corpus, **columns))
    if queries is None and not corpus.is_dir():
        raise InputError(f"{str(corpus)!r} is a file of items: name a file of queries with --queries")
    asked = read_queries(queries or find(corpus, "queries.jsonl"))
    for name, found in (("items", items), ("queries", asked)):
        if not found:
            raise InputError(f"there are no {name} to score in {str(queries or corpus)!r}")
    return Texts(asked[:most], items)


def _read_pairs(path: Path, texts: Texts) -> tuple[list[int], list[int]]:
    """Return the places of the queries and items that a file of pairs names."""
    from crosscut.datasets.files import lines

    places = {kind: {one.id: place for place, one in enumerate(found)} for kind, found in texts._asdict().items()}
    rows: list[int] = []
    columns: list[int] = []
    for number, line in lines(path):
        fields = line.split("\t")
        if number == 1 and fields[0] in ("query-id", "query_id", "qid"):
            continue
        if len(fields) < 2:
            raise InputError(f"{path} line {number} has no tab; expected a query id and an item id between tabs")
        for (kind, known), id, chosen in zip(places.items(), fields, (rows, columns), strict=False):
            if id not in known:
                raise InputError(f"{path} line {number}: {id!r} is not among the {len(known)} {kind} that were read")
            chosen.append(known[id])
    return rows, columns


def _status(
    store: Path,
    fingerprint: str,
    texts: Texts,
    pairs: tuple[list[int], list[int]] | None,
    price: float | None,
    as_json: bool,
) -> None:
    import numpy as np

    from crosscut.score_store import Keys, ScoreStore

    held = ScoreStore(store, scorer_fingerprint=fingerprint)
    query_keys, item_keys = Keys.of([query.text for query in texts.queries]), Keys.of(texts.items)
    if pairs is None:
        wanted = len(texts.queries) * len(texts.items)
        missing = sum(len(positions) for _, positions in held.missing(query_keys, item_keys))
    else:
        chosen = np.unique(np.array(pairs), axis=1)
        wanted = chosen.shape[1]
        rows = [(row, chosen[1, chosen[0] == row]) for row in np.unique(chosen[0]).tolist()]
        missing = sum(int(np.isnan(held.get(query_keys.names[row], item_keys, places)).sum()) for row, places in rows)
    summary = held.summary()
    seconds = missing / summary.pairs_per_second if missing and summary.pairs_per_second else None
    cost = None if price is None else missing * price / 1000
    share = 100 * (wanted - missing) / max(wanted, 1)
    sentence = f"{wanted - missing:,} of {wanted:,} scores are in the store ({share:.1f} %)"
    if missing:
        pace = "at an unknown pace" if seconds is None else f"about {duration(seconds)} at the latest pace"
        sentence += f"\n{counted(missing, 'call')} to make, {pace}{'' if cost is None else f', about {cost:,.2f}'}"
    sentence += f"\nin all {summary.scores:,} scores of {summary.queries:,} queries by scorer {held.scorer_fingerprint}"
    record = {"scorer": held.scorer_fingerprint, **summary._asdict(), "pairs": wanted, "known": wanted - missing}
    result(sentence, record | {"missing": missing, "seconds_left": seconds, "cost": cost}, as_json)


def export(
    store: Annotated[Path, typer.Argument(help="A score store (`crosscut score`).")],
    output: Annotated[Path, typer.Argument(help="The archive: .npz with test, train and vectors.")],
    corpus: Annotated[Path, typer.Option(help="The items that were scored: a folder or a file.")],
    test: Annotated[Path, typer.Option(help="Test queries, a file.")],
    train: Annotated[Path | None, typer.Option(help="Train (anchor) queries, a file.")] = None,
    scorer: ScorerName = "default",
    encoder: Annotated[str | None, typer.Option(help="Add vectors of this dual encoder.")] = None,
    as_json: Json = False,
) -> None:
    """Write the scores of a store as an archive for `crosscut replay --data`.

    No call is made: missing scores are an error.

    Example:

        crosscut export scores/ scores.npz --corpus corpus.jsonl --test queries.txt --train train.txt
    """
    import numpy as np

    from crosscut.index.knowing import fitted_to
    from crosscut.models.bi_encoder import load_encoder
    from crosscut.score_store import ScoreStore
    from crosscut.scorers.loading import load_scorer
    from crosscut.storage import write_arrays

    texts = _read(corpus, test, None, {})
    asked = {"test": [query.text for query in texts.queries]}
    if train is not None:
        asked["train"] = [query.text for query in _read(corpus, train, None, {}).queries]
    scores = ScoreStore(store, scorer_fingerprint=fitted_to(load_scorer(scorer), texts.items).fingerprint)
    arrays: dict[str, Any] = {}
    for name, found in asked.items():
        matrix = np.asarray(scores.matrix(found, texts.items, partial=True))
        missing = int(np.isnan(matrix).sum())
        if missing:
            raise InputError(
                f"{missing:,} of {matrix.size:,} scores of the {name} queries are not in {str(store)!r}; "
                "compute them with `crosscut score`"
            )
        arrays[name] = matrix.astype(np.float16)
    if encoder is not None:
        model = load_encoder(encoder)
        arrays["vectors"] = model.encode_items(texts.items)
        arrays["query_vectors"] = model.encode_queries(asked["test"])
        if "train" in asked:
            arrays["anchor_query_vectors"] = model.encode_queries(asked["train"])
    write_arrays(output, arrays)
    shapes = {name: list(array.shape) for name, array in arrays.items()}
    result(f"wrote {output}: {', '.join(f'{name} {shape}' for name, shape in shapes.items())}", shapes, as_json)
