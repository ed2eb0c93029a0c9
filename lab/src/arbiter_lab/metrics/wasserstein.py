"""SurfaceWasserstein: sliced (section 5.2) and by quantiles (section 2.3).

docs/metrics/surface-wasserstein.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter_lab.metrics.arbitrage import NOT_A_PRICE
from arbiter_lab.metrics.marginals import Marginals, explain_missing_law
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.panels import build_panel

DIRECTION_COUNT = 64
# Gauss-Legendre between half-integers: slopes bend at knots, and a law has no weight past 8.5.
_PANEL_EDGES = np.arange(-8.5, 9.0, 0.5)
_PANEL_NODES, _PANEL_WEIGHTS = np.polynomial.legendre.leggauss(6)
_QUADRATURE_NODES = (
    0.5 * (_PANEL_EDGES[1:] + _PANEL_EDGES[:-1])[:, None] + 0.25 * _PANEL_NODES
).ravel()
_QUADRATURE_MASS = (
    np.tile(0.25 * _PANEL_WEIGHTS, _PANEL_EDGES.size - 1)
    * np.exp(-0.5 * _QUADRATURE_NODES**2)
    / np.sqrt(2.0 * np.pi)
)
_QUADRATURE_MASS /= _QUADRATURE_MASS.sum()


def wasserstein2(x: ArrayLike, p: ArrayLike, q: ArrayLike) -> Array:
    """``W₂`` of two laws on the same places of a line, along the last axis.

    Args:
        x: ``(m,)`` places, in any order.
        p: ``(…, m)`` weights of the one law, not negative; they are made to add up to one.
        q: ``(…, m)`` of the other.

    Returns:
        ``(…)``, NaN where a law has a negative weight, or none at all.

    Example:
        >>> float(wasserstein2([0.0, 1.0, 3.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]))
        3.0
    """
    order = np.argsort(np.asarray(x, dtype=np.float64), kind="stable")
    places = np.asarray(x, dtype=np.float64)[order]
    one, two = (_cumulative_shares(np.asarray(w, dtype=np.float64)[..., order]) for w in (p, q))
    both = np.concatenate([one, two], axis=-1)  # (…, 2m) levels at which either quantile jumps
    merged = np.argsort(both, axis=-1, kind="stable")
    step = np.diff(np.take_along_axis(both, merged, axis=-1), axis=-1, prepend=0.0)
    first = merged < places.size
    # how many levels of each law lie strictly before a step: the index of its quantile there
    i: NDArray[np.int64] = np.cumsum(first, axis=-1) - first
    j: NDArray[np.int64] = np.cumsum(~first, axis=-1) - ~first
    last = places.size - 1
    apart = places[np.minimum(i, last)] - places[np.minimum(j, last)]
    return np.asarray(np.sqrt(np.sum(step * apart**2, axis=-1)))


def surface_wasserstein(
    model: ArrayLike,
    oracle: ArrayLike,
    kappa: ArrayLike,
    T: ArrayLike,
    directions: int = DIRECTION_COUNT,
) -> Metric:
    """Section 5.2, sliced: the mean over directions of W₂ between two price panels as masses.

    The grid is scaled to the unit square, which is the paper's normalisation by its area; call
    prices are masses on its nodes, made to add up to one; directions are even in angle.

    Args:
        model: ``(D, L, S)``, or ``(L, S)`` of one day, calls in forward units.
        oracle: The same shape.
        kappa: ``(S,)`` strikes over forward.
        T: ``(L,)`` years, two or more.
        directions: Number of directions.
    """
    found, truth = build_panel(model, kappa, T), build_panel(oracle, kappa, T)
    if found.calls.shape != truth.calls.shape:
        raise ValueError(f"model has {len(found.calls)} days and oracle {len(truth.calls)}")
    if found.T.size < 2:
        raise ValueError("one maturity has no extent in T: give two or more")
    if directions < 1:
        raise ValueError(f"directions = {directions}: give at least one")
    down, across = ((row - row[0]) / (row[-1] - row[0]) for row in (found.T, found.kappa))
    p, q = (panel.calls.reshape(len(panel.calls), -1) for panel in (found, truth))
    daily = np.zeros(len(p))
    for angle in np.pi * np.arange(directions) / directions:
        places = np.cos(angle) * down[:, None] + np.sin(angle) * across
        daily += wasserstein2(places.ravel(), p, q) / directions
    why = f"{NOT_A_PRICE} or is negative, or none that is positive"
    return Metric.from_days("SurfaceWasserstein", daily, why)


def slice_wasserstein(model: Marginals, exact: Marginals, T: ArrayLike) -> Array:
    """``(L,)`` W₂ between the laws of ``log X_T``, in units of the exact ``σ√T``."""
    times = np.atleast_1d(np.asarray(T, dtype=np.float64))
    apart = model.log_strike(_QUADRATURE_NODES, times[:, None]) - exact.log_strike(
        _QUADRATURE_NODES, times[:, None]
    )
    return np.asarray(np.sqrt(apart**2 @ _QUADRATURE_MASS / (exact.variance_swap(times) * times)))


def surface_wasserstein_quantile(
    models: Sequence[Marginals],
    exacts: Sequence[Marginals],
    T: ArrayLike,
    weights: ArrayLike | None = None,
) -> Metric:
    """Section 2.3: ``(Σ μ(T) W₂²)^½`` of each day, by quantiles; the value is the days' mean.

    Args:
        models: A surface a day.
        exacts: The truth of each day; an oracle as
            `arbiter_lab.metrics.marginals.InvertedMarginals`.
        T: ``(L,)`` maturities, the same every day.
        weights: ``(L,)`` μ; uniform by default.
    """
    name = "SurfaceWasserstein_quantile"
    if len(models) != len(exacts):
        raise ValueError(f"{len(models)} models and {len(exacts)} laws: give one of each a day")
    times = np.atleast_1d(np.asarray(T, dtype=np.float64))
    mu = np.ones(times.size) if weights is None else np.asarray(weights, dtype=np.float64)
    if mu.shape != times.shape or not ((mu >= 0.0).all() and mu.sum() > 0.0):
        raise ValueError(f"weights must be {times.size} numbers, not negative, got {mu}")
    for law in models:
        without = explain_missing_law(law)
        if without is not None:
            return Metric.undefined(name, without)
    each = [slice_wasserstein(m, e, times) for m, e in zip(models, exacts, strict=True)]
    daily = [float(np.sqrt(w**2 @ mu / mu.sum())) for w in each]
    return Metric.from_days(name, daily, "have a slice without quantiles")


def _cumulative_shares(weights: Array) -> Array:
    """Distribution function at sorted places, ending at exactly one; NaN where there is none."""
    total = np.cumsum(weights, axis=-1)
    last = total[..., -1:]
    sound = (weights >= 0.0).all(axis=-1, keepdims=True) & (last > 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(sound, np.minimum(total / last, 1.0), np.nan)
