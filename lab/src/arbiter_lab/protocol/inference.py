"""HAC inference for dependent series: means, Holm's adjustment, proportions, a regression slope.

Three estimators of the standard error of a mean are robust to heteroskedasticity and dependence:

* ``paper``: Newey and West (1987), Bartlett weights ``1 − j/(L+1)`` up to the lag
  ``L = ⌊c T^{1/4}⌋`` of section 5.3, and normal quantiles.
* ``automatic``: the same with the lag of Andrews (1991), which grows with the estimated
  persistence.
* ``cosine``: the equal-weighted cosine estimator of Lazarus, Lewis, Stock and Watson (2018), a mean
  of ``B = ⌊0.41 T^{2/3}⌋`` squared cosine coefficients, and quantiles of Student's t with B degrees
  of freedom.

The paper reports the first. Its intervals are too short for persistent series, and improve only
slowly with the length of the series. docs/protocol.md has the measured coverage of all three.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from arbiter.conventions import Array

Method = Literal["paper", "automatic", "cosine"]

CONFIDENCE_LEVEL = 0.95
MIN_DAYS = 4  # days that have a mean with an interval
_COSINE_COUNT_FACTOR = 0.41  # of T^{2/3}: Lazarus et al. (2018)
_ANDREWS_BANDWIDTH_FACTOR = 1.1447  # Andrews (1991), equation (6.2), Bartlett weights
_MAX_AUTOCORRELATION = 0.97  # cut of the plug-in, as in Andrews and Monahan (1992)
_CONSTANT_TOLERANCE = 1e-14  # deviations over size: what rounding leaves of a constant series


class Interval(NamedTuple):
    """Lower and upper end of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Estimate:
    """A mean with its standard error, interval and p-value.

    Attributes:
        mean: Mean of the series.
        error: Standard error of the mean.
        low: Lower end of the interval.
        high: Upper end of the interval.
        p_value: Two-sided p-value of the hypothesis that the mean is ``null``.
        null: Mean under the hypothesis.
        count: Length of the series.
        level: Confidence level of the interval.
        method: Estimator of the standard error.
        lag: Newey-West lag; the number of cosines for ``cosine``.
    """

    mean: float
    error: float
    low: float
    high: float
    p_value: float
    null: float
    count: int
    level: float
    method: Method
    lag: int

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return asdict(self)


def paper_lag(count: int, c: float = 1.0) -> int:
    """``⌊c T^{1/4}⌋``, section 5.3 of the paper; at most ``T − 1``.

    Example:
        >>> [paper_lag(days) for days in (15, 16, 250, 1000)]
        [1, 2, 3, 5]
    """
    if count < 1 or not 0.0 <= c < math.inf:
        raise ValueError(f"count = {count}, c = {c!r}: give a length and a factor, not negative")
    # the root of a fourth power may round to either side
    return min(math.floor(c * math.sqrt(math.sqrt(count)) * (1.0 + 1e-12)), count - 1)


def automatic_lag(series: ArrayLike) -> int:
    """The lag of Andrews (1991) for Bartlett weights, from the measured first autocorrelation.

    The bandwidth ``1.1447 (α T)^{1/3}`` with ``α = 4ρ²/((1−ρ)²(1+ρ)²)``, ρ cut at 0.97. It is best
    for an AR(1), and a rule of thumb for anything else. At most ``T − 1``.
    """
    x = _check_series("series", series)
    off = x - x.mean()
    power = float(off[:-1] @ off[:-1])
    if _is_constant(x) or power == 0.0:
        return 0
    rho = float(np.clip(off[1:] @ off[:-1] / power, -_MAX_AUTOCORRELATION, _MAX_AUTOCORRELATION))
    alpha = 4.0 * rho**2 / ((1.0 - rho) ** 2 * (1.0 + rho) ** 2)
    return min(math.floor(_ANDREWS_BANDWIDTH_FACTOR * math.cbrt(alpha * x.size)), x.size - 1)


def hac_mean(
    series: ArrayLike,
    *,
    method: Method = "paper",
    level: float = CONFIDENCE_LEVEL,
    null: float = 0.0,
    lag: int | None = None,
    c: float = 1.0,
) -> Estimate:
    """Estimate the mean of a daily series, with an interval.

    Args:
        series: ``(T,)`` one number per day in order, all finite.
        method: Estimator of the standard error; see the module.
        level: Confidence level of the interval.
        null: Mean under the hypothesis of the p-value.
        lag: Newey-West lag, or number of cosines; the method's own if left out.
        c: Factor of the paper's lag.

    Returns:
        The estimate. A constant series has an error of zero, an interval of one point, and a
        p-value of 0, or of 1 where it equals ``null``.

    Example:
        >>> found = hac_mean([1.0, 2.0, 1.0, 2.0, 1.0, 2.0])
        >>> found.lag, found.low < 1.5 < found.high
        (1, True)
    """
    x = _check_series("series", series)
    _check_confidence_level("level", level)
    if method not in get_args(Method):
        raise ValueError(f"method {method!r} is not one of {', '.join(get_args(Method))}")
    chosen = _choose_lag(x, method, c) if lag is None else lag
    if not (0 if method != "cosine" else 1) <= chosen < x.size:
        raise ValueError(f"lag = {chosen}: with {x.size} days give at most {x.size - 1}")
    mean = float(x.mean())
    if method == "cosine":
        error, degrees = _cosine_error(x, chosen), float(chosen)
    else:
        variance = float(long_run_covariance((x - mean)[:, None], chosen)[0, 0])
        error, degrees = math.sqrt(max(variance, 0.0) / x.size), math.inf
    if _is_constant(x):
        error = 0.0
    reach = error * _quantile(0.5 + 0.5 * level, degrees)
    return Estimate(
        mean, error, mean - reach, mean + reach, _p_value(mean - null, error, degrees),
        null, x.size, level, method, chosen,
    )  # fmt: skip


def long_run_covariance(
    scores: ArrayLike, lag: int, blocks: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Return the ``(q, q)`` Newey-West covariance of scores ``(T, q)``, divided by T.

    Args:
        scores: Scores of mean zero; the mean is not subtracted here.
        lag: Largest lag with a weight.
        blocks: ``(T,)`` labels of blocks. Products of days of different blocks are left out, since
            the blocks are not contiguous in time.
    """
    u = np.asarray(scores, dtype=np.float64)
    label = None if blocks is None else np.asarray(blocks)
    total = u.T @ u
    for j in range(1, lag + 1):
        later, before = u[j:], u[:-j]
        if label is not None:
            later = later * (label[j:] == label[:-j])[:, None]
        cross = later.T @ before
        total = total + (1.0 - j / (lag + 1.0)) * (cross + cross.T)
    return np.asarray(total / u.shape[0])


def holm(p_values: ArrayLike) -> Array:
    """Return Holm's adjusted p-values, in the order given.

    Reject a hypothesis at level α if its adjusted value is at most α. The probability of any false
    rejection is then at most α under any dependence. This is the paper's ``p_(k) ≤ α/(m−k+1)``.

    Example:
        >>> holm([0.01, 0.04, 0.03]).round(12).tolist()
        [0.03, 0.06, 0.06]
    """
    p = np.atleast_1d(np.asarray(p_values, dtype=np.float64))
    if p.ndim != 1 or p.size == 0:
        raise ValueError(f"p_values has shape {p.shape}: give one value per hypothesis")
    bad = np.flatnonzero(~((p >= 0.0) & (p <= 1.0)))
    if bad.size:
        raise ValueError(
            f"p_values[{bad[0]}] = {p[bad[0]]}: not between 0 and 1; a test that could not be made "
            "does not belong to the family: leave it out, and say so"
        )
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted


def clopper_pearson_interval(
    successes: int, trials: int, level: float = CONFIDENCE_LEVEL
) -> Interval:
    """Return Clopper and Pearson's exact interval of a share, whose coverage is at least ``level``.

    It is for shares of independent runs. The HAC interval of a series of ones is the point 1 for
    any length; the exact interval of four successes in four trials is [0.398, 1].
    """
    from scipy.stats import beta

    _check_confidence_level("level", level)
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(f"{successes} successes in {trials} trials: give 0 ≤ successes ≤ trials")
    tail = 0.5 * (1.0 - level)
    low = 0.0 if successes == 0 else beta.ppf(tail, successes, trials - successes + 1)
    high = 1.0 if successes == trials else beta.isf(tail, successes + 1, trials - successes)
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Regression:
    """``y = slope·x + intercept`` by least squares, with HAC standard errors.

    Attributes:
        slope: Coefficient of x.
        slope_error: Standard error of the slope.
        slope_interval: Confidence interval of the slope.
        slope_p_value: Two-sided p-value of a slope of zero.
        intercept: The constant.
        intercept_error: Standard error of the constant.
        r_squared: Share of the variance of y that x explains.
        count: Number of points.
        lag: Newey-West lag.
    """

    slope: float
    slope_error: float
    slope_interval: Interval
    slope_p_value: float
    intercept: float
    intercept_error: float
    r_squared: float
    count: int
    lag: int


def hac_regression(
    x: ArrayLike,
    y: ArrayLike,
    *,
    blocks: ArrayLike | None = None,
    level: float = CONFIDENCE_LEVEL,
    lag: int | None = None,
) -> Regression:
    """Least squares of y on x with a Newey-West covariance.

    Args:
        x: ``(T,)`` regressor.
        y: ``(T,)`` response.
        blocks: ``(T,)`` labels of contiguous blocks; dependence is within blocks only.
        level: Confidence level of the interval of the slope.
        lag: Newey-West lag; the paper's if left out.
    """
    at, value = _check_series("x", x), _check_series("y", y)
    _check_confidence_level("level", level)
    if at.size != value.size or (blocks is not None and np.shape(blocks) != at.shape):
        raise ValueError(f"{at.size} x, {value.size} y: give as many of each, and of blocks")
    chosen = paper_lag(at.size) if lag is None else lag
    if _is_constant(at):
        raise ValueError(f"x is {at[0]} throughout: a slope needs x that varies")
    if not 0 <= chosen < at.size:
        raise ValueError(f"lag = {chosen}: with {at.size} points give at most {at.size - 1}")
    design = np.stack([at - at.mean(), np.ones_like(at)], axis=1)  # centred: well conditioned
    bread = np.linalg.inv(design.T @ design)
    beta = bread @ design.T @ value
    residual = value - design @ beta
    meat = at.size * long_run_covariance(design * residual[:, None], chosen, blocks)
    covariance = bread @ meat @ bread
    back = np.array([[1.0, 0.0], [-at.mean(), 1.0]])  # to x as it was given
    slope, intercept = (back @ beta).tolist()
    errors = np.sqrt(np.maximum(np.diag(back @ covariance @ back.T), 0.0)).tolist()
    reach = errors[0] * _quantile(0.5 + 0.5 * level, math.inf)
    variation = float(((value - value.mean()) ** 2).sum())
    return Regression(
        slope, errors[0], Interval(slope - reach, slope + reach),
        _p_value(slope, errors[0], math.inf), intercept, errors[1],
        1.0 - float(residual @ residual) / variation if variation > 0.0 else 1.0, at.size, chosen,
    )  # fmt: skip


def _choose_lag(x: Array, method: Method, c: float) -> int:
    if method == "paper":
        return paper_lag(x.size, c)
    if method == "automatic":
        return automatic_lag(x)
    return max(1, math.floor(_COSINE_COUNT_FACTOR * math.cbrt(x.size) ** 2))


def _cosine_error(x: Array, cosines: int) -> float:
    phase = np.pi * (np.arange(x.size) + 0.5) / x.size
    waves = np.cos(np.outer(np.arange(1, cosines + 1), phase))  # (B, T), each of sum zero
    return float(np.sqrt(2.0 * np.mean((waves @ x) ** 2)) / x.size)


def _quantile(p: float, degrees: float) -> float:
    from scipy.stats import norm, t

    return float(norm.ppf(p) if math.isinf(degrees) else t.ppf(p, degrees))


def _p_value(gap: float, error: float, degrees: float) -> float:
    from scipy.stats import norm, t

    if error == 0.0:
        return 1.0 if gap == 0.0 else 0.0
    z = abs(gap) / error
    return float(2.0 * (norm.sf(z) if math.isinf(degrees) else t.sf(z, degrees)))


def _is_constant(x: Array) -> bool:
    return bool(np.ptp(x) <= _CONSTANT_TOLERANCE * np.abs(x).max())


def _check_series(name: str, series: ArrayLike) -> Array:
    x = np.asarray(series, dtype=np.float64)
    if x.ndim != 1 or x.size < MIN_DAYS:
        raise ValueError(f"{name} has shape {x.shape}: give one number a day, at least {MIN_DAYS}")
    bad = np.flatnonzero(~np.isfinite(x))
    if bad.size:
        raise ValueError(
            f"{name}[{bad[0]}] = {x[bad[0]]}, and {bad.size} of {x.size} in all are not finite: a "
            "day without an answer has no error; count such days apart, then leave them out"
        )
    return x


def _check_confidence_level(name: str, value: float) -> None:
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} = {value!r} must lie strictly between 0 and 1, as 0.95 does")
