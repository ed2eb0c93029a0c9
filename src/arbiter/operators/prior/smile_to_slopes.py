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
from arbiter.operators.prior.small_matrices import add_products, factorise, solve
from arbiter.operators.slope_head import KNOTS
from arbiter.pricing.elementary import exp
from arbiter.pricing.normal import INV_ROOT_2PI, cdf, quantile

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
    (M, H), size = u.shape, len(places.bend)
    x, mean = coordinates(u, places, level), np.empty((M, size))
    _average_secants(x, places.z, mean)
    rows = np.empty((M, H, size + 1))
    _fill_rows(x, u, places.z, mean, rows)
    system = np.zeros((M, size, size + 1))
    system[:, :, :size] = places.bend
    add_products(rows, rows, system)
    found = system[:, :, size].copy()
    factorise(system)
    solve(system, found)
    corrected = np.clip(found[:, :-1], MIN_RELATIVE_CORRECTION, MAX_RELATIVE_CORRECTION)
    return np.log(mean[:, :-1] * (1.0 + corrected))


def coordinates(u: Array, places: Places, level: Array) -> Array:
    """``(M, H)`` Gaussian coordinates x of the strikes, increasing."""
    x = np.empty_like(u)
    _fill_coordinates(u, (places.zeta, places.z, places.steep), level, x)
    return x


@compiled
def _fill_coordinates(u: Array, places: tuple[Array, Array, Array], level: Array, x: Array) -> None:
    """Coordinates, row by row; of what is no number none comes."""
    (M, H), (zeta, z, steep), money = u.shape, places, 0
    grown, lean, side, rising = np.empty(H), np.empty(H), np.empty(H), np.empty(H)
    for h in range(H):
        money = h if abs(zeta[h]) < abs(zeta[money]) else money
    for each in range(M):
        own, out = u[each], x[each]
        for h in range(1, H - 1):
            lean[h] = (own[h + 1] - own[h - 1]) / (zeta[h + 1] - zeta[h - 1]) / steep[h]
        lean[0], lean[H - 1] = lean[1], lean[H - 2]
        for h in range(H):
            grown[h] = exp(own[h])
            y = z[h] / grown[h] + 0.5 * grown[h] * level[each]
            bell = INV_ROOT_2PI * exp(-0.5 * y * y) * grown[h] * lean[h]
            below, above = cdf(y), cdf(-y)
            low, high = below + bell, above - bell
            low = MIN_TAIL_SHARE * below if low < MIN_TAIL_SHARE * below else low
            high = MIN_TAIL_SHARE * above if high < MIN_TAIL_SHARE * above else high
            side[h] = 1.0 if low < high else -1.0
            tail = low if low < high else high
            tail = 0.5 if tail > 0.5 else tail
            out[h] = MIN_TAIL_PROBABILITY if tail < MIN_TAIL_PROBABILITY else tail
        for h in range(H):
            out[h] = side[h] * quantile(out[h])
        rising[0] = 0.0
        for h in range(1, H):
            run, least = out[h] - out[h - 1], MIN_RELATIVE_RUN * (z[h] - z[h - 1]) / grown[h]
            rising[h] = rising[h - 1] + (least if run < least else run)
        shift = out[money] - rising[money]
        for h in range(H):
            out[h] = rising[h] + shift


@compiled
def _average_secants(x: Array, z: Array, mean: Array) -> None:
    """Local averages of the secants ``Δz/Δx`` at the knots, and at one beyond them."""
    M, count = mean.shape
    up, down, inner = np.empty(count), np.empty(count), -0.5 / SECANT_BANDWIDTH_KNOTS**2
    risen, along, weight = np.empty(count), np.empty(count), np.empty(count)
    for j in range(count):
        up[j], down[j] = FAR_SECANT_WEIGHT * math.exp(j), FAR_SECANT_WEIGHT * math.exp(-j)
    for each in range(M):
        for j in range(count):
            risen[j] = along[j] = 0.0
        for i in range(z.size - 1):
            low, high = x[each, i], x[each, i + 1]
            middle, rise = (0.5 * (low + high) - FIRST_KNOT) / KNOT_SPACING, z[i + 1] - z[i]
            grown = math.exp(middle)
            fallen = 1.0 / grown
            for j in range(count):
                apart = j - middle
                far = min(fallen * up[j], grown * down[j])  # times e^{−|j − t|}
                weight[j] = exp(inner * apart * apart) + far
            for j in range(count):
                risen[j] += weight[j] * rise
                along[j] += weight[j] * (high - low)
        for j in range(count):
            mean[each, j] = risen[j] / along[j]


@compiled
def _fill_rows(x: Array, u: Array, z: Array, mean: Array, rows: Array) -> None:
    """Of every place what corrections of the slopes, and of zero, move it, and how far it is off.

    Each by the root of its weight.
    """
    (M, H), size = x.shape, mean.shape[1]
    n = size - 1
    for each in range(M):
        for i in range(H):
            at, row = x[each, i], rows[each, i]
            low, high = x[each, max(i - 1, 0)], x[each, min(i + 1, H - 1)]
            wide = high - low if i == 0 or i == H - 1 else 0.5 * (high - low)
            root = math.sqrt(wide) * math.exp(-u[each, i]) / (1.0 + (at / CORE_COORDINATE) ** 2)
            t = (at - FIRST_KNOT) / KNOT_SPACING
            for j in range(size):  # the integral of a hat as far as t
                away = min(max(t - j, -1.0), 1.0)
                row[j] = away - 0.5 * away * abs(away) + 0.5
            row[0] = t if t < 0.0 else row[0] - 0.5
            if t >= n - 1:
                row[n - 1] = t - (n - 1) + 0.5
            row[n] = 0.0
            for j in range(size):
                row[j] *= mean[each, j] * KNOT_SPACING
            even = odd = 0.0
            for j in range(0, size, 2):  # two sums: neither waits for the other
                even += row[j]
                odd += row[j + 1]
            for j in range(size):
                row[j] *= root
            row[n], row[size] = root, root * (z[i] - (even + odd))
