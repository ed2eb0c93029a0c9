"""A result of several files, written beside the one that is there and put in its place whole.

A run writes its files into a hidden folder inside the result's own. One rename of that folder
decides: before it the old result stands, after it the new one holds. Then the files of the old
result go and those of the new one come, the file that completes a result going first and coming
last. So files of two runs never lie side by side, and a result whose last file is there is whole.
A process that is killed on the way leaves either the old result or all that is needed to finish,
which the next run that owns the folder does first. Files of others are never touched.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from arbiter.files.folder_locks import own_folder
from arbiter.files.whole_files import write_whole

_WRITING, _DECIDED = ".arbiter-writing", ".arbiter-decided"
_PLAN = "plan.json"


@dataclass(frozen=True)
class ResultFolder:
    """A folder with one result at a time.

    Attributes:
        folder: Where the result is.
        last: Name of the file that completes a result, JSON with its list of files in ``files``.
        is_own: Whether a file of that name, relative to the folder, can be one of a result.
    """

    folder: Path
    last: str
    is_own: Callable[[PurePosixPath], bool]

    @contextmanager
    def replace(self) -> Iterator[Path]:
        """An empty folder to write the new result into; it replaces the old one at the end.

        Raises:
            FolderInUseError: If another run owns the folder.
            ValueError: If the result lacks the file that completes it.
        """
        with own_folder(self.folder):
            self._finish()
            made = self.folder / _WRITING
            made.mkdir()
            try:
                yield made
                files = sorted(
                    p.relative_to(made).as_posix() for p in made.rglob("*") if p.is_file()
                )
                if self.last not in files:
                    raise ValueError(f"a result without {self.last} is not complete")
                plan = {"new": files, "old": self._list_old()}
                write_whole(made / _PLAN, json.dumps(plan))
                for name in files:
                    _flush_file(made / name)
                made.rename(self.folder / _DECIDED)  # from here on the new result holds
            except BaseException:
                shutil.rmtree(made, ignore_errors=True)
                raise
            self._finish()

    def _list_old(self) -> list[str]:
        """The files of the result that is there: those that its last file names, and it itself."""
        try:
            found = json.loads((self.folder / self.last).read_text(encoding="utf-8"))
            names = found["files"]
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return []
        return self._keep_own(names)

    def _finish(self) -> None:
        """End what an earlier run, or this one, has decided; remove what it has not."""
        shutil.rmtree(self.folder / _WRITING, ignore_errors=True)
        decided = self.folder / _DECIDED
        if (decided / _PLAN).exists():
            new, old = self._read_plan(decided / _PLAN)
            # what has come already is not there to come, and stays
            gone = [*(name for name in new if (decided / name).exists()), *(set(old) - set(new))]
            for name in sorted(gone, key=lambda name: name != self.last):
                (self.folder / name).unlink(missing_ok=True)
            for name in sorted(new, key=lambda name: name == self.last):
                _move_file(decided / name, self.folder / name)
            for name in old:
                with suppress(OSError):  # not empty
                    (self.folder / name).parent.rmdir()
            (decided / _PLAN).unlink()
        shutil.rmtree(decided, ignore_errors=True)

    def _read_plan(self, path: Path) -> tuple[list[str], list[str]]:
        try:
            plan = json.loads(path.read_text(encoding="utf-8"))
            return self._keep_own(plan["new"]), self._keep_own(plan["old"])
        except (ValueError, RecursionError, KeyError, TypeError) as error:
            raise ValueError(
                f"{path.parent} is not what a run left ({error}): remove it"
            ) from error

    def _keep_own(self, names: object) -> list[str]:
        """Names that a result can have: a list from a file may say anything."""
        if not isinstance(names, list):
            return []
        plain = [name for name in names if isinstance(name, str)]
        return [name for name in plain if self.is_own(PurePosixPath(name))]


def _move_file(source: Path, target: Path) -> None:
    if not source.exists():  # it has come already
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        source.replace(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        write_whole(target, source.read_bytes())  # a folder that is a link to another disk
        source.unlink()


def _flush_file(path: Path) -> None:
    with path.open("rb+") as file:
        os.fsync(file.fileno())
