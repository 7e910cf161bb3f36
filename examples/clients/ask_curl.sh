# A search and a rerank by curl (`crosscut serve my.index`).
curl -sf http://127.0.0.1:8000/search -H 'content-type: application/json' \
  -d '{"query": "why does ice float", "k": 3, "budget": 8}'
curl -sf http://127.0.0.1:8000/v2/rerank -H 'content-type: application/json' \
  -d '{"query": "why does ice float", "documents": ["Salt melts ice.", "Ice floats."], "top_n": 1}'
