"""The Heston model: parameters, characteristic function, prices and implied volatilities.

    dX/X = √v dW,   dv = κ(θ − v) dt + σ √v dB,   d<W, B> = ρ dt.

The characteristic function is in closed form (Heston 1993, in the form without branch cuts of
Albrecher and others 2007).
"""

from __future__ import annotations

from dataclasses import astuple, dataclass

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex
from arbiter.models.lewis import lewis
from arbiter.pricing import black


def log_transform(parameters: ArrayLike, z: Complex, T: ArrayLike) -> Complex:
    """``log E X_T^z`` of v0, κ, θ, σ and ρ, along the first axis of ``parameters``."""
    v0, kappa, theta, sigma, rho = np.asarray(parameters)
    beta = kappa - rho * sigma * z
    d = np.sqrt(beta**2 + sigma**2 * (z - z * z))
    g, decay = (beta - d) / (beta + d), np.exp(-d * T)
    slow = (beta - d) * T - 2.0 * np.log((1.0 - g * decay) / (1.0 - g))
    fast = (beta - d) * (1.0 - decay) / (1.0 - g * decay)
    return np.asarray((kappa * theta * slow + v0 * fast) / sigma**2)


@dataclass(frozen=True)
class Heston:
    """Parameters of ``dv = κ(θ − v) dt + σ √v dB``, correlation ρ with the spot.

    Attributes:
        v0: Variance today.
        kappa: κ, speed of mean reversion per year.
        theta: θ, long-run variance.
        sigma: σ, the volatility of variance.
        rho: ρ, correlation of spot and variance.
    """

    v0: float
    kappa: float
    theta: float
    sigma: float
    rho: float

    def reference_volatility(self, T: Array) -> Array:
        """Square root of the mean variance up to ``T``, annualised."""
        decay = -np.expm1(-self.kappa * T) / (self.kappa * T)
        return np.asarray(np.sqrt(self.theta + (self.v0 - self.theta) * decay))

    def otm(self, k: Array, T: float) -> Array:
        """Out-of-the-money prices at log-strikes ``(m,)``, to about 1e-15 of the forward."""
        turning = abs(self.rho) / self.sigma * (self.v0 + self.kappa * self.theta * T)
        return lewis(lambda u: np.exp(log_transform(astuple(self), 1j * u, T)), k, turning)

    def iv(self, k: Array, T: Array) -> Array:
        """Implied volatilities at log-strikes ``(L, m)``, maturities ``(L,)``."""
        price = np.array([self.otm(row, t) for row, t in zip(k, T.tolist(), strict=True)])
        return np.asarray(black.implied_total_volatility(price, k).volatility / np.sqrt(T)[:, None])
