"""From smiles to transports that price them, compiled: :mod:`..prior.star_order_projection`.

Chains one by one, slices one by one.

Shapes: B chains of L slices, H places of ``asinh z``, n knots, W of them with padding, G points of
a quadrature.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators import slope_head
from arbiter.operators.prior import star_order_projection
from arbiter.operators.prior.star_order_projection import Smile
from arbiter.operators.quick import dense
from arbiter.operators.quick.elementary import exp
from arbiter.operators.quick.smile_to_slopes import log_slopes
from arbiter.operators.quick.transport_prices import (
    Known,
    Laid,
    Wanted,
    chain_of,
    headed,
    known,
    lay,
    room,
    short,
    worth,
)


class Polish:
    """Smiles to be priced, each chain with its own.

    Args:
        smile: As there.
    """

    def __init__(self, smile: Smile) -> None:
        self.known = known(tuple(smile.place.tolist()))
        u, doubt, total, seen = (
            part.numpy() for part in (smile.u, smile.doubt, smile.total, smile.seen)
        )
        self.wanted = worth(u, doubt, total, seen, self.known)

    def transport(self) -> tuple[Tensor, Tensor]:
        """``(B, L, n)`` and ``(B, L, H)``, as :func:`..prior.star_order_projection.transport`."""
        B, L, H = self.wanted.u.shape
        g, miss = np.empty((B, L, self.known.whole.size)), np.empty((B, L, H))
        _transports(self.wanted, self.known, g, miss)
        return torch.from_numpy(g), torch.from_numpy(miss)

    def descended(self, g: Tensor, rounds: int) -> Tensor:
        """Log-slopes ``(B, L, n)`` after more rounds."""
        found, miss = g.numpy().copy(), np.empty(self.wanted.u.shape[1:])
        for i, one in enumerate(found):
            _descended(one, miss, chain_of(self.wanted, i), self.known, rounds)
        return torch.from_numpy(found)

    def missed(self, g: Tensor) -> tuple[Tensor, Tensor]:
        """``(B, L, H)`` what log-slopes miss, and how far prices say anything."""
        miss = np.empty_like(self.wanted.u)
        _missed(g.numpy(), self.wanted, self.known, miss)
        return torch.from_numpy(miss), torch.from_numpy(self.wanted.says)


@compiled
def _transports(wanted: Wanted, known: Known, g: Array, miss: Array) -> None:
    """Of every chain, ``(B, L, n)`` and ``(B, L, H)``."""
    for i in range(len(g)):
        own = chain_of(wanted, i)
        for each in range(len(own.u)):
            log_slopes(own.u[each], math.exp(own.total[each]), known, g[i, each])
        off = math.sqrt(_descended(g[i], miss[i], own, known, star_order_projection.ROUNDS))
        if off > star_order_projection.MIN_MISS_FOR_MORE_ROUNDS:
            part = min(
                (off - star_order_projection.MIN_MISS_FOR_MORE_ROUNDS)
                / (
                    star_order_projection.FULL_MISS_FOR_MORE_ROUNDS
                    - star_order_projection.MIN_MISS_FOR_MORE_ROUNDS
                ),
                1.0,
            )
            begun = g[i].copy()
            _descended(g[i], miss[i], own, known, star_order_projection.MAX_EXTRA_ROUNDS)
            if part < 1.0:
                g[i] = begun + part * (g[i] - begun)
                _miss(g[i], own, known, miss[i])


@compiled
def _missed(g: Array, wanted: Wanted, known: Known, miss: Array) -> None:
    for i in range(len(g)):
        _miss(g[i], chain_of(wanted, i), known, miss[i])


@compiled
def _miss(g: Array, wanted: Wanted, known: Known, miss: Array) -> None:
    """What log-slopes ``(L, n)`` of one chain miss, into ``(L, H)``."""
    laid, slopes = room(known), headed(g, wanted.total)
    for each in range(len(slopes)):
        lay(slopes[each], math.exp(wanted.total[each]), known, laid)
        short(laid, wanted, each, miss[each])


class _Told(NamedTuple):
    """As :class:`arbiter.operators.prior.star_order_projection._Told`, of one chain.

    Attributes:
        factor: ``(L, W, W)`` Cholesky's, of the curvature and what holds slices together.
        target: ``(L, W)``
        weight: ``(L, n)``
    """

    factor: Array
    target: Array
    weight: Array


@compiled
def _descended(g: Array, miss: Array, wanted: Wanted, known: Known, rounds: int) -> float:
    """The mean square of what log-slopes ``(L, n)`` of one chain miss after rounds."""
    L, n = g.shape
    W = len(known.cost)
    told = _Told(np.empty((L, W, W)), np.empty((L, W)), np.empty((L, n)))
    laid, force, level = room(known), np.zeros((L, n)), np.exp(wanted.total)
    slopes = np.exp(g)
    for turn in range(rounds + 1):
        for each in range(L):
            lay(slopes[each], level[each], known, laid)
            short(laid, wanted, each, miss[each])
            if turn < rounds:
                _tell(each, g[each], miss[each], laid, wanted, known, told)
        if turn < rounds:
            _step(g, told, force, wanted.total)
            slopes = headed(g, wanted.total)
    squares = mass = 0.0
    for each in range(L):
        for h in range(miss.shape[1]):
            squares += wanted.trust[each, h] * miss[each, h] ** 2
            mass += wanted.trust[each, h]
    return squares / max(mass, star_order_projection.POSITIVE_FLOOR)


@compiled
def _tell(
    each: int, g: Array, off: Array, laid: Laid, wanted: Wanted, known: Known, told: _Told
) -> None:
    """The quadratic model of :func:`..prior.star_order_projection._told`, of one slice."""
    n, W = g.size, len(known.cost)
    P, target, alone = told.factor[each], told.target[each], told.weight[each]
    at = np.zeros(W)
    for j in range(n):
        at[j] = g[j]
    trust, elasticity = wanted.trust[each], wanted.elasticity[each]
    root, by = np.empty(off.size), np.empty(off.size)
    mean = mass = 0.0
    for h in range(off.size):
        weight = trust[h] / (1.0 + (off[h] / star_order_projection.ROBUST_LOSS_MISS) ** 2)
        mean += weight * off[h] ** 2
        mass += weight
        root[h] = math.sqrt(weight)
        by[h] = root[h] / (
            max(laid.price[h], star_order_projection.MIN_INFORMATIVE_PRICE) * elasticity[h]
        )
    steep = _derivatives(g, math.exp(wanted.total[each]), laid, known, by)
    for j in range(W):
        target[j] = 0.0
    for h in range(off.size):
        miss = root[h] * off[h]
        for j in range(W):
            target[j] += miss * steep[h, j]
    dense.squares(steep, P)
    most = star_order_projection.MIN_LARGEST_CURVATURE
    for j in range(n):
        most = max(most, P[j, j])
    stiff = (
        1.0
        + mean
        / max(mass, star_order_projection.POSITIVE_FLOOR)
        / star_order_projection.DAMPING_MISS**2
    ) * most
    for i in range(n):
        alone[i] = (P[i, i] + star_order_projection.MIN_WEIGHT_SHARE * most) * wanted.seen[each]
    for i in range(W):
        row, pull = P[i], 0.0
        for j in range(i):
            row[j] += stiff * known.cost[i, j]
            pull += row[j] * at[j]
        for j in range(i):
            target[j] += row[j] * at[i]
        row[i] += stiff * known.cost[i, i]
        target[i] += pull + row[i] * at[i]
    for i in range(n):
        P[i, i] += star_order_projection.ADMM_PENALTY * alone[i]
    dense.factorise(P)


@compiled
def _step(g: Array, told: _Told, force: Array, clock: Array) -> None:
    """One round: slices one by one, then in order, some times; the whole chain goes as far."""
    L, n = g.shape
    begun = order_along_maturity(g, clock, told.weight)
    ordered, x = begun, np.empty(told.target.shape[1])
    for _ in range(star_order_projection.ADMM_STEPS):
        for each in range(L):
            x[n:] = 0.0
            for j in range(n):
                pull = star_order_projection.ADMM_PENALTY * told.weight[each, j]
                x[j] = told.target[each, j] + pull * (ordered[each, j] - force[each, j])
            dense.solve(told.factor[each], x)
            for j in range(n):
                force[each, j] += ordered[each, j] + star_order_projection.ADMM_RELAXATION * (
                    x[j] - ordered[each, j]
                )
        ordered = order_along_maturity(force, clock, told.weight)
        for each in range(L):
            for j in range(n):
                force[each, j] -= ordered[each, j]
    longest = star_order_projection.MAX_LOG_SLOPE_STEP
    for each in range(L):
        for j in range(n):
            moved = abs(ordered[each, j] - begun[each, j])
            longest = moved if not moved <= longest else longest  # a NaN stays
    for each in range(L):
        for j in range(n):
            moved = (ordered[each, j] - begun[each, j]) * (
                star_order_projection.MAX_LOG_SLOPE_STEP / longest
            )
            g[each, j] = min(
                max(begun[each, j] + moved, slope_head.MIN_LOG_RATIO), slope_head.MAX_LOG_RATIO
            )


@compiled
def _derivatives(g: Array, level: float, laid: Laid, known: Known, by: Array) -> Array:
    """``(H, W)`` of the prices to log-slopes, times factors; for a step they may be coarser."""
    few, W = known.coarse.shape
    below, sums, scale = np.empty((few, W)), np.zeros(W), np.zeros(W)
    for j in range(g.size):
        scale[j] = -level * exp(g[j])
    mass, upto = 0.0, np.empty(few)
    for i in range(few):
        share, row = (
            laid.share[i * star_order_projection.DERIVATIVE_STRIDE]
            * star_order_projection.DERIVATIVE_STRIDE,
            below[i],
        )
        for j in range(W):
            moved = share * known.coarse[i, j]
            row[j] = sums[j] + 0.5 * moved
            sums[j] += moved
        upto[i] = mass + 0.5 * share
        mass += share
    found = np.empty((by.size, W))
    for h in range(by.size):
        place = (laid.at[h] - 1 + laid.between[h]) / star_order_projection.DERIVATIVE_STRIDE
        first = max(min(int(place), few - 2), 0)  # whatever a NaN is as an integer
        t, low, high = place - first, below[first], below[first + 1]
        beneath, times = upto[first] + t * (upto[first + 1] - upto[first]), by[h]
        for j in range(W):  # hats less their means, which the sums have become
            part = low[j] + t * (high[j] - low[j]) - beneath * sums[j]
            found[h, j] = part * scale[j] * times
    return found


@compiled
def order_along_maturity(x: Array, clock: Array, weight: Array) -> Array:
    """Isotonic regression of ``x + clock`` along slices, knot by knot, less the clock again."""
    L, n = x.shape
    found, y = np.empty((L, n)), np.empty(L)
    for j in range(n):
        falls = odd = False
        for each in range(L):
            y[each] = x[each, j] + clock[each]
            odd |= math.isnan(y[each])
            falls |= each > 0 and y[each] < y[each - 1]
        if falls and not odd:  # what is no number stays, and is found where surfaces are made
            pool_adjacent(y, weight[:, j])
        for each in range(L):
            found[each, j] = y[each] - clock[each]
    return found


@compiled
def pool_adjacent(y: Array, weight: Array) -> None:
    """As :func:`..prior.star_order_projection.isotonic`, by pooling what falls; in place."""
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
    # what weighs nothing stays, as far as the others before and after it let it
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
