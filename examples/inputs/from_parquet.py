"""A Parquet file whose columns are named."""

import crosscut

index = crosscut.Index.build("articles.parquet", text="body", title="headline", id="pk")
print(index.search("why does ice float", k=3, budget=8).ids)
