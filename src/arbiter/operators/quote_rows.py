"""Quotes of many chains in one row, slice behind slice, without padding.

Shapes throughout the operator: B chains, L maturities of the longest of them, M = B·L slices, N
quotes of all chains, H heads, n knots. Shorter chains have maturities without quotes after their
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array, Indices

if TYPE_CHECKING:  # a machine that only trains has no tables
    from arbiter.quotes import Quotes

Flags = NDArray[np.bool_]

# ratio of padded maturities, and of the last one to the listed
PADDED_MATURITY_RATIO, MAX_PADDED_MATURITY_RATIO = 1.25, 100.0
# quotes in one pass, were every slice as long as the longest: 32 chains of 16 × 41
_MAX_CELLS_PER_BATCH = 21_000


class QuoteRows(NamedTuple):
    """Quotes of B chains.

    Attributes:
        T: ``(B, L)`` years, increasing along L, padding included.
        ends: ``(M + 1,)`` where the quotes of each slice begin, and the last end.
        row: ``(N,)`` slice of each quote, nondecreasing.
        k: ``(N,)`` log-moneyness, increasing in every slice.
        iv: ``(N,)`` volatility of the mid price.
        half: ``(N,)`` half the spread of volatility.
    """

    T: Array
    ends: Indices
    row: Indices
    k: Array
    iv: Array
    half: Array

    @property
    def listed(self) -> Flags:
        """``(B, L)`` maturities with a quote."""
        return (self.ends[1:] > self.ends[:-1]).reshape(self.T.shape)


class ImpliedVolatilities(NamedTuple):
    """Implied volatilities of quotes, ``(m,)`` each.

    Attributes:
        bid: Of the bids.
        mid: Of the mid prices.
        ask: Of the asks.
    """

    bid: Array
    mid: Array
    ask: Array

    @staticmethod
    def from_quotes(quotes: Quotes) -> ImpliedVolatilities:
        """The implied volatilities of quotes."""
        return ImpliedVolatilities(quotes.iv_bid, quotes.iv_mid, quotes.iv_ask)

    def select(self, keep: Flags) -> ImpliedVolatilities:
        """Those of the quotes in a mask."""
        return ImpliedVolatilities._make(part[keep] for part in self)


def lay_quotes(
    chains: Sequence[Quotes], implied: Sequence[ImpliedVolatilities] | None = None
) -> QuoteRows:
    """The quotes of chains, one behind the other.

    Args:
        chains: At least one, each with at least one quote.
        implied: Their volatilities, if not what the quotes say themselves.

    Raises:
        ValueError: If there is nothing to look at; names the chain.
    """
    if not chains:
        raise ValueError("chains is empty: give at least one chain")
    for i, quotes in enumerate(chains):
        if not len(quotes):
            raise ValueError(f"chain {i} has no quotes that can be used: see its .counts()")
    known = [ImpliedVolatilities.from_quotes(q) for q in chains] if implied is None else implied
    deep = max(quotes.maturities.size for quotes in chains)
    row = np.concatenate([quotes.expiry + i * deep for i, quotes in enumerate(chains)])
    ends = np.searchsorted(row, np.arange(len(chains) * deep + 1))
    bid, mid, ask = (np.concatenate(part) for part in zip(*known, strict=True))
    k = np.concatenate([quotes.k for quotes in chains])
    T = np.stack([pad_maturities(quotes.maturities, deep) for quotes in chains])
    return QuoteRows(T, ends, row, k, mid, 0.5 * (ask - bid))


def pad_maturities(T: Array, count: int) -> Array:
    """Maturities ``(L,)``, and later ones up to a count of them."""
    more = count - T.size
    if more == 0:
        return T
    ratio = min(PADDED_MATURITY_RATIO, MAX_PADDED_MATURITY_RATIO ** (1.0 / more))
    return np.concatenate([T, T[-1] * ratio ** np.arange(1.0, more + 1.0)])


def batches(chains: Sequence[Quotes]) -> list[list[int]]:
    """Chains of like size together, so that padding is little and memory bounded."""
    sizes = [
        (quotes.maturities.size, int(np.bincount(quotes.expiry).max(initial=1)))
        for quotes in chains
    ]
    found: list[list[int]] = []
    deep = wide = 0
    for i in sorted(range(len(chains)), key=lambda i: sizes[i]):
        deep, wide = max(deep, sizes[i][0]), max(wide, sizes[i][1])
        if not found or (len(found[-1]) + 1) * deep * wide > _MAX_CELLS_PER_BATCH:
            found.append([])
            deep, wide = sizes[i]
        found[-1].append(i)
    return found
