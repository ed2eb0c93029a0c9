"""What the quotes of one chain say, in one row and compiled: :mod:`..intervals`, :mod:`..levels`.

Of the cubic splines at a quote four are not zero: sums over the quotes of a slice are those of a
few products, and variances are read off covariances of neighbouring splines.

Shapes: L slices, N quotes, NZ splines along strikes, R = L·NZ, d coefficients.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter import normal
from arbiter.compiled import compiled
from arbiter.operators import intervals, levels
from arbiter.operators.quick import dense, scalars

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SIZES, _WILD, _LAWS = (np.array(x) for x in (levels.SIZES, levels.WILD, intervals._LAWS))
_NEAR = 4  # splines that are not zero at a place
_TOGETHER = 16  # densities of one logarithm


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


class _Sums(NamedTuple):
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


class Belief(NamedTuple):
    """What is known of the splines of each slice, R = L·NZ of them.

    Attributes:
        mean: ``(R,)``
        near: ``(4, R)`` covariances with itself and the three that follow.
    """

    mean: Array
    near: Array


@compiled
def posterior(splines: Array, quotes: Quoted) -> Belief:
    """What intervals say of the splines of each slice, of coefficients by ``(d, R)``."""
    count = quotes.u.size
    weight, centre = np.empty(count), quotes.u.copy()
    for i in range(count):
        weight[i] = 1.0 / (intervals._SHARE * quotes.half[i] ** 2 + intervals._FIRST**2)
    uneven = wild = error = reach = blur = 0.0
    for turn in range(intervals.ROUNDS + 1):
        sums = _summed(splines, quotes, weight, centre)
        if turn == 0:
            uneven, wild = _likeliest(sums)
        belief = _believed(splines, sums, uneven, wild)
        if turn == intervals.ROUNDS:
            break
        value, variance = _at(quotes, belief)
        if turn == 0:
            error = _beyond(quotes, value)
        for i in range(count):
            value[i], variance[i] = _cavity(value[i], variance[i], weight[i], centre[i])
        if turn == 0:
            reach, blur = _law(quotes, value, variance, error)
        for i in range(count):
            far, own = reach * quotes.half[i], (blur * quotes.half[i]) ** 2 + error**2
            wide = variance[i] + own
            middle, spread = _truncated(value[i], wide, quotes.u[i] - far, quotes.u[i] + far)
            spread = max(spread, intervals._TINY)
            sharp = max(1.0 / spread - 1.0 / wide, intervals._LEAST_SHARP)
            said = (middle / spread - value[i] / wide) / sharp
            new = 1.0 / (1.0 / sharp + own)
            kept, taken = (1.0 - intervals._DAMPED) * weight[i], intervals._DAMPED * new
            centre[i] = (kept * centre[i] + taken * said) / (kept + taken + intervals._TINY)
            weight[i] *= (new / weight[i]) ** intervals._DAMPED
    return belief


@compiled
def _beyond(quotes: Quoted, value: Array) -> float:
    """The error that is taken for Gaussian: how far values lie outside the intervals."""
    squares = 0.0
    for i in range(value.size):
        squares += max(abs(quotes.u[i] - value[i]) - quotes.half[i], 0.0) ** 2
    return math.sqrt(squares / max(value.size, 1) + intervals._LEAST**2)


@compiled
def read(belief: Belief, first: int, near: Near, mean: Array, variance: Array) -> None:
    """Mean and variance at places of one slice, whose splines begin at the first."""
    basis = near.basis
    for i in range(near.left.size):
        mean[i] = variance[i] = 0.0
        for a in range(_NEAR):
            at = first + near.left[i] + a
            mean[i] += basis[i, a] * belief.mean[at]
            part = basis[i, a] * belief.near[0, at]
            for b in range(a + 1, _NEAR):
                part += 2.0 * basis[i, b] * belief.near[b - a, at]
            variance[i] += basis[i, a] * part


@compiled
def _at(quotes: Quoted, belief: Belief) -> tuple[Array, Array]:
    """``(N,)`` mean and variance of f at the quotes."""
    value, variance = np.empty(quotes.u.size), np.empty(quotes.u.size)
    slices = quotes.ends.size - 1
    for each in range(slices):
        here = slice(quotes.ends[each], quotes.ends[each + 1])
        first = each * (belief.mean.size // slices)
        near = Near(quotes.near.left[here], quotes.near.basis[here])
        read(belief, first, near, value[here], variance[here])
    return value, variance


@compiled
def _summed(splines: Array, quotes: Quoted, weight: Array, centre: Array) -> _Sums:
    """What observations of given weights come to."""
    d, R = splines.shape
    L = quotes.ends.size - 1
    NZ = R // L
    near, load, said = np.zeros((_NEAR, R)), np.zeros(R), np.zeros(R)
    mass, level = np.zeros(L), np.zeros(L)
    for each in range(L):
        for i in range(quotes.ends[each], quotes.ends[each + 1]):
            w, y = weight[i], weight[i] * centre[i]
            mass[each] += w
            level[each] += y
            for a in range(_NEAR):
                at, part = each * NZ + quotes.near.left[i] + a, quotes.near.basis[i, a]
                load[at] += w * part
                said[at] += y * part
                for b in range(a, _NEAR):
                    near[b - a, at] += w * part * quotes.near.basis[i, b]
    loaded, rows, side = np.empty((d, R)), np.empty((d, L)), np.empty(d)
    for j in range(d):
        row = splines[j]
        total = 0.0
        for r in range(R):
            loaded[j, r] = near[0, r] * row[r]
            total += said[r] * row[r]
        side[j] = total
        for off in range(1, _NEAR):
            for r in range(R - off):
                loaded[j, r] += near[off, r] * row[r + off]
            for r in range(R - off):
                loaded[j, r + off] += near[off, r] * row[r]
        for each in range(L):
            total = 0.0
            for r in range(each * NZ, (each + 1) * NZ):
                total += load[r] * row[r]
            rows[j, each] = total
    gram = np.empty((d, d))
    dense.products(splines, loaded, gram)
    return _Sums(gram, side, rows, mass, level)


@compiled
def _left(sums: _Sums, uneven: float) -> tuple[Array, Array, Array]:
    """The coefficients' precision but for their prior's, side and mass: levels are solved for."""
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
    return precision, side, mass


@compiled
def _factor(precision: Array, wild: float) -> Array:
    factor = precision.copy()
    for j in range(len(factor)):
        factor[j, j] += wild**-2.0
    dense.factorise(factor)
    return factor


@compiled
def _evidence(left: tuple[Array, Array, Array], sums: _Sums, uneven: float, wild: float) -> float:
    """As :func:`arbiter.operators.levels.evidence`."""
    precision, side, mass = left
    factor, solved = _factor(precision, wild), side.copy()
    dense.forward(factor, solved)
    found = 0.0
    for j in range(solved.size):
        found += 0.5 * solved[j] ** 2 - math.log(factor[j, j] * wild)
    for each in range(mass.size):
        found += 0.5 * (sums.level[each] ** 2 / mass[each] - math.log(mass[each] * uneven**2))
    return found


@compiled
def _likeliest(sums: _Sums) -> tuple[float, float]:
    """As :func:`arbiter.operators.levels.likeliest`."""
    uneven, wild = _SIZES[0], levels._UNDECIDED
    left = _left(sums, uneven)
    best = _evidence(left, sums, uneven, wild)
    for size in _SIZES[1:]:
        there = _left(sums, size)
        found = _evidence(there, sums, size, wild)
        if found > best:
            best, uneven, left = found, size, there
    for size in _WILD:
        found = best if size == levels._UNDECIDED else _evidence(left, sums, uneven, size)
        if found > best:
            best, wild = found, size
    return uneven, wild


@compiled
def _believed(splines: Array, sums: _Sums, uneven: float, wild: float) -> Belief:
    """The splines of each slice after observations."""
    d, R = splines.shape
    precision, side, mass = _left(sums, uneven)
    L = mass.size
    NZ = R // L
    factor = _factor(precision, wild)
    dense.solve(factor, side)
    mean, near, freed = np.empty(R), np.empty((_NEAR, R)), np.empty((d, R))
    for each in range(L):
        level = sums.level[each]
        for j in range(d):
            level -= sums.rows[j, each] * side[j]
        mean[each * NZ : (each + 1) * NZ] = level / mass[each]
        near[:, each * NZ : (each + 1) * NZ] = 1.0 / mass[each]
    for j in range(d):
        for each in range(L):
            lean = sums.rows[j, each] / mass[each]
            for r in range(each * NZ, (each + 1) * NZ):
                freed[j, r] = splines[j, r] - lean
                mean[r] += splines[j, r] * side[j]
    dense.forward_all(factor, freed)
    for j in range(d):
        for off in range(_NEAR):
            for r in range(R - off):
                near[off, r] += freed[j, r] * freed[j, r + off]
    return Belief(mean, near)


@compiled
def _cavity(value: float, variance: float, weight: float, centre: float) -> tuple[float, float]:
    variance = max(variance, intervals._TINY)
    alone = 1.0 / max(1.0 / variance - weight, intervals._LEAST_ALONE)
    return alone * (value / variance - weight * centre), alone


@compiled
def _law(quotes: Quoted, guess: Array, variance: Array, error: float) -> tuple[float, float]:
    """Reach and blur of the law under which the others predict each quote best."""
    best, found = -np.inf, 0
    for law in range(len(_LAWS)):
        reach, blur = _LAWS[law]
        score, product = 0.0, 1.0
        for i in range(quotes.u.size):
            half = quotes.half[i]
            off, far = quotes.u[i] - guess[i], reach * half
            scale = normal.ROOT_HALF / math.sqrt(variance[i] + error**2 + (blur * half) ** 2)
            twice = math.erfc((abs(off) - far) * scale) - math.erfc((abs(off) + far) * scale)
            product *= max(twice / (4.0 * far), intervals._UNLIKELY)
            if i % _TOGETHER == 0:  # far from underflow, each being at least what is unlikely
                score += math.log(product)
                product = 1.0
        score += math.log(product)
        if score > best:
            best, found = score, law
    return _LAWS[found, 0], _LAWS[found, 1]


@compiled
def _truncated(mean: float, variance: float, low: float, high: float) -> tuple[float, float]:
    """As :func:`arbiter.operators.intervals.truncated`."""
    deviation = math.sqrt(variance)
    a, b = (low - mean) / deviation, (high - mean) / deviation
    turned = a + b > 0.0
    if turned:
        a, b = -b, -a
    width, at = b - a, 0.5 * (a + b)
    square = width * width
    short = square / 12.0
    if width * (1.0 + abs(at)) < intervals._SHORT:
        steep = (at * width) ** 2
        left = short * (1.0 - square / 30.0 - steep / 20.0)
        middle = at * (1.0 - short * (1.0 - square / 30.0 - steep / 60.0))
    else:
        start, end = _densities(a, b)
        moved = start - end
        left = min(max(1.0 + a * start - b * end - moved * moved, intervals._TINY), short)
        middle = min(max(moved, a), b)
    return mean + deviation * (-middle if turned else middle), variance * left


@compiled
def _densities(a: float, b: float) -> tuple[float, float]:
    """The normal law's at both ends of an interval, over its mass there; ``a + b ≤ 0``."""
    if b > -normal._FAR:
        per = normal.INV_ROOT_2PI / (scalars.cdf(b) - scalars.cdf(a))
        return per * math.exp(-0.5 * a * a), per * math.exp(-0.5 * b * b)
    below, above = scalars.log_cdf(a), scalars.log_cdf(b)
    within = math.log1p(-math.exp(min(below - above, intervals._ALL_BELOW)))
    mass = above + within + intervals._LOG_ROOT
    return math.exp(-0.5 * a * a - mass), math.exp(-0.5 * b * b - mass)
