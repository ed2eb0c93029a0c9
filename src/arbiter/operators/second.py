"""A second component, for the few chains whose quotes one cannot meet.

The operator's answer is one transport in the star order, and a market with rare large jumps need
not have one: its chance of a jump grows with maturity, and moves the steep piece of the transport
along the Gaussian coordinate. A nested mixture of two has room for that (docs/theory.md). The pass
itself says where it is needed: where the order keeps the start from the reference smile by more
than the standard errors of that smile would explain, and the surface misses the quotes by more than
errors within their spreads would. There the direct fit of two components takes over, from the pass
as its start, and stays if it meets the quotes better.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from arbiter.fitting import FitOptions, fit
from arbiter.inputs import frozen
from arbiter.quotes import Quotes
from arbiter.surface import Surface

Array = NDArray[np.float64]
logger = logging.getLogger(__name__)

STRAINED = 0.5  # standard errors of the smile, in root mean square, that the order may cost
MISSED = 0.64  # half-spreads; errors that are even within the spread have 0.577
_BETTER = 0.95  # share of its misses that one component may keep, if two are to be taken
_WORST = 5.0  # half-spreads: no quote counts for more
# At first: the first component's width, the second one's beside it in slopes of the first expiry,
# and the second one's share at the last expiry with its power of maturity. Nearly equal components
# of nearly equal shares: one much wider would lose its share at once, and nothing brings that back.
_CALM, _WIDE, _SHARE, _GROWTH = 0.9, 2.0, 0.45, 0.2


class Components(NamedTuple):
    """What a surface is made of, and what its quotes are worth on it.

    Attributes:
        slopes: ``(J, L, n)``
        weights: ``(J, L)``
        price: ``(m,)`` of the quotes, over the forward.
    """

    slopes: Array
    weights: Array
    price: Array


def enough(quotes: Quotes, one: Surface, price: Array, strained: float) -> Components:
    """One component as it is, or two where one misses the quotes and two meet them better.

    Args:
        quotes: Of the chain.
        one: The surface of the pass.
        price: ``(m,)`` of the quotes on it.
        strained: By how many standard errors of the reference smile the order keeps its start away.
    """
    alone, off = Components(one.slopes, one.weights, price), missed(quotes, price)
    if not (strained > STRAINED and off > MISSED):
        return alone
    logger.info("one component misses the quotes by %.2f half-spreads: a second is looked for", off)
    found = fit(quotes, options=FitOptions(components=2, knots=_knots(one)), start=divided(one))
    both = Components(found.slopes, found.weights, found.otm(quotes.k, quotes.T))
    return both if missed(quotes, both.price) < _BETTER * off else alone


def missed(quotes: Quotes, price: Array) -> float:
    """Root mean square of the misses in half-spreads, none counting for more than five."""
    half = np.maximum(quotes.half_spread, np.finfo(np.float64).tiny)
    off = np.minimum(np.abs(price - quotes.mid) / half, _WORST)
    return float(np.sqrt(np.mean(off * off)))


def divided(one: Surface) -> Surface:
    """A surface of one component as two that are near it: where to look for others from."""
    b, T = one.slopes[0], one.maturities
    calm, wide = _CALM * b, np.hypot(b, _WIDE * b[0])
    share = _SHARE * (T / T[-1]) ** _GROWTH
    slopes, weights = frozen(np.stack([calm, wide])), frozen(np.stack([1.0 - share, share]))
    return Surface(one.knots, T, slopes, weights, one.curve)


def _knots(one: Surface) -> tuple[float, ...]:
    return tuple(float(x) for x in one.knots)
