from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.worlds import Planted, planted

# a busy machine is no failure: what is wrong is found by values, never by time
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a shell; tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def at_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing is kept in the user's folders, and no library reports home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CROSSCUT_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
        yield


@pytest.fixture(autouse=True)
def no_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    """The default scorer is the base scores alone, also where crosscut-judge is installed."""
    monkeypatch.setattr("crosscut.models.likelihood.judge_folder", lambda: None)


@pytest.fixture(autouse=True)
def logs_of_before() -> Iterator[None]:
    """Where a test sends logs, to a stream that is closed with it, later ones do not."""
    loggers = [logging.getLogger(name) for name in ("crosscut", "uvicorn.error", "asyncio")]
    before = [(one.handlers, one.level, one.propagate) for one in loggers]
    yield
    for one, (handlers, level, propagate) in zip(loggers, before, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.fixture
def world() -> Planted:
    return planted()


@pytest.fixture(scope="module")
def unsynced() -> Iterator[None]:
    """Files are not forced to the disk: a machine that dies during the tests needs no survivors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        patch.setattr("crosscut.database.SYNCHRONOUS", "OFF")
        yield


TIERS = ("services", "browser", "slow", "docs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the folders `services`, `browser`, `slow` and `docs` by the name of their folder."""
    for item in items:
        folder = item.path.parent.name
        if folder in TIERS:
            item.add_marker(folder)


skipped: list[str] = []


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:
        skipped.append(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        skipped.append(report.nodeid)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A test that is skipped is a test that was not run: with CI=true that is a failure."""
    if os.environ.get("CI") == "true" and skipped and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if os.environ.get("CI") == "true" and skipped:
        terminalreporter.write_line(f"skipped, and nothing may be with CI=true: {', '.join(skipped)}", red=True)
