"""Tables and report of a kept run, written again from its files; nothing is computed again.

Of the stage ``measure`` only the paired tests are needed. They are long and not kept, so they are
read back from the printed table ``pairs``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from arbiter.files import write_whole
from arbiter_lab.protocol.machine import REPLICATE_FILE, read_replicate
from arbiter_lab.protocol.manifest import read_manifest, write_manifest
from arbiter_lab.protocol.results_file import RESULTS_FILE, Runs, read_results
from arbiter_lab.reproduction.models import label_of
from arbiter_lab.reproduction.page import render
from arbiter_lab.reproduction.profiles import find_profile
from arbiter_lab.reproduction.result_files import CAPTIONS
from arbiter_lab.reproduction.stages import Facts
from arbiter_lab.reproduction.tables import make_tables
from arbiter_lab.reproduction.text_tables import read_markdown_rows

_FACT_STAGES = ("days", "sweeps", "stress", "external", "monitors")
_DIFFERENCE = re.compile(r"([+-][\d.]+) \[([+-][\d.]+), ([+-][\d.]+)\]")
_P_VALUES = re.compile(r"\(Holm p (?P<mean>[<=] \S+?)(, flips (?P<flips>[<=] \S+?))?(;.*)?\)$")
_MANY_BLOCKS = 99  # blocks enough for the sign flips; the table does not print the number


def rewrite_kept_tables(folder: Path) -> None:
    """Write tables, report and manifest of a kept run again, in the words of today's code.

    Args:
        folder: The kept run; its results, facts, figures and ledger stay as they are.

    Raises:
        ValueError: If a file of the run cannot be read.
    """
    runs = read_results(folder / RESULTS_FILE)
    facts = read_kept_facts(folder, runs)
    grids = make_tables(runs, facts)
    for grid in grids:
        write_whole(folder / "tables" / f"{grid.name}.md", grid.markdown())
        write_whole(folder / "tables" / f"{grid.name}.tex", grid.latex())
    pictures = {name: (folder / "figures" / f"{name}.png").read_bytes() for name in CAPTIONS}
    name = read_replicate(folder / REPLICATE_FILE)["protocol"]["profile"]["name"]
    page = render(find_profile(name), runs, facts, grids, pictures, CAPTIONS)
    write_whole(folder / "report.html", page)
    write_manifest(folder, commands=read_manifest(folder)["commands"])


def read_kept_facts(folder: Path, runs: Runs) -> dict[str, Facts]:
    """Return the facts of the stages that the tables and the report need.

    Args:
        folder: The kept run.
        runs: Its results.
    """
    facts: dict[str, Facts] = {
        name: json.loads((folder / "stages" / f"{name}.json").read_text(encoding="utf-8"))
        for name in _FACT_STAGES
    }
    days = max(run["about"].get("days", 0) for run in runs.values())
    text = (folder / "tables" / "pairs.md").read_text(encoding="utf-8")
    facts["measure"] = {"pairs": read_paired_tests(text, runs), "days": {"test": days}}
    return facts


def read_paired_tests(text: str, runs: Runs) -> Facts:
    """Return the paired tests of a printed table, with the digits that it prints.

    Args:
        text: The table ``pairs`` in Markdown.
        runs: Runs of the results, which name the models.

    Raises:
        ValueError: If a row is not of the form that `tabulate_paired_tests` prints.
    """
    names = {label_of(name): name for name in runs}
    found: Facts = {}
    for row in read_markdown_rows(text):
        first, second, difference, days, words = row.values()
        tests = found.setdefault(names[first], {"tests": {}, "left_out": {}})
        reason = words.removeprefix("not tested: ")
        if reason != words:
            tests["left_out"][names[second]] = reason
        else:
            tests["tests"][names[second]] = _read_test(difference, days, words)
    return found


def _read_test(difference: str, days: str, words: str) -> Mapping[str, Any]:
    numbers, p_values = _DIFFERENCE.fullmatch(difference), _P_VALUES.search(words)
    if numbers is None or p_values is None:
        raise ValueError(f"{difference!r}, {words!r}: not a row of the table of paired tests")
    few = re.search(r"(\d+) blocks are too few", words)
    return {
        "difference": dict(zip(("mean", "low", "high"), map(float, numbers.groups()), strict=True)),
        # shares are printed rounded down: half a digit more prints the same
        "lower": (float(days.removesuffix(" %")) + 0.005) / 100.0 if days != "100 %" else 1.0,
        "holm_p_value": _read_p_value(p_values["mean"]),
        "holm_flip_p_value": 1.0 if few else _read_p_value(p_values["flips"]),
        "blocks": int(few[1]) if few else _MANY_BLOCKS,
    }


def _read_p_value(text: str) -> float:
    """Return a printed p-value; one below a bound as a tenth of the bound."""
    sign, number = text.split(" ")
    return float(number) * (0.1 if sign == "<" else 1.0)
