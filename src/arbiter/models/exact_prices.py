"""Shared parts of the models with exact prices: checked arguments and implied volatilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter.pricing import black

Complex = NDArray[np.complex128]

PRICE_RESOLUTION = 1e-12  # of the forward: prices below it are rounding of the Fourier integral
MAX_MATURITY_YEARS = 100.0  # years


def check_parameter(name: str, value: float, good: bool, meaning: str) -> None:
    """Raise a ``ValueError`` that names the parameter and its meaning, unless it is ``good``."""
    if not good:  # false for NaN too
        raise ValueError(f"{name} = {value!r}: it is {meaning}")


def require_maturities(T: ArrayLike) -> Array:
    """``T`` as a float64 array of year fractions.

    Raises:
        ValueError: If one is not positive, or not below 100 years.
    """
    t = np.asarray(T, dtype=np.float64)
    if not np.all((t > 0.0) & (t < MAX_MATURITY_YEARS)):
        raise ValueError(f"T must be positive year fractions below {MAX_MATURITY_YEARS:g}")
    return t


def require_log_strikes(k: ArrayLike, largest: float) -> Array:
    """``k`` as a float64 array of log-strikes.

    Raises:
        ValueError: If one is not finite, or above ``largest`` in size.
    """
    points = np.asarray(k, dtype=np.float64)
    bad = ~(np.abs(points) <= largest)  # true for NaN too
    if bad.any():
        raise ValueError(
            f"k = {points[bad][0]}: log-strikes must be finite and within ±{largest:g}, beyond "
            "which prices are rounding"
        )
    return points


def implied_volatility(
    price: Array, k: Array, T: Array, resolution: float = PRICE_RESOLUTION
) -> Array:
    """Annualised volatilities of out-of-the-money prices in forward units.

    Prices up to ``resolution`` have NaN: they are rounding of the Fourier integral.
    """
    resolved = np.where(price > resolution, price, np.nan)
    return np.asarray(black.implied_total_volatility(resolved, k).volatility / np.sqrt(T))


def draw_log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    """A number between ``low`` and ``high`` whose logarithm is uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))
