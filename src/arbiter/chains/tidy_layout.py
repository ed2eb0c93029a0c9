"""The tidy layout: one row per option, columns by name (docs/chains.md lists them)."""

from __future__ import annotations

import polars as pl

from arbiter.chains import quote_time, symbols, tables
from arbiter.chains.errors import ChainError
from arbiter.chains.reading import Reading, options_frame
from arbiter.chains.source import RawSource, SourceTable
from arbiter.exclusions import Exclusion

NAME = "tidy"
COLUMN_ALIASES = {
    "symbol": ("symbol", "option_symbol", "occ_symbol"),
    "expiry": ("expiry", "expiration", "expiration_date"),
    "settles": ("settles",),
    "strike": ("strike",),
    "side": ("side", "type", "option_type", "right", "call_put", "cp_flag"),
    "bid": ("bid", "bid_price", "best_bid"),
    "ask": ("ask", "ask_price", "best_ask", "best_offer"),
    "root": ("root", "option_root"),
    "settlement": ("settlement",),
    "exercise": ("exercise", "exercise_style"),
    "underlying": ("underlying", "underlying_symbol"),
    "spot": ("spot", "underlying_price", "index_spot"),
    "as_of": ("as_of",),
    "quote_time": ("quote_time", "quote_datetime"),
    "last": ("last", "last_price", "last_sale"),
    "volume": ("volume",),
    "open_interest": ("open_interest",),
}
_NUMERIC_COLUMNS = ("strike", "bid", "ask", "last", "volume", "open_interest")


def describe_missing(source: RawSource) -> str | None:
    """What a source of this layout has and ``source`` has not; None if it is one."""
    found = _match_columns(tables.columns_of(source))
    missing = [name for name in ("bid", "ask") if name not in found]
    if "symbol" not in found:
        missing += [name for name in ("strike", "side") if name not in found]
        if not {"expiry", "settles"} & set(found):
            missing.append("expiry (or settles)")
    return f"no column {', '.join(missing)}" if missing else None


def read(source: RawSource) -> Reading:
    """Read a source of this layout."""
    table = tables.table_of(source)
    found = _match_columns(table.frame.columns)
    values: dict[str, pl.Expr | pl.Series] = {}
    if "symbol" in found:
        values |= symbols.split_symbols(
            table.frame.select(tables.parse_text(found["symbol"])).to_series()
        ).to_dict()
    values |= {
        name: tables.parse_numbers(table, found[name]) for name in _NUMERIC_COLUMNS if name in found
    }
    times: list[str] = [name for name in ("settles", "quote_time") if name in found]
    moments = {name: tables.parse_moments(table, found[name]) for name in times}
    values |= moments
    if "side" in found:
        values["side"] = tables.parse_sides(found["side"])
    if "expiry" in found:
        values["expiry"] = tables.parse_dates(table, found["expiry"])
    elif "settles" in found:
        values["expiry"] = moments["settles"].dt.date()
    if "root" in found:
        values["root"] = tables.parse_text(found["root"]).str.to_uppercase()
    if "settlement" in found:
        values["settlement"] = tables.parse_text(found["settlement"]).str.to_uppercase()
    frame = table.frame.select("row", **values)
    _check_settlements(frame)
    whole = pl.all_horizontal(pl.col("expiry", "side").is_not_null()) & (pl.col("strike") > 0.0)
    if "settles" in found:
        whole &= pl.col("settles").is_not_null()
    options = frame.with_columns(
        problem=pl.when(~whole.fill_null(False)).then(pl.lit(Exclusion.UNREADABLE.value))
    )
    return Reading(
        options_frame(options),
        NAME,
        _read_stamp(table, found, frame),
        _read_spot(table, found),
        _read_underlying(table, found),
        declared=_declares_european(table, found),
    )


def _match_columns(present: list[str]) -> dict[str, str]:
    """Those of our columns that are ``present``: our name and theirs."""
    hits = {
        ours: [name for name in names if name in present] for ours, names in COLUMN_ALIASES.items()
    }
    return {ours: names[0] for ours, names in hits.items() if names}


def _check_settlements(frame: pl.DataFrame) -> None:
    if "settlement" not in frame.columns:
        return
    odd = frame.filter(~pl.col("settlement").is_in(["AM", "PM"]))
    if odd.height:
        row = odd.row(0, named=True)
        raise ChainError(
            f"row {row['row']}: settlement = {row['settlement']!r}; write 'AM' for options that "
            "settle at the open and 'PM' for those that settle at the close"
        )


def _read_stamp(
    table: SourceTable, found: dict[str, str], frame: pl.DataFrame
) -> quote_time.Stamp | None:
    """The one moment in ``as_of``, or the latest in ``quote_time``."""
    if "as_of" in found:
        moments = tables.list_values(table, found["as_of"])
        if len(moments) > 1:
            raise ChainError(
                f"as_of has {len(moments)} different values ({moments[0]}, {moments[1]}, ...): "
                "give the quotes of one moment"
            )
        if len(moments):
            return quote_time.parse_as_of(moments[0])
    if "quote_time" in found:
        latest = frame["quote_time"].max()
        if latest is not None:
            stamp = quote_time.parse_as_of(latest)
            note = f"as_of is not given: taken as the latest quote_time, {stamp.moment}"
            return stamp._replace(notes=(note,), inferred=True)
    return None


def _read_spot(table: SourceTable, found: dict[str, str]) -> float | None:
    if "spot" not in found:
        return None
    spot = tables.find_median(table, found["spot"])
    return spot if spot is not None and 0.0 < spot < float("inf") else None


def _read_underlying(table: SourceTable, found: dict[str, str]) -> str | None:
    if "underlying" not in found:
        return None
    names = (
        table.frame.select(tables.parse_text(found["underlying"])).to_series().drop_nulls().unique()
    )
    if len(names) > 1:
        raise ChainError(
            f"the table has options on {', '.join(sorted(names.head(5)))}: give one at a time"
        )
    return str(names[0]).upper() if len(names) else None


def _declares_european(table: SourceTable, found: dict[str, str]) -> bool:
    """Whether the table says that every option is European.

    Raises:
        ChainError: If it says that one is not.
    """
    if "exercise" not in found:
        return False
    styles = table.frame.select(
        "row", style=tables.parse_text(found["exercise"]).str.to_lowercase()
    )
    american = styles.filter(pl.col("style").str.starts_with("a"))
    if american.height:
        raise ChainError(
            f"row {american['row'][0]}: exercise is American; put-call parity gives no forward for "
            "American options: leave them out"
        )
    return bool(styles["style"].str.starts_with("e").fill_null(False).all())
