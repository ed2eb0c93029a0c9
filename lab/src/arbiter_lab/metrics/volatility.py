"""Errors of implied volatility against the oracle, in basis points (docs/metrics/iv-error.md)."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array
from arbiter.scoring import BASIS_POINT
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.metrics.pooling import (
    Statistic,
    largest_absolute,
    mean_absolute,
    pool_errors,
    root_mean_square,
)

Mask = NDArray[np.bool_]
Points = Literal["all", "quoted", "unquoted"]


def iv_error_bp(model: ArrayLike, oracle: ArrayLike) -> Array:
    """Model minus oracle in basis points.

    Args:
        model: Volatilities, annualised and decimal, of any shape.
        oracle: The same shape; NaN where no strike is listed.

    Returns:
        NaN where no strike is listed, infinite where the model has no volatility.
    """
    found, truth = np.asarray(model, dtype=np.float64), np.asarray(oracle, dtype=np.float64)
    if found.shape != truth.shape:
        raise ValueError(
            f"model has shape {found.shape} and oracle {truth.shape}: give the volatilities of the "
            "same options"
        )
    if np.isinf(truth).any():
        raise ValueError("oracle has an infinite volatility: leave NaN where nothing is listed")
    error = np.where(np.isfinite(found), found, np.inf) - truth
    return np.asarray(error / BASIS_POINT)


def iv_rmse_bp(error: ArrayLike, quoted: ArrayLike | None = None, points: Points = "all") -> Metric:
    """Root mean square error, pooled over points; its days are each day's own.

    Args:
        error: ``(D, L, S)``, or ``(L, S)`` of one day, of `iv_error_bp`.
        quoted: The same shape; which points the model was shown a quote of.
        points: Which of them count. Other than all, the metric's name carries it.

    Example:
        >>> iv_rmse_bp(iv_error_bp([[[0.2003, 0.1996]]], [[[0.2, 0.2]]]))
        iv_rmse_bp = 3.53553
    """
    return _error_metric("iv_rmse_bp", error, quoted, points, root_mean_square)


def iv_mae_bp(error: ArrayLike, quoted: ArrayLike | None = None, points: Points = "all") -> Metric:
    """Mean absolute error; arguments as those of `iv_rmse_bp`."""
    return _error_metric("iv_mae_bp", error, quoted, points, mean_absolute)


def iv_max_bp(error: ArrayLike, quoted: ArrayLike | None = None, points: Points = "all") -> Metric:
    """Largest absolute error; arguments as those of `iv_rmse_bp`."""
    return _error_metric("iv_max_bp", error, quoted, points, largest_absolute)


def iv_errors(error: ArrayLike, quoted: ArrayLike) -> list[Metric]:
    """Return RMSE, MAE and largest error, each of all, of quoted and of unquoted points."""
    return [
        metric(error, quoted, points)
        for metric in (iv_rmse_bp, iv_mae_bp, iv_max_bp)
        for points in get_args(Points)
    ]


def _error_metric(
    name: str, error: ArrayLike, quoted: ArrayLike | None, points: Points, statistic: Statistic
) -> Metric:
    table = np.asarray(error, dtype=np.float64)
    if table.ndim not in (2, 3):
        raise ValueError(f"error has shape {table.shape}: give (days, maturities, strikes)")
    if points not in get_args(Points):
        raise ValueError(f"points = {points!r}: give one of {', '.join(get_args(Points))}")
    if points != "all":
        name = f"{name}_{points}"
        chosen = _check_quoted_mask(quoted, table)
        table = np.where(chosen if points == "quoted" else ~chosen, table, np.nan)
    return pool_errors(name, table if table.ndim == 3 else table[None], statistic, "volatility")


def _check_quoted_mask(quoted: ArrayLike | None, table: Array) -> Mask:
    mask = np.asarray(quoted)
    if mask.dtype != np.bool_ or mask.shape != table.shape:
        raise ValueError(
            f"quoted is {mask.dtype} of shape {mask.shape}: give one boolean for each error, "
            f"{table.shape}"
        )
    return mask
