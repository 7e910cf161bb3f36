"""Late interaction as a first stage: over the best of other stages, by name, in a replay and in an index."""

from __future__ import annotations

import numpy as np
import pytest

from crosscut import Index, replay
from crosscut.encoders.dual import OnnxDualEncoder
from crosscut.encoders.known import Known
from crosscut.errors import InputError
from crosscut.evaluation.replay import score_data
from crosscut.retrievers.late import Late, Reordered
from crosscut.scorers.meter import QueryLedger
from crosscut.search.loop import Query
from crosscut.search.stages import Fixed
from crosscut.types import Floats, Positions

TEXTS = [
    "the heart pumps blood through the body",
    "a computer stores numbers in its memory",
    "rivers carry water to the sea",
    "the memory of an elephant",
    "blood carries oxygen",
    "salt water is heavy",
    "numbers are counted",
]


class Table:
    def __init__(self, values: Floats) -> None:
        self.values = values

    def at(self, query: str, positions: Positions) -> Floats:
        return self.values[int(query), positions]


def test_only_the_best_of_the_other_stage_are_looked_at_and_put_in_order() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(size=(2, 50))
    order = rng.permutation(50)
    stage = Reordered(Fixed(order), Table(values), depth=20)
    query = Query(QueryLedger(1, 50))
    (got,) = stage.pick([query.without(order[:3])], [5])
    pool = order[3:23]
    assert got.handles.tolist() == pool[np.argsort(-values[1, pool])][:5].tolist()
    (wide,) = stage.pick([query], [30])
    assert len(wide.handles) == 30  # more than the depth, where more are asked for
    (none,) = stage.pick([query], [0])
    assert not len(none.handles)


def test_it_is_the_late_interaction_of_the_box() -> None:
    encoder = OnnxDualEncoder.load("default", threads=1)
    known = Known.of(encoder, TEXTS)
    made = Late(encoder, known.tokens, encoder.folder.known.token_idf)
    positions = np.array([4, 0, 2])
    for query in ("what does blood carry", "computer memory"):
        expected = known._late(known.ask(query), positions)[:, 0]
        assert made.at(query, positions) == pytest.approx(expected, rel=1e-5)
    assert len(made.at("blood", np.empty(0, np.int64))) == 0
    plain = Late.of(TEXTS, encoder)
    assert int(np.argmax(plain.at("what does blood carry", np.arange(len(TEXTS))))) in (0, 4)


def test_by_name_in_a_replay() -> None:
    rng = np.random.default_rng(0)
    vectors, queries = rng.normal(size=(300, 8)), rng.normal(size=(20, 8))
    test = queries @ vectors.T + rng.normal(size=(20, 300))
    late = test + 0.1 * rng.normal(size=test.shape)  # nearly the truth
    world = score_data(test, vectors=vectors, query_vectors=queries, late=late)
    hits = world.search(world.searcher("crosscut@first=late,rounds=1"), 10, 20)
    best = [np.argsort(-row)[:20] for row in late]
    assert [set(found.scored) for found in hits] == [set(row.tolist()) for row in best]
    report = replay(
        test,
        vectors=vectors,
        query_vectors=queries,
        methods=["crosscut"],
        budgets=[20],
        k=[10],
        first="late",
        late=late,
    )
    assert report.records[0].settings == {"first": "late"}
    with pytest.raises(InputError, match="first='late' needs token vectors of the items and has none: give late"):
        replay(test, vectors=vectors, methods=["crosscut"], budgets=[20], k=[10], first="late")


def test_by_name_in_an_index_that_keeps_token_vectors() -> None:
    index = Index.build(TEXTS)
    hits = index.search("what does blood carry", k=3, budget=3, method="axn@rounds=1,first=late", stop="never")
    late = index._state.parts.late
    assert late is not None
    values = late.at("what does blood carry", np.arange(len(TEXTS)))
    assert set(hits.scored.tolist()) == set(np.argsort(-values)[:3].tolist())
    other = Index.build(TEXTS, scorer=lambda query, texts: [float(len(text)) for text in texts])
    with pytest.raises(InputError, match="scorer in the box"):
        other.search("blood", k=3, budget=3, method="axn@first=late")
