"""The manifest of a results folder: the commands that made it and a checksum of every file.

Files that differ between runs, such as the times in ``replicate.json``, are listed without a
checksum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from arbiter.files import read_format, write_whole
from arbiter_lab.protocol.machine import REPLICATE_FILE

MANIFEST_FILE = "manifest.json"
FORMAT, VERSION = "arbiter-manifest", 1
VARYING_FILES = (REPLICATE_FILE,)


class Discrepancy(NamedTuple):
    """A file that differs from the manifest.

    Attributes:
        path: Path within the folder.
        kind: ``missing``, ``changed``, or ``extra`` for a file that the manifest does not list.
    """

    path: str
    kind: str


def sha256(path: str | PathLike[str]) -> str:
    """Return the SHA-256 checksum of a file, in hexadecimal."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(
    folder: str | PathLike[str],
    *,
    commands: Sequence[str] = (),
    varies: Iterable[str] = VARYING_FILES,
) -> Path:
    """Write ``manifest.json`` of all files under a folder.

    Args:
        folder: Folder of the results.
        commands: The commands that made them, in order.
        varies: Paths within the folder that differ between runs. They must exist, and are listed
            without a checksum.

    Raises:
        ValueError: If the folder has no files, or lacks one of ``varies``.
    """
    place, differing = Path(folder), sorted(set(varies))
    paths = _files(place)
    if not paths:
        raise ValueError(f"{place} has no files: write the results first")
    absent = [path for path in differing if path not in paths]
    if absent:
        raise ValueError(f"{place / absent[0]} is said to vary and is not there: write it first")
    files = {
        path: {"sha256": sha256(place / path), "bytes": (place / path).stat().st_size}
        for path in paths
        if path not in differing
    }
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "commands": list(commands),
        "files": files,
        "varies": differing,
    }
    return write_whole(
        place / MANIFEST_FILE, json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    )


def read_manifest(folder: str | PathLike[str]) -> dict[str, Any]:
    """Read the manifest of a folder.

    Raises:
        ValueError: If the folder has no manifest, or the file has another format.
    """
    path = Path(folder) / MANIFEST_FILE
    if not path.is_file():
        raise ValueError(f"{path} is not there: name a folder of results")
    whole = read_format(path, FORMAT, VERSION)
    if not isinstance(whole.get("files"), dict) or not isinstance(whole.get("varies"), list):
        raise ValueError(f"{path} lacks its files: restore it")
    return whole


def check_manifest(folder: str | PathLike[str]) -> list[Discrepancy]:
    """Return every file that is missing, changed or extra; an empty list if none is.

    Raises:
        ValueError: If the folder has no manifest, or the file has another format.
    """
    place, whole = Path(folder), read_manifest(folder)
    there = set(_files(place))
    found = [Discrepancy(path, "missing") for path in whole["varies"] if path not in there]
    for path, entry in whole["files"].items():
        if path not in there:
            found.append(Discrepancy(path, "missing"))
        elif not isinstance(entry, dict) or sha256(place / path) != entry.get("sha256"):
            found.append(Discrepancy(path, "changed"))
    named = {*whole["files"], *whole["varies"]}
    found += [Discrepancy(path, "extra") for path in there - named]
    return sorted(found)


def _files(folder: Path) -> list[str]:
    """Return sorted POSIX paths within the folder, without the manifest and hidden files."""
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    plain = [path for path in inside if not any(part.startswith(".") for part in path.parts)]
    return sorted(path.as_posix() for path in plain if path.as_posix() != MANIFEST_FILE)
