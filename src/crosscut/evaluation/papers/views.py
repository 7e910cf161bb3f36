"""Several vectors an item (ADACUR app. C.3, fig. 10): the whole, its sentences, its sentences merged."""

from __future__ import annotations

import numpy as np

from crosscut.errors import InputError
from crosscut.evaluation.papers.setting import Records, Setting, record_of, replayed
from crosscut.measures import recall


def multi_view(setting: Setting) -> Records:
    """Reranking what views retrieve, beside reranking one vector's and ADACUR from it, at equal calls."""
    asked = setting.world.query_vectors
    if not setting.views or asked is None:
        raise InputError(
            "the study of views needs several vectors an item: a folder of texts and an encoder, or an archive with "
            "views and view_counts"
        )
    world, (ks, budgets) = setting.world, setting.fitting
    methods = ["rerank"] if world.vectors is not None else []
    methods += ["adacur@first=dense"] if world.anchors is not None and world.vectors is not None else []
    records = replayed(setting, methods)
    exact = np.asarray(world.test, np.float64)
    for name, views in setting.views.items():
        order = views.rank(asked, max(budgets))
        for budget in budgets:
            for k in ks:
                found = [recall(row, one[:budget], k) for row, one in zip(exact, order, strict=True)]
                records.append(record_of(f"rerank, {name}", k, budget, np.asarray(found), views=len(views.vectors)))
    return records
