"""Documents of LangChain; those of LlamaIndex and Haystack work alike."""

from langchain_core.documents import Document

import crosscut

index = crosscut.Index.build([Document("Ice floats on water.", id="ice"), Document("Salt melts ice.", id="salt")])
print(index.search("why does ice float", k=1, budget=2).ids)
