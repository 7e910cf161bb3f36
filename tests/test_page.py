"""The web page in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("playwright.sync_api")

from playwright import sync_api as api

from crosscut.server import Settings, make_app
from tests.served import running, small_index

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")]
QUERY = "stone road bird"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(make_app(small_index(), Settings(max_budget=300, examples=("salt rain",)))) as url:
        yield url


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = context.new_page()
    troubles: list[str] = []
    elsewhere: list[str] = []
    made.on("pageerror", lambda error: troubles.append(str(error)))
    made.on("request", lambda request: None if request.url.startswith((address, "data:")) else elsewhere.append("?"))
    made.set_default_timeout(60_000)  # a busy machine takes its time
    made.goto(address)
    made.wait_for_selector("#facts:not(:empty)")
    yield made
    context.close()
    assert (troubles, elsewhere) == ([], [])


def ask(page: Any, query: str = QUERY) -> Any:
    """Search and return the answer the page was given."""
    page.fill("#query", query)
    with page.expect_response("**/search") as caught:
        page.press("#query", "Enter")
    page.wait_for_selector("#hits .hit")
    page.wait_for_selector("body:not(.busy)")
    return caught.value.json()


def test_a_search_shows_hits_with_score_and_round(page: Any) -> None:
    answer = ask(page)
    rows = page.locator("#hits .hit")
    assert rows.count() == 10
    for place in (0, 9):
        hit, row = answer["hits"][place], rows.nth(place)
        assert row.locator(".title").inner_text() == hit["title"]
        assert row.locator(".score").inner_text() == f"{hit['score']:.2f}"
        assert row.locator(".when").inner_text() == f"round {hit['round']}"
    assert page.locator("#hits mark").count() > 0
    assert page.locator("#cost dd").first.inner_text() == str(answer["calls"])


def test_moving_the_budget_changes_the_calls(page: Any) -> None:
    before = ask(page)["calls"]
    page.focus("#budget")
    with page.expect_response("**/search") as caught:
        for _ in range(4):
            page.keyboard.press("PageDown")
    page.wait_for_selector("body:not(.busy)")
    api.expect(page.locator("#status")).to_have_text("")
    calls = int(page.locator("#cost dd").first.inner_text())
    assert caught.value.json()["calls"] < before
    assert calls == int(page.locator("#budget-value").inner_text()) < before
    page.evaluate("document.querySelector('#k').value = 4")
    with page.expect_response("**/search"):
        page.dispatch_event("#k", "input")
    api.expect(page.locator("#hits .hit")).to_have_count(4)


def test_the_comparison_shows_what_reranking_missed(page: Any) -> None:
    answer = ask(page)
    missed = answer["comparison"]["missed"]
    assert page.locator("#other").is_visible()
    assert page.locator("#other-hits .hit:not(.lost)").count() == 10
    assert missed, "the planted world should have something that reranking misses"
    assert page.locator("#hits .hit.found").count() == len(missed)
    assert page.locator("#other-hits .hit.lost").count() == len(missed)
    with page.expect_response("**/search"):
        page.uncheck("#compare")
    page.wait_for_selector("#other", state="hidden")


def test_the_picture_follows_the_rounds(page: Any) -> None:
    ask(page)
    assert page.locator("#round-value").inner_text() == "10 of 10"
    assert page.evaluate("document.querySelector('#canvas').toDataURL().length") > 5000
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("ArrowLeft")
    assert page.locator("#round-value").inner_text() == "9 of 10"
    page.keyboard.press(" ")
    api.expect(page.locator("#play")).not_to_have_text("▶")
    api.expect(page.locator("#play")).to_have_text("▶", timeout=15_000)
    assert page.locator("#round-value").inner_text() == "10 of 10"
    page.evaluate("document.querySelector('#round').value = 1")
    page.dispatch_event("#round", "input")
    assert "first stage proposed" in page.locator("#round-note").inner_text()
    assert page.locator("#table tbody tr").count() == 10


def test_methods_examples_and_shared_addresses(page: Any, address: str) -> None:
    page.click("#examples button")
    page.wait_for_selector("#hits .hit")
    with page.expect_response("**/search") as caught:
        page.fill("#method", "hybrid")
        page.press("#method", "Tab")
    assert caught.value.json()["method"] == "hybrid"
    page.wait_for_selector("#other", state="hidden")
    with page.expect_response("**/search") as caught:
        page.fill("#method", "crosscut@rounds=4")
        page.press("#method", "Tab")
    assert (caught.value.json()["method"], caught.value.json()["rounds"]) == ("crosscut@rounds=4", 4)
    page.wait_for_selector("#other")
    page.fill("#method", "magic")
    page.press("#method", "Tab")
    page.wait_for_selector("#status.error")
    assert "unknown method" in page.locator("#status").inner_text()
    page.goto("about:blank")
    page.goto(f"{address}/#q=red+cat&b=50&k=3")
    page.wait_for_selector("#hits .hit")
    assert page.locator("#hits .hit").count() == 3
    assert page.input_value("#query") == "red cat"


def test_texts_are_shown_and_never_run(browser: Any) -> None:
    import crosscut

    texts = [f"<img src=x onerror=alert({j})> text {j}" for j in range(20)]
    index = crosscut.Index.build(
        texts, scorer=lambda query, items: [len(t) for t in items], encoder=None, method="hybrid"
    )
    with running(make_app(index)) as url:
        made = browser.new_page()
        made.on("dialog", lambda dialog: pytest.fail("a text was run"))
        made.goto(url)
        made.wait_for_selector("#facts:not(:empty)")
        ask(made, "<b>text</b>")
        assert made.locator("#hits img").count() == 0
        assert "onerror" in made.locator("#hits .text").first.inner_text()
        made.close()


def test_a_phone_and_the_dark(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    made = context.new_page()
    made.goto(address)
    made.wait_for_selector("#facts:not(:empty)")
    ask(made)
    assert made.evaluate("document.documentElement.scrollWidth") <= 360
    assert made.evaluate("document.documentElement.dataset.theme") == "dark"
    made.click("#theme")
    assert made.evaluate("document.documentElement.dataset.theme") == "light"
    context.close()


def test_errors_and_the_token_are_asked_for(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_TOKEN", "open-sesame")

    def fail(query: str, texts: Any) -> list[float]:
        raise OSError("the line is down")

    index = small_index(fail)
    with running(make_app(index, Settings())) as url:
        made = browser.new_page()
        made.goto(url)
        made.wait_for_selector("#gate[open]")
        made.fill("#token", "open-sesame")
        made.press("#token", "Enter")
        made.wait_for_selector("#facts:not(:empty)")
        made.fill("#query", "red")
        made.press("#query", "Enter")
        made.wait_for_selector("#status.error")
        assert "the scorer failed" in made.locator("#status").inner_text()
        made.close()
