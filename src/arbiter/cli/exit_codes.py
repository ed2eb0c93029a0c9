"""How a command ends: exit codes of every command, and the words of an error."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from arbiter.files.safe_text import show_controls

if TYPE_CHECKING:
    from rich.console import Console

FAILED = 1  # the check that was asked for failed
BAD_INPUT = 2
UNEXPECTED_ERROR = 3
DEBUG_VARIABLE = "ARBITER_DEBUG"  # set to 1, an unexpected error prints its traceback
INTERRUPTED = 130  # what a shell reports after Ctrl-C

_LONGEST_MESSAGE = 500  # characters of an unexpected error's own words
_OPTIONS = {"as_of": "--as-of", "underlying": "--underlying"}  # of arguments that mend an error


def print_error(message: str) -> None:
    """Print a message to standard error; what files say in it cannot steer the terminal."""
    typer.echo(f"Error: {show_controls(message)}", err=True)


def print_unexpected_error(error: BaseException) -> None:
    """Ask for a report of an error that nobody foresaw, without its traceback."""
    print_error(
        f"unexpected {type(error).__name__}: {str(error)[:_LONGEST_MESSAGE]}\n"
        "This is a fault of Arbiter, not of your input. Please report it with the command, this "
        f"message and, if you can share it, the file; {DEBUG_VARIABLE}=1 prints the traceback."
    )
    if os.environ.get(DEBUG_VARIABLE) == "1":
        sys.excepthook(type(error), error, error.__traceback__)


def exit_failed(message: str) -> NoReturn:
    """End with a message and the exit code of a failed check."""
    print_error(message)
    raise typer.Exit(FAILED)


def exit_bad_input(message: str) -> NoReturn:
    """End with a message and the exit code of bad input."""
    print_error(message)
    raise typer.Exit(BAD_INPUT)


def exit_interrupted(message: str) -> NoReturn:
    """End with the exit code of Ctrl-C; the message says how to go on."""
    typer.echo(f"interrupted: {message}", err=True)
    raise typer.Exit(INTERRUPTED)


def explain_error(error: Exception, source: Path, *others: Path | None) -> str:
    """What was wrong with a file, or one of others, in the words of the command line.

    An argument that mends the error is named as the option of the command line.
    """
    from arbiter.chains.errors import ChainError

    message = str(error)
    remedy = error.remedy if isinstance(error, ChainError) else None
    if remedy is not None:
        message += f" (here: {_OPTIONS[remedy.argument]} {remedy.value})"
    names = [printable_name(path) for path in (source, *others) if path is not None]
    return message if any(name in message for name in names) else f"{names[0]}: {message}"


def printable_name(path: Path) -> str:
    """The name of a file; bytes in it that are no UTF-8, or no text, show as a question mark."""
    name = os.fsencode(path.name).decode(errors="replace")
    return show_controls(name).replace("\n", "\N{REPLACEMENT CHARACTER}")


def print_written(console: Console, path: Path) -> None:
    """Print where a file is; a path is never broken into lines, so that it can be copied."""
    console.print(f"wrote {path}", soft_wrap=True, highlight=False, markup=False)
