"""The exchange's download: one line per strike, call on the left and put on the right.

Two editions differ in their header and in how they write dates; the lines are alike. Column names
repeat, may be missing or in another language, and are read by place: what stands left of the
strike is the call's, what stands right of it the put's. Root, expiry, side and strike come from
the option's symbol, which every edition has, and are checked against the strike's own column.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from arbiter.chains import quote_time, symbols
from arbiter.chains.errors import ChainError
from arbiter.chains.reading import Reading, options_frame
from arbiter.chains.source import RawSource, SourceTable, SourceText, read_numbers, split_fields
from arbiter.exclusions import Exclusion

NAME = "exchange"
_CALL_PATTERN, _PUT_PATTERN = (rf"[A-Z]{{1,6}}[ _]*\d{{6}}{side}\d{{8}}" for side in "CP")
_CALL_SYMBOL, _PUT_SYMBOL = re.compile(_CALL_PATTERN), re.compile(_PUT_PATTERN)
_SYMBOL_PAIR_PATTERN = f"{_CALL_PATTERN}.*{_PUT_PATTERN}"
_STANDARD_PLACES = {"last": 2, "bid": 4, "ask": 5, "volume": 6, "open_interest": 10}
_STRIKE_PLACE, _PUT_PLACE, _MIN_LINE_FIELDS = 11, 12, 22
_COLUMN_NAMES = {
    "last sale": "last",
    "last": "last",
    "bid": "bid",
    "ask": "ask",
    "vol": "volume",
    "volume": "volume",
    "open int": "open_interest",
    "open interest": "open_interest",
}
_MAX_HEADER_LINES = 12
_HEAD_BYTES = 16_384  # where the first options of a file stand
_STRIKE_TOLERANCE = 0.0051  # symbols have three decimals, the strike's own column two
_DATE_PATTERN = re.compile(r"\bdate\b|@", re.IGNORECASE)  # an index level may look like a year


def describe_missing(source: RawSource) -> str | None:
    """What a file of this layout has and ``source`` has not; None if it is one."""
    if isinstance(source, SourceTable):
        return "it is a text file, not a table"
    for text in (source.content[:_HEAD_BYTES], source.content):  # most files show it at once
        found = pl.Series([text.decode(errors="replace")])
        if found.str.contains(_SYMBOL_PAIR_PATTERN).item():  # in linear time, unlike Python's
            return None
    return "no line with a call's and a put's symbol, such as SPXW230317C04000000"


def read(text: SourceText) -> Reading:
    """Read a file of this layout."""
    lines = []  # up to the first of an option
    for line in text.lines():
        lines.append(line)
        if _has_symbol_pair(line):
            break
    first = len(lines) - 1
    delimiter = max(",;\t", key=lines[first].count)
    header = [i for i in range(first) if "strike" in lines[i].lower()]
    places = _find_column_places(lines[header[-1]], delimiter) if header else _STANDARD_PLACES
    strike, put = places.get("strike", _STRIKE_PLACE), places.get("put", _PUT_PLACE)
    values = {name: i for name, i in places.items() if name not in ("strike", "put")}
    width = max(_MIN_LINE_FIELDS, max(places.values()) + put)
    wanted = {0, 1, strike, put, *values.values(), *(i + put - 1 for i in values.values())}
    body = split_fields(
        text, (header[-1] + 1) if header else first, delimiter, width, sorted(wanted)
    )
    comma = delimiter != ","
    options = _read_options(body, values, strike, put, comma)
    _check_strike_units(options)
    # a line whose strike is not that of its symbols was put together wrongly
    torn = (pl.col("listed") - pl.col("strike")).abs() > _STRIKE_TOLERANCE
    options = options.with_columns(
        problem=pl.when(pl.col("problem").is_null() & torn.fill_null(False))
        .then(pl.lit(Exclusion.UNREADABLE.value))
        .otherwise("problem")
    )
    top = lines[: header[-1] if header else first]
    return Reading(
        options_frame(options),
        "exchange (old)" if _is_old_edition(top, body) else "exchange (new)",
        _read_stamp(top),
        _read_spot(top, comma),
    )


def _has_symbol_pair(line: str) -> bool:
    """Whether a call's symbol and then a put's stand in ``line`` (two searches: linear time)."""
    call = _CALL_SYMBOL.search(line)
    return call is not None and _PUT_SYMBOL.search(line, call.end()) is not None


def _find_column_places(header: str, delimiter: str) -> dict[str, int]:
    """Where the call's columns and the strike stand, by the header's names if it has them."""
    names = [name.strip().strip('"').lower() for name in header.split(delimiter)]
    if "strike" not in names or "puts" not in names:
        return _STANDARD_PLACES
    strike, put = names.index("strike"), names.index("puts")
    places = {
        _COLUMN_NAMES[name]: i for i, name in enumerate(names[:strike]) if name in _COLUMN_NAMES
    }
    if not {"bid", "ask"} <= set(places):
        return _STANDARD_PLACES
    return {**places, "strike": strike, "put": put}


def _read_options(
    body: pl.DataFrame, places: dict[str, int], strike: int, put: int, comma: bool
) -> pl.DataFrame:
    """The call and then the put of each line, with the strike that the line lists for both."""

    def read_column(place: int) -> pl.Series:
        return read_numbers(body[f"f{place}"], decimal_comma=comma)

    listed = read_column(strike)
    halves = [
        pl.DataFrame(
            {
                "row": body["row"],
                "symbol": body[f"f{symbol}"],
                "listed": listed,
                **{name: read_column(place + offset) for name, place in places.items()},
            }
        )
        # a put's columns follow its symbol as a call's follow the call's
        for symbol, offset in ((1, 0), (put, put - 1))
    ]
    lines = np.arange(body.height)  # the call and then the put of each
    order = np.stack([lines, body.height + lines], axis=1).ravel()
    options = pl.concat(halves, rechunk=True)[order]
    found = symbols.split_symbols(options["symbol"])
    side = pl.Series("side", ["call", "put"])[np.tile([0, 1], body.height)]
    right = (found["side"] == side) & found["expiry"].is_not_null() & (found["strike"] > 0.0)
    return options.with_columns(
        found["root"],
        found["expiry"],
        found["strike"],
        side,
        problem=pl.when(~right.fill_null(False)).then(pl.lit(Exclusion.UNREADABLE.value)),
    )


def _check_strike_units(options: pl.DataFrame) -> None:
    """Refuse a strike column that contradicts the symbols."""
    listed, strike = (options[name].to_numpy() for name in ("listed", "strike"))
    both = np.flatnonzero(options["problem"].is_null().to_numpy() & (listed > 0.0))
    if both.size == 0:
        return
    factor = float(np.median(listed[both] / strike[both]))
    if abs(factor - 1.0) > 1e-6:
        row = options.row(int(both[0]), named=True)
        raise ChainError(
            f"row {row['row']}: the strike column says {row['listed']:g} and the symbol "
            f"{row['strike']:g}, a factor of {factor:g}: the strikes are in other units"
        )


def _is_old_edition(top: list[str], body: pl.DataFrame) -> bool:
    return any("@" in line for line in top) or bool(
        body["f0"].str.contains(r"^\d\d/\d\d/\d{4}$").any()
    )


def _read_stamp(top: list[str]) -> quote_time.Stamp | None:
    """The moment in the lines above the table, up to the first quote of the index."""
    likely_first = sorted(top[-_MAX_HEADER_LINES:], key=lambda line: not _DATE_PATTERN.search(line))
    for line in likely_first:
        found = quote_time.parse_stamp(re.split(r"[,;\t\"]\s*Bid\b", line)[0])
        if found:
            return found
    return None


def _read_spot(top: list[str], comma: bool) -> float | None:
    """The index level: after ``Last:``, or in the second field of the first line."""
    for line in top[-_MAX_HEADER_LINES:]:
        found = re.search(r"Last:\s*([\d.,]*\d)", line) or re.match(r"\^.*?[,;\t]\s*([\d.]+)", line)
        if found:
            text = found[1].replace(",", "." if comma else "")
            level = float(text) if re.fullmatch(r"\d+\.?\d*", text) else 0.0
            return level if level > 0.0 else None
    return None
