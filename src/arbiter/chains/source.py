"""What a chain is read from: a file's lines, or a table; never more than memory can hold."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from arbiter.chains.errors import ChainError

MAX_BYTES = 64 * 1024 * 1024  # bytes: a chain of one moment has two or three million
MAX_LINE_LENGTH = 20_000  # characters
MAX_ROWS = 1_000_000
_BLANKS = ' ,;\t"'  # what a line without content may have
_THOUSANDS_PATTERN = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$"

_PACKED_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"BZh": "bzip2",
}


@dataclass(frozen=True)
class SourceText:
    """Lines of a text file; line ``i`` of an editor is ``lines[i − 1]``."""

    name: str
    lines: list[str]


@dataclass(frozen=True)
class SourceTable:
    """A table with named columns and, in ``row``, where each row stood in the source."""

    name: str
    frame: pl.DataFrame
    decimal_comma: bool = False


RawSource: TypeAlias = SourceText | SourceTable


def load_source(source: Any) -> RawSource:
    """Take in a path, the bytes of a file, or a polars or pandas frame.

    What was loaded before is returned as it is, so that a file is read once.

    Raises:
        ChainError: If there is nothing to read, or it is not text, Parquet or a table.
    """
    if isinstance(source, SourceText | SourceTable):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return _load_bytes(bytes(source), "bytes")
    if isinstance(source, str | PathLike):
        return _load_path(Path(source))
    return SourceTable("frame", _number_rows(_convert_frame(source)))


def _load_path(path: Path) -> RawSource:
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise ChainError(f"{path} is not a file: give the file of one chain")
        if size > MAX_BYTES:
            raise ChainError(
                f"{path.name} has {size / 2**20:,.0f} MiB, more than {MAX_BYTES // 2**20}: give "
                "the quotes of one moment and one underlying"
            )
        content = path.read_bytes()
    except (OSError, ValueError) as error:
        if isinstance(error, ChainError):
            raise
        raise ChainError(f"{str(path)!r} cannot be read: {error}") from error
    # a name may hold bytes that are no UTF-8, and nothing that is written could hold it then
    return _load_bytes(content, os.fsencode(path.name).decode(errors="replace"))


def _load_bytes(content: bytes, name: str) -> RawSource:
    if len(content) > MAX_BYTES:
        raise ChainError(f"{name}: {len(content):,} bytes are more than {MAX_BYTES:,}")
    if content[:4] == b"PAR1":
        return SourceTable(name, _number_rows(_read_parquet(content, name)))
    for magic, packing in _PACKED_FORMATS.items():
        if content.startswith(magic):
            raise ChainError(f"{name} is {packing}: unpack it, or save it as CSV")
    return SourceText(name, _decode_lines(content, name))


def _decode_lines(content: bytes, name: str) -> list[str]:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = content.decode("utf-16", errors="replace")
    else:
        text = content.decode("utf-8-sig", errors="replace")
    if "\0" in text:
        raise ChainError(f"{name} is binary: give a text file (CSV, .dat) or Parquet")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if not text.strip():
        raise ChainError(f"{name} is empty: download it again")
    if len(lines) > MAX_ROWS:
        raise ChainError(f"{name} has more than {MAX_ROWS:,} lines: give the quotes of one moment")
    longest = max(map(len, lines))
    if longest > MAX_LINE_LENGTH:
        raise ChainError(f"{name} has a line of {longest:,} characters: it is not a table")
    if text.lstrip()[:200].lower().startswith(("<!doctype", "<html", "<?xml")):
        raise ChainError(f"{name} is a web page: use the page's link that downloads the CSV file")
    return lines


def _read_parquet(content: bytes, name: str) -> pl.DataFrame:
    try:
        rows = pl.scan_parquet(content).select(pl.len()).collect().item()
        if rows > MAX_ROWS:
            raise ChainError(f"{name} has {rows:,} rows: give the quotes of one moment")
        return pl.read_parquet(content)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError) as error:
        raise ChainError(f"{name} is not a readable Parquet file: {error}") from error


def _convert_frame(source: Any) -> pl.DataFrame:
    if isinstance(source, pl.LazyFrame):
        source = source.collect()
    if isinstance(source, pl.DataFrame):
        return source
    columns = source if isinstance(source, Mapping) else None
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        columns = {str(name): _convert_column(source[name]) for name in source.columns}
    if columns is None:
        raise ChainError(
            f"{type(source).__name__} is not a chain: give a path, a polars or pandas frame, or a "
            "mapping of columns"
        )
    try:
        return pl.DataFrame({str(name): values for name, values in columns.items()}, strict=False)
    except (pl.exceptions.PolarsError, TypeError, ValueError) as error:
        raise ChainError(f"the table cannot be read: {error}") from error


def _convert_column(column: Any) -> Any:
    """A pandas column: what it keeps as objects as a list, times in a unit that polars has."""
    values = column.to_numpy()
    if values.dtype == object:
        return column.astype(object).where(column.notna(), None).tolist()
    return values.astype("datetime64[us]") if values.dtype.kind == "M" else values


def _number_rows(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with its rows numbered from 1, and what is neither number nor date as text."""
    if frame.height > MAX_ROWS:
        raise ChainError(f"the table has {frame.height:,} rows: give the quotes of one moment")
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean)):
            words = [None if value is None else str(value) for value in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, words, dtype=pl.String))
    frame = frame.drop("row", strict=False)
    return frame.with_row_index("row", offset=1).cast({"row": pl.Int64})


def split_fields(
    lines: list[str], first: int, delimiter: str, width: int, wanted: Sequence[int] | None = None
) -> pl.DataFrame:
    """Columns ``row``, ``f0`` … of text, from the lines with a place of at least ``first``.

    ``first`` counts from 0. Blank lines are left out; fields that a line does not have, and empty
    ones, are null. Of the ``width`` fields only those ``wanted`` are kept, or all.
    """
    text = pl.Series(lines[first:], dtype=pl.String)
    places = (text.str.strip_chars(_BLANKS) != "").arg_true()
    kept = [lines[first + i] for i in places] if len(places) < len(text) else lines[first:]
    names = [f"f{i}" for i in range(width)]
    content = "\n".join(kept)
    if '"' in content or not kept:
        cells = [next(csv.reader([line], delimiter=delimiter), []) for line in kept]
        padded = [[cell or None for cell in (line + [""] * width)[:width]] for line in cells]
        frame = pl.DataFrame(padded, schema=dict.fromkeys(names, pl.String), orient="row")
        frame = frame if wanted is None else frame.select(names[i] for i in wanted)
    else:
        frame = pl.read_csv(
            content.encode(),
            has_header=False,
            columns=None if wanted is None else list(wanted),
            separator=delimiter,
            quote_char=None,
            schema=dict.fromkeys(names, pl.String),
            extra_columns="ignore",
            missing_columns="insert",
        )
    return frame.insert_column(0, (places.cast(pl.Int64) + (first + 1)).alias("row"))


def read_numbers(column: pl.Series, *, decimal_comma: bool = False) -> pl.Series:
    """Text as float64, null where it is not a number; thousands marks and $ are taken off.

    Without ``decimal_comma`` a comma is a mark of thousands where it can be one, in front of three
    digits; ``0,05`` is not a number, and not five.
    """
    plain = column.cast(pl.Float64, strict=False)
    if plain.null_count() == column.null_count():
        return plain  # nothing to take off
    text = pl.col(column.name).str.strip_chars().str.strip_chars(" \u00a0\u202f$'\"")
    if decimal_comma:
        text = text.str.replace_all(",", ".")
    else:
        whole = text.str.contains(_THOUSANDS_PATTERN)
        text = pl.when(whole).then(text.str.replace_all(",", "")).otherwise(text)
    return column.to_frame().select(text.cast(pl.Float64, strict=False)).to_series()
