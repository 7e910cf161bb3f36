"""Reranking in Python, relevance and prices."""

from __future__ import annotations

import numpy as np
import pytest

import crosscut
from crosscut.errors import InputError
from crosscut.score_store.rerank import Reranker
from crosscut.scorers.adapters import TextScorer
from crosscut.scorers.calibration import Calibration, relevance
from crosscut.scorers.llm_judge import ChatJudge
from crosscut.scorers.rerank_api import RerankEndpoint
from tests.served import score_words, small_index

DOCUMENTS = ["a red cat", "nothing", "red red cat cat"]
QUERY = "red cat"


def wanted() -> list[float]:
    return (1 / (1 + np.exp(-np.array(score_words(QUERY, DOCUMENTS))))).tolist()


def test_relevance_is_between_0_and_1_in_the_order_of_the_scores() -> None:
    scores = np.array([-1000.0, -9.53, 0.0, 4.63, 1000.0])
    probabilities = relevance(object(), scores)
    assert probabilities.tolist() == pytest.approx(
        [0, 1 / (1 + np.exp(9.53)), 0.5, 1 / (1 + np.exp(-4.63)), 1], abs=1e-12
    )
    assert (np.diff(probabilities) >= 0).all()
    service = RerankEndpoint("http://localhost/v2/rerank")
    assert relevance(service, np.array([0.2, 0.9])).tolist() == [0.2, 0.9]
    logits = RerankEndpoint("http://localhost/v2/rerank", transform="logit")
    assert relevance(logits, np.array([0.0])).tolist() == [0.5]
    judge = ChatJudge("http://localhost/v1/chat/completions", model="m")
    assert relevance(judge, np.array([0.0, 9.0])).tolist() == [0.0, 1.0]
    learned = Calibration("a", 0.5, -2.0, queries=10, pairs=100, relevant=20)
    assert relevance(object(), scores, learned).tolist() == learned.probabilities(scores).tolist()


def test_the_relevance_of_a_text_does_not_depend_on_the_others() -> None:
    known = Calibration("score_words", 0.5, -2.0, queries=10, pairs=100, relevant=20)
    for reranker in (
        Reranker(score_words),
        Reranker(TextScorer(score_words, fingerprint="score_words"), calibration=known),
    ):
        few, one = reranker.rank(QUERY, DOCUMENTS), reranker.rank(QUERY, DOCUMENTS[2:])
        assert few.relevance[2] == one.relevance[0]
        assert few.calibrated == (reranker.calibration is not None)


def test_prices_by_tokens_and_by_calls() -> None:
    index = small_index()
    assert index.search(QUERY, 5, 30).cost is None
    index.price = crosscut.Price(per_million_tokens=10.0)
    hits = index.search(QUERY, 5, 30)
    items = [index.corpus.items[position] for position in hits.scored]
    length = sum(len(QUERY) + len(f"{item.title}\n{item.text}") for item in items)
    assert hits.cost == pytest.approx(length / 4 * 10 / 1e6)
    for wrong in (-1.0, float("nan")):
        with pytest.raises(InputError, match="price of 0 or more"):
            crosscut.Price(per_thousand_calls=wrong)


def test_a_threshold_in_python() -> None:
    reranker = Reranker(score_words)
    ranking = reranker.rank(QUERY, DOCUMENTS)
    assert ranking.relevance.tolist() == pytest.approx(wanted())
    kept = reranker.rank(QUERY, DOCUMENTS, threshold=sorted(wanted())[1])
    assert kept.order.tolist() == [2, 0]
    assert kept.calls == 0  # remembered
    with pytest.raises(InputError, match="0 … 1; got 7"):
        reranker.rank(QUERY, DOCUMENTS, threshold=7)
    known = Calibration("another scorer", 0.5, -2.0, queries=10, pairs=100, relevant=20)
    with pytest.raises(InputError, match="calibrated for scorer another scorer"):
        Reranker(score_words, calibration=known)
