"""Atomic file writing, format versions and checks of output folders.

A file is written to a temporary name beside its place and then renamed, so that an interrupted
process never leaves half a file.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def open_whole(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; it replaces ``path`` when the block ends without error."""
    target = Path(path).resolve()  # a link keeps pointing at the file that is replaced
    partial = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


def write_whole(path: str | PathLike[str], content: str | bytes) -> Path:
    """Write ``content`` to ``path`` in one step, text as UTF-8, and return the path."""
    with open_whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)


def remove_partial_files(folder: str | PathLike[str]) -> None:
    """Remove temporary files of processes that no longer run from a folder."""
    for partial in Path(folder).glob(".*.tmp"):
        owner = partial.name.split(".")[-2]
        if owner.isdigit() and not _is_running(int(owner)):
            partial.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # somebody else's, or a system that does not say
        return True
    return True


def require_version(
    path: str | PathLike[str],
    version: object,
    newest: int,
    error: type[ValueError],
    remedy: str = "",
) -> None:
    """Raise a ``ValueError`` for a format version that is invalid or newer than ``newest``."""
    if type(version) is not int or version < 1:
        raise error(f"{path}: unreadable format version {version!r}{remedy}")
    if version > newest:
        raise error(
            f"{path}: written in format version {version}, this arbiter reads up to {newest}; "
            "upgrade arbiter-vol to read it"
        )


def read_format(path: Path, name: str, newest: int, remedy: str = "") -> dict[str, Any]:
    """Read a JSON file whose format is ``name`` in a version up to ``newest``.

    Raises:
        ValueError: If it is not JSON, of another format, or of a version that is not read here.
    """
    try:
        whole = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(whole, dict) or whole.get("format") != name:
        raise ValueError(f"{path} does not say that its format is {name!r}{remedy}")
    require_version(path, whole.get("version"), newest, ValueError)
    return whole


def require_folder(
    path: str | PathLike[str], *, files: Iterable[str] = (), folders: Iterable[str] = ()
) -> None:
    """Raise a ``ValueError`` if a folder cannot be written to, before any work is done.

    Args:
        path: The folder; it need not be there yet, and is not made.
        files: Names of files that will be written in it.
        folders: Names of folders that will be.

    Raises:
        ValueError: If it is a file, is in one, cannot be written to, or has a folder in the place
            of a file or a file in that of a folder.
    """
    folder = Path(path)
    there = next((place for place in (folder, *folder.absolute().parents) if place.exists()), None)
    if there is None or not there.is_dir():
        raise ValueError(f"{folder} cannot be a folder: {there} is a file; name another folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ValueError(f"{folder} cannot be written to: {there} is read-only; name another one")
    for name in files:
        if (folder / name).is_dir():
            raise ValueError(f"{folder / name} is a folder, and a file is to go there: move it")
    for name in folders:
        if (folder / name).exists() and not (folder / name).is_dir():
            raise ValueError(f"{folder / name} is a file, and a folder is to go there: move it")
