"""The house keeps its shape: imports flow one way, modules stay small, start-up stays quick."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import house
import sentences
from floors import CONVENIENCES, LAB, LAYERS, LIBRARY
from house import Import, Module

MODULES = house.read_modules()
every_module = pytest.mark.parametrize("module", MODULES.values(), ids=lambda m: m.name)


def floor_of(name: str) -> str:
    """The floor of a module: ``fitting`` for ``arbiter.fitting.loss``."""
    return name.split(".")[1] if "." in name else ""


def height_of(name: str) -> int | None:
    """How high a floor is, the lab above the library; None where it is not in the plan."""
    top, floor = name.split(".", maxsplit=1)[0], floor_of(name)
    plan = LAB if top == "arbiter_lab" else LIBRARY
    if floor not in plan:
        return None
    return plan.index(floor) + (len(LIBRARY) if top == "arbiter_lab" else 0)


def layer_of(name: str) -> tuple[str, int] | None:
    """Place and row of a module inside its floor; None where the floor has no rows for it."""
    top, floor, place, *_ = [*name.split("."), "", ""]
    package = f"{top}.{floor}"
    for row, places in enumerate(LAYERS.get(package, ())):
        if place in places.split():
            return place, row
    return None


def describe_fault(module: Module, found: Import) -> str | None:
    """What is wrong with an import, or None."""
    at = f"{module.name}:{found.line} imports {found.target}"
    height, target = height_of(module.name), height_of(found.target)
    if target is None:
        return f"{at}, which is on no floor: import from the module that defines the name"
    assert height is not None
    if found.deferred and floor_of(found.target) in CONVENIENCES.get(module.name, ()):
        return None
    if target > height:
        return f"{at}, which is above it"
    mine, theirs = layer_of(module.name), layer_of(found.target)
    if target < height or mine is None or theirs is None or mine[0] == theirs[0]:
        return None
    return None if theirs[1] < mine[1] else f"{at}, which is in no lower layer"


def misplaced_imports(module: Module) -> list[str]:
    """One sentence for each import of a module that goes against the plan."""
    if module.name in house.PACKAGES:
        return []
    if height_of(module.name) is None:
        return [f"{module.name} is a new floor: place it in tests/floors.py, above all it imports"]
    package_is_layered = module.package in LAYERS and module.name != module.package
    if package_is_layered and layer_of(module.name) is None:
        return [f"{module.name} is new: place it in LAYERS of tests/floors.py"]
    faults = (describe_fault(module, found) for found in house.list_imports(module, MODULES))
    return [fault for fault in faults if fault is not None]


def planted(name: str, source: str) -> Module:
    """A module of our own making."""
    return Module(name, Path(f"{name}.py"), ast.parse(source))


def printing_lines(module: Module) -> list[int]:
    """The lines of a module that call print."""
    return [
        node.lineno
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "print"
    ]


def test_packages_are_found() -> None:
    assert len(MODULES) > 100, "no modules: the other checks here would be empty"
    tops = {name.split(".")[0] for name in MODULES}
    assert tops == set(house.PACKAGES)


@every_module
def test_imports_flow_one_way(module: Module) -> None:
    assert misplaced_imports(module) == []


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("arbiter.pricing.transport", "from arbiter.surface import Surface\n"),
        ("arbiter.pricing.transport", "from .surface import Surface\n"),
        ("arbiter.pricing.transport", "from . import surface\n"),
        ("arbiter.pricing.transport", "from arbiter import surface\n"),
        ("arbiter.pricing.transport", "import arbiter.surface as surface\n"),
        ("arbiter.pricing.transport", "def price():\n    from arbiter.surface import Surface\n"),
        ("arbiter.pricing.transport", "if TYPE_CHECKING:\n    from arbiter.surface import S\n"),
        ("arbiter.pricing.transport", "from arbiter.pricing.mixture import Mixture\n"),
        ("arbiter.operators.prior.slice_offsets", "from arbiter.operators.law import network\n"),
        ("arbiter.surface", "from arbiter.report import plot_surface\n"),
        ("arbiter.surface", "def save():\n    from arbiter.cli import main\n"),
        ("arbiter.audit.certificate", "from arbiter import Surface\n"),
        ("arbiter.pipeline", "from arbiter_lab.metrics.metric import Metric\n"),
        ("arbiter.cli", "def f():\n    from arbiter_lab.training.loop import train\n"),
        ("arbiter_lab.metrics.desk", "from arbiter_lab.training.loop import train\n"),
    ],
)
def test_planted_backward_import_is_found(name: str, source: str) -> None:
    assert len(misplaced_imports(planted(name, source))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("arbiter.surface", "from arbiter.pricing.transport import Transport\nimport math\n"),
        ("arbiter.surface", "def plot(self):\n    from arbiter import report\n"),
        ("arbiter.surface", "if TYPE_CHECKING:\n    from arbiter.audit.certificate import C\n"),
        ("arbiter.pricing.mixture", "from arbiter.pricing.transport import Transport\n"),
        ("arbiter_lab.training.loop", "from arbiter.surface import Surface\n"),
    ],
)
def test_permitted_import_is_not_reported(name: str, source: str) -> None:
    assert misplaced_imports(planted(name, source)) == []


@pytest.mark.parametrize("name", ["arbiter.attic", "arbiter.pricing.attic", "arbiter_lab.attic"])
def test_an_unknown_place_is_asked_for(name: str) -> None:
    assert "tests/floors.py" in misplaced_imports(planted(name, "import math\n"))[0]


def test_the_library_never_imports_the_lab() -> None:
    library = [m for name, m in MODULES.items() if name.split(".")[0] == "arbiter"]
    targets = [i.target for module in library for i in house.list_imports(module, MODULES)]
    assert targets
    assert [target for target in targets if target.startswith("arbiter_lab")] == []
    strings = [
        node.value
        for module in library
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    assert [text for text in strings if re.fullmatch(r"arbiter_lab[\w.]*", text)] == []


def test_no_two_packages_import_each_other() -> None:
    assert house.find_package_cycles(MODULES) == []
    assert house.find_module_cycle(MODULES) == []


def test_planted_circles_are_found() -> None:
    sources = {
        "arbiter.audit.grid": "from arbiter.vix import strip\n",
        "arbiter.vix.strip": "def f():\n    from arbiter.audit import grid\n",
    }
    made = {name: planted(name, source) for name, source in sources.items()}
    assert house.find_package_cycles(made) == [("arbiter.audit", "arbiter.vix")]
    assert house.find_module_cycle(made) == []  # the second import runs later
    made["arbiter.vix.strip"] = planted("arbiter.vix.strip", "from arbiter.audit import grid\n")
    assert house.find_module_cycle(made)[0] == "arbiter.audit.grid"


@every_module
def test_no_private_name_of_another_module_is_read(module: Module) -> None:
    assert house.list_private_reads(module) == []


def test_no_test_pins_a_private_name() -> None:
    folders = (house.ROOT / "tests", house.ROOT / "lab" / "tests")
    files = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    assert len(files) > 100
    texts = {path: path.read_text(encoding="utf-8") for path in files}
    found = [
        read
        for path, text in texts.items()
        for read in house.list_private_reads(Module(path.stem, path, ast.parse(text)))
    ]
    assert found == []
    patched = re.compile(r"setattr\(\s*[\w.]+,\s*\"_[a-zA-Z]|setattr\(\s*\"arbiter[\w.]*\._")
    assert [path.name for path, text in texts.items() if patched.search(text)] == []
    assert patched.search('monkeypatch.setattr(loop, "_' + 'find", 1)')


@pytest.mark.parametrize(
    "source",
    [
        "from arbiter.black import _narrow\n",
        "from arbiter.pricing import black\nblack._narrow(1)\n",
        "def f(operator):\n    return operator._network\n",
    ],
)
def test_a_planted_private_read_is_found(source: str) -> None:
    assert len(house.list_private_reads(planted("arbiter.attic", source))) == 1


def test_own_and_foreign_private_names_may_be_read() -> None:
    source = "import os\n\ndef _own(): ...\n\ndef f(row):\n    row._replace(a=1)\n    os._exit(0)\n"
    assert house.list_private_reads(planted("arbiter.attic", source)) == []


@every_module
def test_package_does_not_print(module: Module) -> None:
    assert printing_lines(module) == []


def test_planted_print_is_found() -> None:
    source = "console.print('allowed')\nprint('not allowed')\n"
    assert printing_lines(planted("arbiter.loud", source)) == [2]


@every_module
def test_module_is_short_enough_to_read(module: Module) -> None:
    lines = len(module.path.read_text(encoding="utf-8").splitlines())
    assert lines <= house.LONGEST_MODULE, f"{module.name} has {lines}: split it at two concepts"


def test_the_limits_of_the_house_are_kept() -> None:
    measures = house.measure_house()
    assert [f"{m.name}: {m.value}" for m in measures if not m.kept] == []
    page = house.PAGE.read_text(encoding="utf-8")
    assert house.fill_page(page, house.format_table(measures)) == page, (
        "docs/house.md is not of today: python tools/house.py --write"
    )


def test_sentences_are_counted() -> None:
    page = (
        "# A heading of many words that does not count\n\nOne, two: three. Four `code` five!\n\n"
        "| a | table |\n\n- six seven\n- eight [nine](target.md)\n\n```python\nx = 1.0\n```\n"
    )
    assert [sentences.count_words(s) for s in sentences.prose_of(page)] == [3, 3, 2, 2]
    names = list(house.list_functions(ast.parse("def one(): ...\ndef __init__(): ...\n")))
    assert names == ["one"]
    assert house.is_one_word("_one")
    assert not house.is_one_word("one_two")


def loaded_after(statement: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}; import sys; sys.stdout.write(' '.join(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(result.stdout.split())


def test_command_line_starts_without_torch_and_numpy() -> None:
    assert {"numpy", "torch"}.isdisjoint(loaded_after("import arbiter.cli"))


def test_loaded_torch_and_numpy_are_seen() -> None:
    assert {"numpy", "torch"} <= loaded_after("import torch, numpy")


def test_a_fit_without_a_report_starts_without_its_packages() -> None:
    unwanted = {"jinja2", "matplotlib", "plotly", "scipy.optimize", "scipy.signal", "torch"}
    assert unwanted.isdisjoint(loaded_after("import arbiter.pipeline"))
    drawn = loaded_after("import arbiter.report.page, arbiter.report.pictures")  # the control
    assert {"jinja2", "matplotlib", "plotly"} <= drawn


def test_folders_do_not_hide_functions_of_the_same_name() -> None:
    """``ab.audit`` and ``ab.vix`` are functions whatever has been imported before."""
    program = (
        "import arbiter.audit.certificate, arbiter.vix.index_rule\n"
        "from arbiter.audit import grid\n"
        "import arbiter as ab\n"
        "assert ab.audit.__name__ == 'audit' and callable(ab.audit)\n"
        "assert ab.vix.__name__ == 'vix' and callable(ab.vix)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
