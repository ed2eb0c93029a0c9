"""`make surface CHAIN=path` hands any path to the command as it is."""

import shutil
import subprocess
from pathlib import Path

import pytest

MAKEFILE = Path(__file__).parent.parent / "Makefile"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with the Makefile, and a command that prints its arguments one a line."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    (tmp_path / "lab").mkdir()
    for name in ("pyproject.toml", "lab/pyproject.toml", "constraints.txt", "hashes.txt"):
        (tmp_path / name).touch()
    command = tmp_path / ".venv" / "bin" / "arbiter"
    command.parent.mkdir(parents=True)
    command.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    command.chmod(0o755)
    (tmp_path / ".venv" / ".ready").touch()
    shutil.copy(MAKEFILE, tmp_path)
    return tmp_path


def surface(project: Path, *variables: str) -> list[str]:
    made = subprocess.run(
        ["make", "-s", "surface", *variables], cwd=project, capture_output=True, check=True
    )
    return made.stdout.decode().splitlines()


def test_without_a_chain_the_command_takes_its_own(project: Path) -> None:
    assert surface(project) == ["fit", "--out", "out"]


@pytest.mark.parametrize(
    "path", ["a.csv", "my chains/a b.csv", "it's.csv", 'q"q.csv', "größe;ls.csv"]
)
def test_paths_arrive_whole(project: Path, path: str) -> None:
    found = surface(project, f"CHAIN={path}", "OUT=my 'out'")
    assert found == ["fit", path, "--out", "my 'out'"]
