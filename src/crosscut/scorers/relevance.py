"""Scores as relevance, 0 … 1: the one place that decides what clients see whose thresholds know nothing of logits.

With a calibration it is its probability (`index.calibrate`). Without one, the scorer in the box has its own
(`box_calibration`): of twenty texts or more each is compared with the ten best, of fewer each counts by itself, since
the best of a few need not look like the best of a search. A scorer that knows what its scores mean has a method
`relevance(scores)`: services that answer with 0 … 1, and judges that rate 0 … 9. All others are taken for logits,
whose sigmoid it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import expit

from crosscut.scorers.calibration import LISTED, Calibration, box_calibration
from crosscut.types import Floats


def relevance(scorer: Any, scores: Floats, calibration: Calibration | None = None) -> Floats:
    """Relevance of every score of one query; it keeps their order."""
    if calibration is not None:
        return calibration.probabilities(scores, scores)
    boxed = box_calibration(scorer)
    if boxed is not None:
        return boxed.probabilities(scores, scores if len(scores) >= LISTED else None)
    own = getattr(scorer, "relevance", None)
    return np.clip(own(scores), 0.0, 1.0) if callable(own) else np.asarray(expit(scores))
