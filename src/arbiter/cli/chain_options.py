"""Options of every command that reads a chain."""

from __future__ import annotations

from typing import Annotated

import typer

AsOf = Annotated[str | None, typer.Option(help="Moment of the quotes, New York: 2025-01-29T16:15.")]
Layout = Annotated[
    str | None, typer.Option(help="exchange, yahoo, long or tidy; detected if left out.")
]
Underlying = Annotated[str | None, typer.Option(help="Name of the index, where the file has none.")]
