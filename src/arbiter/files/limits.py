"""Limits on what is read and drawn: each has a default, and a variable that raises it.

A limit holds for what comes from a file or a table. The variable is read when it is needed:
``os.environ["ARBITER_MAX_ROWS"] = "1000000"`` in Python does what ``ARBITER_MAX_ROWS=1000000`` does
before a command. Within the defaults no command takes more than 1 GB.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

_PREFIX = "ARBITER_MAX_"


@dataclass(frozen=True)
class Limit:
    """The largest number of something.

    Attributes:
        name: Name without its prefix.
        default: What holds unless the variable says otherwise.
        unit: What is counted.
        advice: What to do about too many.
    """

    name: str
    default: int
    unit: str
    advice: str

    @property
    def variable(self) -> str:
        """The environment variable that replaces the default."""
        return _PREFIX + self.name

    @property
    def most(self) -> int:
        """The limit that holds now; a ``ValueError`` if its variable is no positive number."""
        text = os.environ.get(self.variable, "").strip()
        if not text:
            return self.default
        if not (text.isascii() and text.isdigit() and len(text) < 19 and int(text) > 0):
            raise ValueError(
                f"{self.variable} = {text[:40]!r} must be a whole number of {self.unit} above 0, "
                f"such as {self.default}"
            )
        return int(text)

    def require(self, found: int, what: str, error: type[ValueError] = ValueError) -> None:
        """Raise ``error`` if there are more than the limit in ``what``, which begins the message.

        Example:
            >>> ROWS.require(10, "chain.csv")
            >>> ROWS.require(10**9, "chain.csv")
            Traceback (most recent call last):
            ValueError: chain.csv has 1,000,000,000 rows, more than the 250,000 allowed: give the
            quotes of one moment and one underlying, or set ARBITER_MAX_ROWS higher
        """
        if found > (most := self.most):
            raise error(
                f"{what} has {found:,} {self.unit}, more than the {most:,} allowed: {self.advice}, "
                f"or set {self.variable} higher"
            )


_ONE_MOMENT = "give the quotes of one moment and one underlying"
_ONE_SURFACE = "take the file from where it was saved"

# A chain of the whole SPX has 30,000 options of 22 columns in 3 MB, on 60 expiries.
BYTES = Limit("BYTES", 64 * 2**20, "bytes", "give a smaller file")  # packed, and unpacked
ROWS = Limit("ROWS", 250_000, "rows", _ONE_MOMENT)
CELLS = Limit("CELLS", 5_000_000, "cells", "leave out what is not needed")  # rows by columns
EXPIRIES = Limit("EXPIRIES", 2_200, "expiries", _ONE_MOMENT)
# A fitted surface has 31 knots, one component or two, and slopes for each of these and expiries.
KNOTS = Limit("KNOTS", 1_000, "knots", _ONE_SURFACE)
SLOPES = Limit("SLOPES", 400_000, "slopes", _ONE_SURFACE)
COMPONENTS = Limit("COMPONENTS", 4, "components", _ONE_SURFACE)
DESCRIPTION = Limit("DESCRIPTION", 4 * 2**20, "bytes of description", _ONE_SURFACE)
DRAWN_EXPIRIES = Limit("DRAWN_EXPIRIES", 120, "expiries", "draw some of them")

LIMITS = (BYTES, ROWS, CELLS, EXPIRIES, KNOTS, SLOPES, COMPONENTS, DESCRIPTION, DRAWN_EXPIRIES)


def read_within_limit(path: Path, error: type[ValueError] = ValueError) -> bytes:
    """The bytes of a file, at most as many as :data:`BYTES` allows.

    Raises:
        OSError: If it cannot be read.
        ValueError: ``error``, if it is no ordinary file (a pipe may never end), or too large.
    """
    found = path.stat()
    if not stat.S_ISREG(found.st_mode):
        raise error(f"{path} is not a file: give the path of one")
    BYTES.require(found.st_size, str(path), error)
    content = path.read_bytes()
    BYTES.require(len(content), str(path), error)  # it may have grown
    return content
