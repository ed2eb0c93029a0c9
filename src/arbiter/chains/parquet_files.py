"""Parquet files, decoded in a process of their own: a damaged page can end the one that reads it.

Polars asks for the memory that a page's content claims to need, and ends its process where there is
none. What is too large by the file's own headers is refused before anything is decoded.
"""

from __future__ import annotations

import json
import subprocess
import sys

import polars as pl

from arbiter.chains.errors import ChainError
from arbiter.files.limits import BYTES, CELLS, ROWS
from arbiter.files.parquet_size import ParquetDamageError, measure_parquet

_MOST_SECONDS = 120.0  # a file within the limits takes less than one
DECODER_PROGRAM = """
import json, sys
import polars as pl
columns = json.loads(sys.stdin.buffer.readline())
pl.read_parquet(sys.stdin.buffer.read(), columns=columns).write_ipc(sys.stdout.buffer)
"""
_FAULTS = (
    *(pl.exceptions.PolarsError, pl.exceptions.PanicException),
    *(ParquetDamageError, OSError, ValueError),
)


def read_parquet(content: bytes, name: str) -> pl.DataFrame:
    """Columns of plain values: a chain has no nested ones, and a row of them is boundless.

    Raises:
        ChainError: If it is damaged, or larger than the limits allow.
    """
    try:
        BYTES.require(measure_parquet(content), f"{name}, unpacked,", ChainError)
        lazy = pl.scan_parquet(content)
        kept = [n for n, kind in lazy.collect_schema().items() if not kind.is_nested()]
        rows = lazy.select(pl.len()).collect().item()
        ROWS.require(rows, name, ChainError)
        CELLS.require(rows * len(kept), name, ChainError)
        frame = pl.read_ipc(_decode_apart(content, kept)) if kept else pl.DataFrame()
        # a text that is stored once may stand in every row
        texts = frame.select(pl.col(pl.String, pl.Binary).cast(pl.Binary).bin.size().fill_null(0))
        length = sum(int(column.to_numpy().sum()) for column in texts)
        BYTES.require(length, f"{name}, unpacked,", ChainError)
        return frame
    except ChainError:
        raise
    except _FAULTS as error:
        raise ChainError(f"{name} is not a readable Parquet file: {error}") from error


def _decode_apart(content: bytes, columns: list[str]) -> bytes:
    """Columns of a Parquet file as an Arrow file."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", DECODER_PROGRAM],
            input=json.dumps(columns).encode() + b"\n" + content,
            capture_output=True,
            check=False,
            timeout=_MOST_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise ParquetDamageError("its pages take for ever") from error
    if child.returncode != 0:
        said = child.stderr.decode(errors="replace").strip().splitlines() or ["no word"]
        # of a traceback the last line, of a reader that was ended the first
        raise ParquetDamageError(said[-1] if child.returncode > 0 else said[0])
    return child.stdout
