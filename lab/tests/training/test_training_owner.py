"""A run has one owner at a time: a second process is told, and a dead owner does not block."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tiny
from arbiter.files import FolderInUseError
from arbiter_lab.training.journal import read_steps
from arbiter_lab.training.loop import Limits
from arbiter_lab.training.run_folder import JOURNAL_FILE

OWNER = """
import sys, time
from arbiter.files import own_folder
with own_folder(sys.argv[1]):
    print("owns", flush=True)
    time.sleep(600)
"""


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.kept(tmp_path_factory.mktemp("pools"))


def test_a_run_that_is_trained_elsewhere_is_not_resumed(pools: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = tiny.settings(route="saddle")
    tiny.run(settings, run, pools, limits=Limits(steps=4))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    owner = subprocess.Popen([sys.executable, "-c", OWNER, run], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "owns\n"
    with pytest.raises(FolderInUseError, match=f"process {owner.pid} on .*: wait until it ends"):
        tiny.run(settings, run, pools, resume=True)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    after = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    assert {path.name for path in after.keys() - before.keys()} <= {".arbiter-lock"}
    assert all(after[path] == content for path, content in before.items())
    tiny.run(
        settings, run, pools, resume=True
    )  # the control: the owner is dead, and the run goes on
    assert read_steps(run / JOURNAL_FILE)["step"] == list(range(1, settings.steps + 1))
    assert not (run / ".arbiter-lock").exists()
