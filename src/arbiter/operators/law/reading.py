"""Reading quotes through a law: conditional expectations of what they are off.

In the Gaussian percentile x a law is the standard normal one. A head weighs it by a fixed positive
function of Gaussian decay, so that head times law is a Gaussian of its own place and width. A quote
stands for the cell between the middles to its neighbours, cut at the end quotes, and its weight is
the mass of that cell. The law enters through the percentiles of the strikes.

Shapes: N quotes of M slices, H heads.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from arbiter.compiled import compiled, inlined
from arbiter.conventions import Array, Indices
from arbiter.operators.law.config import MIN_NOISE, MIN_READ_VEGA
from arbiter.operators.law.single_precision import exp32
from arbiter.operators.law.weights import Weights
from arbiter.operators.matrix_products import Rough
from arbiter.pricing import normal

# the error function by Hastings' formula, to 1.5e-7
_SLOPE = np.float32(0.3275911)
_TERMS = tuple(
    np.float32(0.5 * a) for a in (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
)
_ONE, _HALF, _ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)
_PER_ROOT_2, _MIN_VARIANCE = np.float32(2.0**-0.5), np.float32(MIN_NOISE**2)


class Reading(NamedTuple):
    """What heads see of slices.

    Attributes:
        mass: ``(M, H)`` of all cells.
        noise: ``(M, H)`` standard error of a reading, from the half-spreads.
        said: ``(M, H)`` conditional expectations of misfits, less where little is seen.
    """

    mass: Rough
    noise: Rough
    said: Rough


class Heads:
    """Places and widths of the heads.

    Args:
        weights: Theirs.
        unread: Mass that halves a reading: a head that sees no quotes says little.
    """

    def __init__(self, weights: Weights, unread: float) -> None:
        self.place = weights["place"].astype(np.float32)
        self.narrow = np.exp(-weights["log_width"].astype(np.float64)).astype(np.float32)
        self.unread = np.float32(unread)

    def read(self, x: Array, off: Array, relative: Array, ends: Indices) -> Reading:
        """Read misfits.

        Args:
            x: ``(N,)`` percentiles, rising in every slice.
            off: ``(N,)`` misfits.
            relative: ``(N,)`` half-spreads over volatility.
            ends: ``(M + 1,)`` where the quotes of each slice begin, and the last end.
        """
        sums = np.zeros((3, ends.size - 1, self.place.size), np.float32)
        line = np.stack([x, off, relative], dtype=np.float32)
        _fill_readings(line, ends, (self.place, self.narrow, self.unread), sums)
        return Reading(*sums)


def misfit(mid: Array, price: Array, vega: Array, largest: float) -> Array:
    """``(N,)`` what mids are off in log-volatility, cut at ``largest``.

    Args:
        mid: Mid prices.
        price: Prices of the law.
        vega: Of the law, per unit of log-volatility.
        largest: Size at which it is cut.
    """
    told = np.clip(vega / MIN_READ_VEGA - 1.0, 0.0, 1.0)  # a step would be a jump in the quotes
    return np.clip(told * (mid - price) / np.maximum(vega, MIN_READ_VEGA), -largest, largest)


def law_vega(k: Array, x: Array, total: Array) -> Array:
    """``(N,)`` what a relative change of volatility is worth at a percentile: ``κ φ(x) σ√T``."""
    return np.exp(k - 0.5 * x * x + total) * normal.INV_ROOT_2PI


@inlined
def _cdf32(x: np.float32) -> np.float32:
    size = abs(x) * _PER_ROOT_2
    t = _ONE / (_ONE + _SLOPE * size)
    p = _TERMS[4]
    p = p * t + _TERMS[3]
    p = p * t + _TERMS[2]
    p = p * t + _TERMS[1]
    p = p * t + _TERMS[0]
    tail = p * t * exp32(-size * size)
    found: np.float32 = _HALF + (_HALF - tail if x > _ZERO else tail - _HALF)
    return found


@compiled
def _fill_readings(
    line: Rough, ends: Indices, heads: tuple[Rough, Rough, np.float32], sums: Rough
) -> None:
    """Masses, standard errors and readings, from sums over cells that begin with zero."""
    x, off, relative, (place, narrow, unread) = line[0], line[1], line[2], heads
    H, before = place.size, np.empty(place.size, line.dtype)
    for each in range(ends.size - 1):
        begin, end = ends[each], ends[each + 1]
        mass, noise, said = sums[0, each], sums[1, each], sums[2, each]
        if begin < end:
            for h in range(H):
                before[h] = _cdf32((x[begin] - place[h]) * narrow[h])
        for i in range(begin, end):
            right = x[i] if i + 1 == end else _HALF * (x[i] + x[i + 1])
            value, wide = off[i], relative[i] * relative[i]
            for h in range(H):
                upto = _cdf32((right - place[h]) * narrow[h])
                own = max(upto - before[h], _ZERO)
                before[h] = upto
                mass[h] += own
                noise[h] += own * own * wide
                said[h] += own * value
        for h in range(H):
            per = _ONE / (mass[h] + unread)
            noise[h] = np.sqrt(noise[h] + _MIN_VARIANCE) * per
            said[h] *= per
