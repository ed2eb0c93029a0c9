"""The shape of the house in numbers: modules, imports, names, sentences.

    python tools/house.py            the table; exit code 1 if a limit is broken
    python tools/house.py --json     the same as JSON
    python tools/house.py --write    the table into docs/house.md

`tests/test_architecture.py` uses the same functions, each with a planted fault.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from sentences import count_words, list_sentences

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = {"arbiter": ROOT / "src" / "arbiter", "arbiter_lab": ROOT / "lab/src/arbiter_lab"}
PAGE = ROOT / "docs" / "house.md"
MARKS = ("<!-- house -->", "<!-- end of house -->")

# Pages in plain sentences; later work adds the pages that it rewrites.
REWRITTEN = (
    "README.md", "docs/index.md", "docs/guides/*.md", "docs/chains.md", "docs/fit.md",
    "docs/surface.md", "docs/certificate.md", "docs/vix.md", "docs/report.md", "docs/commands.md",
    "docs/paper.md", "docs/hardening.md",
)  # fmt: skip

# Torch versions mirror the library under the same names.
MIRROR = "arbiter_lab.differentiable"
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}  # public by contract

LONGEST_MODULE = 400
MOST_FLAT_FILES = 18
MOST_ONE_WORD = 0.5
LONGEST_SENTENCE = 35
LONGEST_MEAN_SENTENCE = 18.0
MOST_README_WORDS = 700


class Module(NamedTuple):
    """A module of the library or of the lab.

    Attributes:
        name: Dotted name.
        path: Its file.
        tree: Its syntax tree.
    """

    name: str
    path: Path
    tree: ast.Module

    @property
    def package(self) -> str:
        """The folder it lies in, or its own name on the ground floor: ``arbiter.fitting``."""
        return ".".join(self.name.split(".")[:2])


class Import(NamedTuple):
    """One import of an own module.

    Attributes:
        target: Dotted name of the module.
        line: Line of the statement.
        deferred: It does not run when the module is imported.
    """

    target: str
    line: int
    deferred: bool


@dataclass(frozen=True)
class Measure:
    """One row of the table.

    Attributes:
        name: What is counted.
        value: The count.
        limit: What it may be, as text; empty where nothing is promised.
        kept: Whether the limit is kept.
    """

    name: str
    value: str
    limit: str = ""
    kept: bool = True


def read_modules(packages: dict[str, Path] | None = None) -> dict[str, Module]:
    """Every module by its dotted name; a package is its ``__init__``."""
    found = {}
    for top, folder in (packages or PACKAGES).items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            name = ".".join((top, *(part for part in parts if part != "__init__")))
            found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8")))
    return found


def find_deferred(tree: ast.AST) -> set[ast.AST]:
    """The nodes that do not run on import: bodies of functions, and what is for types only."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for inner in ast.walk(node)
    }


def list_imports(module: Module, known: Iterable[str]) -> Iterator[Import]:
    """The imports of own modules; a relative import counts from the top of the package."""
    names = set(known)
    tops = {name.split(".")[0] for name in names}
    deferred = find_deferred(module.tree)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            top = module.name.split(".")[0] if node.level else ""
            base = ".".join(filter(None, [top, node.module]))
            full = [f"{base}.{alias.name}" for alias in node.names]
            targets = [name if name in names else base for name in full]
        else:
            continue
        for target in dict.fromkeys(targets):
            if target.split(".")[0] in tops:
                yield Import(target, node.lineno, node in deferred)


def find_package_cycles(modules: dict[str, Module]) -> list[tuple[str, str]]:
    """Pairs of folders that import each other, whenever the import runs."""
    folders = {name.rsplit(".", 1)[0] for name in modules if name.count(".") >= 2}
    edges = {
        (module.package, ".".join(found.target.split(".")[:2]))
        for module in modules.values()
        for found in list_imports(module, modules)
    }
    return [
        (a, b) for a, b in combinations(sorted(folders), 2) if (a, b) in edges and (b, a) in edges
    ]


def find_module_cycle(modules: dict[str, Module]) -> list[str]:
    """Modules that import each other in a circle when they are imported; empty if there is none."""
    edges = {
        name: [
            found.target
            for found in list_imports(module, modules)
            if not found.deferred and found.target in modules and found.target != name
        ]
        for name, module in modules.items()
    }
    state: dict[str, int] = {}
    path: list[str] = []

    def visit(name: str) -> list[str]:
        state[name] = 1
        path.append(name)
        for target in edges[name]:
            if state.get(target) == 1:
                return [*path[path.index(target) :], target]
            if target not in state and (found := visit(target)):
                return found
        state[name] = 2
        path.pop()
        return []

    for name in edges:
        if name not in state and (found := visit(name)):
            return found
    return []


def is_private(name: str) -> bool:
    """Whether a name is private by its one leading underscore."""
    return name.startswith("_") and not name.startswith("__") and name not in NAMED_TUPLE


def list_private_reads(module: Module) -> list[str]:
    """Private names of other modules that a module reads, one sentence each."""
    own = {
        node.name
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    own |= {node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name)}
    own |= {
        node.attr
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    others = {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and not ast.unparse(node)
        .removeprefix("from ")
        .removeprefix("import ")
        .startswith("arbiter")
        for alias in node.names
    }
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("arbiter"):
            found += [
                f"{module.name}:{node.lineno} imports {alias.name} of {node.module}"
                for alias in node.names
                if is_private(alias.name)
            ]
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls", "super()") and owner.split(".")[0] not in others:
                found.append(f"{module.name}:{node.lineno} reads {owner}.{node.attr}")
    return found


def list_functions(tree: ast.AST) -> Iterator[str]:
    """Names of functions and methods, nested ones included; dunder methods are Python's."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if not name.startswith("__"):
                    yield name


def is_one_word(name: str) -> bool:
    """Whether a name has no underscore between letters."""
    return "_" not in name.strip("_")


def share_of_one_word(modules: Iterable[Module]) -> tuple[int, int]:
    """How many functions have one-word names, and how many there are."""
    names = [name for module in modules for name in list_functions(module.tree)]
    return sum(map(is_one_word, names)), len(names)


def list_reused_names(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Public functions and classes whose name stands in several modules.

    A command's function has the name of the command, and a mirror that of what it mirrors: the
    compiled pass, and the functions of a Protocol that several modules implement side by side.
    """
    homes: dict[str, list[str]] = defaultdict(list)
    for module in modules.values():
        if module.name.startswith(MIRROR) or ".cli" in module.name:
            continue
        for node in module.tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(module.name)
    return {
        name: places
        for name, places in sorted(homes.items())
        if len(places) > 1
        and len({place.rsplit(".", 1)[0] for place in places}) > 1
        and name not in ("main",)
    }


def rewritten_pages() -> list[Path]:
    """The pages that promise short sentences, as far as they are there."""
    return sorted(page for pattern in REWRITTEN for page in ROOT.glob(pattern))


def measure_house() -> list[Measure]:
    """Every row of the table, limits checked."""
    modules = read_modules()
    library = [m for m in modules.values() if m.name.split(".")[0] == "arbiter"]
    lab = [m for m in modules.values() if m.name.split(".")[0] == "arbiter_lab"]
    lines = {m.name: len(m.path.read_text(encoding="utf-8").splitlines()) for m in modules.values()}
    longest = max(lines, key=lambda name: lines[name])
    flat = len(list(PACKAGES["arbiter"].glob("*.py")))
    pairs, circle = find_package_cycles(modules), find_module_cycle(modules)
    reads = [read for module in modules.values() for read in list_private_reads(module)]
    one, functions = share_of_one_word(modules.values())
    sentences = {s: count_words(s) for page in rewritten_pages() for s in list_sentences(page)}
    worst = max(sentences.values())
    mean = sum(sentences.values()) / len(sentences)
    words = count_words(re.sub(r"```.*?```", " ", (ROOT / "README.md").read_text(), flags=re.S))
    return [
        Measure("modules of the library", f"{len(library)}"),
        Measure("modules of the lab", f"{len(lab)}"),
        Measure("lines of the library", f"{sum(lines[m.name] for m in library):,}"),
        Measure("lines of the lab", f"{sum(lines[m.name] for m in lab):,}"),
        Measure(
            f"longest module ({longest})",
            f"{lines[longest]}",
            f"at most {LONGEST_MODULE}",
            lines[longest] <= LONGEST_MODULE,
        ),
        Measure(
            "flat files of the library",
            f"{flat}",
            f"at most {MOST_FLAT_FILES}",
            flat <= MOST_FLAT_FILES,
        ),
        Measure("pairs of packages that import each other", f"{len(pairs)}", "0", not pairs),
        Measure("circles of imports", f"{int(bool(circle))}", "0", not circle),
        Measure("private names read across modules", f"{len(reads)}", "0", not reads),
        Measure(
            "one-word function names",
            f"{one / functions:.0%} of {functions:,}",
            f"at most {MOST_ONE_WORD:.0%}",
            one <= MOST_ONE_WORD * functions,
        ),
        Measure("public names with several homes", f"{len(list_reused_names(modules))}"),
        Measure(
            "longest sentence of the rewritten pages, words",
            f"{worst}",
            f"at most {LONGEST_SENTENCE}",
            worst <= LONGEST_SENTENCE,
        ),
        Measure(
            "mean sentence of the rewritten pages, words",
            f"{mean:.1f}",
            f"at most {LONGEST_MEAN_SENTENCE:g}",
            mean <= LONGEST_MEAN_SENTENCE,
        ),
        Measure(
            "words of the README",
            f"{words}",
            f"under {MOST_README_WORDS}",
            words < MOST_README_WORDS,
        ),
    ]


def format_table(measures: list[Measure]) -> str:
    """The table in Markdown."""
    rows = [f"| {each.name} | {each.value} | {each.limit} |" for each in measures]
    return "\n".join(["| | now | limit |", "|---|---:|---|", *rows])


def fill_page(text: str, table: str) -> str:
    """A page with the table between its marks."""
    before, rest = text.split(MARKS[0])
    after = rest.split(MARKS[1])[1]
    return f"{before}{MARKS[0]}\n\n{table}\n\n{MARKS[1]}{after}"


def list_faults() -> Iterator[str]:
    """What stands behind a broken limit, one line each."""
    modules = read_modules()
    for a, b in find_package_cycles(modules):
        yield f"{a} and {b} import each other"
    if circle := find_module_cycle(modules):
        yield " -> ".join(circle)
    for module in modules.values():
        yield from list_private_reads(module)
    for page in rewritten_pages():
        for sentence in list_sentences(page):
            if count_words(sentence) > LONGEST_SENTENCE:
                place = page.relative_to(ROOT)
                yield f"{place}: {count_words(sentence)} words: {sentence[:100]}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="the shape of the house in numbers")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="write the table into docs/house.md")
    given = parser.parse_args(arguments)
    measures = measure_house()
    table = format_table(measures)
    if given.json:
        print(json.dumps([vars(each) for each in measures], indent=1))
    else:
        print(table)
    if given.write:
        PAGE.write_text(fill_page(PAGE.read_text(encoding="utf-8"), table), encoding="utf-8")
    broken = [each for each in measures if not each.kept]
    for each in broken:
        print(f"{each.name}: {each.value}, and {each.limit} is promised", file=sys.stderr)
    if broken:
        for line in list_faults():
            print(f"  {line}", file=sys.stderr)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
