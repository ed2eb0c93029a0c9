"""Raw SVI, one slice at a time: ``w(k) = a + b (ρ(k − m) + √((k − m)² + σ²))``.

Gatheral (2004). Fitted in the parameters that make its bounds simple ones: the smallest variance
``v = a + bσ√(1−ρ²)``, the slopes of the two wings ``p = b(1−ρ)`` and ``c = b(1+ρ)`` (Lee's bound:
at most 2), ``m`` and ``σ``. In them ``w = v − σ√(pc) + (c − p)y/2 + (p + c)√(y² + σ²)/2`` with
``y = k − m``. Free of negative variance and of moment explosions, and of nothing else: butterflies
and calendars are not constrained, as is usual.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.quotes import Quotes
from arbiter_lab.peers.peer import Peer, broadcast_points, volatility_targets

logger = logging.getLogger(__name__)

MIN_QUOTES_PER_SLICE = 5  # parameters of a slice


@dataclass(frozen=True, repr=False)
class SVI(Peer):
    """Raw SVI slices; linear in total variance between them, flat in volatility beyond.

    Attributes:
        maturities: ``(L,)`` years.
        parameters: ``(L, 5)`` raw parameters a, b, ρ, m, σ.
    """

    name: ClassVar[str] = "raw SVI"
    maturities: Array
    parameters: Array

    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance ``σ²T``; ``k`` and ``T`` broadcast."""
        at, t = broadcast_points(k, T)
        last = self.maturities.size - 1
        right = np.searchsorted(self.maturities, t)
        low, high = np.clip(right - 1, 0, last), np.clip(right, 0, last)
        below, above = (raw_svi(self.parameters[i], at) for i in (low, high))
        start, end = self.maturities[low], self.maturities[high]
        between = low < high
        share = np.divide(t - start, end - start, out=np.zeros(t.shape), where=between)
        return np.where(between, below + share * (above - below), below * t / start)


def raw_svi(parameters: ArrayLike, k: ArrayLike) -> Array:
    """Total variance of raw parameters ``(..., 5)`` at log-strikes ``(...)``."""
    a, b, rho, m, sigma = np.moveaxis(np.asarray(parameters, dtype=np.float64), -1, 0)
    y = np.asarray(k, dtype=np.float64) - m
    return np.asarray(a + b * (rho * y + np.hypot(y, sigma)))


def fit_svi(quotes: Quotes) -> SVI:
    """Fit raw SVI to each expiry by least squares on volatility over half-spread.

    Expiries with fewer than five quotes are left out, with a warning, and interpolated.

    Raises:
        ValueError: If no expiry has five quotes.
    """
    iv, half = volatility_targets(quotes)
    kept, fitted = [], []
    for i, T in enumerate(quotes.maturities.tolist()):
        here = quotes.expiry == i
        if here.sum() < MIN_QUOTES_PER_SLICE:
            logger.warning("%s has %d quotes: raw SVI needs 5", quotes.labels[i], here.sum())
            continue
        kept.append(i)
        fitted.append(_fit_slice(SliceQuotes(quotes.k[here], T, iv[here], half[here])))
    if not kept:
        raise ValueError(
            f"no expiry of {quotes!r} has the {MIN_QUOTES_PER_SLICE} quotes that raw SVI needs: "
            "give more quotes"
        )
    return SVI(quotes.maturities[kept], np.array(fitted))


@dataclass(frozen=True)
class SliceQuotes:
    """One expiry's quotes, and residuals of the parameters ``x = (v, p, c, m, σ)``."""

    k: Array
    T: float
    iv: Array
    half: Array

    def variance(self, x: Array) -> Array:
        """``(m,)`` total variances of the slice at parameters ``x``."""
        v, p, c, m, sigma = x
        y = self.k - m
        root = np.hypot(y, sigma)
        return np.asarray(v - sigma * np.sqrt(p * c) + 0.5 * ((c - p) * y + (p + c) * root))

    def residuals(self, x: Array) -> Array:
        """``(m,)`` misses in half-spreads at parameters ``x``."""
        return np.asarray((np.sqrt(self.variance(x) / self.T) - self.iv) / self.half)

    def jacobian(self, x: Array) -> Array:
        """``(m, 5)`` derivatives of the misses by the parameters."""
        _, p, c, m, sigma = x
        y = self.k - m
        root = np.hypot(y, sigma)
        slope = np.column_stack(
            [
                np.ones_like(y),
                0.5 * (root - y - sigma * np.sqrt(c / p)),
                0.5 * (root + y - sigma * np.sqrt(p / c)),
                0.5 * (p - c) - 0.5 * (p + c) * y / root,
                0.5 * (p + c) * sigma / root - np.sqrt(p * c),
            ]
        )
        volatility = np.sqrt(self.variance(x) / self.T)
        return np.asarray(slope / (2.0 * volatility * self.T * self.half)[:, None])

    def bounds(self) -> tuple[Array, Array]:
        """Return lower and upper bounds of the parameters; fits of few quotes need them.

        Lee's bound on a wing's slope does not bind at short maturities. The root of the largest
        variance does, and slices free of butterfly arbitrage rarely reach it.
        """
        low, high = min(self.k[0], 0.0), max(self.k[-1], 0.0)
        width, most = self.k[-1] - self.k[0], float(self.iv.max() ** 2 * self.T)
        steepest = min(2.0, np.sqrt(most))
        smallest = np.array([1e-4 * most, 1e-8, 1e-8, 2.0 * low, 0.005 * width])
        return smallest, np.array([most, steepest, steepest, 2.0 * high, 10.0 * width])


def _fit_slice(quotes: SliceQuotes) -> Array:
    """Raw parameters of one slice."""
    from scipy.optimize import least_squares

    low, high = quotes.bounds()
    v, p, c, m, sigma = least_squares(
        quotes.residuals, _initial_point(quotes, low, high), quotes.jacobian, bounds=(low, high),
        x_scale=high - low, ftol=1e-10, xtol=1e-10, gtol=1e-10, max_nfev=300,
    ).x  # fmt: skip
    b, rho = 0.5 * (p + c), (c - p) / (p + c)
    return np.array([v - sigma * np.sqrt(p * c), b, rho, m, sigma])


def _initial_point(quotes: SliceQuotes, low: Array, high: Array) -> Array:
    """The best point of a grid of (m, σ): at fixed ones the rest is a linear regression.

    Zeliade (2009), quasi-explicit calibration, here without its constraints: the solution is
    moved into the bounds and ranked by what it then costs.
    """
    k, width = quotes.k, quotes.k[-1] - quotes.k[0]
    m, sigma = (
        grid.ravel()
        for grid in np.meshgrid(np.linspace(k[0], k[-1], 12), width * np.geomspace(0.01, 2.0, 8))
    )
    y = k - m[:, None]  # (G, n)
    weight = 1.0 / (2.0 * quotes.iv * quotes.T * quotes.half)
    columns = np.stack([np.ones_like(y), y, np.hypot(y, sigma[:, None])], axis=-1)
    columns *= weight[:, None]  # (G, n, 3)
    target = weight * quotes.iv**2 * quotes.T
    normal = np.swapaxes(columns, 1, 2) @ columns
    normal += 1e-12 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3)
    a, tilt, b = np.linalg.solve(normal, np.swapaxes(columns, 1, 2) @ target[:, None])[..., 0].T
    p, c = (np.clip(b + sign * tilt, low[1], high[1]) for sign in (-1.0, 1.0))
    x = np.column_stack([a + sigma * np.sqrt(p * c), p, c, m, sigma])  # (G, 5)
    edge = 1e-3 * (high - low)
    x = np.clip(x, low + edge, high - edge)
    cost = [float(np.sum(quotes.residuals(row) ** 2)) for row in x]
    return np.asarray(x[np.argmin(cost)])
