"""Sentences of a page of Markdown and their words: what the limits on prose count."""

from __future__ import annotations

import re
from pathlib import Path


def prose_of(text: str) -> list[str]:
    """The sentences of a page: no code, formulas, tables, headings, comments or link targets."""
    text = re.sub(r"```.*?```|<!--.*?-->|\$\$.*?\$\$|<[^>\n]+>", "\n\n", text, flags=re.DOTALL)
    blocks: list[str] = [""]
    for line in text.splitlines():
        bare = line.strip()
        if not bare or bare.startswith(("#", "|", "!!!", "---")):
            blocks.append("")
        elif re.match(r"([-*+]|\d+\.)\s", bare):
            blocks.append(re.sub(r"^([-*+]|\d+\.)\s+", "", bare))
        else:
            blocks[-1] += f" {bare}"
    sentences = []
    for block in blocks:
        plain = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", block)
        plain = re.sub(r"`[^`]*`|\$[^$]*\$", "x", plain).replace("**", "").strip()
        sentences += [s for s in re.split(r"(?<=[.!?])\s+(?=\S)", plain) if s]
    return sentences


def count_words(sentence: str) -> int:
    """Words of a sentence: runs with a letter or a digit."""
    return sum(bool(re.search(r"\w", word)) for word in sentence.split())


def list_sentences(page: Path) -> list[str]:
    """The sentences of a page of Markdown."""
    return prose_of(page.read_text(encoding="utf-8"))
