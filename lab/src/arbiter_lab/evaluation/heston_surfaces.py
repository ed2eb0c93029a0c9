"""The Heston benchmark: 50 surfaces of noisy quotes with exact volatilities, each from a seed.

The law is fixed, so that methods can be compared on seeds that their authors have not used. A
surface has 16 maturities from a week to two years and 41 strikes each, at ``k = s·σ_ref(T)·√T``
with s evenly spaced in [−3.5, 2] and ``σ_ref² = θ + (v0 − θ)(1 − e^{−κT})/(κT)``. Prices are
integrals of the characteristic function, tested against QuantLib's adaptive engine to 1e-5 basis
points of volatility.

Base: the half-spread in volatility is u·IV with u rising linearly from 0.5 % at the money to 2 % at
|s| = 3.5. The mid is the exact volatility plus half-spread × uniform(−1, 1), and 15 % of the quotes
are dropped. Hard: half-spreads are three times as wide, and each quote is kept with probability ¼,
at least 6 per slice. The error of a method is the RMSE of its volatilities over all 656 points,
quoted or not, pooled over surfaces. Nothing may be tuned on the exact volatilities.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import DAYS_PER_YEAR, INDEX_POINTS, THIRTY_DAYS, Array
from arbiter.models.exact_prices import draw_log_uniform
from arbiter.models.heston import Heston
from arbiter.quotes import Quotes
from arbiter.scoring import BASIS_POINT, Model
from arbiter_lab.evaluation.known_surface import Case, quotes_from_volatilities

MATURITY_DAYS = np.array([7, 14, 21, 30, 45, 60, 91, 122, 152, 182, 273, 365, 456, 547, 639, 730])
STRIKE_DEVIATIONS = np.linspace(-3.5, 2.0, 41)
SURFACE_COUNT = 50
KEPT_SHARE, KEPT_SHARE_HARD = 0.85, 0.25  # share of quotes
MIN_QUOTES_PER_SLICE = 6  # quotes on a slice of a hard surface


def draw_heston(rng: np.random.Generator) -> Heston:
    """Draw the parameters of a market of the benchmark."""
    return Heston(
        v0=draw_log_uniform(rng, 0.012, 0.12),
        kappa=rng.uniform(0.8, 4.0),
        theta=draw_log_uniform(rng, 0.02, 0.10),
        sigma=rng.uniform(0.3, 1.1),
        rho=rng.uniform(-0.88, -0.5),
    )


class HestonSurface(NamedTuple):
    """Quotes and the exact volatilities of all strikes, quoted or not."""

    quotes: Quotes
    k: Array  # (16, 41)
    T: Array  # (16,)
    iv_oracle: Array  # (16, 41)
    quoted: NDArray[np.bool_]  # (16, 41)


def heston_surface(seed: int, hard: bool = False) -> HestonSurface:
    """Make one surface; the base and the hard surface of a seed have the same parameters."""
    rng = np.random.default_rng(seed)
    heston = draw_heston(rng)
    T = MATURITY_DAYS / DAYS_PER_YEAR
    k = STRIKE_DEVIATIONS * (heston.reference_volatility(T) * np.sqrt(T))[:, None]  # (16, 41)
    truth = heston.iv(k, T)
    half = half_spread(STRIKE_DEVIATIONS, truth, hard)
    mid = truth + half * rng.uniform(-1.0, 1.0, truth.shape)
    keep = rng.uniform(size=truth.shape) < (KEPT_SHARE_HARD if hard else KEPT_SHARE)
    if hard:
        keep |= _select_min_quotes(keep, rng)
    return HestonSurface(quotes_from_volatilities(T, k, mid, half, keep), k, T, truth, keep)


def half_spread(deviations: Array, iv: Array, hard: bool) -> Array:
    """Return half-spreads in volatility at strikes in deviations from the forward."""
    share = 0.005 + 0.015 * np.abs(deviations) / 3.5
    return np.asarray((3.0 if hard else 1.0) * share * iv)


def _select_min_quotes(keep: NDArray[np.bool_], rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return a mask of the kept strikes and random others, at least six per slice."""
    order = rng.uniform(size=keep.shape)
    order[keep] = -1.0  # those already kept come first
    rank = np.argsort(np.argsort(order, axis=1), axis=1)
    return np.asarray(rank < MIN_QUOTES_PER_SLICE)


def oracle_rmse_bp(
    fit: Callable[[Quotes], Model], seeds: Iterable[int] = range(SURFACE_COUNT), hard: bool = False
) -> float:
    """Return the RMSE of a method over the surfaces of ``seeds``, in basis points of volatility."""
    squares = []
    for seed in seeds:
        surface = heston_surface(seed, hard)
        found = fit(surface.quotes).iv(surface.k, surface.T[:, None])
        squares.append(np.mean((found - surface.iv_oracle) ** 2))
    return float(np.sqrt(np.mean(squares))) / BASIS_POINT


def heston_case(seed: int, hard: bool = False) -> Case:
    """Return one surface of the benchmark as a :class:`Case`."""
    made = heston_surface(seed, hard)
    heston = draw_heston(np.random.default_rng(seed))
    index = INDEX_POINTS * float(heston.reference_volatility(np.array(THIRTY_DAYS)))
    deviations = np.broadcast_to(STRIKE_DEVIATIONS, made.k.shape)
    kind = "Heston, hard" if hard else "Heston"
    return Case(
        f"{kind} {seed}", kind, made.quotes, made.T, made.k, deviations,
        made.iv_oracle, made.quoted, index,
    )  # fmt: skip
