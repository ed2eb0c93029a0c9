"""What every layout hands over: one row per option, and what its header says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from arbiter.chains.quote_time import Stamp

OPTION_SCHEMA: Mapping[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.Int64,  # line of the source, from 1
    "root": pl.String,
    "expiry": pl.Date,
    "settlement": pl.String,  # "AM" or "PM"
    "settles": pl.Datetime("us"),  # New York, without a zone
    "strike": pl.Float64,
    "side": pl.String,  # "call" or "put"
    "bid": pl.Float64,
    "ask": pl.Float64,
    "last": pl.Float64,
    "volume": pl.Float64,
    "open_interest": pl.Float64,
    "quote_time": pl.Datetime("us"),  # New York, without a zone
}


@dataclass(frozen=True)
class Reading:
    """The content of a source.

    Attributes:
        options: Columns of ``OPTION_SCHEMA`` and ``problem``: an Exclusion for a row that cannot
            be used, null for the others.
        layout: Name of the layout.
        stamp: Moment that the source gives for its quotes, or None.
        spot: Level of the underlying that the source gives, or None.
        underlying: Name of the index where roots do not tell it, or None.
        notes: What was assumed, as sentences.
        declared: Whether the source says that all options are European.
    """

    options: pl.DataFrame
    layout: str
    stamp: Stamp | None = None
    spot: float | None = None
    underlying: str | None = None
    notes: tuple[str, ...] = ()
    declared: bool = False


def options_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """``frame`` with exactly the columns of a reading, those it lacks filled with null."""
    schema = {**OPTION_SCHEMA, "problem": pl.String}
    return frame.select(
        [
            (pl.col(name) if name in frame.columns else pl.lit(None)).cast(dtype).alias(name)
            for name, dtype in schema.items()
        ]
    )
