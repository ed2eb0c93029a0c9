"""Compiled functions: where they are kept, for which state of the package, and what is said."""

from __future__ import annotations

import ast
import gc
import logging
import os
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from numba import njit
from numba.core import event

from arbiter import compiled
from arbiter.cli.console_log import show_only_notices
from arbiter.compiled import config
from arbiter.surface import Surface


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is known of folders or said before, nor after."""
    forget_folders()
    compiled.log_compiling.cache_clear()
    yield
    forget_folders()


def forget_folders() -> None:
    compiled.find_cache_folder.cache_clear()
    compiled.hash_rooms.cache_clear()


def written(folder: Path, factor: float) -> Callable[[float], float]:
    """A function of a module in a folder."""
    path = folder / "made.py"
    path.write_text(f"def times(x):\n    return {factor} * x\n")
    room: dict[str, object] = {"__name__": "arbiter.made"}
    exec(compile(path.read_text(), str(path), "exec"), room)
    return cast(Callable[[float], float], room["times"])


def test_the_digest_is_that_of_every_module(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("A = 1")
    (tmp_path / "inner" / "b.py").write_text("B = 1")
    (tmp_path / "inner" / "c.txt").write_text("no module")
    sources = [tmp_path / "a.py", tmp_path / "inner"]
    first = compiled.hash_sources(sources)
    (tmp_path / "inner" / "c.txt").write_text("whatever")
    assert compiled.hash_sources(sources) == first
    (tmp_path / "inner" / "b.py").write_text("B = 2")
    second = compiled.hash_sources(sources)
    (tmp_path / "inner" / "b.py").rename(tmp_path / "inner" / "d.py")
    third = compiled.hash_sources(sources)
    (tmp_path / "a.py").write_text("A = 2")
    assert len({first, second, third, compiled.hash_sources(sources)}) == 4


def imported(path: Path) -> set[str]:
    """Rooms of the package that a module imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "arbiter":
            inner = (node.module or "").split(".")[1:2] or [alias.name for alias in node.names]
            found |= set(inner)
    return found


def test_all_that_compiled_functions_are_made_of_is_looked_at() -> None:
    package = Path(compiled.__file__).parent
    decorated = re.compile(r"^@(compiled|inlined)$", re.MULTILINE)
    users = [p for p in package.rglob("*.py") if decorated.search(p.read_text(encoding="utf-8"))]
    rooms = {Path(name).stem for name in compiled.ROOMS}
    assert len(users) > 5
    for name in compiled.ROOMS:
        assert (package / name).exists(), f"{name}: without it nothing is kept"
    for path in users:
        assert path.relative_to(package).parts[0] in compiled.ROOMS, path
        assert imported(path) <= rooms, f"{path.name}: add what it imports to ROOMS"
    assert "quotes" in imported(package / "operators" / "pretrained.py")


def test_machine_code_of_the_package_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    folder = compiled.find_cache_folder(compiled.ROOMS[-1])
    assert folder is not None
    assert folder.parent == tmp_path
    monkeypatch.setattr(compiled, "ROOMS", (*compiled.ROOMS, "gone.py"))  # the control
    forget_folders()
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) is None


def test_what_is_kept_belongs_to_one_state_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version leaves nothing behind, and the compiler's own folder is as it was."""
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    monkeypatch.setattr(compiled, "ROOMS", ("made.py",))
    monkeypatch.setattr(config, "CACHE_DIR", "")
    times = compiled.compiled(written(tmp_path, 2.0))
    first = compiled.find_cache_folder(compiled.ROOMS[-1])
    assert times(1.5) == 3.0
    assert first is not None
    assert first.parent == tmp_path / "__pycache__"
    assert list(first.rglob("made.times*.nbc"))
    assert config.CACHE_DIR == ""
    forget_folders()
    again = compiled.compiled(written(tmp_path, 3.0))
    assert again(1.5) == 4.5
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) != first
    assert first.exists()  # it may still be written to
    os.utime(first, (0.0, 0.0))
    forget_folders()
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) != first
    assert not first.exists()


def test_a_folder_of_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "mine"))
    folder = compiled.find_cache_folder(compiled.ROOMS[-1])
    assert folder is not None
    assert folder.parent == tmp_path / "mine"
    other = tmp_path / "mine" / "arbiter-compiled-other"  # of another installation: not ours
    other.mkdir()
    os.utime(other, (0.0, 0.0))
    forget_folders()
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) == folder
    assert other.exists()
    monkeypatch.setattr(config, "BOUNDSCHECK", 1)
    forget_folders()
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) != folder


def test_without_a_home_or_a_state_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    (tmp_path / "made.py").touch()
    monkeypatch.setattr(compiled, "ROOMS", ("made.py",))
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) is not None  # the package's own folder
    (tmp_path / "__pycache__").rename(tmp_path / "gone")
    (tmp_path / "__pycache__").touch()
    forget_folders()
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) is None
    monkeypatch.setattr(compiled, "ROOMS", ("none.py",))
    forget_folders()
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) is None


def test_a_room_keeps_its_code_when_one_above_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("low", "high"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "made.py").write_text("A = 1")
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    monkeypatch.setattr(compiled, "ROOMS", ("low", "high"))
    monkeypatch.setattr(config, "CACHE_DIR", "")

    def folders() -> list[Path | None]:
        forget_folders()
        return [compiled.find_cache_folder(room) for room in ("low", "high")]

    low, high = folders()
    (tmp_path / "high" / "made.py").write_text("A = 2")
    assert folders()[0] == low
    assert folders()[1] != high
    (tmp_path / "low" / "made.py").write_text("A = 2")
    assert folders()[0] != low


def test_functions_of_others_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Also those that do not say where they come from."""
    room: dict[str, object] = {}
    exec("def double(x):\n    return 2.0 * x", room)
    theirs = cast(types.FunctionType, room["double"])
    theirs.__module__ = None  # type: ignore[assignment]
    quick: Any = njit(theirs)
    assert quick(1.5) == 3.0
    assert not caplog.messages


def test_the_collector_of_cycles_rests_while_the_package_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is as before afterwards; it goes on while functions of others, the control, compile."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))

    def collects_meanwhile(function: Any) -> set[bool]:
        found = set()

        class Watch(event.Listener):
            def on_start(self, event: Any) -> None:
                found.add(gc.isenabled())

            def on_end(self, event: Any) -> None:
                found.add(gc.isenabled())

        with event.install_listener("numba:run_pass", Watch()):
            function(1.5)
        return found

    assert gc.isenabled()
    assert collects_meanwhile(compiled.compiled(written(tmp_path, 2.0))) == {False}
    assert gc.isenabled()
    assert collects_meanwhile(njit(lambda x: 2.0 * x)) == {True}
    gc.disable()
    try:
        assert collects_meanwhile(compiled.compiled(written(tmp_path, 3.0))) == {False}
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_what_cannot_be_kept_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a folder should be there is a file; and it is said once that this takes long."""
    (tmp_path / "file").touch()
    (tmp_path / "__pycache__").touch()
    (tmp_path / "made.py").touch()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    monkeypatch.setattr(compiled, "ROOMS", ("made.py",))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert compiled.find_cache_folder(compiled.ROOMS[-1]) is None
    with caplog.at_level(logging.WARNING):
        assert compiled.compiled(written(tmp_path, 2.0))(1.5) == 3.0
        assert compiled.compiled(written(tmp_path, 3.0))(1.5) == 4.5
    (told,) = [m for m in caplog.messages if "compiling for this machine" in m]
    assert compiled.NOTHING_KEPT in told


def test_a_function_without_a_file_is_compiled_all_the_same() -> None:
    room: dict[str, object] = {"__name__": "arbiter.nowhere"}
    exec("def double(x):\n    return 2.0 * x", room)
    double = compiled.compiled(cast(Callable[[float], float], room["double"]))
    assert double(1.5) == 3.0


def test_the_notice_is_shown_while_a_command_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The compiler's notice asks for patience; warnings, the control, are the result's."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    with show_only_notices():
        assert compiled.compiled(written(tmp_path, 2.0))(1.5) == 3.0
        logging.getLogger("arbiter.operators").warning("odd quotes")
    told = "compiling for this machine, which takes up to a minute the first time\n"
    assert capsys.readouterr().err == told


PROGRAM = """
import sys
sys.modules["numba"] = None
import numpy as np
from arbiter.surface import Surface
surface = Surface.from_slopes([-1.0, 0.0, 1.0], [0.25, 1.0], [[0.1, 0.09, 0.1], [0.2, 0.19, 0.2]])
sys.stdout.write(repr(surface.iv(np.array([-0.3, 0.0, 0.2]), 0.6).tolist()))
"""


def test_without_the_compiler_the_numbers_are_the_same() -> None:
    """A machine that only trains networks has none."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True
    )
    slopes = [[0.1, 0.09, 0.1], [0.2, 0.19, 0.2]]
    surface = Surface.from_slopes([-1.0, 0.0, 1.0], [0.25, 1.0], slopes)
    expected = surface.iv(np.array([-0.3, 0.0, 0.2]), 0.6)
    assert ast.literal_eval(done.stdout) == pytest.approx(expected.tolist(), rel=1e-13)
