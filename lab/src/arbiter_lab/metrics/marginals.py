"""Marginals: the law of ``X_T`` at each maturity, of a surface or of an oracle.

A Surface has all methods of :class:`Marginals`. :class:`InvertedMarginals` adds them to an oracle
that has prices, digitals and densities.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike
from scipy.interpolate import PchipInterpolator
from scipy.special import ndtri

from arbiter.conventions import Array

# A digital from a Fourier integral is right to about 1e-10: beyond this many deviations its tail
# is rounding, and the law goes on as Black's.
_MAX_RESOLVED_DEVIATIONS = 5.0
_TABLE_DEVIATIONS = np.linspace(-20.0, 10.0, 301)  # left tails are long: −15 is five


class Marginals(Protocol):
    """A Surface, or anything with these four methods; k is log-moneyness, z a Gaussian quantile."""

    def log_strike(self, z: Array, T: Array, /) -> Array:
        """Log-moneyness below which ``X_T`` lies with probability Φ(z)."""
        ...

    def density(self, k: Array, T: Array, /) -> Array:
        """Density of ``X_T`` per unit of κ."""
        ...

    def cvar(self, q: float, T: Array, tail: str = "lower", /) -> Array:
        """Mean of ``X_T`` over its tail of probability q."""
        ...

    def variance_swap(self, T: Array, /) -> Array:
        """``−2 E log X_T / T``."""
        ...


class Distribution(Protocol):
    """An oracle: `arbiter.markets.LiftedHeston`, for instance."""

    def otm(self, k: Array, T: Array, state: ArrayLike | None = None, /) -> Array:
        """Out-of-the-money prices."""
        ...

    def digital(self, k: ArrayLike, T: ArrayLike, state: ArrayLike | None = None, /) -> Array:
        """``P(X_T > e^k)``."""
        ...

    def density(self, k: Array, T: Array, state: ArrayLike | None = None, /) -> Array:
        """Density of ``X_T`` per unit of κ."""
        ...

    def variance_swap(self, T: ArrayLike, state: ArrayLike | None = None, /) -> Array:
        """``−2 E log X_T / T``."""
        ...


class InvertedMarginals:
    """The marginals of an oracle in one state, with its distribution inverted.

    Values are cached: make one object per day, and share it between the models of that day.

    Args:
        oracle: Anything with ``otm``, ``digital``, ``density`` and ``variance_swap``.
        state: State of the oracle; its start by default.
    """

    def __init__(self, oracle: Distribution, state: ArrayLike | None = None) -> None:
        self.oracle, self.state = oracle, state
        self._kept: dict[tuple[object, ...], Array] = {}

    def density(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Density of ``X_T`` per unit of κ."""
        return self._evaluate_cached(
            "density", lambda k, T: self.oracle.density(k, T, self.state), k, T
        )

    def variance_swap(self, T: ArrayLike) -> Array:
        """``−2 E log X_T / T``."""
        return self.oracle.variance_swap(T, self.state)

    def log_strike(self, z: ArrayLike, T: ArrayLike) -> Array:
        """Log-moneyness at Gaussian quantiles: a monotone table, then one Newton step.

        Past five deviations, where the oracle's tail is rounding, it is extrapolated linearly.
        """
        return self._evaluate_cached("log_strike", self._invert, z, T)

    def _invert(self, z: Array, T: Array) -> Array:
        wanted, times = np.broadcast_arrays(z, T)
        each, where = np.unique(times, return_inverse=True)
        where = where.reshape(times.shape)
        near = np.clip(wanted, -_MAX_RESOLVED_DEVIATIONS, _MAX_RESOLVED_DEVIATIONS)
        k, slope = np.empty(wanted.shape), np.empty((2, each.size))
        scale = np.sqrt(self.variance_swap(each) * each)
        table = _TABLE_DEVIATIONS * scale[:, None]
        quantiles = self._gaussian_quantile(table, each[:, None])  # (M, 301)
        for m in range(each.size):
            sound = np.flatnonzero(np.abs(quantiles[m]) < _MAX_RESOLVED_DEVIATIONS + 1.0)
            x = np.maximum.accumulate(quantiles[m, sound])
            rising = np.flatnonzero(np.diff(x, prepend=-np.inf) > 1e-9)
            inverse = PchipInterpolator(x[rising], table[m, sound[rising]])
            k[where == m] = inverse(near[where == m])
            slope[:, m] = inverse(
                np.array([-_MAX_RESOLVED_DEVIATIONS, _MAX_RESOLVED_DEVIATIONS]), 1
            )
        rate = np.asarray(self.density(k, times)) * np.exp(k)
        miss = (
            (self._gaussian_quantile(k, times) - near)
            * np.exp(-0.5 * near**2)
            / np.sqrt(2.0 * np.pi)
        )
        cell = (_TABLE_DEVIATIONS[1] - _TABLE_DEVIATIONS[0]) * scale[where]
        # where there is hardly a density, between a body and its jumps, a step must stay near
        step = np.clip(miss / np.maximum(rate, np.finfo(float).tiny), -cell, cell)
        k = k - np.where(np.isfinite(miss), step, 0.0)
        return np.asarray(k + (wanted - near) * np.where(wanted < near, *slope[:, where]))

    def cvar(self, q: ArrayLike, T: ArrayLike, tail: str = "lower") -> Array:
        """Mean of ``X_T`` over its lower or upper tail of probability q."""
        if tail not in ("lower", "upper"):
            raise ValueError(f"tail must be 'upper' or 'lower', got {tail!r}")
        return self._evaluate_cached(
            tail, self._lower_cvar if tail == "lower" else self._upper_cvar, q, T
        )

    def _lower_cvar(self, q: Array, T: Array) -> Array:
        k = self.log_strike(ndtri(q), T)
        put = self.oracle.otm(k, T, self.state) + np.maximum(np.expm1(k), 0.0)
        return np.asarray(np.exp(k) - put / q)

    def _upper_cvar(self, q: Array, T: Array) -> Array:
        k = self.log_strike(-ndtri(q), T)
        call = self.oracle.otm(k, T, self.state) + np.maximum(-np.expm1(k), 0.0)
        return np.asarray(np.exp(k) + call / q)

    def _evaluate_cached(
        self, name: str, ask: Callable[[Array, Array], Array], at: ArrayLike, T: ArrayLike
    ) -> Array:
        points, times = np.asarray(at, dtype=np.float64), np.asarray(T, dtype=np.float64)
        key = (name, points.shape, points.tobytes(), times.shape, times.tobytes())
        if key not in self._kept:
            answer = np.array(ask(points, times), dtype=np.float64)
            answer.setflags(write=False)
            self._kept[key] = answer
        return self._kept[key]

    def _gaussian_quantile(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Gaussian quantile of ``P(X_T ≤ e^k)``; infinite where the probability is 0 or 1."""
        above = np.clip(self.oracle.digital(k, T, self.state), 0.0, 1.0)
        return np.asarray(-ndtri(above))


def explain_missing_law(law: object) -> str | None:
    """Return why an object has no marginals; None if it has them."""
    names = ("log_strike", "density", "cvar", "variance_swap")
    missing = [name for name in names if not hasattr(law, name)]
    if not missing:
        return None
    return f"{type(law).__name__} has no law of its own: it lacks {', '.join(missing)}"
