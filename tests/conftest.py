from __future__ import annotations

import pytest

from tests.worlds import Planted, planted


@pytest.fixture
def world() -> Planted:
    return planted()
