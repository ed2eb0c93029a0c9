"""Quotes that contradict the others: what anybody could trade against at the prices shown.

Only executable contradictions count, bids against asks, so that a wide or a noisy quote is never
called wrong: on ordinary chains nothing is found here. Prices are in forward units and puts are
turned into calls by parity, which changes no butterfly.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from arbiter.conventions import Array
from arbiter.exclusions import Exclusion

Mask = NDArray[np.bool_]

_STRIKES_PER_SIDE = 3  # strikes on each side against which a quote is held
_MIN_BUTTERFLIES = 4  # butterflies without which nothing is said
_MIN_SHARE_ALONE, _MIN_SHARE_CONFIRMED = (
    0.66,
    0.5,
)  # share of them that must pay, unless the other side confirms it
_MAX_ROUNDS = 5  # wrong quotes hide each other: what is left is compared again
_ROUNDING_TOLERANCE = 1e-12  # forward units
_PARITY_STANDARD_ERRORS = 3.0  # standard errors of forward and discount that parity is granted


def find_contradictions(options: pl.DataFrame, usable: Mask, k: Array) -> dict[Exclusion, Mask]:
    """The ``usable`` quotes that contradict others, by reason.

    A quote is stale if most butterflies with its neighbours pay to trade because of it. Half of
    them are enough if the option of the other side of its strike contradicts it too: it is then
    outside parity bounds. (If only the other side does, that one may be wrong, and it is not
    used anyway.)
    """
    order = np.lexsort((k, options["T"].to_numpy()))
    order = order[usable[order]]
    at = options[order.tolist()]
    unit = (at["forward"] * at["discount"]).to_numpy()
    kappa = np.exp(k[order])
    above = np.where(k[order] >= 0.0, 0.0, 1.0 - kappa)
    bid, ask = at["bid"].to_numpy() / unit + above, at["ask"].to_numpy() / unit + above
    series = at["label"].rle_id().to_numpy()
    other_side = _find_parity_violations(options, at)
    found = {code: np.zeros(k.size, dtype=bool) for code in (Exclusion.PARITY, Exclusion.STALE)}
    left = np.arange(order.size)
    for _ in range(_MAX_ROUNDS):
        share = _CallStrips(series[left], kappa[left], bid[left], ask[left]).share_that_pays()
        outside = other_side[left] & (share >= _MIN_SHARE_CONFIRMED)
        found[Exclusion.PARITY][order[left[outside]]] = True
        found[Exclusion.STALE][order[left[~outside & (share >= _MIN_SHARE_ALONE)]]] = True
        kept = ~(outside | (share >= _MIN_SHARE_ALONE))
        if kept.all():
            break
        left = left[kept]
    return found


class _CallStrips:
    """Calls in forward units, sorted by strike within each of several series."""

    def __init__(self, series: NDArray[np.int64], kappa: Array, bid: Array, ask: Array) -> None:
        self.series, self.kappa, self.bid, self.ask = series, kappa, bid, ask

    def share_that_pays(self) -> Array:
        """Of the butterflies around a quote, the share that pays to trade because of it.

        Because it is sold too high in the middle, or, on both sides alike, bought too low at
        the end.
        """
        n = self.kappa.size
        middle, left, right = np.zeros((3, 2, n), dtype=np.int64)  # paying, compared
        reach = range(1, _STRIKES_PER_SIDE + 1)
        for i in reach:
            for j in reach:
                self._count_butterflies(middle, -i, 0, j)
                self._count_butterflies(right, 0, i, i + j)
                self._count_butterflies(left, -(i + j), -i, 0)
        sold, *bought = (
            np.where(compared >= _MIN_BUTTERFLIES, paying / np.maximum(compared, 1), 0.0)
            for paying, compared in (middle, left, right)
        )
        return np.maximum(sold, np.minimum(*bought))

    def _count_butterflies(self, tally: NDArray[np.int64], low: int, mid: int, high: int) -> None:
        """Count butterflies whose legs lie ``low``, ``mid`` and ``high`` places from a quote."""
        place = np.arange(self.kappa.size)
        inside = (place + low >= 0) & (place + high < place.size)
        place = place[inside]
        a, b, c = place + low, place + mid, place + high
        place, a, b, c = (x[self.series[a] == self.series[c]] for x in (place, a, b, c))
        share = (self.kappa[c] - self.kappa[b]) / (self.kappa[c] - self.kappa[a])
        wings = share * self.ask[a] + (1.0 - share) * self.ask[c]
        tally[0, place] += self.bid[b] > wings + _ROUNDING_TOLERANCE
        tally[1, place] += 1


def _find_parity_violations(options: pl.DataFrame, at: pl.DataFrame) -> Mask:
    """Whether call and put of a strike, traded against each other, miss ``D·(F − K)``."""
    other = options.select(
        "label",
        "strike",
        side=pl.col("side").replace_strict({"call": "put", "put": "call"}, return_dtype=pl.String),
        other_bid="bid",
        other_ask="ask",
    ).unique(["label", "strike", "side"], keep="first", maintain_order=True)
    both = at.join(other, on=["label", "strike", "side"], how="left", maintain_order="left")
    sign = np.where(both["side"] == "call", 1.0, -1.0)
    bid, ask, other_bid, other_ask, K, F, D = (
        both[name].cast(pl.Float64).fill_null(np.nan).to_numpy()
        for name in ("bid", "ask", "other_bid", "other_ask", "strike", "forward", "discount")
    )
    errors = [
        both[name].fill_null(0.0).fill_nan(0.0).to_numpy()
        for name in ("forward_error", "discount_error")
    ]
    slack = (
        _PARITY_STANDARD_ERRORS * (D * errors[0] + np.abs(F - K) * errors[1])
        + _ROUNDING_TOLERANCE * F
    )
    value = sign * D * (F - K)
    two_sided = (other_bid > 0.0) & (other_ask >= other_bid)
    missed = (value > ask - other_bid + slack) | (value < bid - other_ask - slack)
    return np.asarray(two_sided & missed)
