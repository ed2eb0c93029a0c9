"""The numbers that tell whether a chain is like those of training, compiled; :mod:`.domain` judges.

Chain by chain, several of them one behind the other.

Shapes: C chains, L slices of all chains, m quotes of all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array
from arbiter.operators import domain
from arbiter.operators.quote_rows import Indices
from arbiter.pricing.elementary import exp, log
from arbiter.pricing.normal import pdf

_WORST_QUANTILE = 0.95  # quantile of misses that says how bad the worst ones are
_MIN_QUOTES_PER_EXPIRY = 3  # quotes by which an expiry is judged
_MAX_NEIGHBOUR_DEVIATIONS = 1.0  # deviations within which three quotes should lie on a line
_USUAL_CURVATURE = 0.5  # second derivative of log-volatility over deviations that is no surprise
_MAX_MONEY_DEVIATIONS = 2.5  # deviations within which an expiry's level is judged
_MIN_EXPIRY_ERROR = 1e-2  # what it may be off however tight its spreads
_TRAIT_COUNT = len(domain.TRAITS)
_MIN_LOG_MATURITY_GAP = (
    0.1  # of log-maturity: neighbours a day apart say little of a term structure
)
_WING_WEIGHT, _SKEW_RIDGE = 1e-6, 1e-2  # of a slope at the money: wings alone have one too


class ObservedChains(NamedTuple):
    """A chain as the operator saw it, and by how much its surface misses the mids.

    Attributes:
        T: ``(L,)`` maturities.
        total: ``(L,)`` logarithm of the reference total volatility ``σ√T``.
        expiry: ``(m,)`` index of each quote's maturity, nondecreasing; none is left out.
        k: ``(m,)`` log-moneyness.
        iv: ``(m,)`` volatility of the mids.
        spread: ``(m,)`` half-spread over volatility.
        miss: ``(m,)`` model less mid, in half-spreads softened by
            :data:`arbiter.operators.domain.VOLATILITY_SOFTENING`.
        moved: ``(C,)`` of each chain, what the network would have changed, in standard errors of
            its reference.
    """

    T: Array
    total: Array
    expiry: Indices
    k: Array
    iv: Array
    spread: Array
    miss: Array
    moved: Array


def describe_chain(seen: ObservedChains) -> dict[str, float]:
    """The numbers that describe a chain, named as in :data:`arbiter.operators.domain.TRAITS`."""
    return describe_chains(seen, np.array([0, seen.T.size]), np.array([0, seen.k.size]))[0]


def describe_chains(
    seen: ObservedChains, slices: Indices, quotes: Indices
) -> list[dict[str, float]]:
    """The traits of several chains, one behind the other.

    Args:
        seen: All of them; ``expiry`` counts through.
        slices: ``(C + 1,)`` where the maturities of each chain begin, and the end of the last.
        quotes: ``(C + 1,)`` where its quotes do.
    """
    found = _compute_traits(seen, slices, quotes)
    return [dict(zip(domain.TRAITS, each, strict=True)) for each in found.tolist()]


@compiled
def fill_misses(seen: ObservedChains, half: Array, wide: Array, off: Array) -> None:
    """Fill in what misses and spreads are; put misses in half-spreads in place of those in prices.

    Args:
        seen: Its ``miss`` and ``spread`` are filled.
        half: ``(m,)`` half-spreads of prices.
        wide: ``(m,)`` spreads of volatilities.
        off: ``(m,)`` model less mid, in prices.
    """
    root = np.sqrt(seen.T)
    for i in range(off.size):
        total = seen.iv[i] * root[seen.expiry[i]]
        soft = domain.VOLATILITY_SOFTENING * total * pdf(0.5 * total - seen.k[i] / total)
        soft = max(soft, domain.MIN_PRICE_SCALE)
        seen.miss[i] = off[i] / math.sqrt(half[i] * half[i] + soft * soft)
        seen.spread[i] = 0.5 * wide[i] / seen.iv[i]
        off[i] /= half[i] if half[i] > 0.0 else soft


@compiled
def _compute_traits(seen: ObservedChains, slices: Indices, quotes: Indices) -> Array:
    """``(C, …)`` in the order of :data:`arbiter.operators.domain.TRAITS`."""
    z, u = np.empty(seen.k.size), np.empty(seen.k.size)
    log_T, scale = np.log(seen.T), np.exp(-seen.total)
    for i in range(z.size):
        z[i] = seen.k[i] * scale[seen.expiry[i]]
    for i in range(z.size):
        each = seen.expiry[i]
        u[i] = log(seen.iv[i]) - seen.total[each] + 0.5 * log_T[each]
    ends = np.searchsorted(seen.expiry, np.arange(seen.T.size + 1))
    found = np.empty((slices.size - 1, _TRAIT_COUNT))
    for chain in range(len(found)):
        first, last = slices[chain], slices[chain + 1]
        here, own = slice(quotes[chain], quotes[chain + 1]), ends[first : last + 1]
        steepest, widest = _compare_neighbours(log_T[first:last], seen.total[first:last])
        reach, money, skew = _slice_statistics(own, z, u)
        size = np.abs(seen.miss[here])
        found[chain] = np.array(
            (
                math.exp(seen.total[first]),
                math.exp(seen.total[last - 1]),
                steepest,
                float(last - first),
                math.exp(widest),
                float(_fewest_quotes(own)),
                reach[0],
                reach[1],
                money,
                _quantile(seen.spread[here], 0.5),
                skew,
                _neighbour_line_distance(own, z, u, seen.spread),
                _out_of_line(own, z, log_T[first:last], seen.spread, seen.miss),
                _quantile(size, 0.5),
                _quantile(size, _WORST_QUANTILE),
                _worst_expiry_miss(own, seen.miss, size),
                seen.moved[chain],
            )
        )
    return found


@compiled
def _fewest_quotes(ends: Indices) -> int:
    """Quotes of the expiry with fewest."""
    found: int = ends[1] - ends[0]
    for each in range(1, ends.size - 1):
        found = min(found, ends[each + 1] - ends[each])
    return found


@compiled
def _compare_neighbours(log_T: Array, total: Array) -> tuple[float, float]:
    """The steepest change of log-volatility between neighbouring expiries, and the widest gap."""
    steepest = widest = 0.0
    for each in range(log_T.size - 1):
        gap = log_T[each + 1] - log_T[each]
        turn = abs(total[each + 1] - total[each] - 0.5 * gap)
        steepest, widest = max(steepest, turn / max(gap, _MIN_LOG_MATURITY_GAP)), max(widest, gap)
    return steepest, widest


@compiled
def _slice_statistics(
    ends: Indices, z: Array, u: Array
) -> tuple[tuple[float, float], float, float]:
    """The median expiry's lowest and highest strike, how far the money is at worst, median skew."""
    count = ends.size - 1
    lowest, highest, skew = np.empty(count), np.empty(count), np.empty(count)
    money = 0.0
    for each in range(count):
        low, high, nearest = np.inf, -np.inf, np.inf
        for i in range(ends[each], ends[each + 1]):
            low, high, nearest = min(low, z[i]), max(high, z[i]), min(nearest, abs(z[i]))
        lowest[each], highest[each], money = low, high, max(money, nearest)
        skew[each] = _skew(z[ends[each] : ends[each + 1]], u[ends[each] : ends[each + 1]])
    return (_quantile(lowest, 0.5), _quantile(highest, 0.5)), money, _quantile(skew, 0.5)


@compiled
def _worst_expiry_miss(ends: Indices, miss: Array, size: Array) -> float:
    """The median miss of the worst expiry; the largest miss where all have too few quotes."""
    worst = -1.0
    for each in range(ends.size - 1):
        own = np.abs(miss[ends[each] : ends[each + 1]])
        if own.size >= _MIN_QUOTES_PER_EXPIRY:
            worst = max(worst, _select(own, (own.size - 1) // 2))
    return worst if worst >= 0.0 else _select(size.copy(), size.size - 1)


@compiled
def _skew(z: Array, u: Array) -> float:
    """The slope of a local line of ``u = log(iv/σ)`` at the money."""
    mass = first = second = mean = cross = 0.0
    for i in range(z.size):
        w = exp(-0.5 * z[i] * z[i]) + _WING_WEIGHT / (1.0 + z[i] * z[i])
        mass += w
        first += w * z[i]
        second += w * z[i] * z[i]
        mean += w * u[i]
        cross += w * z[i] * u[i]
    centre = first / mass
    spread = max(second - centre * first, 0.0)
    return (cross - centre * mean) / (spread + _SKEW_RIDGE * mass)


@compiled
def _neighbour_line_distance(ends: Indices, z: Array, u: Array, spread: Array) -> float:
    """How far a chain's worst quotes lie from their neighbours' line, in half-spreads."""
    found, size = np.empty(ends[-1] - ends[0]), 0
    least = domain.VOLATILITY_SOFTENING**2
    for each in range(ends.size - 1):
        for i in range(ends[each] + 1, ends[each + 1] - 1):
            wide = z[i + 1] - z[i - 1]
            if wide <= _MAX_NEIGHBOUR_DEVIATIONS:
                right = (z[i] - z[i - 1]) / max(wide, 1e-12)
                left = 1.0 - right
                off = u[i] - left * u[i - 1] - right * u[i + 1]
                bend = 0.5 * _USUAL_CURVATURE * right * left * wide**2
                around = left**2 * (spread[i - 1] ** 2 + least)
                around += right**2 * (spread[i + 1] ** 2 + least)
                found[size] = abs(off) / math.sqrt(spread[i] ** 2 + least + around + bend**2)
                size += 1
    return _quantile(found[:size], _WORST_QUANTILE)


@compiled
def _out_of_line(ends: Indices, z: Array, log_T: Array, spread: Array, miss: Array) -> float:
    """How far an expiry is missed by more than its neighbours are, over what its spreads allow."""
    at, level, noise = np.empty(log_T.size), np.empty(log_T.size), np.empty(log_T.size)
    some = 0
    for each in range(log_T.size):
        mass = mean = 0.0
        for i in range(ends[each], ends[each + 1]):
            if abs(z[i]) < _MAX_MONEY_DEVIATIONS:
                wide = spread[i] ** 2 + domain.VOLATILITY_SOFTENING**2
                mass += 1.0 / wide
                mean += miss[i] / math.sqrt(wide)
        if mass > 0.0:
            at[some], level[some], noise[some] = (
                log_T[each],
                mean / mass,
                1.0 / mass + _MIN_EXPIRY_ERROR**2,
            )
            some += 1
    worst = 0.0
    for i in range(1, some - 1):
        right = (at[i] - at[i - 1]) / (at[i + 1] - at[i - 1])
        left = 1.0 - right
        off = level[i] - left * level[i - 1] - right * level[i + 1]
        known = noise[i] + left**2 * noise[i - 1] + right**2 * noise[i + 1]
        worst = max(worst, abs(off) / math.sqrt(known))
    return worst


@compiled
def _quantile(values: Array, share: float) -> float:
    """A quantile, interpolated; 0 of none."""
    if values.size == 0:
        return 0.0
    place = share * (values.size - 1)
    low, values = int(place), values.copy()
    found = _select(values, low)
    above = np.inf
    for i in range(low + 1, values.size):
        above = min(above, values[i])
    return found if low + 1 == values.size else found + (place - low) * (above - found)


@compiled
def _select(values: Array, at: int) -> float:
    """The number that would be there if they were in order; smaller ones are put before it.

    Hoare's method. What is no number is larger than any.
    """
    low, high = 0, values.size - 1
    for i in range(values.size):
        values[i] = values[i] if values[i] == values[i] else np.inf
    while low < high:
        middle, i, j = values[(low + high) // 2], low, high
        while i <= j:
            while values[i] < middle:
                i += 1
            while values[j] > middle:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if at <= j:
            high = j
        elif at >= i:
            low = i
        else:
            break
    found: float = values[at]
    return found
