"""A retriever for LangChain."""

from crosscut.integrations.langchain import CrosscutRetriever

for document in CrosscutRetriever(index="my.index", k=3, budget=8).invoke("why does ice float"):
    print(document.metadata["score"], document.page_content)
