"""The reference volatility: level and clock of a chain, by which everything is divided.

A chain with all volatilities doubled and all maturities quartered has the same total volatilities,
and the network sees nothing else: deviations ``z = k/(σ√T)``, volatilities over σ, total
volatilities ``σ√T`` and ratios of maturities. So the surface follows, to rounding.

σ comes from the quotes by smoothing, and only by smoothing: it is a rough level, and what it leaves
of the smile is the network's input. Each slice's level is a local line at the money; levels are
smoothed along log-maturity, each pair of maturities once. That is quadratic in the number of
maturities, but with a small constant: a hundredth of a pass at 50 of them, a tenth at a thousand.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled
from arbiter.conventions import Array, Indices
from arbiter.operators.quote_rows import QuoteRows

MIN_RELATIVE_HALF_SPREAD, MAX_RELATIVE_HALF_SPREAD = 5e-4, 0.3  # half-spread over volatility
WEIGHT_HALF_SPREAD_FLOOR = 3e-3  # quotes tighter than this count alike for the level
AT_MONEY_WIDTH_SD = 1.0  # deviations around the money that set a slice's level
LOG_MATURITY_BANDWIDTH = 0.6  # of log-maturity over which levels are smoothed
MIN_ATM_LOG_IV_ERROR = 0.02  # what a slice's level is never known better than, for smoothing
FAR_WEIGHT = 1e-5  # weight of what is far, for slices and chains that have nothing near
STRIKE_RIDGE, MATURITY_RIDGE = 0.1, 0.05  # variances beside those that local lines are divided by
OFF_MONEY_ERROR = (
    0.05  # error of a level for each squared deviation that its quotes are off the money
)
MIN_SLICE_WEIGHT, DIVISION_FLOOR = (
    1e-3,
    1e-30,
)  # of a slice's quotes: for its error, and to be divided by
MAX_LOG_VOLATILITY_RATIO = 2.5  # of log(iv/σ): what lies beyond is clipped


class Scaled(NamedTuple):
    """Chains in units of their reference volatilities.

    Attributes:
        quotes: The quotes as they came.
        total: ``(B, L)`` ``log(σ√T)``.
        zeta: ``(N,)`` ``asinh z`` of the strikes, z in deviations.
        u: ``(N,)`` ``log(iv/σ)``.
        noise: ``(N,)`` log of the half-spread over the volatility.
        gap: ``(B, L)`` log-maturity since the maturity before; 1 if none before has quotes.
        ahead: ``(B, L)`` log-maturity to the next one; 1 if none beyond has quotes.
    """

    quotes: QuoteRows
    total: Array
    zeta: Array
    u: Array
    noise: Array
    gap: Array
    ahead: Array


def scaled(quotes: QuoteRows) -> Scaled:
    """Divide chains by their own levels.

    Args:
        quotes: Each chain with at least one quote.
    """
    log_iv, log_T, row, ends = np.log(quotes.iv), np.log(quotes.T), quotes.row, quotes.ends
    relative = quotes.half / quotes.iv
    relative = np.clip(relative, MIN_RELATIVE_HALF_SPREAD, MAX_RELATIVE_HALF_SPREAD)
    level, doubt, log_sigma, gap, ahead = np.empty((5, *log_T.shape))
    fill_levels(log_T, ends, quotes.k, log_iv, relative, level, doubt)
    _fill_levels_along_maturity(log_T, ends, level, doubt, log_sigma, gap, ahead)
    total = log_sigma + 0.5 * log_T
    zeta = np.arcsinh(quotes.k * np.exp(-total).ravel()[row])
    off = log_iv - log_sigma.ravel()[row]
    return Scaled(
        quotes=quotes,
        total=total,
        zeta=zeta,
        u=np.clip(off, -MAX_LOG_VOLATILITY_RATIO, MAX_LOG_VOLATILITY_RATIO),
        noise=np.log(relative),
        gap=gap,
        ahead=ahead,
    )


@compiled
def fill_levels(
    log_T: Array,
    ends: Indices,
    k: Array,
    log_iv: Array,
    relative: Array,
    level: Array,
    doubt: Array,
) -> None:
    """Each slice's log-volatility at the money by a local line, and its variance.

    A slice without quotes has no part in what follows, and the numbers of none.
    """
    B, L = log_T.shape
    for each in range(B * L):
        i, j = each // L, each % L
        first_one, last_one = ends[each], ends[each + 1]
        level[i, j], doubt[i, j] = 0.0, 1.0 / MIN_SLICE_WEIGHT
        if first_one == last_one:
            continue
        nearest = first_one
        for s in range(first_one, last_one):
            nearest = s if abs(k[s]) < abs(k[nearest]) else nearest
        found = log_iv[nearest]
        mass = away = 0.0
        for _ in range(2):
            per = math.exp(-found - 0.5 * log_T[i, j])
            mass = first = second = mean = cross = 0.0
            for s in range(first_one, last_one):
                z = k[s] * per
                bell = math.exp(-0.5 * (z / AT_MONEY_WIDTH_SD) ** 2) + FAR_WEIGHT / (1.0 + z * z)
                near = bell / (relative[s] ** 2 + WEIGHT_HALF_SPREAD_FLOOR**2)
                mass += near
                first += near * z
                second += near * z * z
                mean += near * log_iv[s]
                cross += near * z * log_iv[s]
            mass += DIVISION_FLOOR
            centre, away, mean = first / mass, second / mass, mean / mass
            lean = (cross / mass - centre * mean) / (away - centre**2 + STRIKE_RIDGE)
            found = mean - min(max(centre, -1.0), 1.0) * lean
        level[i, j] = found
        doubt[i, j] = 1.0 / max(mass, MIN_SLICE_WEIGHT) + (OFF_MONEY_ERROR * away) ** 2


@compiled
def _fill_levels_along_maturity(
    log_T: Array, ends: Indices, level: Array, doubt: Array, smooth: Array, gap: Array, ahead: Array
) -> None:
    """Levels by a local line in log-maturity, which a slice without quotes follows, and gaps.

    Gaps are log-maturities to the slice before and to the one after; 1 where none there is listed.
    """
    B, L = log_T.shape
    weight = np.empty(L)
    for i in range(B):
        begin, begun, left = i * L, False, False
        for j in range(L):
            # a slice quoted far from the money is doubted, and still all that a chain may have
            listed = ends[begin + j + 1] > ends[begin + j]
            weight[j] = 1.0 / (doubt[i, j] + MIN_ATM_LOG_IV_ERROR**2) if listed else 0.0
            gap[i, j] = log_T[i, j] - log_T[i, j - 1] if begun else 1.0
            begun |= listed
        for j in range(L - 1, -1, -1):
            ahead[i, j] = log_T[i, j + 1] - log_T[i, j] if left else 1.0
            left |= ends[begin + j + 1] > ends[begin + j]
        for j in range(L):
            mass = first = second = mean = cross = 0.0
            for there in range(L):
                apart = log_T[i, there] - log_T[i, j]
                near = math.exp(-0.5 * (apart / LOG_MATURITY_BANDWIDTH) ** 2)
                near = weight[there] * (near + FAR_WEIGHT / (1.0 + apart * apart))
                mass += near
                first += near * apart
                second += near * apart * apart
                mean += near * level[i, there]
                cross += near * apart * level[i, there]
            centre, mean = first / mass, mean / mass
            lean = (cross / mass - centre * mean) / (second / mass - centre**2 + MATURITY_RIDGE)
            smooth[i, j] = mean - min(max(centre, -1.0), 1.0) * lean
