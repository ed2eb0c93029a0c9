"""Claims of the paper, one line each, with their verdicts and links to the details.

The claims are in ``stated_claims.csv``. A claim that was settled by a proof or a counterexample has
its verdict there. A claim that was measured names a row of a table of the run instead.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from arbiter_lab.reproduction.text_tables import read_markdown_rows
from arbiter_lab.reproduction.verdicts import ClaimVerdict

HEADS = ("claim", "line", "verdict", "detail")
"""Columns of a table of claims."""


@dataclass(frozen=True)
class StatedClaim:
    """A claim of the paper.

    Attributes:
        section: Key of the group of the page that lists the claim.
        claim: The claim in a few words.
        line: Line of ``arbiter.tex``.
        verdict: The verdict, or None for a measured claim.
        measured: Name of a table of the run and cells that identify a row; empty without one.
        detail: Page and anchor of the details, relative to ``docs/``.
    """

    section: str
    claim: str
    line: int
    verdict: ClaimVerdict | None
    measured: tuple[str, ...]
    detail: str

    def find_verdict(self, tables: Path) -> ClaimVerdict:
        """Return the verdict; a measured one is read from the tables of a run.

        Args:
            tables: Folder of the tables of a run, in Markdown.

        Returns:
            The verdict; ``UNTESTABLE`` where the run has no such row, because a model is missing.

        Raises:
            ValueError: If several rows of the table match, or its verdict is unknown.
        """
        if self.verdict is not None:
            return self.verdict
        found = self.find_rows(tables)
        if len(found) > 1:
            raise ValueError(f"{self.measured} are {len(found)} rows: one is expected")
        return ClaimVerdict(found[0]["verdict"]) if found else ClaimVerdict.UNTESTABLE

    def find_rows(self, tables: Path) -> list[dict[str, str]]:
        """Return the rows of the run's table that a measured claim names."""
        name, *cells = self.measured
        rows = read_markdown_rows((tables / f"{name}.md").read_text(encoding="utf-8"))
        return [row for row in rows if set(cells) <= set(row.values())]

    @property
    def link(self) -> str:
        """Markdown link to the details; an entry of the errata is named by its number."""
        page, _, anchor = self.detail.partition("#")
        label = "notebook" if page.startswith("notebook/") else page.removesuffix(".md")
        if label == "errata":
            label = f"errata {anchor.partition('-')[0]}"
        return f"[{label}]({self.detail})"


@cache
def read_stated_claims() -> tuple[StatedClaim, ...]:
    """Return all claims, in the order of the page.

    Raises:
        ValueError: If a claim has both a verdict and a table, or neither.
    """
    source = files("arbiter_lab.reproduction").joinpath("stated_claims.csv")
    found = []
    for row in csv.DictReader(source.read_text(encoding="utf-8").splitlines()):
        if bool(row["verdict"]) == bool(row["measured"]):
            raise ValueError(f"{row['claim']}: give a verdict, or a row of a table")
        verdict = ClaimVerdict(row["verdict"]) if row["verdict"] else None
        measured = tuple(row["measured"].split("|")) if row["measured"] else ()
        found.append(
            StatedClaim(
                row["section"], row["claim"], int(row["line"]), verdict, measured, row["detail"]
            )
        )
    return tuple(found)


def list_sections() -> tuple[str, ...]:
    """Return the keys of the groups of claims, in the order of the page."""
    return tuple(dict.fromkeys(claim.section for claim in read_stated_claims()))


def format_claims(section: str, tables: Path) -> str:
    """Return the claims of a section as a Markdown table, one line each.

    Args:
        section: Key of the group of claims.
        tables: Folder of the tables of a run.

    Raises:
        ValueError: If there is no such section, or a measured verdict cannot be read.
    """
    if section not in list_sections():
        raise ValueError(f"section {section!r} is not one of {', '.join(list_sections())}")
    rows = [
        (claim.claim, str(claim.line), claim.find_verdict(tables), claim.link)
        for claim in read_stated_claims()
        if claim.section == section
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in (HEADS, ("---",) * len(HEADS), *rows))


def count_verdicts(tables: Path) -> dict[ClaimVerdict, int]:
    """Return how many claims have each verdict."""
    found = [claim.find_verdict(tables) for claim in read_stated_claims()]
    return {verdict: found.count(verdict) for verdict in ClaimVerdict}
