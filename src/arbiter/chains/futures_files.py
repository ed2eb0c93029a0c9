"""Futures curves as CSV: one row per future, or one row per day with columns VX1, VX2 and on."""

from __future__ import annotations

import datetime as dt
import logging
import re
from typing import Any

import numpy as np
import polars as pl

from arbiter.chains import quote_time, tables
from arbiter.chains.errors import ChainError, Remedy
from arbiter.chains.source import SourceTable, load_source
from arbiter.futures import FuturesCurve
from arbiter.timing.maturities import DateLike
from arbiter.timing.sessions import moment_of, settlement_time

logger = logging.getLogger(__name__)

_VIX_WINDOW = dt.timedelta(days=30)
_FRIDAY = 4
_RANK_PATTERN = re.compile(r"^vx_?(\d{1,2})$")
_EXPIRY_COLUMNS = ("expiry", "expiration", "expiration_date", "settlement_date", "settles")
_DAY_COLUMNS = ("as_of", "date", "trade_date")
_PRICE_COLUMNS = ("settle", "settlement_price", "price", "close", "last", "mid")


def monthly_settlement(year: int, month: int) -> dt.datetime:
    """When the VIX future of a month settles: the open, 30 days before SPX's third Friday after.

    A third Friday without a session moves the SPX expiry, and so this day, one session ahead.

    Example:
        >>> monthly_settlement(2023, 3)  # 30 days before 21 April
        datetime.datetime(2023, 3, 22, 9, 30)
        >>> monthly_settlement(2014, 3)  # Good Friday: 30 days before Thursday, 17 April
        datetime.datetime(2014, 3, 18, 9, 30)
    """
    later = dt.date(year + month // 12, month % 12 + 1, 15)
    friday = later + dt.timedelta(days=(_FRIDAY - later.weekday()) % 7)
    expiry = settlement_time(friday, "AM").date()
    return settlement_time(expiry - _VIX_WINDOW, "AM")


def read_futures(source: Any, *, as_of: DateLike | None = None) -> FuturesCurve:
    """Read VIX futures of one moment.

    Args:
        source: Path of a CSV or Parquet file, its bytes, or a table. Either one row per future,
            with ``expiry`` and ``bid``, ``ask`` or one price (``settle``, ``price``, ``close``,
            ``last``); or a history with a column ``date`` and the prices ``VX1``, ``VX2``, … of
            the first, second, … monthly future, of which ``as_of`` picks the day.
        as_of: Moment of the quotes, New York time: ISO text, a datetime or a date (that day's
            close). Needed where the source has none; a time of day is used as given.

    Returns:
        The curve, each future until its settlement at the open (minutes / 525,600).

    Raises:
        ChainError: If the source is neither, or has no such day. The message says what to do.

    Example:
        >>> table = {"expiry": ["2023-03-22", "2023-04-19"], "settle": [20.1, 21.2]}
        >>> read_futures(table, as_of="2023-02-15T16:15")
        FuturesCurve(2 from 34.7 to 62.72 days, 20.10 to 21.20)
    """
    loaded = load_source(source)
    try:
        table = tables.table_of(loaded)
        names = table.frame.columns
        ranks = {name: int(hit[1]) for name in names if (hit := _RANK_PATTERN.match(name))}
        if ranks:
            return _read_by_rank(table, ranks, as_of)
        return _read_by_expiry(table, as_of)
    except pl.exceptions.PolarsError as error:
        raise ChainError(f"{loaded.name} cannot be understood as a table: {error}") from error


def _find_column(table: SourceTable, names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in table.frame.columns), None)


def _find_moment(table: SourceTable, as_of: DateLike | None, day: str | None) -> np.datetime64:
    """The moment that was given, or else that of the table's column ``day``."""
    if as_of is None:
        return quote_time.quote_moment(quote_time.parse_as_of(_read_only_day(table, day)))[0]
    moment, _, doubts = quote_time.given_moment(as_of)
    for doubt in doubts:
        logger.warning("%s: %s", table.name, doubt)
    return moment


def _read_by_expiry(table: SourceTable, as_of: DateLike | None) -> FuturesCurve:
    expiry, price, day = (
        _find_column(table, names) for names in (_EXPIRY_COLUMNS, _PRICE_COLUMNS, _DAY_COLUMNS)
    )
    two_sided = {"bid", "ask"} <= set(table.frame.columns)
    if expiry is None or not (two_sided or price):
        raise ChainError(
            f"{table.name} is no futures curve: give columns expiry and bid, ask (or settle), or "
            f"date, VX1, VX2, ...; it has {', '.join(table.frame.columns[:8])}"
        )
    moment = _find_moment(table, as_of, day)
    columns = ["bid", "ask"] if two_sided else [str(price)]
    values = {name: tables.parse_numbers(table, name) for name in columns}
    frame = table.frame.select("row", expiry=tables.parse_dates(table, expiry), **values)
    unreadable = frame["expiry"].is_null().arg_true()
    if len(unreadable):
        at = int(unreadable[0])
        raise ChainError(
            f"row {frame['row'][at]}: {expiry} = {table.frame[expiry][at]!r} is no date: write it "
            "as 2023-03-22"
        )
    frame = frame.drop_nulls().filter(pl.all_horizontal(pl.col(columns) > 0.0))
    settles = [settlement_time(date, "AM") for date in frame["expiry"].to_list()]
    live = [i for i, at in enumerate(settles) if np.datetime64(at) > moment]
    if not live:
        raise ChainError(f"{table.name} has no future with a price that settles after {moment}")
    kept = frame[live]
    ask = kept["ask"].to_numpy() if two_sided else None
    return _build_curve([settles[i] for i in live], kept[columns[0]].to_numpy(), ask, moment)


def _read_only_day(table: SourceTable, day: str | None) -> Any:
    days = [] if day is None else tables.list_values(table, day).to_list()
    if len(days) != 1:
        close = "2023-02-15T16:15"
        raise ChainError(
            f"{table.name} does not say when it was quoted: give as_of, for instance "
            f"as_of='{close}'",
            Remedy("as_of", close),
        )
    return days[0]


def _read_by_rank(
    table: SourceTable, ranks: dict[str, int], as_of: DateLike | None
) -> FuturesCurve:
    day = _find_column(table, _DAY_COLUMNS)
    if day is None:
        raise ChainError(f"{table.name} has columns VX1, ... and no column date")
    moment = _find_moment(table, as_of, day)
    date = moment_of(moment)[0].astype("datetime64[D]").item()  # of the last prices
    prices = {name: tables.parse_numbers(table, name) for name in ranks}
    rows = table.frame.select(day=tables.parse_dates(table, day), **prices).filter(
        pl.col("day") == date
    )
    if rows.height != 1:
        raise ChainError(f"{table.name} has {rows.height} rows of {date}: give as_of a listed day")
    row = rows.row(0, named=True)
    settles: list[dt.datetime] = []
    year, month = date.year, date.month
    while len(settles) < max(ranks.values()):
        at = monthly_settlement(year, month)
        if np.datetime64(at) > moment:
            settles.append(at)
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    known = {rank: row[name] for name, rank in ranks.items() if row[name] and row[name] > 0.0}
    if not known:
        raise ChainError(f"{table.name} has no price on {date}")
    order = sorted(known)
    prices_known = np.array([known[rank] for rank in order])
    return _build_curve([settles[rank - 1] for rank in order], prices_known, None, moment)


def _build_curve(
    settles: list[dt.datetime], bid: Any, ask: Any, moment: np.datetime64
) -> FuturesCurve:
    try:
        dates = np.array(settles, dtype="datetime64[s]")
        return FuturesCurve.of(dates, bid, ask, as_of=moment)
    except ValueError as error:
        raise ChainError(str(error)) from error
