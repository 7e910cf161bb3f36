"""Relevance of the scorer in the box on collections it has not seen: python scripts/evaluate_relevance.py WORK FOLDER

WORK is what relevance_sets.py and train_relevance.py left. A collection that is trained on is judged by weights that
were trained and chosen without its group (`[relevance] groups`), the evaluation-only ones by the weights that ship.
Per query: nDCG@10 of BM25, dual encoder and their equal-weight fusion over the whole collection; of the known part g
over the union of their best 100; of f = g + weight · correction over the `--depth` best of these by g.
Written are models_relevance.json, models_wordnet.json (accuracy@1 in the held-out worlds) and models_scifact.json;
`evaluate_shipped.py` judges what no fold has to judge once more, by the folder that ships.
`--choose` judges the 150 train queries kept for choosing instead, for several weights and shares of the trained
weights, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_weights import cross_model
from relevance_sets import EVALUATED, GROUPS, RECIPE, SETTINGS, ndcg, token_idf
from safetensors.torch import load_file
from train_relevance import Candidates, apply_mix, corrections, load_mix, project

from crosscut.training.models import CrossModel

RIVALS = ("bm25", "dual", "fusion")


def averaged(work: Path, fold: str, share: float) -> CrossModel:
    """`share` of the trained weights, the rest of those that training began with.

    Fold "all", which ships and judges what no fold has seen, is the mean of the folds.
    """
    model = cross_model(SETTINGS["cross_encoder"]["start_scale"])
    before = {name: value for name, value in model.state_dict().items() if not name.startswith("lower")}
    folds = [str(number) for number in range(len(GROUPS))] if fold == "all" else [fold]
    trained = [load_file(work / f"cross-{one}" / "last.safetensors") for one in folds]
    mixed = {}
    for name, value in before.items():
        after = torch.stack([one[name].reshape(value.shape) for one in trained]).mean(0)
        mixed[name] = (1 - share) * value + share * after
    model.load_state_dict(mixed, strict=False)
    return model.eval()


def prepared(work: Path, name: str) -> Candidates:
    """Candidates of a set with g of the fold that has not seen it."""
    fold = fold_of(name)
    if not (work / name / "candidates-late.npz").is_file():
        left = GROUPS[int(fold)] if fold != "all" else []
        project(Candidates(work, name), np.load(work / f"late-{fold}.npy"), token_idf(work, left))
    one = Candidates(work, name, "candidates-late.npz")
    apply_mix(load_mix(work / f"mix-{fold}.json"), one)
    return one


def fold_of(name: str) -> str:
    return next((str(n) for n, group in enumerate(GROUPS) if name in group), "all")


Corrected = list[tuple[np.ndarray, np.ndarray]]
"""For every query the best candidates by g, as places among its candidates, and their corrections."""


def corrected(model: CrossModel, one: Candidates, rows: np.ndarray, depth: int, path: Path | None = None) -> Corrected:
    """Corrections of the `depth` best of every query; kept in `path`, the dear part of all this."""
    if path is not None and path.is_file():
        with np.load(path) as saved:
            if saved["rows"].tolist() == rows.tolist() and int(saved["depth"]) == depth:
                ends = np.cumsum(saved["count"])[:-1]
                return list(zip(np.split(saved["places"], ends), np.split(saved["values"], ends), strict=True))
    found = [corrections(model, one, row, depth) for row in rows.tolist()]
    if path is not None:
        places, values = (np.concatenate([pair[side] for pair in found]) for side in (0, 1))
        np.savez(path, rows=rows, depth=depth, count=[len(best) for best, _ in found], places=places, values=values)
    return found


def say(facts: np.ndarray) -> float:
    """What the query adds to the correction's weight; words are counted up to a limit."""
    settings = SETTINGS["cross_encoder"]
    words = min(float(facts[0]), np.log1p(settings["most_words"]) - 2.0)
    return float(np.exp(settings["words"] * words) * settings["mention"] ** facts[1])


def judge(one: Candidates, rows: np.ndarray, found: Corrected, weight: float) -> list[np.ndarray]:
    """The ten best items of every query by g + weight · correction; the weight follows the query as it ships."""
    ranked = []
    for row, (best, correction) in zip(rows.tolist(), found, strict=True):
        own = weight * say(one.facts[row])
        known, items = one.known[one.of(row)][best], one.items[one.of(row)][best]
        ranked.append(items[np.argsort(-(known + own * correction), kind="stable")[:10]])
    return ranked


def relevance(one: Candidates, rows: np.ndarray, ranked: list[np.ndarray]) -> np.ndarray:
    """nDCG@10 of every query."""
    return np.asarray([ndcg(best, one.set.gains[int(one.query[row])]) for row, best in zip(rows, ranked, strict=True)])


def firsts(one: Candidates, rows: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Whether the best candidate by `scores`, one per candidate of the set, is right."""
    return np.asarray([float(one.gains[one.of(r)][np.argmax(scores[one.of(r)])] > 0) for r in rows.tolist()])


def interval(values: np.ndarray, seed: int = 0) -> list[float]:
    """Mean and 95 % bootstrap interval over queries."""
    rng = np.random.default_rng(seed)
    means = values[rng.integers(0, len(values), (5000, len(values)))].mean(1)
    return [round(float(v), 4) for v in (values.mean(), *np.quantile(means, [0.025, 0.975]))]


def report(name: str, one: Candidates, rows: np.ndarray, ranked: list[np.ndarray], fold: str) -> dict[str, Any]:
    rivals = dict(zip(RIVALS, one.rivals[rows].T, strict=True))
    by_known = [one.items[one.of(r)][np.argsort(-one.known[one.of(r)], kind="stable")[:10]] for r in rows.tolist()]
    known, f = relevance(one, rows, by_known), relevance(one, rows, ranked)
    best = max(rivals, key=lambda rival: rivals[rival].mean())
    record: dict[str, Any] = {
        "collection": name,
        "items": len(one.set.items),
        "queries": len(rows),
        "left out": GROUPS[int(fold)] if fold != "all" else [],
        "candidates": round(float(one.count[rows].mean()), 1),
        **{rival: interval(values) for rival, values in rivals.items()},
        "known": interval(known),
        "scorer": interval(f),
        "best of three": best,
        "scorer - best of three": interval(f - rivals[best]),
        "known - best of three": interval(known - rivals[best]),
        "scorer - known": interval(f - known),
    }
    if name.startswith("wn_"):
        right = np.asarray(
            [one.set.gains[int(one.query[r])].get(int(some[0]), 0.0) > 0 for r, some in zip(rows, ranked, strict=True)]
        ).astype(np.float64)
        others = {"bm25": one.features[:, 0], "dual": one.features[:, 2], "known": one.known}
        hits = {rival: firsts(one, rows, scores) for rival, scores in others.items()}
        record["accuracy@1"] = {
            "scorer": interval(right),
            **{rival: interval(values) for rival, values in hits.items()},
            **{f"scorer - {rival}": interval(right - values) for rival, values in hits.items()},
        }
        record["first is right"] = right.astype(int).tolist()
    record["scorer of every query"] = [round(float(v), 4) for v in f]
    return record


def choose(work: Path, depth: int) -> None:
    weights = [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5]
    for share in (0.0, 0.5):
        gains = []
        for number, group in enumerate(GROUPS):
            model = averaged(work, str(number), share)
            for name in (*group, *(["wn_noun.event", "wn_verb.creation", "scifact"] if number == 0 else [])):
                one = prepared(work, name)
                rows = np.flatnonzero(one.kind == (2 if name.startswith("wn_") else 0))[:100]
                found = corrected(model, one, rows, depth)
                means = np.asarray([relevance(one, rows, judge(one, rows, found, w)).mean() for w in weights])
                print(f"{share} {name:18} rival {one.rivals[rows].mean(0).max():.3f}", means.round(3), flush=True)
                if name in group:
                    gains.append(means - one.rivals[rows].mean(0).max())
        print(f"{share} left out, mean over the best of three:", np.mean(gains, 0).round(4), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("output", type=Path, nargs="?")
    parser.add_argument("--choose", action="store_true")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--depth", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if arguments.choose:
        choose(arguments.work, 30)
        return
    settings = SETTINGS["cross_encoder"]
    worlds = [f"wn_{world}" for world in RECIPE["worlds"]["held_out"]]
    parts = {
        "relevance": [*(name for group in GROUPS for name in group), *EVALUATED],
        "wordnet": worlds,
        "scifact": ["scifact"],
    }
    about = {
        "depth": arguments.depth,
        "weight": {key: settings[key] for key in ("weight", "words", "mention", "share")},
        "arithmetic": "vectors float32, cross-encoder bfloat16",
    }
    for part, names in parts.items():
        records = []
        for name in names:
            fold = fold_of(name)
            one = prepared(arguments.work, name)
            limit = {"relevance": arguments.queries, "wordnet": 400, "scifact": 300}[part]
            rows = np.flatnonzero(one.kind == 2)[: None if name in EVALUATED else limit]
            model = averaged(arguments.work, fold, settings["share"])
            kept = arguments.work / name / "corrections.npz"
            ranked = judge(one, rows, corrected(model, one, rows, arguments.depth, kept), settings["weight"])
            records.append(report(name, one, rows, ranked, fold))
            print(name, {key: records[-1][key] for key in ("known", "scorer", "scorer - best of three")}, flush=True)
        told = {**about, "all": together(part, records), "collections": records}
        (arguments.output / f"models_{part}.json").write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def together(part: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    """Means over collections; accuracy over all queries of the worlds."""
    if part == "wordnet":
        right = np.concatenate([record["first is right"] for record in records]).astype(np.float64)
        leads = {
            f"scorer - {which}": round(
                sum(record["accuracy@1"][f"scorer - {which}"][0] * record["queries"] for record in records)
                / len(right),
                4,
            )
            for which in ("known", "bm25")
        }
        return {"queries": len(right), "accuracy@1": interval(right), **leads}
    means = {key: np.asarray([record[key][0] for record in records]) for key in (*RIVALS, "known", "scorer")}
    best = np.max([means[rival] for rival in RIVALS], axis=0)
    worse = [record["collection"] for record in records if record["scorer - best of three"][2] < 0]
    return {
        "collections": len(records),
        **{key: round(float(values.mean()), 4) for key, values in means.items()},
        "mean of the best of three": round(float(best.mean()), 4),
        "scorer - mean of the best of three": round(float((means["scorer"] - best).mean()), 4),
        "known - mean of the best of three": round(float((means["known"] - best).mean()), 4),
        "least lead": round(float((means["scorer"] - best).min()), 4),
        "significantly worse": worse,
    }


if __name__ == "__main__":
    main()
