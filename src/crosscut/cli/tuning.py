"""What `crosscut index tune` chooses, and how it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from crosscut.cli.common import table

if TYPE_CHECKING:
    from crosscut.index.tuning import Tuning


def told_by_relevance(report: Tuning) -> None:
    """What was tried by judgements, and what was chosen."""
    rows = [
        (str(trial.method), str(trial.order), str(trial.stop or "never"), f"{trial.calls:.0f}", f"{trial.value:.3f}")
        for trial in sorted(report.trials, key=lambda trial: -trial.value)
    ]
    title = f"k = {report.k}, {report.queries} judged queries, the best of {len(report.trials)} trials"
    table(title, ("method", "order", "stop", "calls", report.measure), [*dict.fromkeys(rows)][:15])
    best = report.chosen
    typer.echo(
        f"chosen: {best.method}, {best.budget} calls, order {best.order}, stop {best.stop or 'never'}: "
        f"{report.measure} {best.value:.3f} ({best.low:.3f} … {best.high:.3f}) on these queries"
    )


def told_by_recall(report: Tuning) -> None:
    """What was tried by recall, and what was chosen."""
    rows = [(trial.method, f"{trial.value:.3f}", f"{trial.low:.3f} … {trial.high:.3f}") for trial in report.trials]
    title = f"k = {report.k}, {report.chosen.budget} calls, {report.queries} queries"
    best = report.trials.index(report.chosen)
    table(title, ("tried", "recall", "95 %"), rows, bold={(best, column) for column in range(3)})
    for line in (f"chosen: {report.chosen.method}", *report.notes):
        typer.echo(line)
    patience = report.patience
    if patience is not None:
        typer.echo(f"{patience.stop}: recall {patience.value:.3f} with {patience.calls:.0f} calls")
    if report.targets:
        reached = [
            (f"{one.target:g}", f"{one.recall:.3f}", f"{one.calls:.0f}", _or_dash(one.fixed_calls))
            for one in report.targets
        ]
        table("on the train queries", ("target recall", "reached", "calls", "fixed budget for as much"), reached)


def _or_dash(number: float | None) -> str:
    return "–" if number is None else f"{number:.0f}"
