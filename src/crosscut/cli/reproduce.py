"""`crosscut reproduce`: a table or figure of the papers, from a folder of texts or a matrix of scores."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from crosscut.cli.common import BatchSize, Device, DtypeName, EngineName, MaxLength, numbers, progress_bar, say, table
from crosscut.errors import InputError, MissingDependency

if TYPE_CHECKING:
    from crosscut.evaluation.papers.inventory import Entry
    from crosscut.evaluation.papers.setting import Records, Setting
    from crosscut.evaluation.papers.world_files import WorldTexts


def reproduce(
    paper: Annotated[
        str, typer.Argument(help="anncur, adacur, axn or early-exit; `list` prints every figure.")
    ] = "list",
    figure: Annotated[str, typer.Argument(help="Such as fig3b or table3b.")] = "",
    data: Annotated[Path | None, typer.Option(help="A ZESHEL, BEIR or MS MARCO folder, or an .npz of scores.")] = None,
    world: Annotated[str | None, typer.Option(help="The world of a ZESHEL folder, such as yugioh.")] = None,
    scorer: Annotated[str, typer.Option(help="default, a model folder, a hub id, an address.")] = "default",
    encoder: Annotated[str | None, typer.Option(help="default, a model folder, a hub id; none without vectors.")] = (
        "default"
    ),
    size: Annotated[str, typer.Option(help="small: 1,000 items, 40 + 40 queries; full: the paper's.")] = "small",
    train: Annotated[int | None, typer.Option(help="Train queries, |Q_train|.")] = None,
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
    engine: EngineName = "local",
    workers: Annotated[int | None, typer.Option(help="Processes or Ray actors that score.")] = None,
    gpus: Annotated[float, typer.Option(help="GPUs of each Ray actor.")] = 0.0,
    device: Device = None,
    dtype: DtypeName = None,
    batch_size: BatchSize = None,
    max_length: MaxLength = None,
    seeds: Annotated[int, typer.Option(help="Seeds of what is drawn.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="Print the records as JSON and nothing else.")] = False,
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
    from crosscut.encoders.running import with_settings
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
    named = with_settings(scorer, device=device, dtype=dtype, batch_size=batch_size, max_length=max_length)
    setting = _setting(
        entry, data, world, named, None if encoder in (None, "none") else encoder, size, train, output,
        plan_only=plan_only, engine=_engine(engine, workers, gpus), seeds=seeds, quiet=as_json,
    )  # fmt: skip
    if setting is None:
        return
    asked: dict[str, Any] = {"shortlist": shortlist, "solver": solver, "device": device}
    asked |= {"rounds": rounds or setting.rounds, "ks": tuple(numbers("-k", k))}
    asked["budgets"] = tuple(numbers("--budgets", budgets))
    _run(entry, f"{paper}-{plain(figure)}", replace(setting, **asked), output, as_json)


def _engine(name: str, workers: int | None, gpus: float) -> Any:
    from crosscut.scores.engines import RayEngine, make_engine

    made = make_engine(name, workers=workers)
    if gpus and not isinstance(made, RayEngine):
        raise InputError("--gpus are those of Ray actors; use it with --engine ray, or name a --device")
    return replace(made, gpus=gpus) if isinstance(made, RayEngine) else made


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
    scorer: str,
    encoder: str | None,
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
    from crosscut.evaluation.papers.world_files import FULL, SMALL, load_arrays, make_arrays, plan, read_texts, views_of
    from crosscut.evaluation.world import make_world

    if data.suffix == ".npz":
        arrays, gold, rounds = load_arrays(data), None, None
        if plan_only:
            say(f"{data} holds the scores: nothing to pay")
            return None
    else:
        texts = read_texts(data, world, size, train=train)
        anchors = (SMALL if size == "small" else FULL)["item_anchors"] if entry.experiment == "item-baselines" else 0
        cost = plan(texts, item_anchors=anchors)
        folder = output / f"{texts.name.replace('/', '-')}-{size}" / str(len(texts.train))
        done = (folder / "world.npz").is_file()
        if not quiet or plan_only:
            say(cost.said(None if done else _rate(scorer, texts)) + (", made already" if done else ""))
        if plan_only:
            return None
        with progress_bar(quiet=quiet) as progress:
            arrays = make_arrays(
                texts,
                scorer,
                encoder,
                folder,
                item_anchors=cost.item_anchors,
                views=entry.experiment == "multi-view",
                progress=progress,
                engine=engine,
            )
        gold, rounds = texts.gold, 10 if texts.words == "bm25" else None  # of BEIR; ZESHEL's are the methods' own, 5
    views = views_of(arrays)
    names = {"train": "anchors"}
    given: dict[str, Any] = {names.get(name, name): array for name, array in arrays.items()}
    made = make_world(**given)
    return Setting(made, gold, seeds=seeds, views=views, rounds=rounds)


def _rate(scorer: str, texts: WorldTexts, count: int = 24) -> float | None:
    """Pairs a second, from a few of them; they are not kept. None for an address: nobody pays for an estimate."""
    if "://" in scorer:
        return None
    from crosscut.datasets.records import items_of
    from crosscut.scorers.named import load_scorer

    bound = load_scorer(scorer).bind(items_of(texts.items[:count]))
    import numpy as np

    bound.score(texts.train[0], np.arange(min(4, len(texts.items))))
    started = time.perf_counter()
    bound.score(texts.train[0], np.arange(min(count, len(texts.items))))
    return min(count, len(texts.items)) / max(time.perf_counter() - started, 1e-9)


def _run(entry: Entry, name: str, setting: Setting, output: Path, as_json: bool) -> None:
    from crosscut.evaluation.papers.experiments import EXPERIMENTS
    from crosscut.evaluation.report import machine
    from crosscut.storage import make_folder, write_json

    records = EXPERIMENTS[str(entry.experiment)](setting)
    make_folder(output)
    facts = {
        "paper": entry.paper,
        "figure": entry.figure,
        "experiment": entry.experiment,
        "queries": len(setting.world.test),
        "train": 0 if setting.world.anchors is None else len(setting.world.anchors),
        "items": setting.n,
        "machine": machine(),
        "records": records,
    }
    write_json(output / f"{name}.json", facts)
    if as_json:
        typer.echo(json.dumps(facts))
        return
    _show(entry, records)
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
