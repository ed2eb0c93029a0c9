"""Quotes that contradict the others: what anybody could trade against at the prices shown.

Only executable contradictions count, bids against asks, so that a wide or a noisy quote is never
called wrong: on ordinary chains nothing is found here. Prices are in forward units and puts are
turned into calls by parity, which changes no butterfly.
"""

from __future__ import annotations

import numpy as np

from arbiter.chains.option_table import Mask, OptionTable, SeriesEstimates
from arbiter.conventions import Array, Indices
from arbiter.exclusions import Exclusion

_CODES = (Exclusion.PARITY, Exclusion.STALE)
_STRIKES_PER_SIDE = 3  # strikes on each side against which a quote is held
_MIN_BUTTERFLIES = 4  # butterflies without which nothing is said
_MIN_SHARE_ALONE, _MIN_SHARE_CONFIRMED = (
    0.66,
    0.5,
)  # share of them that must pay, unless the other side confirms it
_MAX_ROUNDS = 5  # wrong quotes hide each other: what is left is compared again
_ROUNDING_TOLERANCE = 1e-12  # forward units
_PARITY_STANDARD_ERRORS = 3.0  # standard errors of forward and discount that parity is granted


def find_contradictions(
    options: OptionTable, estimates: SeriesEstimates, order: Indices
) -> dict[Exclusion, Mask]:
    """Those of the options in ``order`` that contradict others, by reason.

    A quote is stale if most butterflies with its neighbours pay to trade because of it. Half of
    them are enough if the option of the other side of its strike contradicts it too: it is then
    outside parity bounds. (If only the other side does, that one may be wrong, and it is not
    used anyway.)

    Args:
        options: The options.
        estimates: Forwards and discount factors of their series.
        order: The usable ones, by maturity and then by strike.
    """
    series = options.series[order]
    forward = estimates.forward[series]
    unit, k = forward * estimates.discount[series], np.log(options.strike[order] / forward)
    kappa = np.exp(k)
    above = np.where(k >= 0.0, 0.0, 1.0 - kappa)
    bid, ask = options.bid[order] / unit + above, options.ask[order] / unit + above
    other_side = _find_parity_violations(options, estimates, order)
    found = {code: np.zeros(options.T.size, dtype=bool) for code in _CODES}
    left = np.arange(order.size)
    for _ in range(_MAX_ROUNDS):
        share = _share_that_pays(series[left], kappa[left], bid[left], ask[left])
        outside = other_side[left] & (share >= _MIN_SHARE_CONFIRMED)
        found[Exclusion.PARITY][order[left[outside]]] = True
        found[Exclusion.STALE][order[left[~outside & (share >= _MIN_SHARE_ALONE)]]] = True
        kept = ~(outside | (share >= _MIN_SHARE_ALONE))
        if kept.all():
            break
        left = left[kept]
    return found


def _share_that_pays(series: Indices, kappa: Array, bid: Array, ask: Array) -> Array:
    """Of the butterflies around a quote, the share that pays to trade because of it.

    Because it is sold too high in the middle, or, on both sides alike, bought too low at the end.
    Quotes are calls in forward units, sorted by strike within each of several series.
    """
    n = kappa.size
    # how many pay, and how many are compared, with the quote in the middle, as high and as low end
    tally = np.zeros((3, 2, n), dtype=np.int64)
    reach = range(1, _STRIKES_PER_SIDE + 1)
    for i in reach:
        for j in reach:
            size = n - i - j
            if size <= 0:
                continue
            low, middle, high = slice(0, size), slice(i, i + size), slice(i + j, n)
            inside = series[low] == series[high]
            share = (kappa[high] - kappa[middle]) / (kappa[high] - kappa[low])
            wings = share * ask[low] + (1.0 - share) * ask[high]
            pays = inside & (bid[middle] > wings + _ROUNDING_TOLERANCE)
            for of_place, place in zip(tally, (middle, high, low), strict=True):
                of_place[0, place] += pays
                of_place[1, place] += inside
    paying, compared = tally[:, 0], tally[:, 1]
    share = np.where(compared >= _MIN_BUTTERFLIES, paying / np.maximum(compared, 1), 0.0)
    sold, *bought = share
    return np.asarray(np.maximum(sold, np.minimum(*bought)))


def _find_parity_violations(
    options: OptionTable, estimates: SeriesEstimates, order: Indices
) -> Mask:
    """Whether call and put of a strike, traded against each other, miss ``D·(F − K)``."""
    series, other, K = options.series[order], options.other[order], options.strike[order]
    bid, ask = options.bid[order], options.ask[order]
    other_bid, other_ask = (
        np.where(other >= 0, side[other], np.nan) for side in (options.bid, options.ask)
    )
    F, D, *errors = (column[series] for column in estimates)
    forward_error, discount_error = (np.where(np.isnan(error), 0.0, error) for error in errors)
    slack = (
        _PARITY_STANDARD_ERRORS * (D * forward_error + np.abs(F - K) * discount_error)
        + _ROUNDING_TOLERANCE * F
    )
    value = np.where(options.call[order], 1.0, -1.0) * D * (F - K)
    two_sided = (other_bid > 0.0) & (other_ask >= other_bid)
    missed = (value > ask - other_bid + slack) | (value < bid - other_ask - slack)
    return np.asarray(two_sided & missed)
