"""The numbers that tell whether a chain is like those of training; :mod:`.domain` judges.

Chain by chain, several of them one behind the other.

Shapes: C chains, L slices of all chains, m quotes of all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array, Indices
from arbiter.operators import domain
from arbiter.pricing import black

_WORST_QUANTILE = 0.95  # quantile of misses that says how bad the worst ones are
_MIN_QUOTES_PER_EXPIRY = 3  # quotes by which an expiry is judged
_MAX_NEIGHBOUR_DEVIATIONS = 1.0  # deviations within which three quotes should lie on a line
_USUAL_CURVATURE = 0.5  # second derivative of log-volatility over deviations that is no surprise
_MAX_MONEY_DEVIATIONS = 2.5  # deviations within which an expiry's level is judged
_MIN_EXPIRY_ERROR = 1e-2  # what it may be off however tight its spreads
_MIN_LOG_MATURITY_GAP = (
    0.1  # of log-maturity: neighbours a day apart say little of a term structure
)
_WING_WEIGHT, _SKEW_RIDGE = 1e-6, 1e-2  # of a slope at the money: wings alone have one too


class ObservedQuotes(NamedTuple):
    """Quotes, ``(m,)`` each.

    Attributes:
        k: Log-moneyness.
        T: Maturities.
        iv: Volatilities of the mids.
        half: Half-spreads of prices.
    """

    k: Array
    T: Array
    iv: Array
    half: Array


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
        missed: ``(C,)`` of each chain, the prior's median miss of the mids, in half-spreads.
    """

    T: Array
    total: Array
    expiry: Indices
    k: Array
    iv: Array
    spread: Array
    miss: Array
    moved: Array
    missed: Array


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


def compute_misses(quotes: ObservedQuotes, off: Array) -> tuple[Array, Array]:
    """``(m,)`` misses in half-spreads, softened, and in plain ones.

    Args:
        quotes: Theirs.
        off: ``(m,)`` model less mid, in prices.
    """
    soft = soften_price(quotes.k, quotes.iv * np.sqrt(quotes.T))
    unit = np.where(quotes.half > 0.0, quotes.half, soft)
    return off / np.sqrt(quotes.half**2 + soft**2), off / unit


def soften_price(k: Array, total: Array) -> Array:
    """``(m,)`` what is worth half a percent of a total volatility."""
    soft = domain.VOLATILITY_SOFTENING * total * black.vega(k, total)
    return np.asarray(np.maximum(soft, domain.MIN_PRICE_SCALE))


def _compute_traits(seen: ObservedChains, slices: Indices, quotes: Indices) -> Array:
    """``(C, …)`` in the order of :data:`arbiter.operators.domain.TRAITS`."""
    starts = np.searchsorted(seen.expiry, np.arange(seen.T.size + 1))
    count = np.diff(starts)
    found = np.empty((slices.size - 1, len(domain.TRAITS)))
    found[:, 3], found[:, 16], found[:, 17] = np.diff(slices), seen.moved, seen.missed
    by_slice, by_quote = np.empty((3, count.size)), np.empty((3, seen.k.size))
    by_quote[0], by_quote[2] = seen.spread, np.abs(seen.miss)
    size = np.full((count.size, count.max()), np.inf)
    _fill_traits(seen, slices, starts, found, by_slice, by_quote[1], size)
    size.sort(1)
    median = size[np.arange(count.size), (count - 1) // 2]
    worst = np.where(count >= _MIN_QUOTES_PER_EXPIRY, median, -np.inf)
    for chain, row in enumerate(found):
        own = slice(slices[chain], slices[chain + 1])
        low, high, skew = np.sort(by_slice[:, own])
        row[6], row[7], row[10] = (_quantile(each, 0.5) for each in (low, high, skew))
        spread, kinks, miss = np.sort(by_quote[:, quotes[chain] : quotes[chain + 1]])
        row[9] = _quantile(spread, 0.5)
        row[11] = _quantile(kinks[: kinks.searchsorted(np.inf)], _WORST_QUANTILE)
        row[13], row[14] = _quantile(miss, 0.5), _quantile(miss, _WORST_QUANTILE)
        most = worst[own].max()
        row[15] = most if most >= 0.0 else miss[-1]
    return found


@compiled
def _fill_traits(
    seen: ObservedChains,
    slices: Indices,
    starts: Indices,
    found: Array,
    by_slice: Array,
    kinks: Array,
    size: Array,
) -> None:
    """Traits that are no quantiles, and what the others are quantiles of.

    Args:
        seen: The chains.
        slices: Where the maturities of each chain begin.
        starts: Where the quotes of each maturity begin.
        found: ``(C, …)`` traits.
        by_slice: ``(3, L)`` lowest and highest strike in deviations, and slope at the money.
        kinks: ``(m,)`` how far quotes lie from their neighbours' line, in half-spreads; infinite
            without neighbours.
        size: ``(L, …)`` sizes of the misses of each slice.
    """
    z, u = np.empty(seen.k.size), np.empty(seen.k.size)
    level, noise, at = np.empty(seen.T.size), np.empty(seen.T.size), np.empty(seen.T.size)
    for chain in range(slices.size - 1):
        first, last = slices[chain], slices[chain + 1] - 1
        fewest, far, steep, widest, off, some = seen.k.size, 0.0, 0.0, 0.0, 0.0, 0
        for each in range(first, last + 1):
            begin, end, log_T = starts[each], starts[each + 1], math.log(seen.T[each])
            per, base = math.exp(-seen.total[each]), seen.total[each] - 0.5 * log_T
            for i in range(begin, end):
                z[i], u[i] = seen.k[i] * per, math.log(seen.iv[i]) - base
                size[each, i - begin] = abs(seen.miss[i])
            low, high, near, skew, mass, mean = _measure_slice(
                z[begin:end], u[begin:end], seen.miss[begin:end], seen.spread[begin:end]
            )
            by_slice[0, each], by_slice[1, each], by_slice[2, each] = low, high, skew
            _fill_kinks(z[begin:end], u[begin:end], seen.spread[begin:end], kinks[begin:end])
            fewest, far = min(fewest, end - begin), max(far, near)
            if each > first:
                gap = log_T - math.log(seen.T[each - 1])
                turn = abs(seen.total[each] - seen.total[each - 1] - 0.5 * gap)
                steep = max(steep, turn / max(gap, _MIN_LOG_MATURITY_GAP))
                widest = max(widest, gap)
            # how far an expiry is missed by more than its neighbours, over what spreads allow
            if mass > 0.0:
                at[some], level[some], noise[some] = log_T, mean, 1.0 / mass + _MIN_EXPIRY_ERROR**2
                some += 1
        for j in range(1, some - 1):
            right = (at[j] - at[j - 1]) / (at[j + 1] - at[j - 1])
            left = 1.0 - right
            known = noise[j] + left**2 * noise[j - 1] + right**2 * noise[j + 1]
            beyond = level[j] - left * level[j - 1] - right * level[j + 1]
            off = max(off, abs(beyond) / math.sqrt(known))
        row = found[chain]
        row[0], row[1] = math.exp(seen.total[first]), math.exp(seen.total[last])
        row[2], row[4], row[5], row[8], row[12] = steep, math.exp(widest), fewest, far, off


@inlined
def _measure_slice(
    z: Array, u: Array, miss: Array, spread: Array
) -> tuple[float, float, float, float, float, float]:
    """Numbers of one expiry.

    Lowest and highest deviation, and the distance from the money of the nearest; the slope of a
    local line of ``u = log(iv/σ)`` at the money; the weight of the quotes near it, and their mean
    miss of volatility.
    """
    low, high, nearest = z[0], z[0], abs(z[0])
    mass = first = second = mean = cross = known = missed = 0.0
    for i in range(z.size):
        low, high, nearest = min(low, z[i]), max(high, z[i]), min(nearest, abs(z[i]))
        w = math.exp(-0.5 * z[i] * z[i]) + _WING_WEIGHT / (1.0 + z[i] * z[i])
        mass += w
        first += w * z[i]
        second += w * z[i] * z[i]
        mean += w * u[i]
        cross += w * z[i] * u[i]
        if abs(z[i]) < _MAX_MONEY_DEVIATIONS:
            weight = 1.0 / (spread[i] ** 2 + domain.VOLATILITY_SOFTENING**2)
            known += weight
            missed += miss[i] * math.sqrt(weight)
    centre = first / mass
    lean = max(second - centre * first, 0.0) + _SKEW_RIDGE * mass
    return low, high, nearest, (cross - centre * mean) / lean, known, missed / known


@inlined
def _fill_kinks(z: Array, u: Array, spread: Array, kinks: Array) -> None:
    kinks[0] = kinks[-1] = math.inf
    for i in range(1, z.size - 1):
        wide = z[i + 1] - z[i - 1]
        right = (z[i] - z[i - 1]) / max(wide, 1e-12)
        left = 1.0 - right
        off = u[i] - left * u[i - 1] - right * u[i + 1]
        bend = 0.5 * _USUAL_CURVATURE * right * left * wide**2
        around = spread[i] ** 2 + left**2 * spread[i - 1] ** 2 + right**2 * spread[i + 1] ** 2
        around += (1.0 + left**2 + right**2) * domain.VOLATILITY_SOFTENING**2
        near = wide <= _MAX_NEIGHBOUR_DEVIATIONS
        kinks[i] = abs(off) / math.sqrt(around + bend**2) if near else math.inf


def _quantile(ordered: Array, share: float) -> float:
    """A quantile of numbers in order, interpolated; 0 of none."""
    if ordered.size == 0:
        return 0.0
    place = share * (ordered.size - 1)
    low = int(place)
    high = min(low + 1, ordered.size - 1)
    return float(ordered[low] + (place - low) * (ordered[high] - ordered[low]))
