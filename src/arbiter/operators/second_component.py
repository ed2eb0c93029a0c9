"""A second component, for the few chains whose quotes one cannot meet.

The operator's answer is one transport in the star order, and a market with rare large jumps need
not have one: its chance of a jump grows with maturity, and moves the steep piece of the transport
along the Gaussian coordinate. A nested mixture of two has room for that (docs/theory.md). The pass
itself says where it is needed: where the order keeps the start from the reference smile by more
than the standard errors of that smile would explain, and the surface misses the quotes by more than
errors within their spreads would. Both are so for quotes of different times too, which no market
has at once; there an expiry is out of line with its neighbours. Else the direct fit of two
components takes over, from two starts, near the pass and its own: some markets need the one and
some the other. What meets the quotes best stays, if that is better by enough.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array
from arbiter.fitting import FitOptions, Status, fit
from arbiter.fitting.fitted_surface import FittedSurface
from arbiter.fitting.misfit import compute_half_spreads
from arbiter.inputs import freeze_array
from arbiter.quotes import Quotes
from arbiter.surface import Surface

logger = logging.getLogger(__name__)

MAX_ORDER_STRAIN = 0.5  # standard errors of the smile, in root mean square, that the order may cost
MAX_RMS_HALF_SPREADS = 0.64  # half-spreads; errors that are even within the spread have 0.577
MAX_OUT_OF_LINE = 0.7  # standard errors that an expiry may be out of line with its neighbours
_MAX_REMAINING_MISS_SHARE = (
    0.95  # share of its misses that one component may keep, if two are to be taken
)
_MAX_MISS_HALF_SPREADS = 5.0  # half-spreads: no quote counts for more
# At first: the first component's width, the second one's beside it in slopes of the first expiry,
# and the second one's share at the last expiry with its power of maturity. Nearly equal components
# of nearly equal shares: one much wider would lose its share at once, and nothing brings that back.
_FIRST_WIDTH, _SECOND_WIDTH, _LAST_EXPIRY_SHARE, _SHARE_MATURITY_POWER = 0.9, 2.0, 0.45, 0.2


class NetworkPass(NamedTuple):
    """What one pass says of a chain.

    Attributes:
        surface: Of one component.
        price: ``(m,)`` of the quotes on it, over the forward.
        strained: By how many standard errors of the reference smile the order keeps its start away.
        out_of_line: By how many the worst expiry is out of line with its neighbours.
    """

    surface: Surface
    price: Array
    strained: float
    out_of_line: float


class SurfaceComponents(NamedTuple):
    """What a surface is made of, and what its quotes are worth on it.

    Attributes:
        slopes: ``(J, L, n)``
        weights: ``(J, L)``
        price: ``(m,)`` of the quotes, over the forward.
        warnings: What went wrong in the search for a second component, as sentences.
    """

    slopes: Array
    weights: Array
    price: Array
    warnings: tuple[str, ...] = ()


def keep_one_component(one: NetworkPass, warnings: tuple[str, ...] = ()) -> SurfaceComponents:
    """The one component of a pass."""
    return SurfaceComponents(one.surface.slopes, one.surface.weights, one.price, warnings)


def choose_components(quotes: Quotes, one: NetworkPass) -> SurfaceComponents:
    """One component as it is, or two where one misses the quotes and two meet them better."""
    if not (one.strained > MAX_ORDER_STRAIN and one.out_of_line < MAX_OUT_OF_LINE):
        return keep_one_component(one)
    off = compute_rms_miss(quotes, one.price)
    if off <= MAX_RMS_HALF_SPREADS:
        return keep_one_component(one)
    fits = [
        _fit_two_components(quotes, one, start) for start in (split_component(one.surface), None)
    ]
    done = [found for found in fits if isinstance(found, FittedSurface)]
    warnings = tuple(sentence for found in done for sentence in found.result.warnings)
    if not done:
        missing = f"a second component was looked for and not found: {fits[0]}"
        logger.warning(missing)
        return keep_one_component(one, (missing,))
    prices = [found.otm(quotes.k, quotes.T) for found in done]
    misses = [compute_rms_miss(quotes, price) for price in prices]
    best = int(np.argmin(np.nan_to_num(misses, nan=np.inf)))
    found, left = done[best], misses[best]
    taken = left < _MAX_REMAINING_MISS_SHARE * off
    verdict = (
        f"one component misses the quotes by {off:.2f} half-spreads, two by {left:.2f} after "
        f"{found.result.iterations} steps ({found.result.status.value}): "
        + ("two are taken" if taken else "one is kept")
    )
    if found.result.status is Status.CONVERGED:
        logger.info(verdict)
    else:
        logger.warning(verdict)
        warnings = (*warnings, verdict)
    if not taken:
        return keep_one_component(one, warnings)
    return SurfaceComponents(found.slopes, found.weights, prices[best], warnings)


def _fit_two_components(
    quotes: Quotes, one: NetworkPass, start: Surface | None
) -> FittedSurface | Exception:
    """The fit of two components from a start, or from its own; or why there is none."""
    options = FitOptions(components=2, knots=tuple(float(x) for x in one.surface.knots))
    try:
        return fit(quotes, options=options, start=start)
    except (ValueError, AssertionError, np.linalg.LinAlgError) as error:
        return error


def compute_rms_miss(quotes: Quotes, price: Array) -> float:
    """Root mean square of the misses in half-spreads, none counting for more than five.

    A half-spread is at least what the fit takes it for.
    """
    unit = np.maximum(compute_half_spreads(quotes, FitOptions()), np.finfo(np.float64).tiny)
    off = np.minimum(np.abs(price - quotes.mid) / unit, _MAX_MISS_HALF_SPREADS)
    return float(np.sqrt(np.mean(off * off)))


def split_component(one: Surface) -> Surface:
    """A surface of one component as two that are near it: where to look for others from."""
    b, T = one.slopes[0], one.maturities
    calm, wide = _FIRST_WIDTH * b, np.hypot(b, _SECOND_WIDTH * b[0])
    share = _LAST_EXPIRY_SHARE * (T / T[-1]) ** _SHARE_MATURITY_POWER
    slopes, weights = (
        freeze_array(np.stack([calm, wide])),
        freeze_array(np.stack([1.0 - share, share])),
    )
    return Surface(one.knots, T, slopes, weights, one.curve)
