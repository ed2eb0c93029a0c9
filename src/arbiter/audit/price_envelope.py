"""Lower convex envelopes of prices, maturity by maturity from the last to the first, compiled.

An envelope is kept as the places of its vertices among all prices, so that what they cost and
when they expire is read from the grid. Its first vertex is the free leg at strike zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.audit.grid import Mask, Places
from arbiter.compiled import compiled
from arbiter.conventions import Array

FREE_LEG = -1  # its place


class PricePoints(NamedTuple):
    """Prices of one option, sorted by maturity, then strike."""

    kappa: Array  # (N,) strikes over forward
    price: Array  # (N,)
    edges: Places  # (L+1,) where maturities begin, and the end
    asked: Mask  # (N,) whether to compare the price with envelopes
    free: float  # price of the free leg
    steepest: float  # slope past the last strike


class _Vertices(NamedTuple):
    place: Places
    x: Array  # strikes over forward
    y: Array  # prices
    slope: Array  # that leads to the vertex


def bracket_prices(points: PricePoints) -> Places:
    """Prices to compare with an envelope, and the two vertices beside each.

    Each price that is asked for is compared with the envelope of later maturities. Where a leg of
    the envelope that includes its own maturity is a later one, it is compared with that, too.

    Returns:
        ``(rows, 3)`` places of the price, of the vertex to its left and of that to its right;
        past the last vertex both are the same.
    """
    found = np.empty((2 * int(points.asked.sum()), 3), dtype=np.int64)
    return found[: _bracket_prices(points, found)]


@compiled
def _bracket_prices(points: PricePoints, out: Places) -> int:
    room = points.kappa.size + 1
    later, hull = _make_vertices(room), _make_vertices(room)
    later.place[0], later.x[0], later.y[0], later.slope[0] = FREE_LEG, 0.0, points.free, -np.inf
    size, rows = 1, 0
    for at in range(points.edges.size - 2, -1, -1):
        start, stop = points.edges[at], points.edges[at + 1]
        if size > 1:
            rows = _find_brackets(points, (start, stop), (later, size), out, rows, False)
        before = size
        size = _merge_maturity(points, (start, stop), (later, before), hull)
        if before > 1:
            rows = _find_brackets(points, (start, stop), (hull, size), out, rows, True)
        later, hull = hull, later
    return rows


@compiled
def _make_vertices(room: int) -> _Vertices:
    values = np.empty((3, room))
    return _Vertices(np.empty(room, dtype=np.int64), values[0], values[1], values[2])


@compiled
def _merge_maturity(
    points: PricePoints, part: tuple[int, int], old: tuple[_Vertices, int], hull: _Vertices
) -> int:
    """Write the envelope of the old vertices and of one maturity to ``hull``; its size."""
    later, count = old
    size, one, two = 0, 0, part[0]
    while one < count or two < part[1]:
        if two == part[1] or (
            one < count
            and (
                later.x[one] < points.kappa[two]
                or (later.x[one] == points.kappa[two] and later.y[one] <= points.price[two])
            )
        ):
            place, x, y, one = later.place[one], later.x[one], later.y[one], one + 1
        else:
            place, x, y, two = two, points.kappa[two], points.price[two], two + 1
        if size > 0 and x == hull.x[size - 1]:
            if y >= hull.y[size - 1]:
                continue  # the same strike, not cheaper
            size -= 1
        slope = -np.inf
        while size > 0:
            slope = (y - hull.y[size - 1]) / (x - hull.x[size - 1])
            if slope > hull.slope[size - 1]:
                break
            size -= 1
        if slope < points.steepest:
            hull.place[size], hull.x[size], hull.y[size], hull.slope[size] = place, x, y, slope
            size += 1
    return size


@compiled
def _find_brackets(
    points: PricePoints,
    part: tuple[int, int],
    of: tuple[_Vertices, int],
    out: Places,
    rows: int,
    mixed: bool,
) -> int:
    """Append the brackets of one maturity's prices; ``mixed``: off the envelope, a leg later."""
    hull, size = of
    left = 0
    for at in range(part[0], part[1]):
        if not points.asked[at]:
            continue
        while left + 1 < size and hull.x[left + 1] <= points.kappa[at]:
            left += 1
        right = min(left + 1, size - 1)
        one, two = hull.place[left], hull.place[right]
        if mixed and (hull.x[left] == points.kappa[at] or max(one, two) < part[1]):
            continue
        out[rows, 0], out[rows, 1], out[rows, 2] = at, one, two
        rows += 1
    return rows
