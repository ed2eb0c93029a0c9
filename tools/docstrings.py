"""Google docstrings as data: a summary, paragraphs, and sections of named entries."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

ENTRIES = ("Args", "Attributes", "Raises")
TEXTS = ("Returns", "Yields", "Note")
EXAMPLES = ("Example", "Examples")
_HEADING = re.compile(rf"^({'|'.join(ENTRIES + TEXTS + EXAMPLES)}):$")
_ENTRY = re.compile(r"^(?P<name>\*{0,2}\w[\w, .]*?)(?: \([^)]*\))?: (?P<text>.*)$")


@dataclass(frozen=True)
class Docstring:
    """One docstring.

    Attributes:
        summary: Its first paragraph.
        description: The paragraphs after it, as lines of Markdown.
        entries: Of each section of ``ENTRIES``: names and their texts, in order.
        texts: Of each section of ``TEXTS``: its text.
        example: Lines of a console session, empty without one.
    """

    summary: str = ""
    description: str = ""
    entries: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    example: str = ""


def parse_docstring(text: str | None) -> Docstring:
    """Return the parts of a docstring, which may be missing."""
    if not text:
        return Docstring()
    sections = split_sections(inspect.cleandoc(text))
    paragraphs = sections.pop("").split("\n\n", 1)
    return Docstring(
        summary=join_lines(paragraphs[0]),
        description=paragraphs[1].strip() if len(paragraphs) > 1 else "",
        entries={name: split_entries(sections[name]) for name in ENTRIES if name in sections},
        texts={name: join_lines(sections[name]) for name in TEXTS if name in sections},
        example="\n\n".join(sections[name].strip() for name in EXAMPLES if name in sections),
    )


def split_sections(text: str) -> dict[str, str]:
    """Return the lines under each heading without their indent, and those before them under ""."""
    sections: dict[str, list[str]] = {"": []}
    current = ""
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            current = heading[1]
            sections[current] = []
        elif current and line and not line.startswith(" "):  # the section has ended
            current = ""
            sections[current] += ["", line]
        else:
            sections[current].append(line)
    return {name: inspect.cleandoc("\n".join(lines)) for name, lines in sections.items()}


def split_entries(text: str) -> list[tuple[str, str]]:
    """Return names and texts of a section's entries; deeper lines belong to the entry above."""
    entries: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        entry = None if line.startswith(" ") else _ENTRY.match(line)
        if entry:
            entries.append((entry["name"], [entry["text"]]))
        elif entries:
            entries[-1][1].append(line.strip())
        elif line.strip():
            raise ValueError(f"A section of a docstring begins without 'name: text': {line!r}.")
    return [(name, join_lines("\n".join(lines))) for name, lines in entries]


def join_lines(text: str) -> str:
    """Return a text on one line."""
    return " ".join(text.split())
