"""What docs/relevance.md takes for granted: an index, judgements of some queries, and two scorers."""

import numpy as np
from tests.test_docs import TOPICS

import crosscut

index = crosscut.Index.load("my.index")
judged = {
    f"{asked} {topic}": {str(j): 1 for j in range(40) if TOPICS[j % 8] == topic}
    for asked in ("what is a", "tell me about the")
    for topic in TOPICS
}
query = "bank"
V = np.random.default_rng(0).normal(size=(800, 8))
u0 = V[3]


def box(query: str, positions: np.ndarray) -> np.ndarray:
    return np.asarray(V[positions] @ u0)


def judge(query: str, positions: np.ndarray) -> np.ndarray:
    return np.asarray(V[positions] @ (u0 + V[5] / 3))
