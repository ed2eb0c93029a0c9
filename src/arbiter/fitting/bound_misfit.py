"""The loss of asks without a bid: a wall before the ask, and no pull below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.fitting.loss import Cost, Loss
from arbiter.fitting.options import FitOptions
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.pricing import black
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer, QuotePrices, SliceIntegrals
from arbiter.quotes import Quotes


class BoundPoint(NamedTuple):
    """Prices of bounds, with what their derivatives need, and the loss of each."""

    prices: QuotePrices
    cost: Cost


@dataclass(frozen=True, eq=False)
class BoundMisfit:
    """The loss of asks without a bid: a wall from four fifths of the ask on, no pull below it.

    Such a quote lies between zero and its ask, so half of the ask is its half-spread.

    Attributes:
        expiry: ``(u,)`` expiry of each.
        starts: ``(L+1,)`` the first of each expiry.
        pricer: Prices at any slopes.
        ask: ``(u,)``.
        units: ``(u,)`` half of the ask, or more.
        loss: Of a quote; here without its pull, and on one side.
    """

    expiry: Indices
    starts: Indices
    pricer: OtmPricer
    ask: Array
    units: Array
    loss: Loss

    @classmethod
    def from_quotes(
        cls, quotes: Quotes, options: FitOptions, layout: UnknownLayout, line: KnotQuadrature
    ) -> BoundMisfit | None:
        """The misfit of the bounds of ``quotes``; None where there are none.

        Args:
            quotes: What is fitted.
            options: Loss and smallest half-spread.
            layout: The places of the unknowns.
            line: Quadrature over the knots.
        """
        bounds, (count, _) = quotes.bounds, layout.shape
        if not len(bounds):
            return None
        volatility = black.implied_total_volatility(bounds.ask, bounds.k).volatility
        vega = np.asarray(black.vega(bounds.k, volatility))
        vega *= np.sqrt(quotes.maturities[bounds.expiry])
        return BoundMisfit(
            bounds.expiry,
            np.searchsorted(bounds.expiry, np.arange(count + 1)),
            OtmPricer(
                line,
                np.concatenate([bounds.expiry + j * count for j in range(layout.components)]),
                np.tile(bounds.k, layout.components),
            ),
            bounds.ask,
            np.fmax(0.5 * bounds.ask, options.finest * vega),
            options.loss,
        )

    def evaluate_at(self, slices: SliceIntegrals, shares: Array) -> BoundPoint:
        """Prices and losses where slices are integrated.

        Args:
            slices: Integrals of the slices of all components.
            shares: Of the second component, as the layout has them.
        """
        prices = self.pricer.price_quotes(slices)
        price = mix_components(prices, shares, self.expiry)
        return BoundPoint(prices, self.loss.above(1.0 + (price - self.ask) / self.units))


def mix_components(prices: QuotePrices, shares: Array, expiry: Indices) -> Array:
    """Prices of the mixture; of one component its own."""
    if not shares.size:
        return prices.price
    calm, crash = prices.price.reshape(2, -1)
    return np.asarray(calm + shares[0][expiry] * (crash - calm))
