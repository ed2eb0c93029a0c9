"""Slopes of a smile, slice by slice and compiled: :mod:`..prior.smile_to_slopes`.

Shapes: H places of ``asinh z``, n knots.
"""

from __future__ import annotations

import math

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.prior import smile_to_slopes
from arbiter.operators.quick import dense, scalars
from arbiter.operators.quick.elementary import exp, log, tail
from arbiter.operators.quick.transport_prices import Known


@compiled
def log_slopes(u: Array, level: float, known: Known, g: Array) -> None:
    """As :func:`..prior.smile_to_slopes.log_slopes` of one slice, into ``(n,)``."""
    H, n = u.size, g.size
    x = coordinates(u, level, known)
    first, spacing = known.knots
    t = (x - first) / spacing
    mean = _averages(t, x, known.z, n + 1)
    A, off = np.empty((H, n + 1)), np.empty(H)
    for i in range(H):
        low, high = x[max(i - 1, 0)], x[min(i + 1, H - 1)]
        wide = high - low if i == 0 or i == H - 1 else 0.5 * (high - low)
        root = math.sqrt(exp(-2.0 * u[i]) * wide) / (
            1.0 + (x[i] / smile_to_slopes.CORE_COORDINATE) ** 2
        )
        row = A[i]
        _hats(t[i], row)
        left = known.z[i]
        for j in range(n):
            row[j] *= mean[j] * spacing
            left -= row[j]
            row[j] *= root
        row[n], off[i] = root, root * left
    P, found = np.empty((n + 1, n + 1)), np.zeros(n + 1)
    dense.squares(A, P)
    P += known.bend
    for i in range(H):
        for j in range(n + 1):
            found[j] += A[i, j] * off[i]
    dense.factorise(P)
    dense.solve(P, found)
    for j in range(n):
        g[j] = log(
            mean[j]
            * (
                1.0
                + min(
                    max(found[j], smile_to_slopes.MIN_RELATIVE_CORRECTION),
                    smile_to_slopes.MAX_RELATIVE_CORRECTION,
                )
            )
        )


@compiled
def coordinates(u: Array, level: float, known: Known) -> Array:
    """As :func:`..prior.smile_to_slopes.coordinates` of one slice."""
    H, z, zeta = u.size, known.z, known.zeta
    lean = np.empty(H)
    for i in range(1, H - 1):
        lean[i] = (u[i + 1] - u[i - 1]) / (zeta[i + 1] - zeta[i - 1]) / known.steep[i]
    lean[0], lean[H - 1] = lean[1], lean[H - 2]
    x, money = _quantiles(u, z, lean, level), 0
    for i in range(H):
        money = i if abs(zeta[i]) < abs(zeta[money]) else money
    at, last = x[money], x[0]
    x[0] = 0.0
    for i in range(1, H):
        here = x[i]
        least = smile_to_slopes.MIN_RELATIVE_RUN * (z[i] - z[i - 1]) * exp(-u[i])
        x[i] = x[i - 1] + max(here - last, least)
        last = here
    shift = at - x[money]
    for i in range(H):
        x[i] += shift
    return x


@compiled
def _quantiles(u: Array, z: Array, lean: Array, level: float) -> Array:
    """Gaussian coordinates of the strikes, one by one."""
    x = np.empty(u.size)
    for i in range(u.size):
        grown = exp(u[i])
        y = z[i] / grown + 0.5 * grown * level
        density = scalars.pdf(y)
        small, bell = density * tail(abs(y)), density * grown * lean[i]
        below, above = (small if y < 0.0 else 1.0 - small), (1.0 - small if y < 0.0 else small)
        below = max(
            below + bell,
            smile_to_slopes.MIN_TAIL_SHARE * below,
            smile_to_slopes.MIN_TAIL_PROBABILITY,
        )
        above = max(
            above - bell,
            smile_to_slopes.MIN_TAIL_SHARE * above,
            smile_to_slopes.MIN_TAIL_PROBABILITY,
        )
        found = scalars.quantile(min(below, above, 0.5))
        x[i] = found if below < above else -found
    return x


@compiled
def _averages(t: Array, x: Array, z: Array, count: int) -> Array:
    """Local averages of the secants ``Δz/Δx`` at as many knots; t are the x in knots."""
    risen, along = np.zeros(count), np.zeros(count)
    inner, weight = -0.5 / smile_to_slopes.SECANT_BANDWIDTH_KNOTS**2, np.empty(count)
    up = np.exp(np.arange(count))
    down = 1.0 / up
    for i in range(t.size - 1):
        middle, rise, run = 0.5 * (t[i] + t[i + 1]), z[i + 1] - z[i], x[i + 1] - x[i]
        grown = exp(middle)
        left, right = (
            smile_to_slopes.FAR_SECANT_WEIGHT / grown,
            smile_to_slopes.FAR_SECANT_WEIGHT * grown,
        )  # of e^{−|j − t|}
        for j in range(count):
            apart = j - middle
            weight[j] = exp(inner * apart * apart) + min(left * up[j], right * down[j])
        for j in range(count):
            risen[j] += weight[j] * rise
            along[j] += weight[j] * run
    return risen / along


@compiled
def _hats(t: float, found: Array) -> None:
    """Integrals of the hats as far as t, in knots; the last is left alone."""
    n = found.size - 1
    for j in range(found.size):
        away = min(max(t - j, -1.0), 1.0)
        found[j] = away - 0.5 * away * abs(away) + 0.5
    found[0] = t if t < 0.0 else found[0] - 0.5
    if t >= n - 1:
        found[n - 1] = t - (n - 1) + 0.5
