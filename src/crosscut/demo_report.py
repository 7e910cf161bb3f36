"""The report of `crosscut demo`: one HTML file, no script, no outside file."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from crosscut.storage import write_file

if TYPE_CHECKING:
    from crosscut.demo import DemoResult, LiveSearch

COLOURS = {"rerank": "#8a8f98", "anncur": "#c58b2a", "adacur": "#3f7fbf", "axn": "#8a5fb0", "crosscut": "#1f9d55"}

STYLE = """
:root { color-scheme: light dark; --line: #8884; --good: #1f9d55; --bad: #c0392b }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100% } td, th { padding: .3rem .5rem; text-align: left; vertical-align: top }
tr { border-bottom: 1px solid var(--line) } mark { background: #ffd54a; color: #222; padding: 0 .2rem }
.number { text-align: right; font-variant-numeric: tabular-nums } .missed { color: var(--bad) }
.gold { color: var(--good); font-weight: 600 } .pair { display: grid; gap: 1.5rem }
@media (min-width: 52rem) { .pair { grid-template-columns: 1fr 1fr } } svg text { fill: currentColor; font-size: 12px }
small { opacity: .75 }
"""


def write(result: DemoResult, path: Path) -> Path:
    """Write the report next to `path` and rename it into place."""
    body = [
        "<h1>crosscut demo</h1>",
        f"<p>{result.items:,} meanings of WordNet, a cross-encoder that reads query and item together, and a budget of "
        f"calls. The truth is every item scored: {result.items:,} calls a query at {result.pairs_per_second:.0f} "
        "pairs a second on this machine.</p>",
        f"<h2>Share of the true top {result.k} found, by budget</h2>",
        chart(result),
        recall_table(result),
        *(one_query(found, result) for found in result.found),
        f"<p><small>{result.seconds['all']:.0f} s in all. Items and queries: WordNet 3.0, © 2006 Princeton University."
        "</small></p>",
    ]
    page = (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>crosscut demo</title><style>{STYLE}</style><body>{''.join(body)}</body></html>\n"
    )
    write_file(path, [page.encode()])
    return path


def chart(result: DemoResult) -> str:
    """Recall over the budget, a line per method, as SVG."""
    width, height, left, bottom = 640, 260, 44, 30
    budgets = sorted(next(iter(result.recalls.values())))
    across = np.log(np.asarray(budgets, float))
    span = max(float(across[-1] - across[0]), 1e-9)
    x = left + (across - across[0]) / span * (width - left - 130)
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="recall against budget">']
    for share in (0, 0.25, 0.5, 0.75, 1):
        level = 10 + (1 - share) * (height - bottom - 10)
        parts.append(f'<line x1="{left}" x2="{width - 120}" y1="{level:.1f}" y2="{level:.1f}" stroke="#8884"/>')
        parts.append(f'<text x="{left - 6}" y="{level + 4:.1f}" text-anchor="end">{share:.2f}</text>')
    for place, budget in zip(x, budgets, strict=True):
        parts.append(f'<text x="{place:.1f}" y="{height - 8}" text-anchor="middle">{budget} calls</text>')
    ends = []
    for method, by_budget in result.recalls.items():
        y = [10 + (1 - float(np.mean(by_budget[b]))) * (height - bottom - 10) for b in budgets]
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        thick = 3 if method == "crosscut" else 1.8
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[method]}" stroke-width="{thick}"/>')
        ends.append((y[-1], method))
    last = -100.0
    for y_end, method in sorted(ends):  # names beside their lines, pushed apart where lines meet
        last = max(y_end + 4, last + 14)
        parts.append(f'<text x="{x[-1] + 8:.1f}" y="{last:.1f}" style="fill:{COLOURS[method]}">{method}</text>')
    return "".join([*parts, "</svg>"])


def recall_table(result: DemoResult) -> str:
    budgets = sorted(next(iter(result.recalls.values())))
    head = "".join(f'<th class="number">{budget} calls</th>' for budget in budgets)
    rows = [
        f"<tr><td>{method}</td>"
        + "".join(f'<td class="number">{np.mean(by_budget[b]):.2f}</td>' for b in budgets)
        + "</tr>"
        for method, by_budget in result.recalls.items()
    ]
    count = len(next(iter(result.recalls["rerank"].values())))
    return (
        f"<table><tr><th>method</th>{head}</tr>{''.join(rows)}</table>"
        f"<p><small>Mean over {count} queries: enough to see, not to measure. ANNCUR leaves out singular values "
        "under a hundredth of the largest: with as many anchor items as anchor queries they are noise.</small></p>"
    )


def one_query(found: LiveSearch, result: DemoResult) -> str:
    """Side by side: the true top k with what was missed, and what crosscut returned."""
    text = escape(found.query).replace("[START] ", "<mark>").replace(" [END]", "</mark>")
    best = np.argsort(-found.truth, kind="stable")[: found.k]
    seen, reranked = set(found.crosscut.scored.tolist()), set(found.rerank.scored.tolist())
    rows = []
    for place, position in enumerate(best.tolist(), 1):
        item = result.world.items[position]
        kind = ' class="gold"' if item.id == found.gold else ""
        cells = "".join(
            "<td>✓</td>" if position in scored else '<td class="missed">missed</td>' for scored in (seen, reranked)
        )
        rows.append(
            f'<tr><td class="number">{place}</td><td class="number">{found.truth[position]:.1f}</td>'
            f"<td{kind}><b>{escape(item.title)}</b>: {escape(item.text)}</td>{cells}</tr>"
        )
    return (
        f"<h2>{text}</h2><p>The true top {found.k}, and who found it with {result.budget} calls: crosscut "
        f"{found.recall(found.crosscut):.0%}, retrieve-and-rerank {found.recall(found.rerank):.0%}.</p>"
        '<table><tr><th></th><th class="number">score</th><th>meaning</th><th>crosscut</th><th>rerank</th></tr>'
        f"{''.join(rows)}</table>"
    )
