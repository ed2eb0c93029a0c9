"""NI: integrity (section 5.2), its repair, and invariance (section 2.3); docs/metrics/ni.md."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter_lab.metrics.metric import Metric

Places = NDArray[np.int64]

MATURITY_BUCKETS, STRIKE_BUCKETS = 8, 4
VARIANCE_EPSILON = 1e-16  # of the forward, squared: far below the variance of any price that moves


def ni(model: ArrayLike, oracle: ArrayLike, weights: ArrayLike | None = None) -> Metric:
    """Integrity, section 5.2 to the letter: ``1 − Σ w Var(Δĉ) / (Σ w Var(Δc*) + ε)``.

    A perfect model scores 0 and a frozen one 1 (errata 48); `ni_residual` is what the words ask
    for.

    Args:
        model: ``(D, L, S)`` calls in forward units on consecutive days, on one grid of moneyness
            and time to maturity.
        oracle: The same of the truth.
        weights: ``(8, 4)`` of the buckets, maturities by moneyness; uniform by default. Fewer
            maturities or strikes than that make as many buckets as there are.

    Example:
        >>> days = np.random.default_rng(0).normal(size=(50, 8, 4))
        >>> ni(days, days).value < 1e-12
        True
        >>> ni_residual(days, days)
        NI_residual = 1
    """
    found, truth = _check_panels(model, oracle)
    return _variance_ratio_metric("NI", np.diff(found, axis=0), np.diff(truth, axis=0), weights)


def ni_residual(model: ArrayLike, oracle: ArrayLike, weights: ArrayLike | None = None) -> Metric:
    """Integrity as its words have it: ``1 − Σ w Var(Δĉ − Δc*) / (Σ w Var(Δc*) + ε)``.

    One if and only if every increment is right up to a constant; 0 for a frozen model; at most 1
    and not bounded below. Arguments as those of `ni`.
    """
    found, truth = _check_panels(model, oracle)
    moved = np.diff(truth, axis=0)
    return _variance_ratio_metric("NI_residual", np.diff(found, axis=0) - moved, moved, weights)


def ni_invariance(prices: ArrayLike) -> Metric:
    """Invariance, section 2.3: one less the mean over buckets of MAD over scale, of M numeraires.

    Args:
        prices: ``(M, L, S)``, or ``(M, D, L, S)`` with days: the model's prices of the same
            options, quoted to it in each of M numeraires and brought back to **one** unit. Left in
            the numeraires' own units, correct prices differ and are punished (errata 59).

    A bucket's price is the mean of its options'; MAD is the median distance from the median over
    numeraires, and the scale is the median's size.
    """
    name, table = "NI_invariance", np.asarray(prices, dtype=np.float64)
    if table.ndim not in (3, 4):
        raise ValueError(f"prices has shape {table.shape}: give (numeraires, maturities, strikes)")
    table = table[:, None] if table.ndim == 3 else table
    if table.shape[0] < 2:
        return Metric.undefined(name, "one numeraire cannot differ from itself: give two or more")
    buckets = _bucket_means(table)  # (M, D, B)
    middle = np.median(buckets, axis=0)  # (D, B)
    apart = np.median(np.abs(buckets - middle), axis=0)
    scale = np.where(middle != 0.0, np.abs(middle), np.nan)
    daily = 1.0 - (apart / scale).mean(axis=1)
    return Metric.from_days(name, daily, "have a bucket without a price, or without a scale")


def _variance_ratio_metric(
    name: str, over: Array, under: Array, weights: ArrayLike | None
) -> Metric:
    """Increments ``(D−1, L, S)`` into one less the ratio of weighted variances."""
    if over.shape[0] < 2:
        return Metric.undefined(name, f"{over.shape[0] + 1} days have no variance of increments")
    if not (np.isfinite(over).all() and np.isfinite(under).all()):
        return Metric.undefined(name, "a price is not a number")
    top, bottom = (_bucket_means(x.var(axis=0)[None, None])[0, 0] for x in (over, under))  # (B,)
    w = _bucket_weights(weights, over.shape[1:])
    if not w @ bottom > 0.0:
        return Metric.undefined(name, "the oracle does not move")
    return Metric(name, float(1.0 - (w @ top) / (w @ bottom + VARIANCE_EPSILON)))


def _edges(count: int, buckets: int) -> Places:
    """Return the first index of each of at most ``buckets`` even buckets."""
    many = min(count, buckets)
    return np.array([i * count // many for i in range(many)], dtype=np.int64)


def _bucket_means(table: Array) -> Array:
    """``(M, D, L, S)`` into means of buckets, ``(M, D, B)``."""
    rows, columns = _edges(table.shape[2], MATURITY_BUCKETS), _edges(table.shape[3], STRIKE_BUCKETS)
    sums = np.add.reduceat(np.add.reduceat(table, rows, axis=2), columns, axis=3)
    height = np.diff(np.append(rows, table.shape[2]))
    width = np.diff(np.append(columns, table.shape[3]))
    return np.asarray((sums / (height[:, None] * width)).reshape(*table.shape[:2], -1))


def _bucket_weights(weights: ArrayLike | None, shape: tuple[int, ...]) -> Array:
    """``(B,)`` that add up to one."""
    size = min(shape[0], MATURITY_BUCKETS), min(shape[1], STRIKE_BUCKETS)
    w = np.ones(size) if weights is None else np.asarray(weights, dtype=np.float64)
    if w.shape != size or not (np.isfinite(w).all() and (w >= 0.0).all() and w.sum() > 0.0):
        raise ValueError(f"weights must be {size}, not negative and not all zero, got {w}")
    return np.asarray(w.ravel() / w.sum())


def _check_panels(model: ArrayLike, oracle: ArrayLike) -> tuple[Array, Array]:
    found, truth = np.asarray(model, dtype=np.float64), np.asarray(oracle, dtype=np.float64)
    if found.shape != truth.shape or found.ndim != 3:
        raise ValueError(
            f"model has shape {found.shape} and oracle {truth.shape}: give (days, maturities, "
            "strikes) of both"
        )
    return found, truth
