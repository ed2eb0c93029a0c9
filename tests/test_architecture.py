"""The package keeps its shape: imports flow one way, modules stay small, start-up stays quick."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "arbiter"
LONGEST = 400

# From low to high. A room imports only rooms before it. A room is a file or a folder, and files
# of one folder may import each other.
ROOMS = [
    "compiled",
    "normal",
    "black",
    "knots",
    "transport",
    "maturity",
    "mixture",
    "decode",
    "forwards",
    "inputs",
    "files",
    "values",
    "exclusions",
    "quotes",
    "futures",
    "chains",
    "markets",
    "structural",
    "volatility_index",
    "surface",
    "volatility_features",
    "volatility_prior",
    "storage",
    "frames",
    "grid",
    "inequalities",
    "durrleman",
    "scan",
    "tails",
    "survey",
    "volatility_survey",
    "tables",
    "certificate",
    "plots",
    "data",
    "examples",
    "fitting",
    "sources",
    "variance_strip",
    "index",
    "joint",
    "replication",
    "scoring",
    "agreement",
    "metrics",
    "peers",
    "operators",
    "baselines",
    "training",
    "evaluation",
    "protocol",
    "report",
    "reproduction",
    "pipeline",
    "cli",
]

# The one-call conveniences of a surface: imported when called, or for the type checker only.
CONVENIENCES = {"surface": {"storage", "frames", "certificate", "plots"}}


class Import(NamedTuple):
    room: str
    line: int
    deferred: bool


def deferred_nodes(tree: ast.AST) -> set[ast.AST]:
    """Return the nodes that do not run when the module is imported."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for inner in ast.walk(node)
    }


def modules_named(node: ast.AST) -> list[str]:
    """Return the modules that an import statement names, relative ones spelled out.

    Relative imports are taken to start at the package: inside a folder write them in full.
    """
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = ".".join(filter(None, ["arbiter" if node.level else "", node.module]))
        if module == "arbiter":
            return [f"arbiter.{alias.name}" for alias in node.names]
        return [module]
    return []


def room_imports(source: str) -> Iterator[Import]:
    """Yield the imports of the package's own rooms."""
    tree = ast.parse(source)
    deferred = deferred_nodes(tree)
    for node in ast.walk(tree):
        for module in modules_named(node):
            top, _, rest = module.partition(".")
            if top == "arbiter" and isinstance(node, ast.stmt):
                yield Import(rest.partition(".")[0], node.lineno, node in deferred)


def room_of(path: Path) -> str:
    """Return the room of a module: its own name, or that of the package's folder it lies in."""
    return (
        path.relative_to(PACKAGE).with_suffix("").parts[0] if PACKAGE in path.parents else path.stem
    )


def misplaced_imports(path: Path) -> list[str]:
    """Return one sentence for each import in `path` that goes against the order of the rooms."""
    room = room_of(path)
    if room not in ROOMS:
        return [f"{path.name} is a new room: place it in ROOMS, above all that it imports"]
    found = []
    for imported in room_imports(path.read_text(encoding="utf-8")):
        if imported.room not in ROOMS:
            found.append(
                f"{path.name}:{imported.line} imports arbiter.{imported.room}, which is no room: "
                "import from the room that defines the name"
            )
        elif imported.room == room and path.stem != room:
            continue
        elif ROOMS.index(imported.room) >= ROOMS.index(room) and not (
            imported.deferred and imported.room in CONVENIENCES.get(room, set())
        ):
            found.append(
                f"{path.name}:{imported.line} imports {imported.room}, which is not below {room}"
            )
    return found


def printing_lines(path: Path) -> list[int]:
    """Return the lines of `path` that call print."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").as_posix()


every_module = pytest.mark.parametrize("path", modules(), ids=name_of)
every_room = pytest.mark.parametrize(
    "path", [path for path in modules() if name_of(path) != "__init__"], ids=name_of
)


def test_package_is_found() -> None:
    assert len(modules()) > 1, f"no modules in {PACKAGE}: the other checks here would be empty"


@every_room
def test_imports_flow_one_way(path: Path) -> None:
    assert misplaced_imports(path) == []


@pytest.mark.parametrize(
    ("room", "source"),
    [
        ("transport", "from arbiter.surface import Surface\n"),
        ("transport", "from .surface import Surface\n"),
        ("transport", "from . import surface\n"),
        ("transport", "from arbiter import surface\n"),
        ("transport", "import arbiter.surface as surface\n"),
        ("transport", "def price():\n    from arbiter.surface import Surface\n"),
        ("transport", "if TYPE_CHECKING:\n    from arbiter.surface import Surface\n"),
        ("surface", "from arbiter.plots import smile\n"),
        ("surface", "def save():\n    from arbiter.cli import main\n"),
        ("surface", "from arbiter.surface import Surface\n"),
        ("certificate", "from arbiter import Surface\n"),
    ],
)
def test_planted_backward_import_is_found(tmp_path: Path, room: str, source: str) -> None:
    path = tmp_path / f"{room}.py"
    path.write_text(source, encoding="utf-8")
    assert len(misplaced_imports(path)) == 1


@pytest.mark.parametrize(
    ("room", "source"),
    [
        (
            "surface",
            "from arbiter.pricing.transport import Slice\nfrom .black import iv\nimport math\n",
        ),
        ("surface", "def plot(self):\n    from arbiter import plots\n"),
        ("surface", "if TYPE_CHECKING:\n    from arbiter.audit.certificate import Certificate\n"),
    ],
)
def test_permitted_import_is_not_reported(tmp_path: Path, room: str, source: str) -> None:
    path = tmp_path / f"{room}.py"
    path.write_text(source, encoding="utf-8")
    assert misplaced_imports(path) == []


def test_unknown_room_is_asked_to_be_placed(tmp_path: Path) -> None:
    path = tmp_path / "attic.py"
    path.write_text("import math\n", encoding="utf-8")
    assert "place it in ROOMS" in misplaced_imports(path)[0]


@every_module
def test_package_does_not_print(path: Path) -> None:
    assert printing_lines(path) == []


def test_planted_print_is_found(tmp_path: Path) -> None:
    path = tmp_path / "loud.py"
    path.write_text("console.print('allowed')\nprint('not allowed')\n", encoding="utf-8")
    assert printing_lines(path) == [2]


@every_module
def test_module_is_short_enough_to_read(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGEST, f"{path.name} has {lines} lines: split it where it has two concepts"


def loaded_after(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after `statement`."""
    program = f"{statement}; import sys; sys.stdout.write(' '.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_command_line_starts_without_torch() -> None:
    assert "torch" not in loaded_after("import arbiter.cli")


def test_loaded_torch_is_seen() -> None:
    assert "torch" in loaded_after("import torch")
