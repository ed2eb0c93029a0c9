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

Shapes: L slices, R splines along strikes of all slices, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.matrix_products import multiply
from arbiter.operators.prior import small_matrices

OFFSET_DEVIATIONS = (3e-4, 3e-3, 0.012, 0.04)  # s, in log-volatility
PRIOR_SCALES = (0.5, 1.0, 2.0, 4.0, 8.0)  # τ
INITIAL_PRIOR_SCALE = 2.0  # τ while s is looked for
MIN_LIKELIHOOD_SHARE = 0.01  # likelihoods this far below the largest count for nothing
NEAR = 4  # splines that are not zero at a place
_LOG_MIN_SHARE = math.log(MIN_LIKELIHOOD_SHARE)


class SplineRows(NamedTuple):
    """Splines along strikes of all slices.

    Attributes:
        by: ``(d, R)`` what coefficients make of them.
        ends: ``(L + 1,)`` where those of each slice begin, and the last end.
    """

    by: Array
    ends: Indices


class Sums(NamedTuple):
    """What observations come to: W their weights, y their values.

    Attributes:
        gram: ``(d, d)`` ``ΦᵀWΦ``.
        side: ``(d,)`` ``ΦᵀWy``.
        rows: ``(d, L)`` ``ΦᵀW1`` of each slice.
        mass: ``(L,)`` ``1ᵀW1`` of each slice.
        level: ``(L,)`` ``1ᵀWy`` of each slice.
    """

    gram: Array
    side: Array
    rows: Array
    mass: Array
    level: Array


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
    precision, side, mass = _eliminate_levels(sums, prior.uneven)
    _evaluate(precision, prior.wild, side, precision)  # which leaves its factor
    mean, near = np.empty(fan.by.shape[1]), np.empty((NEAR, fan.by.shape[1]))
    _fill_belief(fan, sums, (precision, side, mass), Belief(mean, near))
    return Belief(mean, near)


def likeliest(sums: Sums) -> Prior:
    """Means of :data:`OFFSET_DEVIATIONS` and :data:`PRIOR_SCALES`, weighed by likelihood.

    Scales are tried from the middle down, then up, as far as one counts.
    """
    uneven = _find_offset_deviation(sums)
    precision, side, _ = _eliminate_levels(sums, uneven)
    d, room = side.size, np.empty_like(precision)
    middle = PRIOR_SCALES.index(INITIAL_PRIOR_SCALE)
    height = np.full(len(PRIOR_SCALES), -np.inf)
    for way in (
        range(middle, middle + 1),
        range(middle - 1, -1, -1),
        range(middle + 1, len(height)),
    ):
        for i in way:
            scale = PRIOR_SCALES[i]
            height[i] = _evaluate(precision, scale, side, room) - d * math.log(scale)
            if not height[i] - height.max() > _LOG_MIN_SHARE:
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
    return math.exp(float(shares(score) @ np.log(values)))


def _find_offset_deviation(sums: Sums) -> float:
    """The size of levels. Coefficients are solved for instead of the levels, once for all sizes."""
    factor, rows, side = sums.gram.copy(), sums.rows.copy(), sums.side.copy()
    factor.ravel()[:: side.size + 1] += INITIAL_PRIOR_SCALE**-2.0
    small_matrices.factorise(factor)
    small_matrices.forward_all(factor, rows)
    small_matrices.forward(factor, side)
    precision = np.diag(sums.mass) - multiply(rows.T, rows)
    level, room = sums.level - (rows * side[:, None]).sum(0), np.empty_like(precision)
    height = [
        _evaluate(precision, size, level, room) - level.size * math.log(size)
        for size in OFFSET_DEVIATIONS
    ]
    return _average(OFFSET_DEVIATIONS, np.array(height))


def _eliminate_levels(sums: Sums, uneven: float) -> tuple[Array, Array, Array]:
    """What is left for the coefficients under levels of a deviation, without their own prior.

    Precision ``(d, d)``, side ``(d,)``, and the precision ``(L,)`` of the levels,
    the coefficients given.
    """
    mass = sums.mass + uneven**-2.0
    lean = sums.rows / mass
    return sums.gram - multiply(sums.rows, lean.T), sums.side - (lean * sums.level).sum(1), mass


@compiled
def _evaluate(precision: Array, scale: float, side: Array, factor: Array) -> float:
    """Half of what a side explains under a precision with a prior, less half its log-volume.

    ``factor`` is filled with Cholesky's factor, and may be the precision itself.
    """
    d, found, solved = side.size, 0.0, side.copy()
    for i in range(d):
        for j in range(i, d):
            factor[i, j] = precision[i, j]
        factor[i, i] += scale**-2.0
    small_matrices.factorise(factor)
    small_matrices.forward(factor, solved)
    for j in range(d):
        found += 0.5 * solved[j] ** 2 + math.log(factor[j, j])  # a reciprocal
    return found


@compiled
def _fill_belief(
    fan: SplineRows, sums: Sums, solved: tuple[Array, Array, Array], belief: Belief
) -> None:
    """The splines of each slice, from the factor, side and mass that are left."""
    (d, R), (factor, given, mass), (mean, near) = fan.by.shape, solved, belief
    side = given.copy()
    small_matrices.solve(factor, side)
    own, lean, freed = np.empty(R, np.int64), np.empty(mass.size), np.empty((d, R))
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
    small_matrices.forward_all(factor, freed)
    for j in range(d):
        for off in range(NEAR):
            for r in range(R - off):
                near[off, r] += freed[j, r] * freed[j, r + off]
