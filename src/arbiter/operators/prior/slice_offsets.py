"""Linear regression in which every slice also has a level of its own.

A function is ``f = Φ a + δ`` with ``a ~ N(0, τ² I)`` and one ``δ ~ N(0, s²)`` for each slice: the
clock of a listed market jumps over weekends and runs through reports, which moves the volatilities
of one expiry alone, and no smooth function of maturity follows. Under observations of given weights
the levels can be solved for slice by slice, which leaves a problem of the size of a (Schur's
complement): rows of a slice lose their weighted mean, and the slice's variance is added.

How far levels stray, s, and how wild the surface is, τ, are the chain's own: means of a few
values, each weighed by how likely the observations are under it. The likeliest alone would do as
well on most chains, and would let a surface jump where two are equally likely: so every choice here
moves with the quotes. Model surfaces have no levels to speak of, and a few of them are many times
as wild as most.

Of the splines at a place four are not zero: variances are read off covariances of neighbours.

A side is kept as a column beside its matrix, and splines as further ones: one sweep of Cholesky's
method then solves for all of them.

Shapes: L slices, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.prior.small_matrices import add_products, diagonals, factorise

OFFSET_DEVIATIONS = (3e-4, 3e-3, 0.012, 0.04)  # s, in log-volatility
PRIOR_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)  # τ
INITIAL_PRIOR_SCALE = 2.0  # τ while s is looked for
MIN_LIKELIHOOD_SHARE = 0.01  # likelihoods this far below the largest count for nothing
NEAR = 4  # splines that are not zero at a place
_LOG_MIN_SHARE = math.log(MIN_LIKELIHOOD_SHARE)
BESIDE = 8  # columns beside a matrix, as wide as registers: the first is its side


class SplineRows(NamedTuple):
    """Splines along strikes of all slices.

    Attributes:
        by: ``(R, d)`` what coefficients make of them.
        ends: ``(L + 1,)`` where those of each slice begin, and the last end.
    """

    by: Array
    ends: Indices


class Sums(NamedTuple):
    """What observations come to: W their weights, y their values.

    Attributes:
        gram: ``(d, d + 8)`` the upper half of ``ΦᵀWΦ``, and in the next column ``ΦᵀWy``.
        rows: ``(L, d + 8)`` ``1ᵀWΦ`` of each slice, and in the next column ``1ᵀWy``.
        mass: ``(L,)`` ``1ᵀW1`` of each slice.
    """

    gram: Array
    rows: Array
    mass: Array


class Prior(NamedTuple):
    """What is assumed of a chain.

    Attributes:
        uneven: s, the deviation of levels.
        wild: τ, the deviation of coefficients.
    """

    uneven: float
    wild: float


class Belief(NamedTuple):
    """What is known of the splines of each slice.

    Attributes:
        mean: ``(R,)``
        near: ``(4, R)`` covariances with itself and the three that follow.
    """

    mean: Array
    near: Array


def believed(fan: SplineRows, sums: Sums, prior: Prior) -> Belief:
    """The splines of each slice after observations."""
    precision, mass = _eliminate_levels(sums, prior.uneven)
    (d, wide), R = precision.shape, len(fan.by)
    lean, system = sums.rows / mass[:, None], np.zeros((1, d, wide + R + -R % BESIDE))
    system[0, :, :wide] = precision
    diagonals(system)[...] += prior.wild**-2.0
    _lay_splines(fan.by, fan.ends, lean, system[0])
    factorise(system)
    found = Belief(np.empty(R), np.empty((NEAR, R)))
    _fill_belief(system[0], fan.ends, lean[:, d] + 0.0, 1.0 / mass, found.mean, found.near)
    return found


def likeliest(sums: Sums) -> Prior:
    """Means of :data:`OFFSET_DEVIATIONS` and :data:`PRIOR_SCALES`, weighed by likelihood.

    Scales are tried from the middle down, then up, as far as one counts.
    """
    uneven = _find_offset_deviation(sums)
    precision, _ = _eliminate_levels(sums, uneven)
    middle, height = PRIOR_SCALES.index(INITIAL_PRIOR_SCALE), np.full(len(PRIOR_SCALES), -np.inf)
    height[middle - 1 : middle + 2] = _evaluate(precision, PRIOR_SCALES[middle - 1 : middle + 2])
    most = height[middle]
    for way in (range(middle - 1, -1, -1), range(middle + 1, height.size)):
        for i in way:
            if abs(i - middle) > 1:
                height[i] = _evaluate(precision, PRIOR_SCALES[i : i + 1])[0]
            most = max(most, height[i])
            if not height[i] - most > _LOG_MIN_SHARE:
                break
    return Prior(uneven, _average(PRIOR_SCALES, height))


def shares(score: Array) -> Array:
    """What each counts for, of log-likelihoods ``(K,)``; they add up to one.

    Likelihoods less :data:`MIN_LIKELIHOOD_SHARE` of the largest: what is far from likely need not
    be looked at, and nothing jumps.
    """
    weight = np.maximum(np.exp(score - score.max()) - MIN_LIKELIHOOD_SHARE, 0.0)
    return np.asarray(weight / weight.sum())


def _average(values: tuple[float, ...], score: Array) -> float:
    """The geometric mean of values by their log-likelihoods."""
    return math.exp(float((shares(score) * np.log(values)).sum()))


def _find_offset_deviation(sums: Sums) -> float:
    """The size of levels. Coefficients are solved for instead of the levels, once for all sizes."""
    d, L = len(sums.gram), sums.mass.size
    count = L + -L % BESIDE
    system = np.zeros((1, d, d + count + BESIDE))
    gram, rows, side = (system[0, :, i:] for i in (0, d, d + count))
    gram[:, :d], rows[:, :L], side[:, 0] = sums.gram[:, :d], sums.rows[:, :d].T, sums.gram[:, d]
    diagonals(system)[...] += INITIAL_PRIOR_SCALE**-2.0
    factorise(system)
    solved = np.ascontiguousarray(system[:, :, d:])
    precision = np.zeros((1, count, count + BESIDE))
    add_products(solved, solved, precision)
    np.negative(precision, out=precision)
    diagonals(precision)[0, :L] += sums.mass
    precision[0, :L, count] += sums.rows[:, d]
    return _average(OFFSET_DEVIATIONS, _evaluate(precision[0], OFFSET_DEVIATIONS))


def _eliminate_levels(sums: Sums, uneven: float) -> tuple[Array, Array]:
    """What is left for the coefficients under levels of a deviation, without their own prior.

    Precision and side ``(d, d + 8)``, and the precision ``(L,)`` of the levels, the coefficients
    given.
    """
    mass, left = sums.mass + uneven**-2.0, sums.gram[None].copy()
    add_products((sums.rows / -mass[:, None])[None], sums.rows[None], left)
    return left[0], mass


def _evaluate(precision: Array, scales: tuple[float, ...]) -> Array:
    """``(K,)`` log-likelihoods of scales of the prior, from a precision without it and its side.

    Half of what the side explains, less half the log-volume.
    """
    n, scale = len(precision), np.array(scales)
    stack = np.repeat(precision[None], scale.size, 0)
    diagonal = diagonals(stack)
    diagonal += scale[:, None] ** -2.0
    factorise(stack)
    explained = 0.5 * (stack[:, :, n] ** 2).sum(1)
    return np.asarray(explained + np.log(diagonal).sum(1) - n * np.log(scale))


@compiled
def _lay_splines(by: Array, ends: Indices, lean: Array, system: Array) -> None:
    """The splines of each slice as further columns, without what their level takes."""
    d, first = by.shape[1], by.shape[1] + BESIDE
    for each in range(ends.size - 1):
        for r in range(ends[each], ends[each + 1]):
            for j in range(d):
                system[j, first + r] = by[r, j] - lean[each, j]


@compiled
def _fill_belief(
    system: Array, ends: Indices, level: Array, loose: Array, mean: Array, near: Array
) -> None:
    """The splines of each slice, from their columns and the side, both solved for."""
    d, R, first = len(system), mean.size, len(system) + BESIDE
    for each in range(level.size):
        for r in range(ends[each], ends[each + 1]):
            mean[r] = level[each]
            for off in range(NEAR):
                near[off, r] = loose[each]
    for j in range(0, d, 4):
        a, b, c, w = system[j, d], system[j + 1, d], system[j + 2, d], system[j + 3, d]
        e, f = system[j, first : first + R], system[j + 1, first : first + R]
        g, h = system[j + 2, first : first + R], system[j + 3, first : first + R]
        for r in range(R):
            mean[r] += (a * e[r] + b * f[r]) + (c * g[r] + w * h[r])
        for off in range(min(NEAR, R)):
            row, p, q, s, t = near[off], e[off:], f[off:], g[off:], h[off:]
            for r in range(p.size):
                row[r] += (e[r] * p[r] + f[r] * q[r]) + (g[r] * s[r] + h[r] * t[r])
