"""Write the API reference from the docstrings: one page for each public name, into docs/api/.

    python tools/api_pages.py

`make docs` runs it before the site is built. The pages are not committed: the docstrings are
their source, and a second copy in the repository would be out of date after most commits.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arbiter
from api_members import (
    Member,
    build_signature,
    find_result_types,
    inspect_type,
    list_inherited,
    list_members,
    list_own_fields,
    type_of_field,
)
from docstrings import Docstring, parse_docstring

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "api"


@dataclass(frozen=True)
class Group:
    """Names that one reference page explains."""

    title: str
    reference: str
    names: tuple[str, ...]


GROUPS = (
    Group(
        "Chains and quotes",
        "chains.md",
        ("read_chain", "example_chain", "Chain", "ChainError", "Quotes", "read_volatilities"),
    ),
    Group("Fit", "fit.md", ("fit", "FitOptions", "FittedSurface", "Loss", "Roughness")),
    Group("Time", "time.md", ("Clock", "Event")),
    Group("Surface", "surface.md", ("Surface", "example")),
    Group("Certificate", "certificate.md", ("audit", "Certificate")),
    Group(
        "VIX",
        "vix.md",
        (
            "vix",
            "fit_vix",
            "VixSmiles",
            "vix_prior",
            "VixPrior",
            "VixSlices",
            "read_futures",
            "FuturesCurve",
        ),
    ),
    Group("Joint arbitrage", "joint-arbitrage.md", ("joint_audit", "JointAudit", "JointSettings")),
    Group("Operator", "operator.md", ("Operator", "OperatorSurface")),
    Group(
        "Synthetic markets",
        "markets.md",
        tuple(f"markets.{name}" for name in sorted(arbiter.markets.__all__, key=str.casefold)),
    ),
)
WITHOUT_PAGE = {"__version__", "markets"}  # text, and a module whose names have pages


def list_public_names() -> list[str]:
    """Return the names that have a page: of `arbiter` and of `arbiter.markets`."""
    own = [name for name in arbiter.__all__ if name not in WITHOUT_PAGE]
    return own + [f"markets.{name}" for name in arbiter.markets.__all__]


def list_group_faults(groups: tuple[Group, ...] = GROUPS) -> list[str]:
    """Return one sentence for each public name without a group, or the other way round."""
    grouped = [name for group in groups for name in group.names]
    public = list_public_names()
    found = [f"{name} is public and in no group." for name in public if name not in grouped]
    found += [f"{name} is in a group and not public." for name in grouped if name not in public]
    return found


def find_object(name: str) -> Any:
    """Return what a public name stands for."""
    found: Any = arbiter
    for part in name.split("."):
        found = getattr(found, part)
    return found


def name_page(name: str) -> str:
    """Return the file name of a public name's page."""
    return f"{name.replace('.', '-')}.md"


PAGES = {name.rsplit(".", 1)[-1]: name_page(name) for name in list_public_names()}


def link_name(name: str) -> str:
    """Return a name as code, with a link where it has a page."""
    page = PAGES.get(name.rsplit(".", 1)[-1].removesuffix("()"))
    return f"[`{name}`]({page})" if page else f"`{name}`"


def format_text(text: str) -> str:
    """Return text of a docstring as Markdown: roles and double backticks become code."""
    text = re.sub(r":(\w+):`(~?)([^`]+)`", format_role, text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    text = re.sub(r"docs/([\w-]+)\.md", r"[\1](../\1.md)", text)
    return text.replace("$", r"\$")


def format_role(role: re.Match[str]) -> str:
    """Return a cross-reference as code; methods and attributes are those of the same page."""
    kind, tilde, target = role.groups()
    name = target.rsplit(".", 1)[-1] if tilde else target.lstrip(".")
    return f"`{name}`" if kind in ("meth", "attr") else link_name(name)


def format_cell(text: str) -> str:
    """Return text for a cell of a table."""
    return format_text(text).replace("|", r"\|") or " "


def format_type(annotation: str) -> str:
    """Return an annotation as Markdown: alternatives one by one, public names with a link."""
    parts, depth = [""], 0
    for character in annotation:
        depth += (character in "[(") - (character in "])")
        if character == "|" and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return " or ".join(
        link_name(part) if re.fullmatch(r"[\w.]+", part) else f"`{part}`".replace("|", r"\|")
        for part in (part.strip() for part in parts)
        if part
    )


def format_entries(title: str, rows: list[tuple[str, str, str]]) -> Iterator[str]:
    """Yield a table of names, types and meanings, under a title; nothing without rows."""
    if not rows:
        return
    typed = any(kind for _, kind, _ in rows)
    yield f"**{title}**"
    yield ""
    yield "| name | type | meaning |" if typed else "| name | meaning |"
    yield "|---|---|---|" if typed else "|---|---|"
    for name, kind, text in rows:
        cells = (
            [f"`{name}`", kind or " ", format_cell(text)]
            if typed
            else [f"`{name}`", format_cell(text)]
        )
        yield f"| {' | '.join(cells)} |"
    yield ""


def format_body(parsed: Docstring, found: Any) -> Iterator[str]:
    """Yield summary, description, arguments, returns, raises and example of one object."""
    yield format_text(parsed.summary)
    yield ""
    if parsed.description:
        yield format_text(parsed.description)
        yield ""
    arguments = [
        (name, format_type(inspect_type(found, name)), text)
        for name, text in parsed.entries.get("Args", [])
    ]
    yield from format_entries("Arguments", arguments)
    for section in ("Returns", "Yields", "Note"):
        if section in parsed.texts:
            yield f"**{section}**: {format_text(parsed.texts[section])}"
            yield ""
    raised = [(name, "", text) for name, text in parsed.entries.get("Raises", [])]
    yield from format_entries("Raises", raised)
    if parsed.example:
        yield from ["**Example**", "", "```pycon", parsed.example, "```", ""]


def format_attributes(found: type, parsed: Docstring, members: list[Member]) -> Iterator[str]:
    """Yield the attributes of a class: those of its docstring, and its properties."""
    entries = parsed.entries.get("Attributes", [])
    entries = entries + [(name, "") for name in list_own_fields(found) if name not in dict(entries)]
    rows = [(name, format_type(type_of_field(found, name)), text) for name, text in entries]
    rows += [
        (member.name, format_type(member.returns), parse_docstring(member.doc).summary)
        for member in members
        if member.is_property and member.name not in {name for name, _, _ in rows}
    ]
    yield from format_entries("Attributes", rows)


def format_method(owner: str, member: Member) -> Iterator[str]:
    """Yield the section of a method."""
    yield from [f"### {member.name.strip('_')}", ""]
    call = owner if member.name == "__call__" else f"{owner}.{member.name}"
    yield from ["```py", build_signature(call, member.function), "```", ""]
    yield from format_body(parse_docstring(member.doc), member.function)


def format_class(name: str, found: type) -> Iterator[str]:
    """Yield attributes, methods, inherited names and the types that results hold."""
    members = list_members(found, set(PAGES))
    yield from format_attributes(found, parse_docstring(found.__doc__), members)
    methods = [member for member in members if not member.is_property]
    if methods:
        yield from ["## Methods", ""]
    short = name.rsplit(".", 1)[-1]
    owner = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", short).lower()
    for member in methods:
        yield from format_method(short if member.is_class_method else owner, member)
    for base, names in list_inherited(found, set(PAGES)):
        page = PAGES[base.__name__]
        yield from [f"## Inherited from {base.__name__}", ""]
        yield ", ".join(f"[`{one}`]({page}#{one})" for one in names) + "."
        yield ""


def format_result_type(found: type) -> Iterator[str]:
    """Yield the section of a class without a page that an object of this page holds."""
    parsed = parse_docstring(found.__doc__)
    yield from [f"### {found.__name__}", ""]
    yield from format_body(parsed, found)
    members = list_members(found, set(PAGES))
    yield from format_attributes(found, parsed, members)
    methods = [
        (f"{member.name}()", "", parse_docstring(member.doc).summary)
        for member in members
        if not member.is_property
    ]
    yield from format_entries("Methods", methods)


def format_page(name: str, group: Group) -> str:
    """Return the page of a public name."""
    found = find_object(name)
    parsed = parse_docstring(found.__doc__)
    lines = [f"# ab.{name}", ""]
    signature = build_signature(f"ab.{name}", found)
    if signature:
        lines += ["```py", signature, "```", ""]
    lines += format_body(parsed, found)
    if isinstance(found, type):
        lines += format_class(name, found)
    held = find_result_types(found, set(PAGES))
    if held:
        lines += ["## Types", ""]
        for one in held:
            lines += format_result_type(one)
    lines += [f"Explained in [{group.title}](../{group.reference}).", ""]
    return "\n".join(lines)


def format_index(groups: tuple[Group, ...] = GROUPS) -> str:
    """Return the page that lists every public name."""
    lines = [
        "# API",
        "",
        "*Reference.* Every public name of `import arbiter as ab`, from its docstring.",
        "`ab.__version__` is the installed version. `ab.markets` holds the synthetic markets.",
        "",
    ]
    for group in groups:
        lines += [
            f"## {group.title}",
            "",
            f"Explained in [{group.title}](../{group.reference}).",
            "",
        ]
        lines += ["| name | summary |", "|---|---|"]
        for name in group.names:
            summary = parse_docstring(find_object(name).__doc__).summary
            lines.append(f"| [`ab.{name}`]({name_page(name)}) | {format_cell(summary)} |")
        lines.append("")
    return "\n".join(lines)


def write_pages(folder: Path) -> list[Path]:
    """Write the index and a page for each public name; remove pages of names that are gone."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index.md": format_index()}
    pages |= {name_page(name): format_page(name, group) for group in GROUPS for name in group.names}
    for old in folder.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages]


def main() -> None:
    found = list_group_faults()
    if found:
        sys.exit("tools/api_pages.py, GROUPS: " + " ".join(found))
    print(f"{len(write_pages(FOLDER))} pages of the API in docs/api/")


if __name__ == "__main__":
    main()
