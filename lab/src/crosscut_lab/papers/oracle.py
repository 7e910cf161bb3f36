"""Anchor items chosen by an oracle that sees the exact scores (ADACUR app. C.2), and the spectrum of a matrix.

    A (k_i)                          TopK^O or SoftMax^O of the exact scores, the best k_m masked, a share ε at random
    ŝ = s[A] (R_anc[:, A])† R_anc    approximate scores of *all* items, anchors included
    retrieved                        down the order of ŝ, anchors free, until B − k_i further items were scored (B.3)

Recall counts what was retrieved: an anchor that the approximate scores put behind the others is *not* found, though its
exact score is known. So too many near-equal anchors, which overestimate everything else, cost recall, and a share of
random ones brings it back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.special import softmax

from crosscut.errors import InputError
from crosscut.evaluation.replay import SPLITS, ScoreData
from crosscut.measures import interval, recall
from crosscut.types import Array, Floats, Positions

Rule: TypeAlias = Literal["top", "softmax", "random"]


def oracle_anchors(
    scores: Floats,
    count: int,
    rule: Rule,
    mask: int,
    epsilon: float,
    rng: np.random.Generator,
) -> Positions:
    """Anchor items chosen with sight of the exact scores: TopK^O and SoftMax^O of ADACUR C.2.

    The best `mask` (k_m) items are left out, (1 − ε) · count come next by rank or by softmax, the rest uniformly; with
    the rule `random` all are drawn, as ANNCUR's are.
    """
    if not 0 <= epsilon <= 1:
        raise InputError(f"the random share ε must lie in 0 … 1; got {epsilon}")
    order = np.argsort(-scores, kind="stable")[mask:]
    greedy = 0 if rule == "random" else min(count - round(epsilon * count), len(order))
    if rule == "top":
        chosen = order[:greedy]
    else:
        noisy = np.log(softmax(scores[order]) + 1e-300) + rng.gumbel(size=len(order))
        chosen = order[np.argsort(-noisy, kind="stable")[:greedy]]
    rest = np.setdiff1d(order, chosen)
    drawn = rng.choice(rest, min(count - greedy, len(rest)), replace=False)
    return np.concatenate([chosen, drawn])


def approximate(scores: Floats, anchors: Floats, chosen: Positions) -> Floats:
    """ŝ (n) of one query from its exact scores of the chosen items, by CUR with R_anc (k_q × n)."""
    return np.asarray(scores[chosen] @ np.linalg.pinv(anchors[:, chosen]) @ anchors, np.float64)


def retrieved(predicted: Floats, chosen: Positions, further: int) -> Positions:
    """Items in the order of the approximate scores until `further` were met that are no anchors (ADACUR B.3)."""
    order = np.argsort(-predicted, kind="stable")
    new = np.cumsum(~np.isin(order, chosen))
    end = int(np.searchsorted(new, further)) + 1 if further > 0 else 0
    return np.asarray(order[:end], np.int64)


def oracle_study(
    data: ScoreData,
    budgets: Sequence[int],
    k: Sequence[int],
    *,
    epsilons: Sequence[float] = (0.0, 0.25, 0.5, 0.75),
    rules: Sequence[Rule] = ("top", "softmax"),
    splits: Sequence[float] = SPLITS,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Recall of what CUR retrieves with oracle anchor items, k_m ∈ {0, k}, at the best split (ADACUR fig. 8)."""
    if data.anchors is None:
        raise InputError("an oracle study needs anchors: the scores of anchor queries with every item (k_q × n)")
    results = []
    for rule in rules:
        for masked in (False, True) if rule != "random" else (False,):
            for epsilon in epsilons if rule != "random" else (0.0,):
                for budget in budgets:
                    for size in k:
                        mask = size if masked else 0
                        tried = {s: _recall(data, rule, mask, epsilon, budget, size, s, seed) for s in splits}
                        split, best = max(tried.items(), key=lambda one: float(one[1].mean()))
                        low, high = interval(best)
                        results.append(
                            {
                                "method": f"oracle-{rule}",
                                "masked": mask,
                                "epsilon": epsilon,
                                "budget": budget,
                                "k": size,
                                "recall": float(best.mean()),
                                "low": low,
                                "high": high,
                                "split": split,
                                "split_chosen_by": "oracle",
                            }
                        )
    return results


def _recall(
    data: ScoreData, rule: Rule, mask: int, epsilon: float, budget: int, k: int, split: float, seed: int
) -> Floats:
    rng = np.random.default_rng(seed)
    known = np.asarray(data.anchors, np.float64)
    count = max(1, round(split * budget))
    found = []
    for row in data.test:
        exact = np.asarray(row, np.float64)
        chosen = oracle_anchors(exact, count, rule, mask, epsilon, rng)
        predicted = approximate(exact, known, chosen)
        found.append(recall(exact, retrieved(predicted, chosen, budget - count), k))
    return np.asarray(found)


def sampling_errors(data: ScoreData, count: int, k: Sequence[int]) -> list[dict[str, Any]]:
    """Mean |ŝ − s| over all items and over each query's top k, by how `count` anchor items are chosen (ADACUR fig. 7).

    ANNCUR draws them, the oracle sees the scores, and ADACUR finds them in rounds.
    """
    if data.anchors is None:
        raise InputError("errors of sampling need anchors: the scores of anchor queries with every item (k_q × n)")
    known = np.asarray(data.anchors, np.float64)
    exact = np.asarray(data.test, np.float64)
    ways = anchor_items(data, count, max(k))
    return [{"anchors": name, "count": count, **_errors(exact, known, chosen, k)} for name, chosen in ways.items()]


def anchor_items(data: ScoreData, count: int, masked: int) -> dict[str, list[Positions]]:
    """Of every test query, `count` anchor items: drawn, by an oracle (k_m of 0 and `masked`), and by ADACUR."""
    exact = np.asarray(data.test, np.float64)
    rng = np.random.default_rng(0)
    ways: dict[str, list[Positions]] = {"anncur": [oracle_anchors(row, count, "random", 0, 0.0, rng) for row in exact]}
    for rule in ("top", "softmax"):
        for mask in (0, masked):
            for epsilon in (0.0, 0.75):
                name = f"oracle-{rule}, k_m={mask}, ε={epsilon:g}"
                ways[name] = [oracle_anchors(row, count, rule, mask, epsilon, rng) for row in exact]
    searcher = data.searcher("adacur@rounds=5")
    ways["adacur@rounds=5"] = [np.asarray(hits.scored) for hits in data.search(searcher, 1, count)]
    return ways


def _errors(exact: Floats, known: Floats, chosen: Sequence[Positions], k: Sequence[int]) -> dict[str, Any]:
    wrong = np.stack([np.abs(approximate(row, known, some) - row) for row, some in zip(exact, chosen, strict=True)])
    order = np.argsort(-exact, axis=1, kind="stable")
    top = {size: float(np.take_along_axis(wrong, order[:, :size], 1).mean()) for size in k}
    return {"error": float(wrong.mean()), "top_error": top}


@dataclass(frozen=True)
class Spectrum:
    """Singular values of a matrix and its rank (ANNCUR §3.3, table 3b)."""

    singular_values: list[float]
    rank: int  # numerical: above ε · max(shape) · σ₁
    directions: dict[str, int]  # how many hold 90, 95, 99 % of the energy
    centred: dict[str, int]  # the same, after the mean of each item is subtracted


def spectrum(matrix: Array) -> Spectrum:
    """Return the singular spectrum of a score matrix."""
    values = np.asarray(matrix, dtype=np.float64)
    singular = np.linalg.svd(values, compute_uv=False)
    # scores stored in half precision have rank only down to its rounding
    eps = float(np.finfo(matrix.dtype if np.issubdtype(matrix.dtype, np.floating) else np.float64).eps)
    rank = int(np.sum(singular > singular[0] * max(values.shape) * eps)) if singular[0] > 0 else 0
    without = np.linalg.svd(values - values.mean(axis=0), compute_uv=False)
    return Spectrum([float(s) for s in singular], rank, _directions(singular), _directions(without))


def _directions(singular: Array) -> dict[str, int]:
    energy = np.cumsum(singular**2)
    if not energy[-1]:
        return dict.fromkeys(("90%", "95%", "99%"), 0)
    return {f"{p}%": int(np.searchsorted(energy, p / 100 * energy[-1]) + 1) for p in (90, 95, 99)}
