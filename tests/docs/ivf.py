"""Setup of the blocks of docs/ivf.md: vectors, queries, a scorer."""

import numpy as np

import crosscut

rng = np.random.default_rng(0)
vectors = V = rng.normal(size=(4000, 16)).astype(np.float32)
queries, train_queries = rng.normal(size=(4, 16)).astype(np.float32), rng.normal(size=(300, 16)).astype(np.float32)
query, seen, in_stock = queries[0], [[1, 2], [3], [], []], np.arange(3000)
more, ids = rng.normal(size=(3, 16)).astype(np.float32), [7, 8]
scores = (queries @ V.T).astype(np.float32)
scorer = crosscut.MatrixScorer(scores)
