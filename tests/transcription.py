"""A plain numpy transcription of the papers' searches: a pseudo-inverse from scratch and a full sort in every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Score = Callable[[npt.NDArray[np.int64]], Floats]


def cut_off(rows: npt.NDArray[Any]) -> float:
    return float(np.finfo(np.float64).eps * max(rows.shape))


def ranking(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Best first, ties to the lower position."""
    return np.argsort(-values, kind="stable")


def adaptive(
    vectors: npt.NDArray[Any], score: Score, first: Sequence[int] | npt.NDArray[np.int64], budget: int, rounds: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """AXN alg. 1; with vectors = R_ancᵀ, ADACUR alg. 1 with TopK. Returns what was scored, in order, and its scores."""
    n = len(vectors)
    rounds = min(rounds, budget)
    share = budget // rounds
    scored = np.asarray(first[: budget if rounds == 1 else share], dtype=np.int64)
    exact = score(scored)
    for number in range(2, rounds + 1):
        rows = vectors[scored].astype(np.float64)  # (m × d)
        u = np.linalg.pinv(rows, rcond=cut_off(rows)) @ exact
        predicted = vectors @ u.astype(vectors.dtype)
        mask = np.ones(n, dtype=bool)
        mask[scored] = False
        order = ranking(predicted)
        order = order[mask[order]]
        new = order[: budget - len(scored) if number == rounds else share]
        scored = np.concatenate([scored, new])
        exact = np.concatenate([exact, score(new)])
    return scored, exact


def anncur(
    anchor_scores: npt.NDArray[Any], score: Score, anchors: npt.NDArray[np.int64], budget: int
) -> tuple[npt.NDArray[np.int64], Floats]:
    """ANNCUR §2.3–2.4: E = C_anc† R_anc offline, Ŝ = C_test E, then the best that are not anchors."""
    columns = anchor_scores[:, anchors].astype(np.float64)  # C_anc (k_q × k_i)
    items = np.linalg.pinv(columns, rcond=cut_off(columns)) @ anchor_scores.astype(np.float64)  # E (k_i × n)
    exact = score(anchors)
    order = ranking(exact @ items)
    order = order[~np.isin(order, anchors)][: budget - len(anchors)]
    return np.concatenate([anchors, order]), np.concatenate([exact, score(order)])
