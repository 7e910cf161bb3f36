"""Pictures of the server's page, for README and docs: `python scripts/page_pictures.py`.

The index holds 800 meanings of the world in the box, under its bare cross-encoder, which is a black box to the search
(with the whole scorer of the box a search ends after some 17 calls, and there is little to see). It is tuned on some
train queries, and recall and relevance are measured on ten others, so that every control of the page is there.
Needs Chromium.

    docs/images/page.png          wide, light, a hit opened, to the picture of the rounds
    docs/images/page-dark.png     wide, dark, what is seen first
    docs/images/page-phone.png    narrow, light
    docs/images/page-curves.png   recall and relevance against calls
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.served import running

import crosscut
from crosscut.cli.evaluate import SHOWN
from crosscut.datasets.bundled import load_world
from crosscut.datasets.records import Item
from crosscut.evaluation.advice import records_of
from crosscut.evaluation.judged import points, truth_of, unscored
from crosscut.methods import parse_all
from crosscut.scorers.onnx import OnnxCrossEncoder
from crosscut.server import Settings, make_app

IMAGES = Path(__file__).parent.parent / "docs" / "images"
ITEMS, QUERIES = 800, 10
TRAIN = 40  # as many as `target_recall` needs
QUERY = "after some [START] thought [END] he changed his mind"


def index_of_the_box(store: Path) -> tuple[crosscut.Index, dict[str, str], dict[str, dict[str, float]]]:
    """The index, tuned, and ten queries with their judgements."""
    world = load_world()
    judged = world.judgements
    asked = [query for query in world.queries if query.id in judged][: QUERIES + TRAIN]
    right = {item for query in asked for item in judged[query.id]}
    there = [item for item in world.items if item.id in right or "thought" in item.title or "mind" in item.title]
    others = [item for item in world.items if item.id not in {one.id for one in there}]
    items = [_described(item) for item in (there + others)[:ITEMS]]
    scorer = OnnxCrossEncoder.load("default", alone=True)
    index = crosscut.Index.build(items, scorer=scorer, store=store)
    index.tune([query.text for query in asked[QUERIES:]])
    tested = {query.id: query.text for query in asked[:QUERIES]}
    return index, tested, {id: judged[id] for id in tested}


def _described(item: Item) -> Item:
    """With how many words name the meaning, for filters."""
    return item._replace(metadata={**item.metadata, "words": item.title.count(",") + 1, "file": "noun.cognition"})


def measured(
    index: crosscut.Index, queries: dict[str, str], judgements: dict[str, dict[str, float]]
) -> list[dict[str, Any]]:
    """What `crosscut evaluate` would write."""
    methods, budgets = parse_all("rnr,crosscut"), [10, 20, 50, 100, 200]
    truth, _ = truth_of(index, list(queries.values()), None)
    found = unscored(index, queries, {}, k=[10], truth=truth)
    found += points(index, queries, {}, methods=methods, budgets=budgets, k=[10], truth=truth)
    found += unscored(index, queries, judgements) + points(index, queries, judgements, methods=methods, budgets=budgets)
    shown = [one for one in records_of(found) if one.measure in SHOWN or one.measure.startswith("recall")]
    index._state = replace(index._state, cache=None)  # from here on every call is made
    return [record.json() for record in shown]


def ask(page: Any) -> None:
    """Search, and wait until the whole answer stands there."""
    page.fill("#query", QUERY)
    page.press("#query", "Enter")
    page.wait_for_selector("#hits .hit")
    page.wait_for_selector("body:not(.busy)")


def pictures(address: str, folder: Path) -> None:
    """All of them."""
    from playwright import sync_api

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))))
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, width, height, colours in (
            ("page", 1180, 900, "light"),
            ("page-dark", 1180, 900, "dark"),
            ("page-phone", 390, 1400, "light"),
        ):
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=colours)
            page = context.new_page()
            page.set_default_timeout(120_000)
            page.goto(address)
            page.wait_for_selector("#facts:not(:empty)")
            ask(page)
            if name == "page":
                page.locator("#hits .hit").nth(1).locator("button, summary").first.click()
                page.locator("#curves").screenshot(path=folder / "page-curves.png")
            page.evaluate("window.scrollTo(0, 0)")
            last = page.locator("#picture").bounding_box()
            assert last is not None
            end = last["y"] + last["height"] + 20
            shown = {"x": 0, "y": 0, "width": width, "height": end if name == "page" else height}
            page.screenshot(path=folder / f"{name}.png", full_page=True, clip=shown)
            context.close()
        browser.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=Path("scores"), help="scores that were bought before")
    parser.add_argument("--into", type=Path, default=IMAGES)
    options = parser.parse_args()
    index, queries, judgements = index_of_the_box(options.store)
    settings = Settings(
        examples=(QUERY, "a [START] reason [END] to believe it"), evaluation=tuple(measured(index, queries, judgements))
    )
    with running(make_app(index, settings)) as address:
        pictures(address, options.into)


if __name__ == "__main__":
    main()
