"""Forwards and discount factors from put-call parity, ``C − P = D·(F − K)``, for one series.

Glossary: ``y = C − P`` of mid prices at strike ``K``, ``h`` the joint half-spread of the pair,
``v`` at-the-money total volatility. The discount factor is minus the slope of a robust line
through all pairs; the forward is then read off the pairs near the money alone. A line through
everything can miss the middle by what is far out (deep options are quoted loosely), and a
forward that misses the middle shows as a jump of implied volatility between puts and calls.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from arbiter.conventions import Array

MIN_PAIRS_FOR_DISCOUNT = 5
_MAX_DISCOUNT_ERROR = 2.5e-3  # standard error beyond which a discount factor is not known
_MAX_RATE_PER_YEAR = 0.2  # a year: beyond it, and beyond what its error explains, no rate is meant
_TUKEY_CONSTANT = 4.685  # bisquare: 95 % efficient if errors are normal, blind to what lies far out
_MAD_TO_DEVIATION = 1.4826
_MIN_SCALE_HALF_SPREADS = 0.25  # joint half-spreads: what lies within its spread is not an outlier
_MAX_ERROR_HALF_SPREADS = 5.0  # joint half-spreads: farther off, a pair is wrong and not noisy
_MIN_QUOTED_ERROR_SHARE = (
    0.1  # of the joint half-spread: a handful of pairs are not known better than that
)
_WINDOW_DEVIATIONS = 0.25  # deviations: width of the window from which the forward is read
_MIN_PAIRS_NEAR = 5  # pairs that the window reaches at least
_MAX_ITERATIONS = 50


@dataclass(frozen=True)
class CallPutPairs:
    """Strikes of one series at which both call and put are two-sided, increasing."""

    K: Array
    y: Array
    h: Array
    straddle: Array  # C + P of mid prices


def estimate_discount(pairs: CallPutPairs) -> tuple[float, float]:
    """The discount factor and its standard error, NaN if too few pairs tell it."""
    K, y = pairs.K, pairs.y
    if K.size < MIN_PAIRS_FOR_DISCOUNT:
        return np.nan, np.nan
    s = _estimate_mid_errors(pairs)
    starts = [_fit_median_line(K[tight], y[tight]) for tight in _select_tightest(pairs.h)]
    a, b = min(starts, key=lambda line: _measure_misfit(y - line[0] - line[1] * K, pairs.h))
    r = y - a - b * K
    w = np.zeros_like(K)
    for _ in range(_MAX_ITERATIONS):
        before, w = w, _bisquare_weights(r / s) / s**2
        x = K - np.sum(w * K) / np.sum(w)
        b = np.sum(w * x * y) / np.sum(w * x * x)
        r = y - np.sum(w * y) / np.sum(w) - b * x
        if np.max(np.abs(w - before)) <= 1e-9 * np.max(w):
            break
    return -float(b), _newey_west_deviation(w * x * r, 2) / float(np.sum(w * x * x))


def estimate_forward(pairs: CallPutPairs, discount: float) -> tuple[float, float]:
    """The forward near the money, given the discount factor, and its standard error."""
    K, s = pairs.K, _estimate_mid_errors(pairs) / discount
    each = K + pairs.y / discount
    starts = [_weighted_median(each, s**-power) for power in (2.0, 1.0, 0.0)]
    f = min(starts, key=lambda start: _measure_misfit(discount * (each - start), pairs.h))
    sound = discount * np.abs(each - f) <= _MAX_ERROR_HALF_SPREADS * pairs.h
    for _ in range(_MAX_ITERATIONS):
        if not f > 0.0:
            return np.nan, np.nan
        k = np.log(K / f)
        near = np.argsort(np.abs(k), kind="stable")[:_MIN_PAIRS_NEAR]
        v = np.sqrt(0.5 * np.pi) * np.median(pairs.straddle[near[:3]]) / (discount * f)
        width = max(_WINDOW_DEVIATIONS * v, np.abs(k[near[-1]]))
        inner = np.abs(k) <= 2.0 * width
        inner = inner & sound if np.any(inner & sound) else inner
        w = (
            np.exp(-0.5 * (k / width) ** 2)
            * sound
            * _bisquare_weights((each - f) / s, inner)
            / s**2
        )
        before, f = f, float(np.sum(w * each) / np.sum(w))
        if abs(f - before) <= 1e-10 * f:
            break
    scatter = _newey_west_deviation((w * (each - f))[inner], 1) / float(np.sum(w))
    # A handful of pairs may agree by chance; their spreads say what they can tell.
    quoted = float(np.sqrt(np.sum((w * s) ** 2)) / np.sum(w))
    return f, max(scatter, _MIN_QUOTED_ERROR_SHARE * quoted) if np.sum(
        inner
    ) < 2 * _MIN_PAIRS_NEAR else scatter


def is_discount_known(discount: float, error: float, T: float) -> bool:
    """Whether a discount factor is known well enough, and means a rate."""
    if not (discount > 0.0 and error <= _MAX_DISCOUNT_ERROR):
        return False
    return bool(abs(np.log(discount)) <= _MAX_RATE_PER_YEAR * T + 3.0 * error + 1e-3)


def _estimate_mid_errors(pairs: CallPutPairs) -> Array:
    """By how much mids may be off: by a share of their spread, and by what all have in common."""
    return np.hypot(pairs.h, np.quantile(pairs.h, 0.1))


def _select_tightest(h: Array) -> list[NDArray[np.intp]]:
    """All pairs, the tighter half, and the tightest fifth, each in order of strike."""
    order = np.argsort(h, kind="stable")
    sizes = {max(MIN_PAIRS_FOR_DISCOUNT, round(share * h.size)) for share in (1.0, 0.5, 0.2)}
    return [np.sort(order[:size]) for size in sorted(sizes, reverse=True)]


def _fit_median_line(K: Array, y: Array) -> tuple[float, float]:
    """Intercept and slope by medians: right if most points are."""
    half = K.size // 2
    b = float(np.median((y[-half:] - y[:half]) / (K[-half:] - K[:half])))
    return float(np.median(y - b * K)), b


def _measure_misfit(r: Array, h: Array) -> float:
    """How many pairs a line contradicts and, as a tie-break, by how much it misses the others."""
    z = np.abs(r) / h
    return float(np.sum(z > 1.0) + 0.01 * np.sum(np.minimum(z, 1.0) ** 2))


def _weighted_median(values: Array, weights: Array) -> float:
    order = np.argsort(values)
    total = np.cumsum(weights[order])
    return float(values[order[min(np.searchsorted(total, 0.5 * total[-1]), values.size - 1)]])


def _bisquare_weights(z: Array, among: NDArray[np.bool_] | None = None) -> Array:
    """Tukey's weights of residuals ``z``, in units of their own spread ``among`` some of them."""
    scale = _MAD_TO_DEVIATION * float(np.median(np.abs(z if among is None else z[among])))
    u = z / (_TUKEY_CONSTANT * max(scale, _MIN_SCALE_HALF_SPREADS))
    return np.where(np.abs(u) < 1.0, (1.0 - np.minimum(u * u, 1.0)) ** 2, 0.0)


def _newey_west_deviation(g: Array, fitted: int) -> float:
    """Standard deviation of ``Σ g`` (Newey-West: neighbouring strikes err together)."""
    n = g.size
    total = float(np.sum(g * g))
    lags = min(round(n ** (1.0 / 3.0)), n - 1)
    for lag in range(1, lags + 1):
        total += 2.0 * (1.0 - lag / (lags + 1.0)) * float(np.sum(g[lag:] * g[:-lag]))
    return float(np.sqrt(max(total, 0.0) * n / max(n - fitted, 1)))
