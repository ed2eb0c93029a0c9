"""Small tools for the errata: prices, norms and a linear program, written independently."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.optimize import linprog
from scipy.special import ndtr

import theorems
from arbiter import Surface
from arbiter.conventions import Array

Field = Callable[[Array], Array]

QUARTER = 91.0 / 365.0


def flat(volatility: float, T: Array, forwards: Array, discounts: Array) -> Surface:
    slopes = volatility * np.sqrt(T)[:, None] * np.ones(2)
    return Surface.from_slopes([-1.0, 1.0], T, slopes, forwards, discounts)


def black_call(F: Array, K: Array, total: Array, D: Array) -> Array:
    d1 = np.log(F / K) / total + 0.5 * total
    return np.asarray(D * (F * ndtr(d1) - K * ndtr(d1 - total)))


def calls(surface: Surface, kappa: Array, T: Array) -> Array:
    """Calls in forward units, (L, m)."""
    money = surface.forward(T) * surface.discount(T)
    return np.asarray(
        surface.call(kappa * surface.forward(T)[:, None], T[:, None]) / money[:, None]
    )


def assert_convex(kappa: Array, price: Array) -> None:
    theorems.assert_convex_in_strike(kappa, price)


def spectral_norm(matrix: Array) -> float:
    return float(np.linalg.norm(matrix, 2))


def spectral_radius(matrix: Array) -> float:
    return float(np.abs(np.linalg.eigvals(matrix)).max())


def largest_bump(points: int, convex: bool) -> float:
    """Largest sum of a function in [0, 1] that is zero at both ends, by linear programming."""
    second = np.diff(np.eye(points), n=2, axis=0)
    bounds = [(0.0, 0.0), *[(0.0, 1.0)] * (points - 2), (0.0, 0.0)]
    solved = linprog(
        -np.ones(points),
        A_ub=-second if convex else None,
        b_ub=np.zeros(points - 2) if convex else None,
        bounds=bounds,
        method="highs",
    )
    assert solved.status == 0
    return float(-solved.fun)
