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
    """Room for an envelope; all numbers are in arrays, so that one type is compiled for."""

    size: Places  # (1,) how many there are
    place: Places
    x: Array  # strikes over forward
    y: Array  # prices
    slope: Array  # that leads to the vertex

    @staticmethod
    def empty(room: int) -> _Vertices:
        x, y, slope = np.empty((3, room))
        return _Vertices(np.zeros(1, dtype=np.int64), np.empty(room, dtype=np.int64), x, y, slope)


class _Brackets(NamedTuple):
    size: Places  # (1,) rows in use
    rows: Places  # (m, 3) a price and the vertices on both sides


def bracket_prices(points: PricePoints) -> Places:
    """Prices to compare with an envelope, and the two vertices beside each.

    Each price that is asked for is compared with the envelope of later maturities. Where a leg of
    the envelope that includes its own maturity is a later one, it is compared with that, too.

    Returns:
        ``(rows, 3)`` places of the price, of the vertex to its left and of that to its right;
        past the last vertex both are the same.
    """
    most = 2 * int(points.asked.sum())
    found = _Brackets(np.zeros(1, dtype=np.int64), np.empty((most, 3), dtype=np.int64))
    room = points.kappa.size + 1
    _bracket_prices(points, _Vertices.empty(room), _Vertices.empty(room), found)
    return found.rows[: found.size[0]]


@compiled
def _bracket_prices(points: PricePoints, later: _Vertices, hull: _Vertices, out: _Brackets) -> None:
    later.place[0], later.x[0], later.y[0], later.slope[0] = FREE_LEG, 0.0, points.free, -np.inf
    later.size[0] = 1
    for at in range(points.edges.size - 2, -1, -1):
        _merge_maturity(points, at, later, hull)
        if later.size[0] > 1:
            for mixed in (False, True):
                _find_brackets(points, at, hull if mixed else later, mixed, out)
        later, hull = hull, later


@compiled
def _merge_maturity(points: PricePoints, at: int, later: _Vertices, hull: _Vertices) -> None:
    """Write the envelope of the later vertices and of one maturity to ``hull``."""
    one, two, stop, size = 0, points.edges[at], points.edges[at + 1], 0
    while one < later.size[0] or two < stop:
        if two == stop or (
            one < later.size[0]
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
    hull.size[0] = size


@compiled
def _find_brackets(
    points: PricePoints, at: int, hull: _Vertices, mixed: bool, out: _Brackets
) -> None:
    """Append the brackets of one maturity's prices; ``mixed``: off the envelope, a leg later."""
    left, rows, last = 0, out.size[0], hull.size[0] - 1
    start, stop = points.edges[at], points.edges[at + 1]
    for i in range(start, stop):
        if not points.asked[i]:
            continue
        while left < last and hull.x[left + 1] <= points.kappa[i]:
            left += 1
        one, two = hull.place[left], hull.place[min(left + 1, last)]
        if mixed and (hull.x[left] == points.kappa[i] or max(one, two) < stop):
            continue
        out.rows[rows, 0], out.rows[rows, 1], out.rows[rows, 2] = i, one, two
        rows += 1
    out.size[0] = rows
