"""What every peer shares: total variance in, volatilities and prices out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np

from arbiter.conventions import Array
from arbiter.pricing import black
from arbiter.quotes import Quotes


class Peer(ABC):
    """A fitted peer, in forward units; :mod:`arbiter.scoring` scores it like a Surface.

    Nothing is promised about arbitrage: audit a table of it with :func:`arbiter.audit`.

    Attributes:
        name: What tables call it.
        maturities: ``(L,)`` maturities that were fitted, in years.
    """

    name: ClassVar[str]
    maturities: Array

    @abstractmethod
    def total_variance(self, k: Any, T: Any) -> Array:
        """Total implied variance ``σ²T``; ``k`` and ``T`` broadcast."""

    def iv(self, k: Any, T: Any) -> Array:
        """Implied volatility, annualised."""
        return np.asarray(np.sqrt(self.total_variance(k, T) / np.asarray(T, dtype=np.float64)))

    def otm(self, k: Any, T: Any) -> Array:
        """Out-of-the-money prices in forward units: calls for ``k ≥ 0``, puts below."""
        return np.asarray(black.otm(k, np.sqrt(self.total_variance(k, T))))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.maturities.size} maturities)"


def broadcast_points(k: Any, T: Any) -> tuple[Array, Array]:
    """``k`` and ``T`` as broadcast float64 arrays; refuses maturities that are not positive."""
    at, t = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(T, dtype=np.float64))
    bad = ~(np.isfinite(t) & (t > 0.0))
    if bad.any():
        raise ValueError(f"T = {float(t[bad][0])!r} must be a positive year fraction")
    return at, t


def volatility_targets(quotes: Quotes) -> tuple[Array, Array]:
    """``(m,)`` middle and half-width of each quote's interval of volatility.

    A volatility lies inside the interval exactly where its price lies inside bid-ask, and the
    middle of it is fairer far out than the volatility of the mid price, which leans to the ask.
    A half-width is at least a tenth of its expiry's median, so that a locked quote does not
    outweigh all others.
    """
    half = 0.5 * (quotes.iv_ask - quotes.iv_bid)
    floor = np.empty(quotes.maturities.size)
    for i in range(floor.size):
        floor[i] = 0.1 * np.median(half[quotes.expiry == i])
    return 0.5 * (quotes.iv_ask + quotes.iv_bid), np.maximum(
        half, np.fmax(floor, 1e-6)[quotes.expiry]
    )
