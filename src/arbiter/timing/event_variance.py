"""Variances of scheduled events, estimated from the quotes of all expiries.

The variance of the log contract is the integral of a smooth rate along the clock, plus the
variance of every event that has passed (docs/time.md). The rate is an integrated Wiener process in
the root of the clock, with level and slope free: a cubic smoothing spline. Restricted maximum
likelihood chooses its roughness and the scale of the errors. Events are coefficients beside it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from arbiter.conventions import Array, Indices

_NEAR_DEVIATIONS, _MIN_NEAR_QUOTES = 2.0, 5  # around the forward, of an expiry that counts
_MIN_EXPIRIES = 4
_SMOOTH_COUNT = 3  # expiries for level and slope of the rate, and one to tell its roughness
_MID_VARIANCE = 1.0 / 3.0  # of a mid that is uniform within its spread, in squared half-spreads
_LEAST_HALF_SPREAD = 1e-3  # of a total variance: locked quotes are not exact
_PRIOR_COUNT = 4.0  # observations that a scale of one is worth beforehand
_ROUGHNESS_RATIOS = np.geomspace(1e-8, 1e8, 81)  # of the rate's variance to that of the errors
_MIN_RATE_SHARE = 0.1  # of the mean rate: the rate between two expiries is taken as no less


class LogVariance(NamedTuple):
    """Variance of the log contract, of expiries with enough quotes."""

    expiry: Indices  # (l,)
    value: Array  # (l,)
    error: Array  # (l,) standard errors, up to a common factor


class GapVariance(NamedTuple):
    """What passes between neighbouring expiries."""

    events: Array  # (g,) variance of the unknown events of each gap that has any
    errors: Array  # (g,) standard errors
    rates: Array  # (l,) of everything else, per year of the clock


def measure_log_variances(expiry: Indices, k: Array, bid: Array, ask: Array) -> LogVariance:
    """Variance of the log contract of each expiry, straight from its quotes.

    The mean of the total implied variance over a normal law of ``−d2 = k/v + v/2`` is exactly
    that variance (Fukasawa, 2012). Between quotes the smile runs straight along that coordinate,
    and beyond the last ones it stays level. What it would add there along its ends is an error.

    Args:
        expiry: ``(m,)`` of each quote, nondecreasing.
        k: ``(m,)`` log-moneyness.
        bid: ``(m,)`` total implied variance of the bids.
        ask: ``(m,)`` of the asks.

    Raises:
        ValueError: If no expiry has quotes on both sides of the forward.
    """
    total = 0.5 * (bid + ask)
    half = np.maximum(0.5 * (ask - bid), _LEAST_HALF_SPREAD * total)
    coordinate = k / np.sqrt(total) + 0.5 * np.sqrt(total)
    found = []
    for place in np.unique(expiry):
        own = np.flatnonzero(expiry == place)
        y, first = np.unique(np.maximum.accumulate(coordinate[own]), return_index=True)
        own = own[first]
        near = np.abs(y) <= _NEAR_DEVIATIONS
        if np.count_nonzero(near) < _MIN_NEAR_QUOTES or not y[0] < 0.0 < y[-1]:
            continue
        weight, beyond = _weigh_normally(y), _measure_beyond(y, total[own])
        noise = _MID_VARIANCE * float(np.sum((weight * half[own]) ** 2))
        found.append((int(place), float(weight @ total[own]), math.sqrt(noise + beyond**2)))
    if not found:
        raise ValueError(
            f"no expiry has {_MIN_NEAR_QUOTES} quotes around the forward, from which a clock with "
            "events could be told: leave the events out"
        )
    table = np.array(found)
    return LogVariance(table[:, 0].astype(np.int64), table[:, 1], table[:, 2])


def _weigh_normally(y: Array) -> Array:
    """Weights ``(m,)`` of values at ``y`` in the normal mean of the straight lines through them."""
    step, density, below = np.diff(y), _density(y), ndtr(y)
    mass, first = np.diff(below), -np.diff(density)  # ∫ φ and ∫ y φ between neighbours
    right = (first - y[:-1] * mass) / step
    weight = np.zeros(y.size)
    weight[1:] += right
    weight[:-1] += mass - right
    weight[0] += below[0]
    weight[-1] += ndtr(-y[-1])
    return weight


def _measure_beyond(y: Array, total: Array) -> float:
    """What the mean would gain if the smile went on along its ends, and not level."""
    gain = 0.0
    for side in (-1.0, 1.0):
        end = int(np.argmax(side * y))
        inner = int(np.argmin(np.abs(side * (y[end] - y) - 1.0)))  # a deviation further in
        if inner == end:
            continue
        at = side * y[end]
        excess = float(_density(at)) - at * float(ndtr(-at))  # E(Y − at)+
        gain += abs((total[end] - total[inner]) / (y[end] - y[inner])) * excess
    return gain


def _density(y: Array | float) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(y)) / math.sqrt(2.0 * math.pi))


class _Regression(NamedTuple):
    """The variances of the log contract as sums of a smooth rate and of events."""

    value: Array  # (l,) without what is known of events
    free: Array  # (l, 2) level and slope of the rate
    passed: Array  # (l, g) unknown events
    run: Array  # (l, l) of the rates to variances
    kernel: Array  # (l, l) of the rates, an integrated Wiener process
    x: Array  # (l,) where the rates are

    @classmethod
    def lay_out(cls, listed: LogVariance, years: Array, gaps: Indices, given: Array) -> _Regression:
        """Arguments as in :func:`regress_on_events`."""
        count = listed.value.size
        if count < max(_MIN_EXPIRIES, gaps.size + _SMOOTH_COUNT):
            raise ValueError(
                f"{count} expiries have {_MIN_NEAR_QUOTES} quotes around the forward, and events "
                f"of unknown variance in {gaps.size} gaps between them, or an implied clock, need "
                f"{max(_MIN_EXPIRIES, gaps.size + _SMOOTH_COUNT)}: give the variances, or the "
                "weights of the clock"
            )
        step = np.diff(years, prepend=0.0)
        run = np.tril(np.broadcast_to(step, (step.size, step.size)))
        x = np.sqrt(years - 0.5 * step)
        low, high = np.minimum(x[:, None], x), np.maximum(x[:, None], x)
        kernel = low**2 * (3.0 * high - low) / 6.0
        passed = (np.arange(step.size)[:, None] >= gaps).astype(np.float64)
        free = np.stack([run @ np.ones(step.size), run @ x], axis=1)
        return cls(listed.value - np.cumsum(given), free, passed, run, kernel, x)

    @property
    def smooth(self) -> Array:
        """``(l, l)`` covariance of the variances by a rate of unit roughness."""
        return self.run @ self.kernel @ self.run.T

    @property
    def whole(self) -> Array:
        """``(l, 2 + g)`` every column."""
        return np.concatenate([self.free, self.passed], axis=1)


def regress_on_events(
    listed: LogVariance, years: Array, gaps: Indices, given: Array
) -> GapVariance:
    """Events and smooth rates by generalised least squares.

    Args:
        listed: Variances of the log contracts.
        years: ``(l,)`` where the clock stands at their expiries, without events.
        gaps: ``(g,)`` gaps with unknown events, each the place of the expiry after it.
        given: ``(l,)`` variance of the known events of each gap.

    Raises:
        ValueError: If there are too few expiries for the unknown events.
    """
    least = _MIN_RATE_SHARE * float(listed.value[-1] / years[-1])
    if not gaps.size and listed.value.size < _MIN_EXPIRIES:  # nothing to estimate but one rate
        rate = float((listed.value[-1] - given.sum()) / years[-1])
        return GapVariance(np.zeros(0), np.zeros(0), np.full(years.size, max(rate, least)))
    model = _Regression.lay_out(listed, years, gaps, given)
    smooth, noise = model.smooth, listed.error**2
    positive = np.ones(gaps.size, dtype=bool)
    while True:
        design = np.concatenate([model.free, model.passed[:, positive]], axis=1)
        ratio, scale, beta, _ = _maximise_likelihood(model.value, design, smooth, noise)
        if not np.any(beta[2:] < 0.0):
            break
        # a variance is not negative: the worst one is none, and the others are estimated again
        positive[np.flatnonzero(positive)[int(beta[2:].argmin())]] = False
    events = np.zeros(gaps.size)
    events[positive] = beta[2:]
    precision = np.linalg.inv(np.diag(noise) + ratio * smooth)
    covariance = scale * np.linalg.inv(model.whole.T @ precision @ model.whole)
    bend = ratio * model.kernel @ model.run.T @ precision @ (model.value - design @ beta)
    rates = beta[0] + beta[1] * model.x + bend
    return GapVariance(events, np.sqrt(np.diag(covariance)[2:]), np.maximum(rates, least))


def measure_misfit(listed: LogVariance, years: Array, gaps: Indices, given: Array) -> float:
    """Minus twice the restricted log likelihood of a clock; as :func:`regress_on_events`."""
    model = _Regression.lay_out(listed, years, gaps, given)
    found = _maximise_likelihood(model.value, model.whole, model.smooth, listed.error**2)
    return found.cost


class _Likeliest(NamedTuple):
    ratio: float  # of roughness to noise
    scale: float  # of both
    beta: Array  # coefficients
    cost: float  # minus twice the restricted log likelihood


def _maximise_likelihood(value: Array, design: Array, smooth: Array, noise: Array) -> _Likeliest:
    """Roughness, scale and coefficients by REML (Harville 1974), on a grid of the roughness."""
    unit = float(np.median(noise)) / max(float(np.median(np.diag(smooth))), 1e-300)
    count = value.size - design.shape[1] + _PRIOR_COUNT
    root = np.sqrt(noise)
    spread, vectors = np.linalg.eigh(smooth / np.outer(root, root))
    y, X = vectors.T @ (value / root), vectors.T @ (design / root[:, None])
    ratios = unit * _ROUGHNESS_RATIOS
    precision = 1.0 / (1.0 + ratios[:, None] * np.maximum(spread, 0.0))  # (r, l)
    normal = np.matmul(X.T * precision[:, None, :], X)  # (r, p, p)
    beta = np.linalg.solve(normal, ((precision * y) @ X)[:, :, None])[:, :, 0]
    squares = (precision * (y - beta @ X.T) ** 2).sum(axis=1)
    scale = (squares + _PRIOR_COUNT) / count
    cost = count * np.log(scale) + np.linalg.slogdet(normal)[1] - np.log(precision).sum(axis=1)
    best = int(cost.argmin())
    least = cost[best] + np.log(noise).sum() - np.linalg.slogdet(design.T @ design)[1]
    return _Likeliest(float(ratios[best]), float(scale[best]), beta[best], float(least))
