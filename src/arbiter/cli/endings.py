"""How a command ends. Exit codes: 0 fine, 1 the check failed, 2 bad input."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NoReturn

import typer

FAILED = 1
BAD_INPUT = 2


def refuse(message: str) -> NoReturn:
    """End with a message and the exit code of bad input."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(BAD_INPUT)


def explained(error: Exception, source: Path) -> str:
    """What was wrong with a file, in the words of the command line."""
    message = str(error)
    if "give as_of" in message:
        message += " (here: --as-of 2025-01-29T16:15)"
    name = printable(source)
    return message if name in message else f"{name}: {message}"


def printable(path: Path) -> str:
    """The name of a file; bytes in it that are no UTF-8 show as a question mark."""
    return os.fsencode(path.name).decode(errors="replace")
