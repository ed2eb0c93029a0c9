"""Tables of a dataset: days, index quotes, VIX quotes and VIX futures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from arbiter.conventions import Array
from arbiter.markets.listing import Board
from arbiter.markets.quoted_chain import QuotedChain
from arbiter.markets.snapshots import Snapshot
from arbiter.markets.vix_listing import QuotedVolatilityChain
from arbiter.models.lifted_heston import LiftedHeston
from arbiter.models.parameters import Jumps, Parameters

_MODEL_COLUMNS = ("v0", "reversion", "theta", "nu", "rho", "hurst", "factors")


def quotes_table(days: Sequence[int], sheets: Sequence[QuotedChain]) -> pl.DataFrame:
    """One row per listed strike: bid, ask and exact price of its out-of-the-money option."""
    tables = []
    for number, s in zip(days, sheets, strict=True):
        b, size = s.board, s.board.strikes.size
        tables.append(
            pl.DataFrame(
                {
                    "day": np.full(size, number, dtype=np.int32),
                    "root": np.array(b.roots)[b.series].tolist(),
                    "expiry": np.array(b.expiries, dtype="datetime64[D]")[b.series],
                    "T": b.T,
                    "strike": b.strikes,
                    "side": np.where(b.k >= 0.0, "call", "put").tolist(),
                    "bid": s.quoted.bid,
                    "ask": s.quoted.ask,
                    "reason": s.reason.tolist(),
                    "price": s.exact.price,
                    "iv": s.exact.iv,
                    "forward": b.forwards[b.series],
                    "discount": b.discounts[b.series],
                },
                nan_to_null=True,
            )
        )
    return pl.concat(tables).with_columns(
        reason=pl.when(pl.col("reason") != "").then(pl.col("reason"))
    )


def futures_table(days: Sequence[int], sheets: Sequence[QuotedVolatilityChain]) -> pl.DataFrame:
    """One row per VIX future, in index points."""
    return pl.concat(
        [
            pl.DataFrame(
                {
                    "day": np.full(s.future_bid.size, number, dtype=np.int32),
                    "root": list(s.board.roots),
                    "expiry": list(s.board.expiries),
                    "T": s.board.maturities,
                    "bid": s.future_bid,
                    "ask": s.future_ask,
                    "price": s.board.forwards,
                }
            )
            for number, s in zip(days, sheets, strict=True)
        ]
    )


def days_table(days: Sequence[int], snapshots: Sequence[Snapshot]) -> pl.DataFrame:
    """One row per day: its time, its model parameters, its state, and counts of its quotes."""
    rows = []
    for number, s in zip(days, snapshots, strict=True):
        jumps = s.market.jumps
        rows.append(
            {
                "day": number,
                "as_of": s.board.as_of.astype("datetime64[us]").item(),
                "spot": s.board.spot,
                "variance": s.variance,
                "vix": float(s.market.vix(s.state)),
                "listed": s.board.strikes.size,
                "quotes": int(s.used.sum()),
                "coverage": s.coverage,
                "state": s.state.tolist(),
                **{name: getattr(s.market, name) for name in _MODEL_COLUMNS},
                "jump_intensity": None if jumps is None else jumps.intensity,
                "jump_mean": None if jumps is None else jumps.mean,
                "jump_deviation": None if jumps is None else jumps.deviation,
            }
        )
    return pl.DataFrame(rows, schema=DAYS_SCHEMA)


DAYS_SCHEMA: dict[str, pl.DataType | type[pl.DataType]] = {
    "day": pl.Int32,
    "as_of": pl.Datetime("us"),
    "spot": pl.Float64,
    "variance": pl.Float64,
    "vix": pl.Float64,
    "listed": pl.Int32,
    "quotes": pl.Int32,
    "coverage": pl.Float64,
    "state": pl.List(pl.Float64),
    **dict.fromkeys(_MODEL_COLUMNS[:-1], pl.Float64),
    "factors": pl.Int32,
    "jump_intensity": pl.Float64,
    "jump_mean": pl.Float64,
    "jump_deviation": pl.Float64,
}


def board_from_table(table: pl.DataFrame, as_of: np.datetime64, spot: float) -> Board:
    """The board of one day, from its rows of a table of quotes."""
    table = table.with_columns(pl.struct("T", "root", "expiry").rle_id().alias("series"))
    heads = table.unique("series", keep="first", maintain_order=True)
    return Board(
        as_of=as_of,
        spot=spot,
        roots=tuple(heads["root"]),
        expiries=tuple(heads["expiry"]),
        maturities=heads["T"].to_numpy(),
        forwards=heads["forward"].to_numpy(),
        discounts=heads["discount"].to_numpy(),
        series=table["series"].to_numpy().astype(np.int64),
        strikes=table["strike"].to_numpy(),
    )


def oracle_from_row(row: dict[str, Any]) -> tuple[LiftedHeston, Array]:
    """The market and its state, from a row of a table of days."""
    jumps = None
    if row["jump_intensity"] is not None:
        jumps = Jumps(row["jump_intensity"], row["jump_mean"], row["jump_deviation"])
    parameters = Parameters(**{name: row[name] for name in _MODEL_COLUMNS}, jumps=jumps)
    return LiftedHeston.of(parameters), np.array(row["state"])
