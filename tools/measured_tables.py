"""Measured numbers come from one table: docs/measured.json.

    python tools/measured_tables.py            every block of README.md and docs/ shows its table
    python tools/measured_tables.py --write    write the tables into the blocks

An entry of the file is NAME: {command, data, columns, rows}: how the numbers were measured, on
what, and the numbers as they are printed. A page shows it between two comments:

    <!-- measured: NAME -->
    <!-- end of measured -->
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parents[1]
TABLES = Path("docs") / "measured.json"  # docs/results/ holds one run and nothing else
_BLOCK = re.compile(
    r"(?P<open><!-- measured: (?P<name>[\w-]+) -->\n)"
    r"(?P<table>.*?)(?P<close><!-- end of measured -->)",
    re.DOTALL,
)
_OPEN = re.compile(r"<!-- measured: (.*?) -->")
_NUMBER = re.compile(r"[+−-]?[\d.,]+(e[−+-]?\d+)?( ?(%|bp|s|ms|MB|× [\d,]+))?")


class Table(TypedDict):
    """A measured table: every cell is text, as it is printed."""

    command: str
    data: str
    columns: list[str]
    rows: list[list[str]]


def read_tables(root: Path) -> dict[str, Table]:
    """Return the measured tables by name.

    Raises:
        ValueError: If an entry lacks a field, or a row has not one cell for each column.
    """
    tables: dict[str, Table] = json.loads((root / TABLES).read_text(encoding="utf-8"))
    for name, table in tables.items():
        missing = {"command", "data", "columns", "rows"} - set(table)
        if missing:
            raise ValueError(f"{TABLES}: {name} has no {', '.join(sorted(missing))}.")
        for row in table["rows"]:
            if len(row) != len(table["columns"]):
                raise ValueError(f"{TABLES}: {name} has a row of {len(row)} cells: {row}.")
    return tables


def format_table(table: Table) -> str:
    """Return a table as Markdown, columns of numbers to the right."""
    columns = list(zip(*table["rows"], strict=True))
    rules = ["---:" if is_numeric(column) else "---" for column in columns]
    lines = [table["columns"], *table["rows"]]
    written = [f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines]
    return "\n".join([written[0], f"|{'|'.join(rules)}|", *written[1:]])


def is_numeric(column: tuple[str, ...]) -> bool:
    """Whether most cells of a column are numbers, and one of them is."""
    numbers = sum(bool(_NUMBER.fullmatch(cell)) for cell in column)
    return 2 * numbers > len([cell for cell in column if cell])


def fill_blocks(text: str, tables: dict[str, Table]) -> str:
    """Return a page with today's table in every block.

    Raises:
        ValueError: If a block names no table, or does not end.
    """

    def fill(block: re.Match[str]) -> str:
        if block["name"] not in tables:
            raise ValueError(f"{TABLES} has no table {block['name']!r}.")
        return f"{block['open']}\n{format_table(tables[block['name']])}\n\n{block['close']}"

    filled = _BLOCK.sub(fill, text)
    opened, whole = _OPEN.findall(text), [block["name"] for block in _BLOCK.finditer(text)]
    if opened != whole or any(_OPEN.search(block["table"]) for block in _BLOCK.finditer(text)):
        raise ValueError(f"A block does not end with <!-- end of measured -->, of {opened}.")
    return filled


def list_pages(root: Path) -> Iterator[Path]:
    """Yield README.md and every page of docs/."""
    yield root / "README.md"
    yield from sorted((root / "docs").rglob("*.md"))


def list_faults(root: Path) -> list[str]:
    """Return one sentence for each block that differs, and each table that no page shows."""
    tables = read_tables(root)
    found: list[str] = []
    shown: set[str] = set()
    for page in list_pages(root):
        text = page.read_text(encoding="utf-8")
        place = page.relative_to(root)
        shown |= set(_OPEN.findall(text))
        try:
            filled = fill_blocks(text, tables)
        except ValueError as error:
            found.append(f"{place}: {error}")
            continue
        before, after = (list(_BLOCK.finditer(one)) for one in (text, filled))
        found += [
            f"{place}: the table {old['name']} is not that of {TABLES}; run "
            "`python tools/measured_tables.py --write`."
            for old, new in zip(before, after, strict=True)
            if old["table"] != new["table"]
        ]
    found += [f"{TABLES}: no page shows {name}." for name in sorted(set(tables) - shown)]
    return found


def write_pages(root: Path) -> list[Path]:
    """Fill the blocks of every page; return the pages that changed."""
    tables = read_tables(root)
    changed = []
    for page in list_pages(root):
        text = page.read_text(encoding="utf-8")
        filled = fill_blocks(text, tables)
        if filled != text:
            page.write_text(filled, encoding="utf-8")
            changed.append(page)
    return changed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    if parser.parse_args().write:
        for page in write_pages(ROOT):
            print(f"{page.relative_to(ROOT)}: written")
    found = list_faults(ROOT)
    if found:
        sys.exit("\n".join(found))
    print("every measured table on a page is that of docs/measured.json")


if __name__ == "__main__":
    main()
