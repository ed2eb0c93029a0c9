"""Integrals of transport slices and prices at points of them, compiled.

:class:`arbiter.pricing.transport.Transport` is their public face and has the glossary. A point is
a strike on one slice; points lie in rows, with the slice ``of`` each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.pricing import normal
from arbiter.pricing.elementary import exp, tail
from arbiter.pricing.knots import Knots, find_segment

Flags = NDArray[np.bool_]

# Left of the first knot s < 0, and M ≥ ½, so that no strike there has k above log 2.
MAX_LEFT_TAIL_LOG_STRIKE = 1.0
_POINTS_PER_BLOCK = 128  # intermediate numbers stay in the nearest cache


class Slices(NamedTuple):
    """Integrals of ``S`` slices that do not depend on strikes."""

    b: Array  # (S, N) slopes at the cut knots
    s: Array  # (S, N) transport there
    above: Array  # (S, N) call struck at each cut knot
    below: Array  # (S, N) put struck there
    log_mean: Array  # (S,)


class SlicePoint(NamedTuple):
    """Points of slices: strikes and their Gaussian coordinates, ``(m,)`` each."""

    of: Indices  # slice
    k: Array  # log-moneyness
    x: Array  # Gaussian coordinate, s(x) = k + log M
    b: Array  # slope at x
    bend: Array  # derivative of the slope on this segment
    segment: Indices  # index of the segment; −1 and N−1 are the tails
    to_left: Array  # distance to the segment's left end
    to_right: Array  # distance to its right end

    @staticmethod
    def empty(of: Indices, count: int) -> SlicePoint:
        """Places for ``count`` points."""
        room = np.empty((6, count))
        k, x, b, bend, left, right = room
        return SlicePoint(of, k, x, b, bend, np.empty(count, dtype=np.int64), left, right)


def integrate_slices(knots: Knots, slopes: Array) -> Slices:
    """The integrals of slices with slopes ``(S, n)``."""
    count, size = len(slopes), knots.x.size
    room = np.empty((4, count, size))
    found = Slices(room[0], room[1], room[2], room[3], np.empty(count))
    _fill_slices(knots, slopes, found)
    return found


@compiled
def _fill_slices(knots: Knots, slopes: Array, out: Slices) -> None:
    n, N, zero = slopes.shape[1], knots.x.size, knots.zero
    up, down = np.empty(N - 1), np.empty(N - 1)
    start, bend = np.empty(N - 1), np.empty(N - 1)
    for at in range(len(slopes)):
        own, b, s = slopes[at], out.b[at], out.s[at]
        for i in range(N):
            left, right = own[knots.source[i]], own[min(knots.source[i] + 1, n - 1)]
            b[i] = left + knots.blend[i] * (right - left)
        s[zero] = 0.0
        for i in range(zero, N - 1):
            s[i + 1] = s[i] + 0.5 * knots.width[i] * (b[i + 1] + b[i])
        for i in range(zero - 1, -1, -1):
            s[i] = s[i + 1] - 0.5 * knots.width[i] * (b[i + 1] + b[i])
        # an exponent near the largest of s − x²/2 keeps every integral in range
        last = knots.x[N - 1]
        beyond = max(b[N - 1] - last, 0.0)
        shift = max(0.0, s[N - 1] - 0.5 * last * last + 0.5 * beyond * beyond)
        for i in range(N):
            shift = max(shift, s[i] - 0.5 * knots.x[i] * knots.x[i])
        for i in range(N - 1):
            up[i], down[i], start[i] = 0.0, 0.0, s[i] - shift
            bend[i] = (b[i + 1] - b[i]) / knots.width[i]
        for q in range(knots.node.size):
            node, upper, lower = knots.node[q], knots.upper[q], knots.lower[q]
            for i in range(N - 1):
                t = knots.width[i] * node
                slope = b[i] + bend[i] * t
                mass = exp(start[i] + 0.5 * t * (b[i] + slope)) * slope
                up[i] += mass * upper[i]
                down[i] += mass * lower[i]
        above, below = out.above[at], out.below[at]
        above[N - 1] = normal.excess_above(s[N - 1] - shift, last, b[N - 1])
        below[0] = normal.excess_below(s[0] - shift, knots.x[0], b[0])
        for i in range(N - 2, -1, -1):
            above[i] = above[i + 1] + up[i]
        for i in range(N - 1):
            below[i + 1] = below[i] + down[i]
        # M = 1 + E(e^s − 1)+ − E(1 − e^s)+, split at the median where s = 0: never below ½
        gain = above[zero] - below[zero]
        log_mean = shift + math.log1p(math.expm1(-shift) + gain)
        out.log_mean[at] = log_mean
        scale = math.exp(shift - log_mean)
        for i in range(N):
            above[i] *= scale
            below[i] *= scale


@compiled
def fill_coordinates(knots: Knots, slices: Slices, point: SlicePoint) -> None:
    """Complete points whose strikes are given."""
    last = knots.x.size - 1
    for i in range(point.k.size):
        at = point.of[i]
        b, s = slices.b[at], slices.s[at]
        target = point.k[i] + slices.log_mean[at]
        found = find_segment(s, target)
        inside = 0 <= found < last
        j = min(max(found, 0), last - 1)
        width = knots.width[j]
        # Solve s(x) = target from the end with the smaller slope: the discriminant is then a
        # sum of positive terms, whatever the ratio of the two slopes.
        rising = b[j + 1] >= b[j]
        bend = (b[j + 1] - b[j]) / width
        small = b[j] if rising else b[j + 1]
        climb = max(target - s[j] if rising else s[j + 1] - target, 0.0) if inside else 0.0
        steepening = bend if rising else -bend
        step = 2.0 * climb / (small + math.sqrt(small * small + 2.0 * steepening * climb))
        step = min(step, width)
        point.to_left[i] = step if rising else width - step
        point.to_right[i] = width - step if rising else step
        point.x[i] = knots.x[j] + step if rising else knots.x[j] + width - step
        point.b[i] = small + steepening * step
        point.bend[i], point.segment[i] = bend, found
        if not inside:  # the tails: one slope, a straight line
            end = 0 if found < 0 else last
            point.b[i], point.x[i] = b[end], knots.x[end] + (target - s[end]) / b[end]


@compiled
def fill_strikes(knots: Knots, slices: Slices, point: SlicePoint) -> None:
    """Complete points whose Gaussian coordinates are given."""
    last = knots.x.size - 1
    for i in range(point.x.size):
        at, x = point.of[i], point.x[i]
        b, s = slices.b[at], slices.s[at]
        found = find_segment(knots.x, x)
        j = min(max(found, 0), last - 1)
        width = knots.width[j]
        bend = (b[j + 1] - b[j]) / width
        t = min(max(x - knots.x[j], 0.0), width)
        slope, value = b[j] + bend * t, s[j] + (b[j] + 0.5 * bend * t) * t
        if not 0 <= found < last:
            end = 0 if found < 0 else last
            slope, value = b[end], s[end] + b[end] * (x - knots.x[end])
        point.k[i], point.b[i], point.bend[i] = value - slices.log_mean[at], slope, bend
        point.segment[i], point.to_left[i], point.to_right[i] = found, t, width - t


@compiled
def fill_densities(point: SlicePoint, power: float, out: Array) -> None:
    """``κ^power φ(x)/b``: the density per unit of κ for −1, gamma of a unit of forward for 1."""
    for i in range(point.x.size):
        found = normal.scaled_pdf(power * point.k[i], point.x[i]) / point.b[i]
        out[i] = 0.0 if abs(point.x[i]) == math.inf else found


@compiled
def fill_partial_means(point: SlicePoint, out: Array) -> None:
    """``E[X; X > κ]`` from prices of the side that ``x`` lies on."""
    for i in range(point.x.size):
        outward = abs(point.x[i])
        rest = 0.0  # κ Φ(−|x|)
        if outward != math.inf:
            rest = normal.weighted_mills(point.k[i], outward, outward)
        out[i] = out[i] + rest if point.x[i] >= 0.0 else 1.0 + out[i] - rest


@compiled
def fill_prices(knots: Knots, slices: Slices, point: SlicePoint, above: Flags, out: Array) -> None:
    """Calls where ``above`` holds and puts elsewhere."""
    last = knots.x.size - 1
    sign, room = np.empty(_POINTS_PER_BLOCK), np.empty(_POINTS_PER_BLOCK)
    for first in range(0, out.size, _POINTS_PER_BLOCK):
        count = min(_POINTS_PER_BLOCK, out.size - first)
        k, x, b = point.k[first:], point.x[first:], point.b[first:]
        bend, price = point.bend[first:], out[first:]
        for i in range(count):
            up = above[first + i]
            sign[i] = 1.0 if up else -1.0
            room[i] = point.to_right[first + i] if up else point.to_left[first + i]
            price[i] = 0.0
        # The piece between the strike and the end of its segment. With t the distance from the
        # strike and ± the side, the slope there is m = b ± bend·t and s has moved by ± ½ t (b + m).
        for q in range(knots.node.size):
            node, weight = knots.node[q], knots.weight[q]
            for i in range(count):
                t = room[i] * node
                slope = b[i] + sign[i] * bend[i] * t
                grown = k[i] + 0.5 * sign[i] * t * (b[i] + slope)
                y = sign[i] * x[i] + t  # Φ(−y), with its exponent joined to the other
                small = normal.INV_ROOT_2PI * exp(grown - 0.5 * y * y) * tail(abs(y))
                part = small if y >= 0.0 else exp(grown) - small
                price[i] += part * slope * weight
        # and the whole segments beyond it
        for i in range(count):
            at, up = point.of[first + i], above[first + i]
            segment = point.segment[first + i]
            j = min(max(segment, 0), last - 1)
            price[i] *= room[i]
            price[i] += slices.above[at, j + 1] if up else slices.below[at, j]
            if segment < 0 or segment == last:
                price[i] = _price_tail(knots, slices, (at, segment == last), k[i], x[i], up)
            # rounding may lift a price past its bound, E X = 1 for calls and κ for puts
            price[i] = min(price[i], 1.0 if up else math.exp(min(k[i], 80.0)))


@compiled
def _price_tail(
    knots: Knots, slices: Slices, where: tuple[int, bool], k: float, x: float, above: bool
) -> float:
    """A price beyond the end knots of a slice, on its right or left.

    Outward they are Black calls on the right and Black puts on the left. Steep slopes put the
    forward itself beyond the last knot; then the inner side is out of the money: the price at the
    end knot and the stretch since.
    """
    last, (at, right) = knots.x.size - 1, where
    if abs(k) == math.inf:
        return 0.0 if above == right else math.inf
    log_mean = slices.log_mean[at]
    if right:
        end, b, s = knots.x[last], slices.b[at, last], slices.s[at, last]
        x = max(x, end)
        if above:
            log_mass = s + b * (0.5 * b - end) - log_mean
            return normal.scaled_mills_difference(k, x, x - b, b, log_mass)
        inner = min(k, 0.0)  # further out this put is in the money, and would overflow
        since = normal.excess_below(inner, x, b)
        since -= normal.excess_below(min(s - log_mean, 0.0), end, b)
        put: float = slices.below[at, last] + since
        return put
    end, b, s = knots.x[0], slices.b[at, 0], slices.s[at, 0]
    x, k = min(x, end), min(k, MAX_LEFT_TAIL_LOG_STRIKE)
    if not above:
        return normal.scaled_mills_difference(k, -x, -x, b, k)
    reach = math.exp(k) * normal.cdf(-x) + normal.weighted_mills(k, x, b - x)
    k = s - log_mean
    whole = math.exp(k) * normal.cdf(-end) + normal.weighted_mills(k, end, b - end)
    call: float = slices.above[at, 0] + whole - reach
    return call
