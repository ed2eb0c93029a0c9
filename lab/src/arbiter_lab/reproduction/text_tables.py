"""Tables of text in Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_LATEX_ESCAPES = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "→": r"$\to$", "≈": r"$\approx$", "✓": r"$\checkmark$", "−": "$-$", "≤": r"$\le$",
    "×": r"$\times$", "–": "--", "<": "$<$", ">": "$>$", "σ": r"$\sigma$", "√": r"$\sqrt{}$",
}  # fmt: skip


@dataclass(frozen=True)
class TextTable:
    """A table of text.

    Attributes:
        name: Name of its files.
        title: Title of one line.
        heads: Heads of the columns.
        rows: Cells of each row, one per head.
        note: Sentences below the table.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]] = ()
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.heads):
                raise ValueError(f"{self.name}: a row of {len(row)} under {len(self.heads)} heads")

    def markdown(self) -> str:
        """Return the table as Markdown."""
        lines = [
            f"## {self.title}",
            "",
            _format_row(self.heads),
            _format_row(["---"] * len(self.heads)),
        ]
        lines += [_format_row([cell.replace("|", r"\|") for cell in row]) for row in self.rows]
        if self.note:
            lines += ["", self.note]
        return "\n".join(lines) + "\n"

    def latex(self) -> str:
        """Return the table as LaTeX for a document with booktabs, amssymb and tabularx."""
        columns = "l" + "X" * (len(self.heads) - 1)
        rows = [" & ".join(map(escape_latex, row)) + r" \\" for row in self.rows]
        below = f"\\par\\smallskip\\footnotesize {escape_latex(self.note)}\n" if self.note else ""
        return (
            "\\begin{table}\n\\centering\\small\n"
            f"\\begin{{tabularx}}{{\\linewidth}}{{{columns}}}\n\\toprule\n"
            + " & ".join(map(escape_latex, self.heads))
            + " \\\\\n\\midrule\n"
            + "\n".join(rows)
            + "\n\\bottomrule\n\\end{tabularx}\n"
            f"\\caption{{{escape_latex(self.title)}}}\n{below}\\end{{table}}\n"
        )


def escape_latex(text: str) -> str:
    """Escape text for LaTeX; characters without an escape are left as they are."""
    pattern = "|".join(map(re.escape, _LATEX_ESCAPES))
    return re.sub(pattern, lambda found: _LATEX_ESCAPES[found[0]], text)


def _format_row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"


def read_markdown_rows(text: str) -> list[dict[str, str]]:
    """Return the rows of the first Markdown table of a text, each a mapping from head to cell."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    if len(lines) < 2:
        return []
    split = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    cells = [[cell.strip().replace(r"\|", "|") for cell in row] for row in split]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]
