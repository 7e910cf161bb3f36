"""The third edition of the models, in a folder of its own: a correction of what is known without a call."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import crosscut
from crosscut.datasets import ItemList
from crosscut.encoders.named import load_encoder
from crosscut.scorers.named import load_scorer

FOLDER = Path(__file__).parents[1] / "models" / "third-edition"
TEXTS = [
    "A vaccine trains the immune system to recognise a pathogen.",
    "The river bank was flooded after the storm.",
    "Banks lend money at interest.",
    "Vaccination against measles began in 1963.",
    "A crane lifted the steel beams.",
]


def test_it_is_found_by_its_folder_and_a_search_corrects_what_is_known(tmp_path: Path) -> None:
    scorer = load_scorer(str(FOLDER))
    bound = scorer.bind(ItemList(TEXTS))
    query, every = "how do vaccines work", np.arange(len(TEXTS))
    assert bound.knows
    costly = bound.costly_many([(query, every)])[0].scores
    np.testing.assert_allclose(bound.score(query, every), bound.known(query) + bound.model.weight * costly, atol=1e-5)
    index = crosscut.Index.build(TEXTS, scorer=str(FOLDER), encoder=str(FOLDER))
    hits = index.search(query, k=2, budget=3)
    assert hits.trace[0].positions[0] == int(np.argmax(bound.known(query)))
    assert hits[0].id in ("0", "3")
    assert hits[0].id == index.search(query, k=1, method="exact")[0].id
    assert load_encoder(str(FOLDER)).dimension == 384
