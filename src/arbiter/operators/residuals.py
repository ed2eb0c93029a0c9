"""What the operator makes of quotes: volatilities, prices on its surfaces, misses, traits.

Of many chains at once, their quotes in one row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.operators.domain_features import (
    ObservedChains,
    ObservedQuotes,
    compute_misses,
    describe_chains,
)
from arbiter.operators.quote_rows import ImpliedVolatilities
from arbiter.pricing import black
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer
from arbiter.quotes import Quotes


def implied(chains: Sequence[Quotes]) -> list[ImpliedVolatilities]:
    """Volatilities of bids, mids and asks of every chain.

    The operator's own, whatever the quotes remember: the same quotes give the same surface.
    """
    k, T = (np.concatenate([getattr(quotes, name) for quotes in chains]) for name in ("k", "T"))
    sides = ("bid", "mid", "ask")
    price = np.stack(
        [np.concatenate([getattr(quotes, name) for quotes in chains]) for name in sides]
    )
    found = black.implied_total_volatility(price, k).volatility / np.sqrt(T)
    ends = np.cumsum([len(quotes) for quotes in chains])[:-1]
    return [ImpliedVolatilities(*part) for part in np.split(found, ends, axis=1)]


def price_chains(chains: list[Quotes], slopes: list[Array], knots: Array) -> list[Array]:
    """``(m,)`` prices of the quotes of each chain, under slopes ``(L, n)`` of each."""
    _, ends, expiry = _concatenate_indices(chains)
    k = np.concatenate([quotes.k for quotes in chains])
    pricer = OtmPricer(KnotQuadrature.from_knots(knots), expiry, k)
    found = pricer.price_quotes(pricer.integrate_slices(np.concatenate(slopes))).price
    return np.split(found, ends[1:-1])


def measure_misses(
    chains: list[Quotes],
    known: list[ImpliedVolatilities],
    price: list[Array],
    levels: list[Array],
    pass_traits: tuple[Array, Array],
) -> tuple[list[Array], list[dict[str, float]]]:
    """Model less mid in half-spreads, and the traits, of every chain.

    ``pass_traits`` are ``(C,)`` each: the network's change, and the prior's misses.
    """
    slices, ends, expiry = _concatenate_indices(chains)
    k, mid, half, T = (
        np.concatenate([getattr(quotes, name) for quotes in chains])
        for name in ("k", "mid", "half_spread", "maturities")
    )
    low, iv, high = (np.concatenate(part) for part in zip(*known, strict=True))
    quotes = ObservedQuotes(k, T[expiry], iv, half)
    miss, off = compute_misses(quotes, np.concatenate(price) - mid)
    spread = 0.5 * (high - low) / iv
    seen = ObservedChains(T, np.concatenate(levels), expiry, k, iv, spread, miss, *pass_traits)
    return np.split(off, ends[1:-1]), describe_chains(seen, slices, ends)


def _concatenate_indices(chains: list[Quotes]) -> tuple[Indices, Indices, Indices]:
    """Where slices and quotes of each chain begin, and the last end; the slice of each quote."""
    slices = np.cumsum([0] + [quotes.maturities.size for quotes in chains])
    expiry = [quotes.expiry + first for quotes, first in zip(chains, slices, strict=False)]
    return slices, np.cumsum([0] + [len(quotes) for quotes in chains]), np.concatenate(expiry)
