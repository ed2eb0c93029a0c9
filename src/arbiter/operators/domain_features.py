"""The numbers that tell whether a chain is like those of training; :mod:`.domain` judges.

Chain by chain, several of them one behind the other.

Shapes: C chains, L slices of all chains, m quotes of all.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

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
    expiry, log_T = seen.expiry, np.log(seen.T)
    z = seen.k * np.exp(-seen.total)[expiry]
    u = np.log(seen.iv) - (seen.total - 0.5 * log_T)[expiry]
    starts = np.searchsorted(expiry, np.arange(seen.T.size))
    count = np.diff(np.append(starts, z.size))
    low, high = np.minimum.reduceat(z, starts), np.maximum.reduceat(z, starts)
    nearest, size = np.minimum.reduceat(np.abs(z), starts), np.abs(seen.miss)
    skew, last = _measure_skews(z, u, starts), slices[1:] - 1
    line, level = _measure_kinks(expiry, z, u, seen.spread), _average_misses(seen, z, starts)
    worst = _worst_expiry_misses(size, starts, slices)
    found = np.empty((slices.size - 1, len(domain.TRAITS)))
    found[:, 0], found[:, 1] = np.exp(seen.total[slices[:-1]]), np.exp(seen.total[last])
    found[:, 3] = np.diff(slices)
    for chain, row in enumerate(found):
        own = slice(slices[chain], slices[chain + 1])
        here = slice(quotes[chain], quotes[chain + 1])
        row[2], row[4] = _compare_neighbours(log_T[own], seen.total[own])
        row[5], row[8] = count[own].min(), nearest[own].max()
        row[6], row[7] = _quantile(low[own], 0.5), _quantile(high[own], 0.5)
        row[9], row[10] = _quantile(seen.spread[here], 0.5), _quantile(skew[own], 0.5)
        row[11] = _quantile(line[here][~np.isnan(line[here])], _WORST_QUANTILE)
        row[12] = _out_of_line(log_T[own], level[:, own])
        row[13], row[14] = _quantile(size[here], 0.5), _quantile(size[here], _WORST_QUANTILE)
        row[15] = size[here].max() if math.isnan(worst[chain]) else worst[chain]
        row[16], row[17] = seen.moved[chain], seen.missed[chain]
    return found


def _compare_neighbours(log_T: Array, total: Array) -> tuple[float, float]:
    """The steepest change of log-volatility between neighbouring expiries, and the widest gap."""
    gap = np.diff(log_T)
    turn = np.abs(np.diff(total) - 0.5 * gap) / np.maximum(gap, _MIN_LOG_MATURITY_GAP)
    return float(turn.max(initial=0.0)), math.exp(gap.max(initial=0.0))


def _measure_skews(z: Array, u: Array, starts: Indices) -> Array:
    """``(L,)`` slopes of local lines of ``u = log(iv/σ)`` at the money."""
    w = np.exp(-0.5 * z * z) + _WING_WEIGHT / (1.0 + z * z)
    sums = np.add.reduceat(np.stack([w, w * z, w * z * z, w * u, w * z * u]), starts, axis=1)
    mass, first, second, mean, cross = sums
    centre = first / mass
    spread = np.maximum(second - centre * first, 0.0)
    return np.asarray((cross - centre * mean) / (spread + _SKEW_RIDGE * mass))


def _measure_kinks(expiry: Indices, z: Array, u: Array, spread: Array) -> Array:
    """``(m,)`` how far quotes lie from their neighbours' line, in half-spreads; NaN without."""
    found = np.full(z.size, np.nan)
    wide, least = z[2:] - z[:-2], domain.VOLATILITY_SOFTENING**2
    right = (z[1:-1] - z[:-2]) / np.maximum(wide, 1e-12)
    left = 1.0 - right
    off = u[1:-1] - left * u[:-2] - right * u[2:]
    bend = 0.5 * _USUAL_CURVATURE * right * left * wide**2
    noise = spread**2 + least
    around = noise[1:-1] + left**2 * noise[:-2] + right**2 * noise[2:]
    near = (expiry[2:] == expiry[:-2]) & (wide <= _MAX_NEIGHBOUR_DEVIATIONS)
    found[1:-1] = np.where(near, np.abs(off) / np.sqrt(around + bend**2), np.nan)
    return found


def _average_misses(seen: ObservedChains, z: Array, starts: Indices) -> Array:
    """``(2, L)`` mean miss of each expiry near the money, and its variance; NaN without quotes."""
    weight = (np.abs(z) < _MAX_MONEY_DEVIATIONS) / (seen.spread**2 + domain.VOLATILITY_SOFTENING**2)
    mass = np.add.reduceat(weight, starts)
    mean = np.add.reduceat(seen.miss * np.sqrt(weight), starts)
    per = np.divide(1.0, mass, out=np.full(mass.size, np.nan), where=mass > 0.0)
    return np.stack([mean * per, per + _MIN_EXPIRY_ERROR**2])


def _out_of_line(log_T: Array, missed: Array) -> float:
    """How far an expiry is missed by more than its neighbours are, over what its spreads allow."""
    some = ~np.isnan(missed[0])
    at, (level, noise) = log_T[some], missed[:, some]
    if at.size < 3:
        return 0.0
    right = (at[1:-1] - at[:-2]) / (at[2:] - at[:-2])
    left = 1.0 - right
    off = level[1:-1] - left * level[:-2] - right * level[2:]
    known = noise[1:-1] + left**2 * noise[:-2] + right**2 * noise[2:]
    return float((np.abs(off) / np.sqrt(known)).max())


def _worst_expiry_misses(size: Array, starts: Indices, slices: Indices) -> Array:
    """``(C,)`` median miss of the worst expiry; NaN where all have too few quotes."""
    count = np.diff(np.append(starts, size.size))
    place = np.arange(count.max())
    ordered = np.full((count.size, place.size), np.inf)
    ordered[place < count[:, None]] = size
    ordered.sort(1)
    median = ordered[np.arange(count.size), (count - 1) // 2]
    known = np.where(count >= _MIN_QUOTES_PER_EXPIRY, median, -np.inf)
    worst = np.maximum.reduceat(known, slices[:-1])
    return np.where(worst >= 0.0, worst, np.nan)


def _quantile(values: Array, share: float) -> float:
    """A quantile, interpolated; 0 of none."""
    if values.size == 0:
        return 0.0
    place = share * (values.size - 1)
    low = int(place)
    high = min(low + 1, values.size - 1)
    some = np.partition(values, (low, high))
    return float(some[low] + (place - low) * (some[high] - some[low]))
