"""A function by splines of every slice under given observations, compiled: :mod:`..levels`.

Of the splines at a place four are not zero: variances are read off covariances of neighbours.

Shapes: L slices, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.operators import levels
from arbiter.operators.quick import dense

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SIZES, _WILD = (np.array(x) for x in (levels.SIZES, levels.WILD))
_MIDDLE = levels.WILD.index(levels._UNDECIDED)
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
    """As :class:`~arbiter.operators.levels.Sums`, of one chain.

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
    """As :func:`arbiter.operators.levels.likeliest`, and what is left then, factorised."""
    d, L = sums.rows.shape
    uneven, best = _likeliest_level(sums)
    left = without_levels(sums, uneven)
    common = 0.0
    for each in range(L):
        mass = left.mass[each]
        common += 0.5 * (sums.level[each] ** 2 / mass - math.log(mass * uneven**2))
    at, factor = _MIDDLE, left.precision
    for way in (-1, 1):
        while at == _MIDDLE or (at > _MIDDLE) == (way > 0):
            if not 0 <= at + way < _WILD.size:
                break
            wild = _WILD[at + way]
            trial = _factor(left.precision, wild)
            found = common + _explained(trial, left.side) - d * math.log(wild)
            if not found > best:
                break
            best, at, factor = found, at + way, trial
    if at == _MIDDLE:
        factor = _factor(left.precision, _WILD[at])
    return uneven, _WILD[at], Left(factor, left.side, left.mass)


@compiled
def _likeliest_level(sums: Sums) -> tuple[float, float]:
    """The size of levels under which observations are likeliest, and how likely they are.

    Coefficients are solved for instead of the levels, once for all sizes.
    """
    d, L = sums.rows.shape
    wild = _WILD[_MIDDLE]
    factor, rows, side = _factor(sums.gram, wild), sums.rows.copy(), sums.side.copy()
    common = _explained(factor, side) - d * math.log(wild)
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
    best, uneven = -np.inf, _SIZES[0]
    for size in _SIZES:
        found = common + _explained(_factor(precision, size), level) - L * math.log(size)
        if found > best:
            best, uneven = found, size
    return uneven, best


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
