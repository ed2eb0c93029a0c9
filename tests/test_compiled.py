"""Compiled functions: where they are kept, for which state of the package, and what is said."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from arbiter import compiled
from arbiter.compiled import config


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is known of folders or said before, nor after."""
    for known in (compiled.kept_in, compiled._say):
        known.cache_clear()
    yield
    compiled.kept_in.cache_clear()


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
    (tmp_path / "c.txt").write_text("no module")
    first = compiled.digest(tmp_path)
    (tmp_path / "c.txt").write_text("whatever")
    assert compiled.digest(tmp_path) == first
    (tmp_path / "inner" / "b.py").write_text("B = 2")
    second = compiled.digest(tmp_path)
    (tmp_path / "inner" / "b.py").rename(tmp_path / "inner" / "d.py")
    assert len({first, second, compiled.digest(tmp_path)}) == 3


def test_what_is_kept_belongs_to_one_state_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version leaves nothing behind, and the compiler's own folder is as it was."""
    monkeypatch.setattr(compiled, "_PACKAGE", tmp_path)
    monkeypatch.setattr(config, "CACHE_DIR", "")
    times = compiled.compiled(written(tmp_path, 2.0))
    first = compiled.kept_in()
    assert times(1.5) == 3.0
    assert first is not None
    assert first.parent == tmp_path / "__pycache__"
    assert list(first.rglob("made.times*.nbc"))
    assert config.CACHE_DIR == ""
    compiled.kept_in.cache_clear()
    again = compiled.compiled(written(tmp_path, 3.0))
    assert again(1.5) == 4.5
    assert compiled.kept_in() != first
    assert not first.exists()


def test_a_folder_of_the_users_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "mine"))
    folder = compiled.kept_in()
    assert folder is not None
    assert folder.parent == tmp_path / "mine"


def test_what_cannot_be_kept_is_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where a folder should be there is a file; and it is said once that this takes long."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path / "file"))
    assert compiled.kept_in() is None
    with caplog.at_level(logging.WARNING):
        assert compiled.compiled(written(tmp_path, 2.0))(1.5) == 3.0
        assert compiled.compiled(written(tmp_path, 3.0))(1.5) == 4.5
    assert [m for m in caplog.messages if "only the first time" in m] == caplog.messages[:1]


def test_a_function_without_a_file_is_compiled_all_the_same() -> None:
    room: dict[str, object] = {"__name__": "arbiter.nowhere"}
    exec("def double(x):\n    return 2.0 * x", room)
    double = compiled.compiled(cast(Callable[[float], float], room["double"]))
    assert double(1.5) == 3.0
