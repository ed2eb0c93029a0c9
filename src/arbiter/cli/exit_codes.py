"""How a command ends. Exit codes: 0 fine, 1 the check failed, 2 bad input."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 1
BAD_INPUT = 2


def exit_bad_input(message: str) -> NoReturn:
    """End with a message and the exit code of bad input."""
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(BAD_INPUT)


def explain_error(error: Exception, source: Path, *others: Path | None) -> str:
    """What was wrong with a file, or one of others, in the words of the command line."""
    message = str(error)
    if told := re.search(r"give as_of.*as_of='([^']+)'", message):
        message += f" (here: --as-of {told[1]})"
    if told := re.search(r"give underlying='([^']+)'", message):
        message += f" (here: --underlying {told[1]})"
    names = [printable_name(path) for path in (source, *others) if path is not None]
    return message if any(name in message for name in names) else f"{names[0]}: {message}"


def printable_name(path: Path) -> str:
    """The name of a file; bytes in it that are no UTF-8 show as a question mark."""
    return os.fsencode(path.name).decode(errors="replace")


def print_written(console: Console, path: Path) -> None:
    """Say where a file is; a path is never broken into lines, so that it can be copied."""
    console.print(f"wrote {path}", soft_wrap=True, highlight=False, markup=False)
