"""Writers that are killed, starved of room or raced: programs of their own, by name.

python tests/hostile_writers.py results FOLDER   results one after another, each with its run
python tests/hostile_writers.py surface PATH     surfaces one after another, to one path
python tests/hostile_writers.py step N FOLDER    one result, killed at its N-th change of a file
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from arbiter.files.result_folder import ResultFolder

LAST = "fit.json"
NAMES = ("surface.npz", "report.html", "pictures/a.png", "pictures/b.png")
_SIZE = 20_000  # bytes of a file
_CHANGES = ("rename", "replace", "unlink", "mkdir", "rmdir", "open")


def is_own(name: PurePosixPath) -> bool:
    return str(name) in (LAST, *NAMES)


def write_result(folder: Path, run: int) -> None:
    """A result whose files all say the number of their run; every other one has no report."""
    with ResultFolder(folder, LAST, is_own).replace() as made:
        (made / "pictures").mkdir()
        names = [name for name in NAMES if run % 2 or name != "report.html"]
        for name in names:
            (made / name).write_text(f"{run} " * (_SIZE // 4))
        (made / LAST).write_text(json.dumps({"run": run, "files": [*names, LAST]}))


def list_runs(folder: Path) -> set[int]:
    """The runs that the files of a folder say; a half-written one says what no run has."""
    runs = set()
    for name in (*NAMES, LAST):
        path = folder / name
        if path.exists():
            text = path.read_text()
            whole = name == LAST or len(set(text.split())) == 1
            runs.add(json.loads(text)["run"] if name == LAST else int(text.split()[0]))
            assert whole, f"{name} is of several runs"
    return runs


def require_one_run(folder: Path) -> int | None:
    """The one run of a folder's files; with the last of them, all of them are there."""
    runs = list_runs(folder)
    assert len(runs) <= 1, f"files of the runs {sorted(runs)} lie side by side"
    if not (folder / LAST).exists():
        return None
    told = json.loads((folder / LAST).read_text())
    missing = [name for name in told["files"] if not (folder / name).exists()]
    assert missing == []
    run: int = told["run"]
    return run


def write_results(folder: Path) -> None:
    for run in itertools.count(1):
        write_result(folder, run)
        print(run, flush=True)


def write_surfaces(path: Path) -> None:
    import arbiter as ab

    surface = ab.example()
    for run in itertools.count(1):
        surface.save(path)
        print(run, flush=True)


def die_at_step(number: int, folder: Path) -> None:
    """Write result 2, and end without a word at a change of the file system."""
    steps = itertools.count(1)

    def dying(change: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*given: Any, **named: Any) -> Any:
            if next(steps) == number:
                os._exit(9)
            return change(*given, **named)

        return wrapped

    for name in _CHANGES:
        setattr(os, name, dying(getattr(os, name)))
    write_result(folder, 2)
    os._exit(0)


def main() -> None:
    match sys.argv[1:]:
        case ["results", folder]:
            write_results(Path(folder))
        case ["surface", path]:
            write_surfaces(Path(path))
        case ["step", number, folder]:
            die_at_step(int(number), Path(folder))


if __name__ == "__main__":
    main()
