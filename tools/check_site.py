"""Check what `zensical build --strict` does not: pages left out, pages that need a network.

Usage: check_site.py, in the project's root, after the build.
"""

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
        found += [
            f"{page.relative_to(site)} loads {resource}, which needs a network"
            for resource in finder.resources
            if resource.startswith(("http:", "https:", "//"))
        ]
    return found


def main() -> None:
    found = faults(Path.cwd())
    if found:
        sys.exit("\n".join(found))
    print("every page is in the navigation and opens without a network")


if __name__ == "__main__":
    main()
