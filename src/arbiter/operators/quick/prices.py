"""What smiles and transports are worth at the heads, compiled: prices of :mod:`..polish`.

Shapes: B chains of L slices, H places of ``asinh z``, n knots, G points of a quadrature.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter import normal
from arbiter.compiled import compiled
from arbiter.operators import head, polish, start
from arbiter.operators.quick import scalars

Array = NDArray[np.float64]
Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Known(NamedTuple):
    """What is the same for every smile.

    Attributes:
        zeta: ``(H,)`` places.
        z: ``(H,)`` the same in deviations.
        weight: ``(G,)`` Gaussian weights of the quadrature.
        below: ``(G,)`` Φ(x).
        above: ``(G,)`` Φ(−x).
        knot: ``(G,)`` the knot below each point, and
        share: ``(G,)`` how far it is to the next.
        risen: ``(G, n)`` integrals of the hats at the knots.
        coarse: ``(G/2, n)`` every other of these.
        cost: ``(n, n)`` of a step.
        bend: ``(n + 1, n + 1)`` of corrections.
        knots: First knot and their spacing.
    """

    zeta: Array
    z: Array
    weight: Array
    below: Array
    above: Array
    knot: Indices
    share: Array
    risen: Array
    coarse: Array
    cost: Array
    bend: Array
    knots: tuple[float, float]


class Wanted(NamedTuple):
    """Smiles of chains, or of one chain, and what they are worth.

    Attributes:
        u: ``(B, L, H)`` within :data:`arbiter.operators.start.FARTHEST`.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)``
        log_price: ``(B, L, H)``
        elasticity: ``(B, L, H)``
        trust: ``(B, L, H)``
    """

    u: Array
    total: Array
    seen: Flags
    log_price: Array
    elasticity: Array
    trust: Array


@lru_cache(maxsize=8)
def known(place: tuple[float, ...]) -> Known:
    """What is the same for every smile at these places."""
    cpu = torch.device("cpu")
    grid = polish._quadrature(cpu)
    hats = grid.hats.numpy()
    knot = np.minimum((hats > 0.0).argmax(1), hats.shape[1] - 2)
    knots, _, bend = start._known(cpu)
    risen = grid.risen.numpy()
    return Known(
        zeta=np.array(place),
        z=np.sinh(np.array(place)),
        weight=grid.weight.numpy(),
        below=grid.below.numpy(),
        above=grid.above.numpy(),
        knot=knot,
        share=hats[np.arange(len(hats)), knot + 1],
        risen=risen,
        coarse=np.ascontiguousarray(risen[:: polish._COARSE]),
        cost=polish._step_cost(cpu).numpy(),
        bend=bend.numpy(),
        knots=(float(knots[0]), float(knots[1] - knots[0])),
    )


@compiled
def worth(smile: Array, doubt: Array, total: Array, seen: Flags, known: Known) -> Wanted:
    """As :func:`arbiter.operators.polish._priced`."""
    B, L, H = smile.shape
    u, log_price = np.empty((B, L, H)), np.empty((B, L, H))
    elasticity, trust = np.empty((B, L, H)), np.zeros((B, L, H))
    for chain in range(B):
        for each in range(L):
            level = math.exp(total[chain, each])
            for h in range(H):
                at = (chain, each, h)
                u[at] = min(max(smile[at], -start.FARTHEST), start.FARTHEST)
                k, v = known.z[h] * level, level * math.exp(u[at])
                price = max(scalars.otm(k, v), polish._NOTHING)
                vega = normal.INV_ROOT_2PI * math.exp(-0.5 * (0.5 * v - k / v) ** 2)
                log_price[at] = math.log(price)
                elasticity[at] = max(v * vega / price, polish._LEAST_ELASTICITY)
                if price > polish._CHEAPEST and seen[chain, each]:
                    trust[at] = 1.0 / (math.exp(2.0 * doubt[at]) + polish._SURE**2)
    return Wanted(u, total, seen, log_price, elasticity, trust)


class Laid(NamedTuple):
    """As :class:`arbiter.operators.polish._Laid` of one slice, and its prices.

    Attributes:
        along: ``(G,)`` log-moneyness over level.
        share: ``(G,)``
        put: ``(G,)``
        call: ``(G,)``
        calls: ``(G,)`` integrals of these from each point up.
        at: ``(H,)``
        between: ``(H,)``
        price: ``(H,)``
    """

    along: Array
    share: Array
    put: Array
    call: Array
    calls: Array
    at: Indices
    between: Array
    price: Array


@compiled
def room(known: Known) -> Laid:
    """For one slice, to be filled again and again."""
    G, H = known.weight.size, known.z.size
    at = np.empty(H, np.int64)
    grid = np.empty((5, G))
    return Laid(grid[0], grid[1], grid[2], grid[3], grid[4], at, np.empty(H), np.empty(H))


@compiled
def lay(b: Array, level: float, known: Known, laid: Laid) -> None:
    """A transport with slopes ``(n,)`` over ``σ√T`` along the quadrature, and its prices."""
    G, H = known.weight.size, known.z.size
    along = laid.along
    for i in range(G):
        total = 0.0
        for j in range(b.size):
            total += b[j] * known.risen[i, j]
        along[i] = total
    middle, mass = along[G // 2], 0.0
    for i in range(G):
        grown = math.exp(level * (along[i] - middle))
        laid.put[i] = grown
        laid.share[i] = grown * known.weight[i]
        mass += laid.share[i]
    shift = middle + math.log(mass) / level
    for i in range(G):
        along[i] -= shift
        laid.share[i] /= mass
        knot = known.knot[i]
        slope = b[knot] + known.share[i] * (b[knot + 1] - b[knot])
        rising = level * laid.put[i] / mass * slope
        laid.put[i], laid.call[i] = rising * known.below[i], rising * known.above[i]
    laid.calls[G - 1] = 0.0
    for i in range(G - 2, -1, -1):
        laid.calls[i] = laid.calls[i + 1] + 0.5 * polish._STEP * (laid.call[i] + laid.call[i + 1])
    at, puts = 1, 0.0
    for h in range(H):
        z = known.z[h]
        while at < G - 1 and along[at] < z:
            puts += 0.5 * polish._STEP * (laid.put[at - 1] + laid.put[at])
            at += 1
        t = min(max((z - along[at - 1]) / (along[at] - along[at - 1]), 0.0), 1.0)
        if z >= 0.0:
            price = _upto(laid.call[at], laid.call[at - 1], 1.0 - t) + laid.calls[at]
        else:
            price = _upto(laid.put[at - 1], laid.put[at], t) + puts
        laid.at[h], laid.between[h], laid.price[h] = at, t, max(price, polish._NOTHING)


@compiled
def _upto(first: float, other: float, t: float) -> float:
    """The integral over a part of one step."""
    return 0.5 * polish._STEP * t * (2.0 * first + t * (other - first))


@compiled
def short(laid: Laid, wanted: Wanted, each: int, miss: Array) -> None:
    """By how much the log-volatility of prices is short of the smile's, into ``(H,)``."""
    for h in range(miss.size):
        off = (wanted.log_price[each, h] - math.log(laid.price[h])) / wanted.elasticity[each, h]
        miss[h] = min(max(off, -1.0), 1.0)


@compiled
def headed(g: Array, total: Array) -> Array:
    """``(L, n)`` slopes over ``σ√T`` as :func:`arbiter.operators.head.slopes` makes them."""
    slopes = np.empty_like(g)
    most = np.zeros(g.shape[1])
    for each in range(len(g)):
        level = math.exp(total[each])
        for j in range(most.size):
            proposed = math.exp(min(max(g[each, j], head.LOWEST), head.HIGHEST) + total[each])
            most[j] = proposed if not proposed <= most[j] else most[j]  # a NaN stays
            slopes[each, j] = min(max(most[j], head._LEAST), head._MOST) / level
    return slopes
