"""Forwards and discount factors from put-call parity, ``C − P = D·(F − K)``, of many series.

Glossary: ``y = C − P`` of mid prices at strike ``K``, ``h`` the joint half-spread of the pair,
``v`` at-the-money total volatility. The discount factor is minus the slope of a robust line
through all pairs; the forward is then read off the pairs near the money alone. A line through
everything can miss the middle by what is far out (deep options are quoted loosely), and a
forward that misses the middle shows as a jump of implied volatility between puts and calls.

Each series is a row and is estimated alone; all rows take their steps together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from arbiter.chains.padded_rows import (
    Mask,
    find_balanced_medians,
    find_row_medians,
    find_row_quantiles,
    find_weighted_medians,
    group_rows,
    make_margins,
    mask_rows,
    pack_rows,
    select_least,
)
from arbiter.conventions import Array, Indices

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
    """Strikes of each series at which both call and put are two-sided.

    Attributes:
        K: ``(L, n)`` strikes, increasing, a row per series; 1 behind the last.
        y: ``(L, n)`` call minus put, mid prices; 0 behind the last.
        h: ``(L, n)`` half-spreads; infinite behind the last.
        straddle: ``(L, n)`` call plus put, mid prices; 0 behind the last.
        count: ``(L,)`` number of pairs of each series.
    """

    K: Array
    y: Array
    h: Array
    straddle: Array
    count: Indices

    @cached_property
    def ordered_h(self) -> Array:
        """``(L, n)`` half-spreads of each series, increasing."""
        return np.sort(self.h, axis=1)

    @cached_property
    def s(self) -> Array:
        """``(L, n)`` by how much mids may be off; infinite behind the last.

        By a share of their own spread, and by what all have in common.
        """
        return np.hypot(self.h, find_row_quantiles(self.ordered_h, self.count, 0.1)[:, None])

    def select(self, rows: Mask | Indices) -> CallPutPairs:
        """Some of the series."""
        count = self.count[rows]
        n = int(count.max(initial=1))
        K, y, h, straddle = (a[rows, :n] for a in (self.K, self.y, self.h, self.straddle))
        return CallPutPairs(K, y, h, straddle, count)


def estimate_discounts(pairs: CallPutPairs) -> tuple[Array, Array]:
    """``(L,)`` discount factors and their standard errors, NaN if too few pairs tell one."""
    estimates = np.full((2, pairs.count.size), np.nan)
    told = np.flatnonzero(pairs.count >= MIN_PAIRS_FOR_DISCOUNT)
    for group in group_rows(pairs.count[told]):
        estimates[:, told[group]] = _fit_robust_slopes(pairs.select(told[group]))
    return estimates[0], estimates[1]


def _fit_robust_slopes(pairs: CallPutPairs) -> tuple[Array, Array]:
    left = np.arange(pairs.count.size)
    slope, information = np.empty((2, left.size))
    score = np.zeros_like(pairs.K)  # (L, n)
    K, y, s, count, w = pairs.K, pairs.y, pairs.s, pairs.count, np.zeros_like(pairs.K)
    margins, variance = make_margins(count, K.shape[1]), s * s
    a, b = _find_first_lines(pairs)
    r = y - a[:, None] - b[:, None] * K
    for i in range(_MAX_ITERATIONS):
        z = np.abs(r / s)
        z += margins
        before, w = w, _bisquare_weights(z, find_balanced_medians(z, count))
        w /= variance
        total = w.sum(axis=1, keepdims=True)
        x = K - (w * K).sum(axis=1, keepdims=True) / total
        wx = w * x
        weight = (wx * x).sum(axis=1)
        b = (wx * y).sum(axis=1) / weight
        r = y - (w * y).sum(axis=1, keepdims=True) / total
        r -= b[:, None] * x
        before -= w
        done = np.abs(before, out=before).max(axis=1) <= 1e-9 * w.max(axis=1)
        if done.any() or i == _MAX_ITERATIONS - 1:
            done = done | (i == _MAX_ITERATIONS - 1)
            slope[left[done]], information[left[done]] = b[done], weight[done]
            score[left[done], : r.shape[1]] = wx[done] * r[done]
            if done.all():
                break
            going = np.flatnonzero(~done)
            left, count = left[going], count[going]
            n = int(count.max())
            K, y, s, w, r = (values.take(going, axis=0)[:, :n] for values in (K, y, s, w, r))
            margins, variance = make_margins(count, n), s * s
    return -slope, _newey_west_deviations(score, pairs.count, 2) / information


def estimate_forwards(pairs: CallPutPairs, discount: Array) -> tuple[Array, Array]:
    """``(L,)`` forwards near the money, given discount factors, and their standard errors.

    They are NaN where no positive forward is found. Each series has at least one pair.
    """
    estimates = np.full((2, discount.size), np.nan)
    for group in group_rows(pairs.count):
        estimates[:, group] = _iterate_forwards(pairs.select(group), discount[group])
    return estimates[0], estimates[1]


def _iterate_forwards(pairs: CallPutPairs, discount: Array) -> tuple[Array, Array]:
    F, error = np.full((2, discount.size), np.nan)
    left, at, D = np.arange(F.size), pairs, discount[:, None]
    s, each = pairs.s / D, pairs.K + pairs.y / D
    f = _find_first_forwards(pairs, D, each, s)
    sound = D * np.abs(each - f[:, None]) <= _MAX_ERROR_HALF_SPREADS * at.h
    for i in range(_MAX_ITERATIONS):
        inner, w = _weigh_near_forward(at, D[:, 0], f, sound, each, s)
        before, f = f, (w * each).sum(axis=1) / w.sum(axis=1)
        done = (np.abs(f - before) <= 1e-10 * f) | (i == _MAX_ITERATIONS - 1)
        if done.any():
            F[left[done]] = f[done]
            off = (each - f[:, None])[done]
            error[left[done]] = _measure_forward_errors(w[done], off, s[done], inner[done])
        going = ~done & (f > 0.0)
        if not going.any():
            break
        if not going.all():
            left, at, D, f = left[going], at.select(going), D[going], f[going]
            n = at.K.shape[1]
            s, each, sound = s[going, :n], each[going, :n], sound[going, :n]
    return F, error


def _find_first_forwards(pairs: CallPutPairs, D: Array, each: Array, s: Array) -> Array:
    """``(L,)`` medians of each pair's own forward, weighed in three ways: the best of them."""
    order = np.argsort(np.where(np.isfinite(pairs.h), each, np.inf), axis=1)
    ordered, errors = (np.take_along_axis(a, order, axis=1) for a in (each, s))
    candidates = []
    for weights in (errors**-2.0, 1.0 / errors, np.isfinite(errors)):
        f = find_weighted_medians(ordered, weights, pairs.count)
        candidates.append((f, D * (each - f[:, None])))
    return _choose_least_misfit(candidates, pairs.h)


def _weigh_near_forward(
    pairs: CallPutPairs, D: Array, f: Array, sound: Mask, each: Array, s: Array
) -> tuple[Mask, Array]:
    """``(L, n)`` which pairs are in the window around each forward, and the weights of all."""
    distance = np.abs(np.log(pairs.K / f[:, None]))
    v, reach = _measure_middles(pairs, D, f, distance)
    width = np.maximum(_WINDOW_DEVIATIONS * v, reach)[:, None]
    inner = (distance <= 2.0 * width) & np.isfinite(pairs.h)
    both = inner & sound
    if not both.any(axis=1).all():
        both = np.where(both.any(axis=1, keepdims=True), both, inner)
    z = np.abs((each - f[:, None]) / s)
    nearness = np.exp(-0.5 * (distance / width) ** 2) * sound
    return both, nearness * _bisquare_weights(z, find_row_medians(z, both)) / (s * s)


def _measure_middles(
    pairs: CallPutPairs, D: Array, f: Array, distance: Array
) -> tuple[Array, Array]:
    """``(L,)`` at-the-money deviations, and how far off the last of the nearest pairs is."""
    row = np.arange(f.size)
    # strikes increase, so that the nearest are among the next on either side of the forward
    first = ((f[:, None] > pairs.K) & np.isfinite(pairs.h)).sum(axis=1)[:, None]
    place = first + np.arange(-_MIN_PAIRS_NEAR, _MIN_PAIRS_NEAR)
    outside = (place < 0) | (place >= pairs.count[:, None])
    place = np.clip(place, 0, pairs.K.shape[1] - 1)
    off = np.where(outside, np.inf, distance[row[:, None], place])
    near = np.argsort(off, axis=1, kind="stable")
    reach = off[row, near[row, np.minimum(pairs.count, _MIN_PAIRS_NEAR) - 1]]
    middle = pairs.straddle[row[:, None], place[row[:, None], near[:, :3]]]
    straddle = find_row_medians(middle, mask_rows(np.minimum(pairs.count, 3), 3))
    return np.sqrt(0.5 * np.pi) * straddle / (D * f), reach


def _measure_forward_errors(w: Array, off: Array, s: Array, inner: Mask) -> Array:
    """``(L,)`` standard errors of forwards that lie ``off`` each pair's own."""
    total, count = w.sum(axis=1), inner.sum(axis=1)
    scatter = _newey_west_deviations(pack_rows(w * off, inner), count, 1) / total
    # A handful of pairs may agree by chance; their spreads say what they can tell.
    weighed = np.multiply(w, s, out=np.zeros_like(w), where=w > 0.0)
    quoted = np.sqrt((weighed**2).sum(axis=1)) / total
    few = count < 2 * _MIN_PAIRS_NEAR
    return np.asarray(np.where(few, np.maximum(scatter, _MIN_QUOTED_ERROR_SHARE * quoted), scatter))


def is_discount_known(discount: float, error: float, T: float) -> bool:
    """Whether a discount factor is known well enough, and means a rate."""
    if not (discount > 0.0 and error <= _MAX_DISCOUNT_ERROR):
        return False
    return bool(abs(np.log(discount)) <= _MAX_RATE_PER_YEAR * T + 3.0 * error + 1e-3)


def _find_first_lines(pairs: CallPutPairs) -> tuple[Array, Array]:
    """``(L,)`` intercepts and slopes: by medians of all pairs, of the tighter half, or of a fifth.

    Of the three the one that contradicts the fewest pairs.
    """
    candidates = []
    for share in (1.0, 0.5, 0.2):
        K, y, size = pairs.K, pairs.y, pairs.count
        if share < 1.0:
            size = np.maximum(MIN_PAIRS_FOR_DISCOUNT, np.rint(share * size).astype(np.int64))
            tight = select_least(pairs.h, pairs.ordered_h, size)
            K, y = (np.take_along_axis(a, tight, axis=1) for a in (K, y))
        a, b = _fit_median_lines(K, y, size)
        candidates.append((np.stack([a, b]), pairs.y - a[:, None] - b[:, None] * pairs.K))
    a, b = _choose_least_misfit(candidates, pairs.h)
    return a, b


def _fit_median_lines(K: Array, y: Array, count: Indices) -> tuple[Array, Array]:
    """``(L,)`` intercepts and slopes by medians: right if most points are."""
    half = count // 2
    left = mask_rows(half, int(half.max()))
    place = np.where(left, (count - half)[:, None] + np.arange(left.shape[1]), 0)
    rise, run = (np.take_along_axis(a, place, axis=1) - a[:, : left.shape[1]] for a in (y, K))
    b = find_row_medians(rise / np.where(left, run, 1.0), left)
    return find_row_medians(y - b[:, None] * K, mask_rows(count, K.shape[1])), b


def _choose_least_misfit(candidates: Sequence[tuple[Array, Array]], h: Array) -> Array:
    """Of several estimates ``(…, L)`` with their residuals ``(L, n)`` each row's best, or first.

    The best contradicts the fewest pairs and, as a tie-break, misses the others by the least.
    """
    best, least = candidates[0][0], np.full(h.shape[0], np.nan)
    for i, (estimate, residual) in enumerate(candidates):
        z = np.abs(residual) / h
        misfit = (z > 1.0).sum(axis=1) + 0.01 * (np.minimum(z, 1.0) ** 2).sum(axis=1)
        better = (misfit < least) | (i == 0)
        best, least = np.where(better, estimate, best), np.where(better, misfit, least)
    return best


def _bisquare_weights(z: Array, middle: Array) -> Array:
    """Tukey's weights of sizes ``z`` of residuals, in units of their spread around ``middle``."""
    scale = np.maximum(_MAD_TO_DEVIATION * middle, _MIN_SCALE_HALF_SPREADS)
    u = z / (_TUKEY_CONSTANT * scale)[:, None]
    u *= u
    np.subtract(1.0, u, out=u)
    np.maximum(u, 0.0, out=u)
    u *= u
    return u


def _newey_west_deviations(g: Array, count: Indices, fitted: int) -> Array:
    """``(L,)`` standard deviations of row sums (Newey-West: neighbouring strikes err together)."""
    total = (g * g).sum(axis=1)
    lags = np.minimum(np.rint(count ** (1.0 / 3.0)).astype(np.int64), count - 1)
    for lag in range(1, int(lags.max(initial=0)) + 1):
        both = (g[:, lag:] * g[:, :-lag]).sum(axis=1)
        total += np.where(lag <= lags, 2.0 * (1.0 - lag / (lags + 1.0)) * both, 0.0)
    return np.asarray(np.sqrt(np.maximum(total, 0.0) * count / np.maximum(count - fitted, 1)))
