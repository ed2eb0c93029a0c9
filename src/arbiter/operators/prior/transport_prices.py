"""Prices of smiles and of transports at the places where smiles are given.

A transport is laid along a quadrature. A put is worth ``∫ Φ(x) dX(x)`` up to its strike and a call
``∫ Φ(−x) dX(x)`` from there: sums of positive terms, good to a thousandth in the far tails too.

Shapes: B chains of L slices, M = B·L, H places of ``asinh z``, n knots, W of them with padding, G
points of the quadrature.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators import slope_head
from arbiter.operators.prior.smile_to_slopes import (
    FIRST_KNOT,
    KNOT_SPACING,
    MAX_WING_LOG_RATIO,
    Places,
    build_places,
    build_smoothness_cost,
    integrals,
)
from arbiter.operators.quote_rows import Flags
from arbiter.pricing import black
from arbiter.pricing.elementary import exp
from arbiter.pricing.normal import INV_ROOT_2PI, cdf_of

MIN_RELATIVE_IV_ERROR = 3e-3  # relative error that no volatility of a smile is known better than
MIN_ELASTICITY = 0.3  # of price to volatility
# of the forward: prices below say nothing, and all from there on
MIN_INFORMATIVE_PRICE, FULL_WEIGHT_PRICE = 1e-8, 3e-8
POSITIVE_FLOOR = 1e-200  # of a price, whose logarithm is taken
# of the quadrature, and every how many points derivatives take
QUADRATURE_STEP, DERIVATIVE_STRIDE = 0.05, 2
FIRST_COORDINATE, POINTS = -7.2, 272  # of the quadrature
CURVATURE_COST, VALUE_COST = 1e-3, 1e-4  # what second differences and values of a step cost
_TOGETHER = 8  # numbers that a processor takes at a time, at most


class Smile(NamedTuple):
    """Smiles to be priced.

    Attributes:
        u: ``(B, L, H)`` ``log(iv/σ)`` at the places.
        doubt: ``(B, L, H)`` logarithm of its standard error.
        place: ``(H,)`` of ``asinh z``, increasing.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)`` where anything is quoted: the others have to follow.
    """

    u: Array
    doubt: Array
    place: Array
    total: Array
    seen: Flags


class Tables(NamedTuple):
    """What is the same for every transport.

    Attributes:
        z: ``(H,)`` places in deviations.
        weight: ``(G,)`` Gaussian weights of the quadrature.
        below: ``(G,)`` Φ(x).
        above: ``(G,)`` Φ(−x).
        knot: ``(G,)`` the knot below each point, and
        share: ``(G,)`` how far it is to the next.
        whole: ``(n,)`` integrals of the hats at the knots, and
        here: ``(2, G)`` as far as each point, of the hats at its knot and the next.
        coarse: ``(G/2, W)`` those of all hats, to every other point, and of none.
        cost: ``(W, W)`` of a step, and of one that nothing asks for.
    """

    z: Array
    weight: Array
    below: Array
    above: Array
    knot: Indices
    share: Array
    whole: Array
    here: Array
    coarse: Array
    cost: Array


class PricedSmile(NamedTuple):
    """Smiles as prices.

    Attributes:
        u: ``(B, L, H)`` within :data:`MAX_WING_LOG_RATIO`.
        total: ``(B, L)`` ``log(σ√T)``.
        seen: ``(B, L)`` where anything is quoted.
        log_price: ``(B, L, H)`` of the smile.
        elasticity: ``(B, L, H)`` of that price to volatility.
        says: ``(B, L, H)`` how far a price says anything, from 0 to 1.
        trust: ``(B, L, H)`` weights of squared misses: that, times what the smile knows.
        places: Of the smiles.
        tables: Of the transports.
    """

    u: Array
    total: Array
    seen: Flags
    log_price: Array
    elasticity: Array
    says: Array
    trust: Array
    places: Places
    tables: Tables

    def select(self, chains: Indices) -> PricedSmile:
        """Those of some chains."""
        return self._replace(
            u=self.u[chains],
            total=self.total[chains],
            seen=self.seen[chains],
            log_price=self.log_price[chains],
            elasticity=self.elasticity[chains],
            says=self.says[chains],
            trust=self.trust[chains],
        )


def price_smile(smile: Smile) -> PricedSmile:
    """Prices of smiles at their places, with their weights and elasticities."""
    place = tuple(smile.place.tolist())
    places, tables = build_places(place), build_tables(place)
    u = np.clip(smile.u, -MAX_WING_LOG_RATIO, MAX_WING_LOG_RATIO)
    level = np.exp(smile.total)[..., None]
    v, k = level * np.exp(u), tables.z * level
    price = np.maximum(black.otm(k, v), POSITIVE_FLOOR)
    elasticity = np.maximum(v * black.vega(k, v) / price, MIN_ELASTICITY)
    known = np.exp(2.0 * smile.doubt) + MIN_RELATIVE_IV_ERROR**2
    rising = (price - MIN_INFORMATIVE_PRICE) / (FULL_WEIGHT_PRICE - MIN_INFORMATIVE_PRICE)
    says = np.clip(rising, 0.0, 1.0) * smile.seen[..., None]
    # a slice that nobody sees may hold no numbers: it counts for nothing
    trust = np.where(says > 0.0, says / known, 0.0)
    return PricedSmile(
        u, smile.total, smile.seen, np.log(price), elasticity, says, trust, places, tables
    )


@lru_cache(maxsize=8)
def build_tables(zeta: tuple[float, ...]) -> Tables:
    """What is the same for every transport at these places."""
    x, hats, risen = build_quadrature()
    n = hats.shape[1]
    knot = np.minimum((hats > 0.0).argmax(1), n - 2)
    points, padding = np.arange(len(hats)), -n % _TOGETHER
    cost = np.eye(n + padding)
    cost[:n, :n] = build_smoothness_cost(CURVATURE_COST, VALUE_COST)
    return Tables(
        z=np.sinh(np.array(zeta)),
        weight=QUADRATURE_STEP * INV_ROOT_2PI * np.exp(-0.5 * x * x),
        below=cdf_of(x),
        above=cdf_of(-x),
        knot=knot,
        share=hats[points, knot + 1],
        whole=risen[-1].copy(),
        here=np.stack([risen[points, knot], risen[points, knot + 1]]),
        coarse=np.pad(risen[::DERIVATIVE_STRIDE], ((0, 0), (0, padding))),
        cost=cost,
    )


def build_quadrature() -> tuple[Array, Array, Array]:
    """Points ``(G,)`` of a Gaussian coordinate, and ``(G, n)`` hats there with their integrals.

    The outermost hats are flat beyond their knots.
    """
    x = FIRST_COORDINATE + QUADRATURE_STEP * np.arange(float(POINTS))
    last = len(slope_head.KNOTS) - 1.0
    inside = np.clip((x - FIRST_KNOT) / KNOT_SPACING, 0.0, last)
    away = np.abs(inside[:, None] - np.arange(last + 1.0))
    return x, np.maximum(1.0 - away, 0.0), integrals(x)


class LaidTransports(NamedTuple):
    """Transports of M slices along the quadrature, with their prices.

    Attributes:
        share: ``(M, G)`` Gaussian weight times X, of mean one.
        at: ``(M, H)`` the point of the quadrature above each place.
        between: ``(M, H)`` where it lies between the point below and that.
        price: ``(M, H)`` out of the money, over the forward.
    """

    share: Array
    at: Indices
    between: Array
    price: Array


def lay_transports(b: Array, level: Array, tables: Tables) -> LaidTransports:
    """Transports with slopes ``(M, n)`` over ``σ√T``, ``(M,)``, and their prices."""
    (M, _), G, H = b.shape, tables.weight.size, tables.z.size
    at, between = np.empty((M, H), np.int64), np.empty((M, H))
    laid = LaidTransports(np.empty((M, G)), at, between, np.empty((M, H)))
    _fill_transports(b, level, tables, laid)
    return laid


@compiled
def _fill_transports(b: Array, level: Array, known: Tables, laid: LaidTransports) -> None:
    G, n = known.weight.size, known.whole.size
    risen, along, rising = np.empty(n), np.empty(G), np.empty(G)
    put, call, puts, calls = np.empty(G), np.empty(G), np.zeros(G), np.zeros(G)
    first, second = known.here[0], known.here[1]
    for each in range(len(b)):
        slopes, share, scale = b[each], laid.share[each], level[each]
        risen[0] = 0.0
        for j in range(n - 1):
            risen[j + 1] = risen[j] + slopes[j] * known.whole[j]
        for i in range(G):
            at = known.knot[i]
            low, high = slopes[at], slopes[at + 1]
            along[i] = risen[at] + low * first[i] + high * second[i]
            rising[i] = scale * (low + known.share[i] * (high - low))
        middle = along[G // 2]
        for i in range(G):  # several loops, none of more arrays than are found to be apart
            put[i] = exp(scale * (along[i] - middle))
        for i in range(G):
            share[i] = put[i] * known.weight[i]
        e = f = g = h = 0.0
        for i in range(0, G, 4):  # four sums: none waits for another
            e, f, g, h = e + share[i], f + share[i + 1], g + share[i + 2], h + share[i + 3]
        mass = (e + f) + (g + h)
        shift, per = middle + math.log(mass) / scale, 1.0 / mass
        for i in range(G):
            along[i] -= shift
            share[i] *= per
        for i in range(G):
            put[i] *= per * rising[i]
            call[i] = put[i] * known.above[i]
        for i in range(G):
            put[i] *= known.below[i]
        below = above = 0.0
        for i in range(G - 1):
            below += 0.5 * QUADRATURE_STEP * (put[i] + put[i + 1])
            above += 0.5 * QUADRATURE_STEP * (call[G - 2 - i] + call[G - 1 - i])
            puts[i + 1], calls[G - 2 - i] = below, above
        _price_places(along, (put, call, puts, calls), known.z, laid, each)


@compiled
def _price_places(
    along: Array,
    parts: tuple[Array, Array, Array, Array],
    z: Array,
    laid: LaidTransports,
    each: int,
) -> None:
    """Prices of one slice from integrands of puts and calls, and their integrals."""
    (put, call, puts, calls), half, place = parts, 0.5 * QUADRATURE_STEP, 1
    for h in range(z.size):
        while place < along.size - 1 and along[place] < z[h]:
            place += 1
        before = place - 1
        t = min(max((z[h] - along[before]) / (along[place] - along[before]), 0.0), 1.0)
        if z[h] >= 0.0:  # the integral over a part of one step, and over all others
            u = 1.0 - t
            part = half * u * (2.0 * call[place] + u * (call[before] - call[place]))
            price = part + calls[place]
        else:
            price = half * t * (2.0 * put[before] + t * (put[place] - put[before])) + puts[before]
        laid.at[each, h], laid.between[each, h] = place, t
        laid.price[each, h] = max(price, POSITIVE_FLOOR)


def miss_smile(laid: LaidTransports, priced: PricedSmile) -> Array:
    """``(B, L, H)`` by how much the log-volatility of prices is short of the smile's."""
    log_price = np.log(laid.price).reshape(priced.u.shape)
    return np.clip((priced.log_price - log_price) / priced.elasticity, -1.0, 1.0)
