"""The four papers in plain numpy, written from their text, and compared with the library search by search.

    ANNCUR    §2.3, 2.4   Ŝ = C_test C_anc† R_anc, k_i fixed anchor items, then the best B − k_i others
    ITEMCUR   §3.4        the same with R_anc from anchor items in place of anchor queries
    FIXEDITEM §3.4        items and query are their scores with the same anchor items
    ADACUR    alg. 1      R rounds of B/R items by TopK of s_A (R_anc[:, A])† R_anc
    AXN       alg. 1      R rounds of B/R items by TopK of V u, u = (1 − λ) (V_A)† β(s_A − α) + λ u_encoder (eq. 4, 7)
    TOUR      AXN app. B.2  u ← u − η ∇ KL or MSE on the items of a round
    patience  early exit §2.2  stop after Δ clusters in a row that leave Φ % of the top k unchanged

Nothing here imports the library but the comparison at the end. An agreement is one of items and of their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

Matrix = Any  # arrays of float64
EPS = float(np.finfo(np.float64).eps)


def pseudo_inverse(matrix: Matrix) -> Matrix:
    return np.linalg.pinv(matrix, rcond=EPS * max(matrix.shape))


def top(values: Matrix, count: int, exclude: Matrix) -> Matrix:
    """Return the `count` best places, ties to the lower one, without those excluded."""
    order = np.argsort(-values, kind="stable")
    return order[~np.isin(order, exclude)][:count]


def anncur(anchor_rows: Matrix, scores: Matrix, anchors: Matrix, budget: int) -> Matrix:
    """Return the items scored by ANNCUR, and by ITEMCUR with rows of anchor items (k_q × n)."""
    latent = pseudo_inverse(anchor_rows[:, anchors]) @ anchor_rows  # C_anc† R_anc (k_i × n)
    predicted = scores[anchors] @ latent
    return np.concatenate([anchors, top(predicted, budget - len(anchors), anchors)])


def fixed_item(item_scores: Matrix, scores: Matrix, anchors: Matrix, used: int, budget: int) -> Matrix:
    """Return the items scored by FIXEDITEM with the first `used` anchor items (k_i × n)."""
    used = min(used, len(anchors))
    predicted = scores[anchors[:used]] @ item_scores[:used]
    return np.concatenate([anchors[:used], top(predicted, budget - used, anchors[:used])])


def shares(budget: int, rounds: int) -> list[int]:
    """Return equal shares of a budget; the remainder goes to the last round."""
    rounds = min(rounds, budget)
    return [budget // rounds] * (rounds - 1) + [budget - budget // rounds * (rounds - 1)]


def adacur(anchor_rows: Matrix, scores: Matrix, first: Matrix, budget: int, rounds: int) -> Matrix:
    """Return the items scored by ADACUR from a given first round."""
    chosen = first
    for share in shares(budget, rounds)[1:]:
        predicted = scores[chosen] @ pseudo_inverse(anchor_rows[:, chosen]) @ anchor_rows
        chosen = np.concatenate([chosen, top(predicted, share, chosen)])
    return chosen


def axn(
    vectors: Matrix, scores: Matrix, first: Matrix, budget: int, rounds: int, query: Matrix,
    mix: float = 0.0, alpha: float = 0.0, beta: float = 1.0,
) -> Matrix:  # fmt: skip
    """Return the items scored by AXN from a given first round."""
    chosen = first
    for share in shares(budget, rounds)[1:]:
        fitted = pseudo_inverse(vectors[chosen]) @ (beta * (scores[chosen] - alpha))
        predicted = vectors @ ((1 - mix) * fitted + mix * query)
        chosen = np.concatenate([chosen, top(predicted, share, chosen)])
    return chosen


def softmax(values: Matrix) -> Matrix:
    raised = np.exp(values - values.max())
    return raised / raised.sum()


def tour(
    vectors: Matrix, scores: Matrix, first: Matrix, budget: int, rounds: int, query: Matrix, loss: str, rate: float
) -> Matrix:
    """Return the items scored by TOUR from a given first round: one gradient step on each round's items."""
    chosen, new, u = first, first, query.copy()
    for share in shares(budget, rounds)[1:]:
        rows, exact = vectors[new], scores[new]
        if loss == "kl":  # ∇ Σ p log(p / q), p = softmax of the scorer's scores, q = softmax of V u
            u = u - rate * rows.T @ (softmax(rows @ u) - softmax(exact))
        else:  # ∇ of the mean of (V u − s)²
            u = u - rate * 2 / len(new) * rows.T @ (rows @ u - exact)
        new = top(vectors @ u, share, chosen)
        chosen = np.concatenate([chosen, new])
    return chosen


def patience(clusters: list[Matrix], vectors: Matrix, query: Matrix, k: int, rounds: int, share: float) -> int:
    """Return the number of clusters that a search with patience visits; `clusters` are in the order of the query."""
    seen: list[tuple[float, int]] = []
    before: set[int] = set()
    calm = 0
    for visited, members in enumerate(clusters, 1):
        seen += [(-float(vectors[place] @ query), int(place)) for place in members]
        seen = sorted(seen)[:k]
        now = {place for _, place in seen}
        calm = calm + 1 if visited > 1 and len(now & before) >= share * k - 1e-9 else 0
        if calm >= rounds:
            return visited
        before = now
    return len(clusters)


def cases(seed: int) -> Iterator[tuple[str, Matrix, Matrix]]:
    """Yield (method, items by the transcription, items by the library) of random searches."""
    import crosscut
    from crosscut.ann.ivf import IVF
    from crosscut.ann.ivf.rules import Patience
    from crosscut.scorers.adapters import MatrixScorer
    from crosscut_lab.papers.item_scores import ItemScores

    rng = np.random.default_rng(seed)
    n, d, k_q = int(rng.integers(80, 300)), int(rng.integers(3, 12)), int(rng.integers(5, 40))
    budget, rounds = int(rng.integers(12, 60)), int(rng.integers(2, 9))
    v, u = rng.normal(size=(n, d)), rng.normal(size=(k_q + 4, d))
    scores = u @ v.T + 0.3 * rng.normal(size=(k_q + 4, n)) + rng.normal()
    anchors, test = scores[4:], scores[:4]
    queries = u[:4] + 0.5 * rng.normal(size=(4, d))
    places = rng.permutation(n)[: n // 3]
    between = v @ v[places].T + 0.1 * rng.normal(size=(n, len(places)))  # scores of items with anchor items
    alpha, beta, mix = float(rng.normal()), float(rng.uniform(0.2, 3)), float(rng.choice([0.0, 0.2, 0.8]))
    scorer = MatrixScorer(test)
    cur, items = crosscut.CUR(anchors), ItemScores(between.T, places)

    def library(method: str, row: int, first: Matrix | None = None, **how: Any) -> Matrix:
        vector = queries[row] if "vectors" in how else None
        searcher = crosscut.Searcher(scorer, method=method, **how)
        found = searcher.search(row, 5, budget, query_vector=vector, candidates=first)
        return np.asarray(found.scored)

    for row, exact in enumerate(test):
        first = rng.permutation(n)
        start = first[: shares(budget, rounds)[0]]
        split = float(rng.choice([0.3, 0.5, 0.7]))
        used = max(1, round(split * budget))
        found = library(f"anncur@split={split}", row, space=cur)
        yield "anncur", anncur(anchors, exact, found[:used], budget), found
        yield (
            "adacur",
            adacur(anchors, exact, start, budget, rounds),
            library(f"adacur@rounds={rounds}", row, first, space=cur),
        )
        expected = axn(v, exact, start, budget, rounds, queries[row])
        yield "axn", expected, library(f"axn@rounds={rounds}", row, first, vectors=v)
        expected = axn(v, exact, start, budget, rounds, queries[row], mix, alpha, beta)
        name = f"axn@rounds={rounds},mix={mix},alpha={alpha!r},beta={beta!r}"
        yield "axn, λ, β(s − α)", expected, library(name, row, first, vectors=v)
        for loss, rate in (("kl", 0.1), ("mse", 0.001)):
            expected = tour(v, exact, start, budget, rounds, queries[row], loss, rate)
            yield f"tour, {loss}", expected, library(f"tour@rounds={rounds},loss={loss}", row, first, vectors=v)
        found = library(f"fixed-item@split={split}", row, space=items)
        yield "fixed-item", fixed_item(between.T, exact, places, used, budget), found
        found = library(f"item-cur@split={split}", row, space=items)
        yield "item-cur", anncur(between.T, exact, found[:used], budget), found
    rows = v.astype(np.float32)
    index = IVF.build(rows, lists=12, seed=seed)
    k, wait, share = 5, int(rng.integers(1, 4)), float(rng.choice([0.8, 1.0]))
    asked = queries.astype(np.float32)
    visited = index.search_many(asked, k, rule=Patience(wait, 1 - share, 12)).lists
    for row, query in enumerate(asked):
        order = np.argsort(-(index.centroids @ query), kind="stable")
        clusters = [index.ids[index.starts[j] : index.starts[j + 1]] for j in order]
        yield "patience", np.asarray([patience(clusters, rows, query, k, wait, share)]), visited[row : row + 1]


def compare(searches: int, seed: int = 0) -> dict[str, tuple[int, int]]:
    """Return how many searches agree, and how many were made, by method."""
    agreed: Counter[str] = Counter()
    made: Counter[str] = Counter()
    while sum(made.values()) < searches:
        for name, ours, theirs in cases(seed):
            made[name] += 1
            agreed[name] += int(np.array_equal(ours, theirs))
        seed += 1
    return {name: (agreed[name], count) for name, count in made.items()}
