"""`crosscut replay`: the papers' experiments on a known score matrix."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosscut.cli.options import numbers, with_groups
from crosscut.cli.output import progress_bar, say, table
from crosscut.errors import InputError

if TYPE_CHECKING:
    from crosscut.evaluation.replay import Report


@dataclass(frozen=True)
class ArrayOptions:
    """Files of arrays."""

    test: Annotated[Path | None, typer.Option(help="Scores of test queries (queries × items), .npy.")] = None
    anchors: Annotated[Path | None, typer.Option(help="Scores of anchor queries (queries × items), .npy.")] = None
    vectors: Annotated[Path | None, typer.Option(help="Item vectors of a dual encoder, .npy.")] = None
    query_vectors: Annotated[Path | None, typer.Option(help="Its vectors of the test queries, .npy.")] = None
    anchor_query_vectors: Annotated[Path | None, typer.Option(help="… of the anchor queries, .npy.")] = None
    item_scores: Annotated[Path | None, typer.Option(help="Item–item scores (anchor items × items), .npy.")] = None
    item_anchors: Annotated[Path | None, typer.Option(help="Positions of those anchor items, .npy.")] = None
    words: Annotated[Path | None, typer.Option(help="BM25 or TF-IDF scores of the test queries, .npy.")] = None

    def read(self, archive: Path | None) -> dict[str, Any]:
        """Read the arrays, and those of an archive that no file was given for."""
        arrays: dict[str, Any] = {}
        if archive is not None:
            content = _load(archive)
            if not hasattr(content, "files"):  # of numpy's NpzFile
                raise InputError(
                    f"{archive} holds one array: --data takes an .npz of several; one array goes with --test"
                )
            with content:
                names = {name: "anchors" if name == "train" else name for name in content.files}
                arrays = {name: content[key] for key, name in names.items() if name in vars(self)}
        for name, path in vars(self).items():
            if path is not None:
                arrays[name] = _load(path, mapped=True)
                if hasattr(arrays[name], "files"):
                    raise InputError(f"{path} holds several arrays: pass it with --data")
        return arrays


@with_groups
def replay(
    files: ArrayOptions,
    data: Annotated[
        Path | None,
        typer.Option(help="One .npz instead: arrays test, train (or anchors), vectors, query_vectors, …"),
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Methods, comma-separated, with settings: adacur,axn@rounds=10,mix=0.8.")
    ] = "rerank,anncur,adacur,axn,crosscut",
    budgets: Annotated[str, typer.Option(help="Calls per query, comma-separated.")] = "50,100,200,500",
    k: Annotated[str, typer.Option("-k", help="How many neighbours, comma-separated.")] = "1,10,100",
    rounds: Annotated[
        str | None, typer.Option(help="Rounds of the adaptive methods (default: their own); several make a comparison.")
    ] = None,
    first: Annotated[str, typer.Option(help="Round one: auto, dense, lexical, union or random.")] = "auto",
    stop: Annotated[str | None, typer.Option(help="A stopping rule, of the largest k: patience@rounds=2.")] = None,
    seeds: Annotated[int, typer.Option(help="Seeds of random draws.")] = 3,
    split: Annotated[
        str,
        typer.Option(help="ANNCUR's share for anchor items: tuned on held-out anchor queries, oracle, or a number."),
    ] = "tuned",
    tune_axn: Annotated[bool, typer.Option(help="Choose λ, α, β of axn on the anchor queries.")] = False,
    json_path: Annotated[Path | None, typer.Option("--json", help="Write the records here.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw recall against the budget (PNG).")] = None,
) -> None:
    """Replay the papers' experiments on a known score matrix: recall of each method at each budget.

    Examples:

        crosscut replay --data scores.npz --json out.json --plot recall.png

        crosscut replay --test test.npy --anchors train.npy --methods adacur,adacur@select=softmax -k 1,10
    """
    from crosscut.evaluation.replay import replay as run_replay
    from crosscut.evaluation.replay import score_data
    from crosscut.methods import parse_all
    from crosscut.storage import write_json

    arrays = files.read(data)
    if "test" not in arrays:
        raise InputError("a replay needs the scores of test queries: pass --test scores.npy or --data scores.npz")
    if plot is not None:
        from crosscut.evaluation.plots import library

        library()  # what is missing is said before the work, not after it
    world = score_data(**arrays, stop=stop)
    chosen = parse_all(methods)
    sizes, ks = numbers("--budgets", budgets), numbers("-k", k)
    reports: dict[int | None, Report] = {}
    for each in numbers("--rounds", rounds) if rounds else [None]:
        with progress_bar() as bar, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are the report's notes, said below
            reports[each] = run_replay(
                world,
                methods=chosen,
                budgets=sizes,
                k=ks,
                rounds=each,
                first=first,
                seeds=seeds,
                split=split if split in ("tuned", "oracle") else _fraction("--split", split),
                tune_axn=tune_axn,
                progress=bar,
            )
        _show(reports[each], "" if each is None else f", {each} rounds")
    for note in next(iter(reports.values())).notes:
        say(f"note: {note}", "yellow")
    if json_path is not None:
        write_json(json_path, [record for report in reports.values() for record in report.json()])
        say(f"wrote {json_path}")
    if plot is not None:
        from crosscut.evaluation.plots import recall_against_budget

        recall_against_budget(next(reversed(reports.values())), plot)
        say(f"wrote {plot}")


def _show(report: Report, rounds: str) -> None:
    """Recall of every method, a table for each k: one column per budget, the best of each in bold."""
    oracle = {one.method for one in report if one.settings.get("split_chosen_by") == "oracle"}
    methods, budgets = dict.fromkeys(one.method for one in report), sorted({one.budget for one in report})
    seeds = max(one.seeds for one in report)
    several = f"up to {seeds} seeds" if seeds > 1 else "1 seed"
    note = f"{report.records[0].queries} test queries, {several}; ± half of the 95 % interval over queries"
    for k in sorted({one.k for one in report}):
        rows, bold = [], set()
        for method in methods:
            found = [report.get(method, k, budget) for budget in budgets]
            rows.append([f"{method} (oracle split)" if method in oracle else method])
            for column, one in enumerate(found, 1):
                rows[-1].append(f"{one.recall:.3f} ±{(one.high - one.low) / 2:.3f}")
                if one.recall == max(report.get(other, k, one.budget).recall for other in methods):
                    bold.add((len(rows) - 1, column))
        columns = ("method", *(f"{budget} calls" for budget in budgets))
        table(f"share of the top {k} found{rounds}", columns, rows, bold=bold, note=note)


def _load(path: Path, *, mapped: bool = False) -> Any:
    """Return the content of a .npy or .npz file."""
    import zipfile

    import numpy as np

    try:
        return np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"there is no file {path}") from None
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise InputError(f"{path} is not a readable numpy file: {error}") from None


def _fraction(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{option} takes tuned, oracle or a number between 0 and 1; got {text!r}") from None
