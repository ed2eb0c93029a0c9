"""A made-up market, listed in every layout that the readers know.

Black-Scholes prices at one volatility, so that forwards, discount factors and implied
volatilities are known exactly; quotes are rounded outwards to the exchange's tick, so that they
hold the true price. Nothing here calls the code that it tests, except Black's formula and the
calendar, which have tests of their own.
"""

from __future__ import annotations

import datetime as dt
import io
from dataclasses import dataclass

import numpy as np
import polars as pl

from arbiter.pricing import black
from arbiter.timing.sessions import settlement_time

AS_OF = dt.datetime(2023, 2, 7, 16, 15)
SPOT, RATE, DIVIDEND, VOLATILITY = 4164.0, 0.045, 0.015, 0.2
SERIES = (
    ("SPXW", dt.date(2023, 2, 10)),
    ("SPX", dt.date(2023, 2, 17)),
    ("SPXW", dt.date(2023, 2, 17)),
    ("SPXW", dt.date(2023, 3, 31)),
    ("SPX", dt.date(2023, 12, 15)),
)
SETTLEMENT = {"SPX": "AM", "SPXW": "PM", "VIX": "AM", "VIXW": "AM", "XSP": "PM", "SPY": "PM"}
TICK = 0.05


@dataclass(frozen=True)
class Curve:
    """What the market knows about one maturity."""

    T: float
    forward: float
    discount: float


def curve(root: str, expiry: dt.date, as_of: dt.datetime = AS_OF) -> Curve:
    """Return maturity, forward and discount factor of a series."""
    settles = settlement_time(expiry, SETTLEMENT[root])
    T = (settles - as_of).total_seconds() / 60.0 / 525_600
    return Curve(T, SPOT * np.exp((RATE - DIVIDEND) * T), np.exp(-RATE * T))


def market(
    series: tuple[tuple[str, dt.date], ...] = SERIES, strikes: int = 41, as_of: dt.datetime = AS_OF
) -> pl.DataFrame:
    """Return one row per option: root, expiry, settlement, strike, side, bid, ask, last."""
    frames = []
    for root, expiry in series:
        at = curve(root, expiry, as_of)
        width = min(0.45, 5.0 * VOLATILITY * np.sqrt(at.T))
        step = max(5.0, round(2.0 * width * SPOT / strikes / 5.0) * 5.0)
        middle = round(SPOT / step) * step
        K = middle + step * np.arange(-(strikes // 2), strikes - strikes // 2)
        k = np.log(K / at.forward)
        otm = black.otm(k, VOLATILITY * np.sqrt(at.T)) * at.discount * at.forward
        parity = at.discount * (at.forward - K)
        call = np.where(k >= 0.0, otm, otm + parity)
        for side, price in (("call", call), ("put", call - parity)):
            half = 0.02 + 0.005 * price
            frames.append(
                pl.DataFrame(
                    {
                        "root": [root] * K.size,
                        "expiry": [expiry] * K.size,
                        "settlement": [SETTLEMENT[root]] * K.size,
                        "strike": K,
                        "side": [side] * K.size,
                        "bid": np.round(np.floor((price - half) / TICK).clip(0.0) * TICK, 2),
                        "ask": np.round(np.ceil((price + half) / TICK) * TICK, 2),
                        "last": np.round(price, 2),
                        "volume": np.zeros(K.size),
                        "open_interest": np.full(K.size, 10.0),
                    }
                )
            )
    return pl.concat(frames)


def symbol(root: str, expiry: dt.date, side: str, strike: float) -> str:
    """Return the option's symbol."""
    return f"{root}{expiry:%y%m%d}{side[0].upper()}{round(1000 * strike):08d}"


HEADER = (
    "Expiration Date,Calls,Last Sale,Net,Bid,Ask,Volume,IV,Delta,Gamma,Open Interest,Strike,"
    "Puts,Last Sale,Net,Bid,Ask,Volume,IV,Delta,Gamma,Open Interest"
)
NEW_TOP = (
    "\nStandard & Poors 500 Index,Last: 4164,Change:  52.92\n"
    '"Date: February 7, 2023 at 5:34 PM EST",Bid: 4099.96,Ask: 4203.0601,Size: 1*1,Volume: 0\n'
)
OLD_TOP = (
    "^SPX (Standard & Poors 500 Index),4164,52.92\n"
    "Feb 07 2023 @ 17:34 ET,Bid,4099.96,Ask,4203.06,Size,1x1,Vol,\n"
)


def exchange(frame: pl.DataFrame, top: str = NEW_TOP, header: str = HEADER, date: str = "") -> str:
    """Return ``frame`` as the exchange's download; calls and puts must match."""
    date = date or ("%m/%d/%Y" if top.startswith("^") else "%a %b %d %Y")
    sides = [frame.filter(pl.col("side") == side).rows(named=True) for side in ("call", "put")]
    lines = []
    for call, put in zip(*sides, strict=True):
        halves = [
            f"{symbol(o['root'], o['expiry'], o['side'], o['strike'])},{o['last']:g},0,"
            f"{o['bid']:g},{o['ask']:g},{o['volume']:g},0.2,0.5,0.001,{o['open_interest']:g}"
            for o in (call, put)
        ]
        lines.append(f"{call['expiry']:{date}},{halves[0]},{call['strike']:.2f},{halves[1]}")
    return top + (header + "\n" if header else "") + "\n".join(lines) + "\n"


def yahoo(frame: pl.DataFrame, last_trade: str = "2023-02-07 21:14:59+00:00") -> str:
    """Return ``frame`` in Yahoo's layout."""
    names = [symbol(*row) for row in frame.select("root", "expiry", "side", "strike").iter_rows()]
    return frame.select(
        contractSymbol=pl.Series(names),
        lastTradeDate=pl.lit(last_trade),
        strike="strike",
        lastPrice="last",
        bid="bid",
        ask="ask",
        volume="volume",
        openInterest="open_interest",
        option_type="side",
        expiration=pl.col("expiry"),
    ).write_csv()


def long(frame: pl.DataFrame) -> str:
    """Return ``frame`` in the long layout: no root, series of one day run into each other."""
    return (
        frame.with_columns(order=pl.col("root").rank("dense"))
        .sort("expiry", "strike", "side", "order")
        .select(
            pl.col("expiry").alias("Expiration Date"),
            pl.col("last").alias("Last Sale"),
            pl.lit(0.0).alias("Net"),
            pl.col("bid").alias("Bid"),
            pl.col("ask").alias("Ask"),
            pl.col("volume").alias("Volume"),
            pl.col("open_interest").alias("Open Interest"),
            pl.col("strike").alias("Strike"),
            pl.col("side").str.to_titlecase().alias("Type"),
            pl.lit(SPOT).alias("Index Spot"),
        )
        .write_csv()
    )


def tidy(frame: pl.DataFrame) -> str:
    """Return ``frame`` as a tidy table with its moment."""
    columns = ["root", "expiry", "strike", "side", "bid", "ask"]
    return frame.select(columns).with_columns(as_of=pl.lit(f"{AS_OF:%Y-%m-%dT%H:%M}")).write_csv()


def parquet(frame: pl.DataFrame) -> bytes:
    """Return ``frame`` as the bytes of a tidy Parquet file with its moment."""
    buffer = io.BytesIO()
    frame.with_columns(as_of=pl.lit(AS_OF)).write_parquet(buffer)
    return buffer.getvalue()
