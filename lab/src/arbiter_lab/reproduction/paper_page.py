"""The page that goes through the paper claim by claim: numbers in it come from a run's files.

Between ``<!-- results: NAME -->`` and ``<!-- end of results -->`` stands what a folder of results
says: a table by its name, ``figure FILE CAPTION`` for a figure, or ``run`` for what was run. The
rest of the page is written by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

NO_RUN_TEXT = "*No run is committed yet.*"

_RESULTS_BLOCK = re.compile(
    r"(<!-- results: ([^\n]*?) -->\n).*?(<!-- end of results -->)", re.DOTALL
)


def fill_page(page: str, results: Path | None, link: str = "results") -> str:
    """The page with the numbers of a folder of results; without one it says that there is none.

    Args:
        page: Its text.
        results: The folder.
        link: How the page reaches the folder.

    Raises:
        ValueError: If the page asks for something that the folder does not have.
    """

    def part(found: re.Match[str]) -> str:
        text = NO_RUN_TEXT if results is None else _render_block(found[2], results, link)
        return f"{found[1]}\n{text}\n\n{found[3]}"

    return _RESULTS_BLOCK.sub(part, page)


def find_requested_results(page: str) -> list[str]:
    """What a page asks for."""
    return [found[2] for found in _RESULTS_BLOCK.finditer(page)]


def _render_block(name: str, results: Path, link: str) -> str:
    what, _, rest = name.partition(" ")
    if what == "run":
        return _describe_run(results, link)
    if what == "figure":
        file, _, caption = rest.partition(" ")
        _require(results / "figures" / file)
        return f"![{caption}]({link}/figures/{file})"
    path = results / "tables" / f"{name}.md"
    _require(path)
    _, _, body = path.read_text(encoding="utf-8").partition("\n\n")  # its title is the page's
    return body.strip()


def _describe_run(results: Path, link: str) -> str:
    runs: dict[str, dict[str, Any]] = json.loads((results / "results.json").read_text("utf-8"))[
        "runs"
    ]
    told = json.loads((results / "replicate.json").read_text(encoding="utf-8"))
    profile = told["protocol"]["profile"]
    there = [run for run in runs.values() if not run["about"].get("missing")]
    days = max(run["about"].get("days", 0) for run in there)
    absent = len(runs) - len(there)
    return (
        f"Profile `{profile['name']}`: {profile['days']:,} days, {days:,} of them scored; "
        f"{len(there)} models measured, {absent} missing. "
        f"[Report]({link}/report.html), [results]({link}/results.json), "
        f"[machine and times]({link}/replicate.json)."
    )


def _require(path: Path) -> None:
    if not path.is_file():
        raise ValueError(
            f"{path} is not there: the page asks for it; run the reproduction, or ask for less"
        )
