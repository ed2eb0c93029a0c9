"""Markdown extension: TeX formulas become MathML while the pages are built.

Browsers draw MathML themselves, so the pages need no script, no font and no network.
`pymdownx.arithmatex` finds the formulas and marks them; this turns what it marked.
"""

from html import unescape
from xml.etree.ElementTree import Element

from latex2mathml.converter import convert_to_element
from markdown import Markdown
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor


def mathml(tex: str, display: str) -> Element:
    """Convert a formula; a command that is not known is an error, not text on the page."""
    formula: Element = convert_to_element(tex, display=display)
    unknown = [part.text for part in formula.iter() if part.text and "\\" in part.text]
    if unknown:
        raise ValueError(f"{unknown[0]} is not known to latex2mathml, in the formula: {tex}")
    return formula


class MathMLTreeprocessor(Treeprocessor):
    def run(self, root: Element) -> None:
        for marked in list(root.iter()):
            if marked.get("class") == "arithmatex" and marked.text:
                display = "block" if marked.tag == "div" else "inline"
                marked.append(mathml(unescape(marked.text).strip(), display))
                marked.text = None


class MathMLExtension(Extension):
    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802 - the interface of Markdown
        after_inline_patterns = 5
        md.treeprocessors.register(MathMLTreeprocessor(md), "mathml", after_inline_patterns)


def makeExtension() -> MathMLExtension:  # noqa: N802 - the name Markdown looks for
    return MathMLExtension()
