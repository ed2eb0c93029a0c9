"""Features of an SPX surface for the prior of the VIX's law.

The slope and the curvature of index smiles depend on the volatility of volatility; the term
structure of variance depends on the speed of mean reversion. For each date T the features use the
maturities Δ (30 days), T and T + Δ, and a few strikes in standard deviations of the log contract.

Shapes: U dates, f features.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from arbiter.conventions import THIRTY_DAYS, Array

STRIKE_DEVIATIONS = (-2.0, -1.0, 0.0, 1.0)  # deviations
AT_THE_MONEY = STRIKE_DEVIATIONS.index(0.0)
_MIN_FORWARD_VARIANCE = 1e-6  # of a forward variance, whose logarithm is taken


class IndexSurface(Protocol):
    """What the features need of an index: a fitted surface, or a model with exact prices."""

    def iv(self, k: Array, T: Array, /) -> Array:
        """Implied volatilities, annualised and decimal."""
        ...

    def variance_swap(self, T: Array, /) -> Array:
        """Annualised variance of the log contract, ``W(T)/T``."""
        ...

    def forward_variance(self, T: Array, /) -> Array:
        """Annualised variance of the 30 days after ``T``."""
        ...


def features(index: IndexSurface, T: Array) -> Array:
    """``(U, 17)`` features at dates ``(U,)`` in years; NaN where the surface has no volatility.

    The logarithm of the date; that of forward variance; of the variance to each maturity over it;
    of at-the-money variance over that; and of volatilities over the one at the money.
    """
    T = np.asarray(T, dtype=np.float64)
    at = np.stack([np.full_like(T, THIRTY_DAYS), T, T + THIRTY_DAYS], 1)  # (U, 3)
    swap = index.variance_swap(at.ravel()).reshape(at.shape)
    k = np.multiply.outer(np.sqrt(swap * at), STRIKE_DEVIATIONS)  # (U, 3, S)
    iv = index.iv(k.ravel(), np.repeat(at.ravel(), len(STRIKE_DEVIATIONS))).reshape(k.shape)
    ahead = np.log(np.maximum(index.forward_variance(T), _MIN_FORWARD_VARIANCE))
    money = np.log(iv[..., AT_THE_MONEY])
    smile = np.delete(np.log(iv), AT_THE_MONEY, axis=-1) - money[..., None]
    parts = [
        np.log(T)[:, None],
        ahead[:, None],
        np.log(swap) - ahead[:, None],
        2.0 * money - np.log(swap),
        smile.reshape(T.size, -1),
    ]
    return np.concatenate(parts, 1)
