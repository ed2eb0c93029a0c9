"""Slopes of a smile, slice by slice and compiled: :mod:`arbiter.operators.start`.

Shapes: H places of ``asinh z``, n knots.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from arbiter import normal
from arbiter.compiled import compiled
from arbiter.operators import start
from arbiter.operators.quick import dense, scalars
from arbiter.operators.quick.prices import Known

Array = NDArray[np.float64]


@compiled
def log_slopes(u: Array, total: Array, known: Known, g: Array) -> None:
    """As :func:`arbiter.operators.start.log_slopes` of one chain, into ``(L, n)``."""
    for each in range(len(u)):
        _log_slopes(u[each], math.exp(total[each]), known, g[each])


@compiled
def _log_slopes(u: Array, level: float, known: Known, g: Array) -> None:
    """As :func:`arbiter.operators.start.log_slopes` of one slice, into ``(n,)``."""
    H, n = u.size, g.size
    x = coordinates(u, level, known)
    first, spacing = known.knots
    t = (x - first) / spacing
    risen, along = np.zeros(n), np.zeros(n)
    for i in range(H - 1):
        _average(
            0.5 * (t[i] + t[i + 1]), known.z[i + 1] - known.z[i], x[i + 1] - x[i], risen, along
        )
    mean = risen / along
    A, off = np.empty((H, n + 1)), np.empty(H)
    for i in range(H):
        low, high = x[max(i - 1, 0)], x[min(i + 1, H - 1)]
        wide = high - low if i == 0 or i == H - 1 else 0.5 * (high - low)
        root = math.sqrt(math.exp(-2.0 * u[i]) * wide) / (1.0 + (x[i] / start._CORE) ** 2)
        left = known.z[i]
        for j in range(n):
            away = min(max(t[i] - j, -1.0), 1.0)
            hat = away - 0.5 * away * abs(away) + 0.5
            if j == 0:
                hat = t[i] if t[i] < 0.0 else hat - 0.5
            elif j == n - 1 and t[i] >= n - 1:
                hat = t[i] - (n - 1) + 0.5
            part = hat * mean[j] * spacing
            left -= part
            A[i, j] = root * part
        A[i, n] = root
        off[i] = root * left
    P, found = known.bend.copy(), np.zeros(n + 1)
    for i in range(H):
        dense.add(P, A[i], 1.0)
        for j in range(n + 1):
            found[j] += A[i, j] * off[i]
    dense.factorise(P)
    dense.solve(P, found)
    for j in range(n):
        g[j] = math.log(mean[j]) + math.log1p(min(max(found[j], start._LEAST), start._MOST))


@compiled
def coordinates(u: Array, level: float, known: Known) -> Array:
    """As :func:`arbiter.operators.start.coordinates` of one slice."""
    H, z, zeta = u.size, known.z, known.zeta
    x, money = np.empty(H), 0
    for i in range(H):
        at = min(max(i, 1), H - 2)
        lean = (u[at + 1] - u[at - 1]) / (zeta[at + 1] - zeta[at - 1]) / math.cosh(zeta[at])
        grown = math.exp(u[i])
        y = z[i] / grown + 0.5 * grown * level
        bell = normal.INV_ROOT_2PI * math.exp(-0.5 * y * y) * grown * lean
        below, above = scalars.cdf(y), scalars.cdf(-y)
        below = max(below + bell, start._SHARE * below, start._LEAST_TAIL)
        above = max(above - bell, start._SHARE * above, start._LEAST_TAIL)
        tail = scalars.quantile(min(below, above, 0.5))
        x[i] = tail if below < above else -tail
        money = i if abs(zeta[i]) < abs(zeta[money]) else money
    at, last = x[money], x[0]
    x[0] = 0.0
    for i in range(1, H):
        here = x[i]
        least = start._FLATTEST * (z[i] - z[i - 1]) * math.exp(-u[i])
        x[i] = x[i - 1] + max(here - last, least)
        last = here
    shift = at - x[money]
    for i in range(H):
        x[i] += shift
    return x


@compiled
def _average(t: float, rise: float, run: float, risen: Array, along: Array) -> None:
    """Add a secant at t, in knots, to the local averages at all of them."""
    n, inner = risen.size, -0.5 / start._BLUR**2
    nearest = min(max(math.floor(t), 0), n - 1)
    # knot after knot by products: e^{−|j − t|} has a constant ratio, and a bell's ratio has one
    bend = math.exp(2.0 * inner)
    for way in (-1, 1):
        j = nearest if way < 0 else nearest + 1
        apart = abs(j - t)
        outward = apart if (j - t) * way >= 0.0 else -apart
        far, near = start._FAR * math.exp(-apart), math.exp(inner * apart**2)
        ratio = math.exp(inner * (2.0 * outward + 1.0))
        less = math.exp(-1.0)
        for _ in range(j if way > 0 else 0, n if way > 0 else j + 1):
            weight = far + near
            risen[j] += weight * rise
            along[j] += weight * run
            far *= less
            near *= ratio
            ratio *= bend
            j += way
