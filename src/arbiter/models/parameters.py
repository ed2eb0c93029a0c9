"""Parameters of the lifted Heston model: checks, presets and random draws."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral, Real
from types import UnionType

import numpy as np

from arbiter.conventions import Array
from arbiter.models.exact_prices import Complex, check_parameter, draw_log_uniform
from arbiter.models.fractional_kernel import lift

_MIN_RELATIVE_DEVIATION = 0.1 * (1.0 - 1e-12)  # deviation of a jump over its mean
_MAX_JUMP_STRENGTH = 200.0 * (1.0 + 1e-12)


@dataclass(frozen=True)
class Jumps:
    """Merton jumps of the index: lognormal, compensated.

    Attributes:
        intensity: Jumps a year.
        mean: Mean of the logarithm of a jump.
        deviation: Its standard deviation.
    """

    intensity: float
    mean: float
    deviation: float

    def __post_init__(self) -> None:
        _check_numbers(self, "intensity", "mean", "deviation")
        check_parameter(
            "intensity", self.intensity, 0.0 <= self.intensity < 1e3, "jumps a year, ≥ 0"
        )
        check_parameter(
            "mean", self.mean, -3.0 < self.mean < 3.0, "the mean log of a jump: -0.1 is −10 %"
        )
        check_parameter(
            "deviation",
            self.deviation,
            max(_MIN_RELATIVE_DEVIATION * abs(self.mean), 1e-4) <= self.deviation < 3.0,
            "the deviation of the log of a jump, at least a tenth of its mean (jumps of one fixed "
            "size have no density, and their transform does not decay)",
        )

        if self.strength > _MAX_JUMP_STRENGTH or abs(self.intensity * np.expm1(self.mean)) > 1.0:
            raise ValueError(
                f"{self}: too strong for the oracle, which takes intensity·(mean/deviation)² up to "
                "200 and intensity·(e^mean − 1) up to 1 in size; make jumps rarer, smaller or wider"
            )

    @property
    def strength(self) -> float:
        """``intensity·(mean/deviation)²``: large values make the transform hard to invert."""
        return self.intensity * (self.mean / self.deviation) ** 2

    def log_cf(self, z: Complex) -> Complex:
        """``log E X^z`` of the compensated jumps, per year."""
        s2 = self.deviation**2
        drift = np.expm1(self.mean + 0.5 * s2)
        return np.asarray(self.intensity * (np.expm1(z * (self.mean + 0.5 * z * s2)) - z * drift))

    @property
    def variance(self) -> float:
        """Variance that jumps add to the log contract, per year: ``2 λ E[e^J − 1 − J]``."""
        return (
            2.0
            * self.intensity
            * (float(np.expm1(self.mean + 0.5 * self.deviation**2)) - self.mean)
        )


@dataclass(frozen=True)
class Parameters:
    """Parameters of the lifted Heston model.

    ``dX/X = √v dW``, ``v = v0 + Σ c_i U^i``, ``dU^i = (−x_i U^i + λ(θ − v)) dt + ν √v dB``.

    Attributes:
        v0: Variance at the start.
        reversion: λ, speed of mean reversion.
        theta: Long-run variance.
        nu: Volatility of variance.
        rho: Correlation of index and variance.
        hurst: H of the fractional kernel, in (0, ½); without meaning for one factor.
        factors: Number of factors n; one is the Heston model.
        jumps: Jumps of the index, or None.
    """

    v0: float
    reversion: float
    theta: float
    nu: float
    rho: float
    hurst: float = 0.1
    factors: int = 20
    jumps: Jumps | None = None

    def __post_init__(self) -> None:
        _check_numbers(self, "v0", "reversion", "theta", "nu", "rho", "hurst")
        _check_type("factors", self.factors, Integral, "a whole number")
        _check_type("jumps", self.jumps, Jumps | None, "None or Jumps(intensity, mean, deviation)")
        check_parameter("v0", self.v0, 0.0 < self.v0 < 25.0, "a variance: 0.04 is 20 % volatility")
        check_parameter("theta", self.theta, 0.0 <= self.theta < 25.0, "a variance: 0.04 is 20 %")
        check_parameter(
            "reversion", self.reversion, 0.0 <= self.reversion < 1e3, "a speed per year"
        )
        check_parameter(
            "nu", self.nu, 1e-8 <= self.nu < 1e2, "the volatility of variance, from 1e-8"
        )
        check_parameter(
            "rho", self.rho, -0.999 <= self.rho <= 0.999, "a correlation, up to 0.999 in size"
        )
        lift(self.hurst, self.factors)  # checks H and the number of factors

    @cached_property
    def _lift(self) -> tuple[Array, Array]:
        c, x = lift(self.hurst, self.factors)
        c.setflags(write=False)  # what is cached for this market is cached for its equals
        x.setflags(write=False)
        return c, x

    @property
    def c(self) -> Array:
        """``(n,)`` weights of the factors."""
        return self._lift[0]

    @property
    def x(self) -> Array:
        """``(n,)`` speeds of the factors."""
        return self._lift[1]


def _check_numbers(owner: object, *names: str) -> None:
    for name in names:
        _check_type(name, getattr(owner, name), Real, "a number")


def _check_type(name: str, value: object, kind: type | UnionType, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kind):
        raise ValueError(f"{name} = {value!r} is not {what}")


# Reversion holds a timeline of thousands of days where the index lives; without it variance is
# near zero on most days, and its mean comes from rare bursts.
CALM = Parameters(v0=0.013, reversion=2.0, theta=0.03, nu=0.40, rho=-0.70, hurst=0.12)
PRESETS = {
    "calm": CALM,
    "stressed": replace(CALM, v0=0.10, theta=0.07, nu=0.70, rho=-0.75),
    "inverted": replace(CALM, v0=0.25, theta=0.04, nu=0.70, rho=-0.80),
    "rough": replace(CALM, v0=0.03, theta=0.035, nu=0.45, hurst=0.05),
    "jumpy": replace(
        CALM,
        v0=0.015,
        theta=0.02,
        nu=0.35,
        jumps=Jumps(intensity=0.6, mean=-0.10, deviation=0.07),
    ),
}


def preset(name: str) -> Parameters:
    """Parameters by name: calm, stressed, inverted, rough or jumpy."""
    if name not in PRESETS:
        raise ValueError(f"preset {name!r} is not one of {', '.join(PRESETS)}")
    return PRESETS[name]


def draw(rng: np.random.Generator, factors: int = 20) -> Parameters:
    """A random parameter set: index-like, from calm to crash and from rough to smooth."""
    jumps = None
    if rng.random() < 0.3:
        jumps = Jumps(
            intensity=draw_log_uniform(rng, 0.1, 2.0),
            mean=float(rng.uniform(-0.2, 0.0)),
            deviation=float(rng.uniform(0.02, 0.12)),
        )
    return Parameters(
        v0=draw_log_uniform(rng, 0.006, 0.3),
        reversion=float(rng.uniform(0.05, 2.0)),
        theta=draw_log_uniform(rng, 0.01, 0.12),
        nu=draw_log_uniform(rng, 0.1, 0.8),
        rho=float(rng.uniform(-0.92, -0.4)),
        hurst=float(rng.uniform(0.03, 0.45)),
        factors=factors,
        jumps=jumps,
    )
