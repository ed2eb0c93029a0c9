"""Prices of ragged quotes on transports of one component, compiled: :mod:`..price_derivatives`.

Shapes: S slices, m quotes, n slopes at N knots of the cut line, q nodes of a quadrature.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.quick import scalars
from arbiter.operators.quick.elementary import exp
from arbiter.pricing import normal

Indices = NDArray[np.int64]


class Cut(NamedTuple):
    """The line, as :class:`arbiter.pricing.price_derivatives.KnotQuadrature` describes it.

    Attributes:
        x: ``(N,)``
        cut: ``(N, n)``
        rise: ``(N, N)``
        width: ``(N - 1,)``
        node: ``(q,)``
        weight: ``(q,)``
        gauss: ``(q, N - 1)`` with the weights.
    """

    x: Array
    cut: Array
    rise: Array
    width: Array
    node: Array
    weight: Array
    gauss: Array


class _Laid(NamedTuple):
    """One slice.

    Attributes:
        b: ``(N,)`` slopes.
        s: ``(N,)`` transport.
        below: ``(N,)`` integrals of ``e^s φ`` up to each knot, and
        above: ``(N,)`` from there.
        ends: Scales of the tails, and the mean.
    """

    b: Array
    s: Array
    below: Array
    above: Array
    ends: tuple[float, float, float]


class _At(NamedTuple):
    """Where strikes lie, ``(m,)`` each: on a part of a segment, from the strike outwards.

    Attributes:
        x: Gaussian coordinate of the strike.
        place: Of the segment's left end, and
        s: the transport there,
        b: its slope, and
        bend: by how much that grows.
        first: Where the part begins, from the left end.
        room: How long it is.
        beyond: Integral of ``e^s φ`` over all that follows.
    """

    x: Array
    place: Array
    s: Array
    b: Array
    bend: Array
    first: Array
    room: Array
    beyond: Array


@compiled
def prices(line: Cut, slopes: Array, expiry: Indices, k: Array) -> Array:
    """``(m,)`` out-of-the-money prices; slices of the quotes do not decrease."""
    price = np.empty(k.size)
    first = last = 0
    for each in range(len(slopes)):
        while last < k.size and expiry[last] == each:
            last += 1
        _price(line, _lay(line, slopes[each]), k[first:last], price[first:last])
        first = last
    return price


@compiled
def _price(line: Cut, laid: _Laid, k: Array, price: Array) -> None:
    """Prices of one slice's quotes."""
    r = np.empty((8, k.size))
    at = _At(r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7])
    _place(line, laid, k, at)
    share, mean = np.zeros(k.size), laid.ends[2]
    for node in range(line.node.size):
        _add(at, line.node[node], line.weight[node], share)
    for i in range(k.size):
        side = 1.0 if k[i] >= 0.0 else -1.0
        outside = exp(k[i]) * scalars.cdf(-side * at.x[i])
        price[i] = side * ((share[i] + at.beyond[i]) / mean - outside)


@compiled
def _lay(line: Cut, slopes: Array) -> _Laid:
    """A slice, from its slopes ``(n,)``."""
    N = line.x.size
    b, s, mass = np.zeros(N), np.zeros(N), np.zeros(N - 1)
    for i in range(N):
        b[i] = _dot(line.cut[i], slopes)
    for i in range(N):
        s[i] = _dot(line.rise[i], b)
    half = 0.5 * (b[1:] - b[:-1]) / line.width
    for node in range(line.node.size):
        at, gauss = line.node[node], line.gauss[node]
        for j in range(N - 1):
            t = at * line.width[j]
            mass[j] += exp(s[j] + t * (b[j] + half[j] * t)) * gauss[j]
    first, last = line.x[0], line.x[N - 1]
    left = math.exp(s[0] + b[0] * (0.5 * b[0] - first))
    right = math.exp(s[N - 1] + b[N - 1] * (0.5 * b[N - 1] - last))
    below, above = np.empty(N), np.empty(N)
    below[0] = left * scalars.cdf(first - b[0])
    above[N - 1] = right * scalars.cdf(b[N - 1] - last)
    for j in range(N - 1):
        below[j + 1] = below[j] + mass[j]
    for j in range(N - 2, -1, -1):
        above[j] = above[j + 1] + mass[j]
    return _Laid(b, s, below, above, (left, right, below[N - 1] + above[N - 1]))


@compiled
def _dot(a: Array, b: Array) -> float:
    total = 0.0
    for i in range(a.size):
        total += a[i] * b[i]
    return total


@compiled
def _beyond(s: Array, target: float) -> int:
    """How many numbers, which increase, are not above the target."""
    low, high = 0, s.size
    while low < high:
        middle = (low + high) // 2
        if s[middle] <= target:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def _place(line: Cut, laid: _Laid, k: Array, at: _At) -> None:
    """Where the strikes of one slice's quotes lie."""
    N, (left, right, mean) = line.x.size, laid.ends
    log_mean = math.log(mean)
    for i in range(k.size):
        call, target = k[i] >= 0.0, k[i] + log_mean
        segment = _beyond(laid.s, target)  # 0 and N are the tails
        j = min(max(segment - 1, 0), N - 2)
        b, s, w = laid.b[j], laid.s[j], line.width[j]
        bend = (laid.b[j + 1] - b) / w
        climb = max(target - s, 0.0)
        t = min(2.0 * climb / (b + math.sqrt(max(b * b + 2.0 * bend * climb, 0.0))), w)
        at.x[i] = line.x[j] + t
        at.place[i], at.s[i], at.b[i], at.bend[i] = line.x[j], s, b, bend
        at.first[i], at.room[i] = (t, w - t) if call else (0.0, t)
        at.beyond[i] = laid.above[j + 1] if call else laid.below[j]
        if segment in (0, N):  # closed forms in place of the quadrature
            high = segment == N
            end = N - 1 if high else 0
            x = line.x[end] + (target - laid.s[end]) / laid.b[end]
            away = laid.b[end] - x if high else x - laid.b[end]
            tail = (right if high else left) * scalars.cdf(away)
            at.x[i], at.room[i] = x, 0.0
            at.beyond[i] = tail if high == call else mean - tail


@compiled
def _add(at: _At, node: float, weight: float, share: Array) -> None:
    """Add one node of the quadrature over the parts."""
    for i in range(share.size):
        t = at.first[i] + node * at.room[i]
        x = at.place[i] + t
        grown = exp(at.s[i] + t * (at.b[i] + 0.5 * at.bend[i] * t) - 0.5 * x * x)
        share[i] += grown * normal.INV_ROOT_2PI * at.room[i] * weight
