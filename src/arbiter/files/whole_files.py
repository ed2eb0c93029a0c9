"""Atomic file writing: a file is whole, old or new.

A file is written to a temporary name beside its place and then renamed, so that an interrupted
process never leaves half a file. Every writer has a temporary name of its own, whatever its thread,
process or machine: of several that write to one path at once, the last to end is there, whole.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

_NAME_LENGTH = 40  # characters of the name that a temporary one repeats: names end at 255 bytes


@contextmanager
def open_whole(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file for writing; it replaces ``path`` when the block ends without error."""
    target = Path(path).resolve()  # a link keeps pointing at the file that is replaced
    token = f"{target.name[:_NAME_LENGTH]}.{secrets.token_hex(8)}.{os.getpid()}"
    partial = target.with_name(f".{token}.tmp")
    try:
        with partial.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
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
