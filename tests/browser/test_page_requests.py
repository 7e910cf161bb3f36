"""How many searches the page sends, and that it works over a vector store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright.sync_api")

from playwright import sync_api as api

import crosscut
from crosscut.server import Settings, make_app
from tests.real_stores import corpus, edge, lance
from tests.served import running, score_words, small_index

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def opened(browser: Any, url: str) -> tuple[Any, list[str], list[dict[str, Any]]]:
    """A page, the errors it raised, and the searches it sent."""
    page, errors, searches = browser.new_page(), [], []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda one: searches.append(one.post_data_json) if one.url.endswith("/search") else None)
    page.goto(url)
    page.wait_for_selector("#facts:not(:empty)")
    return page, errors, searches


@pytest.mark.parametrize("kind", [lance, edge])
def test_the_page_searches_a_real_store(browser: Any, tmp_path: Path, kind: Any) -> None:
    store = kind(corpus(n=200, d=12), tmp_path / "store")
    index = crosscut.Index.over(
        store,
        scorer=lambda query, texts: [float(text.split()[-1]) for text in texts],
        encoder=lambda texts: np.ones((len(texts), 12), np.float32),
    )
    with running(make_app(index, Settings())) as url:
        page, errors, searches = opened(browser, url)
        page.fill("#query", "anything")
        page.press("#query", "Enter")
        page.wait_for_selector("#hits .hit")
        page.check("#compare")
        page.wait_for_selector("#other-hits .hit")
        assert page.locator("#hits .hit").count() == 10
        assert page.locator("#status").inner_text() == ""
        assert (errors, len(searches)) == ([], 2)
        page.close()


def test_one_gesture_sends_one_search(browser: Any) -> None:
    with running(make_app(small_index(n=200), Settings(max_budget=300))) as url:
        page, errors, searches = opened(browser, url)
        page.fill("#query", "red cat")
        page.press("#query", "Enter")
        page.wait_for_selector("#hits .hit")
        assert [search["compare"] for search in searches] == [False]
        for field, value in (("#filter", "number<100"), ("#method", "hybrid")):
            searches.clear()
            page.fill(field, value)
            page.press(field, "Enter")
            page.wait_for_timeout(700)
            assert len(searches) == 1, field
        searches.clear()
        page.fill("#filter", "number<50")
        page.click("#go")
        page.wait_for_timeout(700)
        assert len(searches) == 1
        assert "up to" in page.locator("#compare-price").inner_text()
        assert errors == []
        page.close()


def test_a_newer_search_aborts_the_older_one(browser: Any) -> None:
    calls: list[str] = []

    def slow(query: str, texts: Any) -> list[float]:
        calls.extend([query] * len(texts))
        time.sleep(0.05 * len(texts) if query == "first" else 0)
        return score_words(query, texts)

    with running(make_app(small_index(slow, n=200), Settings())) as url:
        page, errors, searches = opened(browser, url)
        page.fill("#query", "first")
        page.press("#query", "Enter")
        page.wait_for_timeout(300)
        page.fill("#query", "second")
        page.press("#query", "Enter")
        page.wait_for_selector("#hits .hit")
        assert page.locator("#own-note").inner_text()
        assert len(searches) == 2
        assert 0 < calls.count("first") < 100
        assert calls.count("second") == 100
        assert errors == []
        page.close()
