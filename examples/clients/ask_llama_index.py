"""A retriever for LlamaIndex."""

from crosscut.integrations.llama_index import CrosscutRetriever

for node in CrosscutRetriever("my.index", k=3, budget=8).retrieve("why does ice float"):
    print(node.score, node.text)
