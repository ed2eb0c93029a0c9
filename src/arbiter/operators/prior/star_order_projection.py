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
from arbiter.operators.prior.small_matrices import add_products, diagonals, factorise, solve
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
        target: ``(B, L, n)`` the curvature times the step to where the model is least.
        weight: ``(B, L, n)`` what the smile says of each log-slope alone.
    """

    factor: Array
    target: Array
    weight: Array


def _build_models(g: Array, laid: LaidTransports, priced: PricedSmile) -> QuadraticModels:
    (B, L, n), cost = g.shape, priced.tables.cost
    M, W, off = B * L, len(cost), miss_smile(laid, priced)
    weight = priced.trust / (1.0 + (off / ROBUST_LOSS_MISS) ** 2)
    mass = np.maximum(weight.sum(-1), POSITIVE_FLOOR)
    stiff = 1.0 + (weight * off**2).sum(-1) / mass / DAMPING_MISS**2
    root = np.sqrt(weight)
    # prices that say nothing weigh nothing: only that they must not overflow
    price = np.maximum(laid.price.reshape(off.shape), MIN_INFORMATIVE_PRICE)
    steep, scale, size = np.empty((M, off.shape[2], W)), np.zeros((M, W)), np.zeros((M, W))
    scale[:, :n] = -np.exp(g + priced.total[..., None]).reshape(M, n)
    place = (laid.at - 1 + laid.between) / DERIVATIVE_STRIDE
    by = (root / (price * priced.elasticity)).reshape(M, -1)
    _fill_derivatives(laid.share, place, scale, by, priced.tables.coarse, steep, size)
    most = np.maximum(size[:, :n].max(1), MIN_LARGEST_CURVATURE)
    alone = (size[:, :n] + MIN_WEIGHT_SHARE * most[:, None]) * priced.seen.reshape(M, 1)
    system = (stiff.ravel() * most)[:, None, None] * cost
    diagonals(system)[:, :n] += ADMM_PENALTY * alone
    steep[:, :, n] = (root * off).reshape(M, -1)  # in a column that is padding else
    add_products(steep, steep, system)
    target = system[:, :n, n].copy().reshape(g.shape)
    system[:, :n, n], system[:, n, n] = 0.0, 1.0
    factorise(system)
    return QuadraticModels(system, target, alone.reshape(g.shape))


@compiled
def _fill_derivatives(
    share: Array, place: Array, scale: Array, by: Array, coarse: Array, steep: Array, size: Array
) -> None:
    """``(M, H, W)`` derivatives of prices to log-slopes; for a step they may be coarser.

    And ``(M, W)`` sums of their squares. ``place`` is where on the coarser quadrature each price
    is, and ``by`` are factors of the rows.
    """
    few, W = coarse.shape
    below, sums, upto = np.empty((few, W)), np.empty(W), np.empty(few)
    for each in range(len(steep)):
        mass, factor, square = 0.0, scale[each], size[each]
        for j in range(W):
            sums[j] = 0.0
        for i in range(few):
            own, row, hats = (
                share[each, i * DERIVATIVE_STRIDE] * DERIVATIVE_STRIDE,
                below[i],
                coarse[i],
            )
            for j in range(W):
                moved = own * hats[j]
                row[j] = sums[j] + 0.5 * moved
                sums[j] += moved
            upto[i] = mass + 0.5 * own
            mass += own
        for h in range(by.shape[1]):
            at, root, out = place[each, h], by[each, h], steep[each, h]
            first = max(min(int(at), few - 2), 0)  # whatever a NaN is as an integer
            t, low, high = at - first, below[first], below[first + 1]
            beneath = upto[first] + t * (upto[first + 1] - upto[first])
            for j in range(W):  # hats less their means, which the sums have become
                part = low[j] + t * (high[j] - low[j]) - beneath * sums[j]
                out[j] = part * factor[j] * root
            for j in range(W):
                square[j] += out[j] * out[j]


def _take_step(g: Array, model: QuadraticModels, force: Array, clock: Array) -> Array:
    """One round: slices one by one, then in order; every chain goes as far as all of it may.

    ADMM's ``force`` is moved in place.
    """
    n, pull = g.shape[2], ADMM_PENALTY * model.weight
    start, ordered = np.empty_like(g), np.empty_like(g)
    order_along_maturity(g, clock, model.weight, start)
    ordered[...] = start
    x = np.zeros(model.factor.shape[:2])
    for _ in range(ADMM_STEPS):
        x[:, :n] = (model.target + pull * (ordered - force - g)).reshape(-1, n)
        x[:, n:] = 0.0
        solve(model.factor, x)
        step = x[:, :n].reshape(g.shape)
        force += ordered + ADMM_RELAXATION * (g + step - ordered)
        order_along_maturity(force, clock, model.weight, ordered)
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
