"""A table of text, as Markdown and as LaTeX."""

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
    """A table.

    Attributes:
        name: Of its files.
        title: One line.
        heads: Of the columns.
        rows: Texts, as many as heads in each.
        note: Sentences below it.
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
        """As Markdown."""
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
        """As LaTeX, for a document with booktabs, amssymb and tabularx."""
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
    """Text as LaTeX shows it; letters that it has no name for are left as they are."""
    pattern = "|".join(map(re.escape, _LATEX_ESCAPES))
    return re.sub(pattern, lambda found: _LATEX_ESCAPES[found[0]], text)


def _format_row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(cells) + " |"
