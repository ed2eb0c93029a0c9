"""Files are written whole or not at all: beside their place, then renamed into it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write; it takes the place of ``path`` when the block ends without an error."""
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
    """Write ``content``, text as UTF-8, and return the path."""
    with whole(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return Path(path)
