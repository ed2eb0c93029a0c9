"""What quotes say: the truth is between bid and ask. Expectation propagation for that.

A function f (:mod:`arbiter.operators.prior.slice_offsets`) is seen at N quotes, each an interval
``u ± h`` that holds f plus a small Gaussian error. Taking mids for Gaussian observations forgets
that an interval has ends: the average of n uniform errors shrinks with √n, the middle of what n
intervals have in common with n. Expectation propagation keeps for every quote the Gaussian site
``(weight, centre)`` that has the moments of its interval under what all other quotes say (its
cavity), all quotes at once. One round is within 2 % of the fixed point
(docs/operator-architecture.md).

Mids may be far better than their spreads, or have Gaussian errors: of a few laws a mean is taken,
each weighed by how well the quotes predict each other under it. How large the error is beside it
the chain says too: by how far a first, Gaussian guess lies outside the intervals, in root mean
square. It is what the basis cannot follow, or what is wrong with quotes.

Of the cubic splines at a quote four are not zero: sums over the quotes of a slice are those of a
few products. Splines beyond a slice's quotes have no part in it before the end, when all are asked
for.

Shapes: L slices, N quotes of a chain, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.matrix_products import multiply
from arbiter.operators.prior.slice_offsets import (
    NEAR,
    Belief,
    SplineRows,
    Sums,
    believed,
    likeliest,
    shares,
)
from arbiter.pricing.elementary import exp, tail
from arbiter.pricing.normal import cdf_of, mills

ROUNDS = 1
MID_VARIANCE_SHARE = 0.4  # of the squared half-spread: the variance of a mid, at first
INITIAL_ERROR = 5e-3  # error assumed at first
MIN_ERROR = 1e-3  # error that there always is
# Laws of a mid's error, in half-spreads: how far it reaches, evenly, and a Gaussian blur beside it.
MID_ERROR_LAWS = (
    *((reach, 0.05 * reach) for reach in (1.0, 0.6, 0.35, 0.2)),
    *((0.02, blur) for blur in (0.577, 0.35, 0.2, 0.1)),
)
MIN_DENSITY = 1e-12  # density of a quote that no law expects
SHORT_INTERVAL_SD = 0.1  # of an interval, in deviations
MIN_VARIANCE = 1e-16
MIN_SITE_PRECISION, MIN_CAVITY_PRECISION = (
    1e-9,
    1e-12,
)  # precisions of a site, and of what the others say
_LAWS = np.array(MID_ERROR_LAWS)


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


def posterior(fan: SplineRows, quotes: Quoted) -> Belief:
    """What intervals say of the splines of each slice."""
    u, half = quotes.u, quotes.half
    weight, centre = 1.0 / (MID_VARIANCE_SHARE * half * half + INITIAL_ERROR**2), u
    asked, near = _select_splines(fan, quotes)
    inside = Quoted(quotes.ends, near, u, half)
    sums = _sum_observations(asked, inside, weight, centre)
    prior = likeliest(sums)
    value, variance = np.empty(u.size), np.empty(u.size)
    reach = blur = error = 0.0
    for turn in range(ROUNDS):
        read(believed(asked, sums, prior), near, value, variance)
        if turn == 0:
            beyond = np.maximum(np.abs(u - value) - half, 0.0)
            error = math.sqrt(float(beyond @ beyond) / max(u.size, 1) + MIN_ERROR**2)
        guess, alone = _cavity(value, variance, weight, centre)
        if turn == 0:
            reach, blur = average_error_laws(u - guess, alone + error**2, half)
        weight, centre = np.empty(u.size), np.empty(u.size)
        _fill_sites((guess, alone), (u, half), (reach, blur, error), weight, centre)
        sums = _sum_observations(asked, inside, weight, centre)
    return believed(fan, sums, prior)


def _cavity(value: Array, variance: Array, weight: Array, centre: Array) -> tuple[Array, Array]:
    """Mean and variance of f at each quote by what all others say."""
    precision = 1.0 / np.maximum(variance, MIN_VARIANCE)
    alone = 1.0 / np.maximum(precision - weight, MIN_CAVITY_PRECISION)
    return alone * (value * precision - weight * centre), alone


def _select_splines(fan: SplineRows, quotes: Quoted) -> tuple[SplineRows, Near]:
    """Of the splines of each slice those from the first to the last at a quote.

    Numbers of splines at the quotes are those among all that are left then.
    """
    ends, left = quotes.ends, quotes.near.left
    count = np.diff(ends)
    some = np.flatnonzero(count)
    low, size = np.zeros(count.size, np.int64), np.zeros(count.size, np.int64)
    low[some] = np.minimum.reduceat(left, ends[some])
    size[some] = np.maximum.reduceat(left, ends[some]) + NEAR - low[some]
    begin = np.concatenate([np.zeros(1, np.int64), np.cumsum(size)])
    first = fan.ends[:-1] + low - begin[:-1]
    source = np.arange(begin[-1]) + np.repeat(first, size)
    near = Near(left + np.repeat(begin[:-1] - low, count), quotes.near.basis)
    return SplineRows(np.take(fan.by, source, axis=1), begin), near


def _sum_observations(fan: SplineRows, quotes: Quoted, weight: Array, centre: Array) -> Sums:
    """What observations of given weights come to."""
    (d, R), L = fan.by.shape, quotes.ends.size - 1
    loaded, none = np.empty((d, R)), np.empty((0, 0))
    found = Sums(none, np.empty(d), np.zeros((d, L)), np.empty(L), np.empty(L))
    _fill_sums(fan, quotes, (weight, centre), loaded, found)
    some = np.flatnonzero(np.diff(fan.ends))
    found.rows[:, some] = np.add.reduceat(loaded, fan.ends[some], axis=1)  # splines add up to one
    return found._replace(gram=np.asarray(multiply(fan.by, loaded.T), dtype=np.float64))


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
def _fill_sums(
    fan: SplineRows, quotes: Quoted, sites: tuple[Array, Array], loaded: Array, out: Sums
) -> None:
    """Sums that are not those of ``loaded``, which is what coefficients make of the quotes."""
    (d, R), (weight, centre) = fan.by.shape, sites
    near, said = np.zeros((NEAR, R)), np.zeros(R)
    for each in range(quotes.ends.size - 1):
        mass = level = 0.0
        for i in range(quotes.ends[each], quotes.ends[each + 1]):
            w, y = weight[i], weight[i] * centre[i]
            mass += w
            level += y
            for a in range(NEAR):
                at, part = quotes.near.left[i] + a, quotes.near.basis[i, a]
                said[at] += y * part
                for b in range(a, NEAR):
                    near[b - a, at] += w * part * quotes.near.basis[i, b]
        out.mass[each], out.level[each] = mass, level
    for j in range(d):
        _load(fan.by[j], near, loaded[j])
    for j in range(d):
        row, found = fan.by[j], 0.0
        for r in range(R):
            found += said[r] * row[r]
        out.side[j] = found


@compiled
def _load(x: Array, near: Array, loaded: Array) -> None:
    """A row x times a symmetric matrix of few diagonals."""
    a, b, c, d, R = near[0], near[1], near[2], near[3], x.size
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


def average_error_laws(off: Array, variance: Array, half: Array) -> tuple[float, float]:
    """Reach and blur, means of the laws by how well the others predict each quote under them.

    Args:
        off: ``(N,)`` quotes less what the others say.
        variance: ``(N,)`` of the latter, with that of a Gaussian error.
        half: ``(N,)`` half the lengths of the intervals.
    """
    reach, blur = _LAWS[:, 0, None] * half, _LAWS[:, 1, None] * half  # (K, N)
    per, near = 1.0 / np.sqrt(variance + blur * blur), np.abs(off)
    mass = cdf_of((reach - near) * per) - cdf_of(-(reach + near) * per)
    score = np.log(np.maximum(mass / (2.0 * reach), MIN_DENSITY)).sum(1)
    share = shares(score)
    return float(share @ _LAWS[:, 0]), float(share @ _LAWS[:, 1])


@compiled
def _fill_sites(
    cavity: tuple[Array, Array],
    quotes: tuple[Array, Array],
    law: tuple[float, float, float],
    weight: Array,
    centre: Array,
) -> None:
    """Weight and centre of the site that has the moments of each interval under its cavity."""
    (guess, alone), (u, half), (reach, blur, error) = cavity, quotes, law
    for i in range(u.size):
        far, own = reach * half[i], (blur * half[i]) ** 2 + error**2
        wide = alone[i] + own
        middle, spread = truncated(guess[i], wide, u[i] - far, u[i] + far)
        spread = max(spread, MIN_VARIANCE)
        sharp = max(1.0 / spread - 1.0 / wide, MIN_SITE_PRECISION)
        centre[i] = (middle / spread - guess[i] / wide) / sharp
        weight[i] = 1.0 / (1.0 / sharp + own)


@compiled
def truncated(mean: float, variance: float, low: float, high: float) -> tuple[float, float]:
    """Mean and variance of a normal variable between two ends, however far out these are."""
    deviation = math.sqrt(variance)
    a, b = (low - mean) / deviation, (high - mean) / deviation
    turned = a + b > 0.0
    a, b = (-b if turned else a), (-a if turned else b)
    width, at = b - a, 0.5 * (a + b)
    square, steep = width * width, (at * width) ** 2
    short = square / 12.0
    few = width * (1.0 + abs(at)) < SHORT_INTERVAL_SD
    # densities at both ends over the mass between: e^{(b² − a²)/2} is at most one
    falls = exp(at * width)
    end = 1.0 / (mills(-b) - falls * tail(-a))
    start = falls * end
    moved = start - end
    left = min(max(1.0 + a * start - b * end - moved * moved, MIN_VARIANCE), short)
    left = short * (1.0 - square / 30.0 - steep / 20.0) if few else left
    pulled = at * (1.0 - short * (1.0 - square / 30.0 - steep / 60.0))
    middle = pulled if few else min(max(moved, a), b)
    return mean + deviation * (-middle if turned else middle), variance * left
