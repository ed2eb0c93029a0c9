"""Base class of the peers: volatilities and prices from total variance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.quotes import Quotes


class Peer(ABC):
    """A fitted peer in forward units; :mod:`arbiter.scoring` scores it like a Surface.

    It may have arbitrage: audit a table of it with :func:`arbiter.audit`.

    Attributes:
        name: Name in tables.
        maturities: ``(L,)`` fitted maturities, in years.
    """

    name: ClassVar[str]
    maturities: Array

    @abstractmethod
    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance ``σ²T``; ``k`` and ``T`` broadcast."""

    def iv(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Implied volatility, annualised."""
        return np.asarray(np.sqrt(self.total_variance(k, T) / np.asarray(T, dtype=np.float64)))

    def otm(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Out-of-the-money prices in forward units: calls for ``k ≥ 0``, puts below."""
        at = np.asarray(k, dtype=np.float64)
        return np.asarray(black.otm(at, np.sqrt(self.total_variance(k, T))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.maturities.size} maturities)"


def broadcast_points(k: ArrayLike, T: ArrayLike) -> tuple[Array, Array]:
    """Return ``k`` and ``T`` as broadcast float64 arrays.

    Raises:
        ValueError: If a maturity is not positive.
    """
    at, t = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(T, dtype=np.float64))
    bad = ~(np.isfinite(t) & (t > 0.0))
    if bad.any():
        raise ValueError(f"T = {float(t[bad][0])!r} must be a positive year fraction")
    return at, t


def volatility_targets(quotes: Quotes) -> tuple[Array, Array]:
    """Return ``(m,)`` middle and half-width of each quote's interval of volatility.

    A volatility lies inside the interval if and only if its price lies inside bid-ask. In the wings
    the middle is less biased than the volatility of the mid price, which lies nearer to the ask. A
    half-width is at least a tenth of its expiry's median, so that a locked quote does not dominate.
    """
    half = 0.5 * (quotes.iv_ask - quotes.iv_bid)
    floor = np.empty(quotes.maturities.size)
    for i in range(floor.size):
        floor[i] = 0.1 * np.median(half[quotes.expiry == i])
    return 0.5 * (quotes.iv_ask + quotes.iv_bid), np.maximum(
        half, np.fmax(floor, 1e-6)[quotes.expiry]
    )
