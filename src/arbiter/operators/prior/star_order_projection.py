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
from arbiter.operators.prior.small_matrices import add_products, factorise, solve
from arbiter.operators.prior.smile_to_slopes import log_slopes
from arbiter.operators.prior.transport_prices import (
    DERIVATIVE_STRIDE,
    MIN_INFORMATIVE_PRICE,
    POSITIVE_FLOOR,
    LaidTransports,
    PricedSmile,
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
        g[far], miss[far] = better, miss_smile(_lay_in_order(better, some), some)
    return g, miss


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
        g = _take_step(g, _build_models(g, laid, priced), force, priced.total)
        laid = _lay_in_order(g, priced)
    return g, miss_smile(laid, priced)


class QuadraticModels(NamedTuple):
    """Quadratic models of the weighted misses around log-slopes, slice by slice.

    Attributes:
        factor: ``(M, W, W)`` Cholesky's, of the curvature and what holds slices together.
        target: ``(M, n)`` the curvature times the step to where the model is least.
        weight: ``(M, n)`` what the smile says of each log-slope alone.
    """

    factor: Array
    target: Array
    weight: Array


def _build_models(g: Array, laid: LaidTransports, priced: PricedSmile) -> QuadraticModels:
    (B, L, n), tables, off = g.shape, priced.tables, miss_smile(laid, priced)
    M, W, H = B * L, len(tables.cost), off.shape[2]
    steep, system, scale = np.empty((M, H, W)), np.empty((M, W, W)), np.zeros((M, W))
    scale[:, :n] = -np.exp(g + priced.total[..., None]).reshape(M, n)
    smiles = (off.reshape(M, H), priced.trust.reshape(M, H), priced.elasticity.reshape(M, H))
    found, seen = QuadraticModels(system, np.empty((M, n)), np.empty((M, n))), priced.seen.ravel()
    _fill_models(laid, smiles, scale, (tables.coarse, tables.cost, seen), steep, found)
    add_products(steep, steep, system)
    found.target[...] = system[:, :n, n]
    system[:, :n, n], system[:, n, n] = 0.0, 1.0
    factorise(system)
    return found


@compiled
def _fill_models(
    laid: LaidTransports,
    smiles: tuple[Array, Array, Array],
    scale: Array,
    known: tuple[Array, Array, Flags],
    steep: Array,
    found: QuadraticModels,
) -> None:
    """Derivatives of weighted misses to log-slopes, and what holds slopes together.

    Args:
        laid: The transports. For a step their quadrature may be coarser.
        smiles: Misses, weights of their squares, and elasticities, ``(M, H)`` each.
        scale: ``(M, W)`` minus the slopes.
        known: Hats, costs, and ``(M,)`` where anything is quoted.
        steep: ``(M, H, W)`` takes derivatives, and misses in the column after the last knot.
        found: Takes weights, and the curvature but for the products of derivatives.
    """
    (off, trust, elasticity), (coarse, cost, seen) = smiles, known
    (few, W), (M, n) = coarse.shape, found.weight.shape
    below, sums, upto, square = np.empty((few, W)), np.empty(W), np.empty(few), np.empty(W)
    for each in range(M):
        mass, factor = 0.0, scale[each]
        for j in range(W):
            sums[j] = square[j] = 0.0
        for i in range(few):
            own, row, hats = (
                laid.share[each, i * DERIVATIVE_STRIDE] * DERIVATIVE_STRIDE,
                below[i],
                coarse[i],
            )
            for j in range(W):
                moved = own * hats[j]
                row[j] = sums[j] + 0.5 * moved
                sums[j] += moved
            upto[i] = mass + 0.5 * own
            mass += own
        known_of_all = missed = 0.0
        for h in range(off.shape[1]):
            miss, out = off[each, h], steep[each, h]
            weight = trust[each, h] / (1.0 + (miss / ROBUST_LOSS_MISS) ** 2)
            known_of_all += weight
            missed += weight * miss * miss
            # prices that say nothing weigh nothing: only that they must not overflow
            price, root = max(laid.price[each, h], MIN_INFORMATIVE_PRICE), math.sqrt(weight)
            by = root / (price * elasticity[each, h])
            at = (laid.at[each, h] - 1 + laid.between[each, h]) / DERIVATIVE_STRIDE
            first = max(min(int(at), few - 2), 0)  # whatever a NaN is as an integer
            t, low, high = at - first, below[first], below[first + 1]
            beneath = upto[first] + t * (upto[first + 1] - upto[first])
            for j in range(W):  # hats less their means, which the sums have become
                part = low[j] + t * (high[j] - low[j]) - beneath * sums[j]
                out[j] = part * factor[j] * by
            for j in range(W):
                square[j] += out[j] * out[j]
            out[n] = root * miss  # in a column that is padding else
        stiff, most = 1.0 + missed / max(known_of_all, POSITIVE_FLOOR) / DAMPING_MISS**2, 0.0
        for j in range(n):
            most = max(most, square[j])
        most = max(most, MIN_LARGEST_CURVATURE)
        for i in range(W):
            row, costs = found.factor[each, i], cost[i]
            for j in range(W):
                row[j] = stiff * most * costs[j]
        for j in range(n):
            alone = (square[j] + MIN_WEIGHT_SHARE * most) * seen[each]
            found.weight[each, j] = alone
            found.factor[each, j, j] += ADMM_PENALTY * alone


def _take_step(g: Array, model: QuadraticModels, force: Array, clock: Array) -> Array:
    """One round: slices one by one, then in order; every chain goes as far as all of it may.

    ADMM's ``force`` is moved in place.
    """
    n, weight, target = g.shape[2], model.weight.reshape(g.shape), model.target.reshape(g.shape)
    start, ordered, x = np.empty_like(g), np.empty_like(g), np.zeros(model.factor.shape[:2])
    order_along_maturity(g, clock, weight, start)
    ordered[...], pull = start, ADMM_PENALTY * weight
    for _ in range(ADMM_STEPS):
        x[:, :n] = (target + pull * (ordered - force - g)).reshape(-1, n)
        x[:, n:] = 0.0
        solve(model.factor, x)
        step = x[:, :n].reshape(g.shape)
        force += ordered + ADMM_RELAXATION * (g + step - ordered)
        order_along_maturity(force, clock, weight, ordered)
        force -= ordered
    # between two that are in order all are: the whole chain takes the same share of the step
    move = ordered - start
    longest = np.maximum(np.abs(move).max((1, 2), keepdims=True), MAX_LOG_SLOPE_STEP)
    moved = start + move * (MAX_LOG_SLOPE_STEP / longest)
    return np.asarray(np.clip(moved, slope_head.MIN_LOG_RATIO, slope_head.MAX_LOG_RATIO))


@compiled
def order_along_maturity(x: Array, clock: Array, weight: Array, found: Array) -> None:
    """Isotonic regression of ``x + clock`` along slices, knot by knot, less the clock again.

    All are ``(B, L, n)``, but for the clock, ``(B, L)``.
    """
    B, L, n = x.shape
    y, own = np.empty(L), np.empty(L)
    for i in range(B):
        for j in range(n):
            falls = odd = False
            for each in range(L):
                y[each], own[each] = x[i, each, j] + clock[i, each], weight[i, each, j]
                odd |= math.isnan(y[each])
                falls |= each > 0 and y[each] < y[each - 1]
            if falls and not odd:  # what is no number stays, and is found where surfaces are made
                pool_adjacent(y, own)
            for each in range(L):
                found[i, each, j] = y[each] - clock[i, each]


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
