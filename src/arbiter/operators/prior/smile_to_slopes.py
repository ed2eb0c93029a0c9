"""Where the network starts: slopes of a transport whose smile is a given one.

Black's formula gives every strike its Gaussian coordinate: with total volatility ``v(k)`` and
``y = k/v + v/2``, the law below the strike weighs ``Φ(y) + φ(y) v'(k)``, and x is the Gaussian
quantile of that. Through the pairs ``(x_j, z_j)`` of a few strikes goes a transport, ``z(x)`` being
the integral of slopes that are linear between knots: a small linear least-squares problem, one for
each slice. The first guess is a local average of the secant slopes, and what is solved for are its
relative corrections, held to be smooth.

A smile may be arbitraged, or run into the tails, where coordinates are a matter of a few parts in a
million: no tail loses more than all but :data:`MIN_TAIL_SHARE` of its lognormal mass, and no secant
slope exceeds its lognormal one by more than ``1/MIN_RELATIVE_RUN``.

Shapes: M slices, H places of ``asinh z``, n knots.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators.prior import small_matrices
from arbiter.operators.slope_head import KNOTS
from arbiter.pricing.elementary import exp
from arbiter.pricing.normal import INV_ROOT_2PI, cdf_of, quantile_of

MIN_TAIL_SHARE = 0.07
MIN_TAIL_PROBABILITY = 1e-300
MIN_RELATIVE_RUN = 0.1
MAX_WING_LOG_RATIO = 2.0  # of log-volatility over reference: no smile is steeper in its wings
SECANT_BANDWIDTH_KNOTS = 0.8  # width of the local average, in knots
FAR_SECANT_WEIGHT = 1e-12  # weight of far secants, for knots that none is near
CURVATURE_COST, VALUE_COST = 1e-2, 1e-4  # what second differences and values of corrections cost
CORE_COORDINATE = 1.5  # coordinates within which strikes count in full
MIN_RELATIVE_CORRECTION, MAX_RELATIVE_CORRECTION = -0.6, 1.0  # relative corrections

FIRST_KNOT, KNOT_SPACING = KNOTS[0], KNOTS[1] - KNOTS[0]


class Places(NamedTuple):
    """Where smiles are given, the same for all of them.

    Attributes:
        zeta: ``(H,)`` of ``asinh z``, increasing.
        z: ``(H,)`` the same in deviations.
        steep: ``(H,)`` how quickly these grow there, ``cosh ζ``.
        bend: ``(n + 1, n + 1)`` what corrections cost. The last one is that of where the transport
            is at zero, which costs nothing.
    """

    zeta: Array
    z: Array
    steep: Array
    bend: Array


@lru_cache(maxsize=8)
def build_places(zeta: tuple[float, ...]) -> Places:
    """The tables of places."""
    at, n = np.array(zeta), len(KNOTS)
    bend = 1e-9 * np.eye(n + 1)
    bend[:n, :n] += build_smoothness_cost(CURVATURE_COST, VALUE_COST)
    return Places(at, np.sinh(at), np.cosh(at), bend)


def build_smoothness_cost(curvature: float, value: float) -> Array:
    """``(n, n)`` what second differences along the knots cost, and values."""
    one = np.eye(len(KNOTS))
    second = np.diff(one, n=2, axis=0)
    return np.asarray(curvature * second.T @ second + value * one)


def integrals(x: Array) -> Array:
    """``(…, n)`` integrals from the left of the hats at the knots, the outermost flat beyond.

    But for a constant: that of the first hat is from its knot.
    """
    t, n = (x - FIRST_KNOT) / KNOT_SPACING, len(KNOTS)
    away = np.clip(t[..., None] - np.arange(n), -1.0, 1.0)
    hats = away - 0.5 * away * np.abs(away) + 0.5
    hats[..., 0] = np.where(t < 0.0, t, hats[..., 0] - 0.5)
    hats[..., -1] = np.where(t < n - 1, hats[..., -1], t - (n - 1) + 0.5)
    return np.asarray(KNOT_SPACING * hats)


def log_slopes(u: Array, places: Places, level: Array) -> Array:
    """Logarithms ``(M, n)`` of slope over ``σ√T`` at the knots.

    Args:
        u: ``(M, H)`` smiles ``log(iv/σ)``, within :data:`MAX_WING_LOG_RATIO`.
        places: Theirs.
        level: ``(M,)`` ``σ√T``.
    """
    g = np.empty((len(u), len(KNOTS)))
    _fill_slopes(u, coordinates(u, places, level), places, g)
    return np.log(g)


def coordinates(u: Array, places: Places, level: Array) -> Array:
    """``(M, H)`` Gaussian coordinates x of the strikes, increasing."""
    zeta, z, grown = places.zeta, places.z, np.exp(u)
    y = z / grown + 0.5 * grown * level[:, None]
    lean = np.empty_like(u)
    lean[:, 1:-1] = (u[:, 2:] - u[:, :-2]) / (zeta[2:] - zeta[:-2]) / places.steep[1:-1]
    lean[:, 0], lean[:, -1] = lean[:, 1], lean[:, -2]
    bell = INV_ROOT_2PI * np.exp(-0.5 * y * y) * grown * lean
    below, above = cdf_of(y), cdf_of(-y)
    below = np.maximum(np.maximum(below + bell, MIN_TAIL_SHARE * below), MIN_TAIL_PROBABILITY)
    above = np.maximum(np.maximum(above - bell, MIN_TAIL_SHARE * above), MIN_TAIL_PROBABILITY)
    low = below < above
    tail = quantile_of(np.minimum(np.where(low, below, above), 0.5))
    x = np.where(low, tail, -tail)
    run = np.maximum(np.diff(x), MIN_RELATIVE_RUN * np.diff(z) / grown[:, 1:])
    rising = np.zeros_like(u)
    np.cumsum(run, 1, out=rising[:, 1:])
    money = int(np.abs(zeta).argmin())
    return np.asarray(rising + (x - rising)[:, money, None])


@compiled
def _fill_slopes(u: Array, x: Array, places: Places, g: Array) -> None:
    """Slopes over ``σ√T``, slice by slice."""
    (M, H), n = u.shape, g.shape[1]
    t, mean, by, off = np.empty(H), np.empty(n + 1), np.empty(n), np.empty(H)
    A, P, found = np.empty((H, n + 1)), np.empty((n + 1, n + 1)), np.empty(n + 1)
    for each in range(M):
        for i in range(H):
            t[i] = (x[each, i] - FIRST_KNOT) / KNOT_SPACING
        _average_secants(t, x[each], places.z, mean)
        for j in range(n):
            by[j] = mean[j] * KNOT_SPACING
        for i in range(H):
            low, high = x[each, max(i - 1, 0)], x[each, min(i + 1, H - 1)]
            wide = high - low if i == 0 or i == H - 1 else 0.5 * (high - low)
            core = 1.0 + (x[each, i] / CORE_COORDINATE) ** 2
            root = math.sqrt(wide) * math.exp(-u[each, i]) / core
            off[i] = root * (places.z[i] - _fill_row(t[i], by, root, A[i]))
        small_matrices.squares(A, P)
        for j in range(n + 1):
            found[j] = 0.0
            for i in range(j, n + 1):
                P[j, i] += places.bend[j, i]
        for i in range(H):
            for j in range(n + 1):
                found[j] += A[i, j] * off[i]
        small_matrices.factorise(P)
        small_matrices.solve(P, found)
        for j in range(n):
            corrected = min(max(found[j], MIN_RELATIVE_CORRECTION), MAX_RELATIVE_CORRECTION)
            g[each, j] = mean[j] * (1.0 + corrected)


@compiled
def _fill_row(t: float, by: Array, root: float, row: Array) -> float:
    """Integrals of the hats as far as t, in knots, times slopes and a root; their sum without it.

    The last entry is the root itself, of a constant.
    """
    n = by.size
    for j in range(n):
        away = min(max(t - j, -1.0), 1.0)
        row[j] = away - 0.5 * away * abs(away) + 0.5
    row[0] = t if t < 0.0 else row[0] - 0.5
    if t >= n - 1:
        row[n - 1] = t - (n - 1) + 0.5
    for j in range(n):
        row[j] *= by[j]
    even, odd = row[n - 1] if n % 2 == 1 else 0.0, 0.0
    for j in range(0, n - 1, 2):  # two sums: neither waits for the other
        even += row[j]
        odd += row[j + 1]
    for j in range(n):
        row[j] *= root
    row[n] = root
    return even + odd


@compiled
def _average_secants(t: Array, x: Array, z: Array, mean: Array) -> None:
    """Local averages of the secants ``Δz/Δx`` at the knots; t are the x in knots."""
    count = mean.size
    risen, along, weight = np.zeros(count), np.zeros(count), np.empty(count)
    up, inner = np.empty(count), -0.5 / SECANT_BANDWIDTH_KNOTS**2
    for j in range(count):
        up[j] = math.exp(j)
    for i in range(t.size - 1):
        middle, rise, run = 0.5 * (t[i] + t[i + 1]), z[i + 1] - z[i], x[i + 1] - x[i]
        grown = math.exp(middle)
        left, right = FAR_SECANT_WEIGHT / grown, FAR_SECANT_WEIGHT * grown  # of e^{−|j − t|}
        for j in range(count):
            apart = j - middle
            weight[j] = exp(inner * apart * apart) + min(left * up[j], right / up[j])
        for j in range(count):
            risen[j] += weight[j] * rise
            along[j] += weight[j] * run
    for j in range(count):
        mean[j] = risen[j] / along[j]
