"""Setup of the blocks of docs/relevance.md: an index, judgements of some queries, texts, and a judge of them."""

import crosscut
from tests.docs.test_docs import TOPICS

index = crosscut.Index.load("my.index")
judged = {
    f"{asked} {topic}": {str(j): 1 for j in range(40) if TOPICS[j % 8] == topic}
    for asked in ("what is a", "facts about the")
    for topic in TOPICS
}
texts = [f"{item.title}. {item.text}" for item in index.items]


def judge(query: str, texts: list[str]) -> list[float]:
    return [float(len({*query.split()} & {*text.split()})) for text in texts]
