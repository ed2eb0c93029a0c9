"""Options of every command that reads a chain."""

from __future__ import annotations

from typing import Annotated

import typer

from arbiter.cli.exit_codes import exit_bad_input

AsOf = Annotated[
    str | None,
    typer.Option(
        help="Moment of the quotes, New York: 2025-01-29T16:15. A day alone is its last quotes."
    ),
]
Layout = Annotated[
    str | None, typer.Option(help="exchange, yahoo, long or tidy; detected if left out.")
]
Calendar = Annotated[
    str,
    typer.Option(help="Quoting hours by which --as-of and stamps are read: NYSE, CME or 24/7."),
]
Underlying = Annotated[str | None, typer.Option(help="Name of the index, where the file has none.")]


def require_calendar_name(name: str) -> None:
    """End the command where no calendar has that name."""
    from arbiter.timing.sessions import CALENDARS

    if name not in CALENDARS:
        exit_bad_input(f"--calendar {name} is not known: give {', '.join(CALENDARS)}")
