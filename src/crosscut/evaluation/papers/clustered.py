"""Early exit (Busolin et al. 2024) on the vectors of a world: φ_h and C(q), and the rules side by side."""

from __future__ import annotations

import numpy as np

from crosscut.ann.ivf import IVF
from crosscut.errors import InputError
from crosscut.evaluation.papers.setting import Records, Setting, record_of
from crosscut.types import Array


def clustered(setting: Setting) -> tuple[IVF, Array]:
    """The world's item vectors in the paper's number of lists, 16 √n and up to a power of two; its test queries."""
    world = setting.world
    if world.vectors is None or world.query_vectors is None:
        raise InputError("the study of exits needs vectors of items and of queries")
    rows = np.asarray(world.vectors.rows(np.arange(setting.n)), np.float32)
    lists = max(4, min(1 << int(np.ceil(np.log2(16 * np.sqrt(len(rows))))), len(rows) // 8))
    return IVF.build(rows, lists=lists, seed=0), np.asarray(world.query_vectors, np.float32)


def exits(setting: Setting) -> Records:
    """φ_h against h, for queries that need few lists and for others; the distribution of C(q) (early exit, fig. 1)."""
    from crosscut.ann.ivf.kernels import STAYED
    from crosscut.ann.ivf.learning import observe
    from crosscut.ann.ivf.rules import TAU

    index, queries = clustered(setting)
    k = min(100, setting.n // 4)
    seen = observe(index, queries, k=k)
    kept = seen.traces[:, :, STAYED] / k
    needed = seen.needed(seen.most)
    records = []
    for name, chosen in (("all", needed > 0), (f"C(q) ≤ {TAU}", needed <= TAU), (f"C(q) > {TAU}", needed > TAU)):
        if chosen.any():
            for place in range(1, min(seen.most, 60)):
                values = np.asarray(kept[chosen, place], np.float64)
                records.append(record_of(f"φ, {name}", k, place + 1, values))
    for place in range(1, min(seen.most, 60)):
        records.append(record_of("share with C(q) ≤ x", k, place, (needed <= place).astype(np.float64)))
    return records


def exit_rules(setting: Setting) -> Records:
    """Every exit rule at equal R*@1, learned and tuned on the train queries: τ ∈ {2 … 15}, hyper-parameters of the
    forests searched (early exit, table 2). x is the mean number of lists."""
    from crosscut.ann.ivf.tuning import TAUS, tune
    from crosscut.evaluation.clustered import as_records, table_2

    index, queries = clustered(setting)
    train = setting.world.anchor_query_vectors
    if train is None:
        raise InputError("exit rules are learned on train queries: their vectors are missing")
    k = min(100, setting.n // 4)
    tuned = tune(index, np.asarray(train, np.float32), k=k, taus=TAUS, trials=4)
    rows, limit = table_2(index, tuned, queries, k=k, repeats=1)
    records: Records = [
        {"method": row["name"], "k": 1, "x": row["lists"], "recall": row["recall_1"], **row} for row in as_records(rows)
    ]
    records.append({"method": "oracle", "k": 1, "x": limit["oracle_lists"], "recall": limit["oracle_recall_1"]})
    return records
