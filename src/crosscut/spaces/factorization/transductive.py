"""Transductive factors by AdamW, as the paper trains them. Needs torch: `pip install 'crosscut[torch]'`.

AXN (§2.1, MF_TRNS; app. A.2.2, table 2): U and V are free parameters, started at the encoder's vectors, trained on

    mean over a batch of (G_qi − u_q · v_i)²

with AdamW; learning rate 0.005 on SciDocs and 0.001 elsewhere, 10 epochs on BEIR (4 for the largest G), 20 on ZESHEL.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError, needing
from crosscut.spaces.base import Space
from crosscut.spaces.factorization.factors import Factors, SolverProgress, problem
from crosscut.spaces.sparse import Normalisation, SparseScores


def transductive(
    scores: SparseScores,
    vectors: Space | npt.ArrayLike,
    query_vectors: npt.ArrayLike,
    *,
    rate: float = 0.001,
    epochs: int = 20,
    batch: int = 1024,
    decay: float = 0.01,
    patience: int = 3,
    validation: float = 0.1,
    normalise: bool | Normalisation = True,
    device: str | None = None,
    dtype: str = "fp32",
    seed: int = 0,
) -> Factors:
    """Transductive factors by AdamW.

    Parameters
    ----------
    scores
        G, raw.
    vectors, query_vectors
        V⁰ (n × d) and U⁰ (|Q| × d) of the encoder.
    rate, epochs, batch, decay
        Learning rate, passes over G, pairs in a batch, AdamW's weight decay.
    patience
        Epochs without a lower held-out loss after which it stops; the best epoch is kept.
    validation
        Share of the observed pairs held out; 0 trains all epochs on all pairs, as the paper does.
    device
        Where it is trained, such as "cuda"; the CPU when not given.
    dtype
        "fp32": a step is made of sums and reads rows of U and V; there is no product of matrices to do in fewer bits.
    """
    torch = import_torch("transductive factorisation by AdamW")
    check_training(rate, epochs, batch)
    embedding = torch.nn.functional.embedding  # u[rows], with a gradient that sums faster
    started = time.perf_counter()
    made = problem(
        scores, vectors, query_vectors, normalise=normalise, validation=validation, by_query=False, seed=seed
    )
    where = device_of(torch, device)
    arithmetic(torch, where, dtype, "transductive")
    u = torch.nn.Parameter(torch.from_numpy(made.queries.copy()).to(where))
    v = torch.nn.Parameter(torch.from_numpy(made.items).to(where))
    optimizer = torch.optim.AdamW([u, v], lr=rate, weight_decay=decay)
    pairs = made.train.pairs
    rows, columns = (torch.from_numpy(side).to(where) for side in (pairs.queries, pairs.items))
    targets = torch.from_numpy(made.train.scores.astype(np.float32)).to(where)
    progress = SolverProgress("transductive AdamW", patience, f"lower the learning rate ({rate})", started)

    def note() -> tuple[Any, Any] | None:
        queries, items = u.detach().cpu().numpy(), v.detach().cpu().numpy()
        better = progress.note(made.loss(made.train, queries, items), made.loss(made.held, queries, items))
        return (queries.copy(), items.copy()) if better else None

    best = note()
    steps = kept = 0
    draws = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for chosen in torch.randperm(len(targets), generator=draws).to(where).split(batch):
            predicted = (embedding(rows[chosen], u) * embedding(columns[chosen], v)).sum(1)
            loss = ((predicted - targets[chosen]) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps += 1
        if better := note():
            best, kept = better, steps
        if progress.settled:
            break
    assert best is not None
    settings = {"rate": rate, "epochs": epochs, "batch": batch, "decay": decay, "validation": validation, "seed": seed}
    fitting = progress.fitting(scores, settings)
    # an item without a score has no gradient: only the decay moves it, by the same share in every step
    left = np.float32((1 - rate * decay) ** kept)
    return Factors(made.spread(best[1], lambda rows: rows * left), best[0], made.whole.normalisation, fitting)


def import_torch(what: str) -> Any:
    with needing(f"{what} needs torch", "torch"):
        import torch
    return torch


def device_of(torch: Any, device: str | None) -> Any:
    """The device that a setting names, one of them."""
    from crosscut.models.spec import check_device, devices_of

    found = devices_of(device)
    if len(found) > 1:
        raise InputError(f"a factorisation is trained on one device, not on {', '.join(found)}")
    return torch.device(check_device(found[0]))


def arithmetic(torch: Any, where: Any, dtype: str, solver: str) -> tuple[Any, Any]:
    """A context in which products are computed in `dtype`, and what scales gradients that fp16 would lose."""
    kinds = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
    if dtype not in kinds:
        raise InputError(f"factors are trained in {', '.join(kinds)}, not in {dtype!r}")
    if dtype == "fp16" and where.type != "cuda":
        raise InputError(f"fp16 trains on a GPU, not on {where.type!r}; use bf16 or fp32 there")
    if dtype != "fp32" and solver == "transductive":
        raise InputError(
            f"transductive factors are trained in fp32, not in {dtype!r}: they have no products of matrices, and "
            "memory is what takes the time; leave dtype out, or train inductive ones"
        )
    context = nullcontext() if dtype == "fp32" else torch.autocast(where.type, kinds[dtype])
    return context, torch.amp.GradScaler("cuda", enabled=dtype == "fp16")


def check_training(rate: float, epochs: int, batch: int) -> None:
    if not rate > 0:
        raise InputError(f"the learning rate must be above 0; got {rate}")
    if epochs < 1 or batch < 1:
        raise InputError(f"{epochs} epochs of batches of {batch} pairs train nothing; both must be at least 1")
