"""Names that the README's blocks assume: vectors, a model and a query."""

import numpy as np

V = np.random.default_rng(0).normal(size=(500, 8))
u = V[3]
query = "how do vaccines work"


def my_model(query: str, ids: list[int]) -> list[float]:
    return [float(V[int(j)] @ u) for j in ids]
