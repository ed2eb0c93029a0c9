"""Example data: an SPX-like surface made of a formula, and a synthetic SPX chain."""

from __future__ import annotations

import numpy as np

from arbiter import data
from arbiter.chains import Chain, read_chain
from arbiter.conventions import DAYS_PER_YEAR
from arbiter.surface import Surface


def example_chain() -> Chain:
    """An SPX chain in the exchange's layout: synthetic, Heston prices with noise and spreads.

    Example:
        >>> example_chain().underlying
        'SPX'
    """
    return read_chain(data.example_chain_path())


def example() -> Surface:
    """An SPX-like surface: 14 maturities from a week to two years, steep short-dated skew.

    The slopes are a formula, not market data: at-the-money volatility rising from 13 % to
    18 %, a crash wing that steepens to the left and a call wing that lifts slightly.

    Example:
        >>> example().certificate().passed
        True
    """
    days = np.array([7, 14, 21, 30, 45, 60, 91, 122, 182, 273, 365, 456, 547, 730])
    T = days / DAYS_PER_YEAR  # (L,)
    x = np.linspace(-5.5, 4.5, 31)  # (n,)
    atm_volatility = 0.125 + 0.055 * (1.0 - np.exp(-1.2 * T))  # (L,)
    crash = 0.62 * np.logaddexp(0.0, -(x + 0.1) / 0.9)
    lift = 0.10 * np.logaddexp(0.0, (x - 1.6) / 0.5)
    steep = 0.55 + 0.45 * np.exp(-1.5 * T)  # (L,): skew flattens with maturity
    shape = 0.72 + steep[:, None] * crash + lift  # (L, n)
    slopes = np.maximum.accumulate(np.sqrt(T)[:, None] * atm_volatility[:, None] * shape, axis=0)
    return Surface.from_slopes(
        x,
        T,
        slopes,
        forwards=6000.0 * np.exp(0.028 * T),
        discounts=np.exp(-0.042 * T),
        as_of="2026-01-02T16:15",
        info={"source": "built-in example, a formula"},
    )
