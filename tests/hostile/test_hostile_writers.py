"""Killed, raced and starved writers leave the old result or the new one, and nothing between."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import arbiter as ab
import hostile_writers
from arbiter.data import example_chain_path
from arbiter.files import FolderInUseError, own_folder, write_whole
from arbiter.files.result_folder import ResultFolder
from arbiter.pipeline import Job, run_job
from counts import count
from hostile_cases import child_environment
from hostile_writers import is_own, list_runs, require_one_run, write_result

PROGRAM = Path(hostile_writers.__file__)
MOST_STEPS = 200  # changes of the file system that a result takes, with room
HIDDEN = (".arbiter-lock", ".arbiter-writing", ".arbiter-decided")
ENVIRONMENT = child_environment()


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(PROGRAM), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)


def kill_after(child: subprocess.Popen[str], seconds: float) -> None:
    """Kill a writer some time after its first result."""
    assert child.stdout is not None
    assert child.stdout.readline()
    time.sleep(seconds)
    child.kill()
    child.wait()
    child.stdout.close()


def test_a_result_that_is_killed_at_any_step_is_old_or_new_and_never_mixed(tmp_path: Path) -> None:
    seen: set[int | None] = set()
    for step in range(1, MOST_STEPS):
        folder = tmp_path / str(step)
        write_result(folder, 1)
        (folder / "mine.txt").write_text("mine")
        (folder / "pictures" / "mine.png").write_text("mine")
        program = [sys.executable, str(PROGRAM), "step", str(step), str(folder)]
        died = subprocess.run(program, env=ENVIRONMENT, check=False).returncode == 9
        before = require_one_run(folder)
        assert list_runs(folder) <= {1, 2}
        seen.add(before)
        decided = (folder / ".arbiter-decided").exists()
        with ResultFolder(folder, "fit.json", is_own).replace() as made:
            # whoever comes next finishes first
            after = require_one_run(folder)
            assert after == (2 if decided or before == 2 else 1)
            (made / "fit.json").write_text(json.dumps({"run": 3, "files": ["fit.json"]}))
        assert require_one_run(folder) == 3
        assert (folder / "mine.txt").read_text() == "mine"
        assert (folder / "pictures" / "mine.png").read_text() == "mine"
        assert not any((folder / name).exists() for name in HIDDEN)
        if not died:
            break
    assert not died  # every step was tried
    assert seen == {1, 2, None}


def test_results_survive_kills_at_random_moments(tmp_path: Path, rng: np.random.Generator) -> None:
    for _ in range(count(full=600, reduced=8)):
        kill_after(start("results", tmp_path), rng.uniform(0.0, 0.03))
        require_one_run(tmp_path)
    write_result(tmp_path, 7)
    assert require_one_run(tmp_path) == 7
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"fit.json", "surface.npz", "report.html", "pictures"}


def test_a_surface_survives_kills_at_random_moments(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    path = tmp_path / "surface.npz"
    ab.example().save(path)
    whole = path.read_bytes()
    for _ in range(count(full=100, reduced=2)):
        kill_after(start("surface", path), rng.uniform(0.0, 0.03))
        assert path.read_bytes() == whole


def test_a_killed_fit_leaves_one_whole_result(tmp_path: Path, rng: np.random.Generator) -> None:
    chain, out = small_chain(tmp_path), tmp_path / "out"
    run_job(chain, out, Job(report=False))
    seconds = 2.0
    for number in range(count(full=100, reduced=2)):
        command = "from arbiter.cli import main; main()"
        options = ["--no-report", "--roughness", f"1,1,{1 + number}"]
        child = subprocess.Popen(
            [sys.executable, "-c", command, "fit", chain, "--out", out, *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
        )
        time.sleep(rng.uniform(0.3, seconds))
        child.kill()
        child.wait()
        summary = json.loads((out / "fit.json").read_text())
        assert runs_of(out) == {summary["run"]}


def test_threads_and_processes_that_save_to_one_path_leave_it_whole(tmp_path: Path) -> None:
    path = tmp_path / "surface.npz"
    surface = ab.example()
    surface.save(path)
    whole = path.read_bytes()
    others = [start("surface", path) for _ in range(2)]
    for _ in range(count(full=200, reduced=20)):
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(surface.save, path) for _ in range(4)]:
                done.result()
        assert path.read_bytes() == whole
    for child in others:
        kill_after(child, 0.0)
    left = {each.name for each in tmp_path.iterdir()} - {path.name}
    assert len(left) <= 2  # of the two that were killed
    assert all(name.startswith(".") for name in left)


def test_a_folder_has_one_owner_and_the_second_is_told(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "owns\n"
    with (
        pytest.raises(FolderInUseError, match=f"process {child.pid} on .*: wait until it ends"),
        own_folder(tmp_path),
    ):
        pass
    child.kill()  # a dead owner does not block
    child.wait()
    child.stdout.close()
    with own_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


OWNER = """
import sys, time
from arbiter.files import own_folder
with own_folder(sys.argv[1]):
    print("owns", flush=True)
    time.sleep(600)
"""


def test_runs_of_one_folder_never_share_it(tmp_path: Path) -> None:
    """Many threads at once: each owns it alone, or is refused."""
    inside, most = 0, 0
    lock, ended = threading.Lock(), []

    def own(_: int) -> None:
        nonlocal inside, most
        try:
            with own_folder(tmp_path / "made"):
                with lock:
                    inside += 1
                    most = max(most, inside)
                time.sleep(0.0005)
                with lock:
                    inside -= 1
            ended.append("owned")
        except FolderInUseError:
            ended.append("refused")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(own, range(count(full=2_000, reduced=200))))
    assert most == 1
    assert {"owned"} <= set(ended)
    assert not (tmp_path / "made").exists() or list((tmp_path / "made").iterdir()) == []


def small_chain(folder: Path) -> Path:
    """Some expiries of the shipped chain."""
    lines = example_chain_path().read_text().splitlines(keepends=True)
    kept = [line for line in lines[4:] if re.match(r"^\w+ Nov (06|13|20|27) 20\d\d,", line)]
    return write_whole(folder / "chain.csv", "".join(lines[:4] + kept))


def runs_of(folder: Path) -> set[str]:
    """The runs that the files of a fit name."""
    told = [json.loads((folder / f"{name}.json").read_text()) for name in ("fit", "certificate")]
    found = {each["run"] for each in told}
    found.add(ab.Surface.load(folder / "surface.npz").info["run"])
    if (folder / "report.html").exists():
        text = (folder / "report.html").read_text()
        found |= set(re.findall(r'<meta name="arbiter-run" content="(\w+)">', text))
    return found


def test_two_fits_into_one_folder_leave_the_files_of_one(tmp_path: Path) -> None:
    chain, out = small_chain(tmp_path), tmp_path / "out"
    jobs = [Job(report=False, holdout=share) for share in (None, 0.1, 0.2, 0.3)]

    def work(job: Job) -> str:
        try:
            return str(run_job(chain, out, job).summary["run"])
        except FolderInUseError:
            return "refused"

    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(work, jobs))
    (run,) = runs_of(out)
    assert run in ended
    assert not any((out / name).exists() for name in HIDDEN)


STARVED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from arbiter.cli import main
main()
"""


def test_a_disk_that_is_full_leaves_the_old_result_whole(tmp_path: Path) -> None:
    """Files end at a limit, at which a write fails as on a full disk."""
    chain, out = small_chain(tmp_path), tmp_path / "out"
    assert run_job(chain, out, Job(report=True)).summary["files"][-1] == "fit.json"
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    largest = max(map(len, before.values()))
    for limit in np.geomspace(1.0, 0.9 * largest, count(full=60, reduced=2)).astype(int):
        child = subprocess.run(
            [sys.executable, "-c", STARVED, str(limit), "fit", chain, "--out", out, "--seed", "3"],
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )
        assert child.returncode == 2, child.stderr
        assert "Traceback" not in child.stderr
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before
    done = run_job(chain, out, Job(report=True, seed=3))  # the control: with room it is replaced
    assert runs_of(out) == {done.summary["run"]}


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a file"):
        ab.Surface.load(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a file"):
        ab.read_chain(tmp_path / "pipe")


def test_the_limit_of_a_file_is_one_of_this_system() -> None:
    """The control: where there is no such limit the test of a full disk shows nothing."""
    assert hasattr(resource, "RLIMIT_FSIZE")
