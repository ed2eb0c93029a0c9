"""What the quotes of one chain say, in one row and compiled: :mod:`..intervals`.

Of the cubic splines at a quote four are not zero: sums over the quotes of a slice are those of a
few products, and variances are read off covariances of neighbouring splines. Splines beyond a
slice's quotes have no part in it before the end, when all are asked for.

Shapes: L slices, N quotes, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array
from arbiter.operators.prior import bid_ask_likelihood
from arbiter.operators.quick import dense, scalars
from arbiter.operators.quick.elementary import exp, log, tail
from arbiter.operators.quick.slice_offsets import (
    NEAR,
    Belief,
    Fan,
    Sums,
    believed,
    likeliest,
    shares,
    solved,
    without_levels,
)

Indices = NDArray[np.int64]

_LAWS = np.array(bid_ask_likelihood.MID_ERROR_LAWS)


class Near(NamedTuple):
    """Cubic splines at places.

    Attributes:
        left: ``(N,)`` the first of them that is not zero.
        basis: ``(N, 4)`` these four.
    """

    left: Indices
    basis: Array


class Quoted(NamedTuple):
    """Quotes of one chain, slice behind slice.

    Attributes:
        ends: ``(L + 1,)`` where the quotes of each slice begin, and the last end.
        near: ``(N,)`` splines along strikes.
        u: ``(N,)`` middles of the intervals.
        half: ``(N,)`` half their lengths.
    """

    ends: Indices
    near: Near
    u: Array
    half: Array


@compiled
def posterior(fan: Fan, quotes: Quoted) -> Belief:
    """What intervals say of the splines of each slice."""
    count = quotes.u.size
    weight, centre = np.empty(count), quotes.u.copy()
    for i in range(count):
        weight[i] = 1.0 / (
            bid_ask_likelihood.MID_VARIANCE_SHARE * quotes.half[i] ** 2
            + bid_ask_likelihood.INITIAL_ERROR**2
        )
    asked, quotes = _within(fan, quotes)
    uneven = wild = error = reach = blur = 0.0
    for turn in range(bid_ask_likelihood.ROUNDS + 1):
        sums = _summed(asked, quotes, weight, centre)
        if turn == 0:
            uneven, wild, known = likeliest(sums)
        else:
            known = solved(without_levels(sums, uneven), wild)
        last = turn == bid_ask_likelihood.ROUNDS
        belief = believed(fan if last else asked, sums, known)
        if last:
            break
        value, variance = np.empty(count), np.empty(count)
        read(belief, quotes.near, value, variance)
        if turn == 0:
            error = _beyond(quotes, value)
        _cavities(value, variance, weight, centre)
        if turn == 0:
            reach, blur = average_error_laws(quotes, value, variance, error)
        _sites(value, variance, quotes, reach, blur, error)
        centre, weight = value, variance
    return belief


@compiled
def _beyond(quotes: Quoted, value: Array) -> float:
    """The error that is taken for Gaussian: how far values lie outside the intervals."""
    squares = 0.0
    for i in range(value.size):
        squares += max(abs(quotes.u[i] - value[i]) - quotes.half[i], 0.0) ** 2
    return math.sqrt(squares / max(value.size, 1) + bid_ask_likelihood.MIN_ERROR**2)


@compiled
def _within(fan: Fan, quotes: Quoted) -> tuple[Fan, Quoted]:
    """Of the splines of each slice those from the first to the last at a quote, and quotes there.

    Numbers of splines are those among all slices then.
    """
    d, L = len(fan.by), fan.ends.size - 1
    left, ends = quotes.near.left.copy(), np.zeros(L + 1, np.int64)
    source = np.empty(fan.by.shape[1], np.int64)
    for each in range(L):
        begin, end = quotes.ends[each], quotes.ends[each + 1]
        low = high = left[begin] if begin < end else 0
        for i in range(begin, end):
            low, high = min(low, left[i]), max(high, left[i] + NEAR)
        for i in range(begin, end):
            left[i] += ends[each] - low
        ends[each + 1] = ends[each] + high - low
        for r in range(high - low):
            source[ends[each] + r] = fan.ends[each] + low + r
    by = np.empty((d, ends[L]))
    for j in range(d):
        row, whole = by[j], fan.by[j]
        for r in range(row.size):
            row[r] = whole[source[r]]
    near = Near(left, quotes.near.basis)
    return Fan(by, ends), Quoted(quotes.ends, near, quotes.u, quotes.half)


@compiled
def read(belief: Belief, near: Near, mean: Array, variance: Array) -> None:
    """Mean and variance at places, numbers of splines being those among all slices."""
    basis = near.basis
    for i in range(near.left.size):
        mean[i] = variance[i] = 0.0
        for a in range(NEAR):
            at = near.left[i] + a
            mean[i] += basis[i, a] * belief.mean[at]
            part = basis[i, a] * belief.near[0, at]
            for b in range(a + 1, NEAR):
                part += 2.0 * basis[i, b] * belief.near[b - a, at]
            variance[i] += basis[i, a] * part


@compiled
def _summed(fan: Fan, quotes: Quoted, weight: Array, centre: Array) -> Sums:
    """What observations of given weights come to."""
    d, R = fan.by.shape
    L = quotes.ends.size - 1
    near, said = np.zeros((NEAR, R)), np.zeros(R)
    mass, level = np.zeros(L), np.zeros(L)
    for each in range(L):
        for i in range(quotes.ends[each], quotes.ends[each + 1]):
            w, y = weight[i], weight[i] * centre[i]
            mass[each] += w
            level[each] += y
            for a in range(NEAR):
                at, part = quotes.near.left[i] + a, quotes.near.basis[i, a]
                said[at] += y * part
                for b in range(a, NEAR):
                    near[b - a, at] += w * part * quotes.near.basis[i, b]
    loaded, rows, side = np.empty((d, R)), np.empty((d, L)), np.empty(d)
    for j in range(d):
        side[j] = _load(fan.by[j], near, said, loaded[j])
    dense.add_up(loaded, fan.ends, rows)  # splines add up to one
    gram = np.empty((d, d))
    dense.products(fan.by, loaded, gram)
    return Sums(gram, side, rows, mass, level)


@compiled
def _load(x: Array, near: Array, said: Array, loaded: Array) -> float:
    """A row x times a symmetric matrix of few diagonals, and its product with a side."""
    a, b, c, d = near[0], near[1], near[2], near[3]
    R, total = x.size, 0.0
    for r in range(R):
        total += said[r] * x[r]
    for r in range(R - 6):  # numbers of places only grow: others might count from the end
        after = b[r + 3] * x[r + 4] + c[r + 3] * x[r + 5] + d[r + 3] * x[r + 6]
        before = b[r + 2] * x[r + 2] + c[r + 1] * x[r + 1] + d[r] * x[r]
        loaded[r + 3] = a[r + 3] * x[r + 3] + after + before
    for end in (0, max(R - 3, 3)):
        for r in range(end, min(end + 3, R)):
            loaded[r] = a[r] * x[r]
            for off in range(1, min(NEAR, R - r)):
                loaded[r] += near[off, r] * x[r + off]
            for off in range(1, min(NEAR, r + 1)):
                loaded[r] += near[off, r - off] * x[r - off]
    return total


@compiled
def _cavities(value: Array, variance: Array, weight: Array, centre: Array) -> None:
    """Mean and variance of f at each quote by what all others say, in place of those by all."""
    for i in range(value.size):
        precision = 1.0 / max(variance[i], bid_ask_likelihood.MIN_VARIANCE)
        alone = 1.0 / max(precision - weight[i], bid_ask_likelihood.MIN_CAVITY_PRECISION)
        value[i] = alone * (value[i] * precision - weight[i] * centre[i])
        variance[i] = alone


@compiled
def average_error_laws(
    quotes: Quoted, guess: Array, variance: Array, error: float
) -> tuple[float, float]:
    """Reach and blur, means of the laws by how well the others predict each quote under them."""
    score = np.zeros(len(_LAWS))
    for law in range(len(_LAWS)):
        reach, blur = _LAWS[law]
        for i in range(guess.size):
            half = quotes.half[i]
            off, far = abs(quotes.u[i] - guess[i]), reach * half
            per = 1.0 / math.sqrt(variance[i] + error**2 + (blur * half) ** 2)
            mass = scalars.cdf((far - off) * per) - scalars.cdf(-(far + off) * per)
            score[law] += log(max(mass / (2.0 * far), bid_ask_likelihood.MIN_DENSITY))
    share = shares(score)
    return np.sum(share * _LAWS[:, 0]), np.sum(share * _LAWS[:, 1])


@compiled
def _sites(
    value: Array, variance: Array, quotes: Quoted, reach: float, blur: float, error: float
) -> None:
    """Centre and weight of the site that has the moments of each interval, in place of a cavity."""
    for i in range(value.size):
        half, u = quotes.half[i], quotes.u[i]
        far, own = reach * half, (blur * half) ** 2 + error**2
        wide = variance[i] + own
        middle, spread = truncated_moments(value[i], wide, u - far, u + far)
        spread = max(spread, bid_ask_likelihood.MIN_VARIANCE)
        sharp = max(1.0 / spread - 1.0 / wide, bid_ask_likelihood.MIN_SITE_PRECISION)
        value[i] = (middle / spread - value[i] / wide) / sharp
        variance[i] = 1.0 / (1.0 / sharp + own)


@inlined
def truncated_moments(mean: float, variance: float, low: float, high: float) -> tuple[float, float]:
    """As :func:`..prior.bid_ask_likelihood.truncated`."""
    deviation = math.sqrt(variance)
    a, b = (low - mean) / deviation, (high - mean) / deviation
    turned = a + b > 0.0
    a, b = (-b if turned else a), (-a if turned else b)
    width, at = b - a, 0.5 * (a + b)
    square, steep = width * width, (at * width) ** 2
    short = square / 12.0
    few = width * (1.0 + abs(at)) < bid_ask_likelihood.SHORT_INTERVAL_SD
    # densities at both ends over the mass between: e^{(b² − a²)/2} is at most one
    falls = exp(at * width)
    end = 1.0 / (scalars.mills(-b) - falls * tail(-a))
    start = falls * end
    moved = start - end
    left = min(
        max(1.0 + a * start - b * end - moved * moved, bid_ask_likelihood.MIN_VARIANCE), short
    )
    left = short * (1.0 - square / 30.0 - steep / 20.0) if few else left
    pulled = at * (1.0 - short * (1.0 - square / 30.0 - steep / 60.0))
    middle = pulled if few else min(max(moved, a), b)
    return mean + deviation * (-middle if turned else middle), variance * left
