"""What every metric gives back: one number, or the reason why there is none.

Days are the unit of inference: where a metric has one number a day, the series travels with the
value, which may be its mean, its largest, or the same statistic of all points together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from arbiter.conventions import Array


@dataclass(frozen=True, eq=False)
class Metric:
    """A named number, or None and a reason.

    Attributes:
        name: As results name it; a variant carries a suffix.
        value: Finite; None where the metric is not defined.
        reason: Why there is no value; None where there is one.
        daily: ``(D,)`` one number a day, NaN on days that have none; None where days are not
            what the metric is made of.

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
        """No value."""
        return cls(name, None, reason, None if daily is None else np.asarray(daily, np.float64))

    @classmethod
    def from_days(cls, name: str, daily: ArrayLike, why: str) -> Metric:
        """The mean of the days; undefined where a day is not a number.

        Args:
            name: Of the metric.
            daily: ``(D,)``.
            why: What it means if a day is not a number, as the end of a sentence.
        """
        series = np.array(daily, dtype=np.float64, ndmin=1)
        missing = np.flatnonzero(~np.isfinite(series))
        if not series.size:
            return cls.undefined(name, "there are no days", series)
        if missing.size:
            reason = f"{missing.size} of {series.size} days, the first of them day {missing[0]}, "
            return cls.undefined(name, reason + why, np.where(np.isfinite(series), series, np.nan))
        return cls(name, float(series.mean()), None, series)

    def with_name(self, name: str) -> Metric:
        """The same under another name."""
        return replace(self, name=name)

    def __repr__(self) -> str:
        if self.value is None:
            return f"{self.name} is undefined: {self.reason}"
        return f"{self.name} = {self.value:.6g}"


def metrics_to_dict(metrics: Iterable[Metric]) -> dict[str, Any]:
    """Strict JSON: a value or null under each name, and under ``reason`` why nulls are null.

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
    """The worst day of a metric, under ``worst_day_`` and its name; which it was, by `argworst`."""
    name = f"worst_day_{metric.name}"
    day = argworst(metric, higher_is_better=higher_is_better)
    if day is None:
        return Metric.undefined(name, metric.reason or f"{metric.name} has no series of days")
    assert metric.daily is not None
    return Metric(name, float(metric.daily[day]), None, metric.daily)


def argworst(metric: Metric, *, higher_is_better: bool = False) -> int | None:
    """Number of the worst day, the first of equals; None for a metric that is not defined.

    A metric that is undefined on some day has no worst day: that day may be it.
    """
    if metric.value is None or metric.daily is None or np.isnan(metric.daily).all():
        return None
    series = -metric.daily if higher_is_better else metric.daily
    return int(np.nanargmax(series))
