"""What quotes say: the truth is between bid and ask. Expectation propagation for that.

A function f (:mod:`arbiter.operators.prior.slice_offsets`) is seen at N quotes, each an interval
``u ± h`` that holds f plus a small Gaussian error. Taking mids for Gaussian observations forgets
that an interval has ends: the average of n uniform errors shrinks with √n, the middle of what n
intervals have in common with n. Expectation propagation keeps for every quote the Gaussian site
``(weight, centre)`` that has the moments of its interval under what all other quotes say (its
cavity), all quotes at once. One round is within 2 % of the fixed point
(docs/notebook/operator.md).

Mids may be far better than their spreads, or have Gaussian errors: of a few laws a mean is taken,
each weighed by how well the quotes predict each other under it. How large the error is beside it
the chain says too: by how far a first, Gaussian guess lies outside the intervals, in root mean
square. It is what the basis cannot follow, or what is wrong with quotes.

Of the cubic splines at a quote four are not zero: sums over the quotes of a slice are those of a
few products.

Shapes: L slices, N quotes of a chain, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array, Indices
from arbiter.operators.prior.slice_offsets import (
    BESIDE,
    NEAR,
    Belief,
    SplineRows,
    Sums,
    believed,
    likeliest,
    shares,
)
from arbiter.operators.prior.small_matrices import add_products, combine
from arbiter.pricing.elementary import exp, tail
from arbiter.pricing.normal import cdf, mills

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
        near: ``(N,)`` splines along strikes.
        u: ``(N,)`` middles of the intervals.
        half: ``(N,)`` half their lengths.
    """

    near: Near
    u: Array
    half: Array


def posterior(fan: SplineRows, asked: SplineRows, quotes: Quoted) -> Belief:
    """What intervals say of the splines of each slice.

    Args:
        fan: All splines.
        asked: Those that the quotes are between: no other has a part in it before the end.
        quotes: Whose splines are those that are asked.
    """
    u, half = quotes.u, quotes.half
    weight, centre = 1.0 / (MID_VARIANCE_SHARE * half * half + INITIAL_ERROR**2), u
    sums = _sum_observations(asked, quotes, weight, centre)
    prior = likeliest(sums)
    reach = blur = error = 0.0
    for turn in range(ROUNDS):
        value, variance = read(believed(asked, sums, prior), quotes.near)
        if turn == 0:
            beyond = np.maximum(np.abs(u - value) - half, 0.0)
            error = math.sqrt((beyond * beyond).sum() / max(u.size, 1) + MIN_ERROR**2)
        guess, alone = _cavity(value, variance, weight, centre)
        if turn == 0:
            reach, blur = average_error_laws(u - guess, alone + error**2, half)
        weight, centre = np.empty(u.size), np.empty(u.size)
        _fill_sites(guess, alone, u, half, (reach, blur, error), weight, centre)
        sums = _sum_observations(asked, quotes, weight, centre)
    return believed(fan, sums, prior)


def _cavity(value: Array, variance: Array, weight: Array, centre: Array) -> tuple[Array, Array]:
    """Mean and variance of f at each quote by what all others say."""
    precision = 1.0 / np.maximum(variance, MIN_VARIANCE)
    alone = 1.0 / np.maximum(precision - weight, MIN_CAVITY_PRECISION)
    return alone * (value * precision - weight * centre), alone


def _sum_observations(fan: SplineRows, quotes: Quoted, weight: Array, centre: Array) -> Sums:
    """What observations of given weights come to."""
    (R, d), count = fan.by.shape, np.diff(fan.ends)
    band, loaded = np.zeros((R, 2 * NEAR)), np.zeros((R, d + BESIDE))
    _weigh_splines(*quotes.near, weight, centre, band, loaded)
    combine(fan.by, np.arange(1 - NEAR, R + 1 - NEAR), band, loaded)
    gram, rows = np.zeros((1, d, d + BESIDE)), np.empty((count.size, d + BESIDE))
    add_products(fan.by[None], loaded[None], gram)
    some = np.arange(NEAR * -(-count.max() // NEAR))  # splines add up to one: so do their sums
    combine(loaded, fan.ends[:-1], (some < count[:, None]).astype(np.float64), rows)
    return Sums(gram[0], rows, rows[:, d + 1].copy())


@compiled
def _weigh_splines(
    left: Indices, basis: Array, weight: Array, centre: Array, band: Array, loaded: Array
) -> None:
    """Weights of products of splines, of each with those from the third before it.

    Beside ``loaded``: of each alone with what is observed, and of each alone.
    """
    side = loaded.shape[1] - BESIDE
    for i in range(left.size):
        for a in range(NEAR):
            at, part = left[i] + a, weight[i] * basis[i, a]
            loaded[at, side] += part * centre[i]
            loaded[at, side + 1] += part
            for b in range(NEAR):
                band[at, NEAR - 1 + b - a] += part * basis[i, b]


def read(belief: Belief, near: Near) -> tuple[Array, Array]:
    """Mean and variance at places, numbers of splines being those among all slices."""
    mean, variance = np.empty(near.left.size), np.empty(near.left.size)
    _fill_moments(belief.mean, belief.near, near.left, near.basis, mean, variance)
    return mean, variance


@compiled
def _fill_moments(
    known: Array, near: Array, left: Indices, basis: Array, mean: Array, variance: Array
) -> None:
    for i in range(left.size):
        mean[i] = variance[i] = 0.0
        for a in range(NEAR):
            at = left[i] + a
            mean[i] += basis[i, a] * known[at]
            part = basis[i, a] * near[0, at]
            for b in range(a + 1, NEAR):
                part += 2.0 * basis[i, b] * near[b - a, at]
            variance[i] += basis[i, a] * part


def average_error_laws(off: Array, variance: Array, half: Array) -> tuple[float, float]:
    """Reach and blur, means of the laws by how well the others predict each quote under them.

    Args:
        off: ``(N,)`` quotes less what the others say.
        variance: ``(N,)`` of the latter, with that of a Gaussian error.
        half: ``(N,)`` half the lengths of the intervals.
    """
    density = np.empty((len(_LAWS), off.size))
    _fill_densities(off, variance, half, _LAWS, density)
    found = (shares(np.log(density).sum(1))[:, None] * _LAWS).sum(0)
    return float(found[0]), float(found[1])


@compiled
def _fill_densities(off: Array, variance: Array, half: Array, laws: Array, density: Array) -> None:
    """Densities of quotes under each law."""
    for law in range(len(laws)):
        row = density[law]
        for i in range(off.size):
            reach, blur, near = laws[law, 0] * half[i], laws[law, 1] * half[i], abs(off[i])
            per = 1.0 / math.sqrt(variance[i] + blur * blur)
            mass = cdf((reach - near) * per) - cdf(-(reach + near) * per)
            row[i] = max(mass / (2.0 * reach), MIN_DENSITY)


@compiled
def _fill_sites(
    guess: Array,
    alone: Array,
    u: Array,
    half: Array,
    law: tuple[float, float, float],
    weight: Array,
    centre: Array,
) -> None:
    """Weight and centre of the site that has the moments of each interval under its cavity."""
    reach, blur, error = law
    for i in range(u.size):
        far, own = reach * half[i], (blur * half[i]) ** 2 + error**2
        wide = alone[i] + own
        middle, spread = truncated(guess[i], wide, u[i] - far, u[i] + far)
        spread = max(spread, MIN_VARIANCE)
        sharp = max(1.0 / spread - 1.0 / wide, MIN_SITE_PRECISION)
        centre[i] = (middle / spread - guess[i] / wide) / sharp
        weight[i] = 1.0 / (1.0 / sharp + own)


@inlined
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
