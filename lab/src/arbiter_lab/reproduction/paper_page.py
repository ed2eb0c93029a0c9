"""Fills pages with the numbers of a run: the claims of the paper, and the notebook behind them.

The text between ``<!-- results: NAME -->`` and ``<!-- end of results -->`` is generated. NAME is a
table of the run, ``figure FILE CAPTION`` or ``run`` for a description of the run. It may also be
``claims SECTION`` for the claims of a section, or ``verdicts`` for their counts. The rest of a page
is written by hand.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from arbiter_lab.reproduction.stated_claims import count_verdicts, format_claims

NO_RUN_TEXT = "*No run is committed yet.*"

_RESULTS_BLOCK = re.compile(
    r"(<!-- results: ([^\n]*?) -->\n).*?(<!-- end of results -->)", re.DOTALL
)


def fill_page(page: str, results: Path | None, link: str = "results") -> str:
    """Return the page with the numbers of a run; without one, a sentence that none is kept.

    Args:
        page: Text of the page.
        results: Folder of the run.
        link: Relative path from the page to the folder.

    Raises:
        ValueError: If the page asks for something that the folder does not have.
    """

    def part(found: re.Match[str]) -> str:
        text = NO_RUN_TEXT if results is None else _render_block(found[2], results, link)
        return f"{found[1]}\n{text}\n\n{found[3]}"

    return _RESULTS_BLOCK.sub(part, page)


def find_requested_results(page: str) -> list[str]:
    """Return the names of the generated parts of a page."""
    return [found[2] for found in _RESULTS_BLOCK.finditer(page)]


def _render_block(name: str, results: Path, link: str) -> str:
    what, _, rest = name.partition(" ")
    if what == "run":
        return _describe_run(results, link)
    if what == "figure":
        file, _, caption = rest.partition(" ")
        _require(results / "figures" / file)
        return f"![{caption}]({link}/figures/{file})"
    if what == "claims":
        return format_claims(rest, results / "tables")
    if what == "verdicts":
        return _count_claims(results)
    path = results / "tables" / f"{name}.md"
    _require(path)
    _, _, body = path.read_text(encoding="utf-8").partition("\n\n")  # its title is the page's
    return body.strip()


def _count_claims(results: Path) -> str:
    counts = count_verdicts(results / "tables")
    rows = [("verdict", "claims"), ("---", "---"), *((v, str(n)) for v, n in counts.items())]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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
