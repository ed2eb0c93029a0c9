"""`arbiter vix`: the volatility index of a chain, by the exchange's rule."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arbiter.cli.chain_options import AsOf, Calendar, Layout, Underlying, require_calendar_name
from arbiter.cli.exit_codes import exit_bad_input, explain_error
from arbiter.cli.safe_console import open_console

if TYPE_CHECKING:
    from arbiter.vix.index_rule import Vix


def vix(  # noqa: PLR0913, PLR0917 - one parameter per option
    chain: Annotated[
        Path | None, typer.Argument(help="A chain; the shipped example if left out.")
    ] = None,
    days: Annotated[
        float, typer.Option(help="Horizon: 9, 30, 93, 184 or 365 are the published ones.")
    ] = 30.0,
    rate: Annotated[
        float | None, typer.Option(help="Interest rate, a decimal; from parity if left out.")
    ] = None,
    as_of: AsOf = None,
    layout: Layout = None,
    underlying: Underlying = None,
    calendar: Calendar = "NYSE",
    json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
) -> None:
    """The volatility index of a chain: near and next term, forwards and contributions."""
    from arbiter.chains import read_chain
    from arbiter.data import example_chain_path as example_path
    from arbiter.vix.index_rule import vix as index

    source = example_path() if chain is None else chain
    if not source.is_file():
        exit_bad_input(f"{source} is not a file: give the path of a chain")
    require_calendar_name(calendar)
    try:
        read = read_chain(
            source, as_of=as_of, layout=layout, underlying=underlying, calendar=calendar
        )
        found = index(read, days=days, rate=rate)
    except (ValueError, OSError) as error:
        exit_bad_input(explain_error(error, source))
    facts = found.to_dict()
    if json:
        typer.echo(json_format.dumps(facts, indent=1, allow_nan=False))
    else:
        _print_index(found, facts, read.notes)


def _print_index(found: Vix, facts: dict[str, Any], notes: tuple[str, ...]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    console = open_console()
    console.print(f"{float(found):.6f}  at {facts['days']:g} days", highlight=False)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for head in ("", "expiry", "minutes", "forward", "K0", "rate", "vol", "options"):
        left = head in ("", "expiry")
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for name, strip in zip(("near", "next"), found.strips, strict=True):
        table.add_row(
            name,
            strip.label,
            f"{strip.minutes:,.0f}",
            f"{strip.forward:,.3f}",
            f"{strip.k0:g}",
            f"{strip.rate:.4%}",
            f"{strip.volatility:.4f}",
            f"{strip.strikes.size}",
        )
    console.print(table)
    for sentence in notes:
        console.print(f"note: {sentence}", highlight=False, markup=False)
