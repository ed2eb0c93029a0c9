"""What the package logs while a command runs whose result has every warning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from arbiter.files.safe_text import show_controls


class _NoticeHandler(logging.Handler):
    """Prints notices, which ask for patience, at once; all other records are left out."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "notice", False):
            typer.echo(show_controls(record.getMessage()), err=True)


@contextmanager
def show_only_notices() -> Iterator[None]:
    """Keep warnings off the terminal: the command prints those of its result."""
    package, handler = logging.getLogger("arbiter"), _NoticeHandler()
    package.addHandler(handler)
    try:
        yield
    finally:
        package.removeHandler(handler)
