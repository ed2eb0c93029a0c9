"""The manifest: which commands made a folder of results, and a checksum of every file in it.

Files that differ from run to run by nature, such as the times in ``replicate.json``, are named
without a checksum.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

from arbiter.files import read_format, write_whole

MANIFEST_FILE = "manifest.json"
FORMAT, VERSION = "arbiter-manifest", 1
VARYING_FILES = ("replicate.json",)


class Discrepancy(NamedTuple):
    """A file that is not what the manifest says.

    Attributes:
        path: Within the folder.
        kind: ``missing``, ``changed``, or ``extra`` for one that the manifest does not name.
    """

    path: str
    kind: str


def sha256(path: str | PathLike[str]) -> str:
    """Checksum of a file, in hexadecimal."""
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
        folder: The results.
        commands: What made them, in order.
        varies: Paths within the folder that differ from run to run: they must be there, and have
            no checksum.

    Raises:
        ValueError: If the folder has no files, or lacks one that is said to vary.
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
    """The manifest of a folder.

    Raises:
        ValueError: If there is none, or it is not one.
    """
    path = Path(folder) / MANIFEST_FILE
    if not path.is_file():
        raise ValueError(f"{path} is not there: name a folder of results")
    whole = read_format(path, FORMAT, VERSION)
    if not isinstance(whole.get("files"), dict) or not isinstance(whole.get("varies"), list):
        raise ValueError(f"{path} lacks its files: restore it")
    return whole


def check_manifest(folder: str | PathLike[str]) -> list[Discrepancy]:
    """Every file that is missing, changed or extra; an empty list where all is as it was written.

    Raises:
        ValueError: If there is no manifest, or it is not one.
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
    """Paths within the folder, with / between their parts; the manifest and hidden files aside."""
    inside = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    plain = [path for path in inside if not any(part.startswith(".") for part in path.parts)]
    return sorted(path.as_posix() for path in plain if path.as_posix() != MANIFEST_FILE)
