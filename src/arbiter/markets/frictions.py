"""Market frictions on exact prices: noise, bid and ask, ticks, and options without a bid.

Section 5.1 of the paper: a quote is ``(C* + ε) 1{C* ≥ τ_liq(T, K)}`` with ``E ε = 0`` and a
variance of ε that depends on the option. Here ε is a share of the half-spread, the half-spread
is wider in the wings and at long maturities, and the bid of an option below the floor is zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array

_NOISE_CUTOFF_DEVIATIONS = (
    2.5  # deviations at which noise is cut off, on both sides, so that its mean stays zero
)
TICK, _COARSE_TICK, _COARSE_TICK_FROM = 0.05, 0.10, 3.0
_TICK_ROUNDING = 1e-9  # of a tick: what is on a tick stays there


@dataclass(frozen=True)
class Frictions:
    """Parameters of bid-ask spreads, noise and liquidity.

    Attributes:
        spread: Half-spread of volatility at the money, as a share of volatility.
        wings: It grows by this factor at one standard deviation from the money, times that
            distance squared.
        term: It grows by this factor at a maturity of a year, times maturity.
        least: Smallest half-spread, in currency.
        noise: Standard deviation of the noise of a mid price, in half-spreads; cut off at 2.5
            deviations, so that up to 0.4 the exact price lies between bid and ask.
        floor: Liquidity floor at the money and at maturity zero, as a share of the forward.
        floor_term: It grows by this factor at a maturity of a year, times √T.
        floor_wings: It grows by this factor times the size of k.
        coverage: Share of the listed strikes that reaches the floor: the floor is scaled, day by
            day, until it is so. None leaves the floor as it is. A strike above the floor whose bid
            is less than a tick has no quote all the same, so that what is reached ends near 0.92.
        missing: Share of strikes that are left out at random, before anything is quoted.
    """

    spread: float = 0.006
    wings: float = 0.25
    term: float = 0.5
    least: float = 0.025
    noise: float = 0.35
    floor: float = 1e-5
    floor_term: float = 1.0
    floor_wings: float = 1.0
    coverage: float | None = None
    missing: float = 0.0

    def __post_init__(self) -> None:
        names = ("spread", "wings", "term", "least", "noise", "floor", "floor_term", "floor_wings")
        for name in names:
            value = getattr(self, name)
            if not 0.0 <= value < np.inf:
                raise ValueError(f"{name} = {value!r} must be a number, not negative")
        if self.coverage is not None and not 0.0 < self.coverage <= 1.0:
            raise ValueError(f"coverage = {self.coverage!r} is a share: give 0.75, or None")
        if not 0.0 <= self.missing < 1.0:
            raise ValueError(f"missing = {self.missing!r} is a share below one: give 0.2")
        if self.coverage is not None and self.coverage > 1.0 - self.missing:
            raise ValueError(
                f"coverage = {self.coverage!r} cannot be reached with missing = {self.missing!r}: "
                "it is a share of all listed strikes; give at most what is not missing"
            )

    def liquidity_floor(self, k: Array, T: Array) -> Array:
        """``τ_liq(T, K)``: the lowest price, in forward units, that is bid for."""
        growth = (1.0 + self.floor_term * np.sqrt(T)) * (1.0 + self.floor_wings * np.abs(k))
        return np.asarray(self.floor * growth)

    def half_spread(self, k: Array, T: Array, iv: Array) -> Array:
        """Half-spread in forward units, before ticks and the least one; iv NaN counts as zero."""
        total = np.where(np.isfinite(iv), iv, 0.0) * np.sqrt(T)
        z = np.divide(k, total, out=np.zeros_like(k), where=total > 0.0)
        share = self.spread * (1.0 + self.wings * z**2) * (1.0 + self.term * T)
        d1 = -z + 0.5 * total
        vega = np.exp(-0.5 * d1**2) / np.sqrt(2.0 * np.pi)  # per unit of total volatility
        return np.asarray(share * total * vega)


@dataclass(frozen=True, eq=False)
class QuotedPrices:
    """Bid and ask in currency, on ticks.

    Attributes:
        bid: ``(m,)`` zero where nobody bids, NaN where the strike is missing.
        ask: ``(m,)`` above the bid, NaN where the strike is missing.
        present: ``(m,)`` whether the strike is there at all.
        liquid: ``(m,)`` whether the exact price reaches the liquidity floor.
    """

    bid: Array
    ask: Array
    present: NDArray[np.bool_]
    liquid: NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class ExactPrices:
    """Exact out-of-the-money prices with strikes and maturities: arrays ``(m,)``.

    Attributes:
        price: Forward units.
        iv: Implied volatility, NaN where the price is below what the oracle resolves.
        k: Log-moneyness.
        T: Years.
        unit: Currency per forward unit, ``D·F``.
    """

    price: Array
    iv: Array
    k: Array
    T: Array
    unit: Array


def quote(exact: ExactPrices, frictions: Frictions, rng: np.random.Generator) -> QuotedPrices:
    """Bids and asks in currency around exact prices, with noise drawn from ``rng``."""
    size = exact.price.size
    present = rng.random(size) >= frictions.missing
    error = np.clip(rng.standard_normal(size), -_NOISE_CUTOFF_DEVIATIONS, _NOISE_CUTOFF_DEVIATIONS)
    half = np.maximum(
        exact.unit * frictions.half_spread(exact.k, exact.T, exact.iv), frictions.least
    )
    mid = exact.unit * exact.price + frictions.noise * half * error
    floor = frictions.liquidity_floor(exact.k, exact.T)
    if frictions.coverage is not None:
        wanted = round(frictions.coverage * size)
        floor = floor * _liquidity_floor_factor((exact.price / floor)[present], wanted)
    liquid = exact.price >= floor
    bid = np.where(liquid, round_to_ticks(mid - half, up=False), 0.0)
    ask = np.maximum(round_to_ticks(mid + half, up=True), TICK)
    nothing = np.where(present, 0.0, np.nan)
    return QuotedPrices(bid + nothing, ask + nothing, present, liquid)


def _liquidity_floor_factor(ratio: Array, wanted: int) -> float:
    """The factor of the floor that leaves the ``wanted`` highest of price over floor above it."""
    order = np.sort(ratio)[::-1]
    return float(order[min(max(wanted, 1), order.size) - 1]) if order.size else 1.0


def round_to_ticks(price: Array, *, up: bool) -> Array:
    """Prices on ticks, five cents below three dollars and ten from there on; none negative."""
    step = np.where(price < _COARSE_TICK_FROM, TICK, _COARSE_TICK)
    count = price / step
    whole = np.ceil(count - _TICK_ROUNDING) if up else np.floor(count + _TICK_ROUNDING)
    return np.asarray(np.round(np.maximum(whole * step, 0.0), 2))
