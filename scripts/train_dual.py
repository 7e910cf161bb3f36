"""Would the dual encoder in the box gain from more training? python scripts/train_dual.py DATA --work WORK --json FILE

Its two upper layers are trained on from the weights that ship, for every fold of `default_models.toml` anew: on train
queries of the other collections, with in-batch and hard negatives (from the top of BM25 and of the encoder itself), and
validated on train queries of the collections left out, again and again until the minutes are over. Validation ranks the
right items and the best by either; nDCG@10 of the cosine, and of its sum with BM25, both z-scored. Last, the mean of
the weights before and after. WORK holds indexes of the collections, or gets them. Nothing is shipped by this script.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from default_weights import dual_model, encoder_folder
from relevance_sets import GROUPS, RECIPE, SETTINGS, TRAINED, ndcg, read_collection, standard
from torch.nn import functional

from crosscut.datasets.beir import read_beir
from crosscut.encoders.tokens import Tokenizer, Tokens
from crosscut.index import Index
from crosscut.training.loop import one_cycle
from crosscut.training.models import DualModel, pack_texts

HARD, CHECKED, POOL, BATCH = 3, 60, 30, 16
ITEM_TOKENS = 128
COMMAND = "python scripts/train_dual.py DATA --work WORK --json benchmarks/results/models_dual.json"


class Asked(NamedTuple):
    """A query, its right items, and what BM25 and the encoder rank first, best first."""

    collection: str
    text: str
    gains: dict[int, float]
    near: list[int]
    bm25: np.ndarray  # (near,)


class Sets:
    """Queries of the train part of every collection, and tokens of the items."""

    def __init__(self, data: Path, work: Path, names: list[str], queries: int) -> None:
        self.tokenizer = Tokenizer(encoder_folder() / "tokenizer.json", query_tokens=64, item_tokens=ITEM_TOKENS)
        self.items: dict[str, list[str]] = {}
        self.asked: dict[str, list[Asked]] = {}
        for name in names:
            content = read_collection(data, name)
            self.items[name] = content["items"]
            self.asked[name] = self._near(name, content, data, work, queries)

    def _near(self, name: str, content: dict[str, Any], data: Path, work: Path, queries: int) -> list[Asked]:
        path = work / f"{name}.index"
        if path.is_dir():
            index = Index.load(path)
        else:
            index = Index.build(read_beir(data / name))
            index.save(path)
        state = index._state
        assert state.bm25 is not None
        rows, made = np.asarray(state.vectors, np.float32), []
        drawn = content["train"][:queries]
        for (id, text), vector in zip(drawn, index._vectors([text for _, text in drawn]), strict=True):
            words = state.bm25.scores(text)
            gains = {int(place): float(gain) for place, gain in content["gold"][id]}
            best = [np.argsort(-scores, kind="stable")[:POOL].tolist() for scores in (words, rows @ vector)]
            near = [place for pair in zip(*best, strict=True) for place in pair if place not in gains]
            near = [*gains, *dict.fromkeys(near)][: POOL + len(gains)]
            made.append(Asked(name, text, gains, near, words[near]))
        return made

    def item(self, name: str, place: int) -> Tokens:
        return self.tokenizer.item(self.items[name][place])


def loss_of(model: DualModel, sets: Sets, batch: list[Asked], rng: random.Random) -> torch.Tensor:
    """Cross-entropy of the right item among all items of the batch; other right ones of the query are no negatives."""
    chosen = [(one.collection, rng.choice(list(one.gains))) for one in batch]
    for one in batch:
        wrong = [place for place in one.near if place not in one.gains]
        chosen += [(one.collection, place) for place in rng.sample(wrong[:15], min(HARD, len(wrong)))]
    texts = [sets.tokenizer.query(one.text) for one in batch] + [sets.item(*pair) for pair in chosen]
    vectors = model(pack_texts(texts))
    scores = vectors[: len(batch)] @ vectors[len(batch) :].T * model.temperature
    right = torch.tensor(
        [
            [
                place in one.gains and name == one.collection and column != row
                for column, (name, place) in enumerate(chosen)
            ]
            for row, one in enumerate(batch)
        ]
    )
    return functional.cross_entropy(scores.masked_fill(right, -1e4), torch.arange(len(batch)))


@torch.no_grad()
def checked(model: DualModel, sets: Sets, names: list[str]) -> dict[str, list[float]]:
    """nDCG@10 of cosine and of its sum with BM25 among the candidates, per collection."""
    model.eval()
    found = {}
    for name in names:
        rows = []
        for one in sets.asked[name][-CHECKED:]:
            vectors = model(
                pack_texts([sets.tokenizer.query(one.text), *(sets.item(name, place) for place in one.near)])
            )
            cosine = (vectors[1:] @ vectors[0]).numpy()
            both = standard(cosine) + standard(one.bm25)
            rows.append([ndcg(np.asarray(one.near)[np.argsort(-s, kind="stable")], one.gains) for s in (cosine, both)])
        found[name] = [round(float(value), 4) for value in np.mean(rows, 0)]
    model.train()
    return found


def averaged(before: DualModel, after: DualModel, share: float) -> DualModel:
    mixed, later = copy.deepcopy(before), after.state_dict()
    mixed.load_state_dict({key: value + share * (later[key] - value) for key, value in before.state_dict().items()})
    return mixed


def fold(sets: Sets, left_out: list[str], how: Any) -> dict[str, Any]:
    """One run; what it was on the way, and at the end by shares of what was learned."""
    torch.manual_seed(RECIPE["seed"])
    rng = random.Random(RECIPE["seed"])
    first = dual_model(SETTINGS["dual_share"])
    model = copy.deepcopy(first)
    names = [name for name in sets.asked if name not in left_out]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=how.rate, weight_decay=0.01)
    spent, step, due = 0.0, 0, 0.0
    history: list[dict[str, Any]] = []
    while True:
        progress = spent / (60 * how.minutes)
        if progress >= due:
            history.append({"step": step, "minutes": round(spent / 60, 1), **checked(model, sets, left_out)})
            print(left_out, history[-1], flush=True)
            due += 0.25
        if progress >= 1:
            break
        begun = time.thread_time()
        for group in optimizer.param_groups:
            group["lr"] = how.rate * one_cycle(progress, 0.05)
        of = [rng.choice(names)] * BATCH  # a batch is of one collection: its items are each other's negatives
        batch = [rng.choice(sets.asked[name][: -CHECKED or None]) for name in of]
        optimizer.zero_grad()
        loss_of(model, sets, batch, rng).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        spent, step = spent + time.thread_time() - begun, step + 1
    mixes = {str(share): checked(averaged(first, model, share), sets, left_out) for share in (0.25, 0.5)}
    return {"left out": left_out, "trained on": names, "steps": step, "history": history, "shares": mixes}


def mean(runs: list[dict[str, Any]], when: int, place: int) -> float:
    """Over all collections left out, before (0) or after (-1)."""
    found = [run["history"][when][name][place] for run in runs for name in run["left out"]]
    return round(float(np.mean(found)), 4)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=10.0, help="of one core, a fold, without validation")
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--queries", type=int, default=400, help="of a collection")
    how = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in TRAINED if name != "wn_train" and name not in SETTINGS["parts"]]
    sets = Sets(how.data, how.work, names, how.queries)
    runs = []
    for left_out in GROUPS:
        runs.append(fold(sets, left_out, how))
        told: dict[str, Any] = {
            "command": COMMAND,
            "rate": how.rate,
            "minutes": how.minutes,
            "queries": CHECKED,
            "folds": runs,
        }
        for place, what in enumerate(("the cosine", "the sum with BM25")):
            told[f"mean of {what}"] = {"before": mean(runs, 0, place), "after": mean(runs, -1, place)}
        how.json.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
