"""The result of a metric: a number, or the reason why it is undefined.

Days are the unit of inference. A metric with one number per day keeps that series beside its value,
which may be the mean, the largest, or the same statistic of all points together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array


@dataclass(frozen=True, eq=False)
class Metric:
    """A named number, or None and a reason.

    Attributes:
        name: Name in the results; a variant has a suffix.
        value: Finite number; None where the metric is undefined.
        reason: Why there is no value; None where there is one.
        daily: ``(D,)`` one number per day, NaN on days without one; None for a metric that is not
            computed from days.

    Example:
        >>> Metric("NAS", 1.0)
        NAS = 1
        >>> Metric("NI", None, "the oracle does not move")
        NI is undefined: the oracle does not move
    """

    name: str
    value: float | None
    reason: str | None = None
    daily: Array | None = None

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ValueError(
                f"{self.name}: value {self.value!r} with reason {self.reason!r}; a metric has a "
                "value, or None and a reason"
            )
        if self.value is not None:
            object.__setattr__(self, "value", float(self.value))
            if not math.isfinite(self.value):
                raise ValueError(f"{self.name} is {self.value}: give None and a reason")
        if self.daily is not None:
            daily = np.array(self.daily, dtype=np.float64, ndmin=1)
            daily.setflags(write=False)
            object.__setattr__(self, "daily", daily)

    @classmethod
    def undefined(cls, name: str, reason: str, daily: ArrayLike | None = None) -> Metric:
        """Return a metric without a value, with the reason."""
        return cls(name, None, reason, None if daily is None else np.asarray(daily, np.float64))

    @classmethod
    def from_days(cls, name: str, daily: ArrayLike, why: str) -> Metric:
        """Return the mean of the days; undefined if a day is not finite.

        Args:
            name: Name of the metric.
            daily: ``(D,)`` one number per day.
            why: Meaning of a day that is not finite, as the end of a sentence.
        """
        series = np.array(daily, dtype=np.float64, ndmin=1)
        missing = np.flatnonzero(~np.isfinite(series))
        if not series.size:
            return cls.undefined(name, "there are no days", series)
        if missing.size:
            reason = f"{missing.size} of {series.size} days, the first of them day {missing[0]}, "
            return cls.undefined(name, reason + why, np.where(np.isfinite(series), series, np.nan))
        return cls(name, float(series.mean()), None, series)

    def __repr__(self) -> str:
        if self.value is None:
            return f"{self.name} is undefined: {self.reason}"
        return f"{self.name} = {self.value:.6g}"


def metrics_to_dict(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Return JSON values: a number or null by name, and under ``reason`` why nulls are null.

    Raises:
        ValueError: If two metrics have one name.

    Example:
        >>> metrics_to_dict([Metric("NAS", 1.0), Metric("NI", None, "one day has no increments")])
        {'NAS': 1.0, 'NI': None, 'reason': {'NI': 'one day has no increments'}}
    """
    values: dict[str, Any] = {}
    reasons = {}
    for metric in metrics:
        if metric.name in values or metric.name == "reason":
            raise ValueError(f"two entries are called {metric.name!r}: rename one")
        values[metric.name] = metric.value
        if metric.reason is not None:
            reasons[metric.name] = metric.reason
    return {**values, "reason": reasons}


def worst_day(metric: Metric, *, higher_is_better: bool = False) -> Metric:
    """Return the value of a metric on its worst day, as the metric ``worst_day_`` and its name."""
    name = f"worst_day_{metric.name}"
    day = argworst(metric, higher_is_better=higher_is_better)
    if day is None:
        return Metric.undefined(name, metric.reason or f"{metric.name} has no series of days")
    assert metric.daily is not None
    return Metric(name, float(metric.daily[day]), None, metric.daily)


def argworst(metric: Metric, *, higher_is_better: bool = False) -> int | None:
    """Return the number of the worst day, the first of equals; None for an undefined metric.

    A metric that is undefined on some day has no worst day, since that day may be the worst.
    """
    if metric.value is None or metric.daily is None or np.isnan(metric.daily).all():
        return None
    series = -metric.daily if higher_is_better else metric.daily
    return int(np.nanargmax(series))
