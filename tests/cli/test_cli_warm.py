"""`arbiter warm`: what is compiled, where it is kept, and what is said where it cannot be."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from typer.testing import CliRunner

from arbiter import compiled
from arbiter.cli import app, warm_command


def plant(factor: float) -> Callable[[float], float]:
    """A function of the package that nobody has compiled."""
    room: dict[str, object] = {"__name__": "arbiter.planted"}
    exec(f"def times(x):\n    return {factor} * x\n", room)
    return compiled.compiled(cast(Callable[[float], float], room["times"]))


def two_parts() -> Iterator[str]:
    times = plant(2.0)
    yield "compiling"
    assert times(1.5) == 3.0
    yield "again"
    assert times(2.5) == 5.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where machine code is kept; nothing of the library is run."""
    monkeypatch.setattr(compiled, "find_cache_folder", lambda room: tmp_path / Path(room).stem)
    monkeypatch.setattr(warm_command, "run_every_part", two_parts)
    return tmp_path


def test_every_part_is_timed_and_its_functions_are_counted() -> None:
    told: list[warm_command.WarmStep] = []
    steps = warm_command.time_steps(two_parts(), told.append)
    assert steps == told
    assert [(step.name, step.functions) for step in steps] == [("compiling", 1), ("again", 0)]
    assert all(step.seconds > 0.0 for step in steps)
    assert warm_command.time_steps(iter(()), None) == []


def test_the_command_says_what_it_compiled_and_where_it_is_kept(folder: Path) -> None:
    result = CliRunner().invoke(app, ["warm", "--json"])
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["folders"] == [str(folder / Path(room).stem) for room in compiled.ROOMS]
    assert [step["name"] for step in found["steps"]] == ["compiling", "again"]
    assert found["functions"] == 1
    shown = CliRunner().invoke(app, ["warm"])
    assert shown.exit_code == 0
    assert str(folder / "pricing") in shown.stdout
    assert "compiling" in shown.stdout


def test_where_nothing_can_be_kept_it_says_so_and_compiles_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "find_cache_folder", lambda _: None)

    def never() -> Iterator[str]:
        raise AssertionError("compiled in vain")

    monkeypatch.setattr(warm_command, "run_every_part", never)
    for arguments in (["warm"], ["warm", "--json"]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 1
        assert result.stdout == ""
        assert "NUMBA_CACHE_DIR" in result.stderr
