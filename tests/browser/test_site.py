"""The documentation as a site: it builds without a warning, loads nothing from elsewhere, and its search finds."""

from __future__ import annotations

import functools
import http.server
import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import pytest

pytest.importorskip("mkdocs")
pytest.importorskip("material")
pytest.importorskip("playwright.sync_api")

from playwright import sync_api as api

import crosscut
from crosscut import methods
from crosscut.search import stopping

ROOT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FOUND = {  # what is searched for, and the pages any of which is right
    "budget": {"budgets.html"},
    "filter": {"filters.html"},
    "Qdrant": {"tutorials/qdrant.html", "stores.html"},
    "deadline": {"budgets.html"},
    "langchain": {"tutorials/langchain.html", "integrations.html"},
    "postgres": {"tutorials/postgresql.html"},
    "cost": {"costs.html"},
    "learn": {"learning.html"},
    "threshold": {"relevance.html"},
    "score store": {"scores.html"},
}


class Page(HTMLParser):
    """Links, anchors and what is loaded, of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given.get("id", ""), given.get("name", "")}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "link" and given.get("rel") != "canonical":
            self.loaded.append(given.get("href", ""))
        if tag in ("script", "img", "iframe", "source"):
            self.loaded.append(given.get("src", ""))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-q", "-d", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    every = sorted(site.rglob("*.html"))
    return {path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8")) for path in every}


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_links_and_anchors_lead_somewhere(site: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        if name == "404.html":  # its links go from the root of wherever it is served
            continue
        for link in page.links:
            parts = urlsplit(urljoin(f"http://here/{name}", link))
            if parts.netloc != "here":
                assert parts.scheme in ("http", "https", "mailto"), f"{name} links to {link}"
                continue
            target = unquote(parts.path.lstrip("/")) or "index.html"
            assert (site / target).exists(), f"{name} links to {link}"
            if target in pages and parts.fragment:
                assert unquote(parts.fragment) in pages[target].anchors, f"{name} links to {link}"


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[str, Page]) -> None:
    for name, page in pages.items():
        assert not [link for link in page.loaded if link.startswith(("http:", "https:", "//"))], name
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(\s*['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet.name


def test_every_public_name_has_an_anchor(pages: dict[str, Page]) -> None:
    anchors = pages["api.html"].anchors
    names = [name for name in crosscut.__all__ if not inspect.ismodule(getattr(crosscut, name))]
    names += [f"methods{kind.__name__}" for kind in methods.methods().values()]
    names += [f"stores{name}" for name in crosscut.stores.__all__]
    names += [rule.__name__ for rule in stopping.stops().values()]
    assert not [name for name in names if name.lower() not in anchors]
    for module in ("scorers", "scores", "datasets", "retrievers", "server"):
        room = importlib.import_module(f"crosscut.{module}")
        public = [
            name for name in room.__all__ if inspect.isclass(made := getattr(room, name)) or inspect.isroutine(made)
        ]
        assert public
        assert not [name for name in public if name.lower() not in pages["api_rooms.html"].anchors], module


def test_llms_txt_names_every_page_of_the_navigation(site: Path) -> None:
    told = (site / "llms.txt").read_text(encoding="utf-8")
    links = re.findall(r"^- \[(.+?)\]\((.+?)\): (.+)$", told, re.M)
    assert len(links) == len([line for line in told.splitlines() if line.startswith("- ")]), "each has a sentence"
    assert all((site / link).exists() for _, link, _ in links)
    assert {"quickstart.html", "budgets.html", "filters.html", "api.html", "changelog.html"} <= {
        link for _, link, _ in links
    }


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium here")
def test_its_search_finds_the_right_page_first(address: str) -> None:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.set_default_timeout(60_000)
        elsewhere: list[str] = []
        page.on("request", lambda each: None if each.url.startswith((address, "data:")) else elsewhere.append(each.url))
        for words, right in FOUND.items():
            page.goto(f"{address}/index.html?q={words}")
            page.wait_for_selector(".md-search-result__item a")
            first = page.locator(".md-search-result__item a").first.get_attribute("href") or ""
            assert urlsplit(first).path.lstrip("/") in right, f"{words} finds {first} first"
        assert elsewhere == []
        browser.close()
