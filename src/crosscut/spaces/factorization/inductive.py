"""Inductive factors: two small networks over frozen encoder vectors, which embed unseen items and queries too.

AXN (§2.1, MF_IND; app. A.2.2), separately for queries and items:

    x' = b₂ + W₂ᵀ gelu(b₁ + W₁ᵀ x)                d → 2d → d
    x_out = σ(w) x' + (1 − σ(w)) x                 the gated skip, w = −5 at the start

trained on the observed scores by AdamW; learning rate 0.005 on SciDocs, 0.001 elsewhere, 20 epochs (10 for the largest
G). Without the skip it does not generalise. Training needs torch; embedding, saving and loading do not.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from crosscut.errors import InputError
from crosscut.spaces.base import Space
from crosscut.spaces.factorization.factors import Factors, Fitting, Matrix, SolverProgress, problem
from crosscut.spaces.factorization.transductive import arithmetic, check_training, device_of, import_torch
from crosscut.spaces.sparse import Normalisation, SparseScores
from crosscut.storage import Saved
from crosscut.types import Array

GATE = -5.0


@dataclass(frozen=True)
class Mlp:
    """One network with its gated skip, in numpy."""

    w1: Matrix  # (d × 2d)
    b1: Matrix  # (2d)
    w2: Matrix  # (2d × d)
    b2: Matrix  # (d)
    gate: Matrix  # () w

    def __call__(self, vectors: npt.ArrayLike) -> Matrix:
        """Vectors of the encoder (m × d) → vectors of the factorised space (m × d)."""
        from scipy.special import erf

        given = np.asarray(vectors, dtype=np.float32)
        if given.ndim != 2 or given.shape[1] != len(self.w1):
            raise InputError(f"this model embeds vectors of {len(self.w1)} dimensions; got an array of {given.shape}")
        out = np.empty_like(given)
        share = np.float32(1 / (1 + np.exp(-float(self.gate))))
        for start in range(0, len(given), 8192):
            x = given[start : start + 8192]
            inner = x @ self.w1 + self.b1  # (m × 2d)
            inner *= np.float32(0.5) * (1 + erf(inner * np.float32(np.sqrt(0.5))))
            out[start : start + 8192] = share * (inner @ self.w2 + self.b2) + (1 - share) * x
        return out


class InductiveFactors(Factors):
    """Item factors computed from encoder vectors; `embed_items` and `embed_queries` go on doing so."""

    kind: ClassVar[str] = "inductive"
    of_queries: ClassVar[bool] = False  # a query vector goes through a network of its own

    def __init__(
        self,
        items: Array,
        queries: Array,
        normalisation: Normalisation,
        fitting: Fitting,
        query_mlp: Mlp,
        item_mlp: Mlp,
    ) -> None:
        super().__init__(items, queries, normalisation, fitting)
        self.query_mlp, self.item_mlp = query_mlp, item_mlp

    def embed_items(self, vectors: npt.ArrayLike) -> Matrix:
        """The encoder's vectors of any items (m × d), in this space."""
        return self.item_mlp(vectors)

    def embed_queries(self, vectors: npt.ArrayLike) -> Matrix:
        """The encoder's vectors of any queries (m × d), in this space."""
        return self.query_mlp(vectors)

    def extended(self, vectors: Array) -> Factors:
        """With more items at the end: the network embeds them."""
        return self._of(self._with(self.embed_items(vectors)))

    def _of(self, items: Array) -> InductiveFactors:
        return InductiveFactors(
            items, self.query_factors, self.normalisation, self.fitting, self.query_mlp, self.item_mlp
        )

    def _arrays(self) -> dict[str, Array]:
        sides = (("query", self.query_mlp), ("item", self.item_mlp))
        parts = {f"{side}-{part.name}": getattr(mlp, part.name) for side, mlp in sides for part in fields(Mlp)}
        return super()._arrays() | parts


def read_mlps(saved: Saved, d: int) -> tuple[Mlp, Mlp]:
    """The query and the item network of a saved model, of d dimensions."""
    shapes = {"w1": (d, 2 * d), "b1": (2 * d,), "w2": (2 * d, d), "b2": (d,), "gate": ()}
    query, item = (
        Mlp(**{name: saved.numbers(f"factors-{side}-{name}", "<f4", shape) for name, shape in shapes.items()})
        for side in ("query", "item")
    )
    return query, item


def inductive(
    scores: SparseScores,
    vectors: Space | npt.ArrayLike,
    query_vectors: npt.ArrayLike,
    *,
    rate: float = 0.001,
    epochs: int = 20,
    batch: int = 1024,
    decay: float = 0.01,
    gate: float | None = GATE,
    patience: int = 5,
    validation: float = 0.1,
    normalise: bool | Normalisation = True,
    device: str | None = None,
    dtype: str = "fp32",
    seed: int = 0,
) -> InductiveFactors:
    """Inductive factors by AdamW.

    Parameters
    ----------
    scores
        G, raw.
    vectors, query_vectors
        (n × d) and (|Q| × d) of the encoder.
    rate, epochs, batch, decay, patience, device
        As in `transductive`.
    gate
        w at the start; None leaves the skip out (x' alone), which the paper found not to generalise.
    dtype
        Of the networks' products while training: "fp32", "bf16", or, on a GPU, "fp16". Weights and losses stay in fp32.
    validation
        Share of the train *queries* held out: the model is to embed queries it has never seen.
    """
    torch = import_torch("training an inductive factorisation")
    check_training(rate, epochs, batch)
    started = time.perf_counter()
    made = problem(scores, vectors, query_vectors, normalise=normalise, validation=validation, by_query=True, seed=seed)
    d = made.items.shape[1]
    where = device_of(torch, device)
    products, scaler = arithmetic(torch, where, dtype, "inductive")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        nets = [
            torch.nn.Sequential(torch.nn.Linear(d, 2 * d), torch.nn.GELU(), torch.nn.Linear(2 * d, d)).to(where)
            for _ in "qi"
        ]
    # a gate far on the other side is no skip at all
    first = torch.tensor(30.0 if gate is None else float(gate), device=where)
    gates = [torch.nn.Parameter(first.clone()) for _ in "qi"]
    trained = [parameter for net in nets for parameter in net.parameters()] + ([] if gate is None else gates)
    optimizer = torch.optim.AdamW(trained, lr=rate, weight_decay=decay)
    queries, items = torch.from_numpy(made.queries).to(where), torch.from_numpy(made.items).to(where)
    progress = SolverProgress("inductive AdamW", patience, f"lower the learning rate ({rate})", started)

    def mlps() -> tuple[Mlp, Mlp]:
        pair = [
            Mlp(*(p.detach().cpu().numpy().T.copy() for p in (*net.parameters(), gate)))
            for net, gate in zip(nets, gates, strict=True)
        ]
        return pair[0], pair[1]

    def note() -> tuple[Mlp, Mlp] | None:
        both = mlps()
        u, v = both[0](made.queries), both[1](made.items)
        return both if progress.note(made.loss(made.train, u, v), made.loss(made.held, u, v)) else None

    best = note()
    draws = np.random.default_rng(seed)
    for _ in range(epochs):
        order = draws.permutation(len(made.train))
        for first in range(0, len(order), batch):
            chosen = order[first : first + batch]
            vectors_of = []
            for side, everything, places in (
                (0, queries, made.train.pairs.queries[chosen]),
                (1, items, made.train.pairs.items[chosen]),
            ):
                distinct, back = np.unique(places, return_inverse=True)  # each vector through its network once
                x = everything[torch.from_numpy(distinct).to(where)]
                share = torch.sigmoid(gates[side])
                with products:
                    turned = nets[side](x)
                mixed = share * turned.float() + (1 - share) * x
                vectors_of.append(mixed[torch.from_numpy(back).to(where)])
            predicted = (vectors_of[0] * vectors_of[1]).sum(1)
            targets = torch.from_numpy(made.train.scores[chosen].astype(np.float32)).to(where)
            loss = ((predicted - targets) ** 2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        best = note() or best
        if progress.settled:
            break
    assert best is not None
    settings: dict[str, Any] = {"rate": rate, "epochs": epochs, "batch": batch, "decay": decay, "gate": gate}
    settings |= {"validation": validation, "dtype": dtype, "seed": seed}
    fitting = progress.fitting(scores, settings)
    u, v = best[0](made.queries), made.spread(best[1](made.items), best[1])
    return InductiveFactors(v, u, made.whole.normalisation, fitting, *best)
