"""Check what `zensical build --strict` does not: pages left out, pages that need a network, search.

A page must open from a folder, without a server. There a browser refuses to fetch the index of
the search and to start its worker, so the site has the index as a script (Zensical's offline
plugin) and a frame in the worker's place (docs/javascripts/iframe-worker.js).

Usage: check_site.py, in the project's root, after the build.
"""

import json
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any


class ResourceFinder(HTMLParser):
    """Collects the addresses a browser loads by itself when it opens the page."""

    def __init__(self) -> None:
        super().__init__()
        self.resources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        loads = "href" if tag == "link" else "src"
        self.resources += [value for name, value in attrs if name == loads and value]


WORKER = "javascripts/iframe-worker.js"
SEARCH = "assets/javascripts/bundle."  # the script of a page that has a search box
INDEX = "var __index = "
RESULTS = "results/"  # tables of a run that is kept: files that pages show, and no pages


def pages_in(nav: list[Any]) -> Iterator[str]:
    """Yield the page files of a navigation list, sections included."""
    for entry in nav:
        for target in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(target, list):
                yield from pages_in(target)
            else:
                yield target


def faults(root: Path) -> list[str]:
    """Return one sentence for each fault of the built site."""
    with (root / "zensical.toml").open("rb") as file:
        nav = set(pages_in(tomllib.load(file)["project"]["nav"]))
    docs, site = root / "docs", root / "site"
    every = {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")}
    written = {page for page in every if not page.startswith(RESULTS)}
    found = [f"{page} is in the navigation but not in docs/" for page in sorted(nav - written)]
    found += [f"docs/{page} is not in the navigation" for page in sorted(written - nav)]
    for page in sorted(site.rglob("*.html")):
        finder = ResourceFinder()
        finder.feed(page.read_text(encoding="utf-8"))
        found += resource_faults(page.relative_to(site), site, finder.resources)
    found += index_faults(site)
    return found


def resource_faults(page: Path, site: Path, resources: list[str]) -> Iterator[str]:
    """Yield one sentence for each resource of a page that is elsewhere, missing or late."""
    outside = [one for one in resources if one.startswith(("http:", "https:", "//"))]
    yield from (f"{page} loads {one}, which needs a network" for one in outside)
    for one in resources:
        inside = one not in outside and not one.startswith(("data:", "/"))
        if inside and not (site / page.parent / one.split("#")[0].split("?")[0]).exists():
            yield f"{page} loads {one}, which is not there"
    search = [place for place, one in enumerate(resources) if SEARCH in one]
    worker = [place for place, one in enumerate(resources) if one.endswith(WORKER)]
    if search and not (worker and worker[0] < search[0]):
        yield f"{page} does not load {WORKER} before its search: from a folder it finds nothing"


def index_faults(site: Path) -> Iterator[str]:
    """Yield a sentence if the search's index is no script, or not that of the site."""
    script, plain = site / "search.js", site / "search.json"
    if not script.exists():
        yield "search.js is not there: from a folder the search has no index"
        return
    text = script.read_text(encoding="utf-8").strip().rstrip(";")
    fetched = json.loads(plain.read_text(encoding="utf-8"))
    if not text.startswith(INDEX) or json.loads(text.removeprefix(INDEX)) != fetched:
        yield "search.js is not the index of search.json"


def main() -> None:
    found = faults(Path.cwd())
    if found:
        sys.exit("\n".join(found))
    print("every page is in the navigation, opens without a network, and can be searched so")


if __name__ == "__main__":
    main()
