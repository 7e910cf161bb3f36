"""Setup of the blocks of docs/indexing.md: queries, vectors, a scorer."""

import numpy as np

import crosscut

rng = np.random.default_rng(0)
n = 400
V, U = rng.normal(size=(n, 8)), rng.normal(size=(30, 8))
queries = list(range(30))
scorer = crosscut.MatrixScorer(U @ V.T)
