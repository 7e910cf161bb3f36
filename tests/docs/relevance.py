"""What docs/relevance.md takes for granted: an index, and judgements of some queries."""

from tests.test_docs import TOPICS

import crosscut

index = crosscut.Index.load("my.index")
judged = {
    f"{asked} {topic}": {str(j): 1 for j in range(40) if TOPICS[j % 8] == topic}
    for asked in ("what is a", "tell me about the")
    for topic in TOPICS
}
