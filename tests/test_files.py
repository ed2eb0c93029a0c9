"""Files are whole or absent, and what killed writers left is swept away."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from arbiter.files import open_whole, remove_partial_files, write_whole


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    target = write_whole(tmp_path / "a.txt", "old")

    def write() -> None:
        with open_whole(target) as file:
            file.write(b"new")
            raise RuntimeError("halfway")

    with pytest.raises(RuntimeError, match="halfway"):
        write()
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_sweep_removes_what_the_dead_left_and_nothing_else(tmp_path: Path) -> None:
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
    )
    left = tmp_path / f".a.parquet.{int(dead.stdout)}.tmp"
    mine = tmp_path / f".b.parquet.{os.getpid()}.tmp"
    others = [tmp_path / ".notes.tmp", tmp_path / "a.parquet"]
    for path in (left, mine, *others):
        path.write_text("x")
    remove_partial_files(tmp_path)
    assert not left.exists()
    assert all(path.exists() for path in (mine, *others))
