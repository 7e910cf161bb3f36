"""Does a cheap scorer in front of a dear one save dear calls? `python benchmarks/two_scorers.py`
writes results/two_scorers.json

The dear scorer is the cross-encoder in the box alone, as a black box (matrices/*.npz, test queries); on wordnet-feeling
one of earlier weights (matrices/wordnet-feeling-dear.npz), of which the model in the box is no part. Cheap ones:

    box       the model in the box, of another design (matrices/wordnet-feeling-box.npz; `--score` makes it)
    cosine    the dual encoder that the search has anyway: nothing new, as weak as real ones come
    0.3 … 0.9 simulated: the dear scores of a query and noise, at this correlation over all items

Recall of the dear top 10 within some dear calls: the dear scorer alone, two scorers, and the cheap scorer as a filter
(its best items are scored). 95 % intervals of the paired difference to the dear scorer alone, over queries.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from crosscut import CascadeSearcher, Searcher
from crosscut.measures import paired_interval, recall
from crosscut.scorers.adapters import MatrixScorer
from crosscut.types import Floats

HERE = Path(__file__).parent
WORLDS = ("wordnet-feeling", "wordnet-time", "squad-sentences")
SCORED = HERE / "matrices" / "wordnet-feeling-box.npz"
DEAR = {"wordnet-feeling": "wordnet-feeling-dear"}
"""Matrices of the dear scores, where they are not those of the world."""
CORRELATIONS = (0.3, 0.5, 0.7, 0.9)
BUDGETS = (20, 50, 100)
SHOWN = 50
"""Dear calls of the table in the docs."""
CHEAP = 200
K = 10


def score(path: Path) -> None:
    """The scores of the model in the box for the test queries of wordnet-feeling."""
    sys.path.insert(0, str(HERE.parent / "scripts"))
    from wordnet import WordNet

    from crosscut.scorers.onnx import OnnxCrossEncoder

    matrix, world = np.load(HERE / "matrices" / "wordnet-feeling.npz"), WordNet().world("noun.feeling")
    items = {item.id: item for item in world.items}
    queries = {query.id: query.text for query in world.queries}
    model = OnnxCrossEncoder.load(threads=1)
    bound = model.bind([items[str(id)] for id in matrix["item_ids"]])
    places = np.arange(len(matrix["item_ids"]))
    scores = [bound.score(queries[str(id)], places) for id in matrix["test_ids"]]
    np.savez_compressed(path, test=np.asarray(scores, np.float16), fingerprint=model.fingerprint)


def cheap_scores(name: str, dear: Floats, cosine: Floats) -> dict[str, Floats]:
    """Every cheap scorer of one world (queries × n)."""
    made = {"box": np.load(SCORED)["test"].astype(np.float64)} if name == "wordnet-feeling" else {}
    made["cosine"] = cosine
    rng = np.random.default_rng(0)
    standard = (dear - dear.mean(1, keepdims=True)) / dear.std(1, keepdims=True)
    for share in CORRELATIONS:
        made[str(share)] = share * standard + (1 - share**2) ** 0.5 * rng.normal(size=dear.shape)
    return made


def measured(name: str, wanted: str | None = None) -> list[dict[str, Any]]:
    """All cheap scorers (or one) and budgets on one world."""
    arrays = np.load(HERE / "matrices" / f"{name}.npz")
    dear = np.load(HERE / "matrices" / f"{DEAR.get(name, name)}.npz")["test"].astype(np.float64)
    vectors, asked = arrays["vectors"].astype(np.float32), arrays["query_vectors"].astype(np.float32)
    queries = list(range(len(dear)))
    alone = Searcher(MatrixScorer(dear), vectors=vectors)
    plain = {
        budget: _recalls(dear, [hits.scored for hits in alone.search_many(queries, K, budget, query_vectors=asked)])
        for budget in BUDGETS
    }
    records = []
    for cheap, scores in cheap_scores(name, dear, (asked @ vectors.T).astype(np.float64)).items():
        if wanted not in (None, cheap):
            continue
        pairs = zip(dear, scores, strict=True)
        correlation = round(float(np.mean([np.corrcoef(*pair)[0, 1] for pair in pairs])), 3)
        both = CascadeSearcher(cheap=Searcher(MatrixScorer(scores), vectors=vectors), expensive=alone)
        for budget in BUDGETS:
            found = both.search_many(queries, K, {"cheap": CHEAP, "expensive": budget}, query_vectors=asked)
            assert all(hits.calls <= budget for hits in found)
            filtered = [_best(hits.cheap, budget) for hits in found if hits.cheap is not None]
            recalls = {"both": _recalls(dear, [hits.scored for hits in found]), "filter": _recalls(dear, filtered)}
            records.append(
                {
                    "world": name,
                    "items": dear.shape[1],
                    "queries": len(queries),
                    "cheap": cheap,
                    "correlation": correlation,
                    "dear_calls": budget,
                    "alone": round(float(plain[budget].mean()), 4),
                    **{kind: round(float(values.mean()), 4) for kind, values in recalls.items()},
                    **{
                        f"{kind}_difference": [round(float(x), 4) for x in paired_interval(values, plain[budget])]
                        for kind, values in recalls.items()
                    },
                }
            )
    return records


def _recalls(dear: Floats, scored: list[Any]) -> Floats:
    return np.array([recall(row, places, K) for row, places in zip(dear, scored, strict=True)])


def _best(hits: Any, count: int) -> Any:
    """The items that a cheap search found best."""
    scores = np.concatenate([made.scores for made in hits.trace])
    return hits.scored[np.argsort(-scores, kind="stable")[:count]]


def doc_table(told: dict[str, Any]) -> str:
    """The table of docs/lab/relevance.md: one budget, and a sentence on all."""
    lines = [
        f"| dear scorer on | cheap | correlation | dear alone, {SHOWN} calls | two scorers | difference | filter |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in told["records"]:
        if one["dear_calls"] == SHOWN:
            cheap = "simulated" if one["cheap"].startswith("0") else one["cheap"]
            low, high = one["both_difference"][1:]
            lines.append(
                f"| {one['world']} | {cheap} | {one['correlation']:.2f} | {one['alone']:.3f} | {one['both']:.3f} | "
                f"{low:+.3f} … {high:+.3f} | {one['filter']:.3f} |"
            )
    budgets = ", ".join(map(str, BUDGETS))
    told_of = (
        f"Of {len(told['records'])} such lines, with {budgets} dear calls, two scorers are significantly better in "
    )
    filtered = sum(one["filter_difference"][2] < 0 for one in told["records"])
    counts = f"{told['significantly_better']} and worse in {len(told['significantly_worse'])};"
    return "\n".join(
        [*lines, "", told_of + counts, f"the cheap scorer as a filter is significantly worse in {filtered}."]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--score", action="store_true", help="score wordnet-feeling by the model in the box, and stop")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "two_scorers.json")
    arguments = parser.parse_args()
    if arguments.score:
        score(SCORED)
        return
    records = [record for name in WORLDS for record in measured(name)]
    worse = [record for record in records if record["both_difference"][2] < 0]
    told = {
        "command": "python benchmarks/two_scorers.py",
        "k": K,
        "cheap_calls": CHEAP,
        "significantly_worse": [f"{one['world']}, {one['cheap']}, {one['dear_calls']} calls" for one in worse],
        "significantly_better": sum(record["both_difference"][1] > 0 for record in records),
        "records": records,
    }
    arguments.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")
    print(doc_table(told), told["significantly_worse"], told["significantly_better"], sep="\n")


if __name__ == "__main__":
    main()
