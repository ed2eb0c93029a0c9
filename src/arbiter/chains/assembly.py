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
from arbiter.chains.reading import Reading
from arbiter.chains.roots import EUROPEAN_ROOTS, find_common_underlying, find_european_root
from arbiter.chains.sessions import FIRST_YEAR, LAST_YEAR, settlement_time
from arbiter.conventions import MINUTES_PER_YEAR, Indices
from arbiter.exclusions import Exclusion
from arbiter.files.limits import CELLS, EXPIRIES
from arbiter.forwards import DateLike
from arbiter.values import shorten_repr

logger = logging.getLogger(__name__)

_REQUIRED_COLUMNS = (
    *("row", "label", "root", "expiry", "settlement", "settles", "T"),
    *("strike", "side", "bid", "ask"),
)
_SERIES_KEYS = ["root", "expiry", "settlement", "settles"]  # as the source gives them
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
) -> Chain:
    """The chain of a reading; ``as_of``, ``spot`` and ``underlying`` override what it says."""
    moment, notes = _resolve_quote_moment(reading, name, as_of)
    options = _mark_unreadable_rows(reading.options)
    good = options.filter(pl.col("problem").is_null())
    if good.height == 0:
        raise ChainError(
            f"{name}: none of its {options.height} rows is an option with an expiry, a strike and "
            "a side that can be read"
        )
    index = _find_underlying(good, reading, underlying)
    series, place, assumed = _list_series(good)
    EXPIRIES.require(series.height, name, ChainError)
    # parity has a table of them, whose rows are as long as the longest
    CELLS.require(series.height * _find_longest(series), f"{name}, expiry by expiry,", ChainError)
    level = _check_spot(reading.spot if spot is None else spot, good, name)
    frame = _build_frame(good, _name_series(series, moment), place)
    chain = Chain(
        frame=frame,
        as_of=moment,
        spot=level,
        underlying=index,
        layout=reading.layout,
        name=name,
        assumptions=(*reading.notes, *notes, *assumed, *_note_expired_series(frame)),
        set_aside=_collect_problem_rows(options),
    )
    for note in chain.assumptions:
        logger.info("%s: %s", name, note)
    for warning in chain.warnings:
        logger.warning(warning)
    return chain


def _resolve_quote_moment(
    reading: Reading, name: str, as_of: DateLike | None
) -> tuple[np.datetime64, tuple[str, ...]]:
    stamp = reading.stamp if as_of is None else quote_time.parse_as_of(as_of)
    if stamp is None:
        dated = quote_time.parse_stamp(name)
        day = str(dated.moment.astype("datetime64[D]")) if dated else "2023-02-07"
        close = f"{day}T16:15"
        raise ChainError(
            f"{name} does not say when it was quoted: give as_of, New York time, such as "
            f"as_of='{close}' for a close",
            Remedy("as_of", close),
        )
    return quote_time.quote_moment(stamp)


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


def _find_underlying(good: pl.DataFrame, reading: Reading, given: str | None) -> str:
    """The index; options that may be American are refused."""
    roots = sorted(good["root"].drop_nulls().unique())
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


def _list_series(good: pl.DataFrame) -> tuple[pl.DataFrame, Indices, list[str]]:
    """What there is of :data:`_SERIES_KEYS`, and with each when it settles.

    Returns:
        One row per combination in the order of the source, with its number of options ``len``; for
        each option the place of its row; and what was assumed.
    """
    notes = []
    # rows of one series follow one another, so that few of them have to be compared with all
    new = [pl.col(key).ne_missing(pl.col(key).shift()) for key in _SERIES_KEYS]
    head = good.select(pl.any_horizontal(new)).to_series().to_numpy().copy()
    head[0] = True
    first = np.flatnonzero(head)
    runs = good.select(_SERIES_KEYS)[first].with_columns(len=np.diff(first, append=good.height))
    series = runs.group_by(_SERIES_KEYS, maintain_order=True).agg(pl.col("len").sum())
    rank = runs.join(
        series.with_row_index("place"), on=_SERIES_KEYS, nulls_equal=True, maintain_order="left"
    )
    place = rank["place"].to_numpy()[np.cumsum(head) - 1].astype(np.int64)
    table = {root: entry.settlement for root, entry in EUROPEAN_ROOTS.items()}
    of_root = pl.col("root").replace_strict(table, default=None, return_dtype=pl.String)
    morning = pl.col("settles").dt.hour() < 12
    of_time = pl.when(morning).then(pl.lit("AM")).when(~morning).then(pl.lit("PM"))
    filled = pl.coalesce("settlement", of_time, of_root)
    series = series.with_columns(filled.alias("half"))
    unsettled = series.filter(pl.col("half").is_null())
    if unsettled.height:
        root = unsettled["root"].drop_nulls()
        if len(root):
            row = good["row"][int(np.argmax(series["half"].is_null().to_numpy()[place]))]
            raise ChainError(
                f"row {row}: nothing says when root {root[0]!r} settles: give a "
                "column settlement ('AM' or 'PM'), or settles"
            )
        notes.append("no root, settlement or settles is given: taken as settled at the close")
        series = series.with_columns(pl.col("half").fill_null("PM"))
    if series["root"].null_count() and not notes:
        notes.append("no root is given: the options are taken as European")
    times = [settlement_time(*day) for day in series.select("expiry", "half").iter_rows()]
    computed = pl.Series(times, dtype=pl.Datetime("us"))
    return series.with_columns(at=pl.coalesce("settles", computed)), place, notes


def _find_longest(series: pl.DataFrame) -> int:
    return int(np.max(series["len"].to_numpy(), initial=0))


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


def _name_series(series: pl.DataFrame, moment: np.datetime64) -> pl.DataFrame:
    """Series with time, label and name: what settles at one moment has the name of most of it."""
    sizes = series.group_by("at", "root").agg(pl.col("len").sum())
    sizes = sizes.sort("len", "root", descending=[True, False])
    names = sizes.group_by("at", maintain_order=True).agg(name=pl.col("root").first())
    since = pl.lit(moment.astype("datetime64[us]").item())
    minutes = (pl.col("at") - since).dt.total_seconds() // 60
    day = pl.col("at").dt.strftime("%Y-%m-%d")
    listed = pl.col("expiry").dt.strftime("%Y-%m-%d").first().over("at")
    series = series.join(names, on="at", how="left", maintain_order="left").with_columns(
        T=minutes / MINUTES_PER_YEAR,
        label=pl.concat_str(pl.coalesce(listed, day), pl.coalesce("name", "half"), separator=" "),
    )
    # what settles at different times is never one series, whatever it is called
    alike = pl.col("at").n_unique().over("label") > 1
    timed = pl.concat_str("label", pl.col("at").dt.strftime("%m-%d %H:%M"), separator=" ")
    return series.with_columns(label=pl.when(alike).then(timed).otherwise("label"))


def _build_frame(good: pl.DataFrame, series: pl.DataFrame, place: Indices) -> pl.DataFrame:
    """The chain's frame: every option with what its series says."""
    told = series.select("T", "label", root="name", settlement="half", settles="at")
    more = [column for column in _OPTIONAL_COLUMNS if good[column].null_count() < good.height]
    frame = pl.concat([good.drop(told.columns, strict=False), told[place]], how="horizontal")
    return frame.select(*_REQUIRED_COLUMNS, *more)


def _note_expired_series(frame: pl.DataFrame) -> list[str]:
    gone = frame.filter(pl.col("T") <= 0.0)["label"].unique().sort()
    return [f"{', '.join(gone)} had settled by then"] if len(gone) else []


def _collect_problem_rows(options: pl.DataFrame) -> pl.DataFrame:
    bad = options.filter(pl.col("problem").is_not_null())
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
