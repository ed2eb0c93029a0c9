"""What the quotes of one chain say, in one row and compiled: :mod:`..intervals`, :mod:`..levels`.

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
from arbiter.operators import intervals, levels
from arbiter.operators.quick import dense, scalars
from arbiter.operators.quick.elementary import exp, log, tail

Array = NDArray[np.float64]
Indices = NDArray[np.int64]

_SIZES, _WILD, _LAWS = (np.array(x) for x in (levels.SIZES, levels.WILD, intervals._LAWS))
_MIDDLE = levels.WILD.index(levels._UNDECIDED)
_NEAR = 4  # splines that are not zero at a place


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


class Fan(NamedTuple):
    """Splines along strikes of all slices.

    Attributes:
        by: ``(d, R)`` what coefficients make of them.
        ends: ``(L + 1,)`` where those of each slice begin, and the last end.
    """

    by: Array
    ends: Indices


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


class _Left(NamedTuple):
    """What is left for the coefficients, levels solved for; :class:`.levels._Left`.

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
def posterior(fan: Fan, quotes: Quoted) -> Belief:
    """What intervals say of the splines of each slice."""
    count = quotes.u.size
    weight, centre = np.empty(count), quotes.u.copy()
    for i in range(count):
        weight[i] = 1.0 / (intervals._SHARE * quotes.half[i] ** 2 + intervals._FIRST**2)
    asked, quotes = _within(fan, quotes)
    uneven = wild = error = reach = blur = 0.0
    for turn in range(intervals.ROUNDS + 1):
        sums = _summed(asked, quotes, weight, centre)
        if turn == 0:
            uneven, wild, solved = _likeliest(sums)
        else:
            solved = _solved(_left(sums, uneven), wild)
        last = turn == intervals.ROUNDS
        belief = _believed(fan if last else asked, sums, solved)
        if last:
            break
        value, variance = np.empty(count), np.empty(count)
        read(belief, quotes.near, value, variance)
        if turn == 0:
            error = _beyond(quotes, value)
        _cavities(value, variance, weight, centre)
        if turn == 0:
            reach, blur = _law(quotes, value, variance, error)
        _sites(value, variance, quotes, reach, blur, error)
        centre, weight = value, variance
    return belief


@compiled
def _beyond(quotes: Quoted, value: Array) -> float:
    """The error that is taken for Gaussian: how far values lie outside the intervals."""
    squares = 0.0
    for i in range(value.size):
        squares += max(abs(quotes.u[i] - value[i]) - quotes.half[i], 0.0) ** 2
    return math.sqrt(squares / max(value.size, 1) + intervals._LEAST**2)


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
            low, high = min(low, left[i]), max(high, left[i] + _NEAR)
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
        for a in range(_NEAR):
            at = near.left[i] + a
            mean[i] += basis[i, a] * belief.mean[at]
            part = basis[i, a] * belief.near[0, at]
            for b in range(a + 1, _NEAR):
                part += 2.0 * basis[i, b] * belief.near[b - a, at]
            variance[i] += basis[i, a] * part


@compiled
def _summed(fan: Fan, quotes: Quoted, weight: Array, centre: Array) -> _Sums:
    """What observations of given weights come to."""
    d, R = fan.by.shape
    L = quotes.ends.size - 1
    near, said = np.zeros((_NEAR, R)), np.zeros(R)
    mass, level = np.zeros(L), np.zeros(L)
    for each in range(L):
        for i in range(quotes.ends[each], quotes.ends[each + 1]):
            w, y = weight[i], weight[i] * centre[i]
            mass[each] += w
            level[each] += y
            for a in range(_NEAR):
                at, part = quotes.near.left[i] + a, quotes.near.basis[i, a]
                said[at] += y * part
                for b in range(a, _NEAR):
                    near[b - a, at] += w * part * quotes.near.basis[i, b]
    loaded, rows, side = np.empty((d, R)), np.empty((d, L)), np.empty(d)
    for j in range(d):
        side[j] = _load(fan.by[j], near, said, loaded[j])
    dense.add_up(loaded, fan.ends, rows)  # splines add up to one
    gram = np.empty((d, d))
    dense.products(fan.by, loaded, gram)
    return _Sums(gram, side, rows, mass, level)


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
            for off in range(1, min(_NEAR, R - r)):
                loaded[r] += near[off, r] * x[r + off]
            for off in range(1, min(_NEAR, r + 1)):
                loaded[r] += near[off, r - off] * x[r - off]
    return total


@compiled
def _left(sums: _Sums, uneven: float) -> _Left:
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
    return _Left(precision, side, mass)


@compiled
def _solved(left: _Left, wild: float) -> _Left:
    """The same, factorised."""
    return _Left(_factor(left.precision, wild), left.side, left.mass)


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
def _likeliest(sums: _Sums) -> tuple[float, float, _Left]:
    """As :func:`arbiter.operators.levels.likeliest`, and what is left then, factorised."""
    d, L = sums.rows.shape
    uneven, best = _likeliest_level(sums)
    left = _left(sums, uneven)
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
    return uneven, _WILD[at], _Left(factor, left.side, left.mass)


@compiled
def _likeliest_level(sums: _Sums) -> tuple[float, float]:
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
def _believed(fan: Fan, sums: _Sums, solved: _Left) -> Belief:
    """The splines of each slice after observations."""
    d, R = fan.by.shape
    factor, side, mass = solved.precision, solved.side.copy(), solved.mass
    dense.solve(factor, side)
    mean, near, freed = np.empty(R), np.empty((_NEAR, R)), np.empty((d, R))
    own, lean = np.empty(R, np.int64), np.empty(mass.size)
    for each in range(mass.size):
        level = sums.level[each]
        for j in range(d):
            level -= sums.rows[j, each] * side[j]
        for r in range(fan.ends[each], fan.ends[each + 1]):
            mean[r], own[r] = level / mass[each], each
            for off in range(_NEAR):
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
        for off in range(_NEAR):
            for r in range(R - off):
                near[off, r] += freed[j, r] * freed[j, r + off]
    return Belief(mean, near)


@compiled
def _cavities(value: Array, variance: Array, weight: Array, centre: Array) -> None:
    """Mean and variance of f at each quote by what all others say, in place of those by all."""
    for i in range(value.size):
        precision = 1.0 / max(variance[i], intervals._TINY)
        alone = 1.0 / max(precision - weight[i], intervals._LEAST_ALONE)
        value[i] = alone * (value[i] * precision - weight[i] * centre[i])
        variance[i] = alone


@compiled
def _law(quotes: Quoted, guess: Array, variance: Array, error: float) -> tuple[float, float]:
    """Reach and blur of the law under which the others predict each quote best."""
    best, found = -np.inf, 0
    for law in range(len(_LAWS)):
        reach, blur = _LAWS[law]
        score = 0.0
        for i in range(guess.size):
            half = quotes.half[i]
            off, far = abs(quotes.u[i] - guess[i]), reach * half
            per = 1.0 / math.sqrt(variance[i] + error**2 + (blur * half) ** 2)
            mass = scalars.cdf((far - off) * per) - scalars.cdf(-(far + off) * per)
            score += log(max(mass / (2.0 * far), intervals._UNLIKELY))
        if score > best:
            best, found = score, law
    return _LAWS[found, 0], _LAWS[found, 1]


@compiled
def _sites(
    value: Array, variance: Array, quotes: Quoted, reach: float, blur: float, error: float
) -> None:
    """Centre and weight of the site that has the moments of each interval, in place of a cavity."""
    for i in range(value.size):
        half, u = quotes.half[i], quotes.u[i]
        far, own = reach * half, (blur * half) ** 2 + error**2
        wide = variance[i] + own
        middle, spread = _truncated(value[i], wide, u - far, u + far)
        spread = max(spread, intervals._TINY)
        sharp = max(1.0 / spread - 1.0 / wide, intervals._LEAST_SHARP)
        value[i] = (middle / spread - value[i] / wide) / sharp
        variance[i] = 1.0 / (1.0 / sharp + own)


@inlined
def _truncated(mean: float, variance: float, low: float, high: float) -> tuple[float, float]:
    """As :func:`arbiter.operators.intervals.truncated`."""
    deviation = math.sqrt(variance)
    a, b = (low - mean) / deviation, (high - mean) / deviation
    turned = a + b > 0.0
    a, b = (-b if turned else a), (-a if turned else b)
    width, at = b - a, 0.5 * (a + b)
    square, steep = width * width, (at * width) ** 2
    short = square / 12.0
    few = width * (1.0 + abs(at)) < intervals._SHORT
    # densities at both ends over the mass between: e^{(b² − a²)/2} is at most one
    falls = exp(at * width)
    end = 1.0 / (scalars.mills(-b) - falls * tail(-a))
    start = falls * end
    moved = start - end
    left = min(max(1.0 + a * start - b * end - moved * moved, intervals._TINY), short)
    left = short * (1.0 - square / 30.0 - steep / 20.0) if few else left
    pulled = at * (1.0 - short * (1.0 - square / 30.0 - steep / 60.0))
    middle = pulled if few else min(max(moved, a), b)
    return mean + deviation * (-middle if turned else middle), variance * left
