"""The web page in a real browser."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python")

from axe_playwright_python.sync_playwright import Axe
from playwright import sync_api as playwright

import crosscut
from crosscut.server import Settings, make_app
from tests.real_stores import corpus, edge, lance
from tests.served import running, score_words, small_index

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")]
QUERY = "stone road bird"
EVALUATION = [
    {"method": method, "measure": measure, "value": value, "low": value - 0.05, "high": value + 0.02}
    | {"calls": float(budget), "queries": 40}
    for measure in ("recall of top 10", "nDCG@10")
    for method, start in (("rerank", 0.5), ("crosscut", 0.7))
    for budget, value in ((50, start), (200, start + 0.2))
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    evaluation = tmp_path_factory.mktemp("evaluation") / "out.json"
    evaluation.write_text(json.dumps(EVALUATION))
    with running(
        make_app(small_index(), Settings(max_budget=300, example=("salt rain",), evaluation=evaluation))
    ) as url:
        yield url


class Page:
    """A page, the errors that it raised, and the searches that it sent."""

    def __init__(self, browser: Any, url: str) -> None:
        self.page = browser.new_page()
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.searches: list[dict[str, Any]] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._count)
        self.url = url
        self.page.goto(url)
        self.page.wait_for_selector("#facts:not(:empty)")

    def _count(self, request: Any) -> None:
        if not request.url.startswith((self.url, "data:")):
            self.errors.append(f"the page loads {request.url}")
        if request.url.endswith("/search"):
            self.searches.append(request.post_data_json)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.page, name)

    def search(self, query: str = QUERY) -> Any:
        """Search and return the answer that the page was given."""
        self.fill("#query", query)
        with self.expect_response("**/search") as caught:
            self.press("#query", "Enter")
        self.wait_for_selector("#hits .hit")
        self.wait_for_selector("body:not(.busy)")
        return caught.value.json()

    def answer_to(self, selector: str, value: str) -> Any:
        """Fill in a field, leave it, and return the answer that the page was given."""
        with self.expect_response("**/search") as caught:
            self.fill(selector, value)
            self.press(selector, "Tab")
        self.wait_for_selector("body:not(.busy)")
        return caught.value.json()

    def __enter__(self) -> Page:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.page.close()
        if kind is None:
            assert self.errors == []


@pytest.fixture
def page(browser: Any, address: str) -> Iterator[Page]:
    with Page(browser, address) as opened:
        yield opened


def test_a_search_shows_hits_rounds_and_cost(page: Page) -> None:
    answer = page.search()
    rows = page.locator("#hits .hit")
    assert rows.count() == 10
    for place in (0, 9):
        hit, row = answer["hits"][place], rows.nth(place)
        assert row.locator(".title").inner_text() == hit["title"]
        assert row.locator(".score").inner_text() == f"{hit['score']:.2f}"
        assert row.locator(".when").inner_text() == f"round {hit['round']}"
    assert page.locator("#hits mark").count() > 0
    assert page.locator("#cost dd").first.inner_text() == str(answer["calls"])
    assert page.locator("#rounds .item").count() == answer["calls"]
    assert page.locator("#rounds .hit-dot").count() == 10
    assert page.locator("#table tbody tr").count() == answer["rounds"]


@pytest.mark.parametrize("kind", [lance, edge])
def test_searches_over_a_real_store(browser: Any, tmp_path: Path, kind: Any) -> None:
    index = crosscut.Index.over(
        kind(corpus(n=200, d=12), tmp_path / "store"),
        scorer=lambda query, texts: [float(text.split()[-1]) for text in texts],
        encoder=lambda texts: np.ones((len(texts), 12), np.float32),
    )
    with running(make_app(index)) as url, Page(browser, url) as page:
        answer = page.search("anything")
        assert page.locator("#hits .hit").count() == 10
        assert page.locator("#rounds .item").count() == answer["calls"] == 100
        page.check("#compare")
        page.wait_for_selector("#other-hits .hit")
        assert page.locator("#status").inner_text() == ""
        assert len(page.searches) == 2


def test_one_gesture_sends_one_search(page: Page) -> None:
    page.search("red cat")
    assert [search["compare"] for search in page.searches] == [False]  # it costs as much again, and says so
    assert "up to" in page.locator("#compare-price").inner_text()
    for field, value in (("#filter", "number<100"), ("#method", "hybrid"), ("#filter", "number<50")):
        page.searches.clear()
        page.fill(field, value)
        if value == "number<50":
            page.click("#go")
        else:
            page.press(field, "Enter")
        page.wait_for_timeout(700)
        assert len(page.searches) == 1, field


def test_a_newer_search_aborts_the_older_one(browser: Any) -> None:
    calls: list[str] = []

    def slow(query: str, texts: Any) -> list[float]:
        calls.extend([query] * len(texts))
        time.sleep(0.05 * len(texts) if query == "first" else 0)
        return score_words(query, texts)

    with running(make_app(small_index(slow, n=200))) as url, Page(browser, url) as page:
        page.fill("#query", "first")
        page.press("#query", "Enter")
        page.wait_for_timeout(300)
        page.search("second")
        assert len(page.searches) == 2
    assert 0 < calls.count("first") < 100
    assert calls.count("second") == 100


def test_moving_the_budget_changes_the_calls(page: Page) -> None:
    before = page.search()["calls"]
    page.focus("#budget")
    with page.expect_response("**/search") as caught:
        for _ in range(4):
            page.keyboard.press("PageDown")
    page.wait_for_selector("body:not(.busy)")
    assert caught.value.json()["calls"] == int(page.locator("#budget-value").inner_text()) < before


def test_the_comparison_shows_what_reranking_missed(page: Page) -> None:
    page.check("#compare")
    missed = page.search()["comparison"]["missed"]
    assert missed, "the planted items should have something that reranking misses"
    assert page.locator("#other-hits .hit:not(.lost)").count() == 10
    assert page.locator("#hits .hit.found").count() == len(missed)
    assert page.locator("#other-hits .hit.lost").count() == len(missed)
    with page.expect_response("**/search"):
        page.uncheck("#compare")
    page.wait_for_selector("#other", state="hidden")


def test_methods_and_examples(page: Page) -> None:
    page.click("#examples button")
    page.wait_for_selector("#hits .hit")
    answer = page.answer_to("#method", "crosscut@rounds=4")
    assert (answer["method"], answer["rounds"]) == ("crosscut@rounds=4", 4)
    page.answer_to("#method", "magic")
    page.wait_for_selector("#status.error")
    assert "unknown method" in page.locator("#status").inner_text()
    assert page.locator("#result").is_hidden()


def test_a_link_fills_in_and_spends_nothing(page: Page, address: str) -> None:
    page.goto("about:blank")
    page.goto(f"{address}/#q=red+cat&b=50&k=3")
    page.wait_for_function("document.getElementById('status').textContent.includes('Enter')")
    page.wait_for_timeout(500)
    assert page.input_value("#query") == "red cat"
    assert page.searches == []
    with page.expect_response("**/search"):
        page.press("#query", "Enter")
    page.wait_for_selector("#hits .hit")
    assert page.locator("#hits .hit").count() == 3
    with page.expect_response("**/search"):  # what was searched for in this tab is searched for again
        page.reload()


def test_a_hit_opens_to_its_text_and_filters_by_its_metadata(browser: Any) -> None:
    tail = "<img src=x onerror=alert(1)> and the very last word is zebra"
    items = [
        {"id": f"doc-{j}", "title": "" if j % 2 else f"title {j}", "text": f"red fish {j} " + "salt " * 200 + tail}
        | {"language": "en", "year": 2000 + j, "tags": ["a, b", "c"]}
        for j in range(12)
    ]
    index = crosscut.Index.build(items, scorer=score_words, encoder=None, method="hybrid")
    with running(make_app(index)) as url, Page(browser, url) as page:
        page.on("dialog", lambda dialog: pytest.fail("a text was run"))
        answer = page.search("red fish")
        for place in (0, 1):
            row, hit = page.locator("#hits .hit").nth(place), answer["hits"][place]
            assert tail not in row.inner_text()
            row.locator(".open").focus()
            page.keyboard.press("Enter")
            assert row.locator(".open").get_attribute("aria-expanded") == "true"
            assert row.locator(".whole").inner_text().strip() == hit["text"]
            assert hit["id"] in row.locator(".metadata").inner_text()
        assert page.locator("#hits img").count() == 0
        year = answer["hits"][0]["metadata"]["year"]
        with page.expect_response("**/search") as caught:
            page.locator("#hits .metadata").first.get_by_text(str(year), exact=True).click()
        assert page.input_value("#filter") == f"year={year}"
        assert [hit["id"] for hit in caught.value.json()["hits"]] == [answer["hits"][0]["id"]]
        found = page.answer_to("#filter", 'year>=2003, year<2006, tags="a, b"')["hits"]
        assert sorted(hit["metadata"]["year"] for hit in found) == [2003, 2004, 2005]


def test_a_failure_shows_what_was_found_before_it(browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CROSSCUT_TOKEN", "open-sesame")
    seen: list[str] = []

    def fails_later(query: str, texts: Sequence[str]) -> list[float]:
        seen.append(query)
        if "wrong" in query and seen.count(query) > 2:
            raise OSError("the line is down")
        return score_words(query, texts)

    with running(make_app(small_index(fails_later))) as url:
        raw = browser.new_page()
        raw.goto(url)
        raw.wait_for_selector("#gate[open]")
        raw.fill("#token", "open-sesame")
        raw.press("#token", "Enter")
        raw.wait_for_selector("#facts:not(:empty)")
        raw.fill("#query", QUERY)
        raw.press("#query", "Enter")
        raw.wait_for_selector("#hits .hit")
        raw.fill("#query", "wrong stone")
        raw.press("#query", "Enter")
        raw.wait_for_selector("#status.error")
        assert raw.locator("#result").is_hidden()
        assert raw.locator("#partial-hits .hit").count() > 0
        assert "calls were made" in raw.locator("#status").inner_text()
        raw.fill("#filter", "year")
        raw.press("#filter", "Enter")
        playwright.expect(raw.locator("#status")).to_contain_text("A filter is key=value")
        assert raw.locator("#partial").is_hidden()
        raw.close()


def test_a_tuned_index_offers_a_target_recall(browser: Any, page: Page) -> None:
    assert page.locator("#target").is_hidden()
    index = small_index()
    index.tune(k=5, budget=60)
    with running(make_app(index)) as url, Page(browser, url) as tuned:
        tuned.search()
        with tuned.expect_response("**/search") as caught:
            tuned.select_option("#target", "0.8")
        assert caught.value.request.post_data_json["target_recall"] == 0.8
        assert len(caught.value.json()["hits"]) == 5, "the k it is calibrated for"


def test_curves_are_drawn_where_something_was_measured(page: Page) -> None:
    assert page.locator("#charts figure").count() == 2
    assert "crosscut 0.90 at 200 calls" in page.locator("#charts svg").first.get_attribute("aria-label")
    assert page.locator("#curve-table tbody tr").count() == len(EVALUATION)
    assert page.locator("#charts .budget").first.get_attribute("visibility") == "visible"


def test_one_of_several_indexes_is_chosen(browser: Any, page: Page) -> None:
    assert page.locator("#which").is_hidden()  # there is one
    app = make_app({"all": small_index(n=60), "few": small_index(n=20)})
    with running(app) as url, Page(browser, url) as several:
        several.search()
        with several.expect_response("**/search") as caught:
            several.select_option("#index", "few")
        assert caught.value.request.post_data_json["index"] == "few"
        several.wait_for_selector("body:not(.busy)")
        assert several.locator("#facts").inner_text() == "20 items"
        assert several.locator("#curves").is_hidden()
        several.answer_to("#filter", "number=1900")
        several.wait_for_selector("#status:text-is('No item passes the filter.')")
        several.reload()
        several.wait_for_selector("#facts:text-is('20 items')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_is_accessible(browser: Any, address: str, scheme: str, width: int) -> None:
    """axe-core, the rules of WCAG 2.2 AA and its good practices, in every state of the page."""
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme, "reduced_motion": "reduce"}
    context = browser.new_context(**options)
    with Page(context, address) as page:
        check(page, "at first")
        page.search()
        page.locator("#hits .open").first.click()
        for summary in page.locator("summary").all():
            summary.click()
        check(page, "with hits")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.answer_to("#method", "magic")
        check(page, "with an error")
        page.evaluate("document.querySelector('#gate').showModal()")
        check(page, "with the question for a token")
        page.evaluate("document.querySelector('#gate').close()")
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") != scheme
    context.close()


def check(page: Page, state: str) -> None:
    violations = Axe().run(page.page).response["violations"]
    found = [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in violations]
    assert not found, f"{state}: {found}"


def test_the_keyboard_reaches_everything(page: Page) -> None:
    page.search()
    reached: list[str] = ["query"]
    for _ in range(40):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.id || document.activeElement.className")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline != "none" or name == "", f"{name} does not show that it has the focus"
        reached.append(name)
    places = [reached.index(name) for name in ("query", "go", "k", "budget", "method", "filter", "compare", "open")]
    assert places == sorted(places), "in the order in which they are read"
