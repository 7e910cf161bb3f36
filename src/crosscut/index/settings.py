"""Settings of an index: how it was built and how it searches, as in its manifest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from crosscut.index.passages import Passages
from crosscut.methods import Crosscut, Method, parse
from crosscut.scorers.calibration import Calibration
from crosscut.search.ranking import ByScorer, Order, parse_order
from crosscut.search.recall import RecallModel
from crosscut.search.stopping import Stop, parse_stop

DEFAULT_METHOD = Crosscut()
BY_SCORER = ByScorer()


@dataclass(frozen=True)
class ModelName:
    """A reference to a model: its name, if it was given by name, and its fingerprint."""

    name: str | None
    fingerprint: str


@dataclass(frozen=True)
class Settings:
    """Everything about an index but its items, its models and its log."""

    scorer: ModelName | None = None
    encoder: ModelName | None = None
    anchor_queries: tuple[str, ...] = ()
    method: Method = DEFAULT_METHOD
    stop: Stop | None = None
    order: Order = BY_SCORER
    budget: int | None = None
    """Calls of a search that names none; None: 100."""
    tuned: Mapping[str, Any] | None = None
    """The report of the last `tune`."""
    calibration: Calibration | None = None
    passages: Passages | None = None
    build_calls: int = 0
    seed: int = 0

    @property
    def recall_model(self) -> RecallModel | None:
        """The model of recall behind `target_recall`, if the index was tuned for it."""
        model = (self.tuned or {}).get("model")
        return None if model is None else RecallModel.from_json(model)

    def json(self) -> dict[str, Any]:
        return {
            "scorer": None if self.scorer is None else asdict(self.scorer),
            "encoder": None if self.encoder is None else asdict(self.encoder),
            "anchor_queries": list(self.anchor_queries),
            "method": str(self.method),
            "stop": None if self.stop is None else str(self.stop),
            "order": str(self.order),
            "budget": self.budget,
            "tuned": self.tuned,
            "calibration": None if self.calibration is None else self.calibration.json(),
            "passages": None if self.passages is None else asdict(self.passages),
            "build_calls": self.build_calls,
            "seed": self.seed,
        }

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Settings:
        def optional(name: str, read: Any) -> Any:
            return None if facts[name] is None else read(facts[name])

        return cls(
            scorer=optional("scorer", lambda fields: ModelName(**fields)),
            encoder=optional("encoder", lambda fields: ModelName(**fields)),
            anchor_queries=tuple(map(str, facts["anchor_queries"])),
            method=parse(facts["method"]),
            stop=optional("stop", parse_stop),
            order=parse_order(facts["order"]),
            budget=optional("budget", int),
            tuned=optional("tuned", dict),
            calibration=optional("calibration", Calibration.from_json),
            passages=optional("passages", lambda fields: Passages(**fields)),
            build_calls=int(facts["build_calls"]),
            seed=abs(int(facts["seed"])),
        )
