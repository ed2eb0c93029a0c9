"""Tables with one row per option: named columns found, dates and times understood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import polars as pl

from arbiter.chains.errors import ChainError
from arbiter.chains.source import RawSource, SourceTable, SourceText, read_numbers, split_fields

_MAX_COLUMNS = 200
_DATE_FORMATS = (
    "%Y-%m-%d",
    "%m/%d/%Y",
    "%Y%m%d",
    "%d.%m.%Y",
    "%a %b %d %Y",
    "%b %d %Y",
    "%d %b %Y",
)
_TIME_FORMATS = ("%Y-%m-%d %H:%M:%S%.f", "%Y-%m-%d %H:%M", "%m/%d/%Y %H:%M", "%Y-%m-%d")
_ZONED_FORMATS = ("%Y-%m-%d %H:%M:%S%z", "%Y-%m-%d %H:%M%z", "%Y-%m-%d %H:%M:%S%.f%z")
_DAY_FIRST_PATTERN = r"^(1[3-9]|2\d|3[01])/(0?[1-9]|1[0-2])/\d{4}$"
_SIDE_NAMES = {
    "c": "call",
    "call": "call",
    "calls": "call",
    "p": "put",
    "put": "put",
    "puts": "put",
}


class _Header(NamedTuple):
    place: int  # counted from 0
    delimiter: str
    names: list[str]


def table_of(source: RawSource) -> SourceTable:
    """A source as a table of named columns; the first line of a text gives the names."""
    if isinstance(source, SourceTable):
        names = [_normalise_name(name) for name in source.frame.columns]
        return SourceTable(source.name, _rename_columns(source.frame, names, source.name))
    head = _find_header(source)
    frame = split_fields(source, head.place + 1, head.delimiter, len(head.names))
    named = _rename_columns(frame, ["row", *head.names], source.name)
    return SourceTable(source.name, named, decimal_comma=head.delimiter == ";")


def columns_of(source: RawSource) -> list[str]:
    """The names of the columns that :func:`table_of` would give."""
    if isinstance(source, SourceTable):
        return [_normalise_name(name) for name in source.frame.columns]
    return _find_header(source).names


def _find_header(source: SourceText) -> _Header:
    lines = ((i, line) for i, line in enumerate(source.lines()) if line.strip(' ,;\t"'))
    place, header = next(lines, (None, ""))
    if place is None:
        raise ChainError(f"{source.name} is empty: download it again")
    delimiter = max(",;\t|", key=header.count)
    names = [_normalise_name(name) for name in header.split(delimiter)]
    if len(names) > _MAX_COLUMNS:
        raise ChainError(f"{source.name} has {len(names)} columns: it is not a chain")
    return _Header(place, delimiter, names)


def _normalise_name(name: str) -> str:
    return name.strip().strip("\"'").strip().lower().replace(" ", "_")


def _rename_columns(frame: pl.DataFrame, names: list[str], source: str) -> pl.DataFrame:
    """``frame`` with new names; unnamed columns and repeated ones go, the first stays."""
    kept = {new: old for new, old in reversed(list(zip(names, frame.columns, strict=True))) if new}
    if not kept:
        raise ChainError(f"{source} has no named columns")
    return frame.select([pl.col(old).alias(new) for new, old in kept.items()])


def parse_numbers(table: SourceTable, name: str) -> pl.Series:
    """A column as float64, null where it is not a number."""
    column = table.frame[name]
    if column.dtype.is_numeric():
        return column.cast(pl.Float64)
    return read_numbers(column.cast(pl.String), decimal_comma=table.decimal_comma)


def find_median(table: SourceTable, name: str) -> float | None:
    """The median of a column of numbers; None if it has none."""
    found = parse_numbers(table, name).to_frame().select(pl.all().median()).item()
    return None if found is None else float(found)


def list_values(table: SourceTable, name: str) -> pl.Series:
    """The different values of a column in the order of the table, text without blanks around it."""
    column = table.frame[name].drop_nulls()
    if column.dtype == pl.String:
        column = column.str.strip_chars()
        column = column.filter(column != "")
    return column.unique(maintain_order=True)


def parse_text(name: str) -> pl.Expr:
    """A column as text without blanks around it; empty text is null."""
    clean = pl.col(name).cast(pl.String, strict=False).str.strip_chars()
    return pl.when(clean != "").then(clean)


def read_text(table: SourceTable, name: str) -> pl.Series:
    """The same, read."""
    return table.frame.select(parse_text(name)).to_series()


def parse_sides(name: str) -> pl.Expr:
    """A column of sides as ``"call"`` and ``"put"``, null where it is neither."""
    return (
        parse_text(name)
        .str.to_lowercase()
        .replace_strict(_SIDE_NAMES, default=None, return_dtype=pl.String)
    )


def parse_dates(table: SourceTable, name: str) -> pl.Series:
    """A column as dates, null where it is not one; those with a time zone are that zone's.

    Raises:
        ChainError: If days come before months, which is seen only where a day is above 12.
    """
    dtype = table.frame.schema[name]
    if dtype.is_temporal() and dtype not in (pl.Time, pl.Duration):
        local = table.frame[name]
        if isinstance(dtype, pl.Datetime) and dtype.time_zone:
            local = local.dt.replace_time_zone(None)
        return local.cast(pl.Date, strict=False)
    clean = read_text(table, name).str.replace(r"[T ]\d\d:\d\d.*$", "")
    day_first = table.frame.select("row", day=clean).filter(
        pl.col("day").str.contains(_DAY_FIRST_PATTERN)
    )
    if day_first.height:
        row, day = day_first.row(0)
        raise ChainError(
            f"row {row}: {name} = {day!r} has the day first, and others like it would be read "
            "month first: write dates as 2023-03-17"
        )
    return _take_first(clean, [partial(_parse_date, form=form) for form in _DATE_FORMATS])


def parse_moments(table: SourceTable, name: str) -> pl.Series:
    """A column as New York times without a zone, null where it is not a time."""
    column = table.frame[name]
    if isinstance(column.dtype, pl.Datetime):
        if column.dtype.time_zone:
            column = column.dt.convert_time_zone("America/New_York").dt.replace_time_zone(None)
        return column.cast(pl.Datetime("us"))
    if column.dtype == pl.Date:
        return column.cast(pl.Datetime("us"))
    clean = read_text(table, name).str.replace("T", " ", literal=True).str.replace("Z$", "+00:00")
    zoned = [partial(_parse_zoned, form=form) for form in _ZONED_FORMATS]
    return _take_first(
        clean, [*zoned, *(partial(_parse_time, form=form) for form in _TIME_FORMATS)]
    )


def _parse_date(text: pl.Series, form: str) -> pl.Series:
    return text.str.to_date(form, strict=False)


def _parse_time(text: pl.Series, form: str) -> pl.Series:
    return text.str.to_datetime(form, time_unit="us", strict=False)


def _parse_zoned(text: pl.Series, form: str) -> pl.Series:
    there = _parse_time(text, form).dt.convert_time_zone("America/New_York")
    return there.dt.replace_time_zone(None)


def _take_first(text: pl.Series, readers: Sequence[Callable[[pl.Series], pl.Series]]) -> pl.Series:
    """What the first of several readers makes of each entry that is not null."""
    found = readers[0](text)
    for read in readers[1:]:
        if found.null_count() == text.null_count():
            break
        found = found.zip_with(found.is_not_null(), read(text))
    return found
