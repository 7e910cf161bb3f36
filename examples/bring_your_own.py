"""Your own vectors, your own expensive function: nothing is indexed, nothing is trained.

The "expensive function" here is a hidden matrix; put a cross-encoder, a rerank API or an LLM judge in its place.
"""

import numpy as np

import crosscut

rng = np.random.default_rng(0)
topics = rng.normal(size=(2_000, 16))  # what the items are about; only the judge knows
asked = rng.normal(size=(20, 16))  # what the queries want
popularity = rng.normal(size=2_000)
vectors = topics @ rng.normal(size=(16, 64)) / 4 + 0.3 * rng.normal(size=(2_000, 64))  # an encoder's noisy view
projection = np.linalg.lstsq(vectors, topics, rcond=None)[0]  # (64 × 16)
query_vectors = (asked + 1.5 * rng.normal(size=asked.shape)) @ projection.T  # and of the queries, noisier still


def judge(query: int, positions: np.ndarray) -> np.ndarray:
    """Too expensive to call 2,000 times a query."""
    return topics[positions] @ asked[query] + popularity[positions]


for method in ("rerank", "axn", "crosscut"):
    searcher = crosscut.Searcher(judge, vectors=vectors, method=method)
    found = []
    for query in range(len(asked)):
        hits = searcher.search(query, k=10, budget=100, query_vector=query_vectors[query])
        exact = np.argsort(-judge(query, np.arange(2_000)))[:10]
        found.append(len(set(hits.ids) & set(exact)) / 10)
    print(f"{method:<9} finds {np.mean(found):.0%} of the judge's own top 10 with {hits.calls} calls a query")

hits = searcher.search(0, k=3, budget=100, query_vector=query_vectors[0], stop=crosscut.Patience(3))
print(f"\nwith patience: {hits.calls} calls in {hits.rounds} rounds, stopped by {hits.stop_reason}")
for hit in hits:
    print(f"  item {hit.id:<5} score {hit.score:.2f}, predicted {hit.estimate:.2f}, found in round {hit.round}")
