"""Andreasen and Huge's volatility interpolation, in QuantLib's implementation.

Andreasen and Huge (2011): one implicit finite-difference step of Dupire's equation from each
expiry to the next, its local volatility constant around each quoted strike and solved for by
least squares. Prices are free of arbitrage on the finite-difference grid; between grid points and
strikes QuantLib interpolates with a cubic spline, which need not be.

QuantLib's expiries are whole days and its search starts from a local volatility of 25 %, while the
method depends on time only through total variance. Expiries are therefore put on a clock of their
own, whole days apart, on which the at-the-money volatility is near that start. No quote changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import DAYS_PER_YEAR, Array
from arbiter.pricing import black
from arbiter.quotes import Quotes
from arbiter.scoring import inside_bid_ask
from arbiter_lab.peers.peer import Peer, broadcast_points, volatility_targets

MAX_STRIKES_PER_EXPIRY = 50  # per expiry; QuantLib needs seconds for each expiry with hundreds
GRID_POINTS = 500  # points in strike, QuantLib's default
# At-the-money volatility per √(365 days) of the clocks tried, and the share of the calibrated
# quotes inside bid-ask with which one is content. QuantLib's search ends at once where its first
# step would make a local volatility negative, and which expiries that strikes is chance.
CLOCK_VOLATILITIES = (0.25, 0.2, 0.17)
SUFFICIENT_INSIDE_SHARE = 0.99
_GRID_MARGIN_LOG_STRIKE = np.log(8.0)  # of the grid past the quoted strikes, QuantLib's default


class OptionPrices(Protocol):
    """The method of QuantLib's ``AndreasenHugeVolatilityInterpl`` that is used here."""

    def optionPrice(self, t: float, strike: float, side: int, /) -> float:  # noqa: N802
        """Price of an option; ``side`` is ``Option.Call`` or ``Option.Put``."""
        ...


@dataclass(frozen=True, repr=False)
class AndreasenHuge(Peer):
    """QuantLib's interpolation in strike and maturity; flat in volatility after the last.

    Attributes:
        maturities: ``(L,)`` years.
        clock: ``(L,)`` the same maturities on the clock of the calibration, in years.
        ends: Lowest and highest log-strike of the grid.
        interpolation: QuantLib's ``AndreasenHugeVolatilityInterpl``.
    """

    name: ClassVar[str] = "Andreasen-Huge"
    maturities: Array
    clock: Array
    ends: tuple[float, float]
    interpolation: OptionPrices

    def otm(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Out-of-the-money prices in forward units, by QuantLib."""
        at, t = broadcast_points(k, T)
        later = t > self.maturities[-1]
        if not later.any():
            return self._prices(at, t)
        beyond = black.otm(at, np.sqrt(self.total_variance(at, t)))
        return np.where(later, beyond, self._prices(at, np.minimum(t, self.maturities[-1])))

    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance ``σ²T``; zero where the price is not above its lower bound."""
        at, t = broadcast_points(k, T)
        held = np.minimum(t, self.maturities[-1])
        implied = black.implied_total_volatility(self._prices(at, held), at)
        none = (implied.reason == black.Reason.BELOW_INTRINSIC) | (
            implied.reason == black.Reason.AT_INTRINSIC
        )
        return np.asarray(np.where(none, 0.0, implied.volatility) ** 2 * t / held)

    def _prices(self, k: Array, T: Array) -> Array:
        from QuantLib import Option

        outside = (k < self.ends[0]) | (k > self.ends[1])
        if outside.any():
            raise ValueError(
                f"k = {float(k[outside][0])!r} lies off the grid of strikes, "
                f"{self.ends[0]:.4g} to {self.ends[1]:.4g}: quotes say nothing there"
            )
        t = np.interp(T, [0.0, *self.maturities], [0.0, *self.clock])
        price = self.interpolation.optionPrice
        found = [
            price(when, strike, Option.Call if strike >= 1.0 else Option.Put)
            for when, strike in zip(t.ravel().tolist(), np.exp(k).ravel().tolist(), strict=True)
        ]
        return np.array(found, dtype=np.float64).reshape(k.shape)


def fit_andreasen_huge(quotes: Quotes) -> AndreasenHuge:
    """Calibrate to the middle of each quote, with at most 50 strikes per expiry.

    Up to three clocks are tried, and the calibration with most quotes inside bid-ask is returned.

    Raises:
        ModuleNotFoundError: If QuantLib is not installed; ``pip install QuantLib``.
    """
    used = quotes.select(_thin_strikes(quotes))
    best, most = None, -1.0
    for volatility in CLOCK_VOLATILITIES:
        found = _calibrate_on_clock(used, volatility)
        share = inside_bid_ask(found.otm(used.k, used.T), used)
        if share > most:
            best, most = found, share
        if share >= SUFFICIENT_INSIDE_SHARE:
            break
    assert best is not None
    return best


def _calibrate_on_clock(quotes: Quotes, volatility: float) -> AndreasenHuge:
    import QuantLib as ql

    iv, _ = volatility_targets(quotes)
    days = _clock_days(quotes, iv, volatility)
    clock = days / DAYS_PER_YEAR
    today = ql.Date(2, 1, 2026)  # any: only differences of dates are used
    flat = ql.YieldTermStructureHandle(ql.FlatForward(today, 0.0, ql.Actual365Fixed()))
    clock_iv = iv * np.sqrt(quotes.T / clock[quotes.expiry])
    exercises = [ql.EuropeanExercise(today + int(day)) for day in days]
    options = ql.CalibrationSet()
    for k, i, vol in zip(quotes.k.tolist(), quotes.expiry.tolist(), clock_iv.tolist(), strict=True):
        option = ql.VanillaOption(ql.PlainVanillaPayoff(ql.Option.Put, math.exp(k)), exercises[i])
        options.push_back(ql.CalibrationPair(option, ql.SimpleQuote(vol)))
    kind = ql.AndreasenHugeVolatilityInterpl
    interpolation = kind(
        options, ql.QuoteHandle(ql.SimpleQuote(1.0)), flat, flat, kind.PiecewiseConstant, kind.Put,
        GRID_POINTS,
    )  # fmt: skip
    interpolation.optionPrice(float(clock[0]), 1.0, ql.Option.Call)  # it calibrates when asked
    ends = (
        float(quotes.k.min() - _GRID_MARGIN_LOG_STRIKE),
        float(quotes.k.max() + _GRID_MARGIN_LOG_STRIKE),
    )
    return AndreasenHuge(quotes.maturities, clock, ends, interpolation)


def _clock_days(quotes: Quotes, iv: Array, volatility: float) -> NDArray[np.int64]:
    """Return ``(L,)`` whole days of each expiry on the clock, at least one apart."""
    days = np.empty(quotes.maturities.size, dtype=np.int64)
    last = 0
    for i, T in enumerate(quotes.maturities.tolist()):
        here = quotes.expiry == i
        variance = T * np.interp(0.0, quotes.k[here], iv[here] ** 2)
        last = days[i] = max(last + 1, round(DAYS_PER_YEAR * variance / volatility**2))
    return days


def _thin_strikes(quotes: Quotes) -> NDArray[np.bool_]:
    """Return a mask ``(m,)`` of at most 50 strikes per expiry, denser near the money."""
    keep = np.zeros(len(quotes), dtype=bool)
    for i, T in enumerate(quotes.maturities.tolist()):
        here = np.flatnonzero(quotes.expiry == i)
        if here.size > MAX_STRIKES_PER_EXPIRY:
            deviation = np.median(quotes.iv_mid[here]) * np.sqrt(T)
            x = np.arcsinh(quotes.k[here] / deviation)
            wanted = np.linspace(x[0], x[-1], MAX_STRIKES_PER_EXPIRY)
            here = here[np.unique(np.abs(x - wanted[:, None]).argmin(axis=1))]
        keep[here] = True
    return keep
