"""The long layout: the exchange's columns, one row per option, and no symbol.

Nothing in a row tells the morning series of a third Friday from the evening one. Where both are
listed, each strike appears twice for each side, and their order in the file is used if prices
prove it: what settles at the close of the same day is worth more than what settles at its open.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import NamedTuple

import numpy as np
import polars as pl

from arbiter.chains import tables
from arbiter.chains.errors import ChainError, Remedy
from arbiter.chains.reading import Reading, options_frame
from arbiter.chains.roots import EUROPEAN_ROOTS, find_european_root
from arbiter.chains.source import RawSource
from arbiter.exclusions import Exclusion
from arbiter.timing.sessions import FIRST_YEAR, LAST_YEAR, last_session

NAME = "long"
_REQUIRED_COLUMNS = ("expiration_date", "strike", "type", "bid", "ask")
_FOREIGN_COLUMNS = ("root", "symbol", "settlement", "settles", "contractsymbol")
_OPTIONAL_COLUMNS = {"last": "last_sale", "volume": "volume", "open_interest": "open_interest"}
_NEAREST_STRIKES, _MIN_STRIKES = 20, 5  # strikes whose prices decide which series is which
_MIN_AGREEMENT = 0.9  # of them that must agree


class _SeriesRoots(NamedTuple):
    morning: str | None
    evening: str | None


def describe_missing(source: RawSource) -> str | None:
    """What a source of this layout has and ``source`` has not; None if it is one."""
    columns = tables.columns_of(source)
    missing = [name for name in _REQUIRED_COLUMNS if name not in columns]
    if missing:
        return f"no column {', '.join(missing)}"
    extra = [name for name in _FOREIGN_COLUMNS if name in columns]
    return f"a column {', '.join(extra)}, which this layout does not have" if extra else None


def read(source: RawSource, underlying: str | None = None) -> Reading:
    """Read a source of this layout."""
    table = tables.table_of(source)
    columns = table.frame.columns
    underlying = _find_underlying(underlying, source.name)
    values = {name: tables.parse_numbers(table, name) for name in ("strike", "bid", "ask")}
    values |= {
        ours: tables.parse_numbers(table, theirs)
        for ours, theirs in _OPTIONAL_COLUMNS.items()
        if theirs in columns
    }
    frame = table.frame.select(
        "row",
        expiry=tables.parse_dates(table, "expiration_date"),
        side=tables.parse_sides("type"),
        **values,
    )
    years = pl.col("expiry").dt.year().is_between(FIRST_YEAR, LAST_YEAR)
    whole = years & (pl.col("strike") > 0.0) & pl.col("side").is_not_null()
    frame = frame.with_columns(
        problem=pl.when(~whole.fill_null(False)).then(pl.lit(Exclusion.UNREADABLE.value))
    )
    frame, notes = _assign_roots(frame, _find_roots(underlying))
    spot = None
    if "index_spot" in columns:
        spot = tables.find_median(table, "index_spot")
    return Reading(options_frame(frame), NAME, None, spot, underlying, tuple(notes))


def _find_underlying(given: str | None, name: str) -> str:
    if given:
        return find_european_root(given.upper().lstrip("^")).underlying
    words = [word for word in re.split(r"[^A-Z]+", name.upper()) if word in EUROPEAN_ROOTS]
    if words:
        return find_european_root(words[0]).underlying
    raise ChainError(
        f"{name}: the long layout does not name the underlying, and the file's name does not "
        "either: give underlying='SPX', for instance",
        Remedy("underlying", "SPX"),
    )


def _find_roots(underlying: str) -> _SeriesRoots:
    """The roots that an underlying has today: the first of each settlement in the table."""
    roots = [
        (root, e.settlement) for root, e in EUROPEAN_ROOTS.items() if e.underlying == underlying
    ]
    first = {settlement: root for root, settlement in reversed(roots)}
    return _SeriesRoots(first.get("AM"), first.get("PM"))


def _assign_roots(frame: pl.DataFrame, roots: _SeriesRoots) -> tuple[pl.DataFrame, list[str]]:
    """Give every row a root, or the verdict that it is ambiguous."""
    morning, evening = roots
    if morning is None or evening is None:
        root = morning or evening
        return frame.with_columns(root=pl.lit(root)), [f"the file names no root: taken as {root}"]
    good = frame.filter(pl.col("problem").is_null())
    expiries = good["expiry"].unique().sort()
    monthly = [day for day in expiries if _is_third_friday(day)]
    frame = frame.with_columns(
        nth=pl.int_range(pl.len()).over("expiry", "strike", "side"),
        times=pl.len().over("expiry", "strike", "side"),
        monthly=pl.col("expiry").is_in(monthly),
    )
    doubled = frame.filter(pl.col("monthly") & (pl.col("times") == 2))["expiry"].unique().sort()
    order = {day: _infer_series_order(frame.filter(pl.col("expiry") == day)) for day in doubled}
    first = pl.col("expiry").replace_strict(order, default=0, return_dtype=pl.Int64)
    double = pl.col("expiry").is_in(doubled.to_list())
    lost = pl.col("problem").is_null() & double & ((pl.col("times") != 2) | (first == 0))
    am = pl.when(double).then((pl.col("nth") == 0) == (first == 1)).otherwise("monthly")
    frame = frame.with_columns(
        root=pl.when(am).then(pl.lit(morning)).otherwise(pl.lit(evening)),
        problem=pl.when(lost).then(pl.lit(Exclusion.AMBIGUOUS.value)).otherwise("problem"),
    )
    return frame, _describe_assignment(roots, doubled.to_list(), order, frame)


def _is_third_friday(day: dt.date) -> bool:
    """Whether ``day`` is the last session on or before a third Friday."""
    first = day.replace(day=1)
    friday = first + dt.timedelta(days=(4 - first.weekday()) % 7 + 14)
    return bool(last_session(np.datetime64(friday, "D")) == np.datetime64(day, "D"))


def _infer_series_order(rows: pl.DataFrame) -> int:
    """1 if the first of two rows is the morning's, −1 if the second is, 0 if prices do not tell."""
    mid = ((pl.col("bid") + pl.col("ask")) / 2.0).alias("mid")
    quoted = rows.filter(
        (pl.col("times") == 2) & (pl.col("bid") > 0.0) & (pl.col("ask") > pl.col("bid"))
    )
    wide = quoted.select("strike", mid, key=pl.col("side") + pl.col("nth").cast(pl.String)).pivot(
        "key", index="strike", values="mid", aggregate_function="first"
    )
    if not {"call0", "call1", "put0", "put1"} <= set(wide.columns):
        return 0
    wide = wide.drop_nulls().sort((pl.col("call0") - pl.col("put0")).abs()).head(_NEAREST_STRIKES)
    if wide.height < _MIN_STRIKES:
        return 0
    # (2, strikes): by how much the second row is dearer, calls and puts apart
    dearer = np.stack(
        [(wide[f"{side}1"] - wide[f"{side}0"]).to_numpy() for side in ("call", "put")]
    )
    if np.all(np.mean(dearer > 0.0, axis=1) >= _MIN_AGREEMENT):
        return 1
    return -1 if np.all(np.mean(dearer < 0.0, axis=1) >= _MIN_AGREEMENT) else 0


def _describe_assignment(
    roots: _SeriesRoots, doubled: list[dt.date], order: dict[dt.date, int], frame: pl.DataFrame
) -> list[str]:
    notes = [
        f"the file names no roots: third Fridays are taken as {roots.morning} (settled at the "
        f"open), all other expiries as {roots.evening} (settled at the close)"
    ]
    proven = [str(day) for day in doubled if order[day] != 0]
    open_ = [str(day) for day in doubled if order[day] == 0]
    lost = frame.filter(pl.col("problem") == Exclusion.AMBIGUOUS.value).height
    if proven:
        notes.append(
            f"both series are listed on {', '.join(proven)}: they were told apart by their order "
            "in the file, which prices confirm (the close's calls and puts are dearer)"
        )
    if open_:
        notes.append(
            f"both series are listed on {', '.join(open_)} and prices do not tell which is which"
        )
    if lost:
        notes.append(f"{lost} options of these expiries belong to either series: not used")
    return notes
