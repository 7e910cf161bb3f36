"""The named methods: each a choice of parts, faithful to its paper.

| method | space V | round one | u | later rounds |
|---|---|---|---|---|
| `exact` | – | every item | – | – |
| `rnr` | encoder | top B of it | – | none |
| `anncur` | CUR | k_i fixed anchor items | C_anc†, precomputed | one: top B − k_i |
| `adacur` | CUR | B/R random, or of a first stage | least squares | R − 1 rounds |
| `axn` | encoder, factors or CUR | B/R of a first stage | least squares, λ-mixed with the encoder's | R − 1 rounds |
| `tour` | encoder | B/R | one gradient step a round | R − 1 rounds |
| `fixed-item` | item–item scores | the anchor items | the scores themselves | one |
| `item-cur` | item–item scores | other fixed items | pseudo-inverse, precomputed | one |
| `crosscut` | CUR ‖ encoder ‖ 1 | encoder, or an item's base | ridge on what the base leaves | ten small ones |

The last is in `blend.py`. Whatever has rounds takes `shortlist=S` too: all of them stay within the first stage's top S,
as AXN and ADACUR do with 10,000 of HotpotQA's 5 million items (AXN app. A.4).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from crosscut.errors import InputError
from crosscut.search.estimators import FixedAnchors, GradientStep, OwnScores, Regression
from crosscut.search.first import Dense, Drawn, FirstStage, Fixed, Listed
from crosscut.search.loop import Offset, Plan
from crosscut.search.selection import Selection, as_selection
from crosscut.search.stopping import Schedule
from crosscut.spaces.base import Space
from crosscut.spaces.cur import CUR
from crosscut.spaces.factorization.factors import Factors
from crosscut.spaces.items import ItemScores
from crosscut.spaces.sparse import Normalisation
from crosscut.types import Positions


@dataclass(frozen=True)
class Materials:
    """What a method is made from."""

    n: int
    encoder: Space | None = None  # vectors in the space of the query vectors
    space: Space | None = None  # another space: CUR, factors, item–item scores
    seed: int = 0


FirstName = Literal["auto", "dense", "random"] | FirstStage


def exact(m: Materials) -> Plan:
    """Score everything."""
    return Plan(m.n, Fixed(np.arange(m.n)), Schedule(1))


def rnr(m: Materials, *, first: FirstName = "auto") -> Plan:
    """Retrieve and rerank: the best B by query vector, or the caller's `first_ids`, scored."""
    if first == "auto":
        return Plan(m.n, Listed() if m.encoder is None else Dense(m.encoder, otherwise=Listed()), Schedule(1))
    return Plan(m.n, first_stage(m, first), Schedule(1))


def anncur(
    m: Materials,
    *,
    split: float = 0.5,
    first: FirstName | Literal["fixed"] = "fixed",
    rcond: float | None = None,
) -> Plan:
    """ANNCUR (§2.3–2.4): a share `split` of the budget on anchor items, the rest on the best predictions.

    Anchor items are drawn once, from the seed, and their pseudo-inverse is computed once; with another first stage
    (ANNCUR_DE) each query is solved online. The cut-off is ε · max(k_q, k_i): numpy's own for `pinv`, 1e-15, is below
    the rounding of a matrix of this size.
    """
    return _anncur(m, _cur(m, "anncur"), _shuffled(m), split, first, rcond)


def _anncur(
    m: Materials,
    space: Space,
    order: Positions,
    split: float,
    first: FirstName | Literal["fixed"],
    rcond: float | None,
) -> Plan:
    _check_split(split)
    stage = Fixed(order) if first == "fixed" else first_stage(m, first)
    return Plan(m.n, stage, Schedule(2, first=split), space, FixedAnchors(order, rcond))


def adacur(
    m: Materials,
    *,
    rounds: int = 5,
    first: FirstName = "random",
    select: str | Selection = "top",
    epsilon: float = 0.0,
    rcond: float | None = None,
    first_share: float | None = None,
) -> Plan:
    """ADACUR (alg. 1): least squares on the anchor scores of what was scored, R rounds."""
    return Plan(
        m.n,
        first_stage(m, first),
        Schedule(rounds, first_share),
        _cur(m, "adacur"),
        Regression(rcond=rcond),
        as_selection(select, epsilon),
    )


def axn(
    m: Materials,
    *,
    rounds: int = 5,
    mix: float = 0.0,
    first: FirstName = "auto",
    select: str | Selection = "top",
    epsilon: float = 0.0,
    rcond: float | None = None,
    alpha: float | None = None,
    beta: float | None = None,
    first_share: float | None = None,
) -> Plan:
    """AXN (alg. 1): the same in any space of item vectors; `mix` is λ of eq. 7, scores enter as β(s − α).

    Factors bring the α and β that their scores were normalised by; without them raw scores are regressed.
    """
    space = m.space if m.space is not None else m.encoder
    if space is None:
        raise InputError("axn searches in a space of item vectors and has none: pass vectors= or space=")
    if mix and space is not m.encoder and m.encoder is not None:
        raise InputError(
            f"λ = {mix} mixes in the encoder's query vector, which does not live in the space that is searched "
            f"({type(space).__name__}): use mix=0, or search the encoder's vectors"
        )
    if not 0 <= mix <= 1:
        raise InputError(f"λ (mix) is a share of the encoder's query vector, 0 … 1; got {mix}")
    usual = space.normalisation if isinstance(space, Factors) else Normalisation()
    alpha = usual.alpha if alpha is None else alpha
    beta = usual.beta if beta is None else beta
    if not np.isfinite(alpha):
        raise InputError(f"α of the score normalisation must be a real number; got {alpha}")
    if not beta > 0:
        raise InputError(f"β of the score normalisation must be above 0, or the ranking turns round; got {beta}")
    return Plan(
        m.n,
        first_stage(m, first),
        Schedule(rounds, first_share),
        space,
        Regression(rcond=rcond, mix=mix),
        as_selection(select, epsilon),
        Offset(alpha, beta),
    )


def tour(
    m: Materials,
    *,
    rounds: int = 5,
    loss: Literal["kl", "mse"] = "kl",
    rate: float | None = None,
    alpha: float = 0.0,
    beta: float = 1.0,
) -> Plan:
    """TOUR (Sung et al. 2023), as AXN's appendix runs it: a gradient step on the query vector per round."""
    if m.encoder is None:
        raise InputError("tour moves the encoder's query vector and has no encoder vectors: pass vectors=")
    first = Dense(m.encoder, otherwise=None)
    return Plan(m.n, first, Schedule(rounds), m.encoder, GradientStep(loss, rate), offset=Offset(alpha, beta))


def fixed_item(m: Materials, *, split: float = 0.5) -> Plan:
    """FIXEDITEM (ANNCUR §4.3): query and items are their scores with the same anchor items."""
    space = _items(m, "fixed-item")
    _check_split(split)
    return Plan(m.n, Fixed(space.anchors), Schedule(2, first=split), space, OwnScores(space.anchors))


def item_cur(m: Materials, *, split: float = 0.5, rcond: float | None = None) -> Plan:
    """ITEMCUR (ANNCUR §4.3): CUR of item–item scores; the query is scored with a different set of items."""
    space = _items(m, "item-cur")
    order = _shuffled(m)
    return _anncur(m, space, order[~np.isin(order, space.anchors)], split, "fixed", rcond)


def first_stage(m: Materials, first: FirstName) -> FirstStage:
    """A first stage by name: `dense` needs query vectors, `auto` uses them where there are any."""
    if not isinstance(first, str):
        return first
    if first not in ("auto", "dense", "random"):
        raise InputError(f"unknown first stage {first!r}: choose auto, dense or random, or pass a FirstStage")
    if first == "dense" and m.encoder is None:
        raise InputError("first='dense' ranks by the query vector and there are no item vectors: pass vectors=")
    if first == "random" or m.encoder is None:
        return Drawn()
    return Dense(m.encoder, otherwise=None if first == "dense" else Drawn())


def _check_split(split: float) -> None:
    if not 0 < split < 1:
        raise InputError(f"split is the share of the budget spent on anchor items, between 0 and 1; got {split}")


def _shuffled(m: Materials) -> Positions:
    return np.random.default_rng(m.seed).permutation(m.n)


def _cur(m: Materials, method: str) -> CUR:
    if not isinstance(m.space, CUR):
        raise InputError(
            f"{method} searches in the scores of anchor queries and has none: pass space=CUR(anchor_scores)"
        )
    return m.space


def _items(m: Materials, method: str) -> ItemScores:
    if not isinstance(m.space, ItemScores):
        raise InputError(f"{method} searches in item–item scores and has none: pass space=ItemScores(scores, anchors)")
    return m.space


def recipes() -> dict[str, Callable[..., Plan]]:
    """Every method by name."""
    from crosscut.search.blend import crosscut

    return {
        "exact": exact,
        "rnr": rnr,
        "anncur": anncur,
        "adacur": adacur,
        "axn": axn,
        "tour": tour,
        "fixed-item": fixed_item,
        "item-cur": item_cur,
        "crosscut": crosscut,
    }


def plan_for(method: str, materials: Materials, settings: dict[str, Any]) -> Plan:
    """The plan of a named method with these settings."""
    known = recipes()
    if method not in known:
        raise InputError(f"unknown method {method!r}: choose one of {', '.join(known)}")
    recipe = known[method]
    accepted = [name for name in inspect.signature(recipe).parameters if name != "m"]
    own = settings
    if "rounds" in accepted:  # whatever searches in rounds may do so within a shortlist
        accepted.append("shortlist")
        own = {name: value for name, value in settings.items() if name != "shortlist"}
    unknown = [name for name in settings if name not in accepted]
    if unknown:
        raise InputError(
            f"{method} has no setting {', '.join(map(repr, unknown))}: it takes {', '.join(accepted) or 'none'}"
        )
    return replace(recipe(materials, **own), shortlist=settings.get("shortlist"))
