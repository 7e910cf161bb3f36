"""Hooks of the documentation site (mkdocs.yml): what lies outside docs/ comes along, and llms.txt.

CHANGELOG.md, CONTRIBUTING.md and SECURITY.md are pages of the site; other files that a page links to (results,
examples) are copied beside it, so that every link of the repository is a link of the site, and is checked.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).parents[1]
PAGES = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
}
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
NOTE = re.compile(r"<!-- (?:not run|test command).*? -->\n")


def on_config(config: Any) -> Any:
    """A page that the navigation does not name stands under More."""
    placed_pages = set(re.findall(r"[\w/-]+\.md", str(config["nav"])))
    every = (path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md")))
    others = [page for page in every if page not in placed_pages]
    if others:
        config["nav"].append({"More": [{heading(ROOT / "docs" / page): page} for page in others]})
    return config


def heading(path: Path) -> str:
    """The title of a page, as it says it."""
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.M)
    return found[1].replace("`", "") if found else path.stem


def on_files(files: Files, config: Any) -> Files:
    """Pages and files from outside docs/."""
    for source, page in PAGES.items():
        if files.get_file_from_path(page) is None:
            files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    for file in list(files.documentation_pages()):
        for target in outside(Path(str(file.abs_src_path)).read_text(encoding="utf-8"), folder_of(file.src_uri)):
            name, path = placed(target), str(ROOT / target)
            if files.get_file_from_path(name) is None:
                made = File.generated(config, name, abs_src_path=path, inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(made)
    files.append(File.generated(config, "llms.txt", content=llms(config)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links that leave docs/ lead to what came along; notes for tests are left out."""
    return NOTE.sub("", moved(markdown, folder_of(page.file.src_uri), page.file.src_uri))


def llms(config: Any) -> str:
    """Every page with the first sentence of it, for readers that are programs."""
    lines = [f"# {config['site_name']}", "", f"> {config['site_description']}.", ""]
    for group in config["nav"]:
        ((title, entries),) = group.items()
        heading, pages = ("Start", [group]) if isinstance(entries, str) else (title, entries)
        lines += [f"## {heading}", ""]
        for entry in pages:
            name, page = (title, entry) if isinstance(entry, str) else next(iter(entry.items()))
            lines.append(f"- [{name}]({Path(page).with_suffix('.html')}): {summary(page)}")
        lines.append("")
    return "\n".join(lines)


def summary(page: str) -> str:
    """The first sentence of a page."""
    names = {made: source for source, made in PAGES.items()}
    path = ROOT / "docs" / page
    text = (path if path.exists() else ROOT / names[page]).read_text(encoding="utf-8")
    plain = re.sub(r"^---\n.*?\n---\n|<!--.*?-->|```.*?```", "", text, flags=re.S)
    paragraphs = [part.strip() for part in plain.split("\n\n")]
    prose = next((part for part in paragraphs if part and not part.startswith(("#", "!", "|", "-", "<", "pip "))), "")
    told = re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=[.:])\s", told)[0].rstrip(":")


def moved(text: str, folder: str, page: str) -> str:
    """A page's links, which are relative to a folder of the repository, as the site has them."""

    def lead(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, found[2]))
        return found[1] + posixpath.relpath(placed(target), posixpath.dirname(page) or ".") + found[3]

    return LINK.sub(lead, text)


def placed(target: str) -> str:
    """Where the site has a file of the repository."""
    if target in PAGES:
        return PAGES[target]
    return target.removeprefix("docs/") if target.startswith("docs/") else f"repository/{target}"


def folder_of(page: str) -> str:
    """The folder of the repository from which a page's links go."""
    if page.startswith("repository/"):
        return posixpath.dirname(page.removeprefix("repository/"))
    return "" if page in PAGES.values() and page != "index.md" else posixpath.join("docs", posixpath.dirname(page))


def outside(text: str, folder: str) -> set[str]:
    """Files of the repository outside docs/ that a page links to."""
    targets = {posixpath.normpath(posixpath.join(folder, link)) for _, link, _ in LINK.findall(text)}
    return {target for target in targets - {*PAGES} if not target.startswith("docs/") and (ROOT / target).is_file()}
