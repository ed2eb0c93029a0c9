"""Format versions of files, and checks of folders before any work is done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from os import PathLike
from pathlib import Path
from typing import Any


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
    if there is None or there.is_file():
        raise ValueError(f"{folder} cannot be a folder: {there} is a file; name another folder")
    # another run may have removed its empty folder meanwhile
    if not os.access(there, os.W_OK | os.X_OK) and there.exists():
        raise ValueError(f"{folder} cannot be written to: {there} is read-only; name another one")
    for name in files:
        if (folder / name).is_dir():
            raise ValueError(f"{folder / name} is a folder, and a file is to go there: move it")
    for name in folders:
        if (folder / name).exists() and not (folder / name).is_dir():
            raise ValueError(f"{folder / name} is a file, and a folder is to go there: move it")
