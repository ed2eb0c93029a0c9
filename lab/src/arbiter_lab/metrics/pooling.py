"""Pools errors of many days over all points, and keeps the statistic of each day.

Errors are ``(D, …)``: NaN where there is no point, infinite where the model gives no number. One
infinite error makes the pooled statistic undefined; the reason states how many there are.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter_lab.metrics.metric import Metric

Statistic = Callable[[Array], float]


def root_mean_square(errors: Array) -> float:
    """``√ mean e²``."""
    return float(np.sqrt(np.mean(errors**2)))


def mean_absolute(errors: Array) -> float:
    """``mean |e|``."""
    return float(np.mean(np.abs(errors)))


def largest_absolute(errors: Array) -> float:
    """``max |e|``."""
    return float(np.max(np.abs(errors)))


def pool_errors(name: str, errors: ArrayLike, statistic: Statistic, what: str) -> Metric:
    """Return a statistic of the errors of all points, with its value on each day.

    Args:
        name: Name of the metric.
        errors: ``(D, …)``; NaN where there is no point, infinite where the model has no number.
        statistic: Maps the errors of some points to a number.
        what: Name of the missing quantity for the reason, such as "volatility".
    """
    table = np.asarray(errors, dtype=np.float64)
    rows = [row[~np.isnan(row)] for row in table.reshape(table.shape[0], -1)]
    sound = [row.size > 0 and bool(np.isfinite(row).all()) for row in rows]
    daily = np.array(
        [statistic(row) if ok else np.nan for row, ok in zip(rows, sound, strict=True)]
    )
    points = np.concatenate([np.empty(0), *rows])
    if not points.size:
        return Metric.undefined(name, "there are no points", daily)
    absent = int(np.isinf(points).sum())
    if absent:
        first = next(i for i, row in enumerate(rows) if np.isinf(row).any())
        reason = f"no {what} at {absent} of {points.size} points, first on day {first}"
        return Metric.undefined(name, reason, daily)
    return Metric(name, statistic(points), None, daily)
