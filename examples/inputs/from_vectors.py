"""Vectors of your own, of items and of the query."""

import numpy as np

import crosscut

index = crosscut.Index.build("articles.csv", text="body", id="pk", vectors=np.load("vectors.npy"))
print(index.search("why does ice float", k=3, budget=8, query_vector=np.load("query.npy")).ids)
