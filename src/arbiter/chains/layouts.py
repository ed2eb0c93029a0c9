"""From a source to a chain: which layout it is, when it was quoted, when its options settle."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import polars as pl

from arbiter.chains import exchange, stamps
from arbiter.chains.chain import Chain
from arbiter.chains.errors import ChainError
from arbiter.chains.reading import Reading
from arbiter.chains.roots import EUROPEAN, underlying_of
from arbiter.chains.sessions import settlement_time
from arbiter.chains.source import load
from arbiter.exclusions import EXCLUSION_SCHEMA
from arbiter.forwards import MINUTES_PER_YEAR

logger = logging.getLogger(__name__)


def read_chain(
    source: Any, *, as_of: Any = None, layout: str | None = None, spot: float | None = None
) -> Chain:
    """Read a listed chain."""
    loaded = load(source)
    missing = exchange.lacks(loaded)
    if missing:
        raise ChainError(f"{loaded.name} is in no known layout: exchange: {missing}")
    return assemble(exchange.read(loaded), loaded.name, as_of=as_of, spot=spot)


def assemble(reading: Reading, name: str, *, as_of: Any = None, spot: float | None = None) -> Chain:
    """The chain of a reading."""
    stamp = stamps.given(as_of) if as_of is not None else reading.stamp
    if stamp is None:
        raise ChainError(
            f"{name} does not say when it was quoted: give as_of, New York time, such as "
            "as_of='2023-02-07T16:15'"
        )
    moment, notes = stamps.quote_moment(stamp)
    options = reading.options
    good = options.filter(pl.col("problem").is_null())
    if good.height == 0:
        raise ChainError(f"{name}: none of the {options.height} rows is an option")
    roots = good["root"].unique().drop_nulls().to_list()
    underlying = underlying_of(roots)
    good = good.with_columns(
        settlement=pl.col("root").replace_strict(
            {r: e.settlement for r, e in EUROPEAN.items()}, return_dtype=pl.String
        )
    )
    series = good.select("expiry", "settlement").unique()
    series = series.with_columns(
        pl.Series(
            "settles",
            [settlement_time(e, s) for e, s in series.iter_rows()],
            dtype=pl.Datetime("us"),
        )
    )
    minutes = (
        pl.col("settles") - pl.lit(moment.astype("datetime64[us]").item())
    ).dt.total_minutes()
    frame = (
        good.drop("settles", "problem")
        .join(series, on=["expiry", "settlement"], how="left", maintain_order="left")
        .with_columns(
            label=pl.col("expiry").dt.strftime("%Y-%m-%d ") + pl.col("root"),
            T=minutes / MINUTES_PER_YEAR,
        )
    )
    first = [
        "row",
        "label",
        "root",
        "expiry",
        "settlement",
        "settles",
        "T",
        "strike",
        "side",
        "bid",
        "ask",
    ]
    frame = frame.select(
        *first,
        *[c for c in frame.columns if c not in first and not frame[c].null_count() == frame.height],
    )
    return Chain(
        frame,
        moment,
        spot or reading.spot,
        underlying,
        reading.layout,
        name,
        tuple([*reading.notes, *notes]),
    )
