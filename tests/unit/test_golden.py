"""Searches on planted data give the answers, the calls and the reasons to stop that were recorded in golden.json.gz."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tests import golden

RECORDED = json.loads(gzip.decompress(Path(golden.__file__).with_suffix(".json.gz").read_bytes()))
CORE = [name for name in RECORDED if not any(word in name for word in golden.MORE)]


@pytest.fixture(scope="module")
def answers() -> dict[str, list]:
    return golden.answers(core=True)


def test_searches_give_the_recorded_answers(answers: dict[str, list]) -> None:
    assert [name for name in CORE if answers.get(name) != RECORDED[name]] == []
