"""A listed chain of one moment: every option of the file, its series, and its quotes."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import polars as pl

from arbiter.exclusions import no_exclusions
from arbiter.forwards import MINUTES_PER_YEAR

SERIES = ["label", "root", "expiry", "settlement", "settles"]


@dataclass(frozen=True, eq=False, repr=False)
class Chain:
    """Every option of a source, with settlement times.

    Attributes:
        frame: One row per option: row, label, root, expiry, settlement, settles, T, strike, side,
            bid, ask, last, volume, open_interest.
        as_of: The moment of the quotes, New York time without a zone, in whole minutes.
        spot: Level of the underlying, or None.
        underlying: ``"SPX"``, for instance.
        layout: Name of the layout that was read.
        name: Name of the source.
        notes: Everything that was assumed, as sentences.
        set_aside: Rows that could not be read or assigned, as an exclusion table.
    """

    frame: pl.DataFrame
    as_of: np.datetime64
    spot: float | None
    underlying: str
    layout: str
    name: str
    notes: tuple[str, ...] = ()
    set_aside: pl.DataFrame = field(default_factory=no_exclusions)

    def __repr__(self) -> str:
        series = self.frame["label"].n_unique()
        return (
            f"Chain({self.underlying} {self.as_of.astype('datetime64[m]')}, {self.frame.height:,} "
            f"options in {series} series, {self.layout})"
        )

    def strips(self) -> pl.DataFrame:
        """Calls and puts side by side, for each series that has not settled.

        Returns:
            Columns label, root, expiry, settlement, settles, minutes (to settlement), strike,
            call_bid, call_ask, put_bid, put_ask; sorted by settlement and strike. A price is null
            where the option is not listed or has no such quote. Of an option that is listed
            twice the first row counts.
        """
        live = self.frame.filter(pl.col("T") > 0.0)
        keys = [*SERIES, "T", "strike"]
        sides = [
            live.filter(pl.col("side") == side)
            .unique(["settles", "strike"], keep="first", maintain_order=True)
            .select(*keys, pl.col("bid").alias(f"{side}_bid"), pl.col("ask").alias(f"{side}_ask"))
            for side in ("call", "put")
        ]
        joined = sides[0].join(sides[1], on=keys, how="full", coalesce=True)
        minutes = (pl.col("T") * MINUTES_PER_YEAR).round().cast(pl.Int64)
        prices = ["strike", "call_bid", "call_ask", "put_bid", "put_ask"]
        return joined.sort("settles", "strike").select(*SERIES, minutes.alias("minutes"), *prices)
