"""One owner of a folder at a time, by a lock of the operating system.

The system releases the lock when its process ends, however it ends: what a dead owner left behind
never blocks the next one.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from arbiter.files.formats import require_folder

LOCK_FILE = ".arbiter-lock"


class FolderInUseError(ValueError):
    """Another run owns the folder; the message names the owner and the remedy."""


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int) -> bool:
        os.lseek(file, 2**30, os.SEEK_SET)  # behind the text, which others may read
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def own_folder(folder: str | PathLike[str]) -> Iterator[None]:
    """Own a folder for the time of the block; it is made, and goes again if it stays empty.

    Raises:
        FolderInUseError: If another run owns it, in this process or in any other.
        ValueError: If it cannot be a folder, or be written to.
    """
    require_folder(folder)
    place = Path(folder)
    new = [each for each in (place, *place.parents) if not each.exists()]
    try:
        file = _acquire(place)
        try:
            yield
        finally:
            with suppress(OSError):  # a system that cannot remove an open file keeps it, unlocked
                (place / LOCK_FILE).unlink()
            os.close(file)
    finally:
        with suppress(OSError):  # not empty, or somebody else's by now
            for each in new:
                each.rmdir()


def _acquire(folder: Path) -> int:
    path = folder / LOCK_FILE
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        except (FileNotFoundError, FileExistsError):
            if folder.is_file():
                raise
            continue  # the owner before us has just removed its empty folder
        try:
            if not _try_lock(file):
                raise FolderInUseError(
                    f"{folder} is in use by {_read_owner(path)}: wait until it ends, or name "
                    "another folder"
                )
            if _is_same_file(file, path):
                with suppress(OSError):  # a full disk keeps no name, and the lock holds
                    _write_owner(file)
                return file
        except BaseException:
            os.close(file)
            raise
        os.close(file)  # it was removed by its owner before it was ours: the next one counts


def _is_same_file(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _write_owner(file: int) -> None:
    owner = f"process {os.getpid()} on {platform.node() or 'this machine'}"
    os.ftruncate(file, 0)
    os.lseek(file, 0, os.SEEK_SET)
    os.write(file, owner.encode(errors="replace"))


def _read_owner(path: Path) -> str:
    with suppress(OSError):
        text = path.read_bytes()[:200].decode(errors="replace")
        if text.isprintable() and text:
            return text
    return "another run"
