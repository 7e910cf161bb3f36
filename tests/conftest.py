from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.worlds import Planted, planted


@pytest.fixture
def world() -> Planted:
    return planted()


@pytest.fixture(scope="module")
def unsynced() -> Iterator[None]:
    """Files are not forced to the disk: a machine that dies during the tests needs no survivors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield
