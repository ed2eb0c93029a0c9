"""Nested mixtures of transport slices: laws with a separate crash mode, free of arbitrage.

Component j is a mean-one transport that dominates component j−1, its slopes at least as large
everywhere; ``P(J ≥ j)`` does not fall with maturity (docs/theory.md, section 6). Prices,
probabilities, delta, density and log variance add up with the weights; quantiles, and with
them the Lorenz curve and the CVaR, need one scalar root. One component costs nothing extra.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array, Indices
from arbiter.pricing import normal
from arbiter.pricing.black import call_parity, put_parity
from arbiter.pricing.knots import Knots
from arbiter.pricing.transport import Transport

# Bisections, then Newton steps: the bracket shrinks by 2^-30 before quadratic convergence.
_BISECTION_STEPS = 30
_NEWTON_STEPS = 4
_TINY = float(np.finfo(np.float64).tiny)


class Mixture:
    """Slices of a nested mixture.

    Points are ``(L, m)`` or ``(m,)`` for all slices, or ``(m,)`` beside the slice ``of`` each.

    Args:
        knots: ``(n,)`` Gaussian coordinates, or prepared :class:`Knots`.
        slopes: ``(J, L, n)`` positive slopes per component and maturity.
        weights: ``(J, L)`` component weights; None when J = 1.
    """

    def __init__(
        self, knots: ArrayLike | Knots, slopes: Array, weights: Array | None = None
    ) -> None:
        if weights is None and slopes.shape[0] != 1:
            raise ValueError(f"{slopes.shape[0]} components need weights of shape (J, L)")
        grid = knots if isinstance(knots, Knots) else Knots.from_array(knots)
        self.parts = [Transport(grid, part) for part in slopes]
        self.weights = np.ones(slopes.shape[:2]) if weights is None else weights
        self.single = slopes.shape[0] == 1

    def _weighted_sum(self, query: Callable[[Transport], Array], of: Indices | None) -> Array:
        """The sum of a query of every component, with the weights."""
        if self.single:
            return query(self.parts[0])
        return self._add_weighted([query(part) for part in self.parts], of)

    def _add_weighted(self, values: list[Array], of: Indices | None) -> Array:
        shares = [w[:, None] if of is None else w[of] for w in self.weights]
        total = shares[0] * values[0]
        for share, value in zip(shares[1:], values[1:], strict=True):
            total = total + share * value
        return np.asarray(total)

    def otm(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Out-of-the-money prices: calls for ``k ≥ 0``, puts below."""
        return self._weighted_sum(lambda part: part.otm(k, of), of)

    def call(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Call prices, the in-the-money side by parity."""
        return np.asarray(self.otm(k, of) + call_parity(k))

    def put(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Put prices, the in-the-money side by parity."""
        return np.asarray(self.otm(k, of) + put_parity(k))

    def cdf(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """``P(X ≤ κ)``."""
        return self._weighted_sum(lambda part: part.cdf(k, of), of)

    def digital(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """``P(X > κ)``."""
        return self._weighted_sum(lambda part: part.digital(k, of), of)

    def density(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Density of X per unit of κ."""
        return self._weighted_sum(lambda part: part.density(k, of), of)

    def gamma(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """``κ² f(κ)``, the gamma of a unit of forward."""
        return self._weighted_sum(lambda part: part.gamma(k, of), of)

    def delta(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Forward call delta at sticky moneyness, ``E[X; X > κ]``."""
        return self._weighted_sum(lambda part: part.delta(k, of), of)

    def log_variance(self) -> Array:
        """Total log-contract variance ``W``, shape ``(L,)``."""
        found = np.stack([part.log_variance() for part in self.parts])
        return found[0] if self.single else np.asarray((self.weights * found).sum(axis=0))

    def z(self, k: ArrayLike, of: Indices | None = None) -> Array:
        """Z-coordinate of a strike, computed from whichever tail is smaller.

        With several components it is infinite where that tail underflows, past about 38.
        """
        if self.single:
            return self.parts[0].z(k, of)
        below, above = self._tails(k, of)
        left = below <= above
        tail = normal.quantile_of(np.where(left, below, above))
        return np.where(left, tail, -tail)

    def _tails(self, k: ArrayLike, of: Indices | None) -> tuple[Array, Array]:
        """Probabilities below and above a strike, each relatively accurate."""
        coordinates = [part.z(k, of) for part in self.parts]
        below = self._add_weighted([normal.cdf_of(z) for z in coordinates], of)
        return below, self._add_weighted([normal.cdf_of(-z) for z in coordinates], of)

    def log_strike(self, z: ArrayLike, of: Indices | None = None) -> Array:
        """Log-strike at a Z-coordinate, the inverse of :meth:`z`."""
        by_part = [part.log_strike(z, of) for part in self.parts]  # the root lies between these
        if self.single:
            return by_part[0]
        low, high = np.minimum.reduce(by_part), np.maximum.reduce(by_part)
        for _ in range(_BISECTION_STEPS):
            middle = 0.5 * (low + high)
            under = np.less(self.z(middle, of), z)
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        k = np.asarray(0.5 * (low + high))
        for _ in range(_NEWTON_STEPS):
            k = np.clip(self._newton_step(k, np.asarray(z), of), low, high)
        return k

    def _newton_step(self, k: Array, z: Array, of: Indices | None) -> Array:
        """One step towards ``P(X ≤ e^k) = Φ(z)``, on the side of the smaller tail."""
        below, above = self._tails(k, of)
        miss = np.where(z < 0.0, below - normal.cdf_of(z), normal.cdf_of(-z) - above)
        rate = self.density(k, of) * np.exp(k)
        return np.asarray(k - miss / np.maximum(rate, _TINY))

    def quantile(self, u: ArrayLike, of: Indices | None = None) -> Array:
        """The κ below which X lies with probability ``u``."""
        return np.asarray(np.exp(self.log_strike(normal.quantile_of(u), of)))

    def dual(self, q: ArrayLike, of: Indices | None = None) -> Array:
        """Dual potential ``G(q)``, the upper Lorenz curve."""
        if self.single:
            return self.parts[0].dual(q, of)
        k = self.log_strike(-normal.quantile_of(q), of)
        # G = c + κ q at q's own strike; a first-order error in k cancels (envelope)
        return np.asarray(self.call(k, of) + np.exp(k) * q)

    def cvar(self, q: ArrayLike, tail: str = "upper", of: Indices | None = None) -> Array:
        """Mean of X in its upper (``G(q)/q``) or lower tail of probability ``q``."""
        if self.single:
            return self.parts[0].cvar(q, tail, of)
        if tail == "upper":
            return np.divide(self.dual(q, of), q)
        if tail == "lower":
            k = self.log_strike(normal.quantile_of(q), of)
            return np.exp(k) - np.divide(self.put(k, of), q)
        raise ValueError(f"tail must be 'upper' or 'lower', got {tail!r}")
