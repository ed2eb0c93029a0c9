"""Bid and ask implied volatilities with forwards: the layout of published SPX and VIX days."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.chains import quote_time, tables
from arbiter.chains.cleaning import FEWEST_STRIKES, SHORTEST_DAYS
from arbiter.chains.errors import ChainError
from arbiter.chains.source import SourceTable, load_source
from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.exclusions import Exclusion
from arbiter.quotes import Quotes, leave_out
from arbiter.timing.maturities import DateLike

_REQUIRED_COLUMNS = ("expiry", "strike", "bid", "ask", "fwd")
_DAYS_PER_YEAR_CHOICES = (365.25, 365.0, 360.0)  # days of a year that files count with
_WHOLE_DAY_TOLERANCE = 1e-3  # days: how far from a whole number of them a maturity may be


def read_volatilities(
    source: Any,
    *,
    as_of: DateLike | None = None,
    shortest_days: float = SHORTEST_DAYS,
    fewest_strikes: int = FEWEST_STRIKES,
    percent: bool | None = None,
) -> Quotes:
    """Read implied volatilities of options on an index, or on VIX futures.

    Args:
        source: Path of a CSV or Parquet file, its bytes, or a table, with ``Expiry`` (a date),
            ``Strike``, ``Bid`` and ``Ask`` (decimal volatilities; empty where nobody bids or
            asks) and ``Fwd``, one per expiry; and ``Texp``, in years, that they were made with.
        as_of: Day of the quotes; found from ``Expiry`` and ``Texp`` where left out.
        shortest_days: Expiries nearer than this are not used.
        fewest_strikes: Nor are those with fewer two-sided strikes.
        percent: Whether volatilities are in percent; None for decimals, and to refuse what looks
            like percent.

    Returns:
        Quotes in units of the forward, which of VIX options is the implied future. Maturities
        are whole days / 365, so that 30 days after a VIX expiry is the SPX expiry it settles on;
        volatilities are converted from the year that ``Texp`` counts with. Prices stay.

    Raises:
        ChainError: If columns are missing or contradict each other.

    Example:
        >>> table = {
        ...     "Expiry": [20230322] * 3,
        ...     "Texp": [35 / 365.25] * 3,
        ...     "Strike": [18.0, 20.0, 25.0],
        ...     "Bid": [0.71, 0.72, 0.95],
        ...     "Ask": [0.75, 0.76, 1.0],
        ...     "Fwd": [20.1] * 3,
        ... }
        >>> read_volatilities(table, fewest_strikes=3)
        Quotes(3 on 1 expiries, T 0.09589 to 0.09589, 0 excluded)
    """
    loaded = load_source(source)
    table = tables.table_of(loaded)
    missing = [name for name in (*_REQUIRED_COLUMNS, "texp") if name not in table.frame.columns]
    if missing:
        raise ChainError(
            f"{loaded.name} is no table of volatilities: it lacks {', '.join(missing)}; give "
            "Expiry, Texp, Strike, Bid, Ask and Fwd (a chain of prices goes to read_chain)"
        )
    values = {
        name: tables.parse_numbers(table, name) for name in ("strike", "bid", "ask", "fwd", "texp")
    }
    frame = table.frame.select("row", expiry=tables.parse_dates(table, "expiry"), **values)
    for name, ok in (
        ("expiry", pl.col("expiry").is_not_null()),
        ("strike", pl.col("strike") > 0.0),
        ("fwd", pl.col("fwd") > 0.0),
        ("texp", pl.col("texp") > 0.0),
    ):
        bad = frame.filter(~ok.fill_null(False))
        if bad.height:
            raise ChainError(
                f"row {bad['row'][0]}: {name} = {bad[name][0]!r}; every row needs a date as expiry "
                "and positive strike, fwd and texp"
            )
    days, day = _count_days(frame, table, as_of)
    quotes = Quotes.from_frame(
        {
            "T": days / DAYS_PER_YEAR,
            "k": np.log(frame["strike"].to_numpy() / frame["fwd"].to_numpy()),
            **{
                f"iv_{side}": frame[side].fill_null(np.nan).to_numpy()
                * np.sqrt(frame["texp"].to_numpy() / (days / DAYS_PER_YEAR))
                for side in ("bid", "ask")
            },
            "forward": frame["fwd"].to_numpy(),
            "expiry": frame["expiry"].cast(pl.String).to_list(),
        },
        as_of=day,
        percent=percent,
    )
    return _drop_unusable_expiries(
        _restore_source_rows(quotes, frame), shortest_days, fewest_strikes
    )


def _count_days(
    frame: pl.DataFrame, table: SourceTable, as_of: DateLike | None
) -> tuple[Array, Any]:
    """Whole days to each row's expiry, and the day they are counted from."""
    expiry = frame["expiry"].to_numpy().astype("datetime64[D]")
    texp = frame["texp"].to_numpy()
    stated = _find_stated_day(expiry, texp)
    if as_of is not None:
        day = quote_time.parse_as_of(as_of).moment.astype("datetime64[D]")
        days = (expiry - day).astype(np.float64)
        if days.min() <= 0.0:
            row = frame["row"][int(np.argmin(days))]
            raise ChainError(f"row {row}: the expiry is not after as_of = {day}: drop it")
        if stated is not None:
            quote_time.contrast_moments(table.name, day, stated[1])
        return days, day.astype("datetime64[s]")
    if stated is not None:
        return stated[0], stated[1].astype("datetime64[s]")
    raise ChainError(
        f"{table.name}: Expiry less Texp is not one day for all rows: give as_of, the day of the "
        "quotes"
    )


def _find_stated_day(
    expiry: NDArray[np.datetime64], texp: Array
) -> tuple[Array, np.datetime64] | None:
    """Whole days to each row's expiry and the one day they count from; None if there is none."""
    for base in _DAYS_PER_YEAR_CHOICES:
        days = np.round(texp * base)
        start = expiry - days.astype("timedelta64[D]")
        if np.all(np.abs(texp * base - days) < _WHOLE_DAY_TOLERANCE) and np.all(start == start[0]):
            return days, start[0]
    return None


def _restore_source_rows(quotes: Quotes, frame: pl.DataFrame) -> Quotes:
    """Exclusions with the lines, strikes and volatilities of the source."""
    place = quotes.exclusions["row"].to_numpy() - 1
    source = frame[place].select("row", "strike", "bid", "ask")
    return replace(quotes, exclusions=quotes.exclusions.with_columns(source.get_columns()))


def _drop_unusable_expiries(quotes: Quotes, shortest: float, fewest: int) -> Quotes:
    """Without expiries that are too short or have too few strikes; each is a reason."""
    count = np.bincount(quotes.expiry, minlength=quotes.maturities.size)
    short = DAYS_PER_YEAR * quotes.maturities < shortest - 1e-9
    few = ~short & (count < fewest)
    if (short | few).all():
        raise ChainError(
            f"no expiry of {quotes.maturities.size} has {fewest} two-sided strikes and "
            f"{shortest:g} days: lower fewest_strikes or shortest_days"
        )
    reasons = (
        Exclusion.TOO_SHORT if s else Exclusion.TOO_FEW if f else None
        for s, f in zip(short, few, strict=True)
    )
    return leave_out(quotes, list(reasons), fewest)
