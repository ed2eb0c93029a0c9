"""The 50 Heston surfaces: noisy quotes whose true volatilities are known, from a seed.

A fixed law, so that methods can be compared on seeds that their authors have not seen. 16
maturities from a week to two years, 41 strikes each at ``k = s·σ_ref(T)·√T`` with s uniform in
[−3.5, 2] and ``σ_ref² = θ + (v0 − θ)(1 − e^{−κT})/(κT)``. Prices are integrals of the
characteristic function, tested against QuantLib's adaptive engine to 1e-5 basis points of
volatility.

Base: the half-spread in volatility is u·IV with u rising linearly from 0.5 % at the money to 2 %
at |s| = 3.5, the mid is the truth plus half-spread × uniform(−1, 1), and 15 % of the quotes are
dropped. Hard: half-spreads three times as wide, each quote kept with probability ¼, at least 6 a
slice. The error of a method is the RMSE of its volatilities over all 656 points, quoted or not,
pooled over surfaces; nothing may be tuned on the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter import black
from arbiter.evaluation.cases import Case, quotes_of
from arbiter.markets.outsiders import lewis
from arbiter.quotes import Quotes
from arbiter.scoring import BASIS_POINT, Model

Array = NDArray[np.float64]
Complex = NDArray[np.complexfloating[Any, Any]]

DAYS = np.array([7, 14, 21, 30, 45, 60, 91, 122, 152, 182, 273, 365, 456, 547, 639, 730])
DEVIATIONS = np.linspace(-3.5, 2.0, 41)
SURFACES = 50
FEWEST = 6  # quotes on a slice of a hard surface


@dataclass(frozen=True)
class Heston:
    """Parameters of ``dv = κ(θ − v) dt + σ √v dB``, correlation ρ with the spot."""

    v0: float
    kappa: float
    theta: float
    sigma: float
    rho: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Heston:
        """Parameters of the benchmark's law."""
        return cls(
            v0=float(np.exp(rng.uniform(np.log(0.012), np.log(0.12)))),
            kappa=rng.uniform(0.8, 4.0),
            theta=float(np.exp(rng.uniform(np.log(0.02), np.log(0.10)))),
            sigma=rng.uniform(0.3, 1.1),
            rho=rng.uniform(-0.88, -0.5),
        )

    def reference(self, T: Array) -> Array:
        """``σ_ref(T)``, the square root of the mean variance up to T."""
        decay = -np.expm1(-self.kappa * T) / (self.kappa * T)
        return np.asarray(np.sqrt(self.theta + (self.v0 - self.theta) * decay))

    def transform(self, u: Complex, T: float) -> Complex:
        """Characteristic function ``E exp(iu log S_T)``, in the form without branch cuts."""
        iu = 1j * u
        beta = self.kappa - self.rho * self.sigma * iu
        d = np.sqrt(beta**2 + self.sigma**2 * (iu + u * u))
        g, decay = (beta - d) / (beta + d), np.exp(-d * T)
        slow = (beta - d) * T - 2.0 * np.log((1.0 - g * decay) / (1.0 - g))
        fast = (beta - d) * (1.0 - decay) / (1.0 - g * decay)
        return np.asarray(np.exp((self.kappa * self.theta * slow + self.v0 * fast) / self.sigma**2))

    def otm(self, k: Array, T: float) -> Array:
        """Out-of-the-money prices at log-strikes ``(m,)``, to about 1e-15 of the forward."""
        turning = -self.rho / self.sigma * (self.v0 + self.kappa * self.theta * T)
        return lewis(lambda u: self.transform(u, T), k, turning)

    def iv(self, k: Array, T: Array) -> Array:
        """Implied volatilities at log-strikes ``(L, m)``, maturities ``(L,)``."""
        price = np.array([self.otm(row, t) for row, t in zip(k, T.tolist(), strict=True)])
        return np.asarray(black.implied(price, k).volatility / np.sqrt(T)[:, None])


class HestonSurface(NamedTuple):
    """Quotes and the truth behind them, quoted or not."""

    quotes: Quotes
    k: Array  # (16, 41)
    T: Array  # (16,)
    iv_oracle: Array  # (16, 41)
    quoted: NDArray[np.bool_]  # (16, 41)


def heston_surface(seed: int, hard: bool = False) -> HestonSurface:
    """One surface of the benchmark. Base and hard of one seed have the same parameters."""
    rng = np.random.default_rng(seed)
    heston = Heston.draw(rng)
    T = DAYS / 365.0
    k = DEVIATIONS * (heston.reference(T) * np.sqrt(T))[:, None]  # (16, 41)
    truth = heston.iv(k, T)
    share = 0.005 + 0.015 * np.abs(DEVIATIONS) / 3.5
    half = (3.0 if hard else 1.0) * share * truth
    mid = truth + half * rng.uniform(-1.0, 1.0, truth.shape)
    keep = rng.uniform(size=truth.shape) < (0.25 if hard else 0.85)
    if hard:
        keep |= _fewest(keep, rng)
    return HestonSurface(quotes_of(T, k, mid, half, keep), k, T, truth, keep)


def _fewest(keep: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Random strikes that bring each slice of ``keep`` up to FEWEST."""
    order = rng.uniform(size=keep.shape)
    order[keep] = -1.0  # those already kept come first
    rank = np.argsort(np.argsort(order, axis=1), axis=1)
    return np.asarray(rank < FEWEST)


def oracle_rmse_bp(
    fit: Callable[[Quotes], Model], seeds: Iterable[int] = range(SURFACES), hard: bool = False
) -> float:
    """Error of a method, pooled over the surfaces of ``seeds``, in basis points of volatility."""
    squares = []
    for seed in seeds:
        surface = heston_surface(seed, hard)
        found = fit(surface.quotes).iv(surface.k, surface.T[:, None])
        squares.append(np.mean((found - surface.iv_oracle) ** 2))
    return float(np.sqrt(np.mean(squares))) / BASIS_POINT


def heston_case(seed: int, hard: bool = False) -> Case:
    """One surface of the benchmark, as every benchmark here has it."""
    made = heston_surface(seed, hard)
    heston = Heston.draw(np.random.default_rng(seed))
    index = 100.0 * float(heston.reference(np.array(30.0 / 365.0)))
    deviations = np.broadcast_to(DEVIATIONS, made.k.shape)
    kind = "Heston, hard" if hard else "Heston"
    return Case(
        f"{kind} {seed}", kind, made.quotes, made.T, made.k, deviations,
        made.iv_oracle, made.quoted, index,
    )  # fmt: skip
