"""Splines of every slice under given observations, compiled: :mod:`..prior.slice_offsets`.

Of the splines at a place four are not zero: variances are read off covariances of neighbours.

Shapes: L slices, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.prior import slice_offsets
from arbiter.operators.quick import dense

Indices = NDArray[np.int64]

_SIZES, _WILD = (np.array(x) for x in (slice_offsets.OFFSET_DEVIATIONS, slice_offsets.PRIOR_SCALES))
_MIDDLE = slice_offsets.PRIOR_SCALES.index(slice_offsets.INITIAL_PRIOR_SCALE)
_LOG_FAINT = math.log(slice_offsets.MIN_LIKELIHOOD_SHARE)
NEAR = 4  # splines that are not zero at a place


class Fan(NamedTuple):
    """Splines along strikes of all slices.

    Attributes:
        by: ``(d, R)`` what coefficients make of them.
        ends: ``(L + 1,)`` where those of each slice begin, and the last end.
    """

    by: Array
    ends: Indices


class Sums(NamedTuple):
    """As :class:`~arbiter.operators.prior.slice_offsets.Sums`, of one chain.

    Attributes:
        gram: ``(d, d)``, its lower half.
        side: ``(d,)``
        rows: ``(d, L)``
        mass: ``(L,)``
        level: ``(L,)``
    """

    gram: Array
    side: Array
    rows: Array
    mass: Array
    level: Array


class Left(NamedTuple):
    """What is left for the coefficients, levels solved for.

    Attributes:
        precision: ``(d, d)`` but for their prior's, its lower half; or its factor.
        side: ``(d,)``
        mass: ``(L,)`` precision of the levels, the coefficients given.
    """

    precision: Array
    side: Array
    mass: Array


class Belief(NamedTuple):
    """What is known of the splines of each slice.

    Attributes:
        mean: ``(R,)``
        near: ``(4, R)`` covariances with itself and the three that follow.
    """

    mean: Array
    near: Array


@compiled
def without_levels(sums: Sums, uneven: float) -> Left:
    """What is left under levels of a deviation."""
    d, L = sums.rows.shape
    mass, side = sums.mass + uneven**-2.0, sums.side.copy()
    lean = np.empty((d, L))
    for j in range(d):
        for each in range(L):
            lean[j, each] = sums.rows[j, each] / mass[each]
            side[j] -= lean[j, each] * sums.level[each]
    precision = np.empty((d, d))
    dense.products(sums.rows, lean, precision)
    for i in range(d):
        for j in range(i + 1):
            precision[i, j] = sums.gram[i, j] - precision[i, j]
    return Left(precision, side, mass)


@compiled
def solved(left: Left, wild: float) -> Left:
    """The same, factorised."""
    return Left(_factor(left.precision, wild), left.side, left.mass)


@compiled
def _factor(precision: Array, wild: float) -> Array:
    factor = precision.copy()
    for j in range(len(factor)):
        factor[j, j] += wild**-2.0
    dense.factorise(factor)
    return factor


@compiled
def _explained(factor: Array, side: Array) -> float:
    """Half of what a side explains under a precision so factorised, less half its log-volume."""
    solved, found = side.copy(), 0.0
    dense.forward(factor, solved)
    for j in range(solved.size):
        found += 0.5 * solved[j] ** 2 + math.log(factor[j, j])  # a reciprocal
    return found


@compiled
def likeliest(sums: Sums) -> tuple[float, float, Left]:
    """As :func:`..prior.slice_offsets.likeliest`, and what is left then, factorised."""
    uneven = _likeliest_level(sums)
    left = without_levels(sums, uneven)
    d, count = len(sums.rows), _WILD.size
    height, best, factor, found = np.full(count, -np.inf), -np.inf, left.precision, 0
    for way in (0, -1, 1):  # the middle, then down, then up, as far as a value counts
        at = _MIDDLE + way
        while 0 <= at < count:
            trial = _factor(left.precision, _WILD[at])
            height[at] = _explained(trial, left.side) - d * math.log(_WILD[at])
            if height[at] > best:
                best, factor, found = height[at], trial, at
            if way == 0 or not height[at] - best > _LOG_FAINT:
                break
            at += way
    share = shares(height)
    if share[found] == 1.0:
        return uneven, _WILD[found], Left(factor, left.side, left.mass)
    wild = math.exp(np.sum(share * np.log(_WILD)))
    return uneven, wild, solved(left, wild)


@compiled
def shares(score: Array) -> Array:
    """As :func:`..prior.slice_offsets.shares`, of one chain."""
    best = -np.inf
    for each in score:
        best = max(best, each)
    weight = np.empty_like(score)
    for i in range(score.size):
        weight[i] = max(math.exp(score[i] - best) - slice_offsets.MIN_LIKELIHOOD_SHARE, 0.0)
    return weight / np.sum(weight)


@compiled
def _likeliest_level(sums: Sums) -> float:
    """The size of levels, a mean by how likely they make the observations.

    Coefficients are solved for instead of the levels, once for all sizes.
    """
    d, L = sums.rows.shape
    factor, rows, side = (
        _factor(sums.gram, slice_offsets.INITIAL_PRIOR_SCALE),
        sums.rows.copy(),
        sums.side.copy(),
    )
    dense.forward_all(factor, rows)
    dense.forward(factor, side)
    precision, level, turned = np.empty((L, L)), sums.level.copy(), np.ascontiguousarray(rows.T)
    dense.products(turned, turned, precision)
    for each in range(L):
        for j in range(d):
            level[each] -= turned[each, j] * side[j]
        for other in range(each + 1):
            precision[each, other] = -precision[each, other]
        precision[each, each] += sums.mass[each]
    height = np.empty(_SIZES.size)
    for i in range(_SIZES.size):
        height[i] = _explained(_factor(precision, _SIZES[i]), level) - L * math.log(_SIZES[i])
    return math.exp(np.sum(shares(height) * np.log(_SIZES)))


@compiled
def believed(fan: Fan, sums: Sums, solved: Left) -> Belief:
    """The splines of each slice after observations."""
    d, R = fan.by.shape
    factor, side, mass = solved.precision, solved.side.copy(), solved.mass
    dense.solve(factor, side)
    mean, near, freed = np.empty(R), np.empty((NEAR, R)), np.empty((d, R))
    own, lean = np.empty(R, np.int64), np.empty(mass.size)
    for each in range(mass.size):
        level = sums.level[each]
        for j in range(d):
            level -= sums.rows[j, each] * side[j]
        for r in range(fan.ends[each], fan.ends[each + 1]):
            mean[r], own[r] = level / mass[each], each
            for off in range(NEAR):
                near[off, r] = 1.0 / mass[each]
    for j in range(d):
        row, loose, by = fan.by[j], freed[j], side[j]
        for each in range(mass.size):
            lean[each] = sums.rows[j, each] / mass[each]
        for r in range(R):
            loose[r] = row[r] - lean[own[r]]
        for r in range(R):
            mean[r] += row[r] * by
    dense.forward_all(factor, freed)
    for j in range(d):
        for off in range(NEAR):
            for r in range(R - off):
                near[off, r] += freed[j, r] * freed[j, r + off]
    return Belief(mean, near)
