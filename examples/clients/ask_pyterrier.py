"""A transformer of PyTerrier; `bm25 >> searcher` gives round one what bm25 found."""

from crosscut.integrations.pyterrier import CrosscutIndex

searcher = CrosscutIndex("my.index").retriever(k=3, budget=8)
print(searcher.search("why does ice float"))
