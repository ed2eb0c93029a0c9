"""Prices of ragged quotes and their derivatives by the slopes, in closed form, compiled.

The decoder of :mod:`arbiter.pricing.transport` prices with every digit; a fit needs far fewer
digits, many times over. Here (docs/theory.md, section 2)

    call = R(x*)/M − κ Φ(−x*),   R(x) = ∫_x^∞ e^s φ,   M = R(−∞),

and puts from the left. At fixed x* (the envelope theorem) the derivative by a slope needs only
the integrals of e^s φ against 1, t − t²/2w and t²/2w over segments, and cumulative sums.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.pricing import normal
from arbiter.pricing.elementary import exp
from arbiter.pricing.knots import Knots, find_segment, lock_arrays

_NODES_PER_SEGMENT = 6  # relative error near 1e-11 on segments of a third
_QUOTES_PER_BLOCK = 128  # intermediate numbers stay in the nearest cache


class KnotQuadrature(NamedTuple):
    """The line of Z, cut at the knots, with the constants of the quadrature."""

    x: Array  # (N,) cut knots
    cut: Array  # (N, n) slopes at the cut knots from slopes at the given ones
    rise: Array  # (N, n) transport at the cut knots from the slopes at the given ones, s(0) = 0
    columns: Array  # (2, n, N) the columns of both, as rows
    width: Array  # (N-1,)
    node: Array  # (q,) on [0, 1]
    weight: Array  # (q,)
    gauss: Array  # (q, N-1) w φ(x) at the nodes, with their weights
    mean: Array  # (n,) weights that turn slopes into E s(Z)
    whole: bool  # whether no segment had to be cut

    @staticmethod
    def from_knots(knots: Array) -> KnotQuadrature:
        """The line of ``knots``, computed once for each set of knots."""
        return _compute_quadrature(tuple(knots.tolist()))


@lru_cache(maxsize=16)
def _compute_quadrature(key: tuple[float, ...]) -> KnotQuadrature:
    line = Knots.from_array(key)
    x, width, cut = line.x, line.width, line.cut_matrix(len(key))
    steps = 0.5 * width[:, None] * (cut[1:] + cut[:-1])
    rise = np.concatenate([np.zeros((1, len(key))), np.cumsum(steps, axis=0)])
    rise -= rise[line.zero].copy()
    raw, weight = np.polynomial.legendre.leggauss(_NODES_PER_SEGMENT)
    node, weight = 0.5 * (raw + 1.0), 0.5 * weight
    at = x[:-1] + width * node[:, None]
    gauss = normal.INV_ROOT_2PI * width * weight[:, None] * np.exp(-0.5 * at * at)
    whole = x.size == len(key)
    columns = np.ascontiguousarray(np.stack([cut.T, rise.T]))
    found = KnotQuadrature(
        x, cut, rise, columns, width, node, weight, gauss, line.mean @ cut, whole
    )
    lock_arrays(found)
    return found


class SliceIntegrals(NamedTuple):
    """Integrals of ``S`` slices that do not depend on strikes."""

    b: Array  # (S, N) slopes at the cut knots
    s: Array  # (S, N) transport there
    below: Array  # (S, N) ∫_{−∞}^{x_j} e^s φ
    above: Array  # (S, N) ∫_{x_j}^∞ e^s φ
    mean: Array  # (S,)
    log_mean: Array  # (S,)
    parts: Array  # (S, N+1, 3) moments by segment, the tails first and last


class QuotePrices(NamedTuple):
    """Prices of quotes, and the integrals that their derivatives need."""

    price: Array  # (m,)
    segment: Indices  # (m,) of N+1, the tails first and last
    moments: Array  # (3, m) of the part of the segment on the far side of the strike
    share: Array  # (m,) ∫ of e^s φ beyond the strike over M
    x: Array  # (m,) Gaussian percentile of the strike


class OtmPricer:
    """Out-of-the-money prices of quotes ``(m,)``, each on one of ``S`` slices.

    Args:
        line: The cut line.
        slice_of: ``(m,)`` slice of each quote, nondecreasing.
        k: ``(m,)`` log-moneyness.
    """

    def __init__(self, line: KnotQuadrature, slice_of: Indices, k: Array) -> None:
        self.line, self.slice_of, self.k = line, np.ascontiguousarray(slice_of), normal.to_row(k)
        self.sign = np.where(k >= 0.0, 1.0, -1.0)

    def integrate_slices(self, slopes: Array) -> SliceIntegrals:
        """Segment integrals of slices with ``slopes`` of shape ``(S, n)``."""
        return integrate_segments(self.line, slopes)

    def price_quotes(self, slices: SliceIntegrals, moved: Array | None = None) -> QuotePrices:
        """Prices of all quotes.

        Args:
            slices: From :meth:`integrate_slices`.
            moved: ``(m,)`` log-moneyness of the same options after a move of the forward. Each
                stays the call or put that it was. None for no move.
        """
        count = self.k.size
        room = np.empty((6, count))
        found = QuotePrices(room[0], np.empty(count, dtype=np.int64), room[1:4], *room[4:])
        k = self.k if moved is None else moved
        fill_quote_prices(self.line, slices, self.slice_of, (k, self.sign), found)
        return found

    def jacobian(self, slices: SliceIntegrals, prices: QuotePrices, scale: Array) -> Array:
        """Derivatives ``(m, n)`` of the prices by the slopes of their slice, times ``scale``."""
        rows = np.empty((self.k.size, self.line.cut.shape[1]))
        fill_price_rows(self.line, slices, prices, (self.slice_of, self.sign, scale), rows)
        return rows


def integrate_segments(line: KnotQuadrature, slopes: Array) -> SliceIntegrals:
    """Segment integrals of slices with ``slopes`` of shape ``(S, n)``."""
    count, size = len(slopes), line.x.size
    b, s, below, above = np.empty((4, count, size))
    parts = np.empty((count, size + 1, 3))
    found = SliceIntegrals(b, s, below, above, np.empty(count), np.empty(count), parts)
    _fill_integrals(line, normal.to_row(slopes).reshape(count, -1), found)
    return found


@compiled
def _tail_moments(s: float, b: float, end: float, x: float, side: float) -> tuple[float, float]:
    """Moments of ``e^s φ`` beyond ``x`` on a tail: against 1, and against its distance.

    ``end`` is the end knot, where the transport is ``s``, and from which distances count.
    """
    scale, z = math.exp(s + b * (0.5 * b - end)), side * (b - x)
    mass = scale * normal.cdf(z)
    return mass, (b - end) * mass + side * scale * normal.pdf(z)


@compiled
def _fill_integrals(line: KnotQuadrature, slopes: Array, out: SliceIntegrals) -> None:
    N, n = line.cut.shape
    half = np.empty(N - 1)
    mass, early, late = np.empty(N - 1), np.empty(N - 1), np.empty(N - 1)
    for at in range(len(slopes)):
        b, s, parts = out.b[at], out.s[at], out.parts[at]
        for i in range(N):
            b[i] = s[i] = 0.0
        for j in range(n):  # sums over knots in the outer loop: no order of a sum to change
            slope, cut, rise = slopes[at, j], line.columns[0, j], line.columns[1, j]
            for i in range(N):
                b[i] += cut[i] * slope
                s[i] += rise[i] * slope
        for i in range(N - 1):
            half[i] = 0.5 * (b[i + 1] - b[i]) / line.width[i]
            mass[i] = early[i] = late[i] = 0.0
        for q in range(line.node.size):
            node, gauss = line.node[q], line.gauss[q]
            second = 0.5 * node * node
            first = node - second
            for i in range(N - 1):
                t = node * line.width[i]
                e = exp(s[i] + t * (b[i] + half[i] * t)) * gauss[i]
                mass[i] += e
                early[i] += e * first
                late[i] += e * second
        for i in range(N - 1):
            parts[i + 1, 0] = mass[i]
            parts[i + 1, 1] = early[i] * line.width[i]
            parts[i + 1, 2] = late[i] * line.width[i]
        x1, xn = line.x[0], line.x[N - 1]
        parts[0, 0], parts[0, 1] = _tail_moments(s[0], b[0], x1, x1, -1.0)
        parts[N, 0], parts[N, 1] = _tail_moments(s[N - 1], b[N - 1], xn, xn, 1.0)
        parts[0, 2] = parts[N, 2] = 0.0
        below, above = out.below[at], out.above[at]
        below[0], above[N - 1] = parts[0, 0], parts[N, 0]
        for i in range(N - 1):
            below[i + 1] = below[i] + mass[i]
        for i in range(N - 2, -1, -1):
            above[i] = above[i + 1] + mass[i]
        out.mean[at] = below[N - 1] + above[N - 1]
        out.log_mean[at] = math.log(out.mean[at])


@compiled
def fill_quote_prices(
    line: KnotQuadrature,
    slices: SliceIntegrals,
    slice_of: Indices,
    quotes: tuple[Array, Array],
    out: QuotePrices,
) -> None:
    """Prices of quotes at log-moneyness k, calls where the sign is positive."""
    (k, sign), N = quotes, line.x.size
    block = _QUOTES_PER_BLOCK
    start, room, place = np.empty(block), np.empty(block), np.empty(block)
    b, bend, s, x = np.empty(block), np.empty(block), np.empty(block), np.empty(block)
    mass, first, second = np.empty(block), np.empty(block), np.empty(block)
    for base in range(0, k.size, block):
        count = min(block, k.size - base)
        for i in range(count):
            at, call = slice_of[base + i], sign[base + i] > 0.0
            target = k[base + i] + slices.log_mean[at]
            segment = find_segment(slices.s[at], target) + 1  # 0 and N are the tails
            j = min(max(segment - 1, 0), N - 2)
            w = line.width[j]
            b[i], s[i], place[i] = slices.b[at, j], slices.s[at, j], line.x[j]
            bend[i] = (slices.b[at, j + 1] - b[i]) / w
            climb = max(target - s[i], 0.0)
            root = math.sqrt(max(b[i] * b[i] + 2.0 * bend[i] * climb, 0.0))
            t = min(2.0 * climb / (b[i] + root), w)
            # the part of the segment from the strike outwards: start + node · room
            start[i], room[i], x[i] = (t if call else 0.0), (w - t if call else t), place[i] + t
            out.segment[base + i] = segment
            mass[i] = first[i] = second[i] = 0.0
        for q in range(line.node.size):
            node, weight = line.node[q], normal.INV_ROOT_2PI * line.weight[q]
            for i in range(count):
                t = start[i] + node * room[i]
                y = place[i] + t
                e = exp(s[i] + t * (b[i] + 0.5 * bend[i] * t) - 0.5 * y * y) * weight * room[i]
                mass[i] += e
                first[i] += e * t
                second[i] += e * t * t
        for i in range(count):
            here, at, segment = base + i, slice_of[base + i], out.segment[base + i]
            call, mean = sign[here] > 0.0, slices.mean[at]
            j = min(max(segment - 1, 0), N - 2)
            late = second[i] / (2.0 * line.width[j])
            early, beyond = (
                first[i] - late,
                slices.above[at, j + 1] if call else slices.below[at, j],
            )
            if segment in (0, N):  # closed forms
                right = segment == N
                end = N - 1 if right else 0
                knot, slope = line.x[end], slices.b[at, end]
                x[i] = knot + (k[here] + slices.log_mean[at] - slices.s[at, end]) / slope
                own = _tail_moments(slices.s[at, end], slope, knot, x[i], 1.0 if right else -1.0)
                mass[i], early, late, beyond = own[0], own[1], 0.0, 0.0
                if right != call:  # looking back: the rest of the tail, then the whole line
                    mass[i] = slices.parts[at, segment, 0] - mass[i]
                    early = slices.parts[at, segment, 1] - early
                    beyond = slices.below[at, N - 1] if right else slices.above[at, 0]
            out.moments[0, here], out.moments[1, here], out.moments[2, here] = mass[i], early, late
            out.share[here] = (mass[i] + beyond) / mean
        for i in range(count):
            here = base + i
            out.x[here] = x[i]
            paid = exp(k[here]) * normal.cdf(-sign[here] * x[i])
            out.price[here] = sign[here] * (out.share[here] - paid)


@compiled
def fill_part_sums(
    cut: Array, rise: Array, parts: Array, after: Array, before: Array, total: Array
) -> None:
    """Derivatives ``(N+1, n)`` of all that lies right and left of each part of one slice.

    ``cut`` and ``rise`` are those of the line, and ``total`` ``(n,)`` is that of the whole line.
    """
    N, n = cut.shape
    for c in range(n):
        before[0, c] = after[N, c] = 0.0
    for i in range(N):  # rows are taken out first: then loops run in vectors
        base, mass, early, late = max(i - 1, 0), parts[i, 0], parts[i, 1], parts[i, 2]
        up, near, far, old, new = rise[base], cut[base], cut[i], before[i], before[i + 1]
        for c in range(n):
            new[c] = old[c] + (mass * up[c] + early * near[c]) + late * far[c]
    for i in range(N, 0, -1):
        base, mass, early, late = i - 1, parts[i, 0], parts[i, 1], parts[i, 2]
        up, near, far, old, new = rise[base], cut[base], cut[min(i, N - 1)], after[i], after[i - 1]
        for c in range(n):
            new[c] = old[c] + (mass * up[c] + early * near[c]) + late * far[c]
    for c in range(n):
        total[c] = after[0, c] + before[1, c]


@compiled
def fill_price_rows(
    line: KnotQuadrature,
    slices: SliceIntegrals,
    prices: QuotePrices,
    quotes: tuple[Indices, Array, Array],
    rows: Array,
) -> None:
    """Derivatives ``(m, n)`` of prices by the slopes of their slice, times factors.

    ``quotes`` are the slice of each, nondecreasing, the sign of its side, and its factor.
    """
    (slice_of, sign, scale), (N, n) = quotes, line.cut.shape
    after, before, total = np.empty((N + 1, n)), np.empty((N + 1, n)), np.empty(n)
    at = -1
    for i in range(len(rows)):
        if slice_of[i] != at:
            at = slice_of[i]
            fill_part_sums(line.cut, line.rise, slices.parts[at], after, before, total)
        segment, share = prices.segment[i], prices.share[i]
        base, row = max(segment - 1, 0), rows[i]
        end = min(base + 1, N - 1)
        factor = scale[i] * sign[i] / slices.mean[at]
        around = after[segment] if sign[i] > 0.0 else before[segment]
        rise, mass = line.rise[base], prices.moments[0, i]
        for c in range(n):
            row[c] = factor * (around[c] + mass * rise[c] - share * total[c])
        early, late = factor * prices.moments[1, i], factor * prices.moments[2, i]
        if line.whole:
            row[base] += early
            row[end] += late
        else:
            for c in range(n):
                row[c] += early * line.cut[base, c] + late * line.cut[end, c]


def log_mean_gradient(line: KnotQuadrature, slices: SliceIntegrals) -> Array:
    """``(S, n)`` derivatives of ``log M`` by the slopes."""
    out = np.empty((len(slices.mean), line.cut.shape[1]))
    _fill_mean_rows(line, slices.parts, out)
    return np.asarray(out / slices.mean[:, None])


@compiled
def _fill_mean_rows(line: KnotQuadrature, parts: Array, rows: Array) -> None:
    N, n = line.cut.shape
    after, before = np.empty((N + 1, n)), np.empty((N + 1, n))
    for at in range(len(rows)):
        fill_part_sums(line.cut, line.rise, parts[at], after, before, rows[at])
