"""Days listed like an index in its last hours and years: a law that is known, ticks, rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.conventions import MINUTES_PER_YEAR, Array
from arbiter.pricing import black
from arbiter.quotes import Quotes

INDEX, VOLATILITY, TICK = 6500.0, 0.13, 0.05
# Three lognormals, the widest a crash mode: weights, volatilities and log-means in units of σ√T.
WEIGHTS, WIDTHS, MEANS = (0.80, 0.18, 0.02), (0.75, 1.5, 2.5), (0.12, -0.35, -1.65)
DAYS = (1, 2, 3, 4, 5, 8, 12, 20, 33, 60, 90, 180)
LATER_DAYS = (270, 365, 540)
LAST_MINUTES = (30, 75, 210, 345)  # until the settlement of the same day


class KnownDay(NamedTuple):
    """Quotes, and the volatilities of the law behind them."""

    quotes: Quotes
    iv: Array  # (m,)


def true_price(k: Array, T: float) -> Array:
    """Out-of-the-money prices of the mixture in forward units."""
    unit = VOLATILITY * np.sqrt(T)
    parts = list(zip(WEIGHTS, WIDTHS, MEANS, strict=True))
    forward = sum(w * np.exp(m * unit) for w, _, m in parts)
    calls = np.zeros(k.size)
    for weight, width, mean in parts:
        own = np.exp(mean * unit) / forward
        near = k - np.log(own)
        otm = black.otm(near, np.full(k.size, width * unit))
        calls += weight * own * np.where(near >= 0.0, otm, otm + 1.0 - np.exp(near))
    return np.where(k >= 0.0, calls, calls - 1.0 + np.exp(k))


def list_quotes(
    T: float, rng: np.random.Generator, step: float, most: int = 999, noise: float = 0.3
) -> Array:
    """``(4, m)`` T, k, bid and ask of the listed strikes that are bid, to the tick.

    Args:
        T: Maturity.
        rng: For the mids, uniform within a share of the spread.
        step: Distance of strikes.
        most: Strikes that are kept, those nearest to the forward.
        noise: That share.
    """
    reach = VOLATILITY * np.sqrt(T)
    first = np.ceil(INDEX * np.exp(-8.0 * reach) / step)
    strikes = np.arange(first * step, INDEX * np.exp(6.0 * reach), step)
    k = np.log(strikes / INDEX)
    price = INDEX * true_price(k, T)
    half = np.maximum(TICK, 0.01 * price)
    mid = price + rng.uniform(-noise, noise, k.size) * half
    bid = TICK * np.floor(np.minimum(mid - half + 0.5 * TICK, price) / TICK)
    ask = TICK * np.ceil(np.maximum(mid + half - 0.5 * TICK, price + 1e-9) / TICK)
    good = np.flatnonzero(bid >= TICK)
    good = np.sort(good[np.argsort(np.abs(k[good]), kind="stable")][:most])
    return np.stack([np.full(good.size, T), k[good], bid[good] / INDEX, ask[good] / INDEX])


def as_quotes(rows: Array) -> Quotes:
    """The quotes of ``(4, m)`` rows."""
    return Quotes.from_frame(dict(zip(("T", "k", "bid", "ask"), rows, strict=True)))


def draw_listed_day(seed: int) -> KnownDay:
    """A day with an expiry of the same day, and expiries up to a year and a half."""
    rng = np.random.default_rng(seed)
    minutes = LAST_MINUTES[seed % len(LAST_MINUTES)]
    rows = [list_quotes(minutes / MINUTES_PER_YEAR, rng, 5.0, noise=0.9)]
    for day in (*DAYS, *LATER_DAYS):
        T = day / 365.0 + minutes / MINUTES_PER_YEAR
        rows.append(list_quotes(T, rng, 5.0 if day < 30 else 25.0, noise=0.9))
    iv = [
        black.implied_total_volatility(true_price(row[1], row[0, 0]), row[1]).volatility
        / np.sqrt(row[0])
        for row in rows
    ]
    return KnownDay(as_quotes(np.concatenate(rows, axis=1)), np.concatenate(iv))
