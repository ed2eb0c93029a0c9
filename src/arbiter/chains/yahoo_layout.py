"""Yahoo's layout: one row per option, the symbol in front, the time of the last trade behind it."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl

from arbiter.chains import symbols, tables
from arbiter.chains.quote_time import Stamp
from arbiter.chains.reading import Reading, options_frame
from arbiter.chains.sessions import FIRST_YEAR, LAST_YEAR, close, last_session, moment_of
from arbiter.chains.source import Source, Table
from arbiter.exclusions import Exclusion

NAME = "yahoo"
_NEEDED = ("contractsymbol", "bid", "ask")
_OPTIONAL = {"last": "lastprice", "volume": "volume", "open_interest": "openinterest"}
_LAST_MINUTES = np.timedelta64(15, "m")


def lacks(source: Source) -> str | None:
    """What a source of this layout has and ``source`` has not; None if it is one."""
    columns = tables.columns_of(source)
    missing = [name for name in _NEEDED if name not in columns]
    return f"no column {', '.join(missing)}" if missing else None


def read(source: Source) -> Reading:
    """Read a source of this layout."""
    table = tables.table_of(source)
    columns = table.frame.columns
    values = {name: tables.numeric(table, name) for name in ("bid", "ask")}
    values |= {
        ours: tables.numeric(table, theirs)
        for ours, theirs in _OPTIONAL.items()
        if theirs in columns
    }
    frame = table.frame.select("row", **symbols.parts(tables.text("contractsymbol")), **values)
    whole = pl.all_horizontal(pl.col("root", "expiry", "side", "strike").is_not_null())
    options = frame.with_columns(problem=pl.when(~whole).then(pl.lit(Exclusion.UNREADABLE.value)))
    return Reading(options_frame(options), NAME, _last_trade(table))


def _last_trade(table: Table) -> Stamp | None:
    """The latest trade, as the moment of the quotes: the close if it is near the close."""
    if "lasttradedate" not in table.frame.columns:
        return None
    latest = table.frame.select(tables.moment(table, "lasttradedate").max()).item()
    if not isinstance(latest, dt.datetime) or not FIRST_YEAR <= latest.year <= LAST_YEAR:
        return None
    stamp = np.datetime64(latest, "m")
    note = f"the file has no time, and its latest trade was at {stamp}"
    session = last_session(stamp.astype("datetime64[D]"))
    if stamp >= close(session) - _LAST_MINUTES:
        moment = moment_of(stamp, timed=False)[0].astype("datetime64[m]")
        return Stamp(moment, True, (f"{note}: taken as the close, {moment}",))
    return Stamp(stamp, True, (f"{note}: taken as that",))
