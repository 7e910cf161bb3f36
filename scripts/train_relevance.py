"""Train the scorer in the box, third edition: python scripts/train_relevance.py WORK known|cross [--leave-out 0|1|2]

WORK is what relevance_sets.py prepared. `known` learns the known part, `cross` the cross-encoder as a correction on top
of it; `--leave-out` leaves a group of collections out of both (default_models.toml, [relevance]).

- known: g = Σ_k w_k exp(b_k · ψ(q)) φ_k, w ≥ 0. First w and b: cross-entropy of the softmax over a query's candidates
  with all its right items as the target, the mean over queries and then over collections, so that each counts the same.
  Then a projection P of the token vectors for late interaction, from the identity and held to it: cross-entropy of g
  over one right item and fifteen other candidates, a collection a step, Adam, by the clock. w and b move along and
  are then put back: on collections left out, P with the first w and b is better than with the last.
- cross: from the second edition's weights, its scores halved. Loss: cross-entropy of g + correction over one right
  item and seven others, four of them among the twelve best by g, three among the fifty best; plus a small penalty on
  the correction's variance within a query. AdamW, one cycle by the clock, bfloat16 products. g is here that before P.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_weights import cross_model
from relevance_sets import CHOOSE, GROUPS, SETTINGS, TRAINED, Set, ndcg, token_idf
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from crosscut.encoders.late import TokenVectors, to_bytes
from crosscut.encoders.tokens import MENTION
from crosscut.training.loop import one_cycle
from crosscut.training.models import CrossModel, PackedTexts, PairBatch, pair_up

USED = (1, 2, 3, 4)  # of relevance_sets.FEATURES: relative BM25, cosine, late interaction by idf, of the mention
SCALES = np.asarray([5.0, 10.0, 10.0, 10.0], np.float32)
CANDIDATES, TOKENS = 8, 4096


class Candidates:
    """Candidates of a set's queries; `kind` is 0 for queries that choose, 1 for train, 2 for test."""

    def __init__(self, work: Path, name: str, file: str = "candidates.npz") -> None:
        self.set = Set(work, name)
        with np.load(self.set.folder / file) as saved:
            self.query, self.count, self.items = saved["query"], saved["count"], saved["items"]
            self.features, self.rivals, self.facts = saved["features"], saved["rivals"], saved["facts"]
        self.first = np.cumsum(self.count) - self.count
        self.gains = np.concatenate(
            [[self.set.gains[q].get(int(i), 0.0) for i in self.items[self.of(r)]] for r, q in enumerate(self.query)]
        )
        self.kind = np.where(self.query >= self.set.train, 2, np.where(self.query < CHOOSE, 0, 1))
        self.known = np.zeros(len(self.items), np.float32)

    def of(self, row: int) -> slice:
        return slice(int(self.first[row]), int(self.first[row] + self.count[row]))

    def tensors(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        places = np.concatenate([np.arange(self.first[r], self.first[r] + self.count[r]) for r in rows])
        return (
            torch.from_numpy(self.features[places][:, USED] * SCALES),  # (pairs, k)
            torch.from_numpy(self.facts[rows].astype(np.float32)),  # (queries, 3)
            torch.from_numpy(np.repeat(np.arange(len(rows)), self.count[rows])),  # (pairs,)
            torch.from_numpy((self.gains[places] > 0).astype(np.float32)),  # (pairs,)
        )


class Mix(nn.Module):
    """Weights of the known part."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.full((len(USED),), 0.3))
        self.bends = nn.Parameter(torch.zeros(len(USED), 3))

    def forward(self, features: Tensor, facts: Tensor, owners: Tensor) -> Tensor:
        weights = self.weights * torch.exp(facts @ self.bends.T)  # (queries, k)
        total: Tensor = (weights[owners] * features).sum(1)
        return total


def learn_mix(collections: list[Candidates], steps: int = 300) -> Mix:
    torch.manual_seed(0)
    mix = Mix()
    data = []
    for one in collections:
        rows = np.flatnonzero((one.kind < 2) & (np.add.reduceat(one.gains, one.first) > 0))[:300]
        data.append(one.tensors(rows))
    optimizer = torch.optim.Adam(mix.parameters(), 0.03)
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.03 * (1 - step / steps) + 1e-4
        loss = 0.02 * (mix.bends**2).sum()
        for features, facts, owners, right in data:
            scores = mix(features, facts, owners)
            n = len(facts)
            highest = torch.full((n,), -1e9).scatter_reduce(0, owners, scores.detach(), "amax")
            shares = torch.exp(scores - highest[owners])
            total, found = (torch.zeros(n).index_add(0, owners, s) for s in (shares, shares * right))
            loss = loss - torch.log(found / total + 1e-9).mean() / len(data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            mix.weights.clamp_(min=0)
    return mix


@torch.no_grad()
def apply_mix(mix: Mix, one: Candidates) -> None:
    features, facts, owners, _ = one.tensors(np.arange(len(one.query)))
    one.known = mix(features, facts, owners).numpy()


def save_mix(mix: Mix, path: Path) -> None:
    told = {"weights": (mix.weights.detach().numpy() * SCALES).tolist(), "bends": mix.bends.detach().numpy().tolist()}
    path.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def load_mix(path: Path) -> Mix:
    told = json.loads(path.read_text("utf-8"))
    mix = Mix()
    with torch.no_grad():
        mix.weights.copy_(torch.tensor(told["weights"]) / torch.from_numpy(SCALES))
        mix.bends.copy_(torch.tensor(told["bends"]))
    return mix


class Tokens:
    """Token vectors of a set's queries and items, for learning a projection."""

    def __init__(self, one: Candidates, idf: np.ndarray) -> None:
        self.one, self.idf = one, idf
        self.items, self.queries = (np.load(one.set.folder / f"{side}-tokens.npy") for side in ("items", "queries"))

    def query(self, row: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Token vectors (m × 128) of a query, idf and mention as weights (m,)."""
        texts, number = self.one.set.query_texts, int(self.one.query[row])
        own = slice(texts.starts[number] + 1, texts.starts[number] + texts.lengths[number] - 1)
        idf, mention = self.idf[texts.ids[own]], (texts.roles[own] == MENTION).astype(np.float32)
        return self.queries[own], idf / idf.sum(), mention / max(1.0, mention.sum())

    def late(self, projection: Tensor, row: int, places: np.ndarray, longest: int = 160) -> Tensor:
        """(candidates × 2): late interaction by idf and of the mention."""
        texts, items = self.one.set.item_texts, self.one.items[self.one.of(row)][places]
        tokens, idf, mention = self.query(row)
        lengths = np.minimum(texts.lengths[items] - 2, longest)
        rows = np.concatenate([texts.starts[i] + 1 + np.arange(n) for i, n in zip(items, lengths, strict=True)])
        q = functional.normalize(torch.from_numpy(tokens).float() @ projection, dim=1)  # (m, 128)
        i = functional.normalize(torch.from_numpy(self.items[rows]).float() @ projection, dim=1)  # (T, 128)
        owners = torch.from_numpy(np.repeat(np.arange(len(items)), lengths))[:, None].expand(-1, len(q))
        best = torch.full((len(items), len(q)), -1.0).scatter_reduce(0, owners, i @ q.T, "amax")
        return best @ torch.from_numpy(np.stack([idf, mention], 1).astype(np.float32))


def learn_late(sets: dict[str, Tokens], mix: Mix, minutes: float, seed: str) -> np.ndarray:
    """The projection (128 × 128); `mix` moves along with it."""
    rng = random.Random(f"late {seed}")
    identity = torch.eye(128)
    projection = nn.Parameter(identity.clone())
    optimizer = torch.optim.Adam(
        [{"params": [projection], "peak": 1e-3}, {"params": list(mix.parameters()), "peak": 3e-3}], lr=1e-3
    )
    rows = {
        name: [int(r) for r in np.flatnonzero(s.one.kind == 1) if s.one.gains[s.one.of(r)].max() > 0]
        for name, s in sets.items()
    }
    names, begun = list(sets), time.monotonic()
    while (progress := (time.monotonic() - begun) / (60 * minutes)) < 1:
        tokens = sets[name := rng.choice(names)]
        one = tokens.one
        loss = 0.02 * ((projection - identity) ** 2).sum() / 128
        for row in rng.choices(rows[name], k=6):
            gains = one.gains[one.of(row)]
            right, wrong = int(rng.choice(np.flatnonzero(gains > 0))), np.flatnonzero(gains <= 0).tolist()
            places = np.asarray([right, *rng.sample(wrong, min(15, len(wrong)))])
            late = tokens.late(projection, row, places) * torch.from_numpy(SCALES[2:])
            rest = torch.from_numpy(one.features[one.of(row)][places][:, USED[:2]] * SCALES[:2])
            weights = mix.weights * torch.exp(mix.bends @ torch.from_numpy(one.facts[row].astype(np.float32)))
            scores = torch.cat([rest, late], 1) @ weights
            loss = loss + functional.cross_entropy(scores[None], torch.zeros(1, dtype=torch.long)) / 6
        for group in optimizer.param_groups:
            group["lr"] = group["peak"] * max(0.02, 1 - progress)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            mix.weights.clamp_(min=0)
    return projection.detach().numpy()


def narrow(tokens: np.ndarray, projection: np.ndarray) -> np.ndarray:
    """Token vectors behind the projection, in eight bits, as they ship."""
    out = np.empty((len(tokens), projection.shape[1]), np.int8)
    for start in range(0, len(tokens), 1 << 17):
        part = tokens[start : start + (1 << 17)].astype(np.float32) @ projection
        out[start : start + len(part)] = to_bytes(part / (np.linalg.norm(part, axis=1, keepdims=True) + 1e-9))
    return out


def project(one: Candidates, projection: np.ndarray, idf: np.ndarray) -> Path:
    """Write candidates-late.npz: late interaction behind the projection, for the queries that choose and test."""
    queries, items = one.set.query_texts, one.set.item_texts
    flat = narrow(np.load(one.set.folder / "items-tokens.npy", mmap_mode="r"), projection)
    inner = np.ones(len(flat), np.bool_)
    inner[items.starts] = inner[items.starts + items.lengths - 1] = False
    tokens = TokenVectors([(flat[inner], items.lengths - 2)], flat.shape[1])
    asked = narrow(np.load(one.set.folder / "queries-tokens.npy"), projection)
    features = one.features.copy()
    for row in np.flatnonzero(one.kind != 1).tolist():
        number = int(one.query[row])
        own = slice(queries.starts[number] + 1, queries.starts[number] + queries.lengths[number] - 1)
        weights, mention = idf[queries.ids[own]], queries.roles[own] == MENTION
        best = tokens.best(asked[own], one.items[one.of(row)])
        features[one.of(row), 3] = best @ (weights / weights.sum())
        features[one.of(row), 4] = best[:, mention].mean(1) if mention.any() else 0.0
    path = one.set.folder / "candidates-late.npz"
    rest = {"query": one.query, "count": one.count, "items": one.items, "rivals": one.rivals, "facts": one.facts}
    np.savez(path, features=features, **rest)
    return path


def meet(model: CrossModel, one: Set, pairs: list[tuple[int, int]], *, half: bool = True) -> Tensor:
    """What the cross-encoder says of pairs (query, item) of a set, from the states that lie there."""
    queries, items = sorted({q for q, _ in pairs}), sorted({i for _, i in pairs})
    texts, states = packed(one, queries, items)
    place = {item: number + len(queries) for number, item in enumerate(items)}
    paired = pair_up(texts, [queries.index(q) for q, _ in pairs], [place[i] for _, i in pairs])
    return model.meet(states, paired) if not half else _meet_half(model, states, paired)


def _meet_half(model: CrossModel, states: Tensor, pairs: PairBatch) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        x = states[pairs.gather] + model.roles(pairs.roles)
        for layer in model.upper[:-1]:
            x = layer(x, pairs.packing)
        ends = model.upper[-1](x, pairs.packing, pairs.rows)
    ends = ends.float().view(len(pairs.rows), 2, -1)
    product: Tensor = (ends[:, 0] * ends[:, 1]).sum(1) * model.scale - model.offset
    return product


def packed(one: Set, queries: list[int], items: list[int]) -> tuple[PackedTexts, Tensor]:
    q, i = one.query_texts, one.item_texts
    of_queries, of_items = q.rows(queries), i.rows(items)
    lengths = np.concatenate([q.lengths[queries], i.lengths[items]])
    texts = PackedTexts(
        ids=torch.empty(0),
        roles=torch.from_numpy(np.concatenate([q.roles[of_queries], i.roles[of_items]]).astype(np.int64)),
        keys=np.concatenate([q.keys[of_queries], i.keys[of_items]]).astype(np.int64),
        packing=None,  # type: ignore[arg-type]
        starts=np.cumsum(lengths) - lengths,
        lengths=lengths,
    )
    return texts, torch.from_numpy(np.concatenate([q.states[of_queries], i.states[of_items]])).float()


@torch.no_grad()
def corrections(
    model: CrossModel, one: Candidates, row: int, top: int, *, half: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """The `top` best candidates of a query by g, as places among its candidates, and their corrections."""
    known, items = one.known[one.of(row)], one.items[one.of(row)]
    best = np.argsort(-known, kind="stable")[:top]
    lengths = one.set.item_texts.lengths[items[best]]
    values = np.zeros(len(best), np.float32)
    by_length = np.argsort(lengths, kind="stable")
    for start in range(0, len(best), 16):
        some = by_length[start : start + 16]
        pairs = [(int(one.query[row]), int(items[best[n]])) for n in some]
        values[some] = meet(model, one.set, pairs, half=half).numpy()
    return best, values


def validate(model: CrossModel, collections: dict[str, Candidates], queries: int) -> dict[str, Any]:
    """nDCG@10 of g + a · correction over the thirty best by g, for several a; a = 0 is g."""
    record: dict[str, Any] = {}
    for name, one in collections.items():
        rows = np.flatnonzero(one.kind == (2 if name.startswith("wn_") else 0))[:queries]
        values: dict[float, list[float]] = {a: [] for a in (0.0, 0.25, 0.5, 0.75, 1.0, 1.5)}
        for row in rows.tolist():
            best, correction = corrections(model, one, row, 30)
            for a, found in values.items():
                f = one.known[one.of(row)][best] + a * correction
                ranked = one.items[one.of(row)][best][np.argsort(-f, kind="stable")]
                found.append(ndcg(ranked, one.set.gains[int(one.query[row])]))
        record[name] = {str(a): round(float(np.mean(found)), 4) for a, found in values.items()}
        record[name]["rival"] = round(float(one.rivals[rows].mean(0).max()), 4)
    return record


def draw(one: Candidates, row: int, rng: random.Random) -> tuple[int, np.ndarray] | None:
    """A query and places of eight of its candidates, a right one first."""
    gains, known = one.gains[one.of(row)], one.known[one.of(row)]
    right = int(rng.choice(np.flatnonzero(gains > 0)))
    wrong = [int(n) for n in np.argsort(-known, kind="stable") if gains[n] <= 0]
    taken = rng.sample(wrong[:12], min(4, len(wrong[:12])))
    rest = [n for n in wrong[:50] if n not in taken]
    taken += rng.sample(rest, min(CANDIDATES - 1 - len(taken), len(rest)))
    return (int(one.query[row]), np.asarray([right, *taken])) if len(taken) == CANDIDATES - 1 else None


def learn_correction(
    collections: dict[str, Candidates], watched: dict[str, Candidates], folder: Path, minutes: float, seed: str
) -> None:
    settings = SETTINGS["cross_encoder"]
    rng = random.Random(f"cross {seed}")
    torch.manual_seed(0)
    model = cross_model(settings["start_scale"])
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    rate = settings["learning_rate"]
    wide = [p for name, p in trained.items() if p.ndim > 1 and not name.startswith("roles")]
    narrow = [p for p in trained.values() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": wide, "peak": rate, "weight_decay": 0.01},
            {"params": narrow, "peak": rate, "weight_decay": 0.0},
            {"params": [trained["roles.weight"]], "peak": 2 * rate, "weight_decay": 0.0},
        ],
        lr=rate,
    )
    rows = {
        name: [int(r) for r in np.flatnonzero(one.kind == 1) if one.gains[one.of(r)].max() > 0]
        for name, one in collections.items()
    }
    for some in rows.values():
        rng.shuffle(some)
    names, at = list(rows), dict.fromkeys(rows, 0)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log.jsonl").open("a", encoding="utf-8") as log:
        print(json.dumps({"before": validate(model, watched, 50)}), file=log, flush=True)
        begun, step = time.monotonic(), 0
        while (progress := (time.monotonic() - begun) / (60 * minutes)) < 1:
            name = rng.choices(names, [settings["batches"][n] for n in names])[0]
            one = collections[name]
            drawn: list[tuple[int, np.ndarray, np.ndarray]] = []
            tokens = 0
            while tokens < TOKENS:
                row = rows[name][at[name] % len(rows[name])]
                at[name] += 1
                if (some := draw(one, row, rng)) is not None:
                    query, places = some[0], some[1]
                    items = one.items[one.of(row)][places]
                    drawn.append((query, items, one.known[one.of(row)][places]))
                    own = int(one.set.query_texts.lengths[query])
                    tokens += int(one.set.item_texts.lengths[items].sum()) + CANDIDATES * own
            pairs = [(query, int(item)) for query, items, _ in drawn for item in items]
            correction = meet(model, one.set, pairs).view(-1, CANDIDATES)
            known = torch.from_numpy(np.stack([known for _, _, known in drawn]))
            loss = functional.cross_entropy(known + correction, torch.zeros(len(drawn), dtype=torch.long))
            spread = ((correction - correction.mean(1, keepdim=True)) ** 2).mean()
            for group in optimizer.param_groups:
                group["lr"] = group["peak"] * one_cycle(progress, 0.06)
            optimizer.zero_grad(set_to_none=True)
            (loss + settings["spread_penalty"] * spread).backward()
            nn.utils.clip_grad_norm_(list(trained.values()), 1.0)
            optimizer.step()
            step += 1
            if step % 100 == 0:
                print(json.dumps({"step": step, "source": name, "loss": loss.item()}), file=log, flush=True)
        weights = {name: v.contiguous() for name, v in model.state_dict().items() if not name.startswith("lower")}
        save_file(weights, folder / "last.safetensors")
        print(json.dumps({"steps": step, "after": validate(model, watched, 100)}), file=log, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("part", choices=["known", "cross"])
    parser.add_argument("--leave-out", type=int, choices=range(len(GROUPS)), default=None, metavar="GROUP")
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    work: Path = arguments.work
    left = GROUPS[arguments.leave_out] if arguments.leave_out is not None else []
    fold = "all" if arguments.leave_out is None else str(arguments.leave_out)
    seen = {name: Candidates(work, name) for name in TRAINED if name not in left}
    if arguments.part == "known":
        mix = learn_mix(list(seen.values()))
        save_mix(mix, work / f"mix-{fold}.json")
        idf = token_idf(work, left)
        sets = {name: Tokens(one, idf) for name, one in seen.items()}
        np.save(work / f"late-{fold}.npy", learn_late(sets, mix, SETTINGS["late_minutes"], fold))
        return
    watched = {name: Candidates(work, name) for name in (*left, "wn_noun.event", "wn_verb.creation")}
    mix = load_mix(work / f"mix-{fold}.json")
    for one in (*seen.values(), *watched.values()):
        apply_mix(mix, one)
    watched["scifact"] = seen["scifact"]
    learn_correction(seen, watched, work / f"cross-{fold}", SETTINGS["cross_encoder"]["minutes"], fold)


if __name__ == "__main__":
    main()
