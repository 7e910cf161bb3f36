"""What docs/guides/evaluation.md takes for granted: qrels of some queries."""

from tests.docs.test_docs import TOPICS

qrels = {
    f"{asked} {topic}": {str(j): 1 for j in range(40) if TOPICS[j % 8] == topic}
    for asked in ("what is a", "facts about the")
    for topic in TOPICS
}
