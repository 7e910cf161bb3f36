"""A retriever in a pipeline of Haystack."""

from haystack import Pipeline

from crosscut.integrations.haystack import CrosscutRetriever

pipeline = Pipeline()
pipeline.add_component("retriever", CrosscutRetriever("my.index", top_k=3, budget=8))
print(pipeline.run({"retriever": {"query": "why does ice float"}})["retriever"]["documents"])
