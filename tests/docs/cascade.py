"""What docs/guides/cascade.md takes for granted: texts, vectors, a small model and a judge."""

import numpy as np

from tests.docs.test_docs import TOPICS

texts = [f"what number {j} says about {TOPICS[j % 8]}" for j in range(600)]
vectors = np.random.default_rng(0).normal(size=(len(texts), 8))
query_vector = vectors[0]


def small_model(query: str, texts: list[str]) -> list[float]:
    return [float(len({*query} & {*text})) for text in texts]


def judge(query: str, texts: list[str]) -> list[float]:
    return [float(len({*query.split()} & {*text.split()})) for text in texts]
