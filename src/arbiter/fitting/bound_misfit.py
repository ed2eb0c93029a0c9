"""The loss of asks without a bid: a wall before the ask, and no pull below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from arbiter.conventions import Array, Indices
from arbiter.fitting.loss import Cost, hinge
from arbiter.fitting.options import FitOptions
from arbiter.fitting.unknowns import UnknownLayout
from arbiter.pricing import black
from arbiter.pricing.price_derivatives import KnotQuadrature, OtmPricer, QuotePrices, SliceIntegrals
from arbiter.quotes import Quotes

_WALL_SHARE = 0.8  # of the ask: where the wall begins


class BoundPoint(NamedTuple):
    """Prices of bounds, with what their derivatives need, and the loss of each."""

    prices: QuotePrices
    cost: Cost


@dataclass(frozen=True, eq=False)
class BoundMisfit:
    """The loss of asks without a bid: a wall from four fifths of the ask on, no pull below it.

    Attributes:
        expiry: ``(u,)`` expiry of each.
        starts: ``(L+1,)`` the first of each expiry.
        pricer: Prices at any slopes.
        edge: ``(u,)`` prices at which the walls begin.
        units: ``(u,)`` units of the distances past them, in price: half of the ask, or more.
        wall: Stiffness, as of a quote.
        far: Distance at which the loss turns linear.
    """

    expiry: Indices
    starts: Indices
    pricer: OtmPricer
    edge: Array
    units: Array
    wall: float
    far: float

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
        edge = _WALL_SHARE * bounds.ask
        T, volatility = (
            quotes.maturities[bounds.expiry],
            black.implied_total_volatility(edge, bounds.k),
        )
        vega = np.asarray(black.vega(bounds.k, volatility.volatility)) * np.sqrt(T)
        return BoundMisfit(
            bounds.expiry,
            np.searchsorted(bounds.expiry, np.arange(count + 1)),
            OtmPricer(
                line,
                np.concatenate([bounds.expiry + j * count for j in range(layout.components)]),
                np.tile(bounds.k, layout.components),
            ),
            edge,
            np.fmax(0.5 * bounds.ask, options.finest * vega),
            options.loss.wall,
            0.5 * options.loss.far,
        )

    def evaluate_at(self, slices: SliceIntegrals, shares: Array) -> BoundPoint:
        """Prices and losses where slices are integrated.

        Args:
            slices: Integrals of the slices of all components.
            shares: Of the second component, as the layout has them.
        """
        prices = self.pricer.price_quotes(slices)
        past = (mix_components(prices, shares, self.expiry) - self.edge) / self.units
        return BoundPoint(prices, hinge(past, self.wall, self.far))


def mix_components(prices: QuotePrices, shares: Array, expiry: Indices) -> Array:
    """Prices of the mixture; of one component its own."""
    if not shares.size:
        return prices.price
    calm, crash = prices.price.reshape(2, -1)
    return np.asarray(calm + shares[0][expiry] * (crash - calm))
