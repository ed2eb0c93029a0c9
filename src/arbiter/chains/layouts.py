"""From a source to a chain: which layout it is, when it was quoted, when its options settle.

A new layout is one module beside the others, listed in :data:`LAYOUTS`. It has a ``NAME``; a
function ``describe_missing(source)``, which returns None where the layout is this one and otherwise
says what is missing; and ``read(source)``, which returns a :class:`.reading.Reading`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

import polars as pl

from arbiter.chains import exchange_layout, long_layout, tidy_layout, yahoo_layout
from arbiter.chains.assembly import assemble_chain
from arbiter.chains.chain import Chain
from arbiter.chains.errors import ChainError
from arbiter.chains.reading import Reading
from arbiter.chains.source import RawSource, load_source
from arbiter.timing.clock import Clock, require_clock
from arbiter.timing.maturities import DateLike

logger = logging.getLogger(__name__)


class Layout(NamedTuple):
    """How to recognise and read one layout."""

    lacks: Callable[[RawSource], str | None]
    read: Callable[..., Reading]


# In the order in which they are tried: the first that lacks nothing is it.
LAYOUTS: Mapping[str, Layout] = MappingProxyType(
    {
        module.NAME: Layout(module.describe_missing, module.read)
        for module in (exchange_layout, yahoo_layout, long_layout, tidy_layout)
    }
)


def read_chain(
    source: Any,
    *,
    as_of: DateLike | None = None,
    layout: str | None = None,
    spot: float | None = None,
    underlying: str | None = None,
    clock: Clock | None = None,
    calendar: str = "NYSE",
) -> Chain:
    """Read a listed chain of European options.

    Args:
        source: Path of a file, its bytes, or a table (polars or pandas frame, or a mapping of
            columns). docs/chains.md describes the layouts.
        as_of: Moment of the quotes, New York time unless it has a zone: ISO text, a datetime or a
            date. A time of day is used as given; a date means the last quotes of its session.
            Needed where the source has none; it overrides the source's own.
        layout: ``"exchange"``, ``"yahoo"``, ``"long"`` or ``"tidy"``; found out if left out.
        spot: Level of the underlying, where the source has none. It is kept for the reader and
            checked against the strikes; forwards come from parity.
        underlying: Name of the index, where the source has none (long and tidy layouts).
        clock: How fast variance passes, and scheduled events (docs/time.md).
        calendar: When there are quotes: ``"NYSE"``, ``"CME"`` or ``"24/7"``.

    Raises:
        ChainError: If the source is in no known layout, does not say when it was quoted, has
            American options, or is not a chain. The message says what to do.

    Example:
        >>> strikes = [90.0, 95.0, 100.0, 105.0, 110.0]
        >>> table = {
        ...     "expiry": ["2024-06-21"] * 10,
        ...     "strike": strikes * 2,
        ...     "side": ["call"] * 5 + ["put"] * 5,
        ...     "bid": [11.8, 7.9, 4.8, 2.6, 1.2, 0.8, 1.8, 3.7, 6.4, 9.9],
        ...     "ask": [12.2, 8.1, 5.0, 2.8, 1.4, 1.0, 2.0, 3.9, 6.6, 10.3],
        ... }
        >>> chain = read_chain(table, as_of="2024-03-15T16:00", underlying="SPX")
        >>> chain
        Chain(SPX 2024-03-15T16:00, 10 options in 1 series, tidy)
        >>> len(chain.quotes(fewest_strikes=3))
        5
    """
    clock = require_clock(clock)
    if layout is not None and layout not in LAYOUTS:
        raise ChainError(f"layout = {layout!r} is not one of {', '.join(LAYOUTS)}")
    loaded = load_source(source)
    try:
        name, found = _recognise_layout(loaded, layout)
        logger.debug("%s: layout %s", loaded.name, name)
        reading = found.read(loaded, underlying) if name == long_layout.NAME else found.read(loaded)
        chain = assemble_chain(
            reading,
            loaded.name,
            as_of=as_of,
            spot=spot,
            underlying=underlying,
            calendar=calendar,
        )
        return chain if clock is None else replace(chain, clock=clock)
    except pl.exceptions.PolarsError as error:
        raise ChainError(f"{loaded.name} cannot be understood as a table: {error}") from error


def _recognise_layout(source: RawSource, layout: str | None) -> tuple[str, Layout]:
    tried = {}
    for name, candidate in LAYOUTS.items():
        if layout in (None, name):
            missing = candidate.lacks(source)
            if missing is None:
                return name, candidate
            tried[name] = missing
    what = "; ".join(f"{name}: {missing}" for name, missing in tried.items())
    if layout:
        raise ChainError(f"{source.name} is not in the layout {what}")
    raise ChainError(
        f"{source.name} is in no known layout. Tried {what}. Give a tidy table (docs/chains.md "
        "lists its columns), or name the layout"
    )
