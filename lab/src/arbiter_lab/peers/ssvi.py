"""SSVI: one surface from the at-the-money variances and three shape parameters.

Gatheral and Jacquier (2014): ``w = θ/2 (1 + ρφk + √((φk + ρ)² + 1 − ρ²))`` with the at-the-money
total variance θ of each maturity and ``φ(θ) = η / (θ^γ (1 + θ)^(1−γ))``. With θ nondecreasing in
T, ``0 ≤ γ ≤ 1/2`` and ``η(1 + |ρ|) ≤ 2`` (their section 4) the surface is free of static
arbitrage; the fit keeps to these bounds. All parameters are fitted together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.quotes import Quotes
from arbiter_lab.peers.peer import Peer, broadcast_points, volatility_targets


@dataclass(frozen=True, repr=False)
class SSVI(Peer):
    """An SSVI surface; θ is linear in T between maturities, and proportional to T beyond.

    Attributes:
        maturities: ``(L,)`` years.
        theta: ``(L,)`` at-the-money total variances, nondecreasing.
        rho: Correlation-like skew in (−1, 1).
        eta: Level of the curvature, ``η(1 + |ρ|) ≤ 2``.
        gamma: Decay of the curvature, in [0, 1/2].
    """

    name: ClassVar[str] = "SSVI"
    maturities: Array
    theta: Array
    rho: float
    eta: float
    gamma: float

    def at_the_money(self, T: ArrayLike) -> Array:
        """Total variance θ(T) at ``k = 0``."""
        t = np.asarray(T, dtype=np.float64)
        inner = np.interp(t, self.maturities, self.theta)
        # beyond the ends volatility is flat: the ratio is one between them
        return np.asarray(inner * t / np.clip(t, self.maturities[0], self.maturities[-1]))

    def total_variance(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Total implied variance ``σ²T``; ``k`` and ``T`` broadcast."""
        at, t = broadcast_points(k, T)
        return ssvi(at, self.at_the_money(t), self.rho, self.eta, self.gamma)


def ssvi(k: Array, theta: Array, rho: float, eta: float, gamma: float) -> Array:
    """Total variance at log-strikes ``k`` for at-the-money variances ``theta``."""
    z = eta / (theta**gamma * (1.0 + theta) ** (1.0 - gamma)) * k
    return np.asarray(0.5 * theta * (1.0 + rho * z + np.sqrt((z + rho) ** 2 + 1.0 - rho * rho)))


def fit_ssvi(quotes: Quotes) -> SSVI:
    """Fit SSVI to all expiries at once by least squares on volatility over half-spread.

    Raises:
        ValueError: If there are fewer quotes than parameters.
    """
    from scipy.optimize import least_squares

    count = quotes.maturities.size
    if len(quotes) < count + 3:
        raise ValueError(
            f"{quotes!r}: SSVI has {count + 3} parameters on {count} expiries; give more quotes"
        )
    problem = LeastSquaresProblem(quotes, *volatility_targets(quotes))
    start = problem.initial_point()
    low = np.concatenate([np.zeros(count), [-0.999, 1e-3, 0.0]])
    high = np.concatenate([np.full(count, np.inf), [0.999, 1.0, 0.5]])
    low[0] = 1e-3 * start[0]
    found = least_squares(
        problem.residuals, start, problem.jacobian, bounds=(low, high), x_scale="jac",
        ftol=1e-10, xtol=1e-10, gtol=1e-10, max_nfev=500,
    )  # fmt: skip
    theta, rho, eta, gamma = _unpack_parameters(found.x)
    return SSVI(quotes.maturities, theta, rho, eta, gamma)


def _unpack_parameters(x: Array) -> tuple[Array, float, float, float]:
    """θ, ρ, η, γ from increments of θ, ρ, the used share of η's bound, γ."""
    rho, share, gamma = x[-3:].tolist()
    return np.cumsum(x[:-3]), rho, 2.0 * share / (1.0 + abs(rho)), gamma


@dataclass(frozen=True)
class LeastSquaresProblem:
    """Misses of quoted volatilities in half-spreads, and their derivatives by the parameters."""

    quotes: Quotes
    iv: Array
    half: Array

    def initial_point(self) -> Array:
        """At-the-money variances from the nearest quotes, sorted, and a typical index shape."""
        quotes = self.quotes
        theta = np.empty(quotes.maturities.size)
        for i, T in enumerate(quotes.maturities.tolist()):
            here = quotes.expiry == i
            theta[i] = T * np.interp(0.0, quotes.k[here], self.iv[here] ** 2)
        steps = np.diff(np.maximum.accumulate(theta), prepend=0.0)
        # strictly inside the bounds: a step of zero would be held there at first
        return np.concatenate([np.maximum(steps, 1e-3 * theta), [-0.6, 0.7, 0.4]])

    def residuals(self, x: Array) -> Array:
        """``(m,)`` misses in half-spreads at parameters ``x``."""
        theta, rho, eta, gamma = _unpack_parameters(x)
        w = ssvi(self.quotes.k, theta[self.quotes.expiry], rho, eta, gamma)
        return np.asarray((np.sqrt(w / self.quotes.T) - self.iv) / self.half)

    def jacobian(self, x: Array) -> Array:
        """``(m, p)`` derivatives of the misses by the parameters."""
        theta_all, rho, eta, gamma = _unpack_parameters(x)
        k, expiry = self.quotes.k, self.quotes.expiry
        theta = theta_all[expiry]  # (m,)
        phi = eta / (theta**gamma * (1.0 + theta) ** (1.0 - gamma))
        z = phi * k
        root = np.sqrt((z + rho) ** 2 + 1.0 - rho * rho)
        shape = 1.0 + rho * z + root
        by_z = 0.5 * theta * (rho + (z + rho) / root)
        by_rho = 0.5 * theta * (z + z / root)
        by_theta = 0.5 * shape - by_z * z * (gamma / theta + (1.0 - gamma) / (1.0 + theta))
        by_gamma = by_z * z * (np.log1p(theta) - np.log(theta))
        by_log_eta = by_z * z
        by_rho -= by_log_eta * np.sign(rho) / (1.0 + abs(rho))
        # a step of θ moves its own maturity and all later ones
        steps = by_theta[:, None] * (np.arange(theta_all.size) <= expiry[:, None])
        by = np.column_stack([steps, by_rho, by_log_eta / x[-2], by_gamma])
        volatility = np.sqrt(0.5 * theta * shape / self.quotes.T)
        return np.asarray(by / (2.0 * volatility * self.quotes.T * self.half)[:, None])
