"""Prices of smiles and transports at the heads, compiled: :mod:`..prior.star_order_projection`.

Shapes: B chains of L slices, H places of ``asinh z``, n knots, W of them with padding, G points of
a quadrature.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators import slope_head
from arbiter.operators.prior import smile_to_slopes, star_order_projection
from arbiter.operators.quick import scalars
from arbiter.operators.quick.elementary import exp, log

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]
_TOGETHER = 8  # numbers that a processor takes at a time, at most


class Known(NamedTuple):
    """What is the same for every smile.

    Attributes:
        zeta: ``(H,)`` places.
        z: ``(H,)`` the same in deviations.
        steep: ``(H,)`` how quickly these grow there, ``cosh ζ``.
        weight: ``(G,)`` Gaussian weights of the quadrature.
        below: ``(G,)`` Φ(x).
        above: ``(G,)`` Φ(−x).
        knot: ``(G,)`` the knot below each point, and
        share: ``(G,)`` how far it is to the next.
        whole: ``(n,)`` integrals of the hats at the knots, and
        here: ``(2, G)`` as far as each point, of the hats at its knot and the next.
        coarse: ``(G/2, W)`` those of all hats, to every other point, and of none.
        cost: ``(W, W)`` of a step, and of one that nothing asks for.
        bend: ``(n + 1, n + 1)`` of corrections.
        knots: First knot and their spacing.
    """

    zeta: Array
    z: Array
    steep: Array
    weight: Array
    below: Array
    above: Array
    knot: Indices
    share: Array
    whole: Array
    here: Array
    coarse: Array
    cost: Array
    bend: Array
    knots: tuple[float, float]


class Wanted(NamedTuple):
    """Smiles of chains, or of one chain, and what they are worth.

    Attributes:
        u: ``(B, L, H)`` within :data:`arbiter.operators.prior.smile_to_slopes.MAX_WING_LOG_RATIO`.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)``
        log_price: ``(B, L, H)``
        elasticity: ``(B, L, H)``
        says: ``(B, L, H)``
        trust: ``(B, L, H)``
    """

    u: Array
    total: Array
    seen: Flags
    log_price: Array
    elasticity: Array
    says: Array
    trust: Array


@compiled
def chain_of(wanted: Wanted, i: int) -> Wanted:
    """Those of one chain."""
    u, total, seen, says = wanted.u[i], wanted.total[i], wanted.seen[i], wanted.says[i]
    return Wanted(u, total, seen, wanted.log_price[i], wanted.elasticity[i], says, wanted.trust[i])


@lru_cache(maxsize=8)
def known(place: tuple[float, ...]) -> Known:
    """What is the same for every smile at these places."""
    cpu = torch.device("cpu")
    grid = star_order_projection.build_quadrature(cpu)
    hats = grid.hats.numpy()
    knot = np.minimum((hats > 0.0).argmax(1), hats.shape[1] - 2)
    knots, _, bend = smile_to_slopes.build_knot_tables(cpu)
    risen = grid.risen.numpy()
    points, padding = np.arange(len(hats)), -hats.shape[1] % _TOGETHER
    cost = np.eye(hats.shape[1] + padding)
    cost[: hats.shape[1], : hats.shape[1]] = star_order_projection.build_step_cost(cpu).numpy()
    return Known(
        zeta=np.array(place),
        z=np.sinh(np.array(place)),
        steep=np.cosh(np.array(place)),
        weight=grid.weight.numpy(),
        below=grid.below.numpy(),
        above=grid.above.numpy(),
        knot=knot,
        share=hats[points, knot + 1],
        whole=risen[-1],
        here=np.stack([risen[points, knot], risen[points, knot + 1]]),
        coarse=np.pad(risen[:: star_order_projection.DERIVATIVE_STRIDE], ((0, 0), (0, padding))),
        cost=cost,
        bend=bend.numpy(),
        knots=(float(knots[0]), float(knots[1] - knots[0])),
    )


@compiled
def worth(smile: Array, doubt: Array, total: Array, seen: Flags, known: Known) -> Wanted:
    """As :func:`..prior.star_order_projection.price_smile`."""
    B, L, H = smile.shape
    u, log_price, elasticity = np.empty((B, L, H)), np.empty((B, L, H)), np.empty((B, L, H))
    says, trust = np.zeros((B, L, H)), np.zeros((B, L, H))
    for chain in range(B):
        for each in range(L):
            level = math.exp(total[chain, each])
            at = (chain, each)
            _worth(smile[at], level, known.z, u[at], log_price[at], elasticity[at])
            if seen[at]:
                _trust(doubt[at], log_price[at], says[at], trust[at])
    return Wanted(u, total, seen, log_price, elasticity, says, trust)


@compiled
def _worth(
    smile: Array, level: float, z: Array, u: Array, log_price: Array, elasticity: Array
) -> None:
    """Log-prices of one slice and their elasticities, and its smile within bounds."""
    for h in range(smile.size):
        u[h] = min(
            max(smile[h], -smile_to_slopes.MAX_WING_LOG_RATIO), smile_to_slopes.MAX_WING_LOG_RATIO
        )
        v = level * exp(u[h])
        price = max(scalars.otm(z[h] * level, v), star_order_projection.POSITIVE_FLOOR)
        vega = scalars.pdf(0.5 * v - z[h] * level / v)
        log_price[h] = log(price)
        elasticity[h] = max(v * vega / price, star_order_projection.MIN_ELASTICITY)


@compiled
def _trust(doubt: Array, log_price: Array, says: Array, trust: Array) -> None:
    """What each price of a slice counts for."""
    for h in range(doubt.size):
        known = 1.0 / (exp(2.0 * doubt[h]) + star_order_projection.MIN_RELATIVE_IV_ERROR**2)
        price = exp(log_price[h])
        rising = (price - star_order_projection.MIN_INFORMATIVE_PRICE) * (
            1.0
            / (
                star_order_projection.FULL_WEIGHT_PRICE
                - star_order_projection.MIN_INFORMATIVE_PRICE
            )
        )
        says[h] = min(max(rising, 0.0), 1.0)
        trust[h] = known * says[h]


class Laid(NamedTuple):
    """As :class:`arbiter.operators.prior.star_order_projection._Laid` of one slice, and its prices.

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
    G, n = known.weight.size, known.whole.size
    risen, next_one = np.zeros(n), b[1:]
    for j in range(n - 1):
        risen[j + 1] = risen[j] + b[j] * known.whole[j]
    along, first, second = laid.along, known.here[0], known.here[1]
    for i in range(G):
        at = known.knot[i]
        along[i] = risen[at] + b[at] * first[i] + next_one[at] * second[i]
    mass = _weigh(along, level, along[G // 2], known.weight, laid.put, laid.share)
    shift, per = along[G // 2] + math.log(mass) / level, 1.0 / mass
    for i in range(G):
        at = known.knot[i]
        slope = b[at] + known.share[i] * (next_one[at] - b[at])
        laid.put[i] *= level * per * slope
    for i in range(G):
        along[i] -= shift
        laid.share[i] *= per
    for i in range(G):
        laid.call[i] = laid.put[i] * known.above[i]
        laid.put[i] *= known.below[i]
    _integrate(known, laid)


@compiled
def _weigh(
    along: Array, level: float, middle: float, weight: Array, grown: Array, share: Array
) -> float:
    """What a transport grows to along the quadrature, and its shares; their sum."""
    mass = 0.0
    for i in range(along.size):
        grown[i] = exp(level * (along[i] - middle))
        share[i] = grown[i] * weight[i]
        mass += share[i]
    return mass


@compiled
def _integrate(known: Known, laid: Laid) -> None:
    """Prices at the heads, from the integrands."""
    G, H = known.weight.size, known.z.size
    along = laid.along
    laid.calls[G - 1] = 0.0
    for i in range(G - 2, -1, -1):
        laid.calls[i] = laid.calls[i + 1] + 0.5 * star_order_projection.QUADRATURE_STEP * (
            laid.call[i] + laid.call[i + 1]
        )
    at, puts = 1, 0.0
    for h in range(H):
        z = known.z[h]
        while at < G - 1 and along[at] < z:
            puts += 0.5 * star_order_projection.QUADRATURE_STEP * (laid.put[at - 1] + laid.put[at])
            at += 1
        t = min(max((z - along[at - 1]) / (along[at] - along[at - 1]), 0.0), 1.0)
        if z >= 0.0:
            price = _upto(laid.call[at], laid.call[at - 1], 1.0 - t) + laid.calls[at]
        else:
            price = _upto(laid.put[at - 1], laid.put[at], t) + puts
        laid.at[h], laid.between[h], laid.price[h] = (
            at,
            t,
            max(price, star_order_projection.POSITIVE_FLOOR),
        )


@compiled
def _upto(first: float, other: float, t: float) -> float:
    """The integral over a part of one step."""
    return 0.5 * star_order_projection.QUADRATURE_STEP * t * (2.0 * first + t * (other - first))


@compiled
def short(laid: Laid, wanted: Wanted, each: int, miss: Array) -> None:
    """By how much the log-volatility of prices is short of the smile's, into ``(H,)``."""
    log_price, elasticity, price = wanted.log_price[each], wanted.elasticity[each], laid.price
    for h in range(miss.size):
        miss[h] = min(max((log_price[h] - log(price[h])) / elasticity[h], -1.0), 1.0)


@compiled
def headed(g: Array, total: Array) -> Array:
    """``(L, n)`` slopes over ``σ√T`` as :func:`..slope_head.slopes` makes them."""
    slopes = np.empty_like(g)
    most = np.zeros(g.shape[1])
    for each in range(len(g)):
        level = math.exp(total[each])
        proposed, found = g[each], slopes[each]
        for j in range(most.size):
            slope = exp(
                min(max(proposed[j], slope_head.MIN_LOG_RATIO), slope_head.MAX_LOG_RATIO)
                + total[each]
            )
            most[j] = slope if not slope <= most[j] else most[j]  # a NaN stays
            found[j] = min(max(most[j], slope_head.MIN_SLOPE), slope_head.MAX_SLOPE) / level
    return slopes
