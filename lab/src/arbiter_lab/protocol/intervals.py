"""Confidence intervals of metrics, by how the value is computed from its days."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array
from arbiter_lab.metrics.generalisation import GAP_QUANTILE
from arbiter_lab.metrics.metric import Metric
from arbiter_lab.protocol.inference import (
    CONFIDENCE_LEVEL,
    MIN_DAYS,
    Interval,
    Method,
    clopper_pearson_interval,
    hac_mean,
)
from arbiter_lab.protocol.paired_tests import choose_flip_block

RUN_SHARE_METRICS = ("Stability", "Stability_windows")
"""Metrics that are shares of independent runs; their interval is the binomial one."""

# by part of the name: the power of a day's number that is a mean over the points of the day
_POOLED_ERROR_POWERS = {"rmse": 2, "mae": 1}
_MEAN_TOLERANCE = 1e-9  # relative: how close the value must be to the mean of the days


class MetricIntervals(NamedTuple):
    """Intervals of metrics, and reasons of those without one.

    Attributes:
        ends: Interval by name of the metric, for
            :func:`arbiter_lab.protocol.results_file.as_run`.
        reasons: For each metric without an interval, a sentence that states why.
    """

    ends: dict[str, Interval]
    reasons: dict[str, str]


def metric_intervals(
    metrics: Iterable[Metric], *, method: Method = "paper", level: float = CONFIDENCE_LEVEL
) -> MetricIntervals:
    """Return the intervals of the metrics that have one.

    * A share of runs (:data:`RUN_SHARE_METRICS`): Clopper and Pearson's interval.
    * A value that is the mean of its days: :func:`hac_mean`.
    * An error pooled over points of days of different sizes: the interval of the mean of the days
      (of their squares for a root mean square error), scaled to the pooled value.
    * ``GenGap_p95``, a percentile of its days: :func:`block_bootstrap`.
    * Any other metric, such as a largest error: none. The mean of its days is another number, and
      its interval would not contain the value.

    Args:
        metrics: Metrics with their daily series.
        method: Method of :func:`hac_mean`.
        level: Confidence level of every interval.

    Example:
        >>> found = metric_intervals([Metric("NAS", 1.0, None, np.ones(8)), Metric("DualGap", 0.1)])
        >>> found.ends
        {'NAS': Interval(low=1.0, high=1.0)}
        >>> found.reasons
        {'DualGap': 'it has no series of days'}
    """
    found = MetricIntervals({}, {})
    for metric in metrics:
        made = _compute_interval(metric, method, level)
        if isinstance(made, str):
            found.reasons[metric.name] = made
        else:
            found.ends[metric.name] = made
    return found


def block_bootstrap(
    series: ArrayLike,
    statistic: Callable[[Array], Array],
    *,
    block: int | None = None,
    level: float = CONFIDENCE_LEVEL,
    resamples: int = 2_000,
    seed: int = 0,
) -> Interval:
    """Return the percentile interval of a statistic of dependent days, by a block bootstrap.

    It is the circular block bootstrap of Politis and Romano (1992): blocks of consecutive days, the
    last followed by the first, are joined to series of the same length.

    Args:
        series: ``(T,)`` one number per day.
        statistic: Maps series ``(…, T)`` to ``(…)``, along the last axis.
        block: Days of a block; :func:`choose_flip_block` if left out.
        level: Confidence level of the interval.
        resamples: Number of resampled series.
        seed: Seed of the resampling.
    """
    x = np.asarray(series, dtype=np.float64)
    size = choose_flip_block(x) if block is None else block
    if not 1 <= size <= x.size:
        raise ValueError(f"block = {size}: with {x.size} days give 1 to {x.size}")
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, x.size, (resamples, math.ceil(x.size / size), 1))
    rows = (starts + np.arange(size)).reshape(resamples, -1)[:, : x.size] % x.size
    tail = 0.5 * (1.0 - level)
    low, high = np.quantile(statistic(x[rows]), [tail, 1.0 - tail]).tolist()
    return Interval(low, high)


def _compute_interval(metric: Metric, method: Method, level: float) -> Interval | str:
    if metric.value is None:
        return f"it has no value: {metric.reason}"
    if metric.daily is None:
        return "it has no series of days"
    days = metric.daily
    if metric.name in RUN_SHARE_METRICS:
        return clopper_pearson_interval(int(np.count_nonzero(days == 1.0)), days.size, level)
    if days.size < MIN_DAYS or not np.isfinite(days).all():
        bad = int((~np.isfinite(days)).sum())
        return (
            f"it has {days.size} days, {bad} of them without a number: {MIN_DAYS} are needed, all"
        )
    return _compute_daily_interval(metric.name, metric.value, days, method, level)


def _compute_daily_interval(
    name: str, value: float, days: Array, method: Method, level: float
) -> Interval | str:
    if name.startswith("GenGap_p95"):
        low, high = block_bootstrap(
            days, lambda d: np.quantile(d, GAP_QUANTILE, axis=-1), level=level
        )
        return Interval(min(low, value), max(high, value))
    mean = math.isclose(float(days.mean()), value, rel_tol=_MEAN_TOLERANCE, abs_tol=1e-300)
    power = 1 if mean else next((p for part, p in _POOLED_ERROR_POWERS.items() if part in name), 0)
    if power == 0:
        return "its value is not the mean of its days"
    found = hac_mean(days**power, method=method, level=level)
    scale = value**power / found.mean if found.mean > 0.0 and not mean else 1.0
    ends = found.low, found.high
    if power > 1:
        ends = max(found.low, 0.0), found.high
    low, high = (math.copysign(abs(scale * end) ** (1.0 / power), end) for end in ends)
    # the value and its days may differ by rounding
    return Interval(min(low, value), max(high, value))
