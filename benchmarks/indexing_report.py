"""`docs/lab/indexing.md` from the results: tables after its mark, plots in docs/indexing. By `indexing.py --report`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crosscut.evaluation.plots import COLOURS, _figure

MARK = "<!-- from here on made by benchmarks/indexing.py --report -->\n"
CELLS = ((1, 100), (10, 100), (100, 300))
DISTILLED = ((1, 100), (10, 100), (100, 500))
KINDS = {"none": "no index", "cur": "CUR", "als": "ALS", "transductive": "AdamW", "inductive": "inductive"}


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |" for cells in (header, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(header), *lines[1:]]) + "\n"


def calls(number: float) -> str:
    return f"{number / 1000:.1f}K" if number >= 1000 else f"{number:.0f}"


def write_report(results: Path, docs: Path) -> None:
    """Fill in everything after the mark, and draw the plots."""
    target = docs / "lab" / "indexing.md"
    head = target.read_text(encoding="utf-8").partition(MARK)[0] if target.is_file() else "# Indexing\n\n"
    target.write_text(head + MARK + tables(results), encoding="utf-8")
    (docs / "indexing").mkdir(parents=True, exist_ok=True)
    for path in sorted(results.glob("indexing-*.json")):
        told, name = json.loads(path.read_text("utf-8")), path.stem.removeprefix("indexing-")
        plot_calls(told["records"], docs / "indexing" / f"{name}-calls.png")
        plot_time(told["records"], told["milliseconds"] / 1000, docs / "indexing" / f"{name}-time.png")


def tables(results: Path) -> str:
    """What stands after the mark."""
    pages = [world(json.loads(path.read_text()), path.stem) for path in sorted(results.glob("indexing-*.json"))]
    if (results / "factorization.json").is_file():
        pages.append(solvers(json.loads((results / "factorization.json").read_text())))
    pages += [distilled(json.loads(path.read_text())) for path in sorted(results.glob("distillation-*.json"))]
    return "\n" + "\n".join(pages)


def world(told: dict[str, Any], stem: str) -> str:
    name = stem.removeprefix("indexing-")
    records = told["records"]
    price = told["milliseconds"] / 1000
    text = [
        f"## {name}\n",
        f"{told['items']:,} items, {told['test_queries']} test and {told['train_queries']} train queries, "
        f"{max(r['seeds'] for r in records)} seed(s), {told['tasks'][0]} of {told['tasks'][1]} runs of the plan made; "
        f"{told['model'] or 'scores of a cross-encoder'}. Made by `{told['command']}`. "
        "± is half of the 95 % bootstrap interval over test queries (mean over seeds).\n",
        "### Recall against indexing calls\n",
        table(
            ["index", "calls", "items scored", "method", *(f"k={k}, B={b}" for k, b in CELLS)],
            list(recall_rows(records)),
        ),
        f"![recall against calls](../indexing/{name}-calls.png)\n",
        "### axn on factors, against rnr on the same factors and axn without an index\n",
        "Paired differences over the same queries, with 95 % intervals.\n",
        table(
            ["index", *(f"{what}, k={k}, B={b}" for k, b in CELLS for what in ("− rnr", "− axn, encoder"))],
            list(difference_rows(records)),
        ),
        "### Calls at which factors reach ADACUR's recall\n",
        "The cheapest index of the grid on which the method reaches the recall of ADACUR (encoder first) with k_q "
        "anchor queries, found in hindsight on the test queries; “–”: none does.\n",
        table(
            ["k, B", "k_q", "ADACUR's calls", "its recall", "axn on", "fewer calls", "crosscut on", "fewer calls"],
            list(ratio_rows(told["ratios"])),
        ),
        f"### Time, at {told['milliseconds']:g} ms a call\n",
        f"{told['timing']}.\n",
        table(
            [
                "index",
                "scoring",
                "training",
                "share of scoring",
                "query: scorer (B = 300)",
                "query: fit",
                "query: select",
            ],
            list(time_rows(records, price)),
        ),
        f"![time split](../indexing/{name}-time.png)\n",
    ]
    return "\n".join(text)


def ordered(records: Sequence[dict[str, Any]]) -> list[str]:
    """Index labels, by kind and then by calls."""
    first = {record["index"]: record for record in records}
    kinds = list(KINDS)
    return sorted(first, key=lambda label: (kinds.index(first[label]["kind"]), first[label]["calls"], label))


def recall_rows(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    found = {(r["index"], r["method"], r["k"], r["budget"]): r for r in records}
    rows = []
    for label in ordered(records):
        for method in ("rnr", "adacur", "axn", "crosscut"):
            cells = [found.get((label, method, *cell)) for cell in CELLS]
            some = cells[0]
            if some is None:
                continue
            share = f"{some['items_scored']:.0%}" if "items_scored" in some else "all" if some["calls"] else "–"
            numbers = [f"{c['recall']:.3f} ±{(c['high'] - c['low']) / 2:.3f}" for c in cells if c is not None]
            rows.append([label, calls(some["calls"]), share, method, *numbers])
    return rows


def difference_rows(records: Sequence[dict[str, Any]]) -> list[list[str]]:
    found = {(r["index"], r["k"], r["budget"]): r for r in records if r["method"] == "axn" and "against_rnr" in r}
    rows = []
    for label in ordered(records):
        if (label, *CELLS[0]) not in found:
            continue
        cells = []
        for cell in CELLS:
            for key in ("against_rnr", "against_no_index"):
                mean, low, high = found[label, *cell][key]
                cells.append(f"{mean:+.3f} ({low:+.3f} … {high:+.3f})")
        rows.append([label, *cells])
    return rows


def ratio_rows(ratios: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows = []
    for row in ratios:
        cells = [f"{row['k']}, {row['budget']}", str(row["k_q"]), calls(row["calls"]), f"{row['recall']:.3f}"]
        for method in ("axn", "crosscut"):
            best = row[method]
            cells += ["–", "–"] if best is None else [best["index"], f"{best['ratio']:.0f}×"]
        rows.append(cells)
    return rows


def time_rows(records: Sequence[dict[str, Any]], price: float) -> list[list[str]]:
    rows = []
    for label in ordered(records):
        some = [r for r in records if r["index"] == label and r["budget"] == 300 and r["method"] in ("axn", "adacur")]
        if not some:
            continue
        record = some[0]
        scoring, training = record["calls"] * price, record["training_seconds"]
        query = record["query_seconds"]
        rows.append(
            [
                label,
                f"{scoring:.1f} s",
                f"{training:.1f} s",
                f"{scoring / (scoring + training):.0%}" if scoring else "–",
                f"{300 * price * 1000:.0f} ms",
                f"{1000 * query['fit']:.1f} ms",
                f"{1000 * query['select']:.1f} ms",
            ]
        )
    return rows


def plot_calls(records: Sequence[dict[str, Any]], path: Path) -> None:
    """Recall over indexing calls, a mark per index and a colour per kind and method (AXN fig. 1, 9, 10)."""
    figure, axes = _figure(4.6 * len(CELLS) + 1.6, 4.2, columns=len(CELLS))
    shown = [("cur", "adacur"), ("cur", "crosscut"), ("als", "axn"), ("transductive", "axn"), ("inductive", "axn")]
    shown += [("als", "rnr"), ("als", "crosscut"), ("inductive", "crosscut")]
    for axis, (k, budget) in zip(axes[0], CELLS, strict=True):
        cell = [r for r in records if (r["k"], r["budget"]) == (k, budget)]
        for colour, (kind, method) in zip(COLOURS, shown, strict=False):
            points = sorted((r for r in cell if (r["kind"], r["method"]) == (kind, method)), key=lambda r: r["calls"])
            if not points:
                continue
            x, y = [r["calls"] for r in points], [r["recall"] for r in points]
            error = [[r["recall"] - r["low"] for r in points], [r["high"] - r["recall"] for r in points]]
            line = "-" if kind == "cur" else "none"
            label = f"{method} on {KINDS[kind]}"
            axis.errorbar(x, y, error, fmt="o", ls=line, ms=4, lw=1, elinewidth=0.5, color=colour, label=label)
        for method, style in (("rnr", ":"), ("axn", "--"), ("crosscut", "-.")):
            plain = [r["recall"] for r in cell if (r["kind"], r["method"]) == ("none", method)]
            axis.axhline(plain[0], color="#999999", ls=style, lw=1, label=f"{method}, no index")
        axis.set(title=f"k = {k}, B = {budget}", xlabel="indexing calls", xscale="log")
        axis.grid(alpha=0.25)
    axes[0][0].set_ylabel("Top-k-Recall")
    figure.legend(*axes[0][-1].get_legend_handles_labels(), fontsize=8, loc="outside right center")
    figure.savefig(path, dpi=130)


def plot_time(records: Sequence[dict[str, Any]], price: float, path: Path) -> None:
    """Scoring and training of every index (AXN fig. 2)."""
    labels = [label for label in ordered(records) if label != "no index"]
    first = {record["index"]: record for record in records}
    figure, axes = _figure(8, 0.24 * len(labels) + 1.2)
    axis = axes[0][0]
    scoring = [first[label]["calls"] * price for label in labels]
    training = [first[label]["training_seconds"] for label in labels]
    axis.barh(labels, scoring, color=COLOURS[0], label="scoring G or R_anc")
    axis.barh(labels, training, left=scoring, color=COLOURS[1], label="training")
    axis.invert_yaxis()
    axis.set(xlabel=f"seconds, at {price * 1000:g} ms a call", xscale="log")
    axis.tick_params(axis="y", labelsize=7)
    axis.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def solvers(told: dict[str, Any]) -> str:
    sizes = told["sizes"]
    rows = []
    for run in told["runs"]:
        reached = run["seconds_to_adamws_best"]
        rows.append(
            [
                f"{run['solver']} {', '.join(f'{k} {v}' for k, v in run['given'].items()) or '(ridge chosen)'}",
                f"{run['held_out'][0]:.4f} → {run['best_held_out']:.4f}",
                str(run["best"]),
                f"{run['training_seconds']:.1f} s",
                f"{run['cpu_seconds']:.1f} s",
                "not reached" if reached is None else f"{reached:.1f} s",
            ]
        )
    return "\n".join(
        [
            "## The solvers\n",
            f"{sizes['items']:,} items, {sizes['queries']:,} queries, {sizes['k_d']} observed items a query, "
            f"d = {sizes['dimension']}, planted; {told['machine']['cores']} cores. Made by `{told['command']}`. "
            f"Times: {told['timing']}\n",
            table(
                [
                    "solver",
                    "held-out loss",
                    "epoch kept",
                    "wall clock",
                    "CPU, all threads",
                    "wall clock to AdamW's best loss",
                ],
                rows,
            ),
        ]
    )


def distilled(told: dict[str, Any]) -> str:
    found = {(r["encoder"], r["method"], r["k"], r["budget"]): r for r in told["records"]}
    s = told["settings"]
    rows = []
    for encoder in dict.fromkeys(r["encoder"] for r in told["records"]):
        for method in ("rnr", "axn", "crosscut"):
            cells = [found[encoder, method, *cell] for cell in DISTILLED]
            rows.append(
                [
                    encoder,
                    calls(cells[0]["calls"]),
                    f"{cells[0]['training_seconds']:.0f} s",
                    method,
                    *("{:.3f} ({:+.3f} [{:+.3f}, {:+.3f}])".format(c["recall"], *c["against_start"]) for c in cells),
                ]
            )
    return "\n".join(
        [
            "## Distillation\n",
            f"{s['items']:,} items, {s['queries']} train queries, k_d = {s['k_d']} scored, {s['candidates']} of them "
            f"trained on, {s['epochs']} epochs, learning rate {s['rate']:g}. {told['timing']}. Made by "
            f"`{told['command']}`; in brackets the paired difference to the encoder before.\n",
            table(["loss", "calls", "training", "method", *(f"k={k}, B={b}" for k, b in DISTILLED)], rows),
        ]
    )
