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

import numpy as np
from numpy.typing import NDArray

from arbiter.chains.padded_rows import (
    Indices,
    Mask,
    find_row_medians,
    find_row_quantiles,
    find_row_weighted_medians,
    mask_rows,
    pack_rows,
)
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
    """Strikes of each series at which both call and put are two-sided.

    Attributes:
        K: ``(L, n)`` strikes, increasing, of series after series; 1 behind the last.
        y: ``(L, n)`` call minus put, mid prices; 0 behind the last.
        h: ``(L, n)`` half-spreads; 1 behind the last.
        straddle: ``(L, n)`` call plus put, mid prices; 0 behind the last.
        count: ``(L,)`` number of pairs of each series.
    """

    K: Array
    y: Array
    h: Array
    straddle: Array
    count: Indices

    @property
    def listed(self) -> Mask:
        """``(L, n)`` which entries are pairs."""
        return mask_rows(self.count, self.K.shape[1])

    def select(self, rows: NDArray[np.bool_] | Indices) -> CallPutPairs:
        """Some of the series."""
        count = self.count[rows]
        n = int(count.max(initial=1))
        K, y, h, straddle = (a[rows, :n] for a in (self.K, self.y, self.h, self.straddle))
        return CallPutPairs(K, y, h, straddle, count)


def estimate_discounts(pairs: CallPutPairs) -> tuple[Array, Array]:
    """``(L,)`` discount factors and their standard errors, NaN if too few pairs tell one."""
    estimates = np.full((2, pairs.count.size), np.nan)
    told = np.flatnonzero(pairs.count >= MIN_PAIRS_FOR_DISCOUNT)
    if told.size:
        estimates[:, told] = _fit_robust_slopes(pairs.select(told))
    return estimates[0], estimates[1]


def _fit_robust_slopes(pairs: CallPutPairs) -> tuple[Array, Array]:
    slope, information = np.empty((2, pairs.count.size))
    score = np.zeros_like(pairs.K)  # (L, n)
    left, at, s, w = np.arange(slope.size), pairs, _estimate_mid_errors(pairs), 0.0 * pairs.K
    a, b = _find_first_lines(pairs)
    r = at.y - a[:, None] - b[:, None] * at.K
    for i in range(_MAX_ITERATIONS):
        before, w = w, _bisquare_weights(r / s, at.listed, at.listed) / s**2
        total = np.sum(w, axis=1, keepdims=True)
        x = at.K - np.sum(w * at.K, axis=1, keepdims=True) / total
        weight = np.sum(w * x * x, axis=1)
        b = np.sum(w * x * at.y, axis=1) / weight
        r = at.y - np.sum(w * at.y, axis=1, keepdims=True) / total - b[:, None] * x
        done = np.max(np.abs(w - before), axis=1) <= 1e-9 * np.max(w, axis=1)
        done |= i == _MAX_ITERATIONS - 1
        if done.any():
            slope[left[done]], information[left[done]] = b[done], weight[done]
            score[left[done], : r.shape[1]] = (w * x * r)[done]
            if done.all():
                break
            left, at = left[~done], at.select(~done)
            n = at.K.shape[1]
            s, w, r = s[~done, :n], w[~done, :n], r[~done, :n]
    return -slope, _newey_west_deviations(score, pairs.count, 2) / information


def estimate_forwards(pairs: CallPutPairs, discount: Array) -> tuple[Array, Array]:
    """``(L,)`` forwards near the money, given discount factors, and their standard errors.

    They are NaN where no positive forward is found. Each series has at least one pair.
    """
    F, error = np.full((2, discount.size), np.nan)
    left, at, D = np.arange(F.size), pairs, discount[:, None]
    s, each = _estimate_mid_errors(pairs) / D, pairs.K + pairs.y / D
    starts = [find_row_weighted_medians(each, s**-power, at.listed) for power in (2.0, 1.0, 0.0)]
    f = _choose_least_misfit(
        [(start, D * (each - start[:, None])) for start in starts], pairs.h, at.listed
    )
    sound = (D * np.abs(each - f[:, None]) <= _MAX_ERROR_HALF_SPREADS * at.h) & at.listed
    for i in range(_MAX_ITERATIONS):
        inner, w = _weigh_near_forward(at, D[:, 0], f, sound, each, s)
        before, f = f, np.sum(w * each, axis=1) / np.sum(w, axis=1)
        done = np.abs(f - before) <= 1e-10 * f
        if i == _MAX_ITERATIONS - 1:
            done[:] = True
        if done.any():
            F[left[done]] = f[done]
            error[left[done]] = _measure_forward_errors(
                w[done], (each - f[:, None])[done], s[done], inner[done]
            )
        going = ~done & (f > 0.0)
        if not going.any():
            break
        if not going.all():
            left, at, D, f = left[going], at.select(going), D[going], f[going]
            n = at.K.shape[1]
            s, each, sound = s[going, :n], each[going, :n], sound[going, :n]
    return F, error


def _weigh_near_forward(
    pairs: CallPutPairs, D: Array, f: Array, sound: Mask, each: Array, s: Array
) -> tuple[Mask, Array]:
    """``(L, n)`` which pairs are in the window around each forward, and the weights of all."""
    listed = pairs.listed
    distance = np.abs(np.log(pairs.K / f[:, None]))
    v, reach = _measure_middles(pairs, D, f, distance)
    width = np.maximum(_WINDOW_DEVIATIONS * v, reach)[:, None]
    inner = (distance <= 2.0 * width) & listed
    both = inner & sound
    inner = np.where(np.any(both, axis=1, keepdims=True), both, inner)
    z = (each - f[:, None]) / s
    nearness = np.exp(-0.5 * (distance / width) ** 2)
    return inner, nearness * sound * _bisquare_weights(z, inner, listed) / s**2


def _measure_middles(
    pairs: CallPutPairs, D: Array, f: Array, distance: Array
) -> tuple[Array, Array]:
    """``(L,)`` at-the-money deviations, and how far off the last of the nearest pairs is."""
    rows, n = np.arange(f.size)[:, None], pairs.K.shape[1]
    # strikes increase, so that the nearest are among the next on either side of the forward
    first = np.count_nonzero((pairs.K < f[:, None]) & pairs.listed, axis=1)[:, None]
    place = first + np.arange(-_MIN_PAIRS_NEAR, _MIN_PAIRS_NEAR)
    outside = (place < 0) | (place >= pairs.count[:, None])
    place = np.clip(place, 0, n - 1)
    off = np.where(outside, np.inf, distance[rows, place])
    near = np.argsort(off, axis=1, kind="stable")
    last = np.minimum(pairs.count, _MIN_PAIRS_NEAR) - 1
    reach = off[rows[:, 0], near[rows[:, 0], last]]
    middle = pairs.straddle[rows, place[rows, near[:, :3]]]
    straddle = find_row_medians(middle, mask_rows(np.minimum(pairs.count, 3), 3))
    return np.sqrt(0.5 * np.pi) * straddle / (D * f), reach


def _measure_forward_errors(w: Array, off: Array, s: Array, inner: Mask) -> Array:
    """``(L,)`` standard errors of forwards that lie ``off`` each pair's own."""
    total, count = np.sum(w, axis=1), np.count_nonzero(inner, axis=1)
    scatter = _newey_west_deviations(pack_rows(w * off, inner), count, 1) / total
    # A handful of pairs may agree by chance; their spreads say what they can tell.
    quoted = np.sqrt(np.sum((w * s) ** 2, axis=1)) / total
    few = count < 2 * _MIN_PAIRS_NEAR
    return np.where(few, np.maximum(scatter, _MIN_QUOTED_ERROR_SHARE * quoted), scatter)


def is_discount_known(discount: float, error: float, T: float) -> bool:
    """Whether a discount factor is known well enough, and means a rate."""
    if not (discount > 0.0 and error <= _MAX_DISCOUNT_ERROR):
        return False
    return bool(abs(np.log(discount)) <= _MAX_RATE_PER_YEAR * T + 3.0 * error + 1e-3)


def _estimate_mid_errors(pairs: CallPutPairs) -> Array:
    """By how much mids may be off: by a share of their spread, and by what all have in common."""
    return np.hypot(pairs.h, find_row_quantiles(pairs.h, pairs.listed, 0.1)[:, None])


def _find_first_lines(pairs: CallPutPairs) -> tuple[Array, Array]:
    """``(L,)`` intercepts and slopes: by medians of all pairs, of the tighter half, or of a fifth.

    Of the three the one that contradicts the fewest pairs.
    """
    listed = pairs.listed
    order = np.argsort(np.where(listed, pairs.h, np.inf), axis=1, kind="stable")
    lines = []
    for share in (1.0, 0.5, 0.2):
        size = np.maximum(MIN_PAIRS_FOR_DISCOUNT, np.rint(share * pairs.count).astype(np.int64))
        among = mask_rows(size, int(size.max()))
        # the tightest in order of strike
        tight = np.sort(np.where(among, order[:, : among.shape[1]], listed.shape[1]), axis=1)
        tight = np.minimum(tight, listed.shape[1] - 1)
        a, b = _fit_median_lines(
            *(np.take_along_axis(x, tight, axis=1) for x in (pairs.K, pairs.y)), size
        )
        lines.append((a, b))
    return _choose_least_misfit(
        [
            (np.stack(line), pairs.y - line[0][:, None] - line[1][:, None] * pairs.K)
            for line in lines
        ],
        pairs.h,
        listed,
    )


def _fit_median_lines(K: Array, y: Array, count: Indices) -> tuple[Array, Array]:
    """``(L,)`` intercepts and slopes by medians: right if most points are."""
    half = count // 2
    left = mask_rows(half, int(half.max()))
    place = np.where(left, (count - half)[:, None] + np.arange(left.shape[1]), 0)
    rise, run = (
        np.take_along_axis(x, place, axis=1) - x[:, : left.shape[1]] for x in (y, K)
    )
    b = find_row_medians(rise / np.where(left, run, 1.0), left)
    return find_row_medians(y - b[:, None] * K, mask_rows(count, K.shape[1])), b


def _choose_least_misfit(
    candidates: Sequence[tuple[Array, Array]], h: Array, listed: Mask
) -> Array:
    """Of several estimates ``(…, L)`` with their residuals ``(L, n)`` each row's best, or first.

    The best contradicts the fewest pairs and, as a tie-break, misses the others by the least.
    """
    best, least = candidates[0][0], np.empty(0)
    for estimate, residual in candidates:
        z = np.where(listed, np.abs(residual) / h, 0.0)
        misfit = np.sum(z > 1.0, axis=1) + 0.01 * np.sum(np.minimum(z, 1.0) ** 2, axis=1)
        if least.size:
            better = misfit < least
            best = np.where(better, estimate, best)
            misfit = np.where(better, misfit, least)
        least = misfit
    return best


def _bisquare_weights(z: Array, among: Mask, listed: Mask) -> Array:
    """Tukey's weights of residuals ``z``, in units of their own spread ``among`` some of them."""
    scale = _MAD_TO_DEVIATION * find_row_medians(np.abs(z), among)[:, None]
    u = z / (_TUKEY_CONSTANT * np.maximum(scale, _MIN_SCALE_HALF_SPREADS))
    return np.where((np.abs(u) < 1.0) & listed, (1.0 - np.minimum(u * u, 1.0)) ** 2, 0.0)


def _newey_west_deviations(g: Array, count: Indices, fitted: int) -> Array:
    """``(L,)`` standard deviations of row sums (Newey-West: neighbouring strikes err together)."""
    total = np.sum(g * g, axis=1)
    lags = np.minimum(np.rint(count ** (1.0 / 3.0)).astype(np.int64), count - 1)
    for lag in range(1, int(lags.max(initial=0)) + 1):
        both = np.sum(g[:, lag:] * g[:, :-lag], axis=1)
        total += np.where(lag <= lags, 2.0 * (1.0 - lag / (lags + 1.0)) * both, 0.0)
    return np.sqrt(np.maximum(total, 0.0) * count / np.maximum(count - fitted, 1))
