"""The growth of prices with maturity at fixed moneyness, compiled.

With ``ṡ`` the growth of the transport and ``m = E[X ṡ]``, the envelope theorem gives

    ∂c/∂T = E[X (ṡ − m); X > κ] = −E[X (ṡ − m); X ≤ κ].

``ṡ`` does not decrease in x by the star order, so that on the side out of the money the integrand
has one sign, but for a stretch next to the money.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.pricing import normal
from arbiter.pricing.elementary import exp
from arbiter.pricing.knots import Knots
from arbiter.pricing.slice_integrals import SlicePoint, Slices


class Growth(NamedTuple):
    """Growth of ``S`` slices at the cut knots, ``(S, N)`` each."""

    slope: Array  # of the slopes
    transport: Array  # ṡ − m
    below: Array  # −∞ to x_i of E[X (ṡ − m)]
    above: Array  # x_i to ∞


def fill_calendar_rates(
    knots: Knots, slices: Slices, rates: Array, point: SlicePoint, out: Array
) -> None:
    """``∂c/∂T`` at points of slices.

    Args:
        knots: The cut line.
        slices: ``S`` slices.
        rates: ``(S, n)`` derivatives of their slopes by T.
        point: ``(m,)`` points of them.
        out: ``(m,)``.
    """
    room = np.empty((4, *slices.b.shape))
    growth = Growth(room[0], room[1], room[2], room[3])
    _fill_growth(knots, slices, rates, growth)
    _fill_rates(knots, slices, growth, point, out)


@compiled
def _integrate_tail(
    k: float, x: float, b: float, growth: tuple[float, float], side: float
) -> tuple[float, float]:
    """``∫ e^{k + b(y−x)} φ(y) dy`` from x outwards, and the same times a line through ``growth``.

    The integrand is a normal density around b. ``growth`` is the line's value at x and its slope.
    """
    mass = normal.weighted_mills(k, x, side * (x - b))
    value, rate = growth
    return mass, (value + rate * (b - x)) * mass + side * rate * normal.scaled_pdf(k, x)


@compiled
def _fill_growth(knots: Knots, slices: Slices, rates: Array, out: Growth) -> None:
    n, N, zero = rates.shape[1], knots.x.size, knots.zero
    mass, gain = np.empty(N + 1), np.empty(N + 1)  # of each segment, the tails outside
    for at in range(len(rates)):
        b, s, log_mean = slices.b[at], slices.s[at], slices.log_mean[at]
        g, h = out.slope[at], out.transport[at]
        for i in range(N):
            left, right = rates[at, knots.source[i]], rates[at, min(knots.source[i] + 1, n - 1)]
            g[i] = left + knots.blend[i] * (right - left)
        h[zero] = 0.0
        for i in range(zero, N - 1):
            h[i + 1] = h[i] + 0.5 * knots.width[i] * (g[i + 1] + g[i])
        for i in range(zero - 1, -1, -1):
            h[i] = h[i + 1] - 0.5 * knots.width[i] * (g[i + 1] + g[i])
        for end, side, place in ((0, -1.0, 0), (N - 1, 1.0, N)):
            k = s[end] - log_mean
            mass[place], gain[place] = _integrate_tail(
                k, knots.x[end], b[end], (h[end], g[end]), side
            )
        for i in range(N - 1):
            w = knots.width[i]
            bend, turn = (b[i + 1] - b[i]) / w, (g[i + 1] - g[i]) / w
            total = growing = 0.0
            for q in range(knots.node.size):
                t = w * knots.node[q]
                part = knots.gauss[q, i] * exp(s[i] - log_mean + t * (b[i] + 0.5 * bend * t))
                total += part
                growing += part * (h[i] + t * (g[i] + 0.5 * turn * t))
            mass[i + 1], gain[i + 1] = total, growing
        mean = 0.0
        for i in range(N + 1):
            mean += gain[i]
        for i in range(N + 1):
            gain[i] -= mean * mass[i]
        for i in range(N):
            h[i] -= mean
        out.below[at, 0], out.above[at, N - 1] = gain[0], gain[N]
        for i in range(1, N):
            out.below[at, i] = out.below[at, i - 1] + gain[i]
        for i in range(N - 2, -1, -1):
            out.above[at, i] = out.above[at, i + 1] + gain[i + 1]


@compiled
def _fill_rates(
    knots: Knots, slices: Slices, growth: Growth, point: SlicePoint, out: Array
) -> None:
    last = knots.x.size - 1
    for i in range(out.size):
        at, j = point.of[i], point.segment[i]
        if abs(point.x[i]) == math.inf:
            out[i] = 0.0
            continue
        b, g, h = slices.b[at], growth.slope[at], growth.transport[at]
        if j < 0 or j == last:
            side, j = (1.0, last) if j == last else (-1.0, 0)
            here = h[j] + g[j] * (point.x[i] - knots.x[j])
            tail = _integrate_tail(point.k[i], point.x[i], b[j], (here, g[j]), side)
            out[i] = side * tail[1]
            continue
        call, w = point.k[i] >= 0.0, knots.width[j]
        start, room = (point.to_left[i], point.to_right[i]) if call else (0.0, point.to_left[i])
        bend, turn = (b[j + 1] - b[j]) / w, (g[j + 1] - g[j]) / w
        base, total = slices.s[at, j] - slices.log_mean[at], 0.0
        for q in range(knots.node.size):
            t = start + room * knots.node[q]
            x = knots.x[j] + t
            part = exp(base + t * (b[j] + 0.5 * bend * t) - 0.5 * x * x)
            total += knots.weight[q] * part * (h[j] + t * (g[j] + 0.5 * turn * t))
        total *= normal.INV_ROOT_2PI * room
        out[i] = total + growth.above[at, j + 1] if call else -(total + growth.below[at, j])
