"""What the operator makes of quotes: volatilities, prices on its surfaces, misses, traits.

Of many chains at once, their quotes in one row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.pricing.price_derivatives import KnotQuadrature
from arbiter.operators import domain
from arbiter.operators.domain_features import ObservedChains, describe_chains, fill_misses
from arbiter.operators.quick.implied_volatility import volatilities
from arbiter.operators.quick.quote_prices import Cut, prices
from arbiter.operators.quote_tensors import ImpliedVolatilities
from arbiter.pricing import black
from arbiter.quotes import Quotes

Indices = NDArray[np.int64]


def implied(chains: Sequence[Quotes]) -> list[ImpliedVolatilities]:
    """Volatilities of bids, mids and asks of every chain.

    The operator's own, whatever the quotes remember: the same quotes give the same surface.
    """
    k, T = (np.concatenate([getattr(quotes, name) for quotes in chains]) for name in ("k", "T"))
    found = np.empty((3, k.size))
    for row, name in zip(found, ("bid", "mid", "ask"), strict=True):
        price = np.concatenate([getattr(quotes, name) for quotes in chains])
        volatilities(price, k, T, row)
        rest = np.flatnonzero(np.isnan(row))  # at a bound to the last digit, or next to nothing
        if rest.size:
            known = np.asarray(black.implied_total_volatility(price[rest], k[rest]).volatility)
            row[rest] = known / np.sqrt(T[rest])
    ends = np.cumsum([len(quotes) for quotes in chains])[:-1]
    return [ImpliedVolatilities(*part) for part in np.split(found, ends, axis=1)]


def make_compiled_quadrature(line: KnotQuadrature) -> Cut:
    """A line as the compiled prices take it."""
    gauss = np.ascontiguousarray((line.gauss * line.weight).T)
    return Cut(line.x, line.cut, line.rise, line.width, line.node, line.weight, gauss)


def measure_misses(
    chains: list[Quotes],
    known: list[ImpliedVolatilities],
    price: list[Array],
    levels: list[Array],
    moved: Array,
) -> tuple[list[Array], list[dict[str, float]]]:
    """Model less mid in half-spreads, and the traits, of every chain."""
    slices, ends, expiry = _concatenate_indices(chains)
    k, mid, half, T = (
        np.concatenate([getattr(quotes, name) for quotes in chains])
        for name in ("k", "mid", "half_spread", "maturities")
    )
    low, iv, high = (np.concatenate(part) for part in zip(*known, strict=True))
    off, miss, spread = np.concatenate(price) - mid, np.empty(k.size), np.empty(k.size)
    seen = ObservedChains(T, np.concatenate(levels), expiry, k, iv, spread, miss, moved)
    fill_misses(seen, half, high - low, off)
    return np.split(off, ends[1:-1]), describe_chains(seen, slices, ends)


def in_half_spreads(quotes: Quotes, price: Array) -> Array:
    """``(m,)`` model less mid in half-spreads of one chain; where there is none, in a softening."""
    soft = price_softening(quotes.k, quotes.iv_mid * np.sqrt(quotes.T))
    unit = np.where(quotes.half_spread > 0.0, quotes.half_spread, soft)
    return np.asarray((price - quotes.mid) / unit)


def price_softening(k: Array, total: Array) -> Array:
    """``(m,)`` what is worth half a percent of a total volatility."""
    soft = domain.VOLATILITY_SOFTENING * total * np.asarray(black.vega(k, total))
    return np.asarray(np.maximum(soft, domain.MIN_PRICE_SCALE))


def _concatenate_indices(chains: list[Quotes]) -> tuple[Indices, Indices, Indices]:
    """Where slices and quotes of each chain begin, and the last end; the slice of each quote."""
    slices = np.cumsum([0] + [quotes.maturities.size for quotes in chains])
    expiry = [quotes.expiry + first for quotes, first in zip(chains, slices, strict=False)]
    return slices, np.cumsum([0] + [len(quotes) for quotes in chains]), np.concatenate(expiry)


class Residuals:
    """All of it, for surfaces with given knots.

    Args:
        knots: ``(n,)``.
    """

    implied = staticmethod(implied)
    measure_misses = staticmethod(measure_misses)
    in_half_spreads = staticmethod(in_half_spreads)

    def __init__(self, knots: Array) -> None:
        self._line = make_compiled_quadrature(KnotQuadrature.from_knots(knots))

    def prices(self, chains: list[Quotes], slopes: list[Array]) -> list[Array]:
        """Of the quotes of each chain, under slopes ``(L, n)`` of each."""
        _, ends, expiry = _concatenate_indices(chains)
        k = np.concatenate([quotes.k for quotes in chains])
        return np.split(prices(self._line, np.concatenate(slopes), expiry, k), ends[1:-1])
