"""A reading becomes a chain: moment of the quotes, settlement of every option, series, sanity."""

from __future__ import annotations

import datetime as dt
import logging
import math

import numpy as np
import polars as pl

from arbiter.chains import quote_time
from arbiter.chains.chain import Chain
from arbiter.chains.errors import ChainError, Remedy
from arbiter.chains.listed_series import list_series, settle_series
from arbiter.chains.reading import Reading
from arbiter.chains.roots import EUROPEAN_ROOTS, find_common_underlying, find_european_root
from arbiter.conventions import Indices
from arbiter.exclusions import Exclusion, no_exclusions
from arbiter.files.limits import CELLS, EXPIRIES
from arbiter.timing.maturities import DateLike
from arbiter.timing.sessions import FIRST_YEAR, LAST_YEAR, ExchangeCalendar
from arbiter.values import shorten_repr

logger = logging.getLogger(__name__)

_REQUIRED_COLUMNS = (
    *("row", "label", "root", "expiry", "settlement", "settles", "T"),
    *("strike", "side", "bid", "ask"),
)
_OPTIONAL_COLUMNS = ("last", "volume", "open_interest", "quote_time")
_FIRST_DAY, _LAST_DAY = dt.date(FIRST_YEAR, 1, 1), dt.date(LAST_YEAR, 12, 31)
_LONGEST_NAME = 32  # letters of a root or an index; the exchange's have six at most
_MAX_STRIKE_SPOT_RATIO = 20.0  # median strike over spot, or spot over it: beyond, units differ


def assemble_chain(
    reading: Reading,
    name: str,
    *,
    as_of: DateLike | None,
    spot: float | None,
    underlying: str | None,
    calendar: str = "NYSE",
) -> Chain:
    """The chain of a reading; ``as_of``, ``spot`` and ``underlying`` override what it says."""
    hours = quote_time.require_calendar(calendar)
    moment, notes, doubts = _resolve_quote_moment(reading, name, as_of, hours)
    options = _mark_unreadable_rows(reading.options)
    wrong = options["problem"].is_not_null()
    good = options.filter(~wrong) if wrong.any() else options
    if good.height == 0:
        raise ChainError(
            f"{name}: none of its {options.height} rows is an option with an expiry, a strike and "
            "a side that can be read"
        )
    listed = list_series(good)
    EXPIRIES.require(listed.keys.height, name, ChainError)
    # parity has a table of them, whose rows are as long as the longest
    longest = int(np.bincount(listed.place).max())
    CELLS.require(listed.keys.height * longest, f"{name}, expiry by expiry,", ChainError)
    index = _find_underlying(listed.keys["root"], reading, underlying)
    series, assumed = settle_series(listed, good, moment)
    level = _check_spot(reading.spot if spot is None else spot, good, name)
    chain = Chain(
        frame=_build_frame(good, series, listed.place),
        as_of=moment,
        spot=level,
        underlying=index,
        layout=reading.layout,
        name=name,
        assumptions=(*reading.notes, *notes, *assumed, *_note_expired_series(series)),
        set_aside=_list_problem_rows(options.filter(wrong)) if wrong.any() else no_exclusions(),
        doubts=doubts,
    )
    for note in chain.assumptions:
        logger.info("%s: %s", name, note)
    for warning in chain.warnings:
        logger.warning(warning)
    return chain


def _resolve_quote_moment(
    reading: Reading, name: str, as_of: DateLike | None, calendar: ExchangeCalendar
) -> tuple[np.datetime64, tuple[str, ...], tuple[str, ...]]:
    """The moment of the quotes, what was assumed about it, and what speaks against it."""
    own = reading.stamp
    if as_of is None and own is None:
        dated = quote_time.parse_stamp(name)
        day = str(dated.moment.astype("datetime64[D]")) if dated else "2023-02-07"
        close = f"{day}T16:15"
        raise ChainError(
            f"{name} does not say when it was quoted: give as_of, New York time, such as "
            f"as_of='{close}' for a close",
            Remedy("as_of", close),
        )
    said = None if own is None else quote_time.quote_moment(own, calendar)
    if as_of is None and said is not None:
        return *said, ()
    moment, notes, doubts = quote_time.given_moment(as_of, calendar)
    if own is not None and said is not None:
        apart = quote_time.contrast_moments(name, moment, said[0], inferred=own.inferred)
        doubts = (*doubts, *apart)
    return moment, notes, doubts


def _mark_unreadable_rows(options: pl.DataFrame) -> pl.DataFrame:
    """Rows whose dates are outside the calendar cannot be read."""
    inside = pl.col("expiry").is_between(_FIRST_DAY, _LAST_DAY).fill_null(False)
    if options["settles"].null_count() < options.height:
        inside &= pl.col("settles").dt.year().is_between(FIRST_YEAR, LAST_YEAR).fill_null(True)
    inside &= pl.col("strike").is_finite().fill_null(False)
    wrong = pl.col("problem").is_null() & ~inside
    return options.with_columns(
        problem=pl.when(wrong).then(pl.lit(Exclusion.UNREADABLE.value)).otherwise("problem")
    )


def _find_underlying(listed: pl.Series, reading: Reading, given: str | None) -> str:
    """The index; options that may be American are refused."""
    roots = sorted(set(listed.drop_nulls()))
    for root in (*roots, given or "", reading.underlying or ""):
        if len(root) > _LONGEST_NAME or not root.isprintable():
            raise ChainError(
                f"root {shorten_repr(root)} is no name of an option series: give at most "
                f"{_LONGEST_NAME} letters, without control characters"
            )
    named = (given or reading.underlying or "").upper().lstrip("^")
    if reading.declared:
        known = {find_european_root(root).underlying for root in roots if root in EUROPEAN_ROOTS}
        names = sorted(known | {root for root in roots if root not in EUROPEAN_ROOTS})
        return named or (names[0] if len(names) == 1 else "unknown")
    found = find_common_underlying(roots) if roots else None
    if found is None:
        return find_european_root(named).underlying if named else "unknown"
    if named and find_european_root(named).underlying != found:
        raise ChainError(f"underlying = {named!r}, but the options are on {found}")
    return found


def _check_spot(spot: float | None, good: pl.DataFrame, name: str) -> float | None:
    """The spot, if it can be one."""
    if spot is None:
        return None
    try:
        level = float(spot)
    except (TypeError, ValueError) as error:
        raise ChainError(f"spot = {spot!r} is not a number") from error
    if not (math.isfinite(level) and level > 0.0):
        raise ChainError(f"spot = {level!r} must be positive: leave it out if it is not known")
    typical = float(np.median(good["strike"].to_numpy()))
    if not 1.0 / _MAX_STRIKE_SPOT_RATIO < typical / level < _MAX_STRIKE_SPOT_RATIO:
        raise ChainError(
            f"{name}: the median strike is {typical:g} and spot is {level:g}: they are in "
            "different units (strikes times 1000, or an index of another scale)"
        )
    return level


def _build_frame(good: pl.DataFrame, series: pl.DataFrame, place: Indices) -> pl.DataFrame:
    """The chain's frame: every option with what its series says."""
    more = [column for column in _OPTIONAL_COLUMNS if good[column].null_count() < good.height]
    told = series[place]
    return pl.DataFrame(
        [(told if name in told.columns else good)[name] for name in (*_REQUIRED_COLUMNS, *more)]
    )


def _note_expired_series(series: pl.DataFrame) -> list[str]:
    gone = sorted(set(series["label"].filter(series["T"] <= 0.0)))
    return [f"{', '.join(gone)} had settled by then"] if gone else []


def _list_problem_rows(bad: pl.DataFrame) -> pl.DataFrame:
    return bad.select(
        "row",
        expiry=pl.col("expiry").dt.strftime("%Y-%m-%d"),
        T=pl.lit(None, dtype=pl.Float64),
        strike="strike",
        side="side",
        bid="bid",
        ask="ask",
        reason="problem",
    )
