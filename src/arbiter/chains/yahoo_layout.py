"""Yahoo's layout: one row per option, the symbol in front, the time of the last trade behind it."""

from __future__ import annotations

import datetime as dt

import numpy as np
import polars as pl

from arbiter.chains import symbols, tables
from arbiter.chains.quote_time import Stamp
from arbiter.chains.reading import Reading, options_frame
from arbiter.chains.source import RawSource, SourceTable
from arbiter.exclusions import Exclusion
from arbiter.timing.sessions import FIRST_YEAR, LAST_YEAR, last_session, moment_of, session_close

NAME = "yahoo"
_REQUIRED_COLUMNS = ("contractsymbol", "bid", "ask")
_OPTIONAL_COLUMNS = {"last": "lastprice", "volume": "volume", "open_interest": "openinterest"}
_NEAR_CLOSE_WINDOW = np.timedelta64(15, "m")


def describe_missing(source: RawSource) -> str | None:
    """What a source of this layout has and ``source`` has not; None if it is one."""
    columns = tables.columns_of(source)
    missing = [name for name in _REQUIRED_COLUMNS if name not in columns]
    return f"no column {', '.join(missing)}" if missing else None


def read(source: RawSource) -> Reading:
    """Read a source of this layout."""
    table = tables.table_of(source)
    columns = table.frame.columns
    values = {name: tables.parse_numbers(table, name) for name in ("bid", "ask")}
    values |= {
        ours: tables.parse_numbers(table, theirs)
        for ours, theirs in _OPTIONAL_COLUMNS.items()
        if theirs in columns
    }
    names = tables.read_text(table, "contractsymbol")
    frame = table.frame.select("row", **symbols.split_symbols(names).to_dict(), **values)
    whole = pl.all_horizontal(pl.col("root", "expiry", "side", "strike").is_not_null())
    options = frame.with_columns(problem=pl.when(~whole).then(pl.lit(Exclusion.UNREADABLE.value)))
    return Reading(options_frame(options), NAME, _read_last_trade(table))


def _read_last_trade(table: SourceTable) -> Stamp | None:
    """The latest trade, as the moment of the quotes: the close if it is near the close."""
    if "lasttradedate" not in table.frame.columns:
        return None
    latest = tables.parse_moments(table, "lasttradedate").max()
    if not isinstance(latest, dt.datetime) or not FIRST_YEAR <= latest.year <= LAST_YEAR:
        return None
    stamp = np.datetime64(latest, "m")
    note = f"the file has no time, and its latest trade was at {stamp}"
    session = last_session(stamp.astype("datetime64[D]"))
    if stamp >= session_close(session) - _NEAR_CLOSE_WINDOW:
        moment = moment_of(stamp, timed=False)[0].astype("datetime64[m]")
        return Stamp(moment, True, (f"{note}: taken as the close, {moment}",), inferred=True)
    return Stamp(stamp, True, (f"{note}: taken as that",), inferred=True)
