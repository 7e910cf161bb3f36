# ruff: noqa: E501
"""Research pages, generated whole from the results: every verdict names the rows of JSON that support it.

A verdict is computed, not written: a claim of a paper is one or more comparisons of two rows of the same result, and it
holds on a data set where each left row is above its right row, or at most `level` below it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosscut_lab.papers.inventory import INVENTORY, PAPERS
from crosscut_lab.report import Records, cell, markdown

Row = tuple[str, int, float]  # method, k, x
SETS = ("wordnet-time", "cognition", "squad-sentences", "squad-13k", "wordnet-30k")


@dataclass(frozen=True)
class Claim:
    """Claims of a figure of a paper, as comparisons of rows: left above right."""

    paper: str
    figure: str
    text: str
    experiment: str
    pairs: tuple[tuple[Row, Row], ...]
    value: str = "recall"
    level: float = 0.0  # the left row may be so far below


def _at(left: str, right: str, *cells: tuple[int, float]) -> tuple[tuple[Row, Row], ...]:
    return tuple(((left, k, x), (right, k, x)) for k, x in cells)


NORMAL, RAW = "axn, β(s − α)", "axn, raw"
CLAIMS = (
    Claim("anncur", "fig3a", "ANNCUR with 200 anchor items ahead of the dual encoder at equal numbers retrieved, k ≥ 10", "recall-of-retrieved", _at("anncur, k_i = 200", "dual encoder", (10, 100), (100, 200))),
    Claim("anncur", "fig3b", "random anchor items ahead of reranking at equal calls, k ≥ 10 and 200 calls", "recall-against-cost", _at("anncur", "rerank", (10, 200), (100, 200))),
    Claim("anncur", "fig3b", "behind it at k = 1 and 50 calls", "recall-against-cost", _at("rerank", "anncur", (1, 50))),
    Claim("anncur", "fig3b", "anchor items from the encoder (ANNCUR_DE) ahead of reranking", "recall-against-cost", _at("anncur@first=dense", "rerank", (10, 200), (100, 200))),
    Claim("anncur", "fig4", "recall grows with the number of train queries", "train-sizes", ((("anncur, B = 200", 100, 160), ("anncur, B = 200", 100, 50)), (("anncur, B = 200", 100, 50), ("anncur, B = 200", 100, 25)))),
    Claim("anncur", "fig6", "recall drops where k_i = k_q (50)", "grid", ((("pseudo-inverse, k_q = 50", 10, 25), ("pseudo-inverse, k_q = 50", 10, 50)), (("pseudo-inverse, k_q = 50", 10, 100), ("pseudo-inverse, k_q = 50", 10, 50)))),
    Claim("anncur", "fig9", "the oracle's U has no such drop", "grid", ((("oracle U, k_q = 50", 10, 50), ("pseudo-inverse, k_q = 50", 10, 50)),)),
    Claim("anncur", "fig7", "ITEMCUR ahead of FIXEDITEM, k = 100", "item-baselines", _at("item-cur", "fixed-item", (100, 200), (100, 500))),
    Claim("anncur", "fig7", "ANNCUR ahead of ITEMCUR, k = 100", "item-baselines", _at("anncur", "item-cur", (100, 200), (100, 500))),
    Claim("adacur", "fig2", "adaptive anchors ahead of fixed ones, both from a random start", "recall-against-cost", _at("adacur", "anncur", (1, 100), (10, 100), (100, 200))),
    Claim("adacur", "fig2", "… and both from the encoder", "recall-against-cost", _at("adacur@first=dense", "anncur@first=dense", (1, 100), (10, 100), (100, 200))),
    Claim("adacur", "fig2", "ADACUR_DE ahead of reranking", "recall-against-cost", _at("adacur@first=dense", "rerank", (1, 100), (10, 100), (100, 200))),
    Claim("adacur", "fig3", "five rounds better than one, and no more than .03 below twenty", "rounds", ((("adacur, B = 100", 10, 5), ("adacur, B = 100", 10, 1)), (("adacur, B = 100", 10, 5), ("adacur, B = 100", 10, 20))), level=0.03),
    Claim("adacur", "fig6", "TopK ahead of SoftMax, SoftMax ahead of random choice", "selection", _at("adacur", "adacur@select=softmax", (10, 100)) + _at("adacur@select=softmax", "adacur@select=random", (10, 100))),
    Claim("adacur", "fig7", "error on the top 10 smaller with adaptive anchors than with random ones", "sampling", _at("anncur", "adacur@rounds=5", (10, 0))),
    Claim("adacur", "fig8", "for the oracle's TopK some random anchors help (ε = .5 against 0)", "oracle", ((("oracle-top, k_m = 0", 10, 0.5), ("oracle-top, k_m = 0", 10, 0.0)),)),
    Claim("adacur", "fig8", "masking the best items hurts where some anchors are random", "oracle", ((("oracle-top, k_m = 0", 10, 0.5), ("oracle-top, k_m = 10", 10, 0.5)),)),
    Claim("adacur", "fig10", "several vectors an item ahead of one at equal calls, reranking", "multi-view", _at("rerank, sentences", "rerank", (10, 100), (100, 200))),
    Claim("adacur", "fig10", "ADACUR from them ahead of reranking them", "multi-view", _at("adacur, sentences first", "rerank, sentences", (10, 100), (100, 200))),
    Claim("axn", "fig6", "AXN, β(s − α): ten rounds better than one", "rounds", ((("axn, β(s − α), B = 100", 10, 10), ("axn, β(s − α), B = 100", 10, 1)),)),
    Claim("axn", "fig6", "on raw scores: ten rounds better than one", "rounds", ((("axn, raw, B = 100", 10, 10), ("axn, raw, B = 100", 10, 1)),)),
    Claim("axn", "fig7", "AXN, β(s − α), ahead of reranking, k ≥ 10", "query-methods", _at(NORMAL, "rerank", (10, 100), (100, 200))),
    Claim("axn", "fig7", "AXN ahead of TOUR (KL, raw scores) at k = 100", "query-methods", _at(NORMAL, "tour, KL", (100, 200))),
    Claim("axn", "fig7", "AXN with λ = .8 level with TOUR at k = 1 (at most .01 below)", "query-methods", _at("axn, β(s − α), λ = 0.8", "tour, KL", (1, 50)), level=0.01),
    Claim("axn", "fig7", "the normalisation helps: β(s − α) ahead of raw scores", "query-methods", _at(NORMAL, RAW, (10, 100), (100, 200))),
    Claim("axn", "fig8", "λ = .8 better than 0 at k = 1, test queries", "mixing", ((("test queries, B = 50", 1, 0.8), ("test queries, B = 50", 1, 0.0)),)),
    Claim("axn", "fig8", "λ = 0 better than .8 at k = 100, test queries", "mixing", ((("test queries, B = 200", 100, 0.0), ("test queries, B = 200", 100, 0.8)),)),
    Claim("early-exit", "table2", "patience reads fewer clusters than the fixed number", "exit-rules", ((("fixed", 1, -1), ("patience", 1, -1)),), value="x"),
)  # fmt: skip


def write_pages(results: Path, output: Path) -> list[Path]:
    """Write every page; return their paths."""
    output.mkdir(parents=True, exist_ok=True)
    made = {"papers.md": papers_page(results / "papers"), "studies.md": studies_page(results)}
    for name, text in made.items():
        (output / name).write_text(text.rstrip() + "\n", encoding="utf-8")
    return [output / name for name in made]


def records_of(path: Path) -> Records:
    return list(json.loads(path.read_text("utf-8")).get("records", [])) if path.is_file() else []


def find(records: Records, row: Row) -> dict[str, Any] | None:
    """Return the record of a row; a place of −1 is any."""
    method, k, x = row
    wanted = (one for one in records if (one["method"], one["k"]) == (method, k) and x in (one["x"], -1))
    return next(wanted, None)


def judge(claim: Claim, records: Records) -> tuple[str, str] | None:
    """Return whether a claim holds on a data set, with its figures; None where a row is missing."""
    holding, shown = 0, []
    for left, right in claim.pairs:
        ours, theirs = find(records, left), find(records, right)
        if ours is None or theirs is None:
            return None
        above, below = float(ours[claim.value]), float(theirs[claim.value])
        holding += above > below if not claim.level else above >= below - claim.level
        shown.append(f"{cell(above)} / {cell(below)}")
    return ("**yes**" if holding == len(claim.pairs) else "partly" if holding else "no"), ", ".join(shown)


def rows_of(claim: Claim) -> str:
    """Return the rows that a claim compares, as one finds them in the JSON."""
    named = [f"{left[0]} / {right[0]}" if left[0] != right[0] else left[0] for left, right in claim.pairs]
    places = [
        f"k = {left[1]}, x = {left[2]:g}" if left[2] == right[2] else f"k = {left[1]}, x = {left[2]:g} / {right[2]:g}"
        for left, right in claim.pairs
    ]
    kinds = dict.fromkeys(named)
    return "; ".join(
        f"`{kind}` at {', '.join(place for place, name in zip(places, named, strict=True) if name == kind)}"
        for kind in kinds
    ).replace(", x = -1", "")


def papers_page(folder: Path) -> str:
    """Return the page of the four papers."""
    parts = [
        "# The papers' experiments",
        "Generated by `crosscut-lab pages` from `lab/results/papers`. Each line is a claim of a paper, the rows of "
        "`lab/results/papers/DATA/EXPERIMENT.json` that decide it, and their values on each data set: the first row "
        "must be above the second; *partly* where some of the pairs are so. It is not the papers' data, and nothing was run on a GPU: orderings are compared, "
        "not numbers. Splits of ANNCUR are the oracle's, as in the papers; one seed. A value without an interval says "
        "little where two are close: intervals are in the JSON (`low`, `high`).",
    ]
    sets = [name for name in SETS if (folder / name).is_dir()]
    parts.append(markdown(("data", "items", "train, test queries"), (_size(folder, name) for name in sets)))
    for paper, title in PAPERS.items():
        parts.append(f"## {title}")
        rows = []
        for claim in (one for one in CLAIMS if one.paper == paper):
            cells = []
            for name in sets:
                found = judge(claim, records_of(folder / name / f"{claim.experiment}.json"))
                if found is not None:
                    cells.append(f"{name}: {found[0]} ({found[1]})")
            rows.append(
                (claim.figure, claim.text, "<br>".join(cells) or "not run", f"{claim.experiment}: {rows_of(claim)}")
            )
        parts.append(markdown(("figure", "claim", "holds here?", "rows"), rows))
        if paper == "axn":
            parts += indexing_part(folder, sets)
        left = [one for one in INVENTORY if one.paper == paper and one.experiment not in _run(folder, sets)]
        if left:
            notes = "; ".join(f"{one.figure.split(',')[0]} ({one.title}): {one.why or 'no data here'}" for one in left)
            parts.append(f"Not run here: {notes}.")
    parts += ["## By command", "`crosscut-lab reproduce list` names the command of every table and figure."]
    return "\n\n".join(parts)


def _run(folder: Path, sets: Iterable[str]) -> set[str]:
    return {path.stem for name in sets for path in (folder / name).glob("*.json")}


def _size(folder: Path, name: str) -> tuple[str, int, str]:
    facts = json.loads(next((folder / name).glob("*.json")).read_text("utf-8"))
    return name, facts["items"], f"{facts['train']}, {facts['queries']}"


def indexing_part(folder: Path, sets: Sequence[str]) -> list[str]:
    """Return what factors add to the normalisation (fig. 1, 9, 10)."""
    parts = [
        "### What factors add",
        "Fig. 1, 9 and 10 search factors of a sparse matrix of train scores. The control searches the encoder's own "
        "vectors with the α and β of the same matrix, so that the gain is that of the factors alone, with its paired "
        "95 % interval over test queries (rows `axn on factors`, field `gain` of `indexing.json`, "
        "`indexing-inductive.json`). Calls are those of the index.",
    ]
    rows = []
    for name in sets:
        for solver, file in (("ALS", "indexing"), ("MF_IND", "indexing-inductive")):
            records = records_of(folder / name / f"{file}.json")
            for k, budget in ((1, 100), (10, 100), (100, 300)):
                some = [one for one in records if (one["k"], one["budget"]) == (k, budget)]
                gains = [one for one in some if one.get("arm") == "axn on factors" and "gain" in one]
                if not gains:
                    continue
                best = max(gains, key=lambda one: float(one["recall"]))
                sure = sum(one["gain_low"] > 0 for one in gains)
                worse = sum(one["gain_high"] < 0 for one in gains)
                cur = max(
                    (one for one in some if str(one["index"]).startswith("CUR")),
                    key=lambda one: float(one["recall"]),
                    default=None,
                )
                raw = next(one for one in some if one["arm"] == "axn, raw, no index")
                rows.append(
                    (
                        name, solver, k, budget, float(raw["recall"]), float(best["recall"] - best["gain"]),
                        f"{cell(best['recall'])} ({best['index']}, {best['x']:,})",
                        f"{best['gain']:+.3f} [{best['gain_low']:+.3f}, {best['gain_high']:+.3f}]",
                        f"{sure} better, {worse} worse of {len(gains)}",
                        "–" if cur is None else f"{cell(cur['recall'])} ({cur['arm']}, {cur['x']:,})",
                    )
                )  # fmt: skip
    columns = (
        "data", "solver", "k", "calls", "AXN raw", "AXN α β", "best factors (index, calls)", "gain of the factors",
        "matrices with a sure gain", "best CUR (calls)",
    )  # fmt: skip
    parts.append(markdown(columns, rows))
    return parts


STUDY_TEXT = {
    "rivals": "Methods at equal calls; rivals are tuned on train queries. `anchors` are scores of 40 train queries.",
    "readme": "The data of the table and the picture of the README; rivals are tuned on train queries.",
    "learning": "Past searches of 100 calls each, by their number.",
    "exploring": "A log whose searches drew a share of their calls at random.",
    "anchors-share": "Anchor scores on a part of the items; the others are estimated.",
    "spending": "Calls for train queries: searches that teach, or anchor scores.",
    "growth": "Ever more items of one data set.",
    "first-stage": "Round one by vectors, by BM25, by both in turn.",
    "in-flight": "A scorer that answers several pairs at once: no round is smaller.",
    "stopping": "Stopping rules under a budget of 200.",
}


def studies_page(results: Path) -> str:
    """Return the page of the studies: mean recall by arm and data set."""
    parts = [
        "# Studies",
        "Generated by `crosscut-lab pages` from `lab/results`. Recall of the scorer's exact top k; gains are paired "
        "differences to the first arm (or the one that the JSON names), with 95 % intervals over queries.",
    ]
    for name, text in STUDY_TEXT.items():
        records = records_of(results / f"{name}.json")
        if records:
            parts += [f"## {name}", text, study_table(records)]
    records = records_of(results / "calibration.json")
    if records:
        columns = ("data", "scorer", "base_rate", "error", "skill")
        parts += [
            "## calibration",
            "Expected calibration error and Brier skill of probabilities from fifty judged queries.",
            markdown(columns, ([one[key] for key in columns] for one in records)),
        ]
    return "\n\n".join(parts)


def study_table(records: Records) -> str:
    """Return a row an arm; a column a data set, for the cell that all have: k = 10, or the largest, at most 100 calls."""
    k = 10 if any(one["k"] == 10 for one in records) else max(one["k"] for one in records)
    budgets = sorted({one["budget"] for one in records if one["k"] == k})
    budget = max((b for b in budgets if b <= 50), default=budgets[0])
    sets = list(dict.fromkeys(one["data"] for one in records))
    rows = []
    for arm in dict.fromkeys(one["arm"] for one in records):
        cells = []
        for name in sets:
            key = (arm, name, k, budget)
            one = next((r for r in records if (r["arm"], r["data"], r["k"], r["budget"]) == key), None)
            if one is None:
                cells.append("–")
            elif "gain" in one:
                cells.append(
                    f"{cell(one['recall'])} ({one['gain']:+.3f} [{one['gain_low']:+.3f}, {one['gain_high']:+.3f}])"
                )
            else:
                cells.append(cell(one["recall"]))
        rows.append((arm, *cells))
    return f"k = {k}, {budget} calls.\n\n" + markdown(("arm", *sets), rows)


def front_page(results: Path, readme: Path, picture: Path) -> None:
    """Write the table of the README between its markers, and its picture: mean recall by arm and budget."""
    records = [one for one in records_of(results / "readme.json") if one["k"] == 10]
    arms, budgets = list(dict.fromkeys(one["arm"] for one in records)), sorted({one["budget"] for one in records})
    sets = list(dict.fromkeys((one["data"], one["n"]) for one in records))

    def mean(arm: str, budget: int) -> float:
        values = [one["recall"] for one in records if (one["arm"], one["budget"]) == (arm, budget)]
        return float(sum(values) / len(values))

    rows = [(arm, *(f"{mean(arm, budget):.2f}" for budget in budgets)) for arm in arms]
    table = markdown(("recall of the scorer's own top ten", *(f"{budget} calls" for budget in budgets)), rows)
    named = ", ".join(f"{name} ({n:,})" for name, n in sets)
    note = (
        f"Mean over {len(sets)} data sets (items): {named}. Made by `crosscut-lab study readme`, `crosscut-lab pages`."
    )
    text = readme.read_text("utf-8")
    before, after = text.partition("<!-- results -->")[0], text.partition("<!-- end of results -->")[2]
    readme.write_text(f"{before}<!-- results -->\n{table}\n\n{note}\n<!-- end of results -->{after}", "utf-8")

    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.2), layout="constrained")
    axes = figure.subplots()
    for arm in arms:
        axes.plot(budgets, [mean(arm, budget) for budget in budgets], marker="o", label=arm)
    axes.set(xscale="log", xticks=budgets, xlabel="calls of the scorer per query", ylabel="recall of its own top ten")
    axes.set_xticks(budgets, [str(budget) for budget in budgets])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(picture, metadata={"Date": None})
