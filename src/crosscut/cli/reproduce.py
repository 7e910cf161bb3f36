"""`crosscut reproduce`: a table or figure of the papers, from a folder of texts or a matrix of scores."""

from __future__ import annotations

import json
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from crosscut.cli.common import INTERRUPTED, lasting, numbers, progress_bar, say, table
from crosscut.cli.options import EngineOptions, Json, ModelOptions, World, with_groups
from crosscut.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from crosscut.evaluation.papers.inventory import Entry
    from crosscut.evaluation.papers.setting import Records, Setting
    from crosscut.evaluation.papers.world_files import Models, WorldTexts

OF_TEXTS = ("world", "scorer", "encoder", "size", "engine", "workers", "address", "gpus")
"""Options that an archive of scores has no use for."""


@with_groups
def reproduce(
    context: typer.Context,
    engines: EngineOptions,
    running: ModelOptions,
    paper: Annotated[
        str, typer.Argument(help="anncur, adacur, axn or early-exit; `list` prints every figure.")
    ] = "list",
    figure: Annotated[str, typer.Argument(help="Such as fig3b or table3b.")] = "",
    data: Annotated[Path | None, typer.Option(help="A ZESHEL, BEIR or MS MARCO folder, or an .npz of scores.")] = None,
    world: World = None,
    scorer: Annotated[str, typer.Option(help="default, a model folder, a hub id, an address.")] = "default",
    encoder: Annotated[str | None, typer.Option(help="default, a model folder, a hub id; none without vectors.")] = (
        "default"
    ),
    size: Annotated[str, typer.Option(help="small: 1,000 items, 40 + 40 queries; full: the paper's.")] = "small",
    train: Annotated[int | None, typer.Option(min=1, help="Train queries, |Q_train|.")] = None,
    k: Annotated[str, typer.Option("-k", help="How many neighbours, comma-separated.")] = "1,10,100",
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "50,100,200,500",
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Rounds of adaptive searches, where the figure does not vary them.",
            show_default="10 for BEIR and MS MARCO, else 5",
        ),
    ] = None,
    shortlist: Annotated[
        int | None,
        typer.Option(min=1, help="Keep rounds within the first stage's best; the papers' 10,000 for HotpotQA."),
    ] = None,
    solver: Annotated[
        str, typer.Option(help="Of factors: als, or the paper's transductive (MF_TRNS) or inductive (MF_IND).")
    ] = "als",
    output: Annotated[Path, typer.Option(help="Folder of scores, vectors and results; a stopped run goes on here.")] = (
        Path("reproduced")
    ),
    plan_only: Annotated[bool, typer.Option("--plan", help="Only say what it would cost.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of what is drawn.")] = 3,
    as_json: Json = False,
) -> None:
    """Make a table or figure of the papers on your data: plan and cost first, then scores, vectors, result.

    Scores and vectors are kept in the output folder, so that the next figure of the same data starts at once, and a run
    that was stopped goes on. The plan tells the number of calls and what they take.

    Examples:

        crosscut reproduce list

        crosscut reproduce adacur fig3 --data zeshel/ --world yugioh --scorer cross-encoder/ms-marco-MiniLM-L6-v2 --plan

        crosscut reproduce anncur fig6 --data scores.npz

        crosscut reproduce axn fig9 --data scifact/ --solver inductive --device cuda
    """
    from crosscut.evaluation.papers.inventory import find, plain
    from crosscut.spaces.factorization import Solver

    if paper == "list":
        _list()
        return
    entry = find(paper, figure)
    if entry.experiment is None:
        raise InputError(f"{paper} {figure} ({entry.title}) is no experiment: {entry.why}")
    if data is None:
        raise InputError("name the data with --data: a ZESHEL, BEIR or MS MARCO folder, or an .npz of scores")
    if size not in ("small", "full"):
        raise InputError(f"--size is small or full; got {size!r}")
    if solver not in get_args(Solver):
        raise InputError(f"--solver is {', '.join(get_args(Solver))}; got {solver!r}")
    if data.suffix == ".npz":
        _refuse(context, data)
    models, trained = _models(
        scorer if data.suffix != ".npz" else "default",
        encoder if data.suffix != ".npz" and encoder != "none" else None,
        solver if entry.experiment == "indexing" else "als",
        running.given,
    )
    engine = engines.made(models.scorer)
    try:
        setting = _setting(
            entry, data, world, models, size, train, output,
            plan_only=plan_only, engine=engine, seeds=seeds, quiet=as_json,
        )  # fmt: skip
    except KeyboardInterrupt:
        say(f"stopped; every block that was finished is in {output}, and the same command goes on")
        raise typer.Exit(INTERRUPTED) from None
    if setting is None:
        return
    asked: dict[str, Any] = {"shortlist": shortlist, "solver": solver, **trained}
    asked |= {"rounds": rounds or setting.rounds, "ks": tuple(numbers("-k", k))}
    asked["budgets"] = tuple(numbers("--budgets", budgets))
    told: dict[str, Any] = {"data": str(data), "solver": solver, "shortlist": shortlist, "seeds": seeds}
    if data.suffix != ".npz":
        told |= {"world": world, "size": size, "scorer": models.scorer, "encoder": models.encoder}
    _run(entry, f"{paper}-{plain(figure)}", replace(setting, **asked), told, output, as_json)


def _refuse(context: typer.Context, data: Path) -> None:
    """Options that would change nothing."""
    sources = {name: context.get_parameter_source(name) for name in OF_TEXTS}
    given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
    if given:
        raise InputError(
            f"{', '.join(f'--{name}' for name in given)} is for a folder of texts; {str(data)!r} holds scores already"
        )


def _models(scorer: str, encoder: str | None, solver: str, given: dict[str, Any]) -> tuple[Models, dict[str, Any]]:
    """The models with their settings, and those of factors that are trained by gradients.

    Device and arithmetic are of whatever can take them; eight bits, and the length of pairs, of the scorer alone.
    """
    from crosscut.encoders.running import fixed, with_settings
    from crosscut.evaluation.papers.world_files import Models

    plain = {name: value for name, value in given.items() if name != "max_length" and value != "int8"}
    trained: dict[str, Any] = {}
    taken: set[str] = set()
    if not fixed(scorer) and "://" not in scorer:
        scorer, taken = with_settings(scorer, **given), {*given}
    if encoder is not None and not fixed(encoder):
        encoder, taken = with_settings(encoder, **plain), taken | {*plain}
    if solver != "als":
        wanted = ("device", "dtype") if solver == "inductive" else ("device",)  # the others compute in fp32 alone
        trained = {name: plain[name] for name in wanted if name in plain}
        taken |= {*trained}
    left = [f"--{name.replace('_', '-')}" for name in given if name not in taken]
    if left:
        raise InputError(
            f"{', '.join(left)} would change nothing here: it is for hub models (--scorer, --encoder) and for factors "
            "that are trained (--solver transductive or inductive); what is in the box runs on the CPU as it is"
        )
    return Models(scorer, encoder), trained


def _list() -> None:
    from crosscut.evaluation.papers.inventory import INVENTORY

    rows = [(one.paper, one.figure.replace(",", ", "), one.title, one.experiment or one.why) for one in INVENTORY]
    table(
        "tables and figures of the papers",
        ("paper", "figure", "what it shows", "experiment, or why there is none"),
        rows,
        keys=2,
    )


def _setting(
    entry: Entry,
    data: Path,
    world: str | None,
    models: Models,
    size: Any,
    train: int | None,
    output: Path,
    *,
    plan_only: bool,
    engine: Any,
    seeds: int,
    quiet: bool,
) -> Setting | None:
    """The world of the experiment, made if need be; None if only the plan was asked for."""
    from crosscut.evaluation.papers.setting import Setting
    from crosscut.evaluation.papers.world_files import (
        FULL,
        SMALL,
        bought_before,
        is_made,
        load_arrays,
        make_arrays,
        plan,
        read_texts,
        views_of,
    )
    from crosscut.evaluation.world import make_world

    if data.suffix == ".npz":
        arrays, gold, rounds = load_arrays(data), None, None
        for name in ("train", "anchor_query_vectors"):
            if name in arrays:
                arrays[name] = arrays[name][:train]
        if plan_only:
            say(f"{data} holds the scores: nothing to pay")
            return None
    else:
        texts = read_texts(data, world, size, train=train)
        anchors = (SMALL if size == "small" else FULL)["item_anchors"] if entry.experiment == "item-baselines" else 0
        cost = plan(texts, item_anchors=anchors)
        folder = output / f"{texts.name.replace('/', '-')}-{size}" / str(len(texts.train))
        wanted: dict[str, Any] = {"item_anchors": cost.item_anchors, "views": entry.experiment == "multi-view"}
        if not quiet or plan_only:
            if is_made(texts, models, folder, **wanted):
                say(f"{cost.said()}, made already")
            else:
                cost = bought_before(cost, texts, models, folder)
                say(cost.said() + _pace(texts, models, cost.left, engine.workers))
        if plan_only:
            return None
        with progress_bar(quiet=quiet) as progress:
            arrays = make_arrays(texts, models, folder, **wanted, progress=progress, engine=engine)
        gold, rounds = texts.gold, 10 if texts.words == "bm25" else None  # of BEIR; ZESHEL's are the methods' own, 5
    views = views_of(arrays)
    names = {"train": "anchors"}
    given: dict[str, Any] = {names.get(name, name): array for name, array in arrays.items()}
    made = make_world(**given)
    return Setting(made, gold, seeds=seeds, views=views, rounds=rounds)


def _pace(texts: WorldTexts, models: Models, calls: int, workers: int, count: int = 24) -> str:
    """How long so many calls take, from a few that are not kept; of an address nothing: nobody pays for an estimate."""
    if "://" in models.scorer or not calls:
        return ""
    import numpy as np

    from crosscut.datasets.records import items_of

    some = min(count, len(texts.items))
    bound = models.scoring.bind(items_of(texts.items[:some]))
    bound.score(texts.train[0], np.arange(min(4, some)))
    started = time.perf_counter()
    bound.score(texts.train[0], np.arange(some))
    rate = some / max(time.perf_counter() - started, 1e-9)
    each = " of one worker" if workers > 1 else ""
    return f", about {lasting(calls / rate)} at {rate:,.0f} pairs/s{each}"


def _run(entry: Entry, name: str, setting: Setting, told: dict[str, Any], output: Path, as_json: bool) -> None:
    from crosscut.evaluation.papers.experiments import EXPERIMENTS
    from crosscut.evaluation.replay import ties
    from crosscut.evaluation.report import machine
    from crosscut.storage import make_folder, write_json

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are the notes, said below
        records = EXPERIMENTS[str(entry.experiment)](setting)
    notes = ties(setting.world.test, setting.fitting[0])
    make_folder(output)
    facts = {
        "paper": entry.paper,
        "figure": entry.figure,
        "experiment": entry.experiment,
        **told,
        "queries": len(setting.world.test),
        "train": 0 if setting.world.anchors is None else len(setting.world.anchors),
        "items": setting.n,
        "machine": machine(),
        "notes": notes,
        "records": records,
    }
    write_json(output / f"{name}.json", facts)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    _show(entry, records)
    for note in notes:
        say(f"note: {note}", "yellow")
    say(f"wrote {output / f'{name}.json'}")
    try:
        from crosscut.evaluation.plots import lines, points

        draw = points if "anchor" in records[0] else lines
        draw(records, entry.title, output / f"{name}.png")
        say(f"wrote {output / f'{name}.png'}")
    except MissingDependency as error:
        say(f"no plot: {error}")


def _show(entry: Entry, records: Records) -> None:
    """A table: a line a method and k, a column an x; long curves are thinned. Of single items, how far they are off."""
    if "anchor" in records[0]:
        errors = {
            method: [abs(one["recall"] - one["x"]) for one in records if one["method"] == method]
            for method in dict.fromkeys(one["method"] for one in records)
        }
        rows = [(name, f"{sum(some) / len(some):.3f}", f"{max(some):.3f}") for name, some in errors.items()]
        table(f"{entry.paper} {entry.figure}: {entry.title}", ("anchor items", "mean error", "largest"), rows, keys=1)
        return
    xs = sorted({record["x"] for record in records})
    if len(xs) > 8:
        xs = xs[:: -(-len(xs) // 8)]
    found = {(r["method"], r["k"], r["x"]): r["recall"] for r in records}
    rows = []
    for method, k in dict.fromkeys((r["method"], r["k"]) for r in records):
        cells = [f"{found[method, k, x]:.3f}" if (method, k, x) in found else "–" for x in xs]
        rows.append((method, k, *cells))
    table(f"{entry.paper} {entry.figure}: {entry.title}", ("method", "k", *(f"{x:g}" for x in xs)), rows, keys=2)
