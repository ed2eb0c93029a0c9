"""The double Heston model with double-exponential jumps: exact prices by Lewis' integral.

The double Heston model (Christoffersen, Heston and Jacobs 2009) with double-exponential jumps
(Kou 2002):

    dX/X = √v_1 dW_1 + √v_2 dW_2 + jumps,   dv_j = κ_j(θ_j − v_j) dt + ν_j √v_j dB_j,

``d<W_j, B_j> = ρ_j dt`` and all else independent. The lifted Heston model has one Brownian motion
behind all its factors and hence one correlation. Here two correlations move the skew independently
of the variance, and jumps have exponential tails. The characteristic function is a product of
closed forms, and prices are Lewis' integral of it. No operator was trained on these markets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.models.exact_prices import (
    Complex,
    check_parameter,
    draw_log_uniform,
    implied_volatility,
    require_log_strikes,
    require_maturities,
)
from arbiter.models.heston import log_transform
from arbiter.models.lewis import MAX_RADIANS_PER_PANEL, lewis

_MAX_LOG_STRIKE = 8.0  # log-strikes
_MAX_JUMP_VARIANCE = 0.02  # a year, of a drawn market


@dataclass(frozen=True)
class HestonVariance:
    """One Heston variance: ``dv = κ(θ − v) dt + ν √v dB`` with correlation ρ to its index part.

    Attributes:
        v0: Variance now.
        reversion: κ, speed of mean reversion.
        theta: Long-run variance.
        nu: Volatility of variance.
        rho: Correlation.
    """

    v0: float
    reversion: float
    theta: float
    nu: float
    rho: float

    def __post_init__(self) -> None:
        check_parameter("v0", self.v0, 0.0 < self.v0 < 25.0, "a variance: 0.04 is 20 % volatility")
        check_parameter("theta", self.theta, 0.0 <= self.theta < 25.0, "a variance: 0.04 is 20 %")
        check_parameter(
            "reversion", self.reversion, 1e-6 <= self.reversion < 1e3, "a speed per year"
        )
        check_parameter(
            "nu", self.nu, 1e-3 <= self.nu < 1e2, "the volatility of variance, from 0.001"
        )
        check_parameter(
            "rho", self.rho, -0.999 <= self.rho <= 0.999, "a correlation, up to 0.999 in size"
        )

    def log_cf(self, z: Complex, T: float) -> Complex:
        """``log E X^z`` of the part of the index that this variance drives."""
        return log_transform((self.v0, self.reversion, self.theta, self.nu, self.rho), z, T)

    def integrated_variance(self, T: Array) -> Array:
        """``∫ E v`` from now to T."""
        gone = -np.expm1(-self.reversion * T) / self.reversion
        return np.asarray(self.theta * T + (self.v0 - self.theta) * gone)

    def turning_rate(self, T: float) -> float:
        """Rotation of ``log_cf`` at large frequencies, in radians per unit of frequency."""
        return abs(self.rho) / self.nu * (self.v0 + self.reversion * self.theta * T)


@dataclass(frozen=True)
class ExponentialJumps:
    """Kou's jumps of the index: up or down by exponential amounts, compensated.

    Attributes:
        intensity: Jumps a year.
        upward: Share of them that go up.
        up: Mean logarithm of an upward jump, below one.
        down: Mean size of the logarithm of a downward jump.
    """

    intensity: float
    upward: float
    up: float
    down: float

    def __post_init__(self) -> None:
        check_parameter(
            "intensity", self.intensity, 0.0 <= self.intensity < 1e3, "jumps a year, ≥ 0"
        )
        check_parameter(
            "upward", self.upward, 0.0 <= self.upward <= 1.0, "a share, between 0 and 1"
        )
        check_parameter(
            "up", self.up, 0.0 < self.up < 0.9, "the mean log of an upward jump: 0.02 is 2 %"
        )
        check_parameter(
            "down", self.down, 0.0 < self.down < 3.0, "the mean size of a downward jump: 0.05"
        )

    @property
    def drift(self) -> float:
        """Compensator of the jumps per year, ``λ (E e^J − 1)``."""
        rise = self.upward * self.up / (1.0 - self.up)
        return self.intensity * (rise - (1.0 - self.upward) * self.down / (1.0 + self.down))

    def log_cf(self, z: Complex) -> Complex:
        """``log E X^z`` of the compensated jumps, per year."""
        rise = self.upward * z * self.up / (1.0 - z * self.up)
        fall = (1.0 - self.upward) * z * self.down / (1.0 + z * self.down)
        return np.asarray(self.intensity * (rise - fall) - z * self.drift)

    @property
    def variance(self) -> float:
        """Variance that jumps add to the log contract, per year: ``2 λ E[e^J − 1 − J]``."""
        mean = self.upward * self.up - (1.0 - self.upward) * self.down
        return 2.0 * (self.drift - self.intensity * mean)


@dataclass(frozen=True)
class DoubleHeston:
    """A market with two independent variances and jumps, and its exact prices.

    Forward and discount factor are one, volatilities annualised; arguments broadcast as those of
    :meth:`arbiter.Surface.iv` do. Prices are right to 1e-12 of the forward from 2 days to 5 years
    and to 8 standard deviations; :meth:`error_estimate` checks it where you are.

    Attributes:
        fast: The variance that reverts fast.
        slow: The variance that reverts slowly.
        jumps: Jumps of the index, or None.

    Example:
        >>> one = HestonVariance(v0=0.02, reversion=1.5, theta=0.02, nu=0.5, rho=-0.7)
        >>> round(float(DoubleHeston(one, one).iv(0.0, 0.5)), 6)  # Heston's with v0 = θ = 0.04
        0.18159
    """

    fast: HestonVariance
    slow: HestonVariance
    jumps: ExponentialJumps | None = None

    def transform(self, u: Complex, T: float) -> Complex:
        """Characteristic function ``E exp(iu log X_T)``."""
        z = 1j * u
        log_cf = self.fast.log_cf(z, T) + self.slow.log_cf(z, T)
        if self.jumps is not None:
            log_cf = log_cf + T * self.jumps.log_cf(z)
        return np.asarray(np.exp(log_cf))

    def otm(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Out-of-the-money prices: calls for ``k ≥ 0``, puts below."""
        return self._otm(k, T, MAX_RADIANS_PER_PANEL)

    def iv(self, k: ArrayLike, T: ArrayLike) -> Array:
        """Implied volatility; NaN where the price is below what the integral resolves, 1e-12."""
        points, at = np.broadcast_arrays(np.asarray(k, dtype=np.float64), require_maturities(T))
        return implied_volatility(self.otm(points, at), points, at)

    def error_estimate(self, k: ArrayLike, T: ArrayLike) -> float:
        """Largest change of a price when panels of the integral are halved."""
        gap = self._otm(k, T, 0.5 * MAX_RADIANS_PER_PANEL) - self.otm(k, T)
        return float(np.abs(gap).max(initial=0.0))

    def log_variance(self, T: ArrayLike) -> Array:
        """Total log-contract variance ``W(T) = −2 E log X_T``."""
        at = require_maturities(T)
        jumps = 0.0 if self.jumps is None else self.jumps.variance
        return np.asarray(
            self.fast.integrated_variance(at) + self.slow.integrated_variance(at) + jumps * at
        )

    def variance_swap(self, T: ArrayLike) -> Array:
        """Annualised variance of the log contract, ``W(T)/T``."""
        return np.asarray(self.log_variance(T) / require_maturities(T))

    def vix(self) -> Array:
        """The volatility index today, in index points."""
        return np.asarray(INDEX_POINTS * np.sqrt(self.variance_swap(THIRTY_DAYS)))

    def _otm(self, k: ArrayLike, T: ArrayLike, radians: float) -> Array:
        points, at = np.broadcast_arrays(
            require_log_strikes(k, _MAX_LOG_STRIKE), require_maturities(T)
        )
        out = np.empty(points.shape)
        for t in np.unique(at).tolist():
            here = at == t
            drift = 0.0 if self.jumps is None else abs(self.jumps.drift) * t
            turning = self.fast.turning_rate(t) + self.slow.turning_rate(t) + drift
            out[here] = lewis(partial(self.transform, T=t), points[here], turning, radians)
        return np.asarray(np.maximum(out, 0.0))


def draw_double_heston(rng: np.random.Generator) -> DoubleHeston:
    """A random index-like market, from calm to crash."""
    fast = HestonVariance(
        v0=draw_log_uniform(rng, 0.002, 0.15),
        reversion=draw_log_uniform(rng, 3.0, 12.0),
        theta=draw_log_uniform(rng, 0.003, 0.05),
        nu=float(rng.uniform(0.4, 1.6)),
        rho=float(rng.uniform(-0.95, -0.5)),
    )
    slow = HestonVariance(
        v0=draw_log_uniform(rng, 0.004, 0.06),
        reversion=draw_log_uniform(rng, 0.1, 1.2),
        theta=draw_log_uniform(rng, 0.01, 0.08),
        nu=float(rng.uniform(0.1, 0.5)),
        rho=float(rng.uniform(-0.9, -0.2)),
    )
    while True:
        jumps = ExponentialJumps(
            intensity=draw_log_uniform(rng, 0.3, 6.0),
            upward=float(rng.uniform(0.05, 0.4)),
            up=float(rng.uniform(0.01, 0.04)),
            down=draw_log_uniform(rng, 0.015, 0.12),
        )
        if jumps.variance < _MAX_JUMP_VARIANCE:
            return DoubleHeston(fast, slow, jumps)
