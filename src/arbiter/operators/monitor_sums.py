"""Sums behind the monitors of the paper's assumptions A1 to A4, in compiled loops.

Shapes: L slices, n knots, m quotes, P patches.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices

RELATIVE_ROUNDING = 1e-13  # of the largest value: differences below it are no roughness
MAX_ORDER = 2.0  # that second differences can see
_INVERSE_ROOT_TWO_PI, _ROOT_HALF = 1.0 / math.sqrt(2.0 * math.pi), math.sqrt(0.5)
COVERAGE_WINDOW = (-3.5, 2.0)  # deviations
COVERAGE_POINTS = 24
COVERED_RADIUS = 0.2  # of asinh z


@compiled
def mean_slopes(knots: Array, slopes: Array) -> Array:
    """``(L, n)`` mean slope between the median and each knot, of slopes ``(L, n)``.

    To leading order the total implied volatility at the strike of that percentile.
    """
    L, n = slopes.shape
    found = np.empty((L, n))
    middle = np.argmin(np.abs(knots))
    for i in range(L):
        b = slopes[i]
        for step in (-1, 1):
            far, j = 0.0, middle
            found[i, middle] = b[middle]
            while 0 <= j + step < n:
                far += 0.5 * (knots[j + step] - knots[j]) * (b[j] + b[j + step])
                j += step
                found[i, j] = far / (knots[j] - knots[middle])
    return found


@compiled
def exponential_moments(knots: Array, slopes: Array, means: Array, reach: float) -> Array:
    """``(L, 4)``: ``log E e^{V/2}``, ``log E e^{M/2}``, and the share of each beyond ``reach``.

    V is a multiple of the squared mean slope up to a path's end percentile, about the variance
    along the likeliest path to that strike; its mean is that of the log contract. ``M = log X +
    V/2`` then has mean zero. For Black's law these are variance and martingale of the stochastic
    exponential X. A trapezoid at the knots; tails have their end's slope.

    Args:
        knots: ``(n,)`` Gaussian percentiles.
        slopes: ``(L, n)``.
        means: ``(L, n)`` from :func:`mean_slopes`.
        reach: Percentiles beyond it, on either side, are beyond.
    """
    L, n = slopes.shape
    found, weight, whole = np.empty((L, 4)), np.empty(n), 0.0
    for j in range(n):
        width = 0.5 * (knots[min(j + 1, n - 1)] - knots[max(j - 1, 0)])
        weight[j] = width * _INVERSE_ROOT_TWO_PI * math.exp(-0.5 * knots[j] ** 2)
        whole += weight[j]
    weight *= (1.0 - _beyond(-knots[0], 0.0) - _beyond(knots[n - 1], 0.0)) / whole
    middle = np.argmin(np.abs(knots))
    for i in range(L):
        mass = level = spent = 0.0
        for j in range(n):
            s = means[i, j] * (knots[j] - knots[middle])
            mass += weight[j] * math.exp(s)
            level += weight[j] * s
            spent += weight[j] * means[i, j] ** 2
        for side in (-1.0, 1.0):
            j = 0 if side < 0.0 else n - 1
            s, x, slope = means[i, j] * (knots[j] - knots[middle]), knots[j], slopes[i, j]
            mass += math.exp(s - slope * (x - 0.5 * slope)) * _beyond(side * x, side * slope)
            out = _beyond(side * x, 0.0)
            density = _INVERSE_ROOT_TWO_PI * math.exp(-0.5 * x * x)
            level += s * out + slope * (side * density - x * out)
            spent += slope * slope * out
        scale = max(2.0 * (math.log(mass) - level), 0.0) / spent
        # exponents less the largest of each: those of steep wings are in the thousands
        most = most_half = 0.0
        for j in range(n):
            s, square = means[i, j] * (knots[j] - knots[middle]), scale * means[i, j] ** 2
            most, most_half = max(most, 0.5 * square), max(most_half, 0.5 * s + 0.25 * square)
        for side in (0, n - 1):
            square = scale * slopes[i, side] ** 2
            most = max(most, 0.5 * square)
            most_half = max(most_half, _tail_exponent(knots, slopes[i], means[i], side, square))
        variance = half = outside_variance = outside_half = 0.0
        for j in range(n):
            s, square = means[i, j] * (knots[j] - knots[middle]), scale * means[i, j] ** 2
            one = weight[j] * math.exp(0.5 * square - most)
            other = weight[j] * math.exp(0.5 * s + 0.25 * square - most_half)
            variance += one
            half += other
            if abs(knots[j]) > reach:
                outside_variance += one
                outside_half += other
        for side in (0, n - 1):
            sign, slope = math.copysign(1.0, knots[side]), slopes[i, side]
            square = scale * slope * slope
            one = math.exp(0.5 * square - most) * _beyond(sign * knots[side], 0.0)
            exponent = _tail_exponent(knots, slopes[i], means[i], side, square)
            other = math.exp(exponent - most_half)
            other *= _beyond(sign * knots[side], 0.5 * sign * slope)
            variance += one
            half += other
            outside_variance += one
            outside_half += other
        found[i, 0] = most + math.log(variance)
        found[i, 1] = most_half + math.log(half) - 0.5 * math.log(mass)
        found[i, 2], found[i, 3] = outside_variance / variance, outside_half / half
    return found


@compiled
def _tail_exponent(knots: Array, slopes: Array, means: Array, side: int, square: float) -> float:
    """``log E e^{(log X + V)/2}`` of a straight tail, over the probability that it is beyond."""
    x, slope = float(knots[side]), float(slopes[side])
    s = float(means[side] * (x - knots[np.argmin(np.abs(knots))]))
    return 0.5 * (s - slope * (x - 0.25 * slope)) + 0.25 * square


@compiled
def _beyond(x: float, mean: float) -> float:
    """Probability that a normal variable of this mean and variance one is above x."""
    return 0.5 * math.erfc(_ROOT_HALF * (x - mean))


@compiled
def patch_orders(values: Array, patch: int, floor: float) -> Array:
    """``(R, P)`` local Hölder orders of rows ``(R, m)``, evenly spaced, on overlapping patches.

    The slope of the logarithm of the largest second difference over that of its distance, between
    0 and 2; a straight line has 2.

    Args:
        values: Of any functions.
        patch: Points of a patch, at least 9; patches overlap by half.
        floor: Differences below it are rounding.
    """
    rows, m = values.shape
    stride = max(patch // 2, 1)
    count, depth = (m - patch) // stride + 1, int(math.log2((patch - 1) // 2))
    found = np.empty((rows, count))
    middle = 0.5 * (depth - 1)
    spread = 0.0
    for e in range(depth):
        spread += (e - middle) ** 2
    for i in range(rows):
        for p in range(count):
            u = values[i, p * stride : p * stride + patch]
            slope = largest = 0.0
            for e in range(depth):
                h = 2**e
                largest = 0.0
                for j in range(patch - 2 * h):
                    largest = max(largest, abs(u[j + 2 * h] - 2.0 * u[j + h] + u[j]))
                slope += math.log2(max(largest, floor)) * (e - middle)
            order = min(max(slope / spread, 0.0), MAX_ORDER)
            found[i, p] = MAX_ORDER if largest <= 16.0 * floor else order
    return found


@compiled
def decay_power(apart: Array, left: Array) -> float:
    """The power with which what entered a scan decays in the distance of maturities.

    Minus the slope of the logarithm of what is left over that of the distance, on the far half of
    the distances by their logarithm. NaN where that has fewer than two distances.

    Args:
        apart: ``(N,)`` distances.
        left: ``(N,)`` logarithms of what is left.
    """
    least = math.sqrt(apart.min() * apart.max()) if apart.size else 0.0
    count, first, second = 0, 0.0, 0.0
    for i in range(apart.size):
        if apart[i] >= least:
            count += 1
            first += math.log(apart[i])
            second += left[i]
    if count < 2:
        return math.nan
    first, second, spread, cross = first / count, second / count, 0.0, 0.0
    for i in range(apart.size):
        if apart[i] >= least:
            off = math.log(apart[i]) - first
            spread += off * off
            cross += off * (left[i] - second)
    return -cross / spread if spread > 0.0 else math.nan


@compiled
def scan_decays(T: Array, rate: float) -> tuple[Array, Array]:
    """Distances of all pairs of maturities, and logarithms of what a resolvent scan leaves.

    Args:
        T: ``(L,)`` maturities, increasing.
        rate: At which a state forgets, per unit of log-maturity.
    """
    L = T.size
    apart, left = np.empty(L * (L - 1) // 2), np.empty(L * (L - 1) // 2)
    at = 0
    for i in range(L):
        kept = 0.0
        for j in range(i + 1, L):
            kept -= math.log1p(rate * math.log(T[j] / T[j - 1]))
            apart[at], left[at] = math.log(T[j] / T[i]), kept
            at += 1
    return apart, left


@compiled
def covered_shares(zeta: Array, expiry: Indices, count: int) -> Array:
    """``(L,)`` share of :data:`COVERAGE_WINDOW` within reach of a quote, slice by slice.

    The window is counted evenly in ``asinh z``; zero where nothing is quoted.

    Args:
        zeta: ``(m,)`` asinh of the deviations of quotes.
        expiry: ``(m,)`` slice of each.
        count: Number of slices.
    """
    low, high = math.asinh(COVERAGE_WINDOW[0]), math.asinh(COVERAGE_WINDOW[1])
    step = (high - low) / (COVERAGE_POINTS - 1)
    shares, seen = np.zeros(count), np.zeros((count, COVERAGE_POINTS), dtype=np.bool_)
    for i in range(zeta.size):
        first = max(math.ceil((zeta[i] - COVERED_RADIUS - low) / step), 0)
        last = min(math.floor((zeta[i] + COVERED_RADIUS - low) / step), COVERAGE_POINTS - 1)
        for at in range(first, last + 1):
            if not seen[expiry[i], at]:
                seen[expiry[i], at] = True
                shares[expiry[i]] += 1.0
    return shares / COVERAGE_POINTS
