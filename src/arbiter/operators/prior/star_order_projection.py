"""From the slopes of a smile to those of a transport that prices it, in the star order.

:mod:`arbiter.operators.prior.smile_to_slopes` reads slopes off a smile by its coordinates. Here
follow a few Gauss-Newton steps towards the smile's prices under the star order: slopes must not
fall along maturities, and the running maximum of the head would have one slice's tail overrule all
later ones. Each step is a quadratic program that couples slices by the order alone. The alternating
direction method of multipliers solves it: slices one by one, then isotonic regression knot by knot.

Shapes: B chains of L slices, M = B·L, H places of ``asinh z``, n knots, W of them with padding, G
points of a quadrature.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators import slope_head
from arbiter.operators.prior import small_matrices
from arbiter.operators.prior.smile_to_slopes import log_slopes
from arbiter.operators.prior.transport_prices import (
    DERIVATIVE_STRIDE,
    MIN_INFORMATIVE_PRICE,
    POSITIVE_FLOOR,
    LaidTransports,
    PricedSmile,
    Tables,
    lay_transports,
    miss_smile,
)
from arbiter.operators.quote_rows import Flags

ROUNDS, MAX_EXTRA_ROUNDS = 1, 4  # of Gauss-Newton for all chains, and for those that are off then
# root mean square misses: more rounds count, and fully
MIN_MISS_FOR_MORE_ROUNDS, FULL_MISS_FOR_MORE_ROUNDS = 2.5e-3, 3e-3
ADMM_STEPS, ADMM_RELAXATION = 4, 1.6  # steps of ADMM in a round, and their relaxation
ADMM_PENALTY = 0.3  # its penalty, in units of what the smile says of a slope alone
# misses from which on a robust loss grows slowly, and steps are shorter
ROBUST_LOSS_MISS, DAMPING_MISS = 0.1, 0.03
MAX_LOG_SLOPE_STEP = 2.0  # step of a log-slope
MIN_WEIGHT_SHARE = 1e-3  # of the largest weight, that every slope has
MIN_LARGEST_CURVATURE = 1e-6  # of the largest curvature of a slice


def transport(priced: PricedSmile) -> tuple[Array, Array]:
    """``(B, L, n)`` log-slopes over ``σ√T`` and ``(B, L, H)`` what they miss of the smile."""
    (B, L, H), level = priced.u.shape, np.exp(priced.total)
    g = log_slopes(priced.u.reshape(B * L, H), priced.places, level.ravel()).reshape(B, L, -1)
    g, miss = descend(g, priced, ROUNDS)
    mass = np.maximum(priced.trust.sum((1, 2)), POSITIVE_FLOOR)
    off = np.sqrt((priced.trust * miss**2).sum((1, 2)) / mass)
    full = FULL_MISS_FOR_MORE_ROUNDS - MIN_MISS_FOR_MORE_ROUNDS
    part = np.clip((off - MIN_MISS_FOR_MORE_ROUNDS) / full, 0.0, 1.0)
    far = np.flatnonzero(part > 0.0)
    if far.size:  # some chains need more than the rest
        some = priced.select(far)
        better, _ = descend(g[far], some, MAX_EXTRA_ROUNDS)
        better = g[far] + part[far, None, None] * (better - g[far])  # in order, as both are
        g[far], miss[far] = better, _miss(better, some)
    return g, miss


def missed(g: Array, priced: PricedSmile) -> tuple[Array, Array]:
    """``(B, L, H)`` what log-slopes ``(B, L, n)`` miss, and how far prices say anything."""
    return _miss(g, priced), priced.says


def _miss(g: Array, priced: PricedSmile) -> Array:
    return miss_smile(_lay_in_order(g, priced), priced)


def _lay_in_order(g: Array, priced: PricedSmile) -> LaidTransports:
    """Transports of log-slopes as the head makes slopes of them."""
    level = np.exp(priced.total)
    b = slope_head.slopes(g, priced.total) / level[..., None]
    return lay_transports(b.reshape(level.size, -1), level.ravel(), priced.tables)


def descend(g: Array, priced: PricedSmile, rounds: int) -> tuple[Array, Array]:
    """Log-slopes ``(B, L, n)`` in the star order after rounds, and what they miss."""
    B, L, n = g.shape
    level, force = np.exp(priced.total).ravel(), np.zeros_like(g)  # ADMM's scaled dual variable
    laid = lay_transports(np.exp(g).reshape(B * L, n), level, priced.tables)
    for _ in range(rounds):
        model = _build_models(g, laid, priced)
        g = g.copy()
        for i in range(B):
            own = slice(i * L, (i + 1) * L)
            part = QuadraticModels(model.factor[own], model.target[own], model.weight[own])
            _take_step(g[i], part, force[i], priced.total[i])
        laid = _lay_in_order(g, priced)
    return g, miss_smile(laid, priced)


class QuadraticModels(NamedTuple):
    """Quadratic models of the weighted misses around log-slopes, slice by slice.

    Attributes:
        factor: ``(M, W, W)`` Cholesky's, of the curvature and what holds slices together.
        target: ``(M, W)`` the curvature times where it is least.
        weight: ``(M, n)`` what the smile says of each log-slope alone.
    """

    factor: Array
    target: Array
    weight: Array


def _build_models(g: Array, laid: LaidTransports, priced: PricedSmile) -> QuadraticModels:
    (B, L, n), W = g.shape, len(priced.tables.cost)
    M, off, level = B * L, miss_smile(laid, priced), np.exp(priced.total).ravel()
    weight = priced.trust / (1.0 + (off / ROBUST_LOSS_MISS) ** 2)
    mass = np.maximum(weight.sum(-1), POSITIVE_FLOOR)
    stiff = 1.0 + (weight * off**2).sum(-1) / mass / DAMPING_MISS**2
    root = np.sqrt(weight)
    # prices that say nothing weigh nothing: only that they must not overflow
    price = np.maximum(laid.price.reshape(off.shape), MIN_INFORMATIVE_PRICE)
    rows = (root / (price * priced.elasticity)).reshape(M, -1), (root * off).reshape(M, -1)
    model = QuadraticModels(np.empty((M, W, W)), np.empty((M, W)), np.empty((M, n)))
    slices = level, stiff.ravel(), priced.seen.ravel()
    _fill_models(g.reshape(M, n), laid, (*rows, *slices), priced.tables, model)
    return model


@compiled
def _fill_models(
    g: Array,
    laid: LaidTransports,
    given: tuple[Array, Array, Array, Array, Flags],
    known: Tables,
    model: QuadraticModels,
) -> None:
    """The models of all slices.

    ``given`` are factors of derivatives and misses, both with the root of their weights, levels,
    how stiff steps are, and where anything is quoted.
    """
    (M, n), W, (by, miss, level, stiff, seen) = g.shape, len(known.cost), given
    at, steep = np.zeros(W), np.empty((by.shape[1], W))
    for each in range(M):
        P, target, alone = model.factor[each], model.target[each], model.weight[each]
        _fill_derivatives(g[each], level[each], laid, (each, by[each]), known, steep)
        for j in range(n):
            at[j] = g[each, j]
        for j in range(W):
            target[j] = 0.0
        for h in range(len(steep)):
            for j in range(W):
                target[j] += miss[each, h] * steep[h, j]
        small_matrices.squares(steep, P)
        most = MIN_LARGEST_CURVATURE
        for j in range(n):
            most = max(most, P[j, j])
        for j in range(n):
            alone[j] = (P[j, j] + MIN_WEIGHT_SHARE * most) * seen[each]
        _add_cost(P, stiff[each] * most, known.cost, at, target)
        for i in range(n):
            P[i, i] += ADMM_PENALTY * alone[i]
        small_matrices.factorise(P)


@compiled
def _add_cost(P: Array, hold: float, cost: Array, at: Array, target: Array) -> None:
    """Add the cost of a step to a curvature, and that times where it begins to the target."""
    W = len(P)
    for i in range(W):
        row, more, here = P[i], cost[i], at[i]
        for j in range(W):
            row[j] += hold * more[j]
        for j in range(W):
            target[j] += row[j] * here


@compiled
def _fill_derivatives(
    g: Array,
    level: float,
    laid: LaidTransports,
    scaled: tuple[int, Array],
    known: Tables,
    steep: Array,
) -> None:
    """``(H, W)`` derivatives of one slice's prices to log-slopes; for a step they may be coarser.

    ``scaled`` is the number of the slice, and factors of the rows.
    """
    (each, by), (few, W) = scaled, known.coarse.shape
    below, sums, scale = np.empty((few, W)), np.zeros(W), np.zeros(W)
    for j in range(g.size):
        scale[j] = -level * math.exp(g[j])
    mass, upto = 0.0, np.empty(few)
    for i in range(few):
        share, row = laid.share[each, i * DERIVATIVE_STRIDE] * DERIVATIVE_STRIDE, below[i]
        for j in range(W):
            moved = share * known.coarse[i, j]
            row[j] = sums[j] + 0.5 * moved
            sums[j] += moved
        upto[i] = mass + 0.5 * share
        mass += share
    for h in range(by.size):
        place = (laid.at[each, h] - 1 + laid.between[each, h]) / DERIVATIVE_STRIDE
        first = max(min(int(place), few - 2), 0)  # whatever a NaN is as an integer
        t, low, high = place - first, below[first], below[first + 1]
        beneath = upto[first] + t * (upto[first + 1] - upto[first])
        for j in range(W):  # hats less their means, which the sums have become
            part = low[j] + t * (high[j] - low[j]) - beneath * sums[j]
            steep[h, j] = part * scale[j] * by[h]


@compiled
def _take_step(g: Array, model: QuadraticModels, force: Array, clock: Array) -> None:
    """One round of a chain: slices one by one, then in order; the whole chain goes as far.

    ``g`` ``(L, n)`` and ADMM's ``force`` are moved in place.
    """
    L, n = g.shape
    order_along_maturity(g, clock, model.weight, g)
    ordered, x = g.copy(), np.empty(model.target.shape[1])
    for _ in range(ADMM_STEPS):
        for each in range(L):
            for j in range(n, x.size):
                x[j] = 0.0
            for j in range(n):
                pull = ADMM_PENALTY * model.weight[each, j]
                x[j] = model.target[each, j] + pull * (ordered[each, j] - force[each, j])
            small_matrices.solve(model.factor[each], x)
            for j in range(n):
                drawn = ordered[each, j] + ADMM_RELAXATION * (x[j] - ordered[each, j])
                force[each, j] += drawn
        order_along_maturity(force, clock, model.weight, ordered)
        for each in range(L):
            for j in range(n):
                force[each, j] -= ordered[each, j]
    # between two that are in order all are: the whole chain takes the same share of the step
    longest = MAX_LOG_SLOPE_STEP
    for each in range(L):
        for j in range(n):
            moved = abs(ordered[each, j] - g[each, j])
            longest = moved if not moved <= longest else longest  # a NaN stays
    for each in range(L):
        for j in range(n):
            moved = (ordered[each, j] - g[each, j]) * (MAX_LOG_SLOPE_STEP / longest)
            low, high = slope_head.MIN_LOG_RATIO, slope_head.MAX_LOG_RATIO
            g[each, j] = min(max(g[each, j] + moved, low), high)


@compiled
def order_along_maturity(x: Array, clock: Array, weight: Array, found: Array) -> None:
    """Isotonic regression of ``x + clock`` along slices, knot by knot, less the clock again."""
    L, n = x.shape
    y, own = np.empty(L), np.empty(L)
    for j in range(n):
        falls = odd = False
        for each in range(L):
            y[each], own[each] = x[each, j] + clock[each], weight[each, j]
            odd |= math.isnan(y[each])
            falls |= each > 0 and y[each] < y[each - 1]
        if falls and not odd:  # what is no number stays, and is found where surfaces are made
            pool_adjacent(y, own)
        for each in range(L):
            found[each, j] = y[each] - clock[each]


@compiled
def pool_adjacent(y: Array, weight: Array) -> None:
    """Weighted least squares among what does not fall, by pooling what falls; in place.

    What weighs nothing stays, as far as the others before and after it let it.
    """
    L = y.size
    value, mass, last = np.empty(L), np.empty(L), np.empty(L, np.int64)
    blocks = 0
    for each in range(L):
        if not weight[each] > 0.0:
            continue
        value[blocks], mass[blocks], last[blocks] = y[each], weight[each], each
        blocks += 1
        while blocks > 1 and value[blocks - 2] >= value[blocks - 1]:
            one, two = mass[blocks - 2], mass[blocks - 1]
            value[blocks - 2] = (one * value[blocks - 2] + two * value[blocks - 1]) / (one + two)
            mass[blocks - 2], last[blocks - 2] = one + two, last[blocks - 1]
            blocks -= 1
    block, before, most = 0, -np.inf, -np.inf
    for each in range(L):
        while block < blocks and last[block] < each:
            before = value[block]
            block += 1
        after = value[block] if block < blocks else np.inf
        if weight[each] > 0.0:
            y[each] = before = after
        else:
            y[each] = min(max(y[each], before), after)
        most = max(most, y[each])
        y[each] = most
