"""Research pages are generated from results, and their verdicts are computed from rows."""

from __future__ import annotations

import json
from pathlib import Path

from crosscut_lab.pages import CLAIMS, Claim, judge, write_pages
from crosscut_lab.papers.experiments import EXPERIMENTS, VECTOR_EXPERIMENTS


def rows(**values: float) -> list[dict[str, object]]:
    return [{"method": name, "k": 10, "x": 100, "recall": value} for name, value in values.items()]


def test_a_claim_holds_where_its_left_row_is_above() -> None:
    claim = Claim("axn", "fig7", "a over b, a over c", "e", tuple((("a", 10, 100), (o, 10, 100)) for o in "bc"))
    assert judge(claim, rows(a=0.7, b=0.6, c=0.5)) == ("**yes**", ".700 / .600, .700 / .500")
    assert judge(claim, rows(a=0.7, b=0.8, c=0.5)) == ("partly", ".700 / .800, .700 / .500")
    assert judge(claim, rows(a=0.4, b=0.8, c=0.5)) == ("no", ".400 / .800, .400 / .500")
    assert judge(claim, rows(a=0.4, b=0.8)) is None
    near = Claim("axn", "fig7", "a level with b", "e", ((("a", 10, 100), ("b", 10, 100)),), level=0.01)
    assert judge(near, rows(a=0.695, b=0.7)) == ("**yes**", ".695 / .700")


def test_claims_name_experiments() -> None:
    assert {claim.experiment for claim in CLAIMS} <= {*EXPERIMENTS, *VECTOR_EXPERIMENTS}


def test_pages_are_written_from_results(tmp_path: Path) -> None:
    folder = tmp_path / "results" / "papers" / "wordnet-time"
    folder.mkdir(parents=True)
    claim = next(one for one in CLAIMS if one.experiment == "selection")
    records = [
        {"method": m, "k": k, "x": x, "recall": 1 - place / 10}
        for place, (m, k, x) in enumerate(dict.fromkeys(row for pair in claim.pairs for row in pair))
    ]
    facts = {"items": 10, "train": 2, "queries": 3, "records": records}
    (folder / "selection.json").write_text(json.dumps(facts))
    papers, studies = write_pages(tmp_path / "results", tmp_path / "docs")
    assert f"| {claim.text} | wordnet-time: **yes**" in papers.read_text("utf-8")
    assert studies.read_text("utf-8").startswith("# Studies")
