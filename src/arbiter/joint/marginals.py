"""Marginal laws of the joint program: option prices, quantiles and variance contracts.

The program uses nothing else of a law, so that a fitted slice, an exact model and a discrete law
are treated by the same code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from arbiter.conventions import INDEX_POINTS, Array

_QUANTILE_STRIKES = 4001  # strikes at which quantiles are read off call prices


class IndexLaws(Protocol):
    """A surface with laws of the index: what :meth:`Marginal.of_index` needs."""

    def otm(self, k: Array, T: float, /) -> Array:
        """Out-of-the-money prices in forward units."""

    def quantile(self, u: Array, T: float, /) -> Array:
        """Moneyness below which ``S_T/F_T`` lies with probability ``u``."""

    def variance_swap(self, T: float, /) -> Array:
        """Annualised variance of the log contract."""


class VixLaws(Protocol):
    """A surface with laws of the VIX, in index points: for :meth:`Marginal.of_volatility`."""

    def discount(self, T: float, /) -> Array:
        """Discount factor."""

    def vix_future(self, T: float, /) -> Array:
        """VIX future."""

    def vix_option(self, K: Array, T: float, side: str, /) -> Array:
        """Discounted prices of VIX options; ``side`` is ``"call"`` or ``"put"``."""

    def vix_quantile(self, u: Array, T: float, /) -> Array:
        """Level below which ``VIX_T`` lies with probability ``u``."""

    def vix_second_moment(self, T: float, /) -> Array:
        """``E[(VIX_T/100)²]``."""


@dataclass(frozen=True, eq=False)
class Marginal:
    """One law on the positive half-line: undiscounted prices, quantiles and moments.

    Attributes:
        call: ``E (X − K)⁺`` for an array of positive strikes.
        quantile: The level below which X lies with a probability; it only places strikes and
            nodes, and need not be accurate.
        mean: ``E X``.
        log_mean: ``E log X``, needed of the two index levels.
        second_moment: ``E X²``, needed of the volatility.
    """

    call: Callable[[Array], Array]
    quantile: Callable[[Array], Array]
    mean: float
    log_mean: float = np.nan
    second_moment: float = np.nan

    @staticmethod
    def lognormal(deviation: float, mean: float = 1.0) -> Marginal:
        """``mean · exp(deviation Z − deviation²/2)``.

        Example:
            >>> law = Marginal.lognormal(0.2)
            >>> round(float(law.call(np.array(1.0))), 12)  # Black at 20 % total volatility
            0.079655674554
        """
        if not (np.isfinite(deviation) and deviation > 0.0 and mean > 0.0):
            raise ValueError(f"deviation = {deviation!r}, mean = {mean!r}: both must be positive")
        half = 0.5 * deviation**2

        def call(strike: Array) -> Array:
            d = (np.log(mean / np.asarray(strike)) + half) / deviation
            return np.asarray(mean * ndtr(d) - strike * ndtr(d - deviation))

        def quantile(u: Array) -> Array:
            return np.asarray(mean * np.exp(deviation * ndtri(u) - half))

        second = mean**2 * np.exp(deviation**2)
        return Marginal(call, quantile, mean, float(np.log(mean)) - half, float(second))

    @staticmethod
    def discrete(values: ArrayLike, weights: ArrayLike) -> Marginal:
        """Atoms ``values`` with probabilities ``weights``."""
        z, p = np.broadcast_arrays(
            np.atleast_1d(np.asarray(values, dtype=np.float64)),
            np.atleast_1d(np.asarray(weights, dtype=np.float64)),
        )
        if not ((z > 0.0).all() and (p >= 0.0).all() and abs(p.sum() - 1.0) < 1e-12):
            raise ValueError("atoms must be positive and weights nonnegative, with sum one")
        order = np.argsort(z)
        z, p = z[order], p[order]
        reach = np.cumsum(p)

        def call(strike: Array) -> Array:
            return np.asarray(np.maximum(z - np.asarray(strike)[..., None], 0.0) @ p)

        def quantile(u: Array) -> Array:
            return np.asarray(z[np.minimum(np.searchsorted(reach, u), z.size - 1)])

        return Marginal(call, quantile, float(p @ z), float(p @ np.log(z)), float(p @ (z * z)))

    @staticmethod
    def of_calls(
        call: Callable[[Array], Array],
        mean: float,
        span: tuple[float, float],
        *,
        log_mean: float = np.nan,
        second_moment: float = np.nan,
    ) -> Marginal:
        """A law known by its calls, its quantiles read off their slopes between ``span``."""
        low, high = span
        if not 0.0 < low < mean < high:
            raise ValueError(f"span = {span!r} must be positive and enclose the mean, {mean!r}")
        strikes = np.linspace(low, high, _QUANTILE_STRIKES)
        above = np.clip(-np.diff(call(strikes)) / np.diff(strikes), 0.0, 1.0)
        # rounding of far calls must not turn the quantiles back; the ramp keeps them distinct
        below = 1.0 - np.minimum.accumulate(above) + 1e-14 * np.arange(above.size)
        middle = 0.5 * (strikes[1:] + strikes[:-1])
        return Marginal(call, lambda u: np.interp(u, below, middle), mean, log_mean, second_moment)

    @staticmethod
    def of_index(surface: IndexLaws, T: float) -> Marginal:
        """The law of ``S_T/F_T`` on a surface, at year fraction ``T``."""

        def call(strike: Array) -> Array:
            k = np.log(strike)
            return np.asarray(surface.otm(k, T) + np.maximum(-np.expm1(k), 0.0))

        log_mean = -0.5 * T * float(surface.variance_swap(T))
        return Marginal(call, lambda u: np.asarray(surface.quantile(u, T)), 1.0, log_mean=log_mean)

    @staticmethod
    def of_volatility(surface: VixLaws, T: float) -> Marginal:
        """The law of ``VIX_T/100`` on a surface with VIX slices, at year fraction ``T``."""
        future = float(surface.vix_future(T)) / INDEX_POINTS
        money = INDEX_POINTS * float(surface.discount(T))

        def call(strike: Array) -> Array:
            # the side out of the money, and parity
            points = INDEX_POINTS * np.asarray(strike)
            side = np.asarray(strike) >= future
            high = surface.vix_option(np.where(side, points, INDEX_POINTS * future), T, "call")
            low = surface.vix_option(np.where(side, INDEX_POINTS * future, points), T, "put")
            return np.asarray(np.where(side, high / money, low / money + future - strike))

        def quantile(u: Array) -> Array:
            return np.asarray(surface.vix_quantile(u, T) / INDEX_POINTS)

        second = float(surface.vix_second_moment(T))
        return Marginal(call, quantile, future, second_moment=second)
