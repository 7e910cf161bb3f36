"""The web page in a real browser."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("prometheus_client")
pytest.importorskip("playwright.sync_api")
pytest.importorskip("axe_playwright_python")

from axe_playwright_python.sync_playwright import Axe
from playwright import sync_api as api

import crosscut
from crosscut.server import Settings, make_app
from crosscut.server.settings import read_evaluation
from tests.served import running, score_words, small_index

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")]
QUERY = "stone road bird"
EVALUATION = tuple(
    {"method": method, "budget": budget, "measure": measure, "value": value, "low": value - 0.05, "high": value + 0.02}
    | {"calls": float(budget), "queries": 40}
    for measure in ("recall of top 10", "nDCG@10")
    for method, start in (("rerank", 0.5), ("crosscut", 0.7))
    for budget, value in ((50, start), (200, start + 0.2))
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    settings = Settings(max_budget=300, examples=("salt rain",), evaluation=EVALUATION)
    with running(make_app(small_index(), settings)) as url:
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
    page.check("#compare")
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
    page.check("#compare")
    with page.expect_response("**/search") as caught:
        page.fill("#method", "crosscut@rounds=4")
        page.press("#method", "Tab")
    assert (caught.value.json()["method"], caught.value.json()["rounds"]) == ("crosscut@rounds=4", 4)
    page.wait_for_selector("#other")
    page.fill("#method", "magic")
    page.press("#method", "Tab")
    page.wait_for_selector("#status.error")
    assert "unknown method" in page.locator("#status").inner_text()


def test_a_link_fills_in_and_spends_nothing(page: Any, address: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if request.method == "POST" else None)
    page.goto("about:blank")
    page.goto(f"{address}/#q=red+cat&b=50&k=3")
    page.wait_for_function("document.getElementById('status').textContent.includes('Enter')")
    page.wait_for_timeout(500)
    assert page.input_value("#query") == "red cat"
    assert asked == []
    assert page.locator("#hits .hit").count() == 0
    with page.expect_response("**/search"):
        page.press("#query", "Enter")
    page.wait_for_selector("#hits .hit")
    assert page.locator("#hits .hit").count() == 3
    with page.expect_response("**/search"):  # what was searched for here is searched for again
        page.reload()
    page.goto("about:blank")
    with page.expect_response("**/search"):
        page.go_back()
    before = len(asked)
    page.goto("about:blank")
    page.goto(f"{address}/#q=another")
    page.wait_for_function("document.getElementById('status').textContent.includes('Enter')")
    page.wait_for_timeout(500)
    assert len(asked) == before


def test_texts_are_shown_and_never_run(browser: Any) -> None:
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


def test_a_hit_opens_to_its_whole_text(browser: Any) -> None:
    tail = "and the very last word is zebra"
    items = [
        {"id": f"doc-{j}", "title": "" if j % 2 else f"title {j}", "text": f"red fish {j} " + "salt " * 200 + tail}
        | {"language": "en", "year": 2000 + j, "tags": ["a, b", "c"]}
        for j in range(12)
    ]
    index = crosscut.Index.build(items, scorer=score_words, encoder=None, method="hybrid")
    with running(make_app(index)) as url:
        made = opened(browser, url)
        answer = ask(made, "red fish")
        for place in (0, 1):
            row, hit = made.locator("#hits .hit").nth(place), answer["hits"][place]
            assert tail not in row.inner_text()
            row.locator(".open").focus()
            made.keyboard.press("Enter")
            assert row.locator(".open").get_attribute("aria-expanded") == "true"
            assert row.locator(".whole").inner_text().strip() == hit["text"]
            facts = row.locator(".metadata").inner_text()
            assert hit["id"] in facts
            assert str(hit["metadata"]["year"]) in facts
        year = answer["hits"][0]["metadata"]["year"]
        with made.expect_response("**/search") as caught:
            made.locator("#hits .metadata").first.get_by_text(str(year), exact=True).click()
        assert made.input_value("#filter") == f"year={year}"
        assert [hit["id"] for hit in caught.value.json()["hits"]] == [answer["hits"][0]["id"]]
        with made.expect_response("**/search") as caught:
            made.fill("#filter", 'year>=2003, year<2006, tags="a, b"')
            made.press("#filter", "Tab")
        assert sorted(hit["metadata"]["year"] for hit in caught.value.json()["hits"]) == [2003, 2004, 2005]
        made.close()


def test_nothing_stale_stands_under_a_new_query(browser: Any) -> None:
    seen: list[str] = []

    def fails_later(query: str, texts: Sequence[str]) -> list[float]:
        seen.append(query)
        if "wrong" in query and seen.count(query) > 2:
            raise OSError("the line is down")
        return score_words(query, texts)

    with running(make_app(small_index(fails_later), Settings())) as url:
        made = opened(browser, url)
        made.uncheck("#compare")
        ask(made)
        made.fill("#query", "wrong stone")
        made.press("#query", "Enter")
        made.wait_for_selector("#status.error")
        assert made.locator("#result").is_hidden()
        assert made.locator("#partial-hits .hit").count() > 0, "what was found and paid for is shown"
        assert "calls were made" in made.locator("#status").inner_text()
        made.fill("#filter", "year")
        made.press("#filter", "Enter")
        api.expect(made.locator("#status")).to_contain_text("A filter is key=value")
        assert made.locator("#partial").is_hidden()
        made.fill("#query", QUERY)  # now: a filter that was changed searches by itself when it is left
        made.fill("#filter", "")
        ask(made)
        assert made.locator("#partial").is_hidden()
        assert made.locator("#status").inner_text() == ""
        made.close()


def test_whole_words_are_marked(browser: Any) -> None:
    texts = ["Canada can pay; a can, cans and toucan", "nothing at all"]
    index = crosscut.Index.build(texts, scorer=score_words, encoder=None, method="hybrid")
    with running(make_app(index)) as url:
        made = opened(browser, url)
        ask(made, "can (pay")
        assert made.locator("#hits .hit").first.locator("mark").all_inner_texts() == ["can", "pay", "can"]
        made.close()


def test_a_tuned_index_offers_a_target_recall(browser: Any, page: Any) -> None:
    assert page.locator("#target").is_hidden()
    index = small_index()
    index.tune(k=5, budget=60)
    assert index.recall_model is not None
    with running(make_app(index, Settings())) as url:
        made = opened(browser, url)
        made.uncheck("#compare")
        ask(made)
        with made.expect_response("**/search") as caught:
            made.select_option("#target", "0.8")
        assert caught.value.request.post_data_json["target_recall"] == 0.8
        assert len(caught.value.json()["hits"]) == 5, "the k it is calibrated for"
        made.close()


def test_curves_are_drawn_where_something_was_measured(browser: Any, page: Any) -> None:
    assert page.locator("#charts figure").count() == 2
    assert "crosscut 0.90 at 200 calls" in page.locator("#charts svg").first.get_attribute("aria-label")
    assert page.locator("#curve-table tbody tr").count() == len(EVALUATION)
    assert page.locator("#charts .budget").first.get_attribute("visibility") == "visible"
    with running(make_app(small_index(n=40), Settings())) as url:
        made = opened(browser, url)
        assert made.locator("#curves").is_hidden()
        made.close()


def test_one_of_several_indexes_is_chosen(browser: Any, page: Any) -> None:
    assert page.locator("#which").is_hidden()  # there is one
    with running(make_app({"all": small_index(n=60), "few": small_index(n=20)}, Settings())) as url:
        made = opened(browser, url)
        assert made.locator("#index option").all_inner_texts() == ["all", "few"]
        assert ask(made)["hits"]
        with made.expect_response("**/search") as caught:
            made.select_option("#index", "few")
        assert caught.value.request.post_data_json["index"] == "few"
        made.wait_for_selector("body:not(.busy)")
        assert made.locator("#facts").inner_text() == "20 items"
        assert "i=few" in made.url
        made.fill("#filter", "number=1900")
        made.press("#filter", "Tab")
        made.wait_for_selector("#status:text-is('No item passes the filter.')")
        assert made.locator("#result").is_hidden()
        made.fill("#filter", "")
        made.press("#filter", "Tab")
        made.wait_for_selector("#hits .hit")
        check(made, "with several indexes")
        made.reload()
        made.wait_for_selector("#hits .hit")
        assert made.locator("#index").input_value() == "few"
        made.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_can_be_read_by_everyone(browser: Any, address: str, scheme: str, width: int) -> None:
    """axe-core, the rules of WCAG 2.2 AA and its good practices, in every state of the page."""
    context = browser.new_context(
        viewport={"width": width, "height": 800}, color_scheme=scheme, reduced_motion="reduce"
    )
    made = opened(context, address)
    check(made, "at first")
    ask(made)
    made.locator("#hits .open").first.click()
    for summary in made.locator("summary").all():
        summary.click()
    check(made, "with hits")
    made.fill("#method", "magic")
    made.press("#method", "Tab")
    made.wait_for_selector("#status.error")
    check(made, "with an error")
    made.evaluate("document.querySelector('#gate').showModal()")
    check(made, "asking for a token")
    context.close()


def test_the_keyboard_reaches_everything(page: Any) -> None:
    ask(page)
    reached: list[str] = ["query"]
    for _ in range(60):
        page.keyboard.press("Tab")
        name = page.evaluate("document.activeElement.id || document.activeElement.className")
        outlined = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outlined != "none" or name == "", f"{name} does not show that it has the focus"
        reached.append(name)
    wanted = ["query", "go", "k", "budget", "method", "filter", "compare", "open", "play", "round"]
    places = [reached.index(name) for name in wanted]
    assert places == sorted(places), "in the order in which they are read"


def test_an_evaluation_is_read_from_a_file_or_refused(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text(json.dumps(EVALUATION))
    assert read_evaluation(path) == EVALUATION
    for wrong in ("[{}]", "no JSON", '{"a": 1}'):
        path.write_text(wrong)
        with pytest.raises(crosscut.InputError, match="is not what `crosscut evaluate"):
            read_evaluation(path)
    with pytest.raises(crosscut.InputError, match="cannot be read"):
        read_evaluation(tmp_path / "none.json")


def opened(browser: Any, url: str) -> Any:
    made = browser.new_page()
    made.set_default_timeout(60_000)
    made.goto(url)
    made.wait_for_selector("#facts:not(:empty)")
    return made


def check(page: Any, when: str) -> None:
    found = Axe().run(page).response["violations"]
    told = [
        (each["id"], [node["target"] for node in each["nodes"]][:3], each["nodes"][0]["failureSummary"])
        for each in found
    ]
    assert not told, f"{when}: {told}"
