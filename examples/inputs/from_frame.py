"""A frame of pandas; one of polars works alike."""

import pandas as pd

import crosscut

index = crosscut.Index.build(pd.read_csv("articles.csv"), text="body", title="headline", id="pk")
print(index.search("why does ice float", k=3, budget=8).ids)
