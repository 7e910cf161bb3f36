"""Cohere's own client, version 1: only the address is another (`crosscut serve my.index`)."""

import cohere

client = cohere.Client(api_key="none", base_url="http://127.0.0.1:8000")
documents = ["Salt melts ice.", {"text": "Ice floats on water."}]
print(client.rerank(model="any", query="why does ice float", documents=documents, top_n=1).results)
