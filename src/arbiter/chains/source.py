"""What a chain is read from: a file's lines, or a table; never more than the limits allow."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter import forked
from arbiter.chains.errors import ChainError
from arbiter.chains.parquet_files import read_parquet
from arbiter.files.limits import BYTES, CELLS, ROWS, read_within_limit
from arbiter.files.safe_text import show_controls

_MAX_LINE_LENGTH = 20_000  # characters
_LINES_AT_ONCE = 256
_BYTES_AT_ONCE = 65_536  # a block of them and its comparison stay in the cache
_QUOTED_LINES_AT_ONCE = 5_000
_BLANKS = b' ,;\t"'  # what a line without content may have
_THOUSANDS_PATTERN = r"^[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?$"

_WEB_PAGE_PATTERN = re.compile(rb"\s*<(!doctype|html|\?xml)", re.IGNORECASE)
_PACKED_FORMATS = {
    b"\x1f\x8b": "gzip",
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\xfd7zXZ": "xz",
    b"7z\xbc\xaf": "a 7z archive",
    **dict.fromkeys((b"x\x01", b"x\x9c", b"x\xda"), "zlib"),
}


@dataclass(frozen=True, eq=False)
class SourceText:
    """Lines of a text file; line ``i`` of an editor has the place ``i − 1``.

    Attributes:
        name: Name of the file.
        content: The text in UTF-8, with a line feed behind every line but the last.
        starts: Where in ``content`` each line begins.
    """

    name: str
    content: bytes
    starts: NDArray[np.int64]

    def lines(self, first: int = 0) -> Iterator[str]:
        """The lines from a place on."""
        bounds = [*self.starts[first::_LINES_AT_ONCE].tolist(), len(self.content) + 1]
        for begin, end in pairwise(bounds):
            yield from self.content[begin : end - 1].decode().split("\n")


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
        RuntimeError: In a process that was forked after polars had been used.
    """
    forked.require_polars()
    if isinstance(source, SourceText | SourceTable):
        return source
    if isinstance(source, bytes | bytearray | memoryview):
        return _load_bytes(bytes(source), "bytes")
    if isinstance(source, str | PathLike):
        return _load_path(Path(source))
    return SourceTable("frame", _number_rows(_convert_frame(source)))


def _load_path(path: Path) -> RawSource:
    try:
        content = read_within_limit(path, ChainError)
    except (OSError, ValueError) as error:
        if isinstance(error, ChainError):
            raise
        raise ChainError(f"{str(path)!r} cannot be read: {error}") from error
    # a name may hold bytes that are no UTF-8, and nothing that is written could hold it then
    name = show_controls(os.fsencode(path.name).decode(errors="replace"))
    return _load_bytes(content, name.replace("\n", " "))


def _load_bytes(content: bytes, name: str) -> RawSource:
    BYTES.require(len(content), name, ChainError)
    if content[:4] == b"PAR1":
        return SourceTable(name, _number_rows(read_parquet(content, name)))
    for magic, packing in _PACKED_FORMATS.items():
        if content.startswith(magic):
            raise ChainError(f"{name} is {packing}: unpack it, or save it as CSV")
    return _find_lines(content, name)


def _find_lines(content: bytes, name: str) -> SourceText:
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        content = content.decode("utf-16", errors="replace").encode()
    elif not content.isascii():
        content = content.decode("utf-8-sig", errors="replace").encode()
    if b"\0" in content:
        raise ChainError(f"{name} is binary: give a text file (CSV, .dat) or Parquet")
    if b"\r" in content:
        content = content.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if not content or content.isspace():
        raise ChainError(f"{name} is empty: download it again")
    text = SourceText(name, content, np.concatenate([[0], _find_line_feeds(content) + 1]))
    ROWS.require(text.starts.size - content.endswith(b"\n"), name, ChainError)
    longest = int(np.diff(text.starts, append=len(content) + 1).max()) - 1  # bytes
    if longest > _MAX_LINE_LENGTH:
        longest = max(map(len, text.lines()))
    if longest > _MAX_LINE_LENGTH:
        raise ChainError(f"{name} has a line of {longest:,} characters: it is not a table")
    if _WEB_PAGE_PATTERN.match(content):
        raise ChainError(f"{name} is a web page: use the page's link that downloads the CSV file")
    return text


def _find_line_feeds(content: bytes) -> NDArray[np.int64]:
    letters, size = np.frombuffer(content, dtype=np.uint8), _BYTES_AT_ONCE
    found = [
        begin + np.flatnonzero(letters[begin : begin + size] == ord("\n"))
        for begin in range(0, letters.size, size)
    ]
    return np.concatenate(found)


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
    ROWS.require(frame.height, "the table", ChainError)
    CELLS.require(frame.height * frame.width, "the table", ChainError)
    for name, dtype in frame.schema.items():
        if not (dtype.is_numeric() or dtype.is_temporal() or dtype in (pl.String, pl.Boolean)):
            words = [None if value is None else str(value) for value in frame[name].to_list()]
            frame = frame.with_columns(pl.Series(name, words, dtype=pl.String))
    frame = frame.drop("row", strict=False)
    return frame.with_row_index("row", offset=1).cast({"row": pl.Int64})


def split_fields(
    source: SourceText,
    first: int,
    delimiter: str,
    width: int,
    wanted: Sequence[int] | None = None,
) -> pl.DataFrame:
    """Columns ``row``, ``f0`` … of text, from the lines with a place of at least ``first``.

    ``first`` counts from 0. Blank lines are left out; fields that a line does not have, and empty
    ones, are null. Of the ``width`` fields only those ``wanted`` are kept, or all.
    """
    text = _drop_blank_lines(source, first)
    names = [f"f{i}" for i in range(width)]
    kept = range(width) if wanted is None else wanted
    CELLS.require(text.rows.size * len(kept), source.name, ChainError)
    if not text.rows.size or text.content.find(b'"', text.begin) >= 0:
        lines = text.content[text.begin :].decode().split("\n")[: text.rows.size]
        schema = {names[i]: pl.String for i in kept}
        parts = [pl.DataFrame(schema=schema)]
        for start in range(0, len(lines), _QUOTED_LINES_AT_ONCE):
            some = lines[start : start + _QUOTED_LINES_AT_ONCE]
            cells = [next(csv.reader([line], delimiter=delimiter), []) for line in some]
            padded = [
                [(line[i] or None) if i < len(line) else None for i in kept] for line in cells
            ]
            parts.append(pl.DataFrame(padded, schema=schema, orient="row"))
        frame = pl.concat(parts)
    else:
        frame = pl.read_csv(
            text.content,
            has_header=False,
            columns=None if wanted is None else list(wanted),
            separator=delimiter,
            quote_char=None,
            skip_lines=text.skipped,
            schema=dict.fromkeys(names, pl.String),
            extra_columns="ignore",
            missing_columns="insert",
        ).head(text.rows.size)
    return frame.insert_column(0, pl.Series("row", text.rows, dtype=pl.Int64))


class _ContentLines(NamedTuple):
    """Lines with something in them, from a place in ``content`` on, and their numbers."""

    rows: NDArray[np.int64]
    content: bytes
    begin: int
    skipped: int  # lines before


def _drop_blank_lines(source: SourceText, first: int) -> _ContentLines:
    content, places = source.content, np.arange(first, source.starts.size)
    if not places.size:
        return _ContentLines(places, b"", 0, 0)
    bounds = np.append(source.starts, len(content) + 1)
    letters = np.frombuffer(content, dtype=np.uint8)[np.minimum(bounds[places], len(content) - 1)]
    # a line that begins with content has some
    likely = places[np.isin(letters, list(_BLANKS + b"\n"))].tolist()
    blank = [i for i in likely if not content[bounds[i] : bounds[i + 1] - 1].strip(_BLANKS)]
    while blank and blank[-1] == places[-1]:  # most files have no other
        blank.pop()
        places = places[:-1]
    if not blank:
        return _ContentLines(places + 1, content, int(source.starts[first]), first)
    places = np.delete(places, np.searchsorted(places, blank))
    lines = (content[bounds[i] : bounds[i + 1] - 1] for i in places)
    return _ContentLines(places + 1, b"\n".join(lines), 0, 0)


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
